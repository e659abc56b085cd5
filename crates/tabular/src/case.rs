//! One stored case: a true CMDP, the counts of its logs and a known behaviour policy, solved and evaluated.
//!
//! The file is JSON, gzip-compressed or not. Read are `num_states`, `num_actions`, `gamma`, `initial_state`,
//! `absorbing_state`, `cost_threshold`, `alpha`, `epsilon`, `true_transition` (rows `[s,a,s',p]`), `reward` and
//! `cost` (`[S][A]`), `mle_counts` (rows `[s,a,s',n]`), and `d_b` (`[S*A]`) or else `pi_b.policy` (`[S][A]`).
//!
//! The conventions of the paper's own program are followed: pairs never seen lead to the absorbing state, the
//! estimated CMDP has the true rewards and costs, `d^D` is the occupancy of the known behaviour on the estimated
//! CMDP plus 1e-6 a pair, the samples' measure is `d^D·T̂ + 1e-10` over all triples, `w ≥ 1e-10`, and policies are
//! `∝ d + 1e-10`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use coptidice_core::{Cmdp, CmdpError, CmdpParts, Divergence, EpisodeEnd, Policy, StateId, Transitions};
use serde::{Deserialize, Serialize};

use crate::counts::Counts;
use crate::dice::{self, BoundProblem, DiceError, Effort, Problem, Samples};
use crate::evaluation::Evaluator;
use crate::lp;
use crate::outcome::Outcome;

/// Added to every pair of `d^D` before normalisation.
pub const OCCUPANCY_FLOOR: f64 = 1e-6;
/// Added to every triple of the samples' measure.
pub const SAMPLE_FLOOR: f64 = 1e-10;
/// Smallest `w`, and what is added to every pair's mass when a policy is read off.
pub const POLICY_FLOOR: f64 = 1e-10;
/// Largest file that is read, compressed or not.
const SIZE_LIMIT: u64 = 1 << 30;

/// Which program solves the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaseAlgorithm {
    /// Linear program on the estimated CMDP.
    Basic,
    /// COptiDICE without the cost bound.
    Vanilla,
    /// COptiDICE with the cost bound.
    Conservative,
}

impl std::str::FromStr for CaseAlgorithm {
    type Err = CaseError;

    fn from_str(name: &str) -> Result<Self, CaseError> {
        match name {
            "basic" => Ok(CaseAlgorithm::Basic),
            "vanilla" => Ok(CaseAlgorithm::Vanilla),
            "conservative" => Ok(CaseAlgorithm::Conservative),
            other => Err(CaseError::Algorithm(other.to_owned())),
        }
    }
}

/// What is reported of a solved case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// How the solve ended.
    pub outcome: Outcome,
    /// `π`, `[S][A]`.
    pub policy: Vec<Vec<f64>>,
    /// Cost multiplier.
    pub lambda: f64,
    /// Temperature of the bound; zero where there is none.
    pub tau: f64,
    /// The bound that is held to the limit; without a bound, the estimated cost itself.
    pub cost_upper_bound: f64,
    /// `w`, `[S*A]`, clipped as it enters the bound.
    pub w: Vec<f64>,
    /// `V_R` of the policy on the true CMDP.
    pub true_reward: f64,
    /// `V_C` of the policy on the true CMDP.
    pub true_cost: f64,
    /// Reward on the estimated CMDP: the optimal value of the linear program, or `E_d[R]`.
    pub estimated_reward: f64,
    /// Cost on the estimated CMDP, `E_d[C]`.
    pub estimated_cost: f64,
    /// Wall time of the solve alone, seconds.
    pub seconds: f64,
}

/// A case that cannot be read or posed.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is larger than what is read.
    #[error("{} is larger than 1 GiB uncompressed; a case file is a few hundred kilobytes", .0.display())]
    TooLarge(PathBuf),
    /// Not the expected JSON.
    #[error("{} is no case file: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// The content cannot be written.
    #[error("cannot write a case: {0}")]
    Write(serde_json::Error),
    /// A row of a sparse table whose indices are not whole numbers.
    #[error("{table}, row {row}: {value} is not an index")]
    NotAnIndex {
        /// Which table.
        table: &'static str,
        /// Row, from 0.
        row: usize,
        /// Value found.
        value: f64,
    },
    /// A table of another shape than the sizes say.
    #[error("{table} has {found} {what} where num_states and num_actions ask for {expected}")]
    Shape {
        /// Which table.
        table: &'static str,
        /// Rows, or numbers in some row.
        what: &'static str,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A `d_b` that is no distribution over pairs.
    #[error("d_b {why}; it is the share of the data on each pair: numbers of at least zero that sum to one")]
    DataOccupancy {
        /// What is wrong with it.
        why: String,
    },
    /// Neither `d_b` nor `pi_b` is given.
    #[error("the case gives neither d_b nor pi_b.policy; one of them is needed for the data occupancy")]
    NoBehaviour,
    /// An unknown algorithm name.
    #[error("unknown algorithm {0:?}; use basic, vanilla or conservative")]
    Algorithm(String),
    /// The CMDP is defective.
    #[error(transparent)]
    Cmdp(#[from] CmdpError),
    /// The program is defective.
    #[error(transparent)]
    Dice(#[from] DiceError),
}

#[derive(Serialize, Deserialize)]
struct Raw {
    num_states: usize,
    num_actions: usize,
    gamma: f64,
    initial_state: usize,
    absorbing_state: u32,
    cost_threshold: f64,
    alpha: f64,
    epsilon: f64,
    true_transition: Vec<[f64; 4]>,
    reward: Vec<Vec<f64>>,
    cost: Vec<Vec<f64>>,
    mle_counts: Vec<[f64; 4]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    d_b: Option<Vec<f64>>,
    pi_b: Option<RawPolicy>,
}

#[derive(Serialize, Deserialize)]
struct RawPolicy {
    policy: Vec<Vec<f64>>,
}

/// What a case file is written from.
#[derive(Clone, Copy, Debug)]
pub struct NewCase<'a> {
    /// The true CMDP, with one cost and one state to start from.
    pub truth: &'a Cmdp,
    /// Where every episode starts.
    pub initial_state: StateId,
    /// Where pairs never seen lead.
    pub absorbing_state: StateId,
    /// The logs.
    pub counts: &'a Counts,
    /// The policy that made them.
    pub behaviour: &'a Policy,
    /// Cost limit per step.
    pub limit: f64,
    /// Weight of the divergence.
    pub alpha: f64,
    /// KL radius of the bound.
    pub epsilon: f64,
}

impl NewCase<'_> {
    /// The file's content: JSON, compressed by gzip.
    ///
    /// # Errors
    /// [`CmdpError::Shape`] if the CMDP has another number of costs than one.
    pub fn to_gzip(&self) -> Result<Vec<u8>, CaseError> {
        let (m, actions) = (self.truth, self.truth.actions());
        if m.cost_count() != 1 {
            return Err(CmdpError::Shape { what: "costs", expected: 1, found: m.cost_count() }.into());
        }
        let row = |pair: usize, next: u32, value: f64| {
            [(pair / actions) as f64, (pair % actions) as f64, f64::from(next), value]
        };
        let table = |x: &[f64]| x.chunks(actions).map(<[f64]>::to_vec).collect::<Vec<_>>();
        let mut true_transition = Vec::with_capacity(m.transitions().stored());
        for pair in 0..m.pairs() {
            let (next, probability) = m.row(pair);
            true_transition.extend(next.iter().zip(probability).map(|(&t, &p)| row(pair, t, p)));
        }
        let raw = Raw {
            num_states: m.states(),
            num_actions: actions,
            gamma: m.gamma(),
            initial_state: self.initial_state.index(),
            absorbing_state: self.absorbing_state.0,
            cost_threshold: self.limit,
            alpha: self.alpha,
            epsilon: self.epsilon,
            true_transition,
            reward: table(m.reward()),
            cost: table(m.cost(0)),
            mle_counts: self.counts.entries().iter().map(|&(pair, t, n)| row(pair as usize, t, n)).collect(),
            d_b: None,
            pi_b: Some(RawPolicy { policy: table(self.behaviour.probabilities()) }),
        };
        // Level 6 and no time stamp: the same case gives the same bytes.
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        serde_json::to_writer(&mut encoder, &raw).map_err(CaseError::Write)?;
        encoder.finish().map_err(|e| CaseError::Write(serde_json::Error::io(e)))
    }
}

/// A case, ready to be solved.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The true CMDP.
    pub truth: Cmdp,
    /// The CMDP estimated from the counts, with true rewards and costs.
    pub estimate: Cmdp,
    /// `d^D`, `[S*A]`.
    pub data_occupancy: Vec<f64>,
    /// Cost limit per step.
    pub limit: f64,
    /// Weight of the divergence.
    pub alpha: f64,
    /// KL radius of the bound.
    pub epsilon: f64,
    /// The policy that made the logs, where the file has it.
    pub behaviour: Option<Policy>,
}

impl Case {
    /// Reads a case file.
    ///
    /// # Errors
    /// [`CaseError`], with the file and the place in it.
    pub fn read(path: &Path) -> Result<Self, CaseError> {
        let failed = |source| CaseError::Read { path: path.to_owned(), source };
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(SIZE_LIMIT + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut text = Vec::new();
            let decoder = flate2::read::GzDecoder::new(bytes.as_slice());
            decoder.take(SIZE_LIMIT + 1).read_to_end(&mut text).map_err(failed)?;
            bytes = text;
        }
        if bytes.len() as u64 > SIZE_LIMIT {
            return Err(CaseError::TooLarge(path.to_owned()));
        }
        let raw: Raw = serde_json::from_slice(&bytes)
            .map_err(|source| CaseError::Parse { path: path.to_owned(), source })?;
        Self::from_raw(raw)
    }

    fn from_raw(raw: Raw) -> Result<Self, CaseError> {
        let (states, actions) = (raw.num_states, raw.num_actions);
        // Before anything is made in these sizes: the tables of the file bound them.
        check_table("reward", &raw.reward, states, actions)?;
        check_table("cost", &raw.cost, states, actions)?;
        if let Some(behaviour) = &raw.pi_b {
            check_table("pi_b.policy", &behaviour.policy, states, actions)?;
        }
        if let Some(d) = &raw.d_b {
            check_distribution(d, states * actions)?;
        }
        let triples = indexed("true_transition", &raw.true_transition)?;
        let steps = indexed("mle_counts", &raw.mle_counts)?;
        let mut initial = vec![0.0; states];
        match initial.get_mut(raw.initial_state) {
            Some(p) => *p = 1.0,
            None => {
                return Err(CmdpError::Shape {
                    what: "initial_state",
                    expected: states,
                    found: raw.initial_state,
                }
                .into());
            }
        }
        let parts = |transitions| CmdpParts {
            transitions,
            episode_end: EpisodeEnd::Absorb,
            reward: raw.reward.concat(),
            costs: vec![raw.cost.concat()],
            initial: initial.clone(),
            gamma: raw.gamma,
        };
        let rows = triples.iter().map(|&(s, a, t, p)| (s as usize, a as usize, t as usize, p));
        let truth = Cmdp::new(parts(Transitions::from_triples(states, actions, rows)?))?;
        let counts = Counts::from_weighted(states, actions, steps)?;
        let estimate = Cmdp::new(parts(counts.maximum_likelihood(StateId(raw.absorbing_state))?))?;
        let behaviour = raw.pi_b.map(|p| Policy::new(states, actions, p.policy.concat())).transpose()?;
        let data_occupancy = match (raw.d_b, &behaviour) {
            (Some(d), _) => d,
            (None, Some(policy)) => {
                known_behaviour_occupancy(&mut Evaluator::new(states), &estimate, policy)?
            }
            (None, None) => return Err(CaseError::NoBehaviour),
        };
        let (limit, alpha, epsilon) = (raw.cost_threshold, raw.alpha, raw.epsilon);
        Ok(Self { truth, estimate, data_occupancy, limit, alpha, epsilon, behaviour })
    }

    /// Solves the case and evaluates the policy on the true CMDP.
    ///
    /// # Errors
    /// [`CaseError`] if the program is defective (`alpha` not positive, and so on).
    pub fn solve(&self, algorithm: CaseAlgorithm) -> Result<CaseResult, CaseError> {
        let started = std::time::Instant::now();
        let uniform = Policy::uniform(self.estimate.states(), self.estimate.actions())?;
        let limits = [self.limit];
        let (outcome, occupancy, mut w, lambda, tau, bound);
        if algorithm == CaseAlgorithm::Basic {
            let solution = lp::solve(&self.estimate, &limits)?;
            let ratio = solution.occupancy.iter().zip(&self.data_occupancy);
            w = ratio.map(|(&d, &data)| if data > 0.0 { d / data } else { 0.0 }).collect::<Vec<f64>>();
            (outcome, lambda, tau, bound) = (solution.outcome, solution.lambda[0], 0.0, solution.costs[0]);
            occupancy = solution.occupancy;
        } else {
            let problem = Problem {
                model: &self.estimate,
                data_occupancy: &self.data_occupancy,
                limits: &limits,
                divergence: Divergence::Chi2,
                alpha: self.alpha,
            };
            let solution = if algorithm == CaseAlgorithm::Vanilla {
                dice::coptidice_naive(&problem, None, Effort::default())?
            } else {
                let samples = Samples::with_floor(&self.estimate, &self.data_occupancy, SAMPLE_FLOOR)?;
                let bound = BoundProblem {
                    samples: &samples,
                    epsilon: self.epsilon,
                    weight_floor: POLICY_FLOOR,
                    costs: self.estimate.costs(),
                    last_step_credits: &[0.0],
                };
                dice::coptidice(&problem, &bound, None, Effort::default())?
            };
            w = solution.w;
            (outcome, lambda) = (solution.outcome, solution.lambda[0]);
            let first = solution.bounds.first();
            (tau, bound) = first.map_or((0.0, solution.costs[0]), |b| (b.tau, b.value));
            occupancy = solution.occupancy;
        }
        let mean = |table: &[f64]| occupancy.iter().zip(table).map(|(&d, &x)| d * x).sum::<f64>();
        let (estimated_reward, estimated_cost) = (mean(self.estimate.reward()), mean(self.estimate.cost(0)));
        for x in &mut w {
            *x = x.max(POLICY_FLOOR);
        }
        // The linear program's occupancy may lie where the data have none.
        let mass: Vec<f64> = if algorithm == CaseAlgorithm::Basic {
            occupancy
        } else {
            w.iter().zip(&self.data_occupancy).map(|(&w, &d)| w * d).collect()
        };
        let clipped: Vec<f64> = mass.iter().map(|x| x + POLICY_FLOOR).collect();
        let policy = Policy::from_mass(&uniform, &clipped)?;
        let seconds = started.elapsed().as_secs_f64();
        let evaluation = Evaluator::new(self.truth.states()).evaluate(&self.truth, &policy)?;
        Ok(CaseResult {
            outcome,
            policy: (0..policy.states()).map(|s| policy.row(s).to_vec()).collect(),
            lambda,
            tau,
            cost_upper_bound: bound,
            w,
            true_reward: evaluation.reward,
            true_cost: evaluation.costs[0],
            estimated_reward,
            estimated_cost,
            seconds,
        })
    }
}

/// Reads and solves a case file.
///
/// # Errors
/// As [`Case::read`] and [`Case::solve`].
pub fn solve(path: &Path, algorithm: CaseAlgorithm) -> Result<CaseResult, CaseError> {
    Case::read(path)?.solve(algorithm)
}

/// `d^D` when the behaviour is known: its occupancy on the estimated CMDP, plus [`OCCUPANCY_FLOOR`], normalised.
///
/// # Errors
/// [`CmdpError::Shape`] if shapes differ.
pub fn known_behaviour_occupancy(
    evaluator: &mut Evaluator,
    estimate: &Cmdp,
    behaviour: &Policy,
) -> Result<Vec<f64>, CmdpError> {
    let mut d = evaluator.evaluate(estimate, behaviour)?.occupancy;
    let mut total = 0.0;
    for x in &mut d {
        *x += OCCUPANCY_FLOOR;
        total += *x;
    }
    for x in &mut d {
        *x /= total;
    }
    Ok(d)
}

fn check_table(
    table: &'static str,
    rows: &[Vec<f64>],
    states: usize,
    actions: usize,
) -> Result<(), CaseError> {
    if rows.len() != states {
        return Err(CaseError::Shape { table, what: "rows", expected: states, found: rows.len() });
    }
    match rows.iter().find(|row| row.len() != actions) {
        Some(row) => {
            Err(CaseError::Shape { table, what: "numbers in a row", expected: actions, found: row.len() })
        }
        None => Ok(()),
    }
}

/// How far the sum of `d_b` may be from one: six digits were written.
const DISTRIBUTION_TOLERANCE: f64 = 1e-4;

fn check_distribution(d: &[f64], pairs: usize) -> Result<(), CaseError> {
    if d.len() != pairs {
        return Err(CaseError::Shape { table: "d_b", what: "numbers", expected: pairs, found: d.len() });
    }
    let refuse = |why: String| Err(CaseError::DataOccupancy { why });
    if let Some((pair, x)) = d.iter().enumerate().find(|(_, x)| !(x.is_finite() && **x >= 0.0)) {
        return refuse(format!("holds {x} at pair {pair}"));
    }
    let sum: f64 = d.iter().sum();
    if (sum - 1.0).abs() > DISTRIBUTION_TOLERANCE {
        return refuse(format!("sums to {sum}"));
    }
    Ok(())
}

/// Rows `[i, j, k, value]` with whole `i`, `j`, `k`.
fn indexed(table: &'static str, rows: &[[f64; 4]]) -> Result<Vec<(u32, u32, u32, f64)>, CaseError> {
    let index = |row: usize, value: f64| {
        let whole = value >= 0.0 && value <= f64::from(u32::MAX) && value.fract() == 0.0;
        if whole { Ok(value as u32) } else { Err(CaseError::NotAnIndex { table, row, value }) }
    };
    let convert =
        |(row, r): (usize, &[f64; 4])| Ok((index(row, r[0])?, index(row, r[1])?, index(row, r[2])?, r[3]));
    rows.iter().enumerate().map(convert).collect()
}
