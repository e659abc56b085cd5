//! Policies on the command line.

use std::path::Path;

use coptidice_agents::policy::{Acting, Policy, PolicyDefect};

use crate::failure::Failure;

/// Loads a policy that some run left.
pub(crate) fn load(path: &Path) -> Result<Policy, Failure> {
    Policy::load(path).map_err(|error| Failure::input(&error))
}

/// A way of acting by name, which must be one of `policy`'s.
pub(crate) fn acting(policy: &Policy, name: Option<&str>) -> Result<Option<Acting>, Failure> {
    let Some(name) = name else { return Ok(None) };
    check(policy, name.parse::<Acting>().map_err(|error| Failure::input(&error))?).map(Some)
}

/// A way of acting, which must be one of `policy`'s.
pub(crate) fn check(policy: &Policy, acting: Acting) -> Result<Acting, Failure> {
    if acting == Acting::Select && policy.selector().is_none() {
        return Err(Failure::input(&PolicyDefect::NoSelector));
    }
    if acting != Acting::Select && policy.selector().is_some() {
        eprintln!(
            "remark: acting by {acting} leaves out what this policy selects by: these are the actions of its model of the \
             log, whatever they cost"
        );
    }
    Ok(acting)
}
