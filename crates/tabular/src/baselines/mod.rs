//! What the paper compares with, and bounds on the values of a given policy.
//!
//! | paper | here |
//! |---|---|
//! | C-SPIBB, appendix "Experimental Settings" | [`Spibb`] |
//! | CoinDICE, appendix "Comparison with CoinDICE" | [`coindice_bound`] |
//! | bootstrap confidence intervals, section "Cost-conservative Constrained Policy Optimization" | [`bootstrap_bounds`] |
//!
//! *BC* is the empirical policy, [`behaviour_cloning`]. *Baseline* is [`crate::lp`] on the maximum-likelihood CMDP.

mod bootstrap;
mod coindice;
mod spibb;

pub use bootstrap::{BootstrapBounds, BootstrapConfig, Interval, bootstrap_bounds};
pub use coindice::{
    BoundSide, CoinDiceBound, coindice_bound, coindice_bound_with_ends, likelihood_radius, published_radius,
};
pub use spibb::{PAPER_WEDGE, Spibb, SpibbSolution};

use coptidice_core::{CmdpError, Policy};

use crate::counts::Counts;

/// The empirical policy `n(s,a)/n(s)`; uniform in states never visited.
///
/// # Errors
/// [`CmdpError::Size`] if there are no states or actions.
pub fn behaviour_cloning(counts: &Counts) -> Result<Policy, CmdpError> {
    Policy::from_mass(&Policy::uniform(counts.states(), counts.actions())?, counts.pair_totals())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cloning_is_counting() {
        let counts = Counts::from_steps(3, 2, [(0, 0, 1), (0, 1, 1), (0, 1, 2), (1, 0, 2)]).unwrap();
        let policy = behaviour_cloning(&counts).unwrap();
        assert_eq!(policy.probabilities(), &[1.0 / 3.0, 2.0 / 3.0, 1.0, 0.0, 0.5, 0.5]);
    }
}
