//! Every algorithm there is, in one list.

use serde::{Deserialize, Serialize};

use crate::learner::Learner;
use crate::problem::Problem;
use crate::train::TrainError;
use crate::{bc, coptidice, optidice};

/// The name of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// Behaviour cloning: the policy that made the log.
    Bc,
    /// Most reward near the log; costs are reported and not constrained.
    Optidice,
    /// Most reward near the log with an upper bound of each cost under its limit.
    Coptidice,
}

/// What the registry knows of an algorithm.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name.
    pub algorithm: Algorithm,
    /// The name in configurations.
    pub name: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    /// Whether it keeps cost limits.
    pub keeps_limits: bool,
    /// Builds the learner of a prepared problem.
    pub build: fn(&Problem<'_>) -> Result<Box<dyn Learner>, TrainError>,
}

/// Every algorithm, in the order of [`Algorithm`].
pub const ALGORITHMS: [Entry; 3] = [bc::ENTRY, optidice::ENTRY, coptidice::ENTRY];

impl Algorithm {
    /// Every member, in a fixed order.
    pub const ALL: [Algorithm; 3] = [Algorithm::Bc, Algorithm::Optidice, Algorithm::Coptidice];

    /// The algorithm's line in the registry.
    #[must_use]
    pub fn entry(self) -> &'static Entry {
        &ALGORITHMS[self as usize]
    }

    /// The name used in configurations.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// Whether it keeps cost limits.
    #[must_use]
    pub fn keeps_limits(self) -> bool {
        self.entry().keeps_limits
    }
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|a| a.name() == name).ok_or_else(|| UnknownAlgorithm(name.to_owned()))
    }
}

/// A name that is not in the registry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown algorithm {0:?}; use bc, optidice or coptidice")]
pub struct UnknownAlgorithm(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_is_in_the_order_of_the_enum_and_names_round_trip() {
        for (position, algorithm) in Algorithm::ALL.into_iter().enumerate() {
            assert_eq!(ALGORITHMS[position].algorithm, algorithm);
            assert_eq!(algorithm.name().parse::<Algorithm>(), Ok(algorithm));
            assert_eq!(serde_json::to_string(&algorithm).unwrap(), format!("\"{algorithm}\""));
        }
        assert!("crr".parse::<Algorithm>().is_err());
    }
}
