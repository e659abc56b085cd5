//! Which line is which.

use super::canvas::{Canvas, text_width};
use super::frame::{Stroke, dashed_rule, draw_marker};
use super::series::Reference;
use super::theme::{self, TEXT};

/// What a legend says of one line.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) sample: Sample,
}

/// How the line looks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sample {
    Series { color: usize, dashed: bool, marker: Option<usize> },
    Reference,
}

/// An entry for each reference that has a label, without repeats.
pub(crate) fn references<'a>(all: impl Iterator<Item = &'a Reference>) -> Vec<Entry<'a>> {
    let mut entries: Vec<Entry<'a>> = Vec::new();
    for r in all.filter(|r| !r.label.is_empty()) {
        if entries.iter().all(|e| e.name != r.label) {
            entries.push(Entry { name: &r.label, sample: Sample::Reference });
        }
    }
    entries
}

const ROW: f64 = 18.0;
const SAMPLE: f64 = 22.0;
const GAP: f64 = 16.0;

fn widths<'a>(entries: &'a [Entry<'_>]) -> impl Iterator<Item = f64> + 'a {
    entries.iter().map(|e| SAMPLE + 6.0 + text_width(e.name, TEXT) + GAP)
}

/// Entries by rows that fit into `width`.
fn rows(entries: &[Entry<'_>], width: f64) -> Vec<std::ops::Range<usize>> {
    let mut rows = Vec::new();
    let (mut start, mut used) = (0, 0.0);
    for (i, w) in widths(entries).enumerate() {
        if i > start && used + w - GAP > width {
            rows.push(start..i);
            (start, used) = (i, 0.0);
        }
        used += w;
    }
    if start < entries.len() {
        rows.push(start..entries.len());
    }
    rows
}

/// The height that [`draw`] will take.
pub(crate) fn height(entries: &[Entry<'_>], width: f64) -> f64 {
    rows(entries, width).len() as f64 * ROW
}

/// Draws the legend with its upper left corner at `(left, top)`.
pub(crate) fn draw(canvas: &mut Canvas, entries: &[Entry<'_>], left: f64, top: f64, width: f64) {
    let all: Vec<f64> = widths(entries).collect();
    for (line, range) in rows(entries, width).into_iter().enumerate() {
        let middle = top + line as f64 * ROW + ROW / 2.0;
        let mut x = left;
        for i in range {
            let entry = &entries[i];
            let (from, to) = ((x, middle), (x + SAMPLE, middle));
            match entry.sample {
                Sample::Reference => dashed_rule(canvas, from, to),
                Sample::Series { color, dashed, marker } => {
                    Stroke { color, width: 2.0, dashed, opacity: 1.0 }.line(canvas, from, to);
                    if let Some(shape) = marker {
                        draw_marker(canvas, shape, color, x + SAMPLE / 2.0, middle);
                    }
                }
            }
            canvas
                .element("text")
                .attr("class", "cd-ink")
                .attr("fill", theme::INK.light)
                .num("x", x + SAMPLE + 6.0)
                .num("y", middle + 4.0)
                .text(entry.name);
            x += all[i];
        }
    }
}
