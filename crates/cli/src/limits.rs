//! Cost limits on the command line: `--limit 0.1` or `--limit collision=0.1`, always with `--limit-unit`.

use clap::{Args, ValueEnum};
use coptidice_agents::config::RawLimit;
use coptidice_core::LimitUnit;

use crate::failure::Failure;

/// The flags that give cost limits.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LimitFlags {
    /// Cost limit, VALUE or COST=VALUE; repeat for several costs
    #[arg(long = "limit", value_name = "[COST=]VALUE", value_parser = parse_limit, requires = "limit_unit", allow_hyphen_values = true)]
    limit: Vec<(Option<String>, f64)>,
    /// Unit of the limits: average cost of a step, or total cost of an episode
    #[arg(long, value_enum)]
    limit_unit: Option<Unit>,
}

/// `--limit-unit`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Unit {
    /// Average cost of one step
    Step,
    /// Undiscounted total of one episode
    Episode,
}

impl From<Unit> for LimitUnit {
    fn from(unit: Unit) -> Self {
        match unit {
            Unit::Step => LimitUnit::Step,
            Unit::Episode => LimitUnit::Episode,
        }
    }
}

impl LimitFlags {
    /// Lays these limits over those of a configuration: each replaces the one of its cost, whose horizon it keeps where both
    /// are per episode, and the others stay.
    pub(crate) fn lay_over(&self, limits: &mut Vec<RawLimit>) -> Result<(), Failure> {
        let given = self.raw();
        // One without a name is of the only cost there is; where it is to replace one of several, nobody knows which.
        let unnamed = given.iter().any(|limit| limit.cost.is_none());
        if unnamed && limits.len() > 1 {
            return Err(Failure::usage(
                format!("--limit names no cost, and the configuration has {} limits", limits.len()),
                "name the cost, as in --limit COST=VALUE",
            ));
        }
        let configured = std::mem::take(limits);
        let replaces = |new: &RawLimit, old: &RawLimit| {
            new.cost.is_none() || old.cost.is_none() && given.len() == 1 || new.cost == old.cost
        };
        // In their places, and new ones after them.
        for old in &configured {
            let mut new = given.iter().filter(|new| replaces(new, old)).peekable();
            if new.peek().is_none() {
                limits.push(old.clone());
            }
            limits.extend(new.map(|new| RawLimit {
                cost: new.cost.clone().or_else(|| old.cost.clone()),
                horizon: old.horizon.filter(|_| old.unit == new.unit),
                ..new.clone()
            }));
        }
        limits.extend(given.iter().filter(|new| !configured.iter().any(|old| replaces(new, old))).cloned());
        Ok(())
    }

    /// The limits as a configuration writes them.
    pub(crate) fn raw(&self) -> Vec<RawLimit> {
        let unit = self.limit_unit.map(LimitUnit::from);
        self.limit
            .iter()
            .map(|(cost, limit)| RawLimit { cost: cost.clone(), limit: *limit, unit, horizon: None })
            .collect()
    }
}

/// `VALUE` or `COST=VALUE`.
fn parse_limit(text: &str) -> Result<(Option<String>, f64), String> {
    let (cost, value) = match text.rsplit_once('=') {
        Some((cost, value)) if !cost.is_empty() => (Some(cost.to_owned()), value),
        Some(_) => return Err("a cost's name is missing before '='".to_owned()),
        None => (None, text),
    };
    match value.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok((cost, value)),
        _ => Err(format!("{value:?} is not a finite number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coptidice_agents::config::RawHorizon;

    fn flags(limit: &[(Option<&str>, f64)], unit: Unit) -> LimitFlags {
        let limit = limit.iter().map(|&(cost, value)| (cost.map(str::to_owned), value)).collect();
        LimitFlags { limit, limit_unit: Some(unit) }
    }

    #[test]
    fn limits_on_the_command_line_replace_those_of_their_costs() {
        let limit = |cost: Option<&str>, limit, unit, horizon| RawLimit {
            cost: cost.map(str::to_owned),
            limit,
            unit: Some(unit),
            horizon,
        };
        let five = Some(RawHorizon::Steps(5.0));
        let configured = || {
            vec![
                limit(Some("a"), 6.0, LimitUnit::Episode, five),
                limit(Some("b"), 0.6, LimitUnit::Step, None),
            ]
        };
        let laid = |given: &LimitFlags, mut limits: Vec<RawLimit>| {
            given.lay_over(&mut limits).is_ok().then_some(limits)
        };
        assert_eq!(laid(&LimitFlags::default(), configured()), Some(configured()));
        let other = flags(&[(Some("a"), 3.0)], Unit::Episode);
        let expected = vec![
            limit(Some("a"), 3.0, LimitUnit::Episode, five),
            limit(Some("b"), 0.6, LimitUnit::Step, None),
        ];
        assert_eq!(laid(&other, configured()), Some(expected), "the other limit and the horizon stay");
        let per_step = laid(&flags(&[(Some("a"), 0.1)], Unit::Step), configured()).expect("a has a name");
        assert_eq!(per_step[0], limit(Some("a"), 0.1, LimitUnit::Step, None), "a horizon is of totals");
        assert_eq!(laid(&flags(&[(None, 0.1)], Unit::Step), configured()), None, "of which of the two?");
        let only = vec![limit(Some("a"), 6.0, LimitUnit::Episode, five)];
        let expected = vec![limit(Some("a"), 0.1, LimitUnit::Step, None)];
        assert_eq!(laid(&flags(&[(None, 0.1)], Unit::Step), only), Some(expected));
        let unnamed = vec![limit(None, 6.0, LimitUnit::Episode, five)];
        let expected = vec![limit(Some("a"), 3.0, LimitUnit::Episode, five)];
        assert_eq!(laid(&other, unnamed), Some(expected));
        assert_eq!(laid(&flags(&[(None, 0.1)], Unit::Step), Vec::new()).map(|limits| limits.len()), Some(1));
    }

    #[test]
    fn limits_are_read_with_and_without_a_name() {
        assert_eq!(parse_limit("0.1"), Ok((None, 0.1)));
        assert_eq!(parse_limit("a=b=0.5"), Ok((Some("a=b".to_owned()), 0.5)));
        for wrong in ["", "x", "=1", "a=", "nan", "a=inf"] {
            assert!(parse_limit(wrong).is_err(), "{wrong:?}");
        }
    }
}
