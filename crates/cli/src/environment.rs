//! Which environment a command simulates.

use clap::Args;
use coptidice_sim::{EnvOptions, Environment, make_with};

use crate::failure::Failure;

/// An environment and its parameters.
#[derive(Args)]
pub(crate) struct EnvironmentArguments {
    /// Environment, as in rwrl/cartpole-swingup; `coptidice sim list` names them
    #[arg(long, value_name = "NAME")]
    env: String,
    /// Of an rwrl task: how loose the constraints are, 1 being the suite's own [default: the paper's]
    #[arg(long, value_name = "C")]
    safety_coeff: Option<f64>,
    /// Of an rwrl task: a constraint that costs where it is violated, may be repeated; `all` for all [default: the
    /// paper's]
    #[arg(long = "constraint", value_name = "NAME")]
    constraints: Vec<String>,
    /// Of an rwrl task: the limit per step on costs that have no other [default: the paper's]
    #[arg(long, value_name = "LIMIT")]
    threshold: Option<f64>,
}

impl EnvironmentArguments {
    /// Its parameters.
    pub(crate) fn options(&self) -> EnvOptions {
        let Self { safety_coeff, constraints, threshold, .. } = self;
        EnvOptions { safety_coeff: *safety_coeff, constraints: constraints.clone(), threshold: *threshold }
    }

    /// The environment.
    pub(crate) fn make(self) -> Result<Box<dyn Environment>, Failure> {
        environment(&self.env, &self.options())
    }
}

/// The environment called `name`.
pub(crate) fn environment(name: &str, options: &EnvOptions) -> Result<Box<dyn Environment>, Failure> {
    make_with(name, options).map_err(|error| Failure::input(&error))
}
