//! Fitted Q evaluation with corrected returns.
//!
//! # Problem
//!
//! Of a fixed policy `pi`, the values `Q_j(s,a)` of the reward and of every cost solve
//!
//! ```text
//! Q_j(s,a) = x_j + discount E_{a' ~ pi(s')}[Q_j(s',a')]
//! ```
//!
//! on every logged transition `(s, a, x, s')`. Fitted Q evaluation (Le, Voloshin and Yue 2019, "Batch policy learning
//! under constraints") regresses a network on the right-hand side at its former self, round by round. Taken literally it
//! needs thousands of rounds where an episode has a thousand steps: a round carries what happens later one step back.
//! Two things cut that to dozens, and neither changes what the solution is, for at it every
//! `delta = x + discount E[Q(s',a')] - Q(s,a)` is zero:
//!
//! - **Corrected returns.** The target is `Q(s_t,a_t) + sum_{i>=t} (prod_{t<k<=i} discount_{k-1} c_k) delta_i` along the
//!   logged episode (Harutyunyan et al. 2016, "Q(lambda) with off-policy corrections"; Munos et al. 2016, "Safe and
//!   efficient off-policy reinforcement learning"). The trace `c_k` in `[0,1]` says how far the logged action `a_k` is the
//!   policy's: `pi(a_k|s_k)` for finitely many actions, which contracts for any logging policy (tree backup), and
//!   `exp(-|u(a_k) - u(pi(s_k))|^2 / (2 similarity^2))` for continuous ones.
//! - **The constant.** What mixes slowest is the mean. A number `b_j` beside the network is set before every round so
//!   that `E_w[delta_j] = 0` over the log, with the weights `w` of the caller: occupancy ratios near the policy's if there
//!   are any.
//!
//! Values lie between the sums that the least and the largest logged quantity would make for ever (discounted); what the
//! network says beyond, where the policy leaves the log, is cut there.
//!
//! # What is estimated
//!
//! That depends on the [`Process`]:
//!
//! | process | equation | estimate |
//! |---|---|---|
//! | discounted | as above | `(1 - gamma) E_{s ~ p0, a ~ pi}[Q_j(s,a)]`, the normalised value: per step, as `E_d[x]` of the dual |
//! | restart chain | `Q = x - rho + E[Q(s',a')]` | `rho`, the average per step |
//! | episode | as above, `discount` 1 until the end | `E_{s ~ p0, a ~ pi}[Q_j(s,a)]`, the total of an episode |
//!
//! Where episodes end by themselves the last is the surer one: its values are defined without `rho`. Averages per step of
//! the chain of such episodes are quotients of totals, by that of a quantity that is 1 in every step.
//!
//! # Shapes
//!
//! | symbol | shape | meaning |
//! |---|---|---|
//! | `N`, `E`, `D`, `A`, `V` | | transitions, initial states, columns of a state, dimensions (or number) of actions, quantities evaluated |
//! | states | `[N, D]` | as the network shall see them (normalised) |
//! | continuous actions | `[N, A]` | mapped so that the logged range is about `[-1, 1]` |
//! | probabilities | `[N, A]` | `pi(.|s)` of finitely many actions |
//! | values | `[N, V]` | reward and costs, in the caller's units |

use coptidice_core::rng::stream;
use coptidice_nn::{Adam, BlockSpec, Network, NetworkSpec, NnError, Pool};
use rand::RngExt as _;
use serde::{Deserialize, Serialize};

/// Rows evaluated at once.
const CHUNK: usize = 512;
/// Share of the learning rate at which the last round ends, after falling linearly.
const LAST_PACE: f64 = 0.05;
/// The network works in units of this many standard deviations of a quantity: a value sums up about as many steps.
const STEPS_PER_UNIT: f64 = 10.0;
/// The estimate is the mean over this last share of the rounds, which swing around it.
const AVERAGED_SHARE: f64 = 0.25;

/// Logged actions and the policy's, at the same states.
#[derive(Clone, Copy, Debug)]
pub struct Actions<'a> {
    /// `A`.
    pub width: usize,
    /// What was logged.
    pub logged: Logged<'a>,
    /// `[N, A]`: what the policy does there; of finitely many actions its probabilities.
    pub chosen: &'a [f32],
    /// `[N, A]`: at the next states.
    pub next: &'a [f32],
    /// `[E, A]`: at the initial states.
    pub initial: &'a [f32],
}

/// What was logged.
#[derive(Clone, Copy, Debug)]
pub enum Logged<'a> {
    /// Real vectors, `[N, A]`.
    Continuous(&'a [f32]),
    /// One of finitely many, `[N]`.
    Discrete(&'a [u32]),
}

/// A log and a policy on it. See the module for shapes.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    /// `D`.
    pub dim: usize,
    /// `V`.
    pub quantities: usize,
    /// `[N, D]`.
    pub states: &'a [f32],
    /// `[N, D]`; in the restart chain a fresh initial state after an episode's last step.
    pub next_states: &'a [f32],
    /// `[E, D]`.
    pub initial_states: &'a [f32],
    /// Actions.
    pub actions: Actions<'a>,
    /// `[N, V]`.
    pub values: &'a [f32],
    /// `[N]`: `gamma` (1 in the restart chain and in an episode) where the process goes on after the step, 0 where it ends.
    pub discounts: &'a [f32],
    /// `[N]`: whether the next row is the next step of the same episode.
    pub followed: &'a [bool],
    /// `[N]`: weights of the rows in the equation of the constant; not all zero.
    pub weights: &'a [f32],
    /// What is added up.
    pub process: Process,
}

/// Which sums of a quantity are the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Process {
    /// Discounted ones.
    Discounted {
        /// In `(0, 1)`.
        gamma: f64,
    },
    /// Undiscounted differences from the average: an episode follows another.
    RestartChain,
    /// Undiscounted ones, until the process ends by itself.
    Episode,
}

/// How to fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Rounds of regression.
    pub rounds: u32,
    /// Gradient steps in each.
    pub steps: u32,
    /// Width of the trace of continuous actions, in units of half the logged range.
    pub similarity: f64,
}

impl Settings {
    /// 30 rounds of 400 steps.
    pub const DEFAULT: Settings = Settings { rounds: 30, steps: 400, similarity: 0.3 };
}

/// What the regression itself is made of.
#[derive(Clone, Copy)]
pub struct Regression<'a> {
    /// Hidden blocks of the network.
    pub blocks: &'a [BlockSpec],
    /// Adam's learning rate at the start.
    pub learning_rate: f64,
    /// Rows of a gradient step.
    pub batch: usize,
    /// The row to draw at a uniform number in `[0, 1)`.
    pub draw: &'a (dyn Fn(f64) -> usize + Sync),
    /// Seed of parameters and batches.
    pub seed: u64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// `[V]`: per step, or of an episode; see the module.
    pub values: Vec<f64>,
    /// `[V]`: largest less smallest estimate among the rounds that `values` averages: how far it had settled.
    pub unsettled: Vec<f64>,
    /// `[V]`: root mean square of `delta` over the log at the end, in standard deviations of the quantity.
    pub residual: Vec<f64>,
    /// Mean trace: 0 where the policy does nothing that was logged.
    pub similarity: f64,
    /// `[rounds][V]`: the estimate after every round.
    pub rounds: Vec<Vec<f64>>,
}

/// A policy that cannot be evaluated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FqeError {
    /// Nothing to learn from.
    #[error("there are no transitions, no initial states, or no quantities to evaluate")]
    Empty,
    /// An array of another length than the others say.
    #[error("{array} holds {found} numbers, {expected} are needed")]
    Length {
        /// Which.
        array: &'static str,
        /// What it should hold.
        expected: usize,
        /// What it holds.
        found: usize,
    },
    /// A setting or number out of its range.
    #[error("{what} is out of range: {allowed}")]
    Range {
        /// Which.
        what: &'static str,
        /// What may be.
        allowed: &'static str,
    },
    /// A number of the problem is not finite.
    #[error("{array} holds a number that is not finite, at {index}")]
    NotFinite {
        /// Which array.
        array: &'static str,
        /// Where in it.
        index: usize,
    },
    /// The values ran away: the policy leaves the log too far for this method.
    #[error(
        "the values ran away in round {round}; the policy does what the log does not hold, or similarity is too large"
    )]
    Diverged {
        /// Counted from 1.
        round: u32,
    },
    /// The network cannot be built.
    #[error(transparent)]
    Network(#[from] NnError),
}

/// Evaluates the policy.
///
/// # Errors
/// [`FqeError`].
pub fn evaluate(
    problem: &Problem<'_>,
    settings: &Settings,
    regression: &Regression<'_>,
    pool: &Pool,
) -> Result<Estimate, FqeError> {
    check(problem, settings, regression)?;
    let mut fit = Fit::new(problem, settings, regression)?;
    for round in 0..settings.rounds {
        fit.look(pool);
        if !fit.is_sound() {
            return Err(FqeError::Diverged { round: round + 1 });
        }
        fit.set_constants();
        fit.set_targets();
        let pace = 1.0 - (1.0 - LAST_PACE) * f64::from(round) / f64::from(settings.rounds);
        fit.regress(round, pace, pool);
        fit.record(pool);
    }
    fit.look(pool);
    if !fit.is_sound() {
        return Err(FqeError::Diverged { round: settings.rounds });
    }
    Ok(fit.estimate())
}

fn check(problem: &Problem<'_>, settings: &Settings, regression: &Regression<'_>) -> Result<(), FqeError> {
    let (rows, starts) = (problem.rows(), problem.starts());
    if rows == 0 || starts == 0 || problem.quantities == 0 || problem.dim == 0 {
        return Err(FqeError::Empty);
    }
    let mut arrays = vec![
        ("states", problem.states, rows * problem.dim),
        ("next_states", problem.next_states, rows * problem.dim),
        ("initial_states", problem.initial_states, starts * problem.dim),
        ("values", problem.values, rows * problem.quantities),
        ("discounts", problem.discounts, rows),
        ("weights", problem.weights, rows),
    ];
    let Actions { width, logged, chosen, next, initial } = problem.actions;
    match logged {
        Logged::Continuous(vectors) => arrays.push(("actions.logged", vectors, rows * width)),
        Logged::Discrete(ids) => {
            if ids.len() != rows {
                return Err(FqeError::Length { array: "actions.logged", expected: rows, found: ids.len() });
            }
            if ids.iter().any(|&action| action as usize >= width) {
                return Err(FqeError::Range {
                    what: "actions.logged",
                    allowed: "numbers below the count of actions",
                });
            }
        }
    }
    arrays.extend([
        ("actions.chosen", chosen, rows * width),
        ("actions.next", next, rows * width),
        ("actions.initial", initial, starts * width),
    ]);
    for (array, values, expected) in arrays {
        if values.len() != expected {
            return Err(FqeError::Length { array, expected, found: values.len() });
        }
        if let Some(index) = values.iter().position(|x| !x.is_finite()) {
            return Err(FqeError::NotFinite { array, index });
        }
    }
    if problem.followed.len() != rows {
        return Err(FqeError::Length { array: "followed", expected: rows, found: problem.followed.len() });
    }
    let range =
        |good: bool, what, allowed| if good { Ok(()) } else { Err(FqeError::Range { what, allowed }) };
    let weights = || problem.weights.iter();
    range(weights().all(|&w| w >= 0.0) && weights().any(|&w| w > 0.0), "weights", "none below 0, not all 0")?;
    match problem.process {
        Process::Discounted { gamma } => range(gamma > 0.0 && gamma < 1.0, "gamma", "above 0, below 1")?,
        Process::RestartChain => {}
        Process::Episode => {
            range(
                problem.discounts.contains(&0.0),
                "discounts",
                "0 where an episode ends, which one has to",
            )?;
        }
    }
    range(settings.rounds >= 1 && settings.steps >= 1, "rounds and steps", "at least 1 each")?;
    range(
        settings.similarity >= 0.0 && settings.similarity.is_finite(),
        "similarity",
        "a finite number from 0",
    )?;
    range(regression.batch >= 1, "batch", "at least 1")
}

impl Problem<'_> {
    /// `N`.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.discounts.len()
    }

    /// `E`.
    #[must_use]
    pub fn starts(&self) -> usize {
        self.initial_states.len() / self.dim.max(1)
    }
}

impl Actions<'_> {
    /// Rows of an array, `[rows, A]`.
    fn row<'a>(&self, array: &'a [f32], row: usize) -> &'a [f32] {
        &array[row * self.width..(row + 1) * self.width]
    }
}

/// Which actions go with states.
#[derive(Clone, Copy)]
enum At {
    Logged,
    Next,
    Initial,
}

struct Fit<'a> {
    problem: &'a Problem<'a>,
    settings: &'a Settings,
    regression: &'a Regression<'a>,
    network: Network,
    params: Vec<f32>,
    adam: Adam,
    cache: coptidice_nn::Cache,
    /// `[V]`: the network's unit, and the constant beside it.
    unit: Vec<f64>,
    constant: Vec<f64>,
    /// `[V]`: average per step in the restart chain; zero elsewhere.
    average: Vec<f64>,
    /// `[V]`: least and largest possible value.
    bounds: Vec<[f64; 2]>,
    /// `[N]`.
    traces: Vec<f32>,
    /// `[N, V]`: values at the logged actions, expected values at the next states, targets.
    logged: Vec<f64>,
    next: Vec<f64>,
    targets: Vec<f64>,
    /// Rows of a batch: `[B, D + A]` or `[B, D]`, and `[B, outputs]`.
    inputs: Vec<f32>,
    d_outputs: Vec<f32>,
    rounds: Vec<Vec<f64>>,
}

impl<'a> Fit<'a> {
    fn new(
        problem: &'a Problem<'a>,
        settings: &'a Settings,
        regression: &'a Regression<'a>,
    ) -> Result<Self, NnError> {
        let (width, v) = (problem.actions.width, problem.quantities);
        let (input, output) = match problem.actions.logged {
            Logged::Continuous(_) => (problem.dim + width, v),
            Logged::Discrete(_) => (problem.dim, width * v),
        };
        let network = Network::new(NetworkSpec { input, blocks: regression.blocks.to_vec(), output })?;
        let params = network.init(&mut stream(regression.seed, "fqe", 0));
        let rows = problem.rows();
        let most = CHUNK.max(regression.batch);
        Ok(Fit {
            cache: network.cache(most),
            adam: Adam::new(params.len(), regression.learning_rate as f32),
            inputs: vec![0.0; most * input],
            d_outputs: vec![0.0; regression.batch * output],
            network,
            params,
            unit: (0..v).map(|j| STEPS_PER_UNIT * deviation(problem.values, v, j)).collect(),
            constant: vec![0.0; v],
            average: vec![0.0; v],
            bounds: (0..v).map(|j| bounds(problem, j)).collect(),
            traces: traces(&problem.actions, settings.similarity),
            logged: vec![0.0; rows * v],
            next: vec![0.0; rows * v],
            targets: vec![0.0; rows * v],
            rounds: Vec::with_capacity(settings.rounds as usize),
            problem,
            settings,
            regression,
        })
    }

    /// Writes the network's inputs for `rows` rows into the first rows of `inputs`; row `i` is that of `row(i)`.
    fn fill(inputs: &mut [f32], problem: &Problem<'_>, at: At, rows: usize, row: impl Fn(usize) -> usize) {
        let states = match at {
            At::Logged => problem.states,
            At::Next => problem.next_states,
            At::Initial => problem.initial_states,
        };
        let dim = problem.dim;
        let actions = match (problem.actions.logged, at) {
            (Logged::Continuous(logged), At::Logged) => Some(logged),
            (Logged::Continuous(_), At::Next) => Some(problem.actions.next),
            (Logged::Continuous(_), At::Initial) => Some(problem.actions.initial),
            (Logged::Discrete(_), _) => None,
        };
        let width = dim + actions.map_or(0, |_| problem.actions.width);
        for (i, input) in inputs.chunks_exact_mut(width).take(rows).enumerate() {
            let row = row(i);
            input[..dim].copy_from_slice(&states[row * dim..(row + 1) * dim]);
            if let Some(actions) = actions {
                input[dim..].copy_from_slice(problem.actions.row(actions, row));
            }
        }
    }

    /// Values at every row of `at`, `[rows, V]`, handed to `take(row, j, value)`.
    fn values(&mut self, at: At, pool: &Pool, mut take: impl FnMut(usize, usize, f64)) {
        let problem = self.problem;
        let (v, actions) = (problem.quantities, problem.actions);
        let rows = if matches!(at, At::Initial) { problem.starts() } else { problem.rows() };
        for first in (0..rows).step_by(CHUNK) {
            let count = CHUNK.min(rows - first);
            Self::fill(&mut self.inputs, problem, at, count, |i| first + i);
            let input = self.network.spec().input;
            let outputs = self.network.forward(
                &self.params,
                &self.inputs[..count * input],
                count,
                &mut self.cache,
                pool,
            );
            for i in 0..count {
                let row = first + i;
                for j in 0..v {
                    let scaled = match actions.logged {
                        Logged::Continuous(_) => f64::from(outputs[i * v + j]),
                        Logged::Discrete(logged) => {
                            let at_action = |a: usize| f64::from(outputs[(i * actions.width + a) * v + j]);
                            let expected = |probabilities: &[f32]| {
                                let of_row = actions.row(probabilities, row);
                                of_row.iter().enumerate().map(|(a, &p)| f64::from(p) * at_action(a)).sum()
                            };
                            match at {
                                At::Logged => at_action(logged[row] as usize),
                                At::Next => expected(actions.next),
                                At::Initial => expected(actions.initial),
                            }
                        }
                    };
                    let [low, high] = self.bounds[j];
                    take(row, j, (self.constant[j] + self.unit[j] * scaled).clamp(low, high));
                }
            }
        }
    }

    /// Values of the whole log.
    fn look(&mut self, pool: &Pool) {
        let v = self.problem.quantities;
        let (mut logged, mut next) = (std::mem::take(&mut self.logged), std::mem::take(&mut self.next));
        self.values(At::Logged, pool, |row, j, value| logged[row * v + j] = value);
        self.values(At::Next, pool, |row, j, value| next[row * v + j] = value);
        (self.logged, self.next) = (logged, next);
    }

    fn is_sound(&self) -> bool {
        self.logged.iter().chain(&self.next).all(|value| value.is_finite())
    }

    /// `delta` of a row, `rho` of the restart chain included.
    fn delta(&self, row: usize, j: usize) -> f64 {
        let place = row * self.problem.quantities + j;
        f64::from(self.problem.values[place]) - self.average[j]
            + f64::from(self.problem.discounts[row]) * self.next[place]
            - self.logged[place]
    }

    /// Moves the constants so that the weighted mean of `delta` is zero.
    fn set_constants(&mut self) {
        let v = self.problem.quantities;
        for j in 0..v {
            let (mut gap, mut loss, mut mass) = (0.0, 0.0, 0.0);
            for (row, (&w, &discount)) in self.problem.weights.iter().zip(self.problem.discounts).enumerate()
            {
                let w = f64::from(w);
                gap += w * self.delta(row, j);
                loss += w * (1.0 - f64::from(discount));
                mass += w;
            }
            if self.problem.process == Process::RestartChain {
                self.average[j] += gap / mass;
            } else if loss > 0.0 {
                let shift = gap / loss;
                self.constant[j] += shift;
                self.logged.iter_mut().skip(j).step_by(v).for_each(|value| *value += shift);
                self.next.iter_mut().skip(j).step_by(v).for_each(|value| *value += shift);
            }
        }
    }

    /// Corrected returns, backwards along every episode.
    fn set_targets(&mut self) {
        let v = self.problem.quantities;
        for j in 0..v {
            let mut ahead = 0.0;
            for row in (0..self.problem.rows()).rev() {
                let carried = if self.problem.followed[row] {
                    f64::from(self.problem.discounts[row]) * f64::from(self.traces[row + 1]) * ahead
                } else {
                    0.0
                };
                ahead = self.delta(row, j) + carried;
                self.targets[row * v + j] = self.logged[row * v + j] + ahead;
            }
            if self.problem.process == Process::RestartChain {
                // Values are defined up to a constant there; the network keeps to the mean zero.
                let mean = self.targets.iter().skip(j).step_by(v).sum::<f64>() / self.problem.rows() as f64;
                self.targets.iter_mut().skip(j).step_by(v).for_each(|target| *target -= mean);
            }
        }
    }

    /// Gradient steps on the squared error, in the network's units.
    fn regress(&mut self, round: u32, pace: f64, pool: &Pool) {
        let problem = self.problem;
        let (v, width, size) = (problem.quantities, problem.actions.width, self.regression.batch);
        let input = self.network.spec().input;
        let mut rows = vec![0; size];
        self.adam.learning_rate = (pace * self.regression.learning_rate) as f32;
        for step in 0..self.settings.steps {
            let index = u64::from(round) * u64::from(self.settings.steps) + u64::from(step);
            let mut rng = stream(self.regression.seed, "fqe batch", index);
            rows.iter_mut().for_each(|row| *row = (self.regression.draw)(rng.random()));
            Self::fill(&mut self.inputs, problem, At::Logged, size, |i| rows[i]);
            let inputs = &self.inputs[..size * input];
            let outputs = self.network.forward(&self.params, inputs, size, &mut self.cache, pool);
            self.d_outputs.fill(0.0);
            for (i, &row) in rows.iter().enumerate() {
                for j in 0..v {
                    let place = match problem.actions.logged {
                        Logged::Continuous(_) => i * v + j,
                        Logged::Discrete(logged) => (i * width + logged[row] as usize) * v + j,
                    };
                    let wanted = (self.targets[row * v + j] - self.constant[j]) / self.unit[j];
                    self.d_outputs[place] = (2.0 * (f64::from(outputs[place]) - wanted) / size as f64) as f32;
                }
            }
            self.network.descend(
                &mut self.params,
                inputs,
                &self.d_outputs,
                size,
                &mut self.cache,
                &mut self.adam,
                pool,
            );
        }
    }

    /// The estimate as it stands.
    fn record(&mut self, pool: &Pool) {
        let mut sums = vec![0.0; self.problem.quantities];
        let share = match self.problem.process {
            Process::Discounted { gamma } => Some(1.0 - gamma),
            Process::Episode => Some(1.0),
            Process::RestartChain => None,
        };
        if let Some(share) = share {
            let of_start = share / self.problem.starts() as f64;
            self.values(At::Initial, pool, |_, j, value| sums[j] += of_start * value);
        } else {
            sums.copy_from_slice(&self.average);
        }
        self.rounds.push(sums);
    }

    fn estimate(self) -> Estimate {
        let v = self.problem.quantities;
        let averaged = ((AVERAGED_SHARE * self.rounds.len() as f64).ceil() as usize).max(1);
        let last = &self.rounds[self.rounds.len() - averaged..];
        let column = |j: usize| last.iter().map(move |round| round[j]);
        let rows = self.problem.rows() as f64;
        let residual = |j: usize| {
            let square = (0..self.problem.rows()).map(|row| self.delta(row, j).powi(2)).sum::<f64>() / rows;
            square.sqrt() * STEPS_PER_UNIT / self.unit[j]
        };
        Estimate {
            values: (0..v).map(|j| column(j).sum::<f64>() / averaged as f64).collect(),
            unsettled: (0..v)
                .map(|j| {
                    column(j).fold(f64::NEG_INFINITY, f64::max) - column(j).fold(f64::INFINITY, f64::min)
                })
                .collect(),
            residual: (0..v).map(residual).collect(),
            similarity: self.traces.iter().map(|&c| f64::from(c)).sum::<f64>() / rows,
            rounds: self.rounds,
        }
    }
}

/// How far every logged action is the policy's, `[N]`.
fn traces(actions: &Actions<'_>, similarity: f64) -> Vec<f32> {
    match actions.logged {
        Logged::Continuous(logged) => {
            let pairs = logged.chunks_exact(actions.width).zip(actions.chosen.chunks_exact(actions.width));
            pairs
                .map(|(logged, chosen)| {
                    let square: f64 = logged.iter().zip(chosen).map(|(a, b)| f64::from(a - b).powi(2)).sum();
                    // The limit as the width goes to zero.
                    if square == 0.0 { 1.0 } else { (-0.5 * square / similarity.powi(2)).exp() as f32 }
                })
                .collect()
        }
        Logged::Discrete(logged) => {
            let rows = logged.iter().zip(actions.chosen.chunks_exact(actions.width));
            rows.map(|(&action, chosen)| chosen[action as usize]).collect()
        }
    }
}

/// Quantity `j` of every row.
fn column(values: &[f32], quantities: usize, j: usize) -> impl Iterator<Item = f64> {
    values.iter().skip(j).step_by(quantities).map(|&x| f64::from(x))
}

/// What values of quantity `j` lie between. In the restart chain they are differences, and an episode may be of any
/// length: no such bounds.
fn bounds(problem: &Problem<'_>, j: usize) -> [f64; 2] {
    let Process::Discounted { gamma } = problem.process else {
        return [f64::NEG_INFINITY, f64::INFINITY];
    };
    let column = || column(problem.values, problem.quantities, j);
    let ends = problem.discounts.contains(&0.0);
    let sums = |x: f64| {
        let for_ever = x / (1.0 - gamma);
        if ends { [x, for_ever] } else { [for_ever; 2] }
    };
    let least = sums(column().fold(f64::INFINITY, f64::min));
    let largest = sums(column().fold(f64::NEG_INFINITY, f64::max));
    [least[0].min(least[1]), largest[0].max(largest[1])]
}

/// Standard deviation of quantity `j`; 1 where it never varies, so that there is a unit.
fn deviation(values: &[f32], quantities: usize, j: usize) -> f64 {
    let column = || column(values, quantities, j);
    let count = (values.len() / quantities) as f64;
    let mean = column().sum::<f64>() / count;
    let deviation = (column().map(|x| (x - mean).powi(2)).sum::<f64>() / count).sqrt();
    if deviation > 1e-9 * (1.0 + mean.abs()) { deviation } else { 1.0 }
}
