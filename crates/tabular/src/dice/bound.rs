//! The upper bound of a cost for a given `w`, by Newton's method.
//!
//! # Problem
//!
//! `min over τ ≥ 0, χ` of `eq:cost_ub_min_objective`. With `β = 1/τ` and independent `s0`,
//!
//! ```text
//! ℓ = ( log Σ_n p_n exp(β u_n) + log Σ_{s0} p0 exp(β(1−γ)χ(s0)) + ε ) / β
//! u_n = w(s,a)(C(s,a) + γχ(s') − χ(s))                      n = (s,a,s')
//! ```
//!
//! Its stationarity conditions are those of the maximisation (`eq:cost_ub_objective`): under the tilted weights `q`
//! (`eq:cost_ub_weights`) the flow balances, `E_q[g] = 0` with `g` the derivative of the exponent in `χ`, and
//! `KL(q‖p) = ε`. The Hessian in `χ` is `β Cov_q(g)`.
//!
//! Below `γ = 1` the balances add up to `(1−γ)(1 − E_q[w]) = 0`, or to more where mass ends: what is bounded is a mean of
//! costs, or less than one. At `γ = 1` they add up to nothing, and the paper's program would let samples of large `w`
//! raise the bound whatever they cost. There `E_q[w] = 1` is a condition of its own, with the multiplier `ζ`: `u` is less
//! by `ζ(w − 1)`. Where all `w` are one it holds of every measure, and the bound is higher than that of any
//! `w` nearby.
//!
//! # Method
//!
//! For small `ε` the bound is `E_p[u] + sqrt(2ε Var_p(u))`, so that `χ` starts from the least-squares problem
//! `min Var_p(u)` and `β` from `sqrt(2ε/Var)`. Newton's method then runs in `(χ, β)`. In `β`, `KL ≈ β²Var/2`, so
//! that `√KL` is nearly linear: the pivot of `β`, after `χ` is eliminated, is scaled by `(√ε + √KL)/(2√KL)`, which
//! makes the step the one that solves `√KL = √ε`. The matrix stays positive definite, and Armijo's rule on the
//! convex `ℓ` makes the method converge from any start.

use super::samples::Samples;
use super::tilt::{BoundedCost, Tilt};
use crate::linalg::DENSE_LIMIT;
use crate::linalg::spd::{Spd, dot};
use crate::outcome::Outcome;

/// Gap, relative to the scale of the bound, at which `τ` is small enough where the KL constraint is slack: half of what goes
/// by solved.
const SLACK_GAP: f64 = 5e-11;

/// The same where exponents, which grow as the gap shrinks, do not resolve the flow: well within what goes by almost solved.
const COARSE_SLACK_GAP: f64 = 5e-9;

/// Largest factor by which `β` changes in one step.
const BETA_STRIDE: f64 = 8.0;

/// Where the minimisation stands, to start the next one from.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BoundState {
    /// `χ`, `[S]`.
    pub(crate) chi: Vec<f64>,
    /// `ζ`; zero below `γ = 1`.
    pub(crate) zeta: f64,
    /// `1/τ`; zero when nothing has been solved yet.
    pub(crate) beta: f64,
}

/// The bound and what proves it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BoundValue {
    pub(crate) outcome: Outcome,
    /// `ℓ`, cost units per step.
    pub(crate) value: f64,
    pub(crate) tau: f64,
    /// `KL(q‖p)`.
    pub(crate) kl: f64,
    /// `E_q[wC]`: the primal objective. Equal to `value` up to the duality gap.
    pub(crate) tilted_cost: f64,
    /// `max_s |E_q[g]|`, and `|E_q[w] − 1|` at `γ = 1`.
    pub(crate) flow_residual: f64,
    pub(crate) iterations: usize,
}

/// Workspace for one set of samples.
pub(crate) struct BoundSolver<'a> {
    tilt: Tilt<'a>,
    spd: Spd,
    /// States that hold `χ` at `γ = 1`; see [`Tilt::anchors`].
    pins: Vec<usize>,
    /// What holds it. Not the largest diagonal entry: where every step leads back to its own state there is none.
    pin_weight: f64,
    scale: f64,
    slack_gap: f64,
}

/// One Newton direction.
struct Direction {
    chi: Vec<f64>,
    zeta: f64,
    beta: f64,
    /// Derivative of `ℓ` along it, negative.
    slope: f64,
}

/// The inverse of the covariance of the derivatives in `χ` and `ζ`, applied to their mean and to their covariance with
/// `u`: each `[S]`, and the part of `ζ`.
struct Projected {
    of_mean: (Vec<f64>, f64),
    of_covariance: (Vec<f64>, f64),
}

impl<'a> BoundSolver<'a> {
    pub(crate) fn new(samples: &'a Samples) -> Self {
        let n = samples.states;
        let mut links: Vec<[u32; 2]> = Vec::new();
        if n > DENSE_LIMIT {
            for pair in 0..samples.pairs() {
                let s = (pair / samples.actions) as u32;
                links.extend(samples.row(pair).0.iter().filter(|&&t| t != s).map(|&t| [s.min(t), s.max(t)]));
            }
        }
        let spd = Spd::new(n, links.iter().map(|l| &l[..]));
        Self {
            tilt: Tilt::new(samples),
            spd,
            pins: Vec::new(),
            pin_weight: 0.0,
            scale: 0.0,
            slack_gap: SLACK_GAP,
        }
    }

    /// The bound of `cost` for `w` `[S*A]`, from `state` if it holds a previous solution; `state` is updated.
    pub(crate) fn solve(
        &mut self,
        w: &[f64],
        cost: BoundedCost<'_>,
        epsilon: f64,
        state: &mut BoundState,
        max_iterations: usize,
    ) -> BoundValue {
        self.scale = 1.0 + self.tilt.load(w, cost);
        // Beyond that no distribution is out of the radius: every larger one has the same bound.
        let epsilon = epsilon.min(self.tilt.farthest.max(0.0));
        self.pins = self.tilt.anchors();
        self.pin_weight = if self.pins.is_empty() { 0.0 } else { self.tilt.largest_moment() };
        if self.radius(epsilon) < 0.0 {
            // The measure is so far from having mass one that no distribution lies within the radius.
            return BoundValue {
                outcome: Outcome::Infeasible,
                value: f64::NEG_INFINITY,
                tau: f64::INFINITY,
                kl: -self.tilt.log_mass,
                tilted_cost: f64::NAN,
                flow_residual: f64::NAN,
                iterations: 0,
            };
        }
        self.slack_gap = SLACK_GAP;
        let found = self.minimise(epsilon, state, max_iterations);
        if found.outcome != Outcome::IterationLimit || found.kl >= epsilon {
            return found;
        }
        self.slack_gap = COARSE_SLACK_GAP;
        let mut again = BoundState::default();
        let coarse = self.minimise(epsilon, &mut again, max_iterations);
        if coarse.outcome.is_usable() {
            *state = again;
        }
        coarse
    }

    /// From `state` or, where that is worth less, from the least-squares start.
    fn minimise(&mut self, epsilon: f64, state: &mut BoundState, max_iterations: usize) -> BoundValue {
        if !self.tilt.is_normalised() {
            state.zeta = 0.0;
        }
        let mut value = f64::INFINITY;
        if state.chi.len() == self.tilt.samples.states && state.beta > 0.0 {
            value = self.evaluate(state, epsilon);
        }
        // A previous solution far from this problem's (another `w` tilts its exponents wildly) is worth less than
        // the least-squares start.
        if !value.is_finite() || self.tilt.moments.kl + self.tilt.log_mass > 4.0 * self.radius(epsilon) {
            match self.start(epsilon, state) {
                Some(done) => return done,
                None => value = self.evaluate(state, epsilon),
            }
        }
        value = self.settle(state, value, epsilon);
        let (mut iterations, mut blind) = (0, 0);
        let outcome = loop {
            self.tilt.differentiate(&mut self.spd);
            if self.within(1e-12, 1e-12, state.beta, epsilon) {
                break Outcome::Solved;
            }
            if value < -10.0 * self.scale {
                // Every measure that balances the flow costs more than this: there is none within the radius.
                break Outcome::Infeasible;
            }
            if iterations == max_iterations {
                break Outcome::IterationLimit;
            }
            iterations += 1;
            let direction = self.direction(state.beta, epsilon);
            // Half the slope is what Newton's model expects to gain. Below the rounding of `ℓ`, a log-sum of many
            // terms over `β` (errors of n terms add up like √n), values say nothing more: a few full steps are
            // taken on trust, then it is over.
            let terms = self.tilt.samples.stored() as f64;
            let rounding = f64::EPSILON * terms.sqrt().max(16.0) * (value.abs() + 1.0 / state.beta);
            let exhausted = direction.as_ref().is_none_or(|d| -d.slope <= rounding);
            let next = match direction {
                Some(d) if exhausted && blind < 3 => {
                    blind += 1;
                    self.move_blindly(state, &d, epsilon)
                }
                Some(d) if !exhausted => self.backtrack(state, &d, value, epsilon),
                _ => None,
            };
            match next {
                Some(next) => value = next,
                None => {
                    value = self.evaluate(state, epsilon);
                    self.tilt.differentiate(&mut self.spd);
                    // The value errs by the square of the flow residual and by the gap.
                    break if self.within(1e-9, 1e-10, state.beta, epsilon) {
                        Outcome::Solved
                    } else if self.within(1e-6, 1e-7, state.beta, epsilon) {
                        Outcome::AlmostSolved
                    } else {
                        Outcome::IterationLimit
                    };
                }
            }
        };
        let tilted_cost = self.tilt.tilted_cost();
        // A bound is never below the cost of a measure within the radius that balances the flow. Multipliers that ran
        // away can look as if it were.
        let outcome = match outcome {
            Outcome::Solved if value < tilted_cost - 1e-6 * self.scale => Outcome::IterationLimit,
            other => other,
        };
        BoundValue {
            outcome,
            value,
            tau: 1.0 / state.beta,
            kl: self.tilt.moments.kl,
            tilted_cost,
            flow_residual: self.flow_residual(),
            iterations,
        }
    }

    /// `ℓ`, and weights, at a point.
    fn evaluate(&mut self, at: &BoundState, epsilon: f64) -> f64 {
        self.tilt.evaluate(&at.chi, at.zeta, at.beta, epsilon)
    }

    /// Balances the states that only a floor reaches, if that lowers `ℓ`. Weights are current before and after.
    fn settle(&mut self, state: &mut BoundState, value: f64, epsilon: f64) -> f64 {
        let mut settled = state.clone();
        self.tilt.settle_idle(&mut settled.chi, state.beta);
        if settled == *state {
            return value;
        }
        let next = self.evaluate(&settled, epsilon);
        if next <= value {
            *state = settled;
            return next;
        }
        self.evaluate(state, epsilon)
    }

    /// `∂ℓ/∂w`, as `(pair, value)` over the pairs with `w > 0`, at the solution last found.
    pub(crate) fn weight_gradient(&self) -> impl Iterator<Item = (usize, f64)> {
        self.tilt.active.iter().map(|a| (a.pair, a.slope))
    }

    /// `ε` as a radius around the normalised measure: `KL(q‖p) = KL(q‖p/Σp) − ln Σp`.
    fn radius(&self, epsilon: f64) -> f64 {
        epsilon + self.tilt.log_mass
    }

    fn flow_residual(&self) -> f64 {
        let mo = &self.tilt.moments;
        mo.gradient.iter().fold(mo.weight.excess.abs(), |x, g| x.max(g.abs()))
    }

    /// Whether the flow balances within `flow` and the gap `τ|ε − KL|` is within `gap`, relative to the scale. The
    /// gap covers both ends: `KL = ε`, and a radius that is not used up as `τ → 0`.
    fn within(&self, flow: f64, gap: f64, beta: f64, epsilon: f64) -> bool {
        let excess = self.tilt.moments.kl - epsilon;
        self.flow_residual() <= flow && excess.abs() / beta <= gap * self.scale
    }

    /// Starting point from the least-squares problem. Returns the answer where the exponent can be made constant:
    /// then no measure within the radius moves the cost at all, `τ = 0`.
    fn start(&mut self, epsilon: f64, state: &mut BoundState) -> Option<BoundValue> {
        let n = self.tilt.samples.states;
        *state = BoundState { chi: vec![0.0; n], zeta: 0.0, beta: 0.1 };
        let radius = self.radius(epsilon);
        let least = 1e-14 * self.scale;
        let mut at = BoundState { beta: 0.0, ..state.clone() };
        let (mut first, mut unexplained) = (0.0, 0.0);
        for round in 0..3 {
            self.evaluate(&at, epsilon);
            self.tilt.differentiate(&mut self.spd);
            let variance = self.tilt.moments.variance.max(0.0);
            let residual = self.flow_residual();
            if (2.0 * radius * variance).sqrt() <= least && residual <= 1e-9 {
                *state = at;
                return Some(self.constant(residual));
            }
            if round == 0 {
                first = variance;
            }
            let (explained, of_zeta) = self.project()?.of_covariance;
            unexplained = variance - self.along_covariance(&explained, of_zeta);
            at.chi.iter_mut().zip(&explained).for_each(|(c, y)| *c -= y);
            at.zeta -= of_zeta;
            // Where next to nothing is left, the lift of the diagonal may be what leaves it: once more from there.
            if unexplained > 1e-6 * variance {
                break;
            }
        }
        if unexplained > 1e-12 * first {
            at.beta = (2.0 * radius / unexplained).sqrt();
            let at_zero = self.evaluate(state, epsilon);
            if self.evaluate(&at, epsilon) < at_zero {
                *state = at;
            }
        }
        None
    }

    /// The answer where the exponent is constant under the present, untilted weights.
    fn constant(&self, flow_residual: f64) -> BoundValue {
        let value = self.tilt.tilted_cost();
        BoundValue {
            outcome: Outcome::Solved,
            value,
            tau: 0.0,
            kl: 0.0,
            tilted_cost: value,
            flow_residual,
            iterations: 0,
        }
    }

    /// The product of a step in `χ` and `ζ` with the covariance of `u`.
    fn along_covariance(&self, chi: &[f64], zeta: f64) -> f64 {
        let mo = &self.tilt.moments;
        let of_zeta = if zeta == 0.0 { 0.0 } else { zeta * -mo.weight.with_u };
        dot(chi, &mo.covariance) + of_zeta
    }

    /// `None` if no factor exists.
    fn project(&mut self) -> Option<Projected> {
        let s = self.tilt.samples;
        let (n, gamma) = (s.states, s.gamma);
        let mo = &self.tilt.moments;
        let mut border = Vec::with_capacity(6 * n);
        let mut corner_entries: Vec<(usize, usize, f64)> = Vec::new();
        let (mut columns, mut normalisation) = (0, None);
        if s.restarts {
            let mut end_flow = vec![0.0; n];
            for &(t, p) in &s.initial {
                end_flow[t as usize] = -p;
            }
            border.extend_from_slice(&mo.end_column);
            corner_entries.extend([(0, 0, mo.end_corner), (0, 1, 1.0), (1, 0, 1.0)]);
            border.extend_from_slice(&end_flow);
            columns += 2;
        }
        if gamma < 1.0 {
            // Covariance = second moment − mean meanᵀ; each outer product is one column with corner 1.
            border.extend_from_slice(&mo.triple_gradient);
            corner_entries.push((columns, columns, 1.0));
            columns += 1;
            if s.initial.len() > 1 {
                let place = border.len();
                border.resize(place + n, 0.0);
                for (&(t, _), &q) in s.initial.iter().zip(&self.tilt.q_initial) {
                    border[place + t as usize] = (1.0 - gamma) * q;
                    self.spd.add_diagonal(t as usize, (1.0 - gamma).powi(2) * q);
                }
                corner_entries.push((columns, columns, 1.0));
                columns += 1;
            }
        }
        if self.tilt.is_normalised() {
            // The derivative in ζ is −w, centred; those in χ are left as they are: their means vanish at the solution.
            let weight = &mo.weight;
            border.extend(weight.with_flow.iter().map(|x| -x));
            corner_entries.push((columns, columns, weight.variance));
            if s.restarts {
                corner_entries.extend([(0, columns, -weight.with_end), (columns, 0, -weight.with_end)]);
            }
            normalisation = Some(columns);
            columns += 1;
        }
        let mut corner = vec![0.0; columns * columns];
        for (i, j, value) in corner_entries {
            corner[i * columns + j] = value;
        }
        border.extend_from_slice(&mo.gradient);
        border.extend_from_slice(&mo.covariance);
        let largest = self.spd.largest_diagonal().max(self.pin_weight);
        for &pin in &self.pins {
            self.spd.add_diagonal(pin, largest);
        }
        // States without weight have empty rows: the floor leaves them where they are.
        if !self.spd.factor(1e-16 * largest + 1e-300) {
            return None;
        }
        let mut right = vec![0.0; 2 * columns];
        if let Some(place) = normalisation {
            (right[place], right[columns + place]) = (-mo.weight.excess, -mo.weight.with_u);
        }
        self.spd.solve_bordered(columns, &mut border, &corner, &mut right);
        let zeta = |column: usize| normalisation.map_or(0.0, |place| right[column * columns + place]);
        let of_covariance = border.split_off((columns + 1) * n);
        let of_mean = border.split_off(columns * n);
        Some(Projected { of_mean: (of_mean, zeta(0)), of_covariance: (of_covariance, zeta(1)) })
    }

    fn direction(&mut self, beta: f64, epsilon: f64) -> Option<Direction> {
        let Projected { of_mean: (z, z_zeta), of_covariance: (y, y_zeta) } = self.project()?;
        let mo = &self.tilt.moments;
        let tau = 1.0 / beta;
        let unexplained =
            (mo.variance - self.along_covariance(&y, y_zeta)).max(1e-14 * mo.variance).max(1e-300);
        let gradient_beta = -tau * tau * (epsilon - mo.kl);
        let kl = (mo.kl + self.tilt.log_mass).max(1e-300).sqrt();
        let stretch = (self.radius(epsilon).sqrt() + kl) / (2.0 * kl);
        let pivot = stretch * tau * unexplained;
        let mut d_beta = (-gradient_beta + tau * self.along_covariance(&z, z_zeta)) / pivot;
        let stride = if self.flow_residual() > 1e-4 { 2.0 } else { BETA_STRIDE };
        d_beta = d_beta.clamp(-beta * (1.0 - 1.0 / stride), beta * (stride - 1.0));
        // Where the radius is not used up, τ → 0: the gap τ(ε − KL) is negligible well before exponents lose the
        // resolution that balances the flow.
        let beta_limit = self.radius(epsilon).max(1e-6) / (self.slack_gap * self.scale);
        d_beta = d_beta.min((beta_limit - beta).max(0.0));
        let chi: Vec<f64> = z.iter().zip(&y).map(|(&z, &y)| -tau * (z + y * d_beta)).collect();
        let zeta = -tau * (z_zeta + y_zeta * d_beta);
        let slope = dot(&mo.gradient, &chi) - mo.weight.excess * zeta + gradient_beta * d_beta;
        (slope < 0.0).then_some(Direction { chi, zeta, beta: d_beta, slope })
    }

    /// The full step, kept if it brings the residuals down, whatever the value says.
    fn move_blindly(&mut self, state: &mut BoundState, d: &Direction, epsilon: f64) -> Option<f64> {
        let residual = |s: &Self, beta: f64| s.flow_residual() + (s.tilt.moments.kl - epsilon).abs() / beta;
        let before = residual(self, state.beta);
        let next = BoundState {
            chi: state.chi.iter().zip(&d.chi).map(|(&c, &dc)| c + dc).collect(),
            zeta: state.zeta + d.zeta,
            beta: state.beta + d.beta,
        };
        let value = self.evaluate(&next, epsilon);
        self.tilt.differentiate(&mut self.spd);
        if residual(self, next.beta) < before {
            *state = next;
            return Some(value);
        }
        None
    }

    /// Armijo's rule; `None` when no step lowers `ℓ`.
    fn backtrack(&mut self, state: &mut BoundState, d: &Direction, value: f64, epsilon: f64) -> Option<f64> {
        let mut t = 1.0;
        let mut trial = state.clone();
        for _ in 0..40 {
            for ((x, &c), &dc) in trial.chi.iter_mut().zip(&state.chi).zip(&d.chi) {
                *x = c + t * dc;
            }
            (trial.zeta, trial.beta) = (state.zeta + t * d.zeta, state.beta + t * d.beta);
            let next = self.evaluate(&trial, epsilon);
            if next <= value + 1e-4 * t * d.slope {
                *state = trial;
                return Some(next);
            }
            t *= 0.3;
        }
        None
    }
}
