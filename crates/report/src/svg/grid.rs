//! Rows and columns of panels over one horizontal axis, in the arrangement of the paper's figures.

use super::axis::{Axis, Mapping};
use super::canvas::{coordinate, fit_text, text_width};
use super::frame::{self, Area};
use super::legend::{self, Entry, Sample};
use super::line::{describe, draw_contents, omissions};
use super::series::{Reference, Series};
use super::theme::{TEXT, TITLE};
use super::ticks::Tick;
use super::{Canvas, Chart, Figure};

/// One panel of a [`PanelGrid`].
#[derive(Clone, Debug, PartialEq)]
pub struct GridPanel {
    y: Axis,
    series: Vec<Series>,
    references: Vec<Reference>,
    y_group: Option<u32>,
}

impl GridPanel {
    /// An empty panel.
    #[must_use]
    pub fn new(y: Axis) -> Self {
        Self { y, series: Vec::new(), references: Vec::new(), y_group: None }
    }

    /// Adds a series. Series of one name have one colour and marker throughout the grid.
    #[must_use]
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Adds a value to compare with.
    #[must_use]
    pub fn reference(mut self, reference: Reference) -> Self {
        self.y = self.y.including(reference.value);
        self.references.push(reference);
        self
    }

    /// Panels of one group share the vertical range, wherever they stand. Of neighbours in a row only the first
    /// then carries numbers.
    #[must_use]
    pub fn shared_y(mut self, group: u32) -> Self {
        self.y_group = Some(group);
        self
    }
}

/// A row of panels with an optional title above it.
#[derive(Clone, Debug, PartialEq)]
pub struct GridRow {
    title: String,
    panels: Vec<GridPanel>,
}

impl GridRow {
    /// A row; an empty title takes no room.
    #[must_use]
    pub fn new(title: impl Into<String>, panels: Vec<GridPanel>) -> Self {
        Self { title: title.into(), panels }
    }
}

/// The grid.
///
/// ```
/// use coptidice_report::svg::{Axis, Chart, GridPanel, GridRow, PanelGrid, Reference, Series};
/// let sizes = [10.0, 100.0, 1000.0];
/// let line = |name: &str, values: [f64; 3]| {
///     Series::new(name, sizes.into_iter().zip(values)).error_bars([0.01; 3]).markers()
/// };
/// let reward = GridPanel::new(Axis::linear("normalised reward")).series(line("coptidice", [0.2, 0.5, 0.7]));
/// let cost = GridPanel::new(Axis::linear("cost"))
///     .series(line("coptidice", [0.08, 0.09, 0.1]))
///     .reference(Reference::new(0.1, "limit"));
/// let figure = PanelGrid::new("Tabular CMDPs", Axis::logarithmic("trajectories").marks(sizes))
///     .column_group("(a) behaviour keeps the limit", 2)
///     .row(GridRow::new("", vec![reward, cost]))
///     .figure();
/// assert!(figure.width() > 300.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PanelGrid {
    title: String,
    x: Axis,
    groups: Vec<(String, usize)>,
    columns: Vec<String>,
    rows: Vec<GridRow>,
    panel: (f64, f64),
}

impl PanelGrid {
    /// An empty grid over the horizontal axis `x`, with panels of 200 by 140 units.
    #[must_use]
    pub fn new(title: impl Into<String>, x: Axis) -> Self {
        let title = title.into();
        Self { title, x, groups: Vec::new(), columns: Vec::new(), rows: Vec::new(), panel: (200.0, 140.0) }
    }

    /// Heads the next `span` columns with a common title.
    #[must_use]
    pub fn column_group(mut self, title: impl Into<String>, span: usize) -> Self {
        self.groups.push((title.into(), span));
        self
    }

    /// Heads the next column.
    #[must_use]
    pub fn column(mut self, title: impl Into<String>) -> Self {
        self.columns.push(title.into());
        self
    }

    /// Adds a row of panels. Rows may differ in length.
    #[must_use]
    pub fn row(mut self, row: GridRow) -> Self {
        self.rows.push(row);
        self
    }

    /// Sets the size of each plot area, at least 80 by 60.
    #[must_use]
    pub fn panel_size(mut self, width: f64, height: f64) -> Self {
        self.panel = (width.clamp(80.0, 2000.0), height.clamp(60.0, 2000.0));
        self
    }

    fn panels(&self) -> impl Iterator<Item = &GridPanel> {
        self.rows.iter().flat_map(|r| &r.panels)
    }

    /// Every series name, in order of first appearance: a name's place is its colour and marker.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for series in self.panels().flat_map(|p| &p.series).filter(|s| !s.faint) {
            if !names.contains(&series.name.as_str()) {
                names.push(&series.name);
            }
        }
        names
    }

    fn entries<'a>(&'a self, names: &[&'a str]) -> Vec<Entry<'a>> {
        let first = |name: &str| self.panels().flat_map(|p| &p.series).find(|s| s.name == name);
        let series = names.iter().enumerate().filter_map(|(i, &name)| {
            let s = first(name)?;
            let (color, marker) = (s.color.unwrap_or(i), s.markers.then_some(i));
            Some(Entry { name, sample: Sample::Series { color, dashed: s.dashed, marker } })
        });
        series.chain(legend::references(self.panels().flat_map(|p| &p.references))).collect()
    }

    /// The vertical range of a panel: of its group's values, or of its own.
    fn y_range(&self, panel: &GridPanel) -> (f64, f64) {
        let members: Vec<&GridPanel> = match panel.y_group {
            Some(_) => self.panels().filter(|p| p.y_group == panel.y_group).collect(),
            None => vec![panel],
        };
        let values: Vec<f64> =
            members.iter().flat_map(|p| p.series.iter().flat_map(Series::heights)).collect();
        let references = members.iter().flat_map(|p| &p.references);
        let axis = references.fold(members[0].y.clone(), |axis, r| axis.including(r.value));
        axis.fit(&values, true)
    }

    /// Whether a panel leaves its numbers to its left neighbour.
    fn follows(row: &GridRow, column: usize) -> bool {
        column > 0
            && row.panels[column].y_group.is_some()
            && row.panels[column].y_group == row.panels[column - 1].y_group
    }

    fn description(&self) -> String {
        let mut text = format!("Grid of line charts over {}.", self.x.label);
        for (r, row) in self.rows.iter().enumerate() {
            for (c, panel) in row.panels.iter().enumerate() {
                let column = self.columns.get(c).map_or("", String::as_str);
                text.push_str(&format!(
                    " Row {} {}, column {} {column}, {}:",
                    r + 1,
                    row.title,
                    c + 1,
                    panel.y.label
                ));
                for series in panel.series.iter().filter(|s| !s.faint) {
                    text.push(' ');
                    text.push_str(&describe(series));
                }
            }
        }
        text
    }
}

/// Where everything goes.
struct Layout {
    /// Left edge of each column's plot area.
    lefts: Vec<f64>,
    width: f64,
    height: f64,
    legend: f64,
    group_titles: f64,
    /// Top edge of each row's plot area.
    tops: Vec<f64>,
}

const MARGIN: f64 = 8.0;

impl PanelGrid {
    fn layout(&self, entries: &[Entry<'_>], ranges: &[Vec<(f64, f64)>]) -> Layout {
        let column_count = self.rows.iter().map(|r| r.panels.len()).max().unwrap_or(0);
        let mut lefts = Vec::with_capacity(column_count);
        let mut x = MARGIN;
        for column in 0..column_count {
            let mut room = 14.0_f64;
            for (r, row) in self.rows.iter().enumerate().filter(|(_, row)| column < row.panels.len()) {
                if !Self::follows(row, column) {
                    let ticks = row.panels[column].y.ticks(ranges[r][column], self.y_tick_count());
                    room = room.max(frame::label_room(&ticks) + if column > 0 { 10.0 } else { 0.0 });
                }
            }
            x += room;
            lefts.push(x);
            x += self.panel.0;
        }
        let width = x + 16.0;
        let legend =
            if entries.is_empty() { 0.0 } else { legend::height(entries, width - 2.0 * MARGIN) + 8.0 };
        let group_titles = if self.groups.is_empty() { 0.0 } else { 26.0 };
        let column_titles = if self.columns.is_empty() { 0.0 } else { 20.0 };
        let mut y = MARGIN + legend + group_titles + column_titles;
        let mut tops = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            y += if row.title.is_empty() { 0.0 } else { 22.0 };
            y += if row.panels.iter().any(|p| !p.y.label.is_empty()) { 22.0 } else { 8.0 };
            tops.push(y);
            y += self.panel.1 + 12.0;
        }
        let below = 22.0 + if self.x.label.is_empty() { 0.0 } else { 18.0 };
        Layout { lefts, width, height: y - 12.0 + below + 2.0, legend, group_titles, tops }
    }

    fn y_tick_count(&self) -> usize {
        ((self.panel.1 / 28.0) as usize).clamp(2, 6)
    }

    fn draw_titles(&self, canvas: &mut Canvas, layout: &Layout) {
        let mut column = 0;
        let top = MARGIN + layout.legend;
        for (title, span) in &self.groups {
            let last = (column + span).min(layout.lefts.len());
            if column >= last {
                break;
            }
            let (left, right) = (layout.lefts[column], layout.lefts[last - 1] + self.panel.0);
            frame::label(canvas, true, (left + right) / 2.0, top + 12.0)
                .attr("text-anchor", "middle")
                .attr("font-weight", "600")
                .attr("font-size", &coordinate(TITLE))
                .text(&fit_text(title, TITLE, right - left));
            frame::rule(canvas, "cd-axis", (left, top + 19.0), (right, top + 19.0));
            column = last;
        }
        for (title, &left) in self.columns.iter().zip(&layout.lefts) {
            frame::label(canvas, true, left + self.panel.0 / 2.0, top + layout.group_titles + 14.0)
                .attr("text-anchor", "middle")
                .text(&fit_text(title, TEXT, self.panel.0 + 20.0));
        }
    }
}

/// What all panels share.
struct Shared<'a> {
    names: Vec<&'a str>,
    x_range: (f64, f64),
    x_ticks: Vec<Tick>,
}

impl PanelGrid {
    /// Draws one panel into its place: axes, series in the order of the names, references.
    fn draw_panel(
        &self,
        canvas: &mut Canvas,
        area: Area,
        shared: &Shared<'_>,
        (r, c): (usize, usize),
        y_range: (f64, f64),
    ) {
        let row = &self.rows[r];
        let panel = &row.panels[c];
        let x = (&self.x, Mapping::new(&self.x, shared.x_range, area.left, area.right()));
        let y = (&panel.y, Mapping::new(&panel.y, y_range, area.bottom(), area.top));
        let numbered = !Self::follows(row, c);
        // A panel with nothing below it carries the numbers of the horizontal axis.
        let is_lowest = self.rows.get(r + 1).is_none_or(|next| next.panels.len() <= c);
        frame::draw_y_axis(canvas, area, y.1, &panel.y.ticks(y_range, self.y_tick_count()), numbered);
        frame::draw_x_axis(canvas, area, x.1, &shared.x_ticks, is_lowest);
        if numbered {
            let room = if c == 0 { area.left - MARGIN } else { text_width("0.00", TEXT) };
            let text = fit_text(&panel.y.label, TEXT, room + area.width);
            frame::label(canvas, false, area.left - room, area.top - 11.0).text(&text);
        }
        let place = |s: &Series| shared.names.iter().position(|n| *n == s.name).unwrap_or(0);
        let mut series: Vec<Series> = panel.series.clone();
        series.sort_by_key(place);
        let looks: Vec<_> = series.iter().map(|s| (s.color.unwrap_or_else(|| place(s)), place(s))).collect();
        draw_contents(canvas, area, &series, &looks, &panel.references, x, y);
    }
}

impl Chart for PanelGrid {
    fn figure(&self) -> Figure {
        let xs: Vec<f64> =
            self.panels().flat_map(|p| &p.series).flat_map(|s| s.points.iter().map(|p| p.x)).collect();
        // Markers on the first and last place need air.
        let x_range = self.x.fit(&xs, self.x.logarithmic);
        let x_ticks = self.x.ticks(x_range, ((self.panel.0 / 55.0) as usize).clamp(2, 8));
        let shared = Shared { names: self.names(), x_range, x_ticks };
        let entries = self.entries(&shared.names);
        let ranges: Vec<Vec<(f64, f64)>> =
            self.rows.iter().map(|r| r.panels.iter().map(|p| self.y_range(p)).collect()).collect();
        let layout = self.layout(&entries, &ranges);

        let mut canvas = Canvas::default();
        legend::draw(&mut canvas, &entries, MARGIN, MARGIN, layout.width - 2.0 * MARGIN);
        self.draw_titles(&mut canvas, &layout);
        let mut notes = Vec::new();
        for (r, row) in self.rows.iter().enumerate() {
            let top = layout.tops[r];
            if !row.title.is_empty() {
                let has_label = row.panels.iter().any(|p| !p.y.label.is_empty());
                let y = top - if has_label { 28.0 } else { 10.0 };
                frame::label(&mut canvas, true, MARGIN, y).attr("font-weight", "600").text(&row.title);
            }
            for (c, panel) in row.panels.iter().enumerate() {
                let area = Area { left: layout.lefts[c], top, width: self.panel.0, height: self.panel.1 };
                self.draw_panel(&mut canvas, area, &shared, (r, c), ranges[r][c]);
                let missing = omissions(&panel.series, &self.x, &panel.y, ranges[r][c]);
                notes.extend(missing.iter().map(|m| format!("row {}, column {}: {m}", r + 1, c + 1)));
            }
        }
        let whole = Area { left: 0.0, top: 0.0, width: layout.width, height: layout.height };
        frame::draw_x_label(&mut canvas, whole, layout.height - 6.0, &self.x.label);
        Figure::new(&self.title, &self.description(), (layout.width, layout.height), canvas).with_notes(notes)
    }
}
