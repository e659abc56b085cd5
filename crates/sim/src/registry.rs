//! Environments by name.

use serde::{Deserialize, Serialize};

use crate::env::Environment;
use crate::error::SimError;
use crate::hazard::HazardNavigation;
use crate::rwrl::CartPole;

/// Parameters that a user may change. What an environment does not have has to be left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnvOptions {
    /// Real-world suite tasks: how loose the safety constraints are; the task's definition says in which unit.
    pub safety_coeff: Option<f64>,
    /// Real-world suite tasks: the constraints that cost, in order; `["all"]` for all. None for the paper's.
    pub constraints: Vec<String>,
    /// Real-world suite tasks: the limit per step on each cost where no other is given.
    pub threshold: Option<f64>,
}

/// One registered environment.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Whether it needs the feature `mujoco`.
    pub needs_mujoco: bool,
    build: fn(&EnvOptions) -> Result<Box<dyn Environment>, SimError>,
}

impl Entry {
    /// Whether this program was built with what the environment needs.
    #[must_use]
    pub fn is_available(&self) -> bool {
        !self.needs_mujoco || cfg!(feature = "mujoco")
    }
}

/// An entry for a task on MuJoCo: made by the function of `rwrl::mujoco`, or the error that says how to get it.
macro_rules! on_mujoco {
    ($task:ident, $name:literal, $summary:literal) => {
        Entry {
            name: $name,
            summary: $summary,
            needs_mujoco: true,
            #[cfg(feature = "mujoco")]
            build: crate::rwrl::mujoco::$task,
            #[cfg(not(feature = "mujoco"))]
            build: |_| Err(SimError::NeedsMujoco { name: $name }),
        }
    };
}

/// All environments, in a fixed order.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: CartPole::NAME,
        summary: "swing up a pole on a cart; costs where the cart is far from the centre",
        needs_mujoco: false,
        build: |options| Ok(Box::new(CartPole::new(options)?)),
    },
    on_mujoco!(cartpole, "rwrl/cartpole-swingup-mujoco", "the same task, moved by MuJoCo"),
    on_mujoco!(walker, "rwrl/walker-walk", "a planar biped walks; costs where a joint turns fast"),
    on_mujoco!(quadruped, "rwrl/quadruped-walk", "four legs walk; costs where a joint is bent far"),
    on_mujoco!(humanoid, "rwrl/humanoid-walk", "a humanoid walks; costs where a joint is bent far"),
    Entry {
        name: HazardNavigation::NAME,
        summary: "reach a goal in the plane; costs inside a round hazard on the straight path",
        needs_mujoco: false,
        build: |options| {
            let EnvOptions { safety_coeff, constraints, threshold } = options;
            let given = [
                ("safety_coeff", safety_coeff.is_some()),
                ("constraints", !constraints.is_empty()),
                ("threshold", threshold.is_some()),
            ];
            match given.into_iter().find(|&(_, given)| given) {
                None => Ok(Box::new(HazardNavigation::new())),
                Some((option, _)) => Err(SimError::UnknownOption { name: HazardNavigation::NAME, option }),
            }
        },
    },
];

/// The environment of that name, with default parameters.
///
/// # Errors
/// [`SimError::UnknownEnvironment`], or [`SimError::NeedsMujoco`] if the program was built without it.
pub fn make(name: &str) -> Result<Box<dyn Environment>, SimError> {
    make_with(name, &EnvOptions::default())
}

/// The environment of that name.
///
/// # Errors
/// If there is none, the program was built without what it needs, or an option does not fit it.
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
        for entry in ENTRIES.iter().filter(|entry| entry.is_available()) {
            let env = make(entry.name).unwrap();
            let spec = env.spec();
            assert_eq!(spec.name, entry.name);
            assert!(spec.horizon > 0 && spec.observation_dim() > 0 && !spec.costs.is_empty());
            assert_eq!(env.fresh().spec(), spec);
        }
    }

    #[test]
    fn what_the_program_was_built_without_says_how_to_get_it() {
        let missing: Vec<_> = ENTRIES.iter().filter(|entry| !entry.is_available()).collect();
        assert_eq!(missing.len(), if cfg!(feature = "mujoco") { 0 } else { 4 });
        for entry in missing {
            let message = make(entry.name).err().unwrap().to_string();
            for part in [entry.name, "cargo xtask mujoco", "--features mujoco"] {
                assert!(message.contains(part), "{message}");
            }
        }
    }

    #[test]
    fn unknown_names_and_misplaced_options_are_refused() {
        let error = make("rwrl/cartpole").err().unwrap();
        assert!(error.to_string().contains("rwrl/cartpole-swingup"), "{error}");
        let options = EnvOptions { safety_coeff: Some(0.5), ..EnvOptions::default() };
        assert!(matches!(make_with("nav/hazard", &options), Err(SimError::UnknownOption { .. })));
        let options = EnvOptions { safety_coeff: Some(f64::NAN), ..EnvOptions::default() };
        assert!(matches!(make_with(CartPole::NAME, &options), Err(SimError::OptionValue { .. })));
    }
}
