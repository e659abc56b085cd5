//! What each controller of `nav/hazard` and each mix of logs earns and costs.
//!
//! `cargo run --release -p coptidice-sim --example hazard_table`

#![expect(clippy::print_stdout, reason = "the output of an example")]

use coptidice_sim::hazard::{Controller, HazardMap, HazardNavigation, Route, Side, logs};
use coptidice_sim::{EvaluateOptions, PerThread, SimError, evaluate};

fn main() -> Result<(), SimError> {
    let env = HazardNavigation::new();
    let around = |side, clearance| Route::Around { side, clearance };
    println!(
        "{:32} {:>7} {:>7} {:>12} {:>9}",
        "controller, speed, noise", "return", "± s.e.", "cost/episode", "over .02"
    );
    for (name, route, speed, noise) in [
        ("through 2.0 0.0", Route::Through, 2.0, 0.0),
        ("through 2.0 0.2", Route::Through, 2.0, 0.2),
        ("through 1.4 0.2", Route::Through, 1.4, 0.2),
        ("through 0.8 0.2", Route::Through, 0.8, 0.2),
        ("left +0.05 2.0 0.0", around(Side::Left, 0.05), 2.0, 0.0),
        ("left +0.2 2.0 0.2", around(Side::Left, 0.2), 2.0, 0.2),
        ("left +0.2 1.4 0.2", around(Side::Left, 0.2), 1.4, 0.2),
        ("left +0.2 0.8 0.2", around(Side::Left, 0.2), 0.8, 0.2),
        ("right +0.2 1.4 0.2", around(Side::Right, 0.2), 1.4, 0.2),
        ("left -0.1 1.4 0.2", around(Side::Left, -0.1), 1.4, 0.2),
        ("left -0.5 1.4 0.2", around(Side::Left, -0.5), 1.4, 0.2),
        ("left -0.9 1.4 0.2", around(Side::Left, -0.9), 1.4, 0.2),
        ("wander 0.8 0.2", Route::Wander, 0.8, 0.2),
    ] {
        let source = PerThread(|| Controller::new(HazardMap::STANDARD, route, speed, noise));
        let figures = evaluate(&env, &source, &EvaluateOptions::new(400, 0))?;
        println!(
            "{name:32} {:7.1} {:7.1} {:12.2} {:9.2}",
            figures.return_mean,
            figures.return_stderr.unwrap_or(0.0),
            figures.cost_per_episode.unwrap_or(0.0),
            figures.share_over_limit.unwrap_or(0.0),
        );
    }
    println!();
    for share in [0.2, 0.5, 0.8] {
        let log = logs(share, 400, 0)?;
        let mut groups = [(0.0, 0.0, 0); 2];
        for episode in log.episodes() {
            let total: f64 = episode.rows().map(|i| f64::from(log.reward(i))).sum();
            let cost: f64 = episode.rows().map(|i| f64::from(log.costs(i)[0])).sum();
            let group = &mut groups[usize::from(cost > 4.0)];
            group.0 += total;
            group.1 += cost;
            group.2 += 1;
        }
        let n = log.episodes().len() as f64;
        let [safe, costly] = groups;
        println!(
            "{:3.0}% safe: return {:.1}, cost/step {:.3}",
            100.0 * share,
            (safe.0 + costly.0) / n,
            (safe.1 + costly.1) / n / 200.0
        );
        for (name, (total, cost, count)) in [("safe", safe), ("unsafe", costly)] {
            let count = f64::from(count);
            println!("    {count} {name}: return {:.1}, cost/episode {:.2}", total / count, cost / count);
        }
    }
    Ok(())
}
