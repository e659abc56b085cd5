//! What the actions of a source are: real vectors, or members of a finite set.

use super::ActionKind;
use super::table::take_rows;
use crate::column::Column;
use crate::problem::{Problem, ProblemCode, some_of};
use crate::table::{Cell, LabelColumn, Labels};
use crate::transitions::Actions;

/// Actions while it is not yet known what they are.
#[derive(Default)]
pub(crate) struct ActionColumns {
    width: usize,
    integral_floats: bool,
    /// While every action so far is a number.
    values: Option<Vec<f32>>,
    /// While every action so far is a whole number or a word.
    labels: Option<LabelColumn>,
}

impl ActionColumns {
    pub(crate) fn new(width: usize, kind: Option<ActionKind>) -> Self {
        ActionColumns {
            width,
            integral_floats: kind == Some(ActionKind::Discrete),
            values: (kind != Some(ActionKind::Discrete)).then(Vec::new),
            labels: (kind != Some(ActionKind::Continuous) && width == 1).then(LabelColumn::default),
        }
    }

    /// Makes room for real vectors; where there is none, they grow.
    pub(crate) fn reserve(&mut self, rows: usize) {
        if let Some(values) = &mut self.values {
            let _ = values.try_reserve_exact(rows.saturating_mul(self.width));
        }
    }

    /// Components of an action.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Appends one component; the error says what was expected.
    pub(crate) fn push(&mut self, cell: Cell<'_>) -> Result<(), &'static str> {
        let number = cell.number();
        let label = match &mut self.labels {
            Some(labels) => labels.push(cell, self.integral_floats),
            None => Err("a number"),
        };
        match (&mut self.values, number, label) {
            (Some(values), Some(number), label) => {
                values.push(number as f32);
                if label.is_err() {
                    self.labels = None;
                }
                Ok(())
            }
            (_, _, Ok(())) => {
                self.values = None;
                Ok(())
            }
            (_, _, Err(what)) => Err(what),
        }
    }

    pub(crate) fn same(&self, a: usize, b: usize) -> bool {
        let row = |values: &Vec<f32>, i: usize| {
            values[i * self.width..(i + 1) * self.width]
                .iter()
                .map(|value| value.to_bits())
                .collect::<Vec<_>>()
        };
        self.values.as_ref().is_none_or(|values| row(values, a) == row(values, b))
            && self.labels.as_ref().is_none_or(|labels| labels.same(a, b))
    }

    /// Keeps only `rows`, in that order.
    pub(crate) fn take_rows(&mut self, rows: &[u32]) {
        if let Some(values) = &mut self.values {
            take_rows(values, self.width, rows);
        }
        if let Some(labels) = &mut self.labels {
            labels.take_rows(rows);
        }
    }

    /// Ids if every action was a whole number or a word, reals otherwise. `declared` lists the whole set of actions,
    /// if the source does.
    pub(crate) fn finish(
        self,
        column: &str,
        declared: Option<Vec<String>>,
        problems: &mut Vec<Problem>,
    ) -> Actions {
        match self.labels {
            Some(labels) => discrete_actions(column, labels.finish(), declared, problems),
            None => Actions::Continuous {
                dim: self.width,
                values: Column::from(
                    self.values.expect("an action that is neither number nor label is refused"),
                ),
            },
        }
    }
}

/// Discrete actions of `found`, with a remark where the source's ids are not 0, 1, 2, … `declared` lists the whole set,
/// if the source does: of it, rows may show only a part.
pub(crate) fn discrete_actions(
    name: &str,
    found: Labels,
    declared: Option<Vec<String>>,
    problems: &mut Vec<Problem>,
) -> Actions {
    let Labels { mut ids, mut labels } = found;
    if let Some(declared) = declared {
        let place = |label: &String| declared.iter().position(|candidate| candidate == label);
        let places: Option<Vec<usize>> = labels.iter().map(place).collect();
        if let Some(places) = places {
            for id in &mut ids {
                *id = places[*id as usize] as u32;
            }
            labels = declared;
        }
    }
    let numbered = labels.iter().enumerate().all(|(id, label)| *label == id.to_string());
    if !numbered {
        problems.push(remapped(&labels).column(name));
    }
    Actions::Discrete { count: labels.len(), ids: Column::from(ids), labels }
}

/// The remark on actions whose ids are not their labels.
fn remapped(labels: &[String]) -> Problem {
    let message = format!(
        "{} actions occur, called {}; ids count from 0 in that order and the labels are kept",
        labels.len(),
        some_of(labels)
    );
    Problem::new(ProblemCode::ActionsRemapped, message)
}
