//! Environments by name.

use serde::{Deserialize, Serialize};

use crate::env::Environment;
use crate::error::SimError;
use crate::hazard::HazardNavigation;
use crate::rwrl::CartPole;

/// Parameters that a user may change. What an environment does not have has to be left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnvOptions {
    /// Real-world suite tasks: how loose the safety constraint is; the task's definition says in which unit.
    pub safety_coeff: Option<f64>,
}

/// One registered environment.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    build: fn(&EnvOptions) -> Result<Box<dyn Environment>, SimError>,
}

/// All environments, in a fixed order.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: CartPole::NAME,
        summary: "swing up a pole on a cart; costs where the cart is far from the centre",
        build: |options| Ok(Box::new(CartPole::new(options.safety_coeff)?)),
    },
    Entry {
        name: HazardNavigation::NAME,
        summary: "reach a goal in the plane; costs inside a round hazard on the straight path",
        build: |options| match options.safety_coeff {
            None => Ok(Box::new(HazardNavigation::new())),
            Some(_) => Err(SimError::UnknownOption { name: HazardNavigation::NAME, option: "safety_coeff" }),
        },
    },
];

/// The environment of that name, with default parameters.
///
/// # Errors
/// [`SimError::UnknownEnvironment`].
pub fn make(name: &str) -> Result<Box<dyn Environment>, SimError> {
    make_with(name, &EnvOptions::default())
}

/// The environment of that name.
///
/// # Errors
/// If there is none, or an option does not fit it.
pub fn make_with(name: &str, options: &EnvOptions) -> Result<Box<dyn Environment>, SimError> {
    let entry = ENTRIES.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let known = ENTRIES.iter().map(|entry| entry.name).collect();
        SimError::UnknownEnvironment { name: name.to_owned(), known }
    })?;
    (entry.build)(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_builds_under_its_name() {
        for entry in ENTRIES {
            let env = make(entry.name).unwrap();
            let spec = env.spec();
            assert_eq!(spec.name, entry.name);
            assert!(spec.horizon > 0 && spec.observation_dim() > 0 && !spec.costs.is_empty());
            assert_eq!(env.fresh().spec(), spec);
        }
    }

    #[test]
    fn unknown_names_and_misplaced_options_are_refused() {
        let error = make("rwrl/cartpole").err().unwrap();
        assert!(error.to_string().contains("rwrl/cartpole-swingup"), "{error}");
        let options = EnvOptions { safety_coeff: Some(0.5) };
        assert!(matches!(make_with("nav/hazard", &options), Err(SimError::UnknownOption { .. })));
        let options = EnvOptions { safety_coeff: Some(f64::NAN) };
        assert!(matches!(make_with(CartPole::NAME, &options), Err(SimError::OptionValue { .. })));
    }
}
