//! `coptidice tabular evaluate`: what a policy earns and costs on a stored case, or by logs.

use std::path::{Path, PathBuf};

use clap::Args;
use coptidice_core::Policy;
use coptidice_tabular::case::Case;
use coptidice_tabular::from_logs::{Appraisal, AppraisalOptions, Bounded, appraise};
use coptidice_tabular::{Outcome, evaluate};
use serde_json::json;

use super::logs::{Columns, FiniteLog};
use super::result::in_unit;
use super::solve::{parse_gamma, parse_number};
use crate::failure::{Done, Failure};
use crate::finite_policy::{FinitePolicy, numbered};
use crate::limits::LimitFlags;
use crate::output::line;

/// Flags of `tabular evaluate`.
#[derive(Args)]
pub(crate) struct Evaluate {
    /// The policy: policy.json of `tabular solve`, or behavior.json of `tabular generate`
    policy: PathBuf,
    /// A stored case: values are exact, on its true CMDP
    #[arg(long, value_name = "FILE", required_unless_present = "logs", conflicts_with_all = [
        "logs", "limit", "limit_unit", "gamma", "confidence", "resamples", "seed", "episode", "step", "state", "action",
        "reward", "cost", "next_state", "terminal",
    ])]
    case: Option<PathBuf>,
    /// Logs of a finite CMDP: values are estimates with confidence bounds
    #[arg(long, value_name = "FILE")]
    logs: Option<PathBuf>,
    #[command(flatten)]
    columns: Columns,
    #[command(flatten)]
    limits: LimitFlags,
    /// Discount in (0, 1], for logs
    #[arg(long, default_value_t = 1.0, value_parser = parse_gamma, allow_hyphen_values = true)]
    gamma: f64,
    /// Confidence of the bounds
    #[arg(long, default_value_t = 0.95, value_parser = parse_confidence, allow_hyphen_values = true)]
    confidence: f64,
    /// Resamples of the bootstrap; 0 leaves it out
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    resamples: u32,
    /// Seed of the bootstrap
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn parse_confidence(text: &str) -> Result<f64, String> {
    parse_number(text, |p| p > 0.0 && p < 1.0, "a number between 0 and 1, both excluded")
}

impl Evaluate {
    /// Evaluates and prints.
    pub(crate) fn run(self) -> Done {
        match (&self.case, &self.logs) {
            (Some(case), _) => self.by_case(case),
            (None, Some(logs)) => self.by_logs(logs),
            (None, None) => unreachable!("the parser asks for --case or --logs"),
        }
    }

    fn by_case(&self, path: &Path) -> Done {
        let case = Case::read(path).map_err(|error| Failure::input(&error))?;
        let m = &case.truth;
        let uniform = Policy::uniform(m.states(), m.actions()).map_err(|error| Failure::input(&error))?;
        let fallback = case.behaviour.as_ref().unwrap_or(&uniform);
        let file = FinitePolicy::read(&self.policy)?;
        let (policy, missing) =
            file.over(&self.policy, &numbered(m.states()), &numbered(m.actions()), fallback)?;
        let found = evaluate(m, &policy).map_err(|error| Failure::input(&error))?;
        let behaviour =
            case.behaviour.as_ref().map(|b| evaluate(m, b)).transpose().map_err(|e| Failure::input(&e))?;
        if self.json {
            return crate::output::json(&json!({
                "reward": found.reward,
                "cost": found.costs[0],
                "limit": case.limit,
                "within_limit": found.costs[0] <= case.limit + 1e-7,
                "behavior_reward": behaviour.as_ref().map(|b| b.reward),
                "behavior_cost": behaviour.as_ref().map(|b| b.costs[0]),
                "states_not_in_policy": missing,
            }));
        }
        line(&format!(
            "true reward {:.6}, true cost {:.6} per step; limit {}",
            found.reward, found.costs[0], case.limit
        ))?;
        if let Some(b) = behaviour {
            line(&format!("the policy of the logs: reward {:.6}, cost {:.6}", b.reward, b.costs[0]))?;
        }
        if missing > 0 {
            line(&format!("{missing} states are not in the policy: there the policy of the logs acts"))?;
        }
        Ok(())
    }

    fn by_logs(&self, path: &Path) -> Done {
        let log = self.columns.load(path, &self.limits)?;
        let logs = log.as_logs();
        let uniform = Policy::uniform(logs.states, logs.actions).map_err(|error| Failure::input(&error))?;
        let file = FinitePolicy::read(&self.policy)?;
        let (policy, missing) = file.over(&self.policy, &log.states, &log.actions, &uniform)?;
        let options = AppraisalOptions {
            gamma: self.gamma,
            limits: log.limits.clone(),
            confidence: self.confidence,
            resamples: self.resamples as usize,
            seed: self.seed,
        };
        let found = appraise(&logs, &policy, &options).map_err(|error| Failure::input(&error))?;
        if self.json {
            return crate::output::json(&self.object(&log, &found, missing));
        }
        self.print(&log, &found, missing)
    }

    fn object(&self, log: &FiniteLog, found: &Appraisal, missing: usize) -> serde_json::Value {
        let costs: Vec<_> = found
            .costs
            .iter()
            .zip(&found.policy.costs)
            .enumerate()
            .map(|(k, (bounds, reading))| {
                let unit = |value: f64| in_unit(reading, &found.policy, Some(value));
                json!({
                    "name": log.cost_names[k],
                    "limit": reading.limit,
                    "per_step": reading.per_step,
                    "per_episode": reading.per_episode,
                    "coindice_lower": unit(bounds.coindice.0),
                    "coindice_upper": unit(bounds.coindice.1),
                    "bootstrap_lower": bounds.bootstrap.and_then(|b| unit(b.lower)),
                    "bootstrap_upper": bounds.bootstrap.and_then(|b| unit(b.upper)),
                    "coindice_outcome": bounds.outcome,
                    "within_limit": found.within_limit(k),
                    "within_limit_with_confidence": found.within_limit_with_confidence(k),
                })
            })
            .collect();
        // Of the steps that are taken, as the estimate is.
        let taken = |value: f64| value / found.policy.mass;
        json!({
            "confidence": self.confidence,
            "gamma": self.gamma,
            "reward_per_step": found.policy.reward_per_step,
            "reward_per_episode": found.policy.reward_per_episode,
            "reward_coindice": [taken(found.reward.coindice.0), taken(found.reward.coindice.1)],
            "reward_coindice_outcome": found.reward.outcome,
            "reward_bootstrap": found.reward.bootstrap.map(|b| json!({
                "lower": taken(b.lower), "estimate": taken(b.estimate), "upper": taken(b.upper)
            })),
            "steps_per_episode": found.policy.steps_per_episode,
            "costs": costs,
            "behavior": found.behaviour,
            "mass_on_unseen_pairs": found.unsupported,
            "states_not_in_policy": missing,
        })
    }

    fn print(&self, log: &FiniteLog, found: &Appraisal, missing: usize) -> Done {
        // Of the steps that are taken, as costs are.
        let taken = |value: f64| value / found.policy.mass;
        let interval = |b: &Bounded| {
            let bootstrap = b.bootstrap.map_or(String::new(), |b| {
                format!("; bootstrap {:.5} to {:.5}", taken(b.lower), taken(b.upper))
            });
            let (estimate, bounds) = (taken(b.estimate), coindice(b, taken));
            format!("{estimate:.5} per step, {bounds}{bootstrap}")
        };
        line(&format!("bounds at {} confidence", self.confidence))?;
        line(&format!("reward {}", interval(&found.reward)))?;
        for (k, (bounds, reading)) in found.costs.iter().zip(&found.policy.costs).enumerate() {
            let unit = |value: f64| in_unit(reading, &found.policy, Some(value)).unwrap_or(f64::NAN);
            let judgement = if reading.in_limit_unit().is_none() {
                "its episodes never end, and have no total to hold against the limit"
            } else if found.within_limit_with_confidence(k) {
                "within the limit, its upper bound too"
            } else if !found.within_limit(k) && bounds.estimate <= reading.constraint_limit {
                "over the limit if what was never logged is as dear as the dearest that was"
            } else if !found.within_limit(k) {
                "over the limit"
            } else if !found.is_supported() {
                "estimated within the limit; no bound holds where the policy does what was never logged"
            } else {
                "estimated within the limit, its upper bound is not"
            };
            line(&format!(
                "{}: {:.5}, {}, in the limit's unit; {judgement}",
                log.cost_names[k],
                unit(bounds.estimate),
                coindice(bounds, unit),
            ))?;
        }
        // Less is not told from nothing in the figure printed.
        if found.unsupported >= 5e-5 {
            line(&format!(
                "{:.2}% of the policy's steps are on pairs that were never logged: nothing is known of them",
                100.0 * found.unsupported
            ))?;
        }
        if missing > 0 {
            line(&format!("{missing} states of the log are not in the policy: it is uniform there"))?;
        }
        Ok(())
    }
}

/// CoinDICE's interval, in the unit that `unit` turns it into, and how far it is one.
fn coindice(bounds: &Bounded, unit: impl Fn(f64) -> f64) -> String {
    let (low, high) = (unit(bounds.coindice.0), unit(bounds.coindice.1));
    match bounds.outcome {
        _ if !(low.is_finite() && high.is_finite()) => "no CoinDICE bound".to_owned(),
        Outcome::Solved | Outcome::AlmostSolved => format!("CoinDICE {low:.5} to {high:.5}"),
        other => format!("CoinDICE {low:.5} to {high:.5} ({other}: no bounds)"),
    }
}
