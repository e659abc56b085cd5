//! How solves end on many small random CMDPs: a tally of outcomes, and the numbers of the instances that end without
//! a decision, for a closer look.
//!
//! `cargo run --release -p coptidice-tabular --example survey -- KIND FIRST COUNT`
//!
//! | kind | instances |
//! |---|---|
//! | `bounds` | conservative solves with one to three costs, limits at random |
//! | `frontier` | the same, limits a random distance above what some policy attains at least cost |
//! | `edge` | naive solves and linear programs, the first limit 1e-6 to 1e-2 beside the least cost |

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a survey that cannot be set up shall end, and its tally is what it is for"
)]

#[path = "../tests/instances/mod.rs"]
mod instances;

use std::collections::BTreeMap;
use std::time::Instant;

use coptidice_core::Divergence;
use coptidice_tabular::dice::{self, BoundProblem, Effort, Problem, Samples, Solution};
use coptidice_tabular::{Outcome, lp};
use instances::{drawn, least_cost};
use rand::RngExt as _;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, first, count] = &arguments[..] else { panic!("give KIND FIRST COUNT") };
    let (first, count): (u64, u64) = (first.parse().unwrap(), count.parse().unwrap());
    let mut tally: BTreeMap<String, (usize, Vec<u64>)> = BTreeMap::new();
    let start = Instant::now();
    let mut slowest = (0.0, 0);
    for index in first..first + count {
        let begun = start.elapsed().as_secs_f64();
        let labels = match kind.as_str() {
            "bounds" => bounds(index, false),
            "frontier" => bounds(index, true),
            "edge" => edge(index),
            other => panic!("{other} is no kind"),
        };
        let taken = start.elapsed().as_secs_f64() - begun;
        if taken > slowest.0 {
            slowest = (taken, index);
        }
        for label in labels {
            if count == 1 {
                println!("{label}");
            }
            let entry = tally.entry(label).or_default();
            entry.0 += 1;
            if entry.1.len() < 8 {
                entry.1.push(index);
            }
        }
    }
    for (label, (number, examples)) in tally {
        println!("{number:8}  {label}  {examples:?}");
    }
    println!("{:.1} s, of which {:.3} s for {}", start.elapsed().as_secs_f64(), slowest.0, slowest.1);
}

fn bounds(index: u64, frontier: bool) -> Vec<String> {
    let (mut i, mut rng) = drawn(index, 1..4);
    let k = i.limits.len();
    if frontier {
        let weights: Vec<f64> = (0..k).map(|_| rng.random::<f64>()).collect();
        let distance = 10f64.powf(-4.0 + 3.5 * rng.random::<f64>());
        let least = least_cost(&i.model, &weights);
        i.limits = least.costs.iter().map(|c| c + distance * rng.random::<f64>()).collect();
    }
    let alpha = [1.0, 0.2, 0.02][rng.random_range(0..3)];
    let epsilon = [1e-4, 1e-2][rng.random_range(0..2)];
    let problem = Problem {
        model: &i.model,
        data_occupancy: &i.data,
        limits: &i.limits,
        divergence: Divergence::Chi2,
        alpha,
    };
    let samples = Samples::from_model(&i.model, &i.data).unwrap();
    let credits = vec![0.0; k];
    let bound = BoundProblem {
        samples: &samples,
        epsilon,
        weight_floor: 0.0,
        costs: i.model.costs(),
        last_step_credits: &credits,
    };
    let found = dice::coptidice(&problem, &bound, None, Effort::default()).unwrap();
    let naive = dice::coptidice_naive(&problem, None, Effort::default()).unwrap().outcome;
    let gamma = i.model.gamma();
    let mut labels = vec![format!("K={k} naive {naive} bounds {}{}", found.outcome, doubts(&found))];
    if found.outcome == Outcome::IterationLimit {
        labels.push(format!("iteration limit: K={k} gamma {gamma} alpha {alpha} epsilon {epsilon}"));
    }
    if std::env::var_os("VERBOSE").is_some() {
        println!("{index} {:?} gamma {gamma} alpha {alpha} epsilon {epsilon} {:?}", i.limits, found);
    }
    labels
}

/// What contradicts the outcome.
fn doubts(found: &Solution) -> String {
    let worst = found.certificate.worst();
    if found.outcome == Outcome::Solved && worst > 1e-8 {
        return format!(" with a residual above 1e{:.0}", worst.log10().floor());
    }
    String::new()
}

fn edge(index: u64) -> Vec<String> {
    let (mut i, mut rng) = drawn(index, 1..3);
    let distance = [1e-2, 1e-4, 1e-5, 1e-6][rng.random_range(0..4)];
    let mut weights = vec![0.0; i.limits.len()];
    weights[0] = 1.0;
    let least = least_cost(&i.model, &weights);
    i.limits = vec![10.0; i.limits.len()];
    let mut labels = Vec::new();
    for (side, name) in [(-1.0, "below"), (1.0, "above")] {
        i.limits[0] = least.costs[0] + side * distance;
        let problem = Problem {
            model: &i.model,
            data_occupancy: &i.data,
            limits: &i.limits,
            divergence: Divergence::Chi2,
            alpha: 0.2,
        };
        let naive = dice::coptidice_naive(&problem, None, Effort::default()).unwrap().outcome;
        let linear = lp::solve(&i.model, &i.limits).unwrap().outcome;
        let gamma = i.model.gamma();
        labels.push(format!("naive {name} gamma {gamma}: {naive}"));
        labels.push(format!("linear {name} gamma {gamma}: {linear}"));
        if std::env::var_os("VERBOSE").is_some() && !(naive.is_usable() && linear.is_usable()) {
            println!("{index} {name} {distance} gamma {gamma}: naive {naive} linear {linear}");
        }
    }
    labels
}
