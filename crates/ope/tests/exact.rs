//! Fitted Q evaluation against exact values on finite CMDPs.
//!
//! States are one-hot, so that the network can hold any function of state and action, and logs are long enough that what
//! is left is the regression's own error: a percent or two of the spread of the quantities.

use coptidice_core::rng::{Rng, stream};
use coptidice_nn::{Activation, BlockSpec, Pool};
use coptidice_ope::fqe::{Actions, FqeError, Logged, Problem, Process, Regression, Settings, evaluate};
use rand::RngExt as _;

const STATES: usize = 6;
const ACTIONS: usize = 3;
const HORIZON: usize = 30;

/// A random chain, its reward and cost of `(s, a)`, and two policies.
struct Chain {
    /// `[S][A][S']`.
    next: Vec<Vec<Vec<f64>>>,
    /// `[S][A]`: reward, cost.
    quantities: Vec<Vec<[f64; 2]>>,
    logging: Vec<Vec<f64>>,
    target: Vec<Vec<f64>>,
}

fn distribution(rng: &mut Rng, n: usize, sharpness: i32) -> Vec<f64> {
    let raw: Vec<f64> = (0..n).map(|_| rng.random::<f64>().powi(sharpness) + 1e-3).collect();
    let sum: f64 = raw.iter().sum();
    raw.iter().map(|x| x / sum).collect()
}

fn draw(rng: &mut Rng, probabilities: &[f64]) -> usize {
    let mut left: f64 = rng.random();
    for (i, p) in probabilities.iter().enumerate() {
        left -= p;
        if left < 0.0 {
            return i;
        }
    }
    probabilities.len() - 1
}

impl Chain {
    fn new(seed: u64) -> Self {
        let mut rng = stream(seed, "chain", 0);
        let rng = &mut rng;
        let table = |rng: &mut Rng, n: usize, sharpness: i32| -> Vec<Vec<f64>> {
            (0..STATES).map(|_| distribution(rng, n, sharpness)).collect()
        };
        Chain {
            next: (0..STATES).map(|_| (0..ACTIONS).map(|_| distribution(rng, STATES, 4)).collect()).collect(),
            quantities: (0..STATES)
                .map(|_| {
                    (0..ACTIONS).map(|_| [rng.random(), f64::from(u8::from(rng.random_bool(0.3)))]).collect()
                })
                .collect(),
            logging: table(rng, ACTIONS, 1),
            target: table(rng, ACTIONS, 4),
        }
    }

    /// Normalised values of the target policy by iteration: `(1 - gamma) sum gamma^t x_t` from state 0, or the average
    /// per step of the chain that restarts after `HORIZON` steps.
    fn exact(&self, gamma: f64) -> [f64; 2] {
        let mut at = vec![0.0; STATES];
        at[0] = 1.0;
        let mut total = [0.0; 2];
        let steps = if gamma == 1.0 { HORIZON } else { 20_000 };
        let mut factor = if gamma == 1.0 { 1.0 / HORIZON as f64 } else { 1.0 - gamma };
        for _ in 0..steps {
            let mut then = vec![0.0; STATES];
            for s in 0..STATES {
                for a in 0..ACTIONS {
                    let mass = at[s] * self.target[s][a];
                    for j in 0..2 {
                        total[j] += factor * mass * self.quantities[s][a][j];
                    }
                    for (then, p) in then.iter_mut().zip(&self.next[s][a]) {
                        *then += mass * p;
                    }
                }
            }
            at = then;
            factor *= gamma;
        }
        total
    }
}

/// Everything a problem borrows.
#[derive(Default)]
struct Log {
    states: Vec<f32>,
    next_states: Vec<f32>,
    initial: Vec<f32>,
    logged: Vec<u32>,
    chosen: Vec<f32>,
    next: Vec<f32>,
    first: Vec<f32>,
    values: Vec<f32>,
    discounts: Vec<f32>,
    followed: Vec<bool>,
    weights: Vec<f32>,
}

/// With `clock`, the restart chain's states carry how many steps are left, as a number: its values depend on it.
fn log(chain: &Chain, gamma: f64, episodes: usize) -> (Log, usize) {
    let dim = STATES + usize::from(gamma == 1.0);
    let one_hot = |s: usize, t: usize| {
        let mut state = vec![0.0_f32; dim];
        state[s] = 1.0;
        if gamma == 1.0 {
            state[STATES] = t as f32 / HORIZON as f32;
        }
        state
    };
    let probabilities = |s: usize| chain.target[s].iter().map(|&p| p as f32);
    let mut log = Log::default();
    let mut rng = stream(7, "log", 0);
    for _ in 0..episodes {
        let mut s = 0;
        log.initial.extend(one_hot(s, 0));
        log.first.extend(probabilities(s));
        for t in 0..HORIZON {
            let a = draw(&mut rng, &chain.logging[s]);
            let then = draw(&mut rng, &chain.next[s][a]);
            let last = t + 1 == HORIZON;
            let (follows, clock) = if gamma == 1.0 && last { (0, 0) } else { (then, t + 1) };
            log.states.extend(one_hot(s, t));
            log.next_states.extend(one_hot(follows, clock));
            log.logged.push(a as u32);
            log.chosen.extend(probabilities(s));
            log.next.extend(probabilities(follows));
            log.values.extend(chain.quantities[s][a].map(|x| x as f32));
            log.discounts.push(gamma as f32);
            log.followed.push(!last);
            log.weights.push(1.0);
            s = then;
        }
    }
    (log, dim)
}

impl Log {
    fn problem(&self, dim: usize, gamma: f64) -> Problem<'_> {
        Problem {
            dim,
            quantities: 2,
            states: &self.states,
            next_states: &self.next_states,
            initial_states: &self.initial,
            actions: Actions {
                width: ACTIONS,
                logged: Logged::Discrete(&self.logged),
                chosen: &self.chosen,
                next: &self.next,
                initial: &self.first,
            },
            values: &self.values,
            discounts: &self.discounts,
            followed: &self.followed,
            weights: &self.weights,
            process: if gamma == 1.0 { Process::RestartChain } else { Process::Discounted { gamma } },
        }
    }
}

fn found(problem: &Problem<'_>, rounds: u32, threads: usize) -> Vec<f64> {
    let blocks = [BlockSpec::Dense { width: 32, layer_norm: false, activation: Activation::Elu }];
    let rows = problem.rows();
    let regression = Regression {
        blocks: &blocks,
        learning_rate: 3e-3,
        batch: 128,
        draw: &|u| (u * rows as f64) as usize,
        seed: 3,
    };
    let settings = Settings { rounds, steps: 100, similarity: 0.3 };
    let pool = Pool::new(threads).unwrap();
    evaluate(problem, &settings, &regression, &pool).unwrap().values
}

/// 400 episodes of 30 steps under another policy leave the transitions' frequencies uncertain by about a percent, and
/// with them the values; three chains, two quantities.
#[test]
fn values_are_those_of_a_policy_evaluation() {
    for (seed, gamma) in [(0, 0.95), (1, 0.99), (2, 0.99), (3, 1.0)] {
        let chain = Chain::new(seed);
        let (log, dim) = log(&chain, gamma, 400);
        let values = found(&log.problem(dim, gamma), 30, 1);
        for (found, exact) in values.iter().zip(chain.exact(gamma)) {
            assert!((found - exact).abs() < 0.03, "chain {seed}, gamma {gamma}: {found} for {exact}");
        }
    }
}

/// An estimate that ignored the policy's actions would be off by more than the tolerance above, somewhere on every chain.
#[test]
fn the_two_policies_differ() {
    for seed in 0..4 {
        let mut chain = Chain::new(seed);
        let target = chain.exact(0.99);
        chain.target = chain.logging.clone();
        let logging = chain.exact(0.99);
        let apart = target.iter().zip(logging).map(|(t, l)| (t - l).abs()).fold(0.0, f64::max);
        assert!(apart > 0.04, "chain {seed}: {target:?} {logging:?}");
    }
}

/// Episodes that end by themselves: every step is the last with a chance that depends on state and action. Their totals,
/// and those of a quantity that is 1 in every step, by which averages per step are had.
#[test]
fn totals_of_an_episode_are_those_of_a_policy_evaluation() {
    for seed in 0..3 {
        let chain = Chain::new(seed);
        let ends = |s: usize, a: usize| 0.05 + 0.2 * ((s + 2 * a) % 3) as f64;
        // Totals by iteration, until next to nothing is left.
        let mut at = vec![0.0; STATES];
        at[0] = 1.0;
        let mut exact = [0.0; 3];
        for _ in 0..2000 {
            let mut then = vec![0.0; STATES];
            for s in 0..STATES {
                for a in 0..ACTIONS {
                    let mass = at[s] * chain.target[s][a];
                    let [reward, cost] = chain.quantities[s][a];
                    for (total, x) in exact.iter_mut().zip([reward, cost, 1.0]) {
                        *total += mass * x;
                    }
                    for (then, p) in then.iter_mut().zip(&chain.next[s][a]) {
                        *then += mass * (1.0 - ends(s, a)) * p;
                    }
                }
            }
            at = then;
        }
        let one_hot = |s: usize| (0..STATES).map(move |k| f32::from(u8::from(k == s)));
        let probabilities = |s: usize| chain.target[s].iter().map(|&p| p as f32);
        let mut log = Log::default();
        let mut rng = stream(9, "episodes", seed);
        for _ in 0..20000 {
            let mut s = 0;
            log.initial.extend(one_hot(s));
            log.first.extend(probabilities(s));
            loop {
                let a = draw(&mut rng, &chain.logging[s]);
                let last = rng.random::<f64>() < ends(s, a);
                let then = draw(&mut rng, &chain.next[s][a]);
                log.states.extend(one_hot(s));
                log.next_states.extend(one_hot(then));
                log.logged.push(a as u32);
                log.chosen.extend(probabilities(s));
                log.next.extend(probabilities(then));
                log.values.extend(chain.quantities[s][a].map(|x| x as f32));
                log.values.push(1.0);
                log.discounts.push(if last { 0.0 } else { 1.0 });
                log.followed.push(!last);
                log.weights.push(1.0);
                s = then;
                if last {
                    break;
                }
            }
        }
        let problem = Problem { quantities: 3, process: Process::Episode, ..log.problem(STATES, 1.0) };
        let values = found(&problem, 100, 1);
        // An end has a chance of a twentieth at a third of the pairs: of their thousands of steps hundreds are ends, known to
        // a few percent each, and totals are in proportion to how rarely episodes end.
        for (found, exact) in values.iter().zip(exact) {
            assert!((found - exact).abs() < 0.03 * exact, "chain {seed}: {values:?} for {exact:?}");
        }
    }
}

#[test]
fn threads_change_nothing() {
    let chain = Chain::new(0);
    let (log, dim) = log(&chain, 0.95, 20);
    let problem = log.problem(dim, 0.95);
    assert_eq!(found(&problem, 3, 1), found(&problem, 3, 2));
}

#[test]
fn unusable_problems_are_named() {
    let chain = Chain::new(0);
    let (log, dim) = log(&chain, 0.95, 2);
    let blocks = [BlockSpec::Dense { width: 4, layer_norm: false, activation: Activation::Elu }];
    let regression = Regression { blocks: &blocks, learning_rate: 1e-3, batch: 4, draw: &|_| 0, seed: 0 };
    let pool = Pool::new(1).unwrap();
    let run = |problem: &Problem<'_>, settings: &Settings| {
        evaluate(problem, settings, &regression, &pool).unwrap_err()
    };
    let good = log.problem(dim, 0.95);
    let settings = Settings { rounds: 1, steps: 1, similarity: 0.3 };
    let short = Problem { values: &log.values[1..], ..good.clone() };
    assert!(matches!(run(&short, &settings), FqeError::Length { array: "values", .. }));
    let zero = vec![0.0; log.weights.len()];
    let weightless = Problem { weights: &zero, ..good.clone() };
    assert!(matches!(run(&weightless, &settings), FqeError::Range { what: "weights", .. }));
    let mut broken = log.states.clone();
    broken[5] = f32::NAN;
    let not_finite = Problem { states: &broken, ..good.clone() };
    assert_eq!(run(&not_finite, &settings), FqeError::NotFinite { array: "states", index: 5 });
    let far = Problem { process: Process::Discounted { gamma: 1.0 }, ..good.clone() };
    assert!(matches!(run(&far, &settings), FqeError::Range { what: "gamma", .. }));
    let endless = Problem { process: Process::Episode, ..good.clone() };
    assert!(matches!(run(&endless, &settings), FqeError::Range { what: "discounts", .. }));
    assert!(matches!(
        run(&good, &Settings { rounds: 0, ..settings }),
        FqeError::Range { what: "rounds and steps", .. }
    ));
    let empty = Problem {
        states: &[],
        next_states: &[],
        values: &[],
        discounts: &[],
        followed: &[],
        weights: &[],
        ..good
    };
    assert_eq!(run(&empty, &Settings { rounds: 1, steps: 1, similarity: 0.3 }), FqeError::Empty);
}
