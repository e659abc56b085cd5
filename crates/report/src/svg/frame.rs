//! The plot area that all charts with two axes share: grid, marks, labels, lines, references.

use super::axis::{Axis, Mapping};
use super::canvas::{Canvas, coordinate, points, text_width};
use super::series::{Interval, Point, Reference, Series, thin_out};
use super::theme::{self, TEXT};
use super::ticks::Tick;

/// The rectangle within the axes, in figure units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Area {
    pub(crate) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Opens a nested viewport that clips to this area and keeps its coordinates. Unlike a clip path it needs no
    /// identifier, which would have to be unique on a page of many figures.
    pub(crate) fn clip(&self, canvas: &mut Canvas) {
        let view = [self.left, self.top, self.width, self.height].map(coordinate).join(" ");
        canvas
            .element("svg")
            .num("x", self.left)
            .num("y", self.top)
            .num("width", self.width)
            .num("height", self.height)
            .attr("viewBox", &view)
            .attr("overflow", "hidden")
            .open();
    }

    pub(crate) fn unclip(canvas: &mut Canvas) {
        canvas.close("svg");
    }
}

/// How a line looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stroke {
    pub(crate) color: usize,
    pub(crate) width: f64,
    pub(crate) dashed: bool,
    pub(crate) opacity: f64,
}

impl Stroke {
    fn apply<'a>(&self, element: super::canvas::Element<'a>) -> super::canvas::Element<'a> {
        let (slot, tone) = theme::series(self.color);
        let mut element = element
            .attr("class", &format!("cd-l{slot}"))
            .attr("stroke", tone.light)
            .num("stroke-width", self.width)
            .attr("fill", "none");
        if self.dashed {
            element = element.attr("stroke-dasharray", "5 3");
        }
        if self.opacity < 1.0 {
            element = element.num("stroke-opacity", self.opacity);
        }
        element
    }

    pub(crate) fn line(&self, canvas: &mut Canvas, from: (f64, f64), to: (f64, f64)) {
        self.apply(canvas.element("line"))
            .num("x1", from.0)
            .num("y1", from.1)
            .num("x2", to.0)
            .num("y2", to.1)
            .empty();
    }

    pub(crate) fn polyline(&self, canvas: &mut Canvas, line: &[(f64, f64)]) {
        self.apply(canvas.element("polyline"))
            .attr("stroke-linejoin", "round")
            .attr("stroke-linecap", "round")
            .attr("points", &points(line))
            .empty();
    }
}

/// Text in one of the two text colours.
pub(crate) fn label<'a>(canvas: &'a mut Canvas, ink: bool, x: f64, y: f64) -> super::canvas::Element<'a> {
    let (class, tone) = if ink { ("cd-ink", theme::INK) } else { ("cd-muted", theme::MUTED) };
    canvas.element("text").attr("class", class).attr("fill", tone.light).num("x", x).num("y", y)
}

/// Text over lines: outlined in the background's colour so that it stays legible.
pub(crate) fn label_over<'a>(canvas: &'a mut Canvas, x: f64, y: f64) -> super::canvas::Element<'a> {
    canvas
        .element("text")
        .attr("class", "cd-ink cd-halo")
        .attr("fill", theme::INK.light)
        .attr("stroke", theme::BACKGROUND.light)
        .attr("stroke-width", "3")
        .attr("stroke-linejoin", "round")
        .attr("paint-order", "stroke")
        .num("x", x)
        .num("y", y)
}

/// A rule of the grid or the base line.
pub(crate) fn rule(canvas: &mut Canvas, class: &'static str, from: (f64, f64), to: (f64, f64)) {
    let tone = match class {
        "cd-grid" => theme::GRID,
        "cd-axis" => theme::AXIS,
        _ => theme::INK,
    };
    canvas
        .element("line")
        .attr("class", class)
        .attr("stroke", tone.light)
        .num("x1", from.0)
        .num("y1", from.1)
        .num("x2", to.0)
        .num("y2", to.1)
        .empty();
}

/// Horizontal grid lines and, where `labelled`, their numbers at the left.
pub(crate) fn draw_y_axis(canvas: &mut Canvas, area: Area, map: Mapping, marks: &[Tick], labelled: bool) {
    for tick in marks {
        let y = map.at(tick.value);
        if tick.label.is_empty() {
            continue;
        }
        rule(canvas, "cd-grid", (area.left, y), (area.right(), y));
        if labelled {
            label(canvas, false, area.left - 6.0, y + 4.0).attr("text-anchor", "end").text(&tick.label);
        }
    }
}

/// The base line with its marks and, where `labelled`, their numbers below.
pub(crate) fn draw_x_axis(canvas: &mut Canvas, area: Area, map: Mapping, marks: &[Tick], labelled: bool) {
    rule(canvas, "cd-axis", (area.left, area.bottom()), (area.right(), area.bottom()));
    let mut taken = f64::NEG_INFINITY;
    for tick in marks {
        let x = map.at(tick.value);
        let length = if tick.label.is_empty() { 2.5 } else { 4.0 };
        rule(canvas, "cd-axis", (x, area.bottom()), (x, area.bottom() + length));
        let half = text_width(&tick.label, TEXT) / 2.0;
        // A label that would touch the one before is left out; its mark stays.
        if labelled && !tick.label.is_empty() && x - half > taken + 3.0 {
            label(canvas, false, x, area.bottom() + 17.0).attr("text-anchor", "middle").text(&tick.label);
            taken = x + half;
        }
    }
}

/// Centred text below an area, such as what its horizontal axis measures; nothing for an empty one.
pub(crate) fn draw_x_label(canvas: &mut Canvas, area: Area, baseline: f64, text: &str) {
    if !text.is_empty() {
        let middle = area.left + area.width / 2.0;
        label(canvas, false, middle, baseline).attr("text-anchor", "middle").text(text);
    }
}

/// Says in the middle of an area that there is nothing to draw.
pub(crate) fn draw_no_data(canvas: &mut Canvas, area: Area) {
    draw_x_label(canvas, area, area.top + area.height / 2.0, "no data");
}

/// Room for the numbers of a vertical axis.
pub(crate) fn label_room(marks: &[Tick]) -> f64 {
    marks.iter().map(|t| text_width(&t.label, TEXT)).fold(0.0, f64::max) + 10.0
}

/// Draws a series: interval, line, markers. Call inside a clipped area.
pub(crate) fn draw_series(
    canvas: &mut Canvas,
    series: &Series,
    color: usize,
    (x_axis, x): (&Axis, Mapping),
    (y_axis, y): (&Axis, Mapping),
    columns: usize,
) {
    let place = |p: &Point| (x.at(p.x), y.at(p.y));
    let stroke = Stroke {
        color,
        width: if series.faint { 1.0 } else { 1.8 },
        dashed: series.dashed,
        opacity: if series.faint { 0.35 } else { 1.0 },
    };
    for run in series.runs(x_axis, y_axis) {
        match series.interval {
            Interval::Band => draw_band(canvas, color, &thin_out(run, columns), x, (y_axis, y)),
            Interval::Bars => draw_error_bars(canvas, stroke, run, x, (y_axis, y)),
            Interval::None => {}
        }
        let line: Vec<_> = thin_out(run, columns).iter().map(place).collect();
        match line.as_slice() {
            // A line of one point would be invisible.
            [only] if !series.markers => draw_marker(canvas, 0, color, only.0, only.1),
            line => stroke.polyline(canvas, line),
        }
    }
}

/// Draws a series' markers with their values as tooltips. Not clipped: a marker on the edge is drawn whole.
pub(crate) fn draw_markers(
    canvas: &mut Canvas,
    series: &Series,
    (color, shape): (usize, usize),
    area: Area,
    (x_axis, x): (&Axis, Mapping),
    (y_axis, y): (&Axis, Mapping),
) {
    open_markers(canvas, color);
    for point in series.runs(x_axis, y_axis).into_iter().flatten() {
        let (px, py) = (x.at(point.x), y.at(point.y));
        let inside = |v: f64, low: f64, high: f64| v >= low - 0.5 && v <= high + 0.5;
        if inside(px, area.left, area.right()) && inside(py, area.top, area.bottom()) {
            let show = |v| crate::number::significant(v, 4);
            let mut tip = format!("{}: {} at {}", series.name, show(point.y), show(point.x));
            if series.interval != Interval::None {
                tip.push_str(&format!(" ({} to {})", show(point.low), show(point.high)));
            }
            marker(canvas, shape, px, py, Some(&tip));
        }
    }
    canvas.close("g");
}

fn draw_band(canvas: &mut Canvas, color: usize, run: &[Point], x: Mapping, (y_axis, y): (&Axis, Mapping)) {
    // An end that cannot be drawn (NaN, or below zero on a logarithmic axis) falls back to the line itself.
    let end = |p: &Point, v: f64| (x.at(p.x), y.at(if y_axis.can_show(v) { v } else { p.y }));
    let mut outline: Vec<_> = run.iter().map(|p| end(p, p.high)).collect();
    outline.extend(run.iter().rev().map(|p| end(p, p.low)));
    let (slot, tone) = theme::series(color);
    canvas
        .element("polygon")
        .attr("class", &format!("cd-f{slot}"))
        .attr("fill", tone.light)
        .attr("fill-opacity", "0.18")
        .attr("points", &points(&outline))
        .empty();
}

fn draw_error_bars(
    canvas: &mut Canvas,
    stroke: Stroke,
    run: &[Point],
    x: Mapping,
    (y_axis, y): (&Axis, Mapping),
) {
    let mut path = String::new();
    for point in run.iter().filter(|p| y_axis.can_show(p.low) && y_axis.can_show(p.high)) {
        let (px, low, high) = (x.at(point.x), y.at(point.low), y.at(point.high));
        if (low - high).abs() < 0.5 {
            continue;
        }
        let [left, middle, right] = [px - 2.5, px, px + 2.5].map(coordinate);
        let [low, high] = [low, high].map(coordinate);
        path.push_str(&format!("M{left},{low}H{right}M{middle},{low}V{high}M{left},{high}H{right}"));
    }
    if !path.is_empty() {
        let bar = Stroke { width: 1.2, dashed: false, ..stroke };
        bar.apply(canvas.element("path")).attr("d", &path).empty();
    }
}

/// Draws a single marker.
pub(crate) fn draw_marker(canvas: &mut Canvas, shape: usize, color: usize, x: f64, y: f64) {
    open_markers(canvas, color);
    marker(canvas, shape, x, y, None);
    canvas.close("g");
}

/// Opens a group of markers of one colour.
fn open_markers(canvas: &mut Canvas, color: usize) {
    let (slot, tone) = theme::series(color);
    canvas.element("g").attr("class", &format!("cd-f{slot}")).attr("fill", tone.light).open();
}

/// One of six shapes about `(x, y)`, with a tooltip or without.
fn marker(canvas: &mut Canvas, shape: usize, x: f64, y: f64, tip: Option<&str>) {
    let corners: &[(f64, f64)] = match shape % 6 {
        0 => &[],
        1 => &[(-3.1, -3.1), (3.1, -3.1), (3.1, 3.1), (-3.1, 3.1)],
        2 => &[(0.0, -4.2), (4.0, 3.0), (-4.0, 3.0)],
        3 => &[(0.0, -4.5), (4.5, 0.0), (0.0, 4.5), (-4.5, 0.0)],
        4 => &[(0.0, 4.2), (4.0, -3.0), (-4.0, -3.0)],
        // An upright cross.
        _ => &[
            (-1.3, -4.2),
            (1.3, -4.2),
            (1.3, -1.3),
            (4.2, -1.3),
            (4.2, 1.3),
            (1.3, 1.3),
            (1.3, 4.2),
            (-1.3, 4.2),
            (-1.3, 1.3),
            (-4.2, 1.3),
            (-4.2, -1.3),
            (-1.3, -1.3),
        ],
    };
    let tag = if corners.is_empty() { "circle" } else { "polygon" };
    let element = canvas.element(tag);
    let element = if corners.is_empty() {
        element.num("cx", x).num("cy", y).num("r", 3.4)
    } else {
        element.attr("points", &points(&corners.iter().map(|c| (x + c.0, y + c.1)).collect::<Vec<_>>()))
    };
    match tip {
        None => element.empty(),
        Some(tip) => {
            element.open();
            canvas.element("title").text(tip);
            canvas.close(tag);
        }
    }
}

/// Dashed horizontal lines; the legend names them.
pub(crate) fn draw_references(
    canvas: &mut Canvas,
    references: &[Reference],
    area: Area,
    (axis, y): (&Axis, Mapping),
) {
    for reference in references.iter().filter(|r| axis.can_show(r.value)) {
        let at = y.at(reference.value);
        if at >= area.top - 0.5 && at <= area.bottom() + 0.5 {
            dashed_rule(canvas, (area.left, at), (area.right(), at));
        }
    }
}

pub(crate) fn dashed_rule(canvas: &mut Canvas, from: (f64, f64), to: (f64, f64)) {
    canvas
        .element("line")
        .attr("class", "cd-rule")
        .attr("stroke", theme::INK.light)
        .attr("stroke-width", "1.2")
        .attr("stroke-dasharray", "4 3")
        .num("x1", from.0)
        .num("y1", from.1)
        .num("x2", to.0)
        .num("y2", to.1)
        .empty();
}
