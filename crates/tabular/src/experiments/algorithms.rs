//! The five algorithms of the comparison, on one data set.

use coptidice_core::{Cmdp, Divergence, Policy};
use serde::{Deserialize, Serialize};

use super::{CellError, DataOccupancy, LAMBDA_CEILING};
use crate::baselines::{PAPER_WEDGE, Spibb, behaviour_cloning};
use crate::case::{POLICY_FLOOR, SAMPLE_FLOOR};
use crate::counts::Counts;
use crate::dice::{self, BoundProblem, Effort, Problem, Samples, Solution};
use crate::lp::LpSolver;
use crate::outcome::Outcome;

/// Radius of the cost bound times the number of trajectories.
const EPSILON_TIMES_N: f64 = 0.1;
/// Multipliers beyond this are no longer pursued: a policy hardly changes once a unit of cost outweighs a thousand
/// units of reward, fifty times the largest reward there is.
const LAMBDA_CAP: f64 = 1e3;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Behaviour cloning.
    Bc,
    /// The linear program on the maximum-likelihood CMDP.
    Baseline,
    /// Safe policy improvement with baseline bootstrapping under the limit.
    CSpibb,
    /// COptiDICE without the cost bound.
    NaiveCoptidice,
    /// COptiDICE.
    Coptidice,
}

impl Algorithm {
    /// All of them, in the order of results.
    pub const ALL: [Algorithm; 5] = [
        Algorithm::Bc,
        Algorithm::Baseline,
        Algorithm::CSpibb,
        Algorithm::NaiveCoptidice,
        Algorithm::Coptidice,
    ];

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Bc => "bc",
            Algorithm::Baseline => "baseline",
            Algorithm::CSpibb => "c-spibb",
            Algorithm::NaiveCoptidice => "naive-coptidice",
            Algorithm::Coptidice => "coptidice",
        }
    }

    /// The name in figures, as in the paper.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Algorithm::Bc => "BC",
            Algorithm::Baseline => "Baseline",
            Algorithm::CSpibb => "C-SPIBB",
            Algorithm::NaiveCoptidice => "COptiDICE (naive)",
            Algorithm::Coptidice => "COptiDICE",
        }
    }
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What the algorithms are given.
pub(super) struct DataSet {
    pub(super) counts: Counts,
    /// Maximum-likelihood CMDP with the true rewards and costs.
    pub(super) model: Cmdp,
    /// `d^D`, `[S*A]`.
    pub(super) data_occupancy: Vec<f64>,
    /// What C-SPIBB bootstraps to.
    pub(super) behaviour: Policy,
    pub(super) trajectories: usize,
    pub(super) kind: DataOccupancy,
}

/// A policy and how its program ended.
pub(super) type Solved = (Policy, Outcome);

/// Workspace for CMDPs of one size.
pub(super) struct Solvers {
    lp: LpSolver,
    spibb: Spibb,
    uniform: Policy,
    /// The naive solution before, for another limit on the same data.
    naive: Option<Solution>,
    samples: Option<Samples>,
}

impl Solvers {
    pub(super) fn new(states: usize, actions: usize) -> Result<Self, CellError> {
        let uniform = Policy::uniform(states, actions)?;
        Ok(Self { lp: LpSolver::new(states), spibb: Spibb::new(states), uniform, naive: None, samples: None })
    }

    /// Forgets the data set before.
    pub(super) fn next_data_set(&mut self) {
        self.naive = None;
        self.samples = None;
    }

    /// Policies of all algorithms for one limit.
    pub(super) fn solve(&mut self, data: &DataSet, limit: f64) -> Result<[Solved; 5], CellError> {
        let bc = (behaviour_cloning(&data.counts)?, Outcome::Solved);
        let baseline = self.lp.solve(&data.model, &[limit])?;
        let baseline = (baseline.policy(&self.uniform, POLICY_FLOOR)?, baseline.outcome);
        let visits = data.counts.pair_totals();
        let spibb = self.spibb.solve(&data.model, visits, &data.behaviour, PAPER_WEDGE, &[limit])?;
        let (naive, conservative) = self.coptidice(data, limit)?;
        Ok([bc, baseline, (spibb.policy, spibb.outcome), naive, conservative])
    }

    fn coptidice(&mut self, data: &DataSet, limit: f64) -> Result<(Solved, Solved), CellError> {
        let alpha = 1.0 / data.trajectories as f64;
        let problem = Problem {
            model: &data.model,
            data_occupancy: &data.data_occupancy,
            limits: &[limit],
            divergence: Divergence::Chi2,
            alpha,
        };
        let naive = dice::coptidice_naive(&problem, self.naive.as_ref(), Effort::default())?;
        let samples = match &mut self.samples {
            Some(samples) => &*samples,
            empty => {
                let floor = if data.kind == DataOccupancy::Known { SAMPLE_FLOOR } else { 0.0 };
                empty.insert(Samples::with_floor(&data.model, &data.data_occupancy, floor)?)
            }
        };
        let bound = BoundProblem {
            samples,
            epsilon: EPSILON_TIMES_N * alpha,
            weight_floor: POLICY_FLOOR,
            costs: data.model.costs(),
            last_step_credits: &[0.0],
        };
        let effort = Effort { lambda_cap: LAMBDA_CAP, ..Effort::default() };
        let mut conservative = dice::coptidice(&problem, &bound, Some(&naive), effort)?;
        let outcome = conservative.outcome;
        if outcome == Outcome::Infeasible {
            conservative = at_ceiling(&problem)?;
        }
        let solved = (
            (naive.policy(&self.uniform, POLICY_FLOOR)?, naive.outcome),
            (conservative.policy(&self.uniform, POLICY_FLOOR)?, outcome),
        );
        self.naive = Some(naive);
        Ok(solved)
    }
}

/// The solution for `R − λC` at the largest multiplier.
fn at_ceiling(problem: &Problem<'_>) -> Result<Solution, CellError> {
    let mut parts = problem.model.clone().into_parts();
    for (r, c) in parts.reward.iter_mut().zip(&parts.costs[0]) {
        *r -= LAMBDA_CEILING * c;
    }
    let penalised = Cmdp::new(parts)?;
    Ok(dice::optidice(&Problem { model: &penalised, ..*problem }, Effort::default())?)
}
