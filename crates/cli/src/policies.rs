//! Policies on the command line.

use std::path::Path;

use coptidice_agents::policy::{Acting, Policy};

use crate::failure::Failure;

/// Loads a policy that some run left.
pub(crate) fn load(path: &Path) -> Result<Policy, Failure> {
    Policy::load(path).map_err(|error| Failure::input(&error))
}

/// A way of acting by name.
pub(crate) fn acting(name: Option<&str>) -> Result<Option<Acting>, Failure> {
    name.map(|name| name.parse::<Acting>().map_err(|error| Failure::input(&error))).transpose()
}
