//! Small random CMDPs from uniform draws, shared by the comparison with another solver and the survey of outcomes.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a surprise is a failed test")]

use std::ops::Range;

use coptidice_core::{Cmdp, CmdpParts, EpisodeEnd, Transitions, rng};
use coptidice_tabular::lp;
use rand::RngExt as _;

/// A CMDP with its data occupancy and limits, built from uniform draws.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    /// The CMDP, as if estimated.
    pub(crate) model: Cmdp,
    /// `d^D`, `[S*A]`.
    pub(crate) data: Vec<f64>,
    /// `[K]`, cost units per step.
    pub(crate) limits: Vec<f64>,
}

/// Draws of `numbers` become a CMDP: sparse rows, some states absorbing, episodes that end or not.
pub(crate) fn build(
    states: usize,
    actions: usize,
    costs: usize,
    gamma: f64,
    ends: bool,
    numbers: &[f64],
) -> Instance {
    let mut at = 0;
    let mut draw = || {
        at += 1;
        numbers[(at * 7919) % numbers.len()] * 0.999 + 0.0005
    };
    let pairs = states * actions;
    let mut triples = Vec::new();
    let mut end = vec![0.0; pairs];
    for pair in 0..pairs {
        let mut weights: Vec<(usize, f64)> =
            (0..3).map(|_| ((draw() * states as f64) as usize, draw() + 0.05)).collect();
        if ends {
            end[pair] = if draw() < 0.4 { draw() } else { 0.0 };
        }
        if gamma >= 1.0 && !ends {
            // Every state leads to every other: one recurrent class, whatever the policy.
            weights.extend((0..states).map(|t| (t, 0.1)));
        }
        let total: f64 = weights.iter().map(|w| w.1).sum::<f64>() / (1.0 - end[pair]);
        triples.extend(weights.into_iter().map(|(t, w)| (pair / actions, pair % actions, t, w / total)));
    }
    if ends {
        // Action 0 always ends with some probability, so that a limit of zero ends cannot arise.
        let parts = triples.iter_mut().filter(|t| t.1 == 0 && end[t.0 * actions] == 0.0);
        parts.for_each(|t| t.3 *= 0.8);
        (0..states)
            .for_each(|s| end[s * actions] = if end[s * actions] == 0.0 { 0.2 } else { end[s * actions] });
    }
    let episode_end =
        if ends && (gamma >= 1.0 || draw() < 0.5) { EpisodeEnd::Restart } else { EpisodeEnd::Absorb };
    let mut initial: Vec<f64> = (0..states).map(|_| if draw() < 0.5 { draw() } else { 0.0 }).collect();
    initial[0] += 0.1;
    let total: f64 = initial.iter().sum();
    initial.iter_mut().for_each(|p| *p /= total);
    let model = Cmdp::new(CmdpParts {
        transitions: Transitions::from_triples(states, actions, triples)
            .unwrap()
            .with_end_probability(end)
            .unwrap(),
        episode_end,
        reward: (0..pairs).map(|_| draw()).collect(),
        costs: (0..costs).map(|_| (0..pairs).map(|_| draw()).collect()).collect(),
        initial,
        gamma,
    })
    .unwrap();
    let data: Vec<f64> = (0..pairs).map(|_| draw() + 0.02).collect();
    let total: f64 = data.iter().sum();
    let data = data.iter().map(|d| d / total).collect();
    let limits = (0..costs).map(|_| 0.15 + 0.5 * draw()).collect();
    Instance { model, data, limits }
}

/// The instance of a number: two to five states, with as many costs as `costs` says. The stream goes on where drawing it
/// ended.
pub(crate) fn drawn(index: u64, costs: Range<usize>) -> (Instance, rng::Rng) {
    let mut rng = rng::stream(index, "survey", 0);
    let (states, actions) = (rng.random_range(2..6), rng.random_range(2..4));
    let (costs, gamma) = (rng.random_range(costs), [0.7, 0.95, 1.0][rng.random_range(0..3)]);
    let ends = rng.random();
    let numbers: Vec<f64> = (0..409).map(|_| rng.random()).collect();
    (build(states, actions, costs, gamma, ends, &numbers), rng)
}

/// The occupancy of least weighted cost, by the linear program.
pub(crate) fn least_cost(model: &Cmdp, weights: &[f64]) -> lp::LpSolution {
    let mut parts = model.clone().into_parts();
    for (pair, r) in parts.reward.iter_mut().enumerate() {
        *r = -parts.costs.iter().zip(weights).map(|(c, w)| c[pair] * w).sum::<f64>();
    }
    lp::solve(&Cmdp::new(parts).unwrap(), &vec![10.0; weights.len()]).unwrap()
}
