//! Short words on a terminal about what a command found.

use coptidice_agents::TrainConfig;
use coptidice_core::{LimitUnit, ProcessReading};
use coptidice_report::number::counted;
use coptidice_sim::Evaluation;

use crate::failure::Done;
use crate::output::line;
use crate::pages::{DualCost, DualEstimates, PolicyPicture, late, limit_of};
use crate::run_directory::{LimitEntry, RunDirectory};

/// What training found, with each limit in both units.
pub(crate) fn print_training(run: &RunDirectory, config: &TrainConfig) -> Done {
    let manifest = run.manifest()?;
    let history = run.history()?;
    line(&format!("{} trained for {} steps; policy in {}", config.algo, config.steps, run.root().display()))?;
    let dual = DualEstimates::of(run)?;
    let mass = dual.as_ref().map_or_else(|| late(&history, "w/mean").unwrap_or(1.0), |dual| dual.mean_weight);
    // Behaviour cloning has no figures of its own.
    let reward = DualEstimates::reward(dual.as_ref(), &history);
    if let Some(reward) = reward {
        line(&format!("estimated reward per step: {reward:.4}"))?;
    }
    for limit in &manifest.limits {
        line(&format!("limit of {}: {}", limit.cost, limit.readings()))?;
        if let Some(found) = DualCost::of(limit, &history, dual.as_ref()) {
            let bound = found.upper_bound.map_or(String::new(), |bound| format!(", upper bound {bound:.4}"));
            let lambda = late(&history, &format!("lambda/{}", limit.cost))
                .map_or(String::new(), |lambda| format!(", lambda {lambda:.3}"));
            let unit = if found.per_episode { LimitUnit::Episode } else { LimitUnit::Step };
            line(&format!("  estimated cost per {unit} {:.4}{bound}{lambda}", found.estimate))?;
            if config.algo.keeps_limits() && found.exceeds(limit) {
                line(&format!(
                    "warning: what the dual holds to the limit of {} is well over it: it has not settled; train longer, \
                     or, where only the upper bound is over, lower epsilon",
                    limit.cost
                ))?;
            }
        }
    }
    // Where terminals end a discounted process the mass after them is missing, nobody knows how much.
    let ends = matches!(manifest.reading, ProcessReading::Terminating { .. });
    if mass_is_off(mass) && !(ends && mass <= 1.0) {
        line(&format!(
            "warning: E[w] = {mass:.3} is far from 1: the estimates are not of a distribution yet"
        ))?;
    }
    if let Some(picture) = PolicyPicture::of(run)? {
        return print_policy(&picture, &manifest.limits);
    }
    if reward.is_none() {
        return Ok(());
    }
    line("these are the optimiser's figures on its own log; the policy itself may earn and cost otherwise")
}

/// What is estimated of the policy itself.
fn print_policy(picture: &PolicyPicture, limits: &[LimitEntry]) -> Done {
    if let Some(way) = picture.ways.first() {
        let costs = way.costs.iter().map(|cost| {
            let limit = limit_of(limits, &cost.name);
            format!(", {} {:.4} per {}", cost.name, cost.in_unit_of(&limit), limit.unit())
        });
        line(&format!(
            "the policy itself, by fitted Q evaluation {}, acting by {} after {} steps: reward {:.4} per step{}",
            picture.basis(),
            way.acting,
            way.step,
            way.reward,
            costs.collect::<String>()
        ))?;
    }
    for warning in picture.warnings() {
        line(&format!("warning: {warning}"))?;
    }
    Ok(())
}

/// Further from one than estimates by mini-batches explain.
fn mass_is_off(mass: f64) -> bool {
    !(0.8..=1.25).contains(&mass)
}

/// What a policy earned and cost in a simulator.
pub(crate) fn print_evaluation(evaluation: &Evaluation) -> Done {
    let plus_minus = |error: Option<f64>| error.map_or(String::new(), |error| format!(" ± {error:.4}"));
    line(&format!("{}: {}", evaluation.environment, counted(evaluation.episodes as u64, "episode")))?;
    line(&format!("return {:.2}{}", evaluation.return_mean, plus_minus(evaluation.return_stderr)))?;
    for cost in &evaluation.costs {
        line(&format!(
            "{}: {:.4}{} per step, {:.2}{} per episode; limit {} per {}; {:.0}% of episodes over it; {}",
            cost.name,
            cost.per_step,
            plus_minus(cost.per_step_stderr),
            cost.per_episode,
            plus_minus(cost.per_episode_stderr),
            cost.limit.value(),
            cost.limit.unit(),
            100.0 * cost.share_over_limit,
            if cost.within_limit { "mean within the limit" } else { "mean OVER the limit" }
        ))?;
    }
    Ok(())
}
