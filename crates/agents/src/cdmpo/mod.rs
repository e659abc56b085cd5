//! C-DMPO: a policy learned in a simulator, that earns as much as it can while costs stay under a limit.
//!
//! # The problem
//!
//! Logs for offline learning come from policies of all kinds. The paper's were made by constrained distributional MPO
//! (Abdolmaleki et al. 2018, "Maximum a posteriori policy optimisation"; Mankowitz et al. 2021, "Robust constrained
//! reinforcement learning for continuous control with model misspecification"), trained under several limits, of which all
//! checkpoints were kept as a pool. This is the one learner here that acts while it learns.
//!
//! With `gamma < 1` and values as averages per step, the policy maximises `Q_r - lambda'Q_c` in expectation over the
//! states that were visited, and `lambda` rises while the costs of the episodes that it runs exceed the limit:
//!
//! ```text
//! max_pi min_{lambda >= 0}   E[r] - lambda'(E[c] - limit)
//! ```
//!
//! # The way through
//!
//! | step | where |
//! |---|---|
//! | an episode under the policy as it stands goes to the replay buffer | `run`, `replay` |
//! | critics of the reward and of each cost, as distributions on fixed atoms, follow targets of several steps | `support` |
//! | E-step: actions of the target policy are reweighted by value, within a bound | `improvement` |
//! | M-step: location and deviation are fitted to them, each within a bound of its own | `fit` |
//! | temperatures, prices of the bounds, `lambda` | `multipliers` |
//!
//! # Symbols
//!
//! | symbol | shape | meaning |
//! |---|---|---|
//! | `B`, `N` | | samples of an update, actions drawn at each |
//! | `O`, `A`, `K` | | columns of an observation, dimensions of an action, costs |
//! | `M` | | atoms of a distribution of values |
//! | `signals` | `[B, 1 + K]` | reward, then costs, of `n` steps: `(1 - gamma) sum_i gamma^i r_i` |
//! | `outputs` | `[B, 3A]` | the policy network's outputs |
//!
//! A run is a function of its configuration, the simulator and the seed, whatever the number of threads: the episode of
//! a number and the batch of an update have random streams of their own.

mod config;
mod fit;
mod improvement;
mod learner;
mod multipliers;
mod replay;
mod run;
mod simulator;
mod support;

use std::path::{Path, PathBuf};

pub use config::CdmpoConfig;
pub use run::train;
pub use simulator::{SimulatedStep, Simulator, SimulatorError, SimulatorFacts};

/// What a policy says that it was made by.
const ALGORITHM: &str = "cdmpo";

/// Where a run's policies lie, one file for each of [`saved_steps`].
#[must_use]
pub fn policies(run: &Path) -> PathBuf {
    run.join("policies")
}

/// The file of the policy as it stood after so many environment steps.
#[must_use]
pub fn policy_file(run: &Path, steps: u64) -> PathBuf {
    policies(run).join(format!("step-{steps}.safetensors"))
}

/// The environment steps after which the run left a policy, in order; none where there is no run.
#[must_use]
pub fn saved_steps(run: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(policies(run)).into_iter().flatten();
    let mut found: Vec<u64> = entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            name.to_str()?.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok()
        })
        .collect();
    found.sort_unstable();
    found
}
