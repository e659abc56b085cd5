//! Ways of acting against the distribution they are defined by.

use super::mixture;
use crate::policy::{Acting, ActionBatch, Head};
use coptidice_core::rng::stream;
use coptidice_nn::Pool;

const LOGITS: [f32; 3] = [0.3, -1.0, 0.5];
const LOCATIONS: [f32; 3] = [-1.5, 0.2, 2.0];
const RAW: [f32; 3] = [-1.0, 0.0, 0.5];

fn outputs() -> Vec<f32> {
    [LOGITS, LOCATIONS, RAW].concat()
}

fn probabilities() -> [f64; 3] {
    let sum: f64 = LOGITS.iter().map(|&l| f64::from(l).exp()).sum();
    LOGITS.map(|l| f64::from(l).exp() / sum)
}

fn act_many(acting: Acting, head: Head, outputs: &[f32], count: usize) -> Vec<f32> {
    let mut rng = stream(3, "acting test", 0);
    (0..count)
        .map(|_| {
            let mut action = [f32::NAN];
            head.act(outputs, acting, &mut rng, &mut action);
            action[0]
        })
        .collect()
}

#[test]
fn mean_and_mode_are_their_definitions_and_draw_nothing() {
    let head = mixture(1, 3);
    let expected: f64 = probabilities().iter().zip(LOCATIONS).map(|(p, l)| p * f64::from(l)).sum();
    let mut rng = stream(3, "acting test", 0);
    let untouched = rng.clone();
    let mut action = [f32::NAN];
    head.act(&outputs(), Acting::Mean, &mut rng, &mut action);
    assert!((f64::from(action[0]) - expected).abs() < 1e-6);
    head.act(&outputs(), Acting::Mode, &mut rng, &mut action);
    assert_eq!(action[0], 2.0);
    assert_eq!(rng, untouched);

    let head = Head::Categorical { actions: 4 };
    for acting in [Acting::Mean, Acting::Mode] {
        head.act(&[0.0, 2.0, 2.0, -1.0], acting, &mut rng, &mut action);
        assert_eq!(action[0], 1.0, "the first of equals");
    }
}

#[test]
fn dimensions_are_laid_out_one_after_another() {
    // Two dimensions of two components: [3][A][M].
    let outputs = [0.0, 9.0, 9.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0];
    let mut action = [f32::NAN; 2];
    mixture(2, 2).act(&outputs, Acting::Mode, &mut stream(0, "t", 0), &mut action);
    assert_eq!(action, [2.0, 3.0]);
}

/// Frequencies of 20,000 draws: standard deviation below 0.0036, tested at five of them.
#[test]
fn components_and_actions_come_with_their_probabilities() {
    let draws = act_many(Acting::Component, mixture(1, 3), &outputs(), 20_000);
    for (location, probability) in LOCATIONS.iter().zip(probabilities()) {
        let frequency = draws.iter().filter(|&a| a == location).count() as f64 / 20_000.0;
        assert!((frequency - probability).abs() < 0.018, "{location}: {frequency} {probability}");
    }
    for acting in [Acting::Component, Acting::Sample] {
        let draws = act_many(acting, Head::Categorical { actions: 3 }, &LOGITS, 20_000);
        for (index, probability) in probabilities().into_iter().enumerate() {
            let frequency = draws.iter().filter(|&&a| a == index as f32).count() as f64 / 20_000.0;
            assert!((frequency - probability).abs() < 0.018, "{index}: {frequency} {probability}");
        }
    }
}

/// Kolmogorov–Smirnov: samples against the integral of the density that the loss uses. With 20,000 draws the
/// statistic exceeds 1.95/√n in one of a thousand seeds; the seed is fixed.
#[test]
fn samples_follow_the_density() {
    let head = mixture(1, 3);
    let mut draws = act_many(Acting::Sample, head, &outputs(), 20_000);
    draws.sort_unstable_by(f32::total_cmp);
    let (points, low, step) = (6001, -12.0_f32, 0.004_f32);
    let grid: Vec<f32> = (0..points).map(|i| low + i as f32 * step).collect();
    let mut density = vec![0.0; points];
    let pool = Pool::new(1).unwrap();
    head.log_prob(&outputs().repeat(points), ActionBatch::Continuous(&grid), &mut density, &pool);
    let mut cumulative = 0.0_f64;
    let mut worst = 0.0_f64;
    for (x, density) in grid.iter().zip(density) {
        let mass = f64::from(density).exp() * f64::from(step);
        // The trapezoidal value at the point takes half of its mass.
        let empirical = draws.partition_point(|draw| draw <= x) as f64 / 20_000.0;
        worst = worst.max((empirical - (cumulative + 0.5 * mass)).abs());
        cumulative += mass;
    }
    assert!(worst < 1.95 / 20_000_f64.sqrt(), "{worst}");
}

#[test]
fn an_impossible_component_is_never_drawn() {
    let outputs = [0.0, -200.0, 0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0];
    let draws = act_many(Acting::Component, mixture(1, 3), &outputs, 5000);
    assert!(draws.iter().all(|&a| a != 2.0));
}

#[test]
fn names_round_trip() {
    for acting in Acting::ALL {
        assert_eq!(acting.name().parse::<Acting>(), Ok(acting));
        assert_eq!(serde_json::to_string(&acting).unwrap(), format!("\"{acting}\""));
    }
    assert!("greedy".parse::<Acting>().is_err());
}
