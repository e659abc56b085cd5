//! The tilted distribution `q ∝ p·exp(βu)` over samples and its moments: all sums of the cost bound.
//!
//! Rows that hold every successor are walked as contiguous arrays, which vectorise; other rows go through their
//! index lists.

use super::exponential::exp;
use super::samples::Samples;
use crate::linalg::spd::{Spd, dot};

/// `w` up to which samples are merged: second-order effects are `(1e-9·βχ)²/2`, below rounding for `βχ < 10`.
const MERGE: f64 = 1e-9;

/// Flow that counts as none.
const NO_FLOW: f64 = 1e-15;

/// The cost that is bounded: per pair, less a credit on steps that end the episode.
#[derive(Clone, Copy)]
pub(crate) struct BoundedCost<'a> {
    pub(crate) cost: &'a [f64],
    pub(crate) last_step_credit: f64,
}

/// A pair with `w > MERGE`.
#[derive(Clone, Copy)]
pub(crate) struct Active {
    pub(crate) pair: usize,
    state: usize,
    pub(crate) w: f64,
    cost: f64,
    end_cost: f64,
    /// First sample of the row in `u` and `q`; the row's last entry is its end.
    start: usize,
    /// The row holds every state in order.
    full: bool,
    end_mass: f64,
    /// `Σ_n q_n ∂u_n/∂w`, the derivative of `ℓ` in `w`.
    pub(crate) slope: f64,
}

/// The samples of all other pairs, as one.
#[derive(Default)]
struct Merged {
    mass: f64,
    constant: f64,
    /// Mean `w`.
    weight: f64,
    gradient: Vec<f64>,
    u: f64,
    q: f64,
}

/// Sums under the tilted weights, at the point last evaluated.
#[derive(Default)]
pub(crate) struct Moments {
    /// `E_q[u]` of triples, and of `s0`.
    mean: f64,
    mean_initial: f64,
    /// `KL(q‖p)`; at least `−ln Σp`.
    pub(crate) kl: f64,
    pub(crate) variance: f64,
    /// `E_q[g]`, `[S]`: violation of the flow by the tilted measure.
    pub(crate) gradient: Vec<f64>,
    /// The part of it that comes from `(s,a,s')`.
    pub(crate) triple_gradient: Vec<f64>,
    /// `Cov_q(g,u)`, `[S]`.
    pub(crate) covariance: Vec<f64>,
    diagonal: Vec<f64>,
    /// Coupling of ends to the value of an ended episode: first, mixed and second moments.
    end_flow: f64,
    end_covariance: f64,
    pub(crate) end_column: Vec<f64>,
    pub(crate) end_corner: f64,
    pub(crate) weight: WeightMoments,
}

/// Moments of `w`, by which the measure is normalised at `γ = 1`. The derivative of the exponent in `ζ` is `−w`.
#[derive(Default)]
pub(crate) struct WeightMoments {
    /// `E_q[w]` less what it is held to; zero where it is not held.
    pub(crate) excess: f64,
    /// `Var_q(w)`.
    pub(crate) variance: f64,
    /// `Cov_q(w, u)`.
    pub(crate) with_u: f64,
    /// `Cov_q(w, g)`, `[S]`, without the value of an ended episode.
    pub(crate) with_flow: Vec<f64>,
    /// `Cov_q(w, ·)` with the coupling of ends to that value.
    pub(crate) with_end: f64,
}

/// Distance from one up to which a sum of masses is one: the rounding of a million terms. A radius of zero must not turn
/// out negative by it.
const UNIT_MASS: f64 = 1e-12;

fn log_of_mass(mass: f64) -> f64 {
    if (mass - 1.0).abs() <= UNIT_MASS { 0.0 } else { mass.ln() }
}

/// Exponents, weights and moments.
pub(crate) struct Tilt<'a> {
    pub(crate) samples: &'a Samples,
    arch: pulp::Arch,
    pub(crate) active: Vec<Active>,
    merged: Merged,
    u: Vec<f64>,
    q: Vec<f64>,
    pub(crate) q_initial: Vec<f64>,
    u_initial: Vec<f64>,
    /// `Σ_a q w²` over `(s,s')`, `[S*S]`, for full rows.
    outer: Vec<f64>,
    pub(crate) moments: Moments,
    /// The most that any distribution over the samples diverges from `p`: `Σq ln(q/p) ≤ −ln min p`, of triples and of `s0`.
    pub(crate) farthest: f64,
    /// `ln Σp`, by which `KL(q‖p)` differs from that to the normalised measure.
    pub(crate) log_mass: f64,
    /// What `E_q[w]` is held to at `γ = 1`, if any measure can be far from it.
    normalised_to: Option<f64>,
    /// `ζ` times that, at the point last evaluated.
    slope_offset: f64,
}

/// What programs leave of their normalisation at most: `E_p[w]` this close to one is what the tilted measure's is held
/// to, as it is not the measure's to mend.
const NORMALISED: f64 = 1e-6;

/// Where all `w` are this close to each other the measure is not held at all: what is left between them is rounding and
/// says nothing. The bound jumps there: it falls as soon as `w` tells pairs apart.
const EQUAL: f64 = 1e-9;

impl<'a> Tilt<'a> {
    pub(crate) fn new(samples: &'a Samples) -> Self {
        let n = samples.states;
        let least = |masses: &mut dyn Iterator<Item = f64>| {
            masses.filter(|&p| p > 0.0).fold(f64::INFINITY, f64::min).ln()
        };
        let triples = least(&mut samples.mass.iter().chain(&samples.end_mass).copied());
        let farthest = -triples - least(&mut samples.initial.iter().map(|&(_, p)| p));
        let any_full = (0..samples.pairs()).any(|pair| samples.row(pair).0.len() == n);
        Self {
            samples,
            arch: pulp::Arch::new(),
            active: Vec::new(),
            merged: Merged::default(),
            u: Vec::new(),
            q: Vec::new(),
            q_initial: vec![0.0; samples.initial.len()],
            u_initial: vec![0.0; samples.initial.len()],
            outer: vec![0.0; if any_full && n <= crate::linalg::DENSE_LIMIT { n * n } else { 0 }],
            moments: Moments::default(),
            farthest,
            log_mass: log_of_mass(samples.mass.iter().chain(&samples.end_mass).sum()),
            normalised_to: None,
            slope_offset: 0.0,
        }
    }

    /// Splits pairs into active and merged. Returns the largest `w·|C|`, the scale of the bound.
    pub(crate) fn load(&mut self, w: &[f64], cost: BoundedCost<'_>) -> f64 {
        let s = self.samples;
        self.active.clear();
        self.merged.gradient.clear();
        self.merged.gradient.resize(s.states, 0.0);
        (self.merged.mass, self.merged.constant, self.merged.weight) = (0.0, 0.0, 0.0);
        let (mut start, mut scale, mut mean_weight) = (0, 0.0_f64, 0.0);
        for pair in 0..s.pairs() {
            let (next, mass) = s.row(pair);
            let end_mass = s.end(pair);
            if next.is_empty() && end_mass == 0.0 {
                continue;
            }
            let (c, end_cost) = (cost.cost[pair], cost.cost[pair] - cost.last_step_credit);
            if s.gamma >= 1.0 {
                mean_weight += w[pair] * (mass.iter().sum::<f64>() + end_mass);
            }
            if w[pair] > MERGE {
                let (state, full) = (pair / s.actions, next.len() == s.states && !self.outer.is_empty());
                let w = w[pair];
                self.active.push(Active {
                    pair,
                    state,
                    w,
                    cost: c,
                    end_cost,
                    start,
                    full,
                    end_mass,
                    slope: 0.0,
                });
                start += next.len() + 1;
                scale = scale.max(w * c.abs().max(if end_mass > 0.0 { end_cost.abs() } else { 0.0 }));
                continue;
            }
            let merged = &mut self.merged;
            let row: f64 = mass.iter().sum();
            merged.mass += row + end_mass;
            if w[pair] > 0.0 {
                merged.constant += w[pair] * (row * c + end_mass * end_cost);
                merged.weight += w[pair] * (row + end_mass);
                merged.gradient[pair / s.actions] -= w[pair] * (row + end_mass);
                for (&t, &p) in next.iter().zip(mass) {
                    merged.gradient[t as usize] += w[pair] * s.gamma * p;
                }
                if s.restarts && end_mass > 0.0 {
                    for &(t, p0) in &s.initial {
                        merged.gradient[t as usize] += w[pair] * s.gamma * end_mass * p0;
                    }
                }
            }
        }
        self.moments.weight = WeightMoments::default();
        self.drop_stray_flow();
        if self.merged.mass > 0.0 {
            self.merged.constant /= self.merged.mass;
            self.merged.weight /= self.merged.mass;
            for g in &mut self.merged.gradient {
                *g /= self.merged.mass;
            }
        }
        self.u.resize(start, 0.0);
        self.q.resize(start, 0.0);
        let target = if (mean_weight - 1.0).abs() <= NORMALISED { mean_weight } else { 1.0 };
        let merged = (self.merged.mass > 0.0).then_some(self.merged.weight);
        let mut weights = self.active.iter().map(|a| a.w).chain(merged);
        let held = s.gamma >= 1.0 && weights.any(|w| (w - target).abs() > EQUAL);
        self.normalised_to = held.then_some(target);
        scale
    }

    /// Leaves the flow out of account in states that merged samples alone touch: at most [`MERGE`] of it. To balance
    /// it, their exponents would have to change by as much as those of others, with `χ` of `1/MERGE`; to first
    /// order, which is all that merged samples have, nothing balances it and `χ` runs away.
    fn drop_stray_flow(&mut self) {
        let s = self.samples;
        let mut touched = vec![false; s.states];
        let mut starts = s.gamma < 1.0;
        for a in &self.active {
            touched[a.state] = true;
            s.row(a.pair).0.iter().for_each(|&t| touched[t as usize] = true);
            starts |= s.restarts && a.end_mass > 0.0;
        }
        if starts {
            s.initial.iter().for_each(|&(t, _)| touched[t as usize] = true);
        }
        for (g, touched) in self.merged.gradient.iter_mut().zip(touched) {
            if !touched {
                *g = 0.0;
            }
        }
    }

    /// Whether `E_q[w]` is held to something.
    pub(crate) fn is_normalised(&self) -> bool {
        self.normalised_to.is_some()
    }

    /// Largest `Σ w²p` of a state's active samples: the size of second moments before anything cancels.
    pub(crate) fn largest_moment(&self) -> f64 {
        self.weights().into_iter().fold(0.0, f64::max)
    }

    /// `Σ w²p` over the active samples of each state.
    fn weights(&self) -> Vec<f64> {
        let mut weights = vec![0.0; self.samples.states];
        for a in &self.active {
            let mass: f64 = self.samples.row(a.pair).1.iter().sum();
            weights[a.state] += a.w * a.w * (mass + a.end_mass);
        }
        weights
    }

    /// One state for each constant that may be added to `χ` without changing any exponent: none below `γ = 1`; at
    /// `γ = 1` one for each set of states that active samples link, where the one with most weight stands for all.
    /// A state that no active sample touches must not: the others' constant would stay free, and rounding would carry
    /// it to where costs vanish beside it.
    pub(crate) fn anchors(&self) -> Vec<usize> {
        let s = self.samples;
        if s.gamma < 1.0 {
            return Vec::new();
        }
        // The last node is the end of an episode, which leads to every initial state.
        let end = s.states;
        let mut parent: Vec<usize> = (0..=end).collect();
        let weight = self.weights();
        for a in &self.active {
            s.row(a.pair).0.iter().for_each(|&t| join(&mut parent, a.state, t as usize));
            if s.restarts && a.end_mass > 0.0 {
                join(&mut parent, a.state, end);
                s.initial.iter().for_each(|&(t, _)| join(&mut parent, end, t as usize));
            }
        }
        let mut heaviest: Vec<Option<usize>> = vec![None; end + 1];
        for (state, &w) in weight.iter().enumerate().filter(|(_, w)| **w > 0.0) {
            let set = root(&mut parent, state);
            if heaviest[set].is_none_or(|h| w > weight[h]) {
                heaviest[set] = Some(state);
            }
        }
        heaviest.into_iter().flatten().collect()
    }

    /// `p0ᵀχ` where episodes restart.
    fn end_value(&self, chi: &[f64]) -> f64 {
        let initial = self.samples.initial.iter();
        if self.samples.restarts { initial.map(|&(s, p)| p * chi[s as usize]).sum() } else { 0.0 }
    }

    /// The largest exponent over samples, or a bound of it that some sample attains.
    fn shift(&self, chi: &[f64], pull: impl Fn(f64) -> f64, end_value: f64) -> f64 {
        let s = self.samples;
        let chi_max = chi.iter().fold(f64::NEG_INFINITY, |x, &c| x.max(c));
        let mut shift = if self.merged.mass > 0.0 { self.merged.u } else { f64::NEG_INFINITY };
        for a in &self.active {
            let base = a.w * (a.cost - chi[a.state]) - pull(a.w);
            let reach = a.w * s.gamma;
            if a.full {
                shift = shift.max(base + reach * chi_max);
            } else {
                for &t in s.row(a.pair).0 {
                    shift = shift.max(base + reach * chi[t as usize]);
                }
            }
            if a.end_mass > 0.0 {
                shift = shift.max(a.w * (a.end_cost + s.gamma * end_value - chi[a.state]) - pull(a.w));
            }
        }
        shift
    }

    /// Evaluates exponents and tilted weights at `(χ, ζ, β)`; returns `ℓ`. `β = 0` gives the untilted weights, and
    /// then the value returned has no meaning. `ζ` is zero below `γ = 1`.
    pub(crate) fn evaluate(&mut self, chi: &[f64], zeta: f64, beta: f64, epsilon: f64) -> f64 {
        let s = self.samples;
        let end_value = self.end_value(chi);
        let target = self.normalised_to.unwrap_or(0.0);
        // What the normalisation takes off an exponent. In this form nothing cancels where `w` is close to its mean and
        // `ζ` large.
        let pull = |w: f64| zeta * (w - target);
        self.merged.u = self.merged.constant - pull(self.merged.weight) + dot(&self.merged.gradient, chi);
        self.slope_offset = zeta * target;
        let shift = self.shift(chi, pull, end_value);
        let (active, u, q) = (&self.active, &mut self.u, &mut self.q);
        let (mut total, mut first) = self.arch.dispatch(
            #[inline(always)]
            || {
                let (mut total, mut first) = (0.0, 0.0);
                for a in active {
                    let (next, mass) = s.row(a.pair);
                    let len = next.len();
                    let (u, q) = (&mut u[a.start..=a.start + len], &mut q[a.start..=a.start + len]);
                    let pull = pull(a.w);
                    let (base, reach) = (a.w * (a.cost - chi[a.state]) - pull, a.w * s.gamma);
                    if a.full {
                        tilt_full(&mut u[..len], &mut q[..len], mass, chi, base, reach, beta, shift);
                    } else {
                        for i in 0..len {
                            u[i] = base + reach * chi[next[i] as usize];
                        }
                        tilt_row(&u[..len], &mut q[..len], mass, beta, shift);
                    }
                    u[len] = a.w * (a.end_cost + s.gamma * end_value - chi[a.state]) - pull;
                    q[len] = if a.end_mass > 0.0 { a.end_mass * exp(beta * (u[len] - shift)) } else { 0.0 };
                    let (row_total, row_first) = sums(u, q);
                    total += row_total;
                    first += row_first;
                }
                (total, first)
            },
        );
        let m = &mut self.merged;
        m.q = m.mass * exp(beta * (m.u - shift));
        total += m.q;
        first += m.q * m.u;
        let inverse = 1.0 / total;
        m.q *= inverse;
        for q in &mut self.q {
            *q *= inverse;
        }
        let log_initial = self.evaluate_initial(chi, beta);
        let log_total = beta * shift + total.ln() + log_initial;
        self.moments.mean = first * inverse;
        self.moments.kl = beta * (self.moments.mean + self.moments.mean_initial) - log_total;
        (log_total + epsilon) / beta
    }

    /// Tilted weights of `s0`; returns their log normaliser.
    fn evaluate_initial(&mut self, chi: &[f64], beta: f64) -> f64 {
        let s = self.samples;
        for (u, &(t, _)) in self.u_initial.iter_mut().zip(&s.initial) {
            *u = (1.0 - s.gamma) * chi[t as usize];
        }
        let shift = self.u_initial.iter().fold(f64::NEG_INFINITY, |x, &u| x.max(u));
        let mut total = 0.0;
        for ((q, &u), &(_, p)) in self.q_initial.iter_mut().zip(&self.u_initial).zip(&s.initial) {
            *q = p * exp(beta * (u - shift));
            total += *q;
        }
        for q in &mut self.q_initial {
            *q /= total;
        }
        self.moments.mean_initial = dot(&self.q_initial, &self.u_initial);
        beta * shift + total.ln()
    }

    /// States without an active pair that full rows lead to all the same: only a floor of the measure, of equal
    /// mass from each row, flows in, and only merged samples flow out. Their `χ` is far from zero and Newton's
    /// method, one unit of exponent a step, is slow to find it; here each is set by its own balance equation
    /// `Σ_p γ w_p q_p exp(βγ w_p δ) = outflow`, in logarithms, the other states held. Weights must be current.
    pub(crate) fn settle_idle(&self, chi: &mut [f64], beta: f64) {
        let s = self.samples;
        let mut idle = vec![true; s.states];
        self.active.iter().for_each(|a| idle[a.state] = false);
        if !self.active.iter().any(|a| a.full) {
            return;
        }
        let mut flows: Vec<(f64, f64)> = Vec::with_capacity(self.active.len());
        for t in (0..s.states).filter(|&t| idle[t]) {
            // Without any outflow the inflow must vanish, which it does as χ → −∞: far enough is enough.
            let net = -self.merged.q * self.merged.gradient[t];
            let out = if net == 0.0 { NO_FLOW } else { net };
            flows.clear();
            for a in self.active.iter().filter(|a| a.full) {
                let rate = s.gamma * a.w;
                flows.push((beta * rate, rate * self.q[a.start + t]));
            }
            if out <= 0.0 {
                continue;
            }
            let mut delta = 0.0;
            for _ in 0..30 {
                let (mut inflow, mut slope) = (0.0, 0.0);
                for &(rate, flow) in &flows {
                    let x = flow * exp(rate * delta);
                    inflow += x;
                    slope += rate * x;
                }
                if slope <= 0.0 {
                    break;
                }
                // log inflow is convex in δ with slopes among the rates: Newton's method on it does not cycle.
                let error = (inflow / out).ln();
                delta -= error * inflow / slope;
                if error.abs() < 1e-3 {
                    break;
                }
            }
            if delta.is_finite() {
                chi[t] += delta;
            }
        }
    }

    /// Moments at the point last evaluated, and the second moments of `(s,a,s')` into `spd`, ends apart.
    pub(crate) fn differentiate(&mut self, spd: &mut Spd) {
        let s = self.samples;
        let n = s.states;
        self.outer.fill(0.0);
        spd.clear();
        let mo = &mut self.moments;
        for v in [&mut mo.triple_gradient, &mut mo.covariance, &mut mo.diagonal, &mut mo.end_column] {
            v.clear();
            v.resize(n, 0.0);
        }
        (mo.variance, mo.end_flow, mo.end_covariance, mo.end_corner) = (0.0, 0.0, 0.0, 0.0);
        let (active, u, q, outer) = (&mut self.active, &self.u, &self.q, &mut self.outer);
        let (gamma, slope_offset) = (s.gamma, self.slope_offset);
        self.arch.dispatch(
            #[inline(always)]
            || {
                for a in active.iter_mut() {
                    let next = s.row(a.pair).0;
                    let len = next.len();
                    let (u, q) = (&u[a.start..=a.start + len], &q[a.start..=a.start + len]);
                    let sums = if a.full {
                        let outer = &mut outer[a.state * n..(a.state + 1) * n];
                        full_row(&u[..len], &q[..len], a.w, gamma, mo, outer)
                    } else {
                        sparse_row(&u[..len], &q[..len], next, a, gamma, mo, spd)
                    };
                    finish_row(a, sums, u[len], q[len], gamma, slope_offset, mo);
                }
            },
        );
        self.scatter_outer(spd);
        self.finish_moments();
        if let Some(target) = self.normalised_to {
            self.weigh(target);
        }
        for (i, &d) in self.moments.diagonal.iter().enumerate() {
            spd.add_diagonal(i, d);
        }
    }

    /// Adds the second moments of full rows: `−γ(Q + Qᵀ)` off the diagonal, `γ²` column sums and `−2γQ_ss` on it.
    fn scatter_outer(&mut self, spd: &mut Spd) {
        if self.outer.is_empty() || !self.active.iter().any(|a| a.full) {
            return;
        }
        let (n, gamma) = (self.samples.states, self.samples.gamma);
        let values = spd.dense_mut().expect("full rows are only used with dense storage");
        let diagonal = &mut self.moments.diagonal;
        for (row, q) in self.outer.chunks(n).enumerate() {
            for (d, &x) in diagonal.iter_mut().zip(q) {
                *d += gamma * gamma * x;
            }
            // The stored lower triangle has element (i, j), i ≥ j, at j·n + i.
            for (column, &x) in q[..row].iter().enumerate() {
                values[column * n + row] -= gamma * x;
            }
            for (v, &x) in values[row * n + row + 1..(row + 1) * n].iter_mut().zip(&q[row + 1..]) {
                *v -= gamma * x;
            }
            diagonal[row] -= 2.0 * gamma * q[row];
        }
    }

    fn finish_moments(&mut self) {
        let s = self.samples;
        let (m, mo) = (&self.merged, &mut self.moments);
        mo.variance += m.q * (m.u - mo.mean).powi(2);
        for (t, &g) in m.gradient.iter().enumerate() {
            mo.triple_gradient[t] += m.q * g;
            mo.covariance[t] += m.q * (m.u - mo.mean) * g;
        }
        if s.restarts {
            for &(t, p0) in &s.initial {
                mo.triple_gradient[t as usize] += mo.end_flow * p0;
                mo.covariance[t as usize] += mo.end_covariance * p0;
            }
        }
        mo.gradient.clone_from(&mo.triple_gradient);
        for ((&(t, _), &q), &u) in s.initial.iter().zip(&self.q_initial).zip(&self.u_initial) {
            mo.gradient[t as usize] += (1.0 - s.gamma) * q;
            mo.covariance[t as usize] += (1.0 - s.gamma) * q * (u - mo.mean_initial);
            mo.variance += q * (u - mo.mean_initial).powi(2);
        }
    }

    /// Moments of `w`, all others being current. All are of `w` less its mean: where pairs hardly differ in `w`, nothing
    /// of the difference is lost.
    fn weigh(&mut self, target: f64) {
        let s = self.samples;
        let (m, mo) = (&self.merged, &mut self.moments);
        let rows = || {
            self.active.iter().map(|a| {
                let next = s.row(a.pair).0;
                (a, next, &self.q[a.start..=a.start + next.len()], &self.u[a.start..=a.start + next.len()])
            })
        };
        let v = &mut mo.weight;
        v.excess = m.q * (m.weight - target)
            + rows().map(|(a, _, q, _)| (a.w - target) * q.iter().sum::<f64>()).sum::<f64>();
        let mean = target + v.excess;
        let of_merged = m.q * (m.weight - mean);
        (v.variance, v.with_u, v.with_end) =
            (of_merged * (m.weight - mean), of_merged * (m.u - mo.mean), 0.0);
        v.with_flow.clear();
        v.with_flow.extend(m.gradient.iter().map(|g| of_merged * g));
        for (a, next, q, u) in rows() {
            let (mass, off) = (q.iter().sum::<f64>(), a.w - mean);
            v.variance += off * off * mass;
            v.with_u += off * q.iter().zip(u).map(|(q, u)| q * (u - mo.mean)).sum::<f64>();
            for (&t, &q) in next.iter().zip(q) {
                v.with_flow[t as usize] += off * a.w * s.gamma * q;
            }
            v.with_flow[a.state] -= off * a.w * mass;
            v.with_end += off * a.w * s.gamma * q[next.len()];
        }
    }

    /// `E_q[wC]`.
    pub(crate) fn tilted_cost(&self) -> f64 {
        let active = self.active.iter().map(|a| {
            let row = &self.q[a.start..=a.start + self.samples.row(a.pair).0.len()];
            let (end, steps) = row.split_last().expect("a row holds its end");
            a.w * (a.cost * steps.iter().sum::<f64>() + a.end_cost * end)
        });
        active.sum::<f64>() + self.merged.q * self.merged.constant
    }
}

/// The representative of a node's set.
fn root(parent: &mut [usize], mut node: usize) -> usize {
    while parent[node] != node {
        parent[node] = parent[parent[node]];
        node = parent[node];
    }
    node
}

/// Makes one set of two nodes' sets.
fn join(parent: &mut [usize], a: usize, b: usize) {
    let (a, b) = (root(parent, a), root(parent, b));
    parent[a.max(b)] = a.min(b);
}

/// `Σq`, `Σq(u−ū)`, `Σq(u−ū)²` of a row's steps, and `Σqu`.
struct RowSums {
    mass: f64,
    first: f64,
    second: f64,
    raw: f64,
}

#[inline(always)]
fn tilt_full(
    u: &mut [f64],
    q: &mut [f64],
    mass: &[f64],
    chi: &[f64],
    base: f64,
    reach: f64,
    beta: f64,
    shift: f64,
) {
    let n = u.len();
    let (q, mass, chi) = (&mut q[..n], &mass[..n], &chi[..n]);
    for i in 0..n {
        u[i] = base + reach * chi[i];
        q[i] = mass[i] * exp(beta * (u[i] - shift));
    }
}

#[inline(always)]
fn tilt_row(u: &[f64], q: &mut [f64], mass: &[f64], beta: f64, shift: f64) {
    let n = u.len();
    let (q, mass) = (&mut q[..n], &mass[..n]);
    for i in 0..n {
        q[i] = mass[i] * exp(beta * (u[i] - shift));
    }
}

/// `(Σq, Σqu)`, in four interleaved partial sums so that the loop vectorises; the order is fixed.
#[inline(always)]
fn sums(u: &[f64], q: &[f64]) -> (f64, f64) {
    let (mut total, mut first) = ([0.0; 4], [0.0; 4]);
    let (chunks_u, chunks_q) = (u.chunks_exact(4), q.chunks_exact(4));
    let rest = chunks_u.remainder().iter().zip(chunks_q.remainder());
    let (mut rest_total, mut rest_first) = (0.0, 0.0);
    for (&u, &q) in rest {
        rest_total += q;
        rest_first += q * u;
    }
    for (u, q) in chunks_u.zip(chunks_q) {
        for i in 0..4 {
            total[i] += q[i];
            first[i] += q[i] * u[i];
        }
    }
    let fold = |x: [f64; 4]| (x[0] + x[1]) + (x[2] + x[3]);
    (fold(total) + rest_total, fold(first) + rest_first)
}

#[inline(always)]
fn full_row(u: &[f64], q: &[f64], w: f64, gamma: f64, mo: &mut Moments, outer: &mut [f64]) -> RowSums {
    let n = u.len();
    let mean = mo.mean;
    let (q, outer) = (&q[..n], &mut outer[..n]);
    let (gradient, covariance) = (&mut mo.triple_gradient[..n], &mut mo.covariance[..n]);
    let (reach, square) = (w * gamma, w * w);
    let (mut mass, mut first, mut second, mut raw) = ([0.0; 4], [0.0; 4], [0.0; 4], [0.0; 4]);
    let whole = n - n % 4;
    for i in 0..n {
        let centred = u[i] - mean;
        let weighted = q[i] * centred;
        gradient[i] += reach * q[i];
        covariance[i] += reach * weighted;
        outer[i] += square * q[i];
    }
    for base in (0..whole).step_by(4) {
        for j in 0..4 {
            let i = base + j;
            let weighted = q[i] * (u[i] - mean);
            mass[j] += q[i];
            first[j] += weighted;
            second[j] += weighted * (u[i] - mean);
            raw[j] += q[i] * u[i];
        }
    }
    for i in whole..n {
        let weighted = q[i] * (u[i] - mean);
        mass[0] += q[i];
        first[0] += weighted;
        second[0] += weighted * (u[i] - mean);
        raw[0] += q[i] * u[i];
    }
    let fold = |x: [f64; 4]| (x[0] + x[1]) + (x[2] + x[3]);
    RowSums { mass: fold(mass), first: fold(first), second: fold(second), raw: fold(raw) }
}

#[inline(always)]
fn sparse_row(
    u: &[f64],
    q: &[f64],
    next: &[u32],
    a: &Active,
    gamma: f64,
    mo: &mut Moments,
    spd: &mut Spd,
) -> RowSums {
    let mut sums = RowSums { mass: 0.0, first: 0.0, second: 0.0, raw: 0.0 };
    for ((&u, &q), &t) in u.iter().zip(q).zip(next) {
        let t = t as usize;
        let centred = u - mo.mean;
        sums.mass += q;
        sums.first += q * centred;
        sums.second += q * centred * centred;
        sums.raw += q * u;
        mo.triple_gradient[t] += a.w * gamma * q;
        mo.covariance[t] += a.w * gamma * q * centred;
        let x = q * a.w * a.w;
        mo.diagonal[t] += gamma * gamma * x;
        if t == a.state {
            mo.diagonal[t] -= 2.0 * gamma * x;
        } else {
            spd.add_symmetric(t, a.state, -gamma * x);
        }
    }
    sums
}

/// Adds what depends on the row only through its sums, and its end.
#[inline(always)]
fn finish_row(
    a: &mut Active,
    sums: RowSums,
    u_end: f64,
    q_end: f64,
    gamma: f64,
    slope_offset: f64,
    mo: &mut Moments,
) {
    let centred_end = u_end - mo.mean;
    mo.variance += sums.second + q_end * centred_end * centred_end;
    a.slope = (sums.raw + q_end * u_end - slope_offset * (sums.mass + q_end)) / a.w;
    mo.triple_gradient[a.state] -= a.w * (sums.mass + q_end);
    mo.covariance[a.state] -= a.w * (sums.first + q_end * centred_end);
    mo.diagonal[a.state] += a.w * a.w * (sums.mass + q_end);
    let x = q_end * a.w * gamma;
    mo.end_flow += x;
    mo.end_covariance += x * centred_end;
    mo.end_column[a.state] -= x * a.w;
    mo.end_corner += x * a.w * gamma;
}
