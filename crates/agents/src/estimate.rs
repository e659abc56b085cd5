//! What the dual says of its own optimum, over the whole log.
//!
//! With `w` from the last parameters, `E_d[x] = E_{d^D}[w x]` for any quantity `x` of a transition. These are the
//! learner's expectations of the *optimum*, not of the policy drawn from it, which has to be evaluated in its own right.

use coptidice_core::LimitUnit;
use coptidice_core::rng::stream;
use coptidice_nn::Pool;
use rand::RngExt as _;
use serde::{Deserialize, Serialize};

use crate::learner::Learner;
use crate::problem::Problem;
use crate::sampler::Sampler;

/// At most this many rows are visited; longer logs are thinned evenly.
const MOST_ROWS: usize = 1 << 20;

/// Expectations under the learned occupancy, in the log's units.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimates {
    /// `w` of the visited rows, in the order of the log; NaN for rows that training leaves out, which the means below
    /// do not count.
    pub weights: Vec<f32>,
    /// The log's rows are visited at this stride.
    pub stride: usize,
    /// Mean of `w`: 1 where the flow constraints are met, less where terminals end a discounted process.
    pub mean_weight: f64,
    /// `E[w r] / E[w]`, reward of a step.
    pub reward: f64,
    /// `E[w 1{last step}]`, episodes per step, in the restart chain (`gamma = 1`).
    pub episodes_per_step: Option<f64>,
    /// The costs with limits.
    pub costs: Vec<CostEstimate>,
}

/// Expectation of one cost under the learned occupancy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostEstimate {
    /// Name of the cost.
    pub name: String,
    /// `E[w c] / E[w]`, cost of a step.
    pub per_step: f64,
    /// `E[w c] / E[w 1{last step}]`, cost per episode: exact in the restart chain (`gamma = 1`), and meaningless
    /// elsewhere, where it is `None`.
    pub per_episode: Option<f64>,
}

impl CostEstimate {
    /// In the unit of `limit`. Totals that are not known are made of as many steps as make a limit per step one per
    /// episode: what both have in common is how far they are over it.
    #[must_use]
    pub fn in_unit_of(&self, limit: &EstimateLimit) -> f64 {
        match (*limit, self.per_episode) {
            (EstimateLimit::PerEpisode { .. }, Some(total)) => total,
            (EstimateLimit::PerEpisode { limit, per_step }, None) => self.per_step / per_step * limit,
            (EstimateLimit::PerStep { .. }, _) => self.per_step,
        }
    }
}

/// A limit as estimates are held against it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "unit")]
pub enum EstimateLimit {
    /// On what a step costs.
    PerStep {
        /// Cost units per step.
        limit: f64,
    },
    /// On the total of an episode of any length.
    PerEpisode {
        /// Cost units per episode.
        limit: f64,
        /// That of an episode of the mean logged length, cost units per step.
        per_step: f64,
    },
}

impl EstimateLimit {
    /// The limit in its own unit.
    #[must_use]
    pub fn value(&self) -> f64 {
        match *self {
            EstimateLimit::PerStep { limit } | EstimateLimit::PerEpisode { limit, .. } => limit,
        }
    }

    /// The unit.
    #[must_use]
    pub fn unit(&self) -> LimitUnit {
        match self {
            EstimateLimit::PerStep { .. } => LimitUnit::Step,
            EstimateLimit::PerEpisode { .. } => LimitUnit::Episode,
        }
    }
}

/// Visits the log; `None` for a learner without occupancy ratios.
pub(crate) fn estimate(problem: &Problem<'_>, learner: &mut dyn Learner, pool: &Pool) -> Option<Estimates> {
    let (data, size) = (problem.data, problem.config.batch_size);
    let stride = data.len().div_ceil(MOST_ROWS);
    let rows: Vec<usize> = (0..data.len()).step_by(stride).collect();
    let known: Vec<usize> = rows.iter().copied().filter(|&row| problem.rows.contains(row)).collect();
    let mut sampler = Sampler::new(problem);
    let mut found = Vec::with_capacity(known.len());
    for (position, chunk) in known.chunks(size).enumerate() {
        let mut rng = stream(problem.config.seed, "estimate", position as u64);
        // A short last chunk is filled up with its first row, and the filling thrown away.
        let batch = sampler.gather(|b| {
            let mut start = || rng.random_range(0..data.episodes().len());
            (*chunk.get(b).unwrap_or(&chunk[0]), [start(), start()], 0.5)
        });
        let ratios = pool.install(|| learner.occupancy_ratios(batch, pool).map(<[f32]>::to_vec))?;
        found.extend_from_slice(&ratios[..chunk.len()]);
    }
    let mean = |value: &dyn Fn(usize) -> f64| {
        let terms = found.iter().zip(&known).map(|(&w, &row)| f64::from(w) * value(row));
        terms.sum::<f64>() / known.len() as f64
    };
    let ends =
        (problem.config.gamma == 1.0).then(|| mean(&|row| f64::from(u8::from(data.ends_episode(row)))));
    let mass = mean(&|_| 1.0);
    let of_step = |sum: f64| if mass > 0.0 { sum / mass } else { 0.0 };
    let costs = problem.costs.iter().map(|cost| {
        let sum = mean(&|row| f64::from(data.costs(row)[cost.column]));
        let per_episode = ends.filter(|&ends| ends > 0.0).map(|ends| sum / ends);
        CostEstimate { name: cost.name.clone(), per_step: of_step(sum), per_episode }
    });
    let mut in_order = found.iter().copied();
    let weight = |&row: &usize| {
        if problem.rows.contains(row) { in_order.next().unwrap_or(f32::NAN) } else { f32::NAN }
    };
    Some(Estimates {
        weights: rows.iter().map(weight).collect(),
        stride,
        mean_weight: mass,
        reward: of_step(mean(&|row| f64::from(data.reward(row)))),
        episodes_per_step: ends,
        costs: costs.collect(),
    })
}
