//! Cost limits on the command line: `--limit 0.1` or `--limit collision=0.1`, always with `--limit-unit`.

use clap::{Args, ValueEnum};
use coptidice_agents::config::RawLimit;
use coptidice_core::LimitUnit;

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
    /// Whether no limit was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.limit.is_empty()
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
    use super::parse_limit;

    #[test]
    fn limits_are_read_with_and_without_a_name() {
        assert_eq!(parse_limit("0.1"), Ok((None, 0.1)));
        assert_eq!(parse_limit("a=b=0.5"), Ok((Some("a=b".to_owned()), 0.5)));
        for wrong in ["", "x", "=1", "a=", "nan", "a=inf"] {
            assert!(parse_limit(wrong).is_err(), "{wrong:?}");
        }
    }
}
