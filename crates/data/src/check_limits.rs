//! What cost limits have to do with a log, before anything is trained on it.

use coptidice_core::{CostLimit, EpisodeHorizon, LimitUnit};

use crate::problem::{Problem, ProblemCode};
use crate::transitions::Transitions;

/// Problems that a cost limit has with a log. `limits[k]` is that of cost `k`, if it has one.
#[must_use]
pub fn check_limits(log: &Transitions, limits: &[Option<CostLimit>]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (k, name) in log.cost_names().iter().enumerate() {
        let Some(limit) = limits.get(k).copied().flatten() else { continue };
        let (value, unit) = (limit.value(), limit.unit());
        // Below zero a limit is on a difference; whether it can be kept at all is the trainer's to say.
        let pays_back = || (0..log.len()).any(|row| log.costs(row)[k] < 0.0);
        if value <= 0.0 && !pays_back() {
            // Nobody writes the sign of a zero on purpose.
            let message =
                format!("the limit is {}: only a policy that never incurs this cost keeps it", value + 0.0);
            problems.push(Problem::new(ProblemCode::ZeroLimit, message).column(name));
        }
        let totals = log.episode_totals(|row| log.costs(row)[k]);
        let readings = totals.iter().zip(log.episodes()).map(|(total, episode)| {
            if unit == LimitUnit::Step { total / episode.len as f64 } else { *total }
        });
        let lowest = readings.fold(f64::INFINITY, f64::min);
        if lowest > value {
            let message = format!(
                "every episode is above the limit {value} per {unit}; the best has {lowest:.6}. The policy must do what \
                 no whole episode shows; expect it to be found infeasible or uncertain"
            );
            problems.push(Problem::new(ProblemCode::AllAboveLimit, message).column(name));
        }
        let largest =
            (0..log.len()).map(|row| f64::from(log.costs(row)[k])).fold(f64::NEG_INFINITY, f64::max);
        let longest = || log.episodes().iter().map(|episode| episode.len).max().unwrap_or(1) as f64;
        let (steps, length) = match limit {
            CostLimit::PerStep { .. } => (1.0, String::new()),
            CostLimit::PerEpisode { horizon: EpisodeHorizon::Fixed(steps), .. } => {
                (steps, format!(", and an episode has {steps} steps"))
            }
            CostLimit::PerEpisode { .. } => {
                (longest(), format!(", and no logged episode is longer than {} steps", longest()))
            }
        };
        // Costs are held in single precision. One that is always zero has a warning of its own.
        if largest > 0.0 && largest * steps <= value * (1.0 + f64::from(f32::EPSILON)) {
            let message = format!(
                "no logged step costs more than {largest:.6}{length}: a limit of {value} per {unit} is one that nothing \
                 logged could exceed; see whether its unit is right"
            );
            problems.push(Problem::new(ProblemCode::IdleLimit, message).column(name));
        }
    }
    problems
}
