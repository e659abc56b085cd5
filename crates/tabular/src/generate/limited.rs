//! Data-collection policies with limited action support (the paper's algorithm 3).
//!
//! Only the first actions `Ã` are used. `π_D = 0.9·π̃* + 0.1·π̃_unif`, where `π̃*` is optimal among policies on `Ã` for
//! the limit `ĉ_D·ρ`, and `ρ` is the first of `1, .99, .99², …` at which `V_C(π_D) ≤ ĉ_D`.
//!
//! Instead of pricing the other actions at infinity, the CMDP of the actions in `Ã` is formed and solved. `ρ` is found
//! by doubling and halving: the cost of `π̃*` falls with `ρ`, and with it that of the mixture, in which the uniform
//! share merely adds what it costs around the paths of `π̃*`. Where the sequence were not monotone, a later element
//! would be found.

use coptidice_core::{Cmdp, CmdpParts, Policy, Transitions};

use super::behaviour::Behaviour;
use super::error::GenerateError;
use crate::case::POLICY_FLOOR;
use crate::evaluation::Evaluator;
use crate::lp::LpSolver;
use crate::outcome::Outcome;

/// Share of the uniform policy.
const UNIFORM_SHARE: f64 = 0.1;
/// Factor between thresholds tried.
const SHRINK: f64 = 0.99;
/// Thresholds tried: the last is `ĉ_D·.99^2000 = 2e-9·ĉ_D`.
const THRESHOLDS: usize = 2000;

/// The policy of algorithm 3 on the first `support` actions of a CMDP with one cost, at most `limit` per step.
///
/// # Errors
/// If there are not so many actions, or no policy on them, mixed with the uniform one, meets the limit.
pub fn limited_support_behaviour(m: &Cmdp, support: usize, limit: f64) -> Result<Behaviour, GenerateError> {
    if support == 0 || support > m.actions() {
        return Err(GenerateError::Setting { field: "support", why: "give between one and all actions" });
    }
    let search = Search { whole: m, part: restricted(m, support)?, support, limit };
    let first = search.at(0)?;
    if first.cost <= limit {
        return Ok(first);
    }
    // Cost above the limit at `low`, within it at `high`. `high` is found by doubling: thresholds far below what is
    // wanted are next to zero, where a linear program is at the mercy of rounding.
    let (mut low, mut high) = (0, 1);
    let mut found = search.at(high)?;
    while found.cost > limit {
        if high >= THRESHOLDS {
            return Err(GenerateError::Behaviour { limit, outcome: Outcome::Infeasible });
        }
        (low, high) = (high, (2 * high).min(THRESHOLDS));
        found = search.at(high)?;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let candidate = search.at(middle)?;
        if candidate.cost <= limit {
            (high, found) = (middle, candidate);
        } else {
            low = middle;
        }
    }
    Ok(found)
}

struct Search<'a> {
    whole: &'a Cmdp,
    part: Cmdp,
    support: usize,
    limit: f64,
}

impl Search<'_> {
    /// `π_D` for `ρ = .99^k`.
    fn at(&self, k: usize) -> Result<Behaviour, GenerateError> {
        let threshold = self.limit * SHRINK.powi(k as i32);
        let solution = LpSolver::new(self.part.states()).solve(&self.part, &[threshold])?;
        if solution.outcome != Outcome::Solved {
            return Err(GenerateError::Behaviour { limit: threshold, outcome: solution.outcome });
        }
        let uniform = Policy::uniform(self.part.states(), self.support)?;
        let mixed = solution.policy(&uniform, POLICY_FLOOR)?.mixed(&uniform, UNIFORM_SHARE)?;
        let policy = self.widened(&mixed)?;
        let found = Evaluator::new(self.whole.states()).evaluate(self.whole, &policy)?;
        Ok(Behaviour { policy, reward: found.reward, cost: found.costs[0] })
    }

    /// The policy on all actions of the CMDP.
    fn widened(&self, policy: &Policy) -> Result<Policy, GenerateError> {
        let actions = self.whole.actions();
        let mut probabilities = vec![0.0; self.whole.pairs()];
        for (s, row) in policy.probabilities().chunks(self.support).enumerate() {
            probabilities[s * actions..s * actions + self.support].copy_from_slice(row);
        }
        Ok(Policy::new(self.whole.states(), actions, probabilities)?)
    }
}

/// The CMDP with only the first `support` actions.
fn restricted(m: &Cmdp, support: usize) -> Result<Cmdp, GenerateError> {
    let pairs = || (0..m.states()).flat_map(|s| (0..support).map(move |a| (s, a)));
    let table = |x: &[f64]| pairs().map(|(s, a)| x[s * m.actions() + a]).collect::<Vec<f64>>();
    let mut triples = Vec::new();
    for (s, a) in pairs() {
        let (next, probability) = m.row(s * m.actions() + a);
        triples.extend(next.iter().zip(probability).map(|(&t, &p)| (s, a, t as usize, p)));
    }
    let end = pairs().map(|(s, a)| m.transitions().end_probability(s * m.actions() + a)).collect();
    Ok(Cmdp::new(CmdpParts {
        transitions: Transitions::from_triples(m.states(), support, triples)?.with_end_probability(end)?,
        episode_end: m.episode_end(),
        reward: table(m.reward()),
        costs: m.costs().iter().map(|c| table(c)).collect(),
        initial: m.initial().to_vec(),
        gamma: m.gamma(),
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::RandomCmdpConfig;

    /// The definition, step by step.
    #[test]
    fn the_first_threshold_is_found() {
        for index in 0..4 {
            let m = RandomCmdpConfig::default().draw(21, index).unwrap().cmdp;
            for support in 2..=3 {
                let found = limited_support_behaviour(&m, support, 0.09).unwrap();
                let search =
                    Search { whole: &m, part: restricted(&m, support).unwrap(), support, limit: 0.09 };
                let walked = (0..THRESHOLDS).map(|k| search.at(k).unwrap()).find(|b| b.cost <= 0.09).unwrap();
                assert_eq!(found, walked, "run {index}, {support} actions");
                assert!(
                    found.cost > 0.085,
                    "one percent below the limit at the most, and a little: {}",
                    found.cost
                );
                for row in found.policy.probabilities().chunks(4) {
                    assert!(row[..support].iter().all(|&p| p >= 0.1 / support as f64 - 1e-12));
                    assert!(row[support..].iter().all(|&p| p == 0.0));
                }
            }
        }
    }

    #[test]
    fn the_free_action_alone_costs_nothing() {
        let m = RandomCmdpConfig::default().draw(21, 9).unwrap().cmdp;
        let found = limited_support_behaviour(&m, 1, 0.09).unwrap();
        assert_eq!(found.cost, 0.0);
        assert!(found.policy.probabilities().chunks(4).all(|row| row == [1.0, 0.0, 0.0, 0.0]));
        assert!(
            limited_support_behaviour(&m, 0, 0.09).is_err()
                && limited_support_behaviour(&m, 5, 0.09).is_err()
        );
    }
}
