//! What the policy itself is estimated to earn and cost, beside what the dual says of its optimum.

use coptidice_agents::export::exported_acting;
use coptidice_agents::policy::Acting;
use coptidice_agents::{CostEstimate, EstimateLimit, Estimates, PolicyEstimate, PolicyEvaluation};
use coptidice_core::LimitUnit;
use coptidice_report::page::Section;
use coptidice_report::table::{Cell, Column, Status, Table};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::run_directory::{LimitEntry, RunDirectory, read_json, write_json};

/// An estimated reward that moves by more than this share of itself has not settled. Most stay below a fifth; costs, which
/// are small beside the sums they are estimated from, move more.
const UNSETTLED: f64 = 0.25;

/// `policy_estimate.json` of a run directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PolicyPicture {
    /// Every way of acting that was evaluated, the exported one first.
    pub(crate) ways: Vec<PolicyEstimate>,
    /// Those that could not be, and why.
    failed: Vec<(Acting, String)>,
    /// The dual's estimates of its optimum: reward per step, then costs in the units of their limits; empty without a dual.
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
        let of = |cost: &CostEstimate| limit_of(limits, &cost.name);
        let gaps = estimates.map_or(Vec::new(), |estimates| {
            let limits: Vec<EstimateLimit> = estimates.costs.iter().map(of).collect();
            evaluation.gaps(estimates, &limits)
        });
        let dual = |estimates: &Estimates| {
            let costs = estimates.costs.iter().map(|cost| cost.in_unit_of(&of(cost)));
            std::iter::once(estimates.reward).chain(costs).collect()
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
        self.gaps.iter().cloned().chain(failed).chain(self.graph()).chain(self.unsettled()).collect()
    }

    /// Where the estimate of the reward still moved by more than a share of itself when evaluation ended.
    fn unsettled(&self) -> Option<String> {
        let way = self.ways.first()?;
        let by = way.unsettled.first().copied().filter(|by| *by > UNSETTLED * way.reward.abs())?;
        Some(format!(
            "the policy's estimate has not settled: the reward moved by {by:.4} a step in its last rounds; raise \
             evaluation.steps and evaluation.rounds, or train for more steps, by which evaluation is bounded"
        ))
    }

    /// Where the ONNX graph acts otherwise than was chosen.
    fn graph(&self) -> Option<String> {
        let acting = self.ways.first()?.acting;
        let exported = exported_acting(acting);
        (exported != acting).then(|| {
            format!(
                "a graph draws nothing: policy.onnx acts by {exported}, which was not chosen; what acts by {acting} is \
                 policy.safetensors"
            )
        })
    }

    /// Costs of the exported policy that are estimated to be over their limits.
    pub(crate) fn over_limit(&self, limits: &[LimitEntry]) -> Vec<String> {
        let costs = self.ways.first().map_or(&[][..], |way| &way.costs);
        let over = costs.iter().filter(|cost| {
            let limit = limit_of(limits, &cost.name);
            cost.in_unit_of(&limit) > limit.value()
        });
        over.map(|cost| cost.name.clone()).collect()
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
            Column::text("what"),
            Column::text("per"),
            Column::text("acting"),
            Column::numeric("after steps"),
            Column::numeric("the policy"),
            Column::numeric("unsettled by"),
            Column::numeric("the dual's optimum"),
            Column::numeric("limit"),
        ]);
        for way in &self.ways {
            let costs = way.costs.iter().map(|cost| {
                let limit = limit_of(limits, &cost.name);
                (cost.name.as_str(), limit.unit(), cost.in_unit_of(&limit), Some(limit.value()))
            });
            let reward = ("reward", LimitUnit::Step, way.reward, None);
            for (k, (name, unit, value, limit)) in std::iter::once(reward).chain(costs).enumerate() {
                let limit = limit.filter(|limit| limit.is_finite());
                let over = limit.is_some_and(|limit| value > limit);
                let shown = format!("{value:.4}");
                let number =
                    |value: Option<f64>| Cell::from(value.map_or("–".to_owned(), |v| format!("{v:.4}")));
                table = table.row([
                    Cell::from(name),
                    Cell::from(unit.to_string()),
                    Cell::from(way.acting.name()),
                    Cell::from(way.step.to_string()),
                    if over { Cell::with_status(shown, Status::Bad) } else { Cell::from(shown) },
                    number(way.unsettled.get(k).copied().filter(|_| k == 0 || unit == LimitUnit::Step)),
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

/// The limit on a cost, as estimates are held against it; without one, infinity.
pub(crate) fn limit_of(limits: &[LimitEntry], name: &str) -> EstimateLimit {
    let none = EstimateLimit::PerStep { limit: f64::INFINITY };
    limits.iter().find(|limit| limit.cost == name).map_or(none, |limit| match limit.on_totals {
        true => EstimateLimit::PerEpisode { limit: limit.per_episode, per_step: limit.per_step },
        false => EstimateLimit::PerStep { limit: limit.per_step },
    })
}
