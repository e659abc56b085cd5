//! Limits that no policy can keep, seen before training.
//!
//! A policy that stays within the log has an occupancy `d` over logged steps, so that `E_d[c]` is at least the least
//! logged cost. Where a discounted process ends, `d` lacks the mass after the end; limits are on the steps that are
//! taken, and the bound holds of those (`CostConstraint::out_of_reach`). This finds signs turned round and limits in
//! another unit; most limits that cannot be kept show only in training.

use coptidice_core::LimitUnit;
use coptidice_data::Transitions;

use crate::config::{LogFacts, TrainConfig};

/// A limit below what every logged step costs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "no policy that stays within the log keeps the limit of {} per {unit} on {cost}: no logged step costs less than {}",
    digits(*limit), digits(*least)
)]
pub struct InfeasibleLimit {
    /// Name of the cost.
    pub cost: String,
    /// The limit, cost units per `unit`.
    pub limit: f64,
    /// Its unit.
    pub unit: LimitUnit,
    /// Least cost of a logged step.
    pub least: f64,
}

/// Six significant digits, without those that say nothing.
fn digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

impl InfeasibleLimit {
    /// What to do about it.
    pub const REMEDY: &str = "raise the limit, or see whether its unit and the cost's sign are right";
}

/// The first limit of a configuration whose algorithm keeps limits that certainly cannot be kept on `data`.
#[must_use]
pub fn infeasible_limit(config: &TrainConfig, data: &Transitions) -> Option<InfeasibleLimit> {
    if !config.algo.keeps_limits() {
        return None;
    }
    let facts = LogFacts::of(data);
    let loses_mass = config.gamma < 1.0 && (0..data.len()).any(|row| data.terminal(row));
    config.limits.iter().find_map(|limit| {
        let column = data.cost_names().iter().position(|name| *name == limit.cost)?;
        let costs = (0..data.len()).map(|row| data.costs(row)[column]);
        let least = f64::from(costs.fold(f32::INFINITY, f32::min));
        let constraint = limit.limit.constraint(config.reading(&facts)).ok()?;
        constraint.out_of_reach(least, loses_mass).then(|| InfeasibleLimit {
            cost: limit.cost.clone(),
            limit: limit.limit.value(),
            unit: limit.limit.unit(),
            least,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{config, random_log};
    use coptidice_data::ActionSpace;

    #[test]
    fn only_limits_below_every_logged_cost_are_infeasible() {
        // Costs in [0, 1]; some episodes end in terminals; the last is cut, the others have 4 steps.
        let data = random_log(1, ActionSpace::discrete(2), 4, 4);
        let least = f64::from((0..data.len()).map(|i| data.costs(i)[0]).fold(1.0_f32, f32::min));
        let check = |limit: f64, unit: &str, more: &str| {
            let text = format!("[[limits]]\ncost = \"first\"\nlimit = {limit:?}\nunit = \"{unit}\"\n");
            infeasible_limit(&config(&data, &format!("{more}\n{text}")), &data)
        };
        let found = check(-0.1, "step", "").expect("costs are never negative");
        assert_eq!((found.cost.as_str(), found.limit, found.least), ("first", -0.1, least));
        assert!(check(-1.0, "episode", "gamma = 1.0").is_some());
        assert!(check(0.5 * least, "step", "gamma = 1.0").is_some());
        assert!(check(least, "step", "gamma = 1.0").is_none(), "the limit itself may be reached");
        // A cost of 0.1 is stored as 0.10000000149.
        assert!(check(least * (1.0 - 5e-8), "step", "gamma = 1.0").is_none(), "equal in single precision");
        let shown =
            check(-0.1, "step", "").map(|limit| InfeasibleLimit { least: f64::from(0.1_f32), ..limit });
        assert!(shown.unwrap().to_string().ends_with("less than 0.1"));
        // Under a discount too: ending early makes no step cheaper.
        assert!(check(0.5 * least, "step", "gamma = 0.5").is_some());
        assert!(check(least, "step", "gamma = 0.5").is_none());
        assert!(check(-0.1, "step", "algo = \"optidice\"").is_none(), "it keeps no limit");
        let varying = "gamma = 1.0\n";
        let text = "[[limits]]\ncost = \"first\"\nlimit = -0.5\nunit = \"episode\"\n\
                    horizon = { logged_mean = 4.0 }\n";
        assert!(infeasible_limit(&config(&data, &format!("{varying}{text}")), &data).is_some());
    }
}
