//! Cost limits and their units.
//!
//! With a normalised occupancy `d`, `E_d[c]` is an average per step. A user's limit is either that
//! ([`CostLimit::PerStep`]) or a total over an episode ([`CostLimit::PerEpisode`]); which one it is must be said.
//! Comparing one with the other leaves a constraint that is loose by a factor of up to `1/(1−γ)` and never binds.
//!
//! A limit becomes a constraint on `d` once it is known how the logged process is read ([`ProcessReading`]):
//!
//! | limit | continuing | terminating | restart chain, `γ = 1` |
//! |---|---|---|---|
//! | per step `l` | `E_d[c] ≤ l` | `E_d[c − l] ≤ 0` | `E_d[c] ≤ l` |
//! | per episode `L`, all episodes `T` steps | `E_d[c] ≤ L/T` | `E_d[c − L/T] ≤ 0` | `E_d[c] ≤ L/T` |
//! | per episode `L`, varying lengths | – | – | `E_d[c − L·1{last step}] ≤ 0` |
//!
//! Where the process ends under a discount, `d` lacks the mass that would come after, and `E_d[c]` is less than an average
//! per step: of episodes of `T` steps by the factor `1 − γ^T`. What a step costs on average is `E_d[c] / E_d[1]`, and that
//! it is at most `l` is linear in `d` again. Compared with `l` itself, `E_d[c]` would let a step cost up to `l/(1 − γ^T)`.
//!
//! The last line is exact: in the chain where each episode's last step leads back to `p0`, the renewal–reward theorem
//! gives mean cost of an episode = `E_d[c] / E_d[1{last step}]`.

use serde::{Deserialize, Serialize};

/// The unit in which a limit is given on a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitUnit {
    /// Average cost of one step.
    Step,
    /// Undiscounted total cost of one episode.
    Episode,
}

impl std::fmt::Display for LimitUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LimitUnit::Step => "step",
            LimitUnit::Episode => "episode",
        })
    }
}

/// How long the episodes are to which a per-episode limit refers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EpisodeHorizon {
    /// Every episode lasts this many steps.
    Fixed(f64),
    /// Lengths vary with the policy; only the restart chain gives an exact constraint.
    Varying {
        /// Mean logged length in steps, for printing the limit's other reading. Not used in the constraint.
        logged_mean: f64,
    },
}

impl EpisodeHorizon {
    /// The horizon that logged lengths (steps) show: fixed where all are equal and none `ends` in a terminal. Where
    /// the process ends by itself another policy may end it sooner, later or never, however equal the logged lengths.
    /// Of no length it is 0, which no limit per episode takes.
    #[must_use]
    pub fn of_lengths(lengths: &[usize], ends: bool) -> Self {
        let mean = lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64;
        if !ends && lengths.windows(2).all(|pair| pair[0] == pair[1]) {
            EpisodeHorizon::Fixed(mean)
        } else {
            EpisodeHorizon::Varying { logged_mean: mean }
        }
    }

    /// The (mean) number of steps of an episode.
    #[must_use]
    pub fn mean_steps(self) -> f64 {
        match self {
            EpisodeHorizon::Fixed(steps) | EpisodeHorizon::Varying { logged_mean: steps } => steps,
        }
    }
}

/// A cost limit with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "unit")]
pub enum CostLimit {
    /// Average cost per step.
    PerStep {
        /// The limit, cost units per step.
        limit: f64,
    },
    /// Undiscounted total per episode.
    PerEpisode {
        /// The limit, cost units per episode.
        limit: f64,
        /// The length of an episode.
        horizon: EpisodeHorizon,
    },
}

/// How the logged process is read when occupancies are formed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reading")]
pub enum ProcessReading {
    /// Discounted, never ends: a time-out only cuts the log, and bootstrapping goes through it.
    Continuing {
        /// Discount in (0, 1).
        gamma: f64,
    },
    /// Discounted, and episodes truly end, by terminals: what comes after has no mass.
    Terminating {
        /// Discount in (0, 1].
        gamma: f64,
    },
    /// Undiscounted: the last step of an episode leads back to the initial distribution.
    RestartChain,
}

/// A linear constraint on an occupancy: `E_d[cost − step_credit − last_step_credit·1{last step}] ≤ limit`, per step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostConstraint {
    /// Right-hand side, cost units per step.
    pub limit: f64,
    /// Credit subtracted from the cost of every step, where the process ends under a discount: the limit on a step.
    pub step_credit: Option<f64>,
    /// Credit subtracted from the cost of every last step of an episode; zero unless the limit is per episode
    /// and lengths vary.
    pub last_step_credit: f64,
}

impl CostConstraint {
    /// What is subtracted from the cost of a step, cost units.
    #[must_use]
    pub fn credit(&self, last_step: bool) -> f64 {
        self.step_credit.unwrap_or(0.0) + if last_step { self.last_step_credit } else { 0.0 }
    }

    /// Whether no occupancy over steps of which none costs less than `least` meets the constraint, as far as that
    /// bound shows. `loses_mass`: the process ends under a discount, so that occupancies lack the mass after the end.
    ///
    /// Logs hold costs in single precision: what lies within its rounding of the limit is equal to it.
    #[must_use]
    pub fn out_of_reach(&self, least: f64, loses_mass: bool) -> bool {
        let above =
            |least: f64, limit: f64| least - limit > f64::from(f32::EPSILON) * least.abs().max(limit.abs());
        if let Some(credit) = self.step_credit {
            // What has ended is in neither the cost nor its credit.
            above(least, credit)
        } else if self.last_step_credit == 0.0 {
            // What has ended costs nothing.
            above(if loses_mass { least.min(0.0) } else { least }, self.limit)
        } else {
            // An episode has at least one step, and costs that are not negative add up.
            least >= 0.0 && above(least, self.last_step_credit)
        }
    }
}

/// A limit that cannot be turned into a constraint.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum LimitError {
    /// Not a finite number.
    #[error("cost limit {0} is not finite; give a finite limit, or leave it out for no constraint")]
    NotFinite(f64),
    /// A per-episode limit with lengths that are not positive.
    #[error("episode length {0} is not positive; give the limit's horizon in steps")]
    Horizon(f64),
    /// Varying lengths under a discounted reading.
    #[error(
        "a limit per episode is not a linear constraint when episode lengths vary and gamma = {gamma} < 1; \
         use gamma = 1 (restart chain), or a limit per step"
    )]
    VaryingLengths {
        /// The discount asked for.
        gamma: f64,
    },
}

impl CostLimit {
    /// Builds a limit from its command-line parts.
    ///
    /// # Errors
    /// If `limit` is not finite or the horizon is not positive.
    pub fn new(limit: f64, unit: LimitUnit, horizon: EpisodeHorizon) -> Result<Self, LimitError> {
        if !limit.is_finite() {
            return Err(LimitError::NotFinite(limit));
        }
        match unit {
            LimitUnit::Step => Ok(CostLimit::PerStep { limit }),
            LimitUnit::Episode => {
                let steps = horizon.mean_steps();
                if steps.is_finite() && steps > 0.0 {
                    Ok(CostLimit::PerEpisode { limit, horizon })
                } else {
                    Err(LimitError::Horizon(steps))
                }
            }
        }
    }

    /// The constraint on the normalised occupancy, per step (table in the module's documentation).
    ///
    /// # Errors
    /// [`LimitError::VaryingLengths`] where no exact linear constraint exists.
    pub fn constraint(self, reading: ProcessReading) -> Result<CostConstraint, LimitError> {
        let of_steps = |limit| {
            let loses_mass = matches!(reading, ProcessReading::Terminating { gamma } if gamma < 1.0);
            let constraint = CostConstraint::default();
            Ok(if loses_mass {
                CostConstraint { step_credit: Some(limit), ..constraint }
            } else {
                CostConstraint { limit, ..constraint }
            })
        };
        match self {
            CostLimit::PerStep { limit } => of_steps(limit),
            CostLimit::PerEpisode { limit, horizon: EpisodeHorizon::Fixed(steps) } => of_steps(limit / steps),
            CostLimit::PerEpisode { limit, horizon: EpisodeHorizon::Varying { .. } } => match reading {
                ProcessReading::RestartChain => {
                    Ok(CostConstraint { last_step_credit: limit, ..CostConstraint::default() })
                }
                ProcessReading::Continuing { gamma } | ProcessReading::Terminating { gamma } => {
                    Err(LimitError::VaryingLengths { gamma })
                }
            },
        }
    }

    /// The limit, cost units per [`CostLimit::unit`].
    #[must_use]
    pub fn value(&self) -> f64 {
        match *self {
            CostLimit::PerStep { limit } | CostLimit::PerEpisode { limit, .. } => limit,
        }
    }

    /// The unit that it was given in.
    #[must_use]
    pub fn unit(&self) -> LimitUnit {
        match self {
            CostLimit::PerStep { .. } => LimitUnit::Step,
            CostLimit::PerEpisode { .. } => LimitUnit::Episode,
        }
    }

    /// Whether it is on the totals of episodes whose length varies with the policy.
    #[must_use]
    pub fn is_on_varying_totals(&self) -> bool {
        matches!(self, CostLimit::PerEpisode { horizon: EpisodeHorizon::Varying { .. }, .. })
    }

    /// Both readings `(per step, per episode)` for episodes of `mean_steps`, for printing.
    #[must_use]
    pub fn both_readings(self, mean_steps: f64) -> (f64, f64) {
        match self {
            CostLimit::PerStep { limit } => (limit, limit * mean_steps),
            CostLimit::PerEpisode { limit, horizon } => (limit / horizon.mean_steps(), limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;

    const DISCOUNTED: ProcessReading = ProcessReading::Continuing { gamma: 0.99 };

    #[test]
    fn continuing_and_terminating_readings_differ_only_by_the_lost_tail() {
        let limit = CostLimit::new(100.0, LimitUnit::Episode, EpisodeHorizon::Fixed(1000.0)).unwrap();
        assert_relative_eq!(limit.constraint(DISCOUNTED).unwrap().limit, 0.1);
        // A policy that costs 0.1 in every one of 1000 steps has normalised discounted cost 0.1·(1 − γ^1000), and keeps
        // the limit just so; where only some of the episodes end by themselves it does, too.
        let ended = limit.constraint(ProcessReading::Terminating { gamma: 0.99 }).unwrap();
        for steps in [100, 1000, 100_000] {
            let discounted = |x: f64| (0..steps).map(|t| 0.01 * 0.99_f64.powi(t) * x).sum::<f64>();
            assert_relative_eq!(discounted(0.1 - ended.credit(false)), ended.limit, epsilon = 1e-15);
        }
    }

    /// A policy that costs `c` in each of its steps and ends after any number of them keeps a limit per step exactly
    /// where `c` does, whatever the discount. Held against `E_d[c]` ten steps at .99 would let it cost ten times as much.
    #[test]
    fn a_limit_per_step_is_on_the_steps_that_are_taken() {
        let gamma = 0.99_f64;
        let limit =
            CostLimit::new(0.3, LimitUnit::Step, EpisodeHorizon::Varying { logged_mean: 10.0 }).unwrap();
        let constraint = limit.constraint(ProcessReading::Terminating { gamma }).unwrap();
        for steps in [1, 10, 1000] {
            for (cost, kept) in [(0.299, true), (0.301, false)] {
                let discounted = |x: f64| (0..steps).map(|t| (1.0 - gamma) * gamma.powi(t) * x).sum::<f64>();
                let credited: f64 = discounted(cost - constraint.credit(false));
                assert_eq!(credited <= constraint.limit, kept, "{steps} steps at {cost}");
            }
        }
        assert_eq!(limit.constraint(DISCOUNTED).unwrap().limit, 0.3);
        assert_eq!(limit.constraint(ProcessReading::RestartChain).unwrap().limit, 0.3);
    }

    #[test]
    fn varying_lengths_need_the_restart_chain() {
        let limit =
            CostLimit::new(3.0, LimitUnit::Episode, EpisodeHorizon::Varying { logged_mean: 10.0 }).unwrap();
        assert_eq!(limit.constraint(DISCOUNTED), Err(LimitError::VaryingLengths { gamma: 0.99 }));
        let restart = limit.constraint(ProcessReading::RestartChain).unwrap();
        assert_eq!(restart, CostConstraint { last_step_credit: 3.0, ..CostConstraint::default() });
        assert_eq!(limit.both_readings(10.0), (0.3, 3.0));
    }

    /// Renewal–reward on two kinds of episode: half cost 1 in 1 step, half cost 9 in 4 steps; mean 5 per episode.
    #[test]
    fn restart_constraint_is_tight_exactly_at_the_episode_mean() {
        let steps_per_pair = 5.0;
        let per_step_cost = 10.0 / steps_per_pair;
        let per_step_ends = 2.0 / steps_per_pair;
        let slack = |limit: f64| {
            let c = CostLimit::new(limit, LimitUnit::Episode, EpisodeHorizon::Varying { logged_mean: 2.5 })
                .unwrap()
                .constraint(ProcessReading::RestartChain)
                .unwrap();
            c.limit - (per_step_cost - c.last_step_credit * per_step_ends)
        };
        assert_relative_eq!(slack(5.0), 0.0, epsilon = 1e-15);
        assert!(slack(4.9) < 0.0 && slack(5.1) > 0.0);
    }

    #[test]
    fn only_what_the_recording_ends_has_a_length_of_its_own() {
        assert_eq!(EpisodeHorizon::of_lengths(&[4, 4], false), EpisodeHorizon::Fixed(4.0));
        assert_eq!(EpisodeHorizon::of_lengths(&[4, 4], true), EpisodeHorizon::Varying { logged_mean: 4.0 });
        assert_eq!(EpisodeHorizon::of_lengths(&[3, 5], false), EpisodeHorizon::Varying { logged_mean: 4.0 });
    }

    #[test]
    fn nonsense_is_refused() {
        let fixed = EpisodeHorizon::Fixed(0.0);
        assert!(matches!(CostLimit::new(f64::NAN, LimitUnit::Step, fixed), Err(LimitError::NotFinite(_))));
        assert_eq!(CostLimit::new(1.0, LimitUnit::Episode, fixed), Err(LimitError::Horizon(0.0)));
        assert!(CostLimit::new(0.0, LimitUnit::Step, fixed).is_ok(), "a limit of zero is legitimate");
    }

    #[test]
    fn limits_below_every_cost_are_out_of_reach() {
        let per_step = |limit| CostConstraint { limit, ..CostConstraint::default() };
        assert!(per_step(-0.1).out_of_reach(0.0, true));
        assert!(per_step(0.1).out_of_reach(0.2, false));
        assert!(!per_step(0.1).out_of_reach(0.2, true), "ending early costs less");
        assert!(
            !per_step(0.1).out_of_reach(f64::from(0.1_f32), false),
            "0.1 in single precision is above 0.1"
        );
        assert!(per_step(0.1).out_of_reach(0.1001, false));
        assert!(!per_step(0.0).out_of_reach(0.0, false));
        let of_live_steps =
            |credit| CostConstraint { step_credit: Some(credit), ..CostConstraint::default() };
        assert!(of_live_steps(0.1).out_of_reach(0.2, true), "ending early makes no step cheaper");
        assert!(!of_live_steps(0.2).out_of_reach(0.2, true));
        assert!(of_live_steps(0.0).out_of_reach(0.2, true), "a limit of zero is as much of one");
        let per_episode = |credit| CostConstraint { last_step_credit: credit, ..CostConstraint::default() };
        assert!(per_episode(-1.0).out_of_reach(0.0, false));
        assert!(!per_episode(-1.0).out_of_reach(-0.1, false), "costs below zero add up to anything");
        assert!(!per_episode(1.0).out_of_reach(0.2, false));
    }
}
