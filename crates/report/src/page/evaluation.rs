//! Policies measured side by side.

use super::section::Section;
use super::verdict::LimitReading;
use crate::number::{count, mean_with_error, percent};
use crate::svg::{Bar, BarChart, Chart, Reference};
use crate::table::{Cell, Column, Status, Table};
use coptidice_core::LimitUnit;
use serde::{Deserialize, Serialize};

/// One cost of one policy, over the episodes run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluatedCost {
    /// Mean per step.
    pub per_step: f64,
    /// Its standard error; NaN where unknown.
    pub per_step_stderr: f64,
    /// Mean per episode.
    pub per_episode: f64,
    /// Its standard error; NaN where unknown.
    pub per_episode_stderr: f64,
    /// Share of episodes whose total exceeds the limit per episode.
    pub share_over_limit: f64,
}

/// One policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationRow {
    /// Its name.
    pub policy: String,
    /// Episodes run; zero is shown as a dash, for figures taken from logs.
    pub episodes: u64,
    /// Mean undiscounted return.
    pub return_mean: f64,
    /// Its standard error; NaN where unknown.
    pub return_stderr: f64,
    /// A cost for each limit, in their order.
    pub costs: Vec<EvaluatedCost>,
}

/// Several policies against the same limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Where they were run.
    pub environment: String,
    /// The limits; may be empty.
    pub limits: Vec<LimitReading>,
    /// The policies.
    pub rows: Vec<EvaluationRow>,
}

impl Evaluation {
    /// The table, for page and terminal. Limits are judged by the mean, in the unit in which they were given: that
    /// figure and its judgement stand first, where a narrow screen shows them.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut columns = vec![Column::text("policy"), Column::numeric("return")];
        for limit in &self.limits {
            // One cost needs no name in every heading.
            let name = if self.limits.len() > 1 { limit.cost.as_str() } else { "cost" };
            let (judged, other) = match limit.unit {
                LimitUnit::Step => ("step", "episode"),
                LimitUnit::Episode => ("episode", "step"),
            };
            columns.push(Column::numeric(format!("{name} / {judged}")));
            columns.push(Column::text("limit"));
            columns.push(Column::numeric(format!("{name} / {other}")));
            columns.push(Column::numeric("episodes over"));
        }
        columns.push(Column::numeric("episodes"));
        let mut table = Table::new(columns);
        for row in &self.rows {
            let mut cells: Vec<Cell> =
                vec![row.policy.as_str().into(), mean_with_error(row.return_mean, row.return_stderr).into()];
            for (k, limit) in self.limits.iter().enumerate() {
                cells.extend(match row.costs.get(k) {
                    Some(cost) => cost_cells(limit, cost),
                    None => ["–"; 4].map(Cell::from),
                });
            }
            cells.push(if row.episodes == 0 { "–".into() } else { count(row.episodes).into() });
            table.push(cells);
        }
        let limits: Vec<String> =
            self.limits.iter().map(|l| format!("{}: limit {}", l.cost, l.text())).collect();
        table.note(limits.join("; "))
    }
}

fn cost_cells(limit: &LimitReading, cost: &EvaluatedCost) -> [Cell; 4] {
    let (step, episode) = (
        mean_with_error(cost.per_step, cost.per_step_stderr),
        mean_with_error(cost.per_episode, cost.per_episode_stderr),
    );
    let (judged, other) = match limit.unit {
        LimitUnit::Step => (step, episode),
        LimitUnit::Episode => (episode, step),
    };
    [judged.into(), judge(limit, cost), other.into(), percent(cost.share_over_limit).into()]
}

fn judge(limit: &LimitReading, cost: &EvaluatedCost) -> Cell {
    let mean = measured(limit, cost).0;
    if mean <= limit.value() {
        Cell::with_status("kept", Status::Good)
    } else if mean.is_nan() {
        Cell::with_status("unknown", Status::Warning)
    } else {
        Cell::with_status("exceeded", Status::Bad)
    }
}

/// The cost and its standard error in the limit's own unit.
fn measured(limit: &LimitReading, cost: &EvaluatedCost) -> (f64, f64) {
    match limit.unit {
        LimitUnit::Step => (cost.per_step, cost.per_step_stderr),
        LimitUnit::Episode => (cost.per_episode, cost.per_episode_stderr),
    }
}

impl From<&Evaluation> for Section {
    fn from(evaluation: &Evaluation) -> Self {
        let mut section = Section::new("Evaluation")
            .paragraph(format!("Measured in {}. Means with standard errors.", evaluation.environment))
            .table(evaluation.table());
        if evaluation.rows.len() < 2 {
            return section;
        }
        let bars = |chart: BarChart, pick: &dyn Fn(&EvaluationRow) -> Option<(f64, f64)>| {
            evaluation.rows.iter().enumerate().fold(chart, |chart, (i, row)| match pick(row) {
                Some((mean, error)) => chart.bar(Bar::new(row.policy.as_str(), mean).error(error).color(i)),
                None => chart,
            })
        };
        let returns = bars(BarChart::new("Return", "return"), &|r| Some((r.return_mean, r.return_stderr)));
        section = section.figure(returns.figure());
        for (k, limit) in evaluation.limits.iter().enumerate() {
            let label = format!("{} per {}", limit.cost, limit.unit);
            let text = format!("limit {}", crate::number::significant(limit.value(), 4));
            let chart = BarChart::new(super::data::capitalised(&label), label.as_str())
                .reference(Reference::new(limit.value(), text));
            section = section.figure(bars(chart, &|r| r.costs.get(k).map(|c| measured(limit, c))).figure());
        }
        section
    }
}
