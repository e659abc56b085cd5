//! What a solver reports beside its answer: an outcome, and the figures that prove it.

use serde::{Deserialize, Serialize};

/// How a solve ended. Almost is never solved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every residual is below the solver's tolerance.
    Solved,
    /// Progress stopped above the tolerance, but within a thousand times it: rounding, not iterations, is the limit.
    AlmostSolved,
    /// No policy in the data's support meets the limits.
    Infeasible,
    /// Policies in the data's support meet the limits by the estimate, but none by the upper bound on its cost.
    BoundOverLimit,
    /// The iteration limit came first.
    IterationLimit,
    /// The program was solved, but the policy read off it, valued anew, does not keep a limit: as where the estimated
    /// CMDP lets a policy avoid the end of its episodes for ever.
    Unconfirmed,
}

impl Outcome {
    /// Whether the answer can be used as it stands.
    #[must_use]
    pub fn is_solved(self) -> bool {
        self == Outcome::Solved
    }

    /// Whether there is an answer, if perhaps a less exact one than was asked for.
    #[must_use]
    pub fn is_usable(self) -> bool {
        matches!(self, Outcome::Solved | Outcome::AlmostSolved)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Outcome::Solved => "solved",
            Outcome::AlmostSolved => "almost solved",
            Outcome::Infeasible => "infeasible",
            Outcome::BoundOverLimit => "bound over the limit",
            Outcome::IterationLimit => "iteration limit",
            Outcome::Unconfirmed => "not confirmed",
        })
    }
}

/// Figures from which optimality can be checked without trusting the solver.
///
/// Weak duality: `dual_objective` bounds every feasible objective from above, so
/// `dual_objective − objective` is how much better any other occupancy could be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Objective of the returned occupancy, reward units per step (less the divergence term).
    pub objective: f64,
    /// Value of the dual at the returned multipliers, same units.
    pub dual_objective: f64,
    /// Largest violation of the Bellman flow (`eq:lp_flow_constraint`), in occupancy.
    pub flow_residual: f64,
    /// `Σ d(s,a) = E_{d^D}[w]`; one, up to the flow residual, unless episodes end by absorption.
    pub expected_ratio: f64,
    /// Largest excess of a cost (or its bound) over its limit, cost units per step; never negative.
    pub limit_excess: f64,
    /// Largest `λ_k·|limit_k − cost_k|`, reward units per step.
    pub complementarity: f64,
    /// Newton steps, pivots or policy improvements taken.
    pub iterations: usize,
}

impl Certificate {
    /// `|dual_objective − objective|`.
    #[must_use]
    pub fn duality_gap(&self) -> f64 {
        (self.dual_objective - self.objective).abs()
    }

    /// The largest of the residuals above.
    #[must_use]
    pub fn worst(&self) -> f64 {
        self.duality_gap().max(self.flow_residual).max(self.limit_excess).max(self.complementarity)
    }
}
