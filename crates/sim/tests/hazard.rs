//! The controllers and logs of hazard navigation.

use coptidice_core::rng::stream;
use coptidice_data::Transitions;
use coptidice_sim::hazard::{
    Controller, HazardMap, HazardNavigation, Route, SAFE_COST_PER_STEP, Side, log_controller, logs,
};
use coptidice_sim::{EvaluateOptions, Evaluation, PerRow, SimError, evaluate};

fn run(route: Route, speed: f64, noise: f64) -> Evaluation {
    let source = PerRow(|| Controller::new(HazardMap::STANDARD, route, speed, noise));
    let options = EvaluateOptions { record_paths: 40, ..EvaluateOptions::new(40, 4) };
    evaluate(&HazardNavigation::new(), &source, &options).unwrap()
}

/// Reward and cost pull apart: straight through beats every way around by more than 15, and costs five times
/// the limit; cutting the corner lies between in both.
#[test]
fn the_faster_way_is_the_costlier() {
    let through = run(Route::Through, 1.4, 0.2);
    let around = run(Route::Around { side: Side::Left, clearance: 0.2 }, 1.4, 0.2);
    let cut = run(Route::Around { side: Side::Left, clearance: -0.5 }, 1.4, 0.2);
    let wander = run(Route::Wander, 0.8, 0.2);
    assert!(through.return_mean > around.return_mean + 8.0);
    assert!(through.cost_per_step > Some(0.1) && around.cost_per_step == Some(0.0));
    assert!(cut.return_mean > around.return_mean && cut.return_mean < through.return_mean);
    assert!(cut.cost_per_step > Some(SAFE_COST_PER_STEP) && cut.cost_per_step < through.cost_per_step);
    assert!(wander.return_mean < 5.0);
}

/// The map is symmetric and so are the controllers: the two sides earn the same up to their standard errors.
#[test]
fn the_sides_pass_on_their_sides_and_earn_the_same() {
    let [left, right] = [Side::Left, Side::Right].map(|side| {
        let figures = run(Route::Around { side, clearance: 0.1 }, 1.2, 0.1);
        for path in &figures.paths {
            let beside = path.observations.iter().filter(|o| o[0].abs() < 0.2);
            assert!(beside.clone().count() > 0);
            assert!(beside.clone().all(|o| (o[1] > 0.0) == (side == Side::Left)), "{side:?}");
        }
        figures
    });
    let error = left.return_stderr.unwrap().hypot(right.return_stderr.unwrap());
    assert!((left.return_mean - right.return_mean).abs() < 4.0 * error);
}

#[test]
fn noise_free_controllers_end_at_the_goal() {
    for route in [Route::Through, Route::Around { side: Side::Right, clearance: 0.1 }] {
        for path in run(route, 1.4, 0.0).paths {
            let last = path.observations.last().unwrap();
            let far = (f64::from(last[0]) - 2.0).hypot(f64::from(last[1]));
            assert!(far < 0.05 && last[2].hypot(last[3]) < 0.05, "{route:?}: {last:?}");
        }
    }
}

fn episode_costs(log: &Transitions) -> Vec<f64> {
    log.episodes()
        .iter()
        .map(|episode| episode.rows().map(|i| f64::from(log.costs(i)[0])).sum::<f64>() / episode.len as f64)
        .collect()
}

#[test]
fn logs_hold_the_stated_share_of_safe_episodes() {
    for (share, safe) in [(0.0, 0), (0.2, 8), (0.5, 20), (0.8, 32), (1.0, 40)] {
        let log = logs(share, 40, 1).unwrap();
        assert_eq!(
            (log.len(), log.observation_dim(), log.cost_names()),
            (8000, 4, &["hazard".to_owned()][..])
        );
        let costs = episode_costs(&log);
        assert_eq!(costs.iter().filter(|&&cost| cost <= SAFE_COST_PER_STEP).count(), safe);
        // Spread evenly: every fifth of the log has the share, up to one episode.
        for fifth in costs.chunks(8) {
            let count = fifth.iter().filter(|&&cost| cost <= SAFE_COST_PER_STEP).count() as f64;
            assert!((count - 8.0 * share).abs() <= 1.0);
        }
        assert!((0..log.len()).all(|i| !log.terminal(i) && log.timeout(i) == (i % 200 == 199)));
        assert!(log.continuous_action(7).iter().all(|a| a.abs() <= 1.0));
    }
    assert_eq!(logs(1.2, 10, 0).unwrap_err(), SimError::Share(1.2));
    assert!(matches!(logs(f64::NAN, 10, 0), Err(SimError::Share(_))));
    assert_eq!(logs(0.5, 0, 0).unwrap_err(), SimError::NoEpisodes);
}

#[test]
fn logs_are_a_function_of_share_size_and_seed() {
    let fingerprint = |threads: usize, seed| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| logs(0.5, 12, seed).unwrap().fingerprint())
    };
    assert_eq!(fingerprint(1, 3), fingerprint(3, 3));
    assert_ne!(fingerprint(1, 3), fingerprint(1, 4));
}

/// The side is nine times in ten the one of the start. In about 1000 draws the standard deviation of the share is
/// 0.0095; five of them.
#[test]
fn the_nearer_side_is_taken_nine_times_in_ten() {
    let mut rng = stream(0, "sides", 0);
    let (mut nearer, mut around) = (0.0, 0.0);
    for _ in 0..1400 {
        let controller = log_controller(HazardMap::STANDARD, true, -0.3, &mut rng);
        if let Route::Around { side, clearance } = controller.route() {
            around += 1.0;
            nearer += f64::from(u8::from(side == Side::Right));
            assert!(clearance > 0.1);
        }
    }
    assert!((around / 1400.0_f64 - 0.75).abs() < 0.06);
    assert!((nearer / around - 0.9_f64).abs() < 0.048);
}
