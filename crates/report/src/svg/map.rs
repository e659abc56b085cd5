//! Paths over a plane with round regions.

use super::axis::{Axis, Mapping};
use super::canvas::{Canvas, text_width};
use super::frame::{self, Area, Stroke};
use super::legend::{self, Entry, Sample};
use super::theme::{self, NEUTRAL, TEXT};
use super::{Chart, Figure};
use crate::number::significant;

/// What a round region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscKind {
    /// Being inside costs.
    Hazard,
    /// Where to get to.
    Goal,
    /// Where paths begin.
    Start,
}

/// A round region, in the units of the plane.
#[derive(Clone, Debug, PartialEq)]
pub struct Disc {
    /// What it is; decides the colour.
    pub kind: DiscKind,
    /// Centre `(x, y)`.
    pub center: (f64, f64),
    /// Radius.
    pub radius: f64,
    /// Text beside it; may be empty.
    pub label: String,
}

/// Paths that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct PathGroup {
    name: String,
    paths: Vec<Vec<(f64, f64)>>,
    color: Option<usize>,
    faint: bool,
}

impl PathGroup {
    /// Paths drawn strongly, in the palette's next colour.
    #[must_use]
    pub fn new(name: impl Into<String>, paths: Vec<Vec<(f64, f64)>>) -> Self {
        Self { name: name.into(), paths, color: None, faint: false }
    }

    /// Paths drawn thin and grey, behind the others: the logs.
    #[must_use]
    pub fn faint(name: impl Into<String>, paths: Vec<Vec<(f64, f64)>>) -> Self {
        Self { name: name.into(), paths, color: Some(NEUTRAL), faint: true }
    }

    /// Takes this colour of the palette.
    #[must_use]
    pub fn color(mut self, index: usize) -> Self {
        self.color = Some(index);
        self
    }
}

/// A map with equal scales on both axes.
///
/// ```
/// use coptidice_report::svg::{Chart, Disc, DiscKind, PathGroup, PathMap};
/// let figure = PathMap::new("Paths", (-1.2, 1.2), (-1.0, 1.0))
///     .disc(Disc { kind: DiscKind::Hazard, center: (0.0, 0.0), radius: 0.3, label: "hazard".into() })
///     .paths(PathGroup::faint("logged", vec![vec![(-1.0, 0.0), (1.0, 0.1)]]))
///     .paths(PathGroup::new("coptidice", vec![vec![(-1.0, 0.0), (0.0, 0.5), (1.0, 0.0)]]))
///     .figure();
/// assert!(figure.inline().contains("hazard"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PathMap {
    title: String,
    x: (f64, f64),
    y: (f64, f64),
    labels: (String, String),
    discs: Vec<Disc>,
    groups: Vec<PathGroup>,
    width: f64,
}

impl PathMap {
    /// A map of the given ranges, 560 units wide. A range that is empty or not finite becomes `(-1, 1)`.
    #[must_use]
    pub fn new(title: impl Into<String>, x: (f64, f64), y: (f64, f64)) -> Self {
        let proper = |(low, high): (f64, f64)| {
            if low < high && low.abs() < 1e100 && high.abs() < 1e100 { (low, high) } else { (-1.0, 1.0) }
        };
        Self {
            title: title.into(),
            x: proper(x),
            y: proper(y),
            labels: (String::new(), String::new()),
            discs: Vec::new(),
            groups: Vec::new(),
            width: 560.0,
        }
    }

    /// Names the axes.
    #[must_use]
    pub fn labels(mut self, x: impl Into<String>, y: impl Into<String>) -> Self {
        self.labels = (x.into(), y.into());
        self
    }

    /// Adds a region.
    #[must_use]
    pub fn disc(mut self, disc: Disc) -> Self {
        self.discs.push(disc);
        self
    }

    /// Adds paths; later groups lie above earlier ones.
    #[must_use]
    pub fn paths(mut self, group: PathGroup) -> Self {
        self.groups.push(group);
        self
    }

    /// Sets the width in figure units, at least 200. The height follows from the ranges.
    #[must_use]
    pub fn width(mut self, width: f64) -> Self {
        self.width = width.clamp(200.0, 4000.0);
        self
    }

    fn colors(&self) -> Vec<usize> {
        let mut next = 0;
        let mut take = || {
            next += 1;
            next - 1
        };
        self.groups.iter().map(|g| g.color.unwrap_or_else(&mut take)).collect()
    }

    fn description(&self) -> String {
        let mut text = String::from("Map.");
        let show = |v| significant(v, 3);
        for d in &self.discs {
            let kind = match d.kind {
                DiscKind::Hazard => "Hazard",
                DiscKind::Goal => "Goal",
                DiscKind::Start => "Start",
            };
            let (x, y) = d.center;
            text.push_str(&format!(" {kind} at ({}, {}), radius {}.", show(x), show(y), show(d.radius)));
        }
        for g in &self.groups {
            let inside = |p: &(f64, f64), d: &Disc| {
                (p.0 - d.center.0).hypot(p.1 - d.center.1) < d.radius && d.kind == DiscKind::Hazard
            };
            let through = g
                .paths
                .iter()
                .filter(|path| path.iter().any(|p| self.discs.iter().any(|d| inside(p, d))))
                .count();
            let paths = if g.paths.len() == 1 { "path" } else { "paths" };
            text.push_str(&format!(" {}: {} {paths}, {through} through a hazard.", g.name, g.paths.len()));
        }
        text
    }
}

impl Chart for PathMap {
    fn figure(&self) -> Figure {
        let colors = self.colors();
        let entries: Vec<Entry<'_>> = self
            .groups
            .iter()
            .zip(&colors)
            .map(|(g, &color)| Entry {
                name: &g.name,
                sample: Sample::Series { color, dashed: false, marker: None },
            })
            .collect();
        let mut canvas = Canvas::default();
        let mut top = 6.0;
        if !entries.is_empty() {
            legend::draw(&mut canvas, &entries, 6.0, top, self.width - 12.0);
            top += legend::height(&entries, self.width - 12.0) + 8.0;
        }
        let (x_axis, y_axis) = (Axis::linear(self.labels.0.as_str()), Axis::linear(self.labels.1.as_str()));
        if !y_axis.label.is_empty() {
            frame::label(&mut canvas, false, 6.0, top + 10.0).text(&y_axis.label);
            top += 18.0;
        }
        let y_ticks = y_axis.ticks(self.y, 6);
        let left = frame::label_room(&y_ticks) + 2.0;
        let plot_width = self.width - left - 12.0;
        // Equal scales; a very tall or flat map is kept within reason, at the price of unequal ones.
        let aspect = ((self.y.1 - self.y.0) / (self.x.1 - self.x.0)).clamp(0.2, 2.0);
        let area = Area { left, top, width: plot_width, height: plot_width * aspect };
        let height = area.bottom() + if x_axis.label.is_empty() { 24.0 } else { 42.0 };
        let x = Mapping::new(&x_axis, self.x, area.left, area.right());
        let y = Mapping::new(&y_axis, self.y, area.bottom(), area.top);

        frame::draw_y_axis(&mut canvas, area, y, &y_ticks, true);
        frame::draw_x_axis(&mut canvas, area, x, &x_axis.ticks(self.x, 7), true);
        frame::draw_x_label(&mut canvas, area, height - 6.0, &x_axis.label);
        area.clip(&mut canvas);
        for disc in &self.discs {
            draw_disc(&mut canvas, disc, x, y);
        }
        for (group, &color) in self.groups.iter().zip(&colors) {
            draw_paths(&mut canvas, group, color, x, y);
        }
        for disc in self.discs.iter().filter(|d| !d.label.is_empty() && drawable(d)) {
            let (cx, cy) = (x.at(disc.center.0), y.at(disc.center.1));
            let radius = (x.at(disc.center.0 + disc.radius) - cx).abs();
            // Inside where it fits, above a small disc.
            let inside = text_width(&disc.label, TEXT) < 1.6 * radius;
            let baseline = if inside { cy + 4.0 } else { cy - radius - 6.0 };
            let label = frame::label_over(&mut canvas, cx, baseline).attr("text-anchor", "middle");
            label.attr("font-weight", "600").text(&disc.label);
        }
        Area::unclip(&mut canvas);
        let mut notes = Vec::new();
        let broken = self.groups.iter().flat_map(|g| g.paths.iter().flatten()).filter(|p| !on_map(p)).count();
        if broken > 0 {
            notes.push(format!("{broken} position{} not finite", if broken == 1 { "" } else { "s" }));
        }
        Figure::new(&self.title, &self.description(), (self.width, height), canvas).with_notes(notes)
    }
}

fn on_map(&(x, y): &(f64, f64)) -> bool {
    x.abs() < 1e100 && y.abs() < 1e100
}

fn drawable(disc: &Disc) -> bool {
    on_map(&disc.center) && disc.radius > 0.0 && disc.radius < 1e100
}

fn draw_disc(canvas: &mut Canvas, disc: &Disc, x: Mapping, y: Mapping) {
    if !drawable(disc) {
        return;
    }
    let color = match disc.kind {
        DiscKind::Hazard => 1,
        DiscKind::Goal => 2,
        DiscKind::Start => NEUTRAL,
    };
    let (slot, tone) = theme::series(color);
    let (cx, cy) = disc.center;
    canvas
        .element("ellipse")
        .attr("class", &format!("cd-f{slot} cd-l{slot}"))
        .attr("fill", tone.light)
        .attr("fill-opacity", "0.16")
        .attr("stroke", tone.light)
        .attr("stroke-width", "1.5")
        .num("cx", x.at(cx))
        .num("cy", y.at(cy))
        .num("rx", (x.at(cx + disc.radius) - x.at(cx)).abs())
        .num("ry", (y.at(cy + disc.radius) - y.at(cy)).abs())
        .empty();
}

fn draw_paths(canvas: &mut Canvas, group: &PathGroup, color: usize, x: Mapping, y: Mapping) {
    let stroke = if group.faint {
        Stroke { color, width: 1.0, dashed: false, opacity: 0.3 }
    } else {
        Stroke { color, width: 1.8, dashed: false, opacity: 0.85 }
    };
    for run in group.paths.iter().flat_map(|path| path.split(|p| !on_map(p))).filter(|r| !r.is_empty()) {
        let line = without_repeats(run.iter().map(|p| (x.at(p.0), y.at(p.1))));
        stroke.polyline(canvas, &line);
        // Where a learned path ends.
        if let (false, Some(&(ex, ey))) = (group.faint, line.last()) {
            frame::draw_marker(canvas, 0, color, ex, ey);
        }
    }
}

/// Drops positions within half a unit of the last one kept: a path that lingers is drawn once.
fn without_repeats(places: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (x, y) in places {
        if kept.last().is_none_or(|k| (k.0 - x).hypot(k.1 - y) >= 0.5) {
            kept.push((x, y));
        }
    }
    kept
}
