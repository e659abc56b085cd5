//! What the policy itself is estimated to earn and cost, beside what the dual says of its optimum.

use coptidice_agents::policy::Acting;
use coptidice_agents::{Estimates, PolicyEstimate, PolicyEvaluation};
use coptidice_report::page::Section;
use coptidice_report::table::{Cell, Column, Status, Table};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::run_directory::{LimitEntry, RunDirectory, read_json, write_json};

/// `policy_estimate.json` of a run directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PolicyPicture {
    /// Every way of acting that was evaluated, the exported one first.
    pub(crate) ways: Vec<PolicyEstimate>,
    /// Those that could not be, and why.
    failed: Vec<(Acting, String)>,
    /// The dual's estimates of its optimum: reward, then costs, per step; empty without a dual.
    dual: Vec<f64>,
    /// Where the exported policy parts from the dual's optimum.
    gaps: Vec<String>,
}

impl PolicyPicture {
    pub(crate) fn new(
        evaluation: &PolicyEvaluation,
        estimates: Option<&Estimates>,
        limits: &[LimitEntry],
    ) -> Self {
        let of = |name: &str| limits.iter().find(|l| l.cost == name).map_or(f64::INFINITY, |l| l.per_step);
        let gaps = estimates.map_or(Vec::new(), |estimates| {
            let limits: Vec<f64> = estimates.costs.iter().map(|cost| of(&cost.name)).collect();
            evaluation.gaps(estimates, &limits)
        });
        let dual = |estimates: &Estimates| {
            std::iter::once(estimates.reward).chain(estimates.costs.iter().map(|c| c.per_step)).collect()
        };
        PolicyPicture {
            ways: evaluation.ways.clone(),
            failed: evaluation.failed.clone(),
            dual: estimates.map_or(Vec::new(), dual),
            gaps: gaps.iter().map(ToString::to_string).collect(),
        }
    }

    /// Of a run; `None` where its policy was not evaluated.
    pub(crate) fn of(run: &RunDirectory) -> Result<Option<Self>, Failure> {
        if run.policy_estimate().exists() { read_json(&run.policy_estimate()).map(Some) } else { Ok(None) }
    }

    pub(crate) fn write(&self, run: &RunDirectory) -> Result<(), Failure> {
        write_json(&run.policy_estimate(), self)
    }

    /// What a reader must not miss, each a sentence.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let failed = self
            .failed
            .iter()
            .map(|(acting, why)| format!("the policy acting by {acting} could not be evaluated: {why}"));
        self.gaps.iter().cloned().chain(failed).collect()
    }

    /// How it was estimated.
    pub(crate) fn basis(&self) -> &'static str {
        match self.ways.first() {
            Some(way) if way.held_out => "on held-out episodes",
            _ => "on the episodes it was trained on",
        }
    }

    /// The section of the report.
    pub(crate) fn section(&self, limits: &[LimitEntry]) -> Section {
        let mut table = Table::new([
            Column::text("per step"),
            Column::text("acting"),
            Column::numeric("after steps"),
            Column::numeric("the policy"),
            Column::numeric("unsettled by"),
            Column::numeric("the dual's optimum"),
            Column::numeric("limit"),
        ]);
        for way in &self.ways {
            let names = std::iter::once("reward").chain(way.costs.iter().map(|cost| cost.name.as_str()));
            let values = std::iter::once(way.reward).chain(way.costs.iter().map(|cost| cost.per_step));
            for (k, (name, value)) in names.zip(values).enumerate() {
                let limit = limits.iter().find(|l| k > 0 && l.cost == name).map(|l| l.per_step);
                let over = limit.is_some_and(|limit| value > limit);
                let shown = format!("{value:.4}");
                let number =
                    |value: Option<f64>| Cell::from(value.map_or("–".to_owned(), |v| format!("{v:.4}")));
                table = table.row([
                    Cell::from(name),
                    Cell::from(way.acting.name()),
                    Cell::from(way.step.to_string()),
                    if over { Cell::with_status(shown, Status::Bad) } else { Cell::from(shown) },
                    number(way.unsettled.get(k).copied()),
                    number(self.dual.get(k).copied()),
                    number(limit),
                ]);
            }
        }
        let mut section = Section::new("The policy itself, estimated").paragraph(format!(
            "Fitted Q evaluation {}, under the same discount and normalisation as the dual. The dual's figures are of its \
             own optimum; what lies between the two columns is what drawing the policy lost, and the estimators' own \
             errors. Where the policy goes where the log does not, no figure here can be relied on.",
            self.basis()
        ));
        if !table.is_empty() {
            section = section.table(table);
        }
        for warning in self.warnings() {
            section = section.callout(Status::Warning, warning);
        }
        section
    }
}
