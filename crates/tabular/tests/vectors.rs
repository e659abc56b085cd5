//! Twelve recorded cases (see `fixtures/README.md`) against exact solutions found by another program.

use std::collections::BTreeMap;
use std::path::PathBuf;

use coptidice_tabular::case::{Case, CaseAlgorithm, CaseResult, known_behaviour_occupancy};
use coptidice_tabular::{Evaluator, Outcome, evaluate};
use serde::Deserialize;

#[derive(Deserialize)]
struct Exact {
    vanilla: Expected,
    conservative: Expected,
}

#[derive(Deserialize)]
struct Expected {
    lambda: f64,
    cost_value: f64,
    tau: f64,
    mean_cost: f64,
    true_reward: f64,
    true_cost: f64,
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/vectors")
}

fn exact() -> BTreeMap<String, Exact> {
    let file = std::fs::File::open(directory().join("exact.json.gz")).unwrap();
    serde_json::from_reader(flate2::read::GzDecoder::new(file)).unwrap()
}

fn raw(name: &str) -> serde_json::Value {
    let file = std::fs::File::open(directory().join(format!("{name}.json.gz"))).unwrap();
    serde_json::from_reader(flate2::read::GzDecoder::new(file)).unwrap()
}

fn case(name: &str) -> Case {
    Case::read(&directory().join(format!("{name}.json.gz"))).unwrap()
}

/// Multipliers within 1e-6, constrained costs within 1e-8, true values within 1e-6: what the recorded solutions,
/// with gradients below 1e-12, support.
fn compare(name: &str, expected: &Expected, found: &CaseResult) {
    assert_eq!(found.outcome, Outcome::Solved, "{name}");
    let close = |what: &str, a: f64, b: f64, tolerance: f64| {
        assert!((a - b).abs() <= tolerance, "{name} {what}: {a} for {b}, off by {:e}", (a - b).abs());
    };
    close("lambda", found.lambda, expected.lambda, 1e-6);
    close("constrained cost", found.cost_upper_bound, expected.cost_value, 1e-8);
    close("mean cost", found.estimated_cost, expected.mean_cost, 1e-8);
    // The bound is flat in τ: its optimum is known to the square root of the bound's accuracy.
    close("tau", found.tau, expected.tau, 1e-5 * (1.0 + expected.tau));
    close("true reward", found.true_reward, expected.true_reward, 1e-6);
    close("true cost", found.true_cost, expected.true_cost, 1e-6);
}

#[test]
fn naive_and_conservative_match_exact_solutions() {
    for (name, exact) in exact() {
        let case = case(&name);
        compare(&format!("{name} vanilla"), &exact.vanilla, &case.solve(CaseAlgorithm::Vanilla).unwrap());
        let conservative = case.solve(CaseAlgorithm::Conservative).unwrap();
        compare(&format!("{name} conservative"), &exact.conservative, &conservative);
    }
}

/// The recorded optimum comes from an LP solver whose occupancy was clipped at 1e-10 a pair: 2e-8 over 200 pairs,
/// plus that solver's own 1e-8.
#[test]
fn linear_program_reaches_the_recorded_optimum() {
    for name in exact().keys() {
        let found = case(name).solve(CaseAlgorithm::Basic).unwrap();
        assert_eq!(found.outcome, Outcome::Solved);
        let recorded = raw(name)["basic"]["mle_V_R"].as_f64().unwrap();
        let difference = (found.estimated_reward - recorded).abs();
        assert!(difference <= 1e-7, "{name}: {} for {recorded}", found.estimated_reward);
        assert!(found.estimated_cost <= 0.1 + 1e-10);
    }
}

/// The stored data occupancy, behaviour values and optimal values follow from the stored CMDP and policies.
#[test]
fn evaluation_reproduces_recorded_values() {
    for name in exact().keys() {
        let case = case(name);
        let raw = raw(name);
        for (field, reward_tolerance) in
            [("pi_b", 1e-12), ("opt_cmdp", 1e-12), ("basic", 1e-12), ("conservative", 1e-12)]
        {
            let table: Vec<Vec<f64>> = serde_json::from_value(raw[field]["policy"].clone()).unwrap();
            let policy = coptidice_core::Policy::new(50, 4, table.concat()).unwrap();
            let value = evaluate(&case.truth, &policy).unwrap();
            let recorded = raw[field]["V_R"].as_f64().unwrap();
            assert!(
                (value.reward - recorded).abs() < reward_tolerance,
                "{name} {field} {} {recorded}",
                value.reward
            );
            let recorded = raw[field]["V_C"].as_f64().unwrap();
            assert!((value.costs[0] - recorded).abs() < 1e-12, "{name} {field}");
        }
        let table: Vec<Vec<f64>> = serde_json::from_value(raw["pi_b"]["policy"].clone()).unwrap();
        let policy = coptidice_core::Policy::new(50, 4, table.concat()).unwrap();
        let d = known_behaviour_occupancy(&mut Evaluator::new(50), &case.estimate, &policy).unwrap();
        for (a, b) in d.iter().zip(&case.data_occupancy) {
            assert!((a - b).abs() < 1e-12, "{name}: {a} {b}");
        }
    }
}
