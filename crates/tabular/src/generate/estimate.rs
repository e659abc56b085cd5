//! The maximum-likelihood CMDP of sampled trajectories, when rewards and costs are known.

use coptidice_core::{Cmdp, CmdpError, CmdpParts, StateId};

use crate::counts::Counts;

/// `T̂(s'|s,a) = n(s,a,s')/n(s,a)`; pairs never seen lead to `unseen`. Reward, costs, `p0` and discount are those of
/// `truth`, as in the paper's experiments.
///
/// # Errors
/// If the counts have another shape than `truth`, or `unseen` is no state.
pub fn estimated_model(truth: &Cmdp, counts: &Counts, unseen: StateId) -> Result<Cmdp, CmdpError> {
    if counts.states() != truth.states() || counts.actions() != truth.actions() {
        let found = counts.states() * counts.actions();
        return Err(CmdpError::Shape { what: "counts", expected: truth.pairs(), found });
    }
    Cmdp::new(CmdpParts {
        transitions: counts.maximum_likelihood(unseen)?,
        episode_end: truth.episode_end(),
        reward: truth.reward().to_vec(),
        costs: truth.costs().to_vec(),
        initial: truth.initial().to_vec(),
        gamma: truth.gamma(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::RandomCmdpConfig;

    #[test]
    fn estimate_is_the_table_of_frequencies() {
        let drawn = RandomCmdpConfig::default().draw(0, 0).unwrap();
        let steps = [(0, 1, 7), (0, 1, 7), (0, 1, 7), (0, 1, 3), (0, 2, 9)];
        let counts = Counts::from_steps(50, 4, steps).unwrap();
        let m = estimated_model(&drawn.cmdp, &counts, drawn.absorbing).unwrap();
        assert_eq!(m.row(1), (&[3, 7][..], &[0.25, 0.75][..]));
        assert_eq!(m.row(0), (&[49][..], &[1.0][..]), "unseen pairs lead to the absorbing state");
        assert_eq!((m.reward(), m.costs()), (drawn.cmdp.reward(), drawn.cmdp.costs()));
        assert!(estimated_model(&m, &Counts::from_steps(2, 4, []).unwrap(), drawn.absorbing).is_err());
    }
}
