//! Vocabulary shared by every crate of `coptidice`. No I/O happens here.
//!
//! # The problem
//!
//! A constrained Markov decision process (CMDP) has states `s`, actions `a`, transitions `T(s'|s,a)`, a reward
//! `R(s,a)`, costs `C_k(s,a)` for `k = 1..K`, an initial distribution `p0` and a discount `gamma` in `(0, 1]`.
//! Only logged transitions are available; their distribution over `(s,a)` is the *data occupancy* `d^D`.
//! The task is to find the policy with the largest reward whose costs stay under their limits *when deployed*.
//! The method is that of "COptiDICE: Offline Constrained Reinforcement Learning via Stationary Distribution
//! Correction Estimation" (ICLR 2022), called *the paper* throughout; documentation cites its equations by label,
//! as in `eq:min_objective`.
//!
//! # Glossary
//!
//! Each name has one meaning in the whole workspace.
//!
//! | name | symbol | shape | meaning |
//! |---|---|---|---|
//! | `nu` | ν | `[S]` or network | multiplier of the Bellman flow constraint (`eq:lp_flow_constraint`) |
//! | `lambda` | λ | `[K]`, ≥ 0 | cost multipliers |
//! | `w` | w | `[S*A]` or per sample | occupancy ratio `d^π(s,a) / d^D(s,a)` (`eq:w_closed_form_solution`) |
//! | `mu` | μ | scalar | normalisation multiplier, used when `gamma = 1` (`eq:lp_normalization_gamma1`) |
//! | `chi` | χ | `[S,K]` or network | potential of the cost bound (`eq:cost_ub_min_objective`) |
//! | `tau` | τ | `[K]`, ≥ 0 | temperature of the cost bound; never a target-network rate |
//! | `target_rate` | | scalar | rate at which a target network follows its source |
//! | `alpha` | α | scalar > 0 | weight of the divergence `D_f(d ‖ d^D)` |
//! | `epsilon` | ε | scalar ≥ 0 | radius (KL) of the cost bound |
//! | `gamma` | γ | scalar in (0,1] | discount |
//! | `advantage` | e(s,a) | per sample | `R − λᵀC + γ ν(s') − ν(s)`, less `mu` when `gamma = 1` |
//! | `data_occupancy` | d^D | `[S*A]`, sums to 1 | distribution of the logged `(s,a)` |
//! | `policy_occupancy` | d^π | `[S*A]`, sums to 1 | normalised discounted occupancy of a policy |
//!
//! # Units
//!
//! Occupancies are normalised, so every expectation `E_d[·]` is an average *per step*. A limit given per episode is
//! converted exactly once, by [`limits::CostLimit`], which carries its unit in its type.

pub mod cmdp;
pub mod divergence;
pub mod ids;
pub mod limits;
pub mod occupancy;
pub mod policy;
pub mod rng;
pub mod statistics;

pub use cmdp::{Cmdp, CmdpError, CmdpParts, EpisodeEnd, Transitions};
pub use divergence::Divergence;
pub use ids::{ActionId, StateId};
pub use limits::{CostConstraint, CostLimit, EpisodeHorizon, LimitError, LimitUnit, ProcessReading};
pub use occupancy::Occupancy;
pub use policy::Policy;
