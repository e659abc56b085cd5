//! CoinDICE (Dai et al. 2020; appendix "Comparison with CoinDICE" of the paper): bounds on the value of a *given*
//! policy that hold for every model near the data.
//!
//! # The problem
//!
//! ```text
//! max_{p̃, w}  E_p̃[w(s,a)·C(s,a)]                                            (eq:coindice_objective)
//! s.t.        KL(p̃ ‖ p) ≤ epsilon                                           (eq:coindice_kl_constraint)
//!             p̃(s',a')w(s',a') = (1−γ)p̃₀(s')π(a'|s') + γ Σ p̃(s,a)w(s,a)p̃(s'|s,a)π(a'|s')
//!                                                                           (eq:coindice_bellman_flow_constraint)
//! ```
//!
//! over distributions `p̃` of samples `x = (s0, s, a, s')`. For fixed `p̃` the flow has the one solution
//! `w = d̃^π/p̃`, with `d̃^π` the occupancy of `π` in the model that `p̃` induces. The bound is therefore the largest
//! value `V(p̃)` of `π` in any model within the radius. Its derivative in `p̃(s,a,s')` is
//!
//! ```text
//! δ(s,a,s') = w(s,a)·(C(s,a) + γ·v(s') − q(s,a)),      and in p̃₀(s0):  (1−γ)·v(s0)
//! ```
//!
//! with `v`, `q` the values of `π` in that model: exactly the exponent of `eq:coindice`. Where the bound is
//! attained, `p̃ ∝ p·exp((δ + (1−γ)v(s0))/tau)`.
//!
//! # The method
//!
//! `V` is not concave in `p̃`, so that a penalty `tau·KL` in the objective can leave the ball through a fold.
//! Instead each step stays inside it: maximise the linearisation of `V` over the ball, which is the exponential
//! above with the `tau` that uses up the radius, and move towards that maximiser as far as `V` agrees (Frank and
//! Wolfe 1956). The ball is strictly convex and `V` close to linear in it, so that whole steps are taken and
//! contract. What is found is a stationary point, reached by ascent from the data.
//!
//! Pairs that were never sampled have no `p` to perturb; the model's own transitions stand there unchanged.

use coptidice_core::{Cmdp, CmdpError, Occupancy, Policy};
use faer::Mat;
use faer::linalg::solvers::{PartialPivLu, Solve as _};
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;

/// Which end of the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BoundSide {
    /// The smallest value within the radius.
    Lower,
    /// The largest.
    Upper,
}

/// A bound on the value of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoinDiceBound {
    /// `Solved`, `AlmostSolved` or `IterationLimit`; `Unconfirmed` where there is no bound.
    pub outcome: Outcome,
    /// The bound, units of the table per step; infinite where there is none.
    pub value: f64,
    /// Temperature at the bound; zero if the radius is zero or no perturbation changes the value.
    pub tau: f64,
    /// `KL(p̃ ‖ p)` at the bound. Below the radius only where the most extreme model lies within it.
    pub kl: f64,
    /// `w = d̃^π/p̃` of each sampled pair, `[S*A]`; zero elsewhere.
    pub w: Vec<f64>,
    /// Ascent steps taken.
    pub iterations: usize,
}

/// The radius of the paper's remark, `ξ/samples`, with `ξ` the `confidence` quantile of the χ² distribution with
/// one degree of freedom.
///
/// Twice this KL radius times the sample size is what the likelihood-ratio theorem compares with `ξ`, so that the
/// interval between the lower and the upper bound covers more than `confidence`; [`likelihood_radius`] is exact.
#[must_use]
pub fn published_radius(confidence: f64, samples: usize) -> f64 {
    2.0 * likelihood_radius(confidence, samples)
}

/// The radius `ξ/(2·samples)` at which, for large samples, the interval from the lower to the upper bound covers the
/// truth with probability `confidence` (Owen's theorem on empirical likelihood ratios, `2n·KL → χ²₁`). Each end by
/// itself then holds with probability `(1 + confidence)/2`.
#[must_use]
pub fn likelihood_radius(confidence: f64, samples: usize) -> f64 {
    let z = error_function_inverse(confidence.clamp(0.0, 1.0 - 1e-15));
    // P(χ²₁ ≤ ξ) = erf(√(ξ/2)), so that ξ/2 = z².
    z * z / samples.max(1) as f64
}

/// `z ≥ 0` with `erf(z) = p`, by bisection to the last bit.
fn error_function_inverse(p: f64) -> f64 {
    let (mut low, mut high) = (0.0, 8.0);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if libm::erf(middle) < p { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// Bound on `E_{d^π}[table]` over all models within `epsilon` of the data.
///
/// `model` holds the estimated transitions and `p0`; `data_occupancy` is the sampled `p(s,a)`; `table` is a cost or
/// the reward, `[S*A]`. At `γ = 1` a policy with several recurrent classes has no bound: the outcome is then
/// [`Outcome::Unconfirmed`] and the value infinite.
///
/// # Errors
/// [`CmdpError::Shape`] if shapes differ.
pub fn coindice_bound(
    model: &Cmdp,
    data_occupancy: &Occupancy,
    policy: &Policy,
    table: &[f64],
    epsilon: f64,
    side: BoundSide,
) -> Result<CoinDiceBound, CmdpError> {
    coindice_bound_with_ends(model, data_occupancy, policy, table, 0.0, epsilon, side)
}

/// As [`coindice_bound`] for `E_{d^π}[table + end_value·1{end}]`: whether a step ends its episode is an outcome like
/// any other, about which the data may be wrong. As a mean within the table it would stand as known.
///
/// # Errors
/// [`CmdpError::Shape`] if shapes differ.
pub fn coindice_bound_with_ends(
    model: &Cmdp,
    data_occupancy: &Occupancy,
    policy: &Policy,
    table: &[f64],
    end_value: f64,
    epsilon: f64,
    side: BoundSide,
) -> Result<CoinDiceBound, CmdpError> {
    let pairs = model.pairs();
    for (what, found) in [
        ("data occupancy", data_occupancy.mass().len()),
        ("policy", policy.probabilities().len()),
        ("table", table.len()),
    ] {
        if found != pairs {
            return Err(CmdpError::Shape { what, expected: pairs, found });
        }
    }
    let sign = if side == BoundSide::Upper { 1.0 } else { -1.0 };
    let table: Vec<f64> = table.iter().map(|x| sign * x).collect();
    let mut ascent = Ascent::new(model, data_occupancy, policy, &table);
    ascent.end_value = sign * end_value;
    let mut bound = ascent.bound(epsilon.max(0.0));
    bound.value *= sign;
    Ok(bound)
}

/// Steps of the ascent; each costs one linear solve.
const MAX_STEPS: usize = 2000;
/// The ascent has arrived when maximiser and iterate differ by less than this in symmetrised KL divergence,
/// relative to the radius: densities then agree to about 1e-12 of what the radius allows.
const ARRIVED: f64 = 1e-24;
/// Relative divergence at which rounding may stop it: densities to 1e-9, and the value, stationary there, to its
/// square.
const CLOSE: f64 = 1e-18;
/// Largest range of exponents: `e^−500` is still a normal number.
const EXPONENT_RANGE: f64 = 500.0;

/// One possible sample `(s, a, s')`.
struct Entry {
    /// Successor; `None` where the step ends the episode.
    next: Option<usize>,
}

/// A distribution of samples: over entries, and over initial states.
#[derive(Clone)]
struct Perturbation {
    entries: Vec<f64>,
    initial: Vec<f64>,
}

/// What a perturbed model says of the policy.
struct Evaluated {
    value: f64,
    /// Derivative of the value in the entries, centred within each pair.
    delta: Vec<f64>,
    /// Derivative in `p̃₀`.
    initial_delta: Vec<f64>,
    w: Vec<f64>,
}

struct Ascent<'a> {
    model: &'a Cmdp,
    policy: &'a Policy,
    table: &'a [f64],
    /// What an end adds to the table.
    end_value: f64,
    entries: Vec<Entry>,
    /// Entries of each pair; empty if it was never sampled.
    of_pair: Vec<std::ops::Range<usize>>,
    base: Perturbation,
    /// States that the policy visits, `[S]`; at `γ = 1` the others would leave the system singular.
    visited: Vec<bool>,
    /// Recurrent classes that it may end up in.
    classes: usize,
    steps: usize,
}

impl<'a> Ascent<'a> {
    fn new(model: &'a Cmdp, data: &Occupancy, policy: &'a Policy, table: &'a [f64]) -> Self {
        let mut entries = Vec::new();
        let mut of_pair = Vec::with_capacity(model.pairs());
        let mut mass = Vec::new();
        for (pair, &p) in data.mass().iter().enumerate() {
            let start = entries.len();
            if p > 0.0 {
                let (next, probability) = model.row(pair);
                for (&t, &q) in next.iter().zip(probability) {
                    entries.push(Entry { next: Some(t as usize) });
                    mass.push(p * q);
                }
                let end = model.transitions().end_probability(pair);
                if end > 0.0 {
                    entries.push(Entry { next: None });
                    mass.push(p * end);
                }
            }
            of_pair.push(start..entries.len());
        }
        let base = Perturbation { entries: mass, initial: model.initial().to_vec() };
        let (visited, classes) = if model.gamma() >= 1.0 {
            let reach = crate::evaluation::Reach::new(model, policy);
            (reach.visited, reach.closed_classes)
        } else {
            (vec![true; model.states()], 1)
        };
        Self { model, policy, table, end_value: 0.0, entries, of_pair, base, visited, classes, steps: 0 }
    }

    /// Climbs to the largest value within the radius.
    fn bound(&mut self, epsilon: f64) -> CoinDiceBound {
        let mut at = self.base.clone();
        if self.classes > 1 {
            let (w, value) = (vec![0.0; self.of_pair.len()], f64::INFINITY);
            return CoinDiceBound {
                outcome: Outcome::Unconfirmed,
                value,
                tau: 0.0,
                kl: 0.0,
                w,
                iterations: 0,
            };
        }
        let mut now = self.evaluate(&at);
        let mut share = 1.0;
        let mut best = f64::INFINITY;
        for _ in 0..MAX_STEPS {
            self.steps += 1;
            let Some((tau, target)) = self.maximiser(&now, epsilon) else {
                // No radius, or nothing that could be perturbed moves the value.
                return self.report(Outcome::Solved, now, 0.0, &at);
            };
            let distance =
                symmetric_kl(&target.entries, &at.entries) + symmetric_kl(&target.initial, &at.initial);
            if distance <= ARRIVED * epsilon {
                return self.report(Outcome::Solved, now, tau, &at);
            }
            let gain = inner(&now.delta, &target.entries, &at.entries)
                + inner(&now.initial_delta, &target.initial, &at.initial);
            // Below the rounding of the value its gain says nothing: the share that was last seen to ascend is
            // trusted to go on contracting, until distances stop shrinking.
            let blind = gain <= 1e-13 * (now.value.abs() + gain);
            if blind && distance <= CLOSE * epsilon && distance >= 0.25 * best {
                return self.report(Outcome::Solved, now, tau, &at);
            }
            best = best.min(distance);
            loop {
                let trial = at.towards(&target, share);
                let evaluated = self.evaluate(&trial);
                if blind || evaluated.value - now.value >= 0.1 * share * gain {
                    (at, now) = (trial, evaluated);
                    break;
                }
                share *= 0.5;
                if share < 1e-9 {
                    return self.report(Outcome::IterationLimit, now, tau, &at);
                }
            }
            if !blind {
                share = (2.0 * share).min(1.0);
            }
        }
        let tau = self.maximiser(&now, epsilon).map_or(0.0, |m| m.0);
        self.report(Outcome::IterationLimit, now, tau, &at)
    }

    fn report(&self, outcome: Outcome, now: Evaluated, tau: f64, at: &Perturbation) -> CoinDiceBound {
        let kl = self.kl(at);
        CoinDiceBound { outcome, value: now.value, tau, kl, w: now.w, iterations: self.steps }
    }

    /// The maximiser of the linearised value over the ball, `p·exp(δ/tau)` with `KL = epsilon`, and its `tau`;
    /// `None` if the derivative is constant on the support or the radius zero.
    fn maximiser(&self, now: &Evaluated, epsilon: f64) -> Option<(f64, Perturbation)> {
        let range =
            spread(&self.base.entries, &now.delta).max(spread(&self.base.initial, &now.initial_delta));
        let variance = self.variance(now);
        if epsilon <= 0.0 || range <= 1e-14 * (now.value.abs() + range) || variance <= 0.0 {
            return None;
        }
        let tilt = |beta: f64| {
            let p = Perturbation {
                entries: tilted(&self.base.entries, &now.delta, beta),
                initial: tilted(&self.base.initial, &now.initial_delta, beta),
            };
            let kl = self.kl(&p);
            (p, kl)
        };
        // KL = beta²·Var(δ)/2 to first order. √KL is nearly linear in beta: secant from the origin, in a bracket.
        let most = EXPONENT_RANGE / range;
        let mut beta = (2.0 * epsilon / variance).sqrt().min(most);
        let (mut low, mut high) = (0.0, f64::INFINITY);
        let mut found = tilt(beta);
        for _ in 0..200 {
            let miss = found.1 / epsilon - 1.0;
            if miss.abs() <= 1e-14 || (miss < 0.0 && beta >= most) || high <= low * (1.0 + 1e-15) {
                break;
            }
            if miss < 0.0 {
                low = beta
            } else {
                high = beta
            }
            let next = (beta * (epsilon / found.1).sqrt()).min(most);
            beta = if next > low && next < high { next } else { 0.5 * (low + high.min(most)) };
            found = tilt(beta);
        }
        Some((1.0 / beta, found.0))
    }

    fn kl(&self, at: &Perturbation) -> f64 {
        kl(&at.entries, &self.base.entries) + kl(&at.initial, &self.base.initial)
    }

    /// Variance of the derivative under the data.
    fn variance(&self, now: &Evaluated) -> f64 {
        let of = |p: &[f64], x: &[f64]| {
            let total: f64 = p.iter().sum();
            let mean = p.iter().zip(x).map(|(&p, &x)| p * x).sum::<f64>() / total;
            p.iter().zip(x).map(|(&p, &x)| p * (x - mean) * (x - mean)).sum::<f64>() / total
        };
        of(&self.base.entries, &now.delta) + of(&self.base.initial, &now.initial_delta)
    }

    /// Value, occupancy and state values of the policy in the model that `at` induces.
    ///
    /// `γ < 1`: `M = I − γP`, `Mv = r`, `Mᵀd = (1−γ)p̃₀`. `γ = 1`: `M` is bordered by a column of ones (the gain)
    /// and the row `p0` (the values' free constant), `M(v,g) = (r,0)`, `Mᵀ(d,·) = (0,1)`.
    fn evaluate(&self, at: &Perturbation) -> Evaluated {
        let (n, gamma) = (self.model.states(), self.model.gamma());
        let average = gamma >= 1.0;
        let order = n + usize::from(average);
        let mut system = Mat::<f64>::zeros(order, order);
        let mut right = Mat::<f64>::zeros(order, 1);
        for s in 0..n {
            system[(s, s)] += 1.0;
            if !self.visited[s] {
                continue;
            }
            for (a, &choice) in self.policy.row(s).iter().enumerate().filter(|(_, p)| **p > 0.0) {
                let pair = s * self.policy.actions() + a;
                right[(s, 0)] +=
                    choice * (self.table[pair] + self.end_value * self.end_probability(pair, at));
                self.successors(pair, at, |next, p| system[(s, next)] -= gamma * choice * p);
            }
        }
        let mut flow = Mat::<f64>::zeros(order, 1);
        if average {
            for s in 0..n {
                system[(s, n)] = f64::from(u8::from(self.visited[s]));
                system[(n, s)] = self.model.initial()[s];
            }
            flow[(n, 0)] = 1.0;
        } else {
            for s in 0..n {
                flow[(s, 0)] = (1.0 - gamma) * at.initial[s];
            }
        }
        let factor = PartialPivLu::new(system.as_ref());
        factor.solve_in_place(&mut right);
        factor.solve_transpose_in_place(&mut flow);
        let value = if average {
            right[(n, 0)]
        } else {
            (1.0 - gamma) * (0..n).map(|s| at.initial[s] * right[(s, 0)]).sum::<f64>()
        };
        let v: Vec<f64> = (0..n).map(|s| right[(s, 0)]).collect();
        let d: Vec<f64> = (0..n).map(|s| flow[(s, 0)].max(0.0)).collect();
        self.derivatives(at, value, &v, &d)
    }

    /// Probability that a step of a pair ends the episode in the induced model.
    fn end_probability(&self, pair: usize, at: &Perturbation) -> f64 {
        let range = self.of_pair[pair].clone();
        if range.is_empty() {
            return self.model.transitions().end_probability(pair);
        }
        let total: f64 = at.entries[range.clone()].iter().sum();
        range.filter(|&i| self.entries[i].next.is_none()).map(|i| at.entries[i] / total).sum()
    }

    /// Visits the successors of a pair in the induced model, the restart of ended episodes included.
    fn successors(&self, pair: usize, at: &Perturbation, mut visit: impl FnMut(usize, f64)) {
        let mut end = 0.0;
        let range = self.of_pair[pair].clone();
        if range.is_empty() {
            let (next, probability) = self.model.row(pair);
            for (&t, &p) in next.iter().zip(probability) {
                visit(t as usize, p);
            }
            end = self.model.transitions().end_probability(pair);
        } else {
            let total: f64 = at.entries[range.clone()].iter().sum();
            for i in range {
                match self.entries[i].next {
                    Some(t) => visit(t, at.entries[i] / total),
                    None => end = at.entries[i] / total,
                }
            }
        }
        if end > 0.0 && self.model.restarts() {
            for (t, &p) in at.initial.iter().enumerate().filter(|(_, p)| **p > 0.0) {
                visit(t, end * p);
            }
        }
    }

    fn derivatives(&self, at: &Perturbation, value: f64, v: &[f64], d: &[f64]) -> Evaluated {
        let gamma = self.model.gamma();
        let fresh: f64 = at.initial.iter().zip(v).map(|(&p, &x)| p * x).sum();
        let restart = if self.model.restarts() { fresh } else { 0.0 };
        let mut delta = vec![0.0; self.entries.len()];
        let mut w = vec![0.0; self.of_pair.len()];
        let mut ended = 0.0;
        for (pair, range) in self.of_pair.iter().enumerate() {
            let (s, a) = (pair / self.policy.actions(), pair % self.policy.actions());
            let visits = d[s] * self.policy.row(s)[a];
            if range.is_empty() {
                ended += visits * self.model.transitions().end_probability(pair);
                continue;
            }
            let total: f64 = at.entries[range.clone()].iter().sum();
            w[pair] = visits / total;
            // What an end adds is not discounted.
            let seen = |i: usize| self.entries[i].next.map_or(restart + self.end_value / gamma, |t| v[t]);
            let mean = range.clone().map(|i| at.entries[i] * seen(i)).sum::<f64>() / total;
            for i in range.clone() {
                delta[i] = gamma * w[pair] * (seen(i) - mean);
                if self.entries[i].next.is_none() {
                    ended += w[pair] * at.entries[i];
                }
            }
        }
        // p̃₀ enters at the start and, in the restart chain, after every end.
        let entered = (1.0 - gamma) + if self.model.restarts() { gamma * ended } else { 0.0 };
        let initial_delta = v.iter().map(|&x| entered * (x - fresh)).collect();
        Evaluated { value, delta, initial_delta, w }
    }
}

impl Perturbation {
    fn towards(&self, target: &Self, share: f64) -> Self {
        let mix = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(&x, &y)| x + share * (y - x)).collect();
        Self { entries: mix(&self.entries, &target.entries), initial: mix(&self.initial, &target.initial) }
    }
}

/// Largest less smallest `x` where `p > 0`.
fn spread(p: &[f64], x: &[f64]) -> f64 {
    let supported = p.iter().zip(x).filter(|(p, _)| **p > 0.0);
    let (low, high) =
        supported.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), (_, &x)| (l.min(x), h.max(x)));
    high - low
}

/// `Σ x·(p − q)`.
fn inner(x: &[f64], p: &[f64], q: &[f64]) -> f64 {
    x.iter().zip(p).zip(q).map(|((&x, &p), &q)| x * (p - q)).sum()
}

/// `base·exp(beta·exponent)` scaled to a sum of one.
fn tilted(base: &[f64], exponent: &[f64], beta: f64) -> Vec<f64> {
    let supported = base.iter().zip(exponent).filter(|(p, _)| **p > 0.0);
    let largest = supported.map(|(_, &x)| beta * x).fold(f64::NEG_INFINITY, f64::max);
    let tilt = |(&p, &x): (&f64, &f64)| if p > 0.0 { p * (beta * x - largest).exp() } else { 0.0 };
    let mut tilted: Vec<f64> = base.iter().zip(exponent).map(tilt).collect();
    let total: f64 = tilted.iter().sum();
    tilted.iter_mut().for_each(|p| *p /= total);
    tilted
}

/// `Σ p ln(p/q) − p + q`, each term `q·((1+t)ln(1+t) − t)` with `t = p/q − 1`: small radii keep their digits, which
/// `Σ p ln(p/q)` would lose between terms of either sign.
fn kl(p: &[f64], q: &[f64]) -> f64 {
    let term = |p: f64, q: f64| {
        let t = (p - q) / q;
        if t.abs() < 0.5 { q * ((1.0 + t) * t.ln_1p() - t) } else { p * (p / q).ln() - (p - q) }
    };
    let positive = p.iter().zip(q).filter(|(_, q)| **q > 0.0);
    positive.map(|(&p, &q)| if p > 0.0 { term(p, q) } else { q }).sum()
}

/// `Σ (p − q)·ln(p/q)` over the common support.
fn symmetric_kl(p: &[f64], q: &[f64]) -> f64 {
    p.iter().zip(q).filter(|(p, q)| **p > 0.0 && **q > 0.0).map(|(&p, &q)| (p - q) * (p / q).ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Counts;
    use crate::evaluation::evaluate;
    use crate::generate::{RandomCmdpConfig, TrajectorySampler, counts_of_table, estimated_model};
    use approx::assert_relative_eq;
    use coptidice_core::{CmdpParts, EpisodeEnd, StateId, Transitions, rng};
    use rand::RngExt as _;

    /// A coin: from state 0 to 1 (cost 1 for ever) with probability `q`, else to 2 (free for ever).
    fn coin(q: f64, gamma: f64) -> Cmdp {
        let triples = [(0, 0, 1, q), (0, 0, 2, 1.0 - q), (1, 0, 1, 1.0), (2, 0, 2, 1.0)];
        Cmdp::new(CmdpParts {
            transitions: Transitions::from_triples(3, 1, triples).unwrap(),
            episode_end: EpisodeEnd::Absorb,
            reward: vec![0.0; 3],
            costs: vec![vec![0.0, 1.0, 0.0]],
            initial: vec![1.0, 0.0, 0.0],
            gamma,
        })
        .unwrap()
    }

    /// Only the coin can be perturbed, `V = γq̃`. Moving weight between pairs is free of value, so that the least
    /// divergence at which the coin reads `q̃` is `−ln(m·e^{−k} + 1 − m)`, `k = KL(q̃ ‖ q)`, `m` the coin's share.
    #[test]
    fn closed_form_of_a_coin() {
        let (q, m, epsilon) = (0.3, 0.5, 0.02);
        let model = coin(q, 0.9);
        let data = Occupancy::normalized(3, 1, vec![m, 0.2, 0.3]).unwrap();
        let policy = Policy::uniform(3, 1).unwrap();
        let budget = -((f64::exp(-epsilon) - (1.0 - m)) / m).ln();
        let divergence = |x: f64| x * (x / q).ln() + (1.0 - x) * ((1.0 - x) / (1.0 - q)).ln();
        for (side, mut inside, mut outside) in
            [(BoundSide::Upper, q, 1.0 - 1e-12), (BoundSide::Lower, q, 1e-12)]
        {
            for _ in 0..100 {
                let middle = 0.5 * (inside + outside);
                if divergence(middle) < budget { inside = middle } else { outside = middle }
            }
            let bound = coindice_bound(&model, &data, &policy, model.cost(0), epsilon, side).unwrap();
            assert_eq!(bound.outcome, Outcome::Solved);
            // Radius and stationarity are met to rounding.
            assert_relative_eq!(bound.value, 0.9 * inside, max_relative = 1e-9);
            assert_relative_eq!(bound.kl, epsilon, max_relative = 1e-9);
        }
    }

    fn estimated(index: u64, episodes: usize) -> (Cmdp, Counts, Policy, Cmdp) {
        let config = RandomCmdpConfig { states: 8, connectivity: 3, limit: 0.01, ..Default::default() };
        let drawn = config.draw(4, index).unwrap();
        let behaviour = Policy::uniform(8, 4).unwrap();
        let mut table = vec![0; 8 * 4 * 8];
        let sampler = TrajectorySampler::new(&drawn.cmdp, &behaviour).unwrap();
        sampler.count_into(&mut rng::stream(4, "coindice", index), episodes, 50, &mut table);
        let counts = counts_of_table(8, 4, &table).unwrap();
        let model = estimated_model(&drawn.cmdp, &counts, StateId(7)).unwrap();
        let mass: Vec<f64> = (0..32).map(|i| 1.0 + f64::from(i * 5 % 7)).collect();
        (model, counts, Policy::from_mass(&behaviour, &mass).unwrap(), drawn.cmdp)
    }

    #[test]
    fn radius_zero_is_the_plain_value_and_bounds_widen() {
        let (model, counts, policy, _) = estimated(0, 20);
        let plain = evaluate(&model, &policy).unwrap().costs[0];
        let data = Occupancy::normalized(8, 4, counts.pair_totals().to_vec()).unwrap();
        let bound = |epsilon, side| {
            let b = coindice_bound(&model, &data, &policy, model.cost(0), epsilon, side).unwrap();
            assert_eq!(b.outcome, Outcome::Solved, "{epsilon} {side:?}");
            b.value
        };
        assert_relative_eq!(bound(0.0, BoundSide::Upper), plain, max_relative = 1e-12);
        let radii = [0.0, 1e-6, 1e-4, 1e-2, 0.1];
        let upper: Vec<f64> = radii.iter().map(|&e| bound(e, BoundSide::Upper)).collect();
        let lower: Vec<f64> = radii.iter().map(|&e| bound(e, BoundSide::Lower)).collect();
        assert!(upper.windows(2).all(|w| w[0] < w[1]) && lower.windows(2).all(|w| w[0] > w[1]));
    }

    /// The derivative that the method climbs, against central differences of the value in `p̃`; and the bound
    /// against other models in the ball: a climb by random
    /// steps, which knows nothing of derivatives, never exceeds it and comes within a hundredth of its width.
    #[test]
    fn derivative_and_rival_models() {
        let triples =
            [(0, 0, 1, 0.4), (0, 0, 2, 0.6), (0, 1, 0, 0.5), (0, 1, 2, 0.5), (1, 0, 0, 0.2), (1, 0, 2, 0.8)];
        let rest = [(1, 1, 1, 0.7), (1, 1, 0, 0.3), (2, 0, 2, 1.0), (2, 1, 2, 1.0)];
        let model = Cmdp::new(CmdpParts {
            transitions: Transitions::from_triples(3, 2, triples.into_iter().chain(rest)).unwrap(),
            episode_end: EpisodeEnd::Absorb,
            reward: vec![0.0; 6],
            costs: vec![vec![0.3, 1.0, 0.6, 0.2, 0.0, 0.0]],
            initial: vec![0.7, 0.3, 0.0],
            gamma: 0.9,
        })
        .unwrap();
        let policy = Policy::new(3, 2, vec![0.6, 0.4, 0.3, 0.7, 0.5, 0.5]).unwrap();
        let data = Occupancy::normalized(3, 2, vec![3.0, 2.0, 1.0, 2.0, 1.0, 1.0]).unwrap();
        let mut ascent = Ascent::new(&model, &data, &policy, model.cost(0));
        let base = ascent.base.clone();
        let now = ascent.evaluate(&base);
        let h = 1e-6;
        for i in 0..base.entries.len() {
            let shifted = |sign: f64| {
                let mut p = base.clone();
                p.entries[i] *= 1.0 + sign * h;
                ascent.evaluate(&p).value
            };
            let slope = (shifted(1.0) - shifted(-1.0)) / (2.0 * h * base.entries[i]);
            // Truncation h²; rounding 1e-16/(h·p) with p ≥ 1/400.
            assert!((slope - now.delta[i]).abs() < 1e-6 * (1.0 + slope.abs()), "{slope} {}", now.delta[i]);
        }
        let epsilon = 0.02;
        let bound = ascent.bound(epsilon);
        let mut random = rng::stream(0, "rivals", 0);
        let (mut best, mut value, mut scale) = (base.clone(), now.value, 0.1);
        for _ in 0..20_000 {
            let mut rival = best.clone();
            for part in [&mut rival.entries, &mut rival.initial] {
                part.iter_mut().for_each(|p| *p *= (scale * (random.random::<f64>() - 0.5)).exp());
                let total: f64 = part.iter().sum();
                part.iter_mut().for_each(|p| *p /= total);
            }
            let reached = ascent.evaluate(&rival).value;
            if ascent.kl(&rival) <= epsilon && reached > value {
                (best, value) = (rival, reached);
                scale *= 1.2;
            } else {
                scale = (scale * 0.98).max(1e-5);
            }
        }
        assert!(value <= bound.value + 1e-9, "{value} {}", bound.value);
        let width = bound.value - now.value;
        assert!(bound.value - value < 0.01 * width, "climbed {value}, bound {}", bound.value);
    }

    /// `w = d̃^π/p̃` satisfies what the dual form says: `E_p̃[w·C] = V`.
    #[test]
    fn ratio_reproduces_the_bound() {
        let (model, counts, policy, _) = estimated(2, 30);
        let data = Occupancy::normalized(8, 4, counts.pair_totals().to_vec()).unwrap();
        let mut ascent = Ascent::new(&model, &data, &policy, model.cost(0));
        let base = ascent.base.clone();
        let now = ascent.evaluate(&base);
        let unsampled: f64 = evaluate(&model, &policy)
            .unwrap()
            .occupancy
            .iter()
            .zip(data.mass())
            .zip(model.cost(0))
            .map(|((&d, &p), &c)| if p > 0.0 { 0.0 } else { d * c })
            .sum();
        let mean: f64 = (0..32).map(|i| data.mass()[i] * now.w[i] * model.cost(0)[i]).sum();
        assert_relative_eq!(mean + unsampled, now.value, max_relative = 1e-12);
        assert_eq!(ascent.bound(0.0).tau, 0.0);
    }

    /// Restart chain at `γ = 1`: one state, an episode ends with probability `q` after each step; the cost is paid
    /// in ending steps. The average is the end probability, so the bound is the coin's of share 1.
    #[test]
    fn undiscounted_restart_chain() {
        let q = 0.25;
        let t = Transitions::from_triples(2, 1, [(0, 0, 1, 1.0 - q), (1, 0, 0, 1.0)]).unwrap();
        let model = Cmdp::new(CmdpParts {
            transitions: t.with_end_probability(vec![q, 0.0]).unwrap(),
            episode_end: EpisodeEnd::Restart,
            reward: vec![0.0; 2],
            costs: vec![vec![0.0, 1.0]],
            initial: vec![1.0, 0.0],
            gamma: 1.0,
        })
        .unwrap();
        // Share of time in state 1: (1−q̃)/(2−q̃).
        let (m, epsilon) = (0.6, 0.01);
        let budget = -((f64::exp(-epsilon) - (1.0 - m)) / m).ln();
        let divergence = |x: f64| x * (x / q).ln() + (1.0 - x) * ((1.0 - x) / (1.0 - q)).ln();
        let (mut inside, mut outside) = (q, 1e-12);
        for _ in 0..100 {
            let middle = 0.5 * (inside + outside);
            if divergence(middle) < budget { inside = middle } else { outside = middle }
        }
        let data = Occupancy::normalized(2, 1, vec![m, 1.0 - m]).unwrap();
        let policy = Policy::uniform(2, 1).unwrap();
        let bound = coindice_bound(&model, &data, &policy, model.cost(0), epsilon, BoundSide::Upper).unwrap();
        assert_eq!(bound.outcome, Outcome::Solved);
        assert_relative_eq!(bound.value, (1.0 - inside) / (2.0 - inside), max_relative = 1e-9);
    }

    #[test]
    fn radii_are_quantiles() {
        // χ²₁: 3.841458820694124 at 95 %, 6.634896601021213 at 99 % (Abramowitz and Stegun, table 26.8).
        assert_relative_eq!(published_radius(0.95, 100), 0.03841458820694124, max_relative = 1e-12);
        assert_relative_eq!(likelihood_radius(0.99, 10), 0.3317448300510607, max_relative = 1e-12);
    }

    /// How often the interval holds the truth, over 200 data sets of 100 episodes in which every pair is sampled:
    /// nominal 90 %, standard error 2.1 %. The published radius covers more (χ²₁ at twice the quantile: 98 %).
    #[test]
    fn coverage_is_nominal() {
        let (mut covered, mut published) = (0, 0);
        let runs = 200;
        for run in 0..runs {
            let (model, counts, policy, truth) = estimated(100 + run, 100);
            let value = evaluate(&truth, &policy).unwrap().costs[0];
            let (data, n) = (
                Occupancy::normalized(8, 4, counts.pair_totals().to_vec()).unwrap(),
                counts.total() as usize,
            );
            let bound =
                |e, side| coindice_bound(&model, &data, &policy, model.cost(0), e, side).unwrap().value;
            let within = |e| bound(e, BoundSide::Lower) <= value && value <= bound(e, BoundSide::Upper);
            covered += usize::from(within(likelihood_radius(0.9, n)));
            published += usize::from(within(published_radius(0.9, n)));
        }
        let share = covered as f64 / runs as f64;
        assert!((0.83..=0.97).contains(&share), "{share}");
        assert!(published >= covered && published as f64 / runs as f64 > 0.93, "{published}");
    }

    #[test]
    fn wrong_shapes_are_refused() {
        let model = coin(0.5, 0.9);
        let data = Occupancy::normalized(3, 1, vec![1.0; 3]).unwrap();
        let policy = Policy::uniform(3, 1).unwrap();
        assert!(coindice_bound(&model, &data, &policy, &[0.0], 0.1, BoundSide::Upper).is_err());
        let other = Policy::uniform(2, 1).unwrap();
        assert!(coindice_bound(&model, &data, &other, model.cost(0), 0.1, BoundSide::Upper).is_err());
    }
}
