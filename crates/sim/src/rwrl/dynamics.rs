//! Accelerations of the cart-pole, with the slider's soft end stops as the original simulator computes them.
//!
//! Coordinates are `q = (x, θ)`, the cart's position in m and the pole's angle in rad from upright; mass matrix
//! `M(θ)`, all forces but those of the stops in `smooth = M⁻¹(force − bias)`.
//!
//! **The stop.** With `J = ±1` for the lower and upper end and `r` the signed distance to it, the stop is
//! active where `r < 0`. Accelerations minimise the convex function
//!
//! ```text
//! F(a) = ½(a − smooth)ᵀM(a − smooth) + ½D·min(0, J·a − a_ref)² ,   a_ref = −b·J·ẋ − k·d(r)·r
//! ```
//!
//! with `D = 1/R`, `R = (1 − d)/d · invweight`, impedance `d(r)`, and `b`, `k` from a time constant and a
//! damping ratio. With one stop the minimiser is known in closed form (Sherman–Morrison): `a = smooth +
//! M⁻¹Jᵀf`, `f = max(0, a_ref − J·smooth)/(J M⁻¹Jᵀ + R)`.
//!
//! **Stopping early.** The original minimises `F` by Newton's method started at the better of `smooth` and the
//! last acceleration of the step before (`warm`), and stops at a tolerance of 1e-8 on scaled quantities. Where
//! a step enters the stop fast its first iterate can be accepted, and then velocities differ from the
//! minimiser's by about 1e-8: small, but the reward and later steps carry it on. As `F` has two quadratic
//! pieces the iterates are known in closed form too, and [`accelerations`] returns the one that would be
//! accepted.

/// Cart 1 kg, pole 0.1 kg.
const CART_MASS: f64 = 1.0;
const POLE_MASS: f64 = 0.1;
/// Distance of the pole's centre from the hinge, m.
const POLE_CENTRE: f64 = 0.5;
/// Moment of inertia of the pole, a capsule, about its centre, kg m².
const POLE_INERTIA: f64 = 0.009_424_592_767_295_598;
/// m/s².
const GRAVITY: f64 = 9.81;
/// Force on the cart at action 1, N.
const GEAR: f64 = 10.0;
/// Viscous damping of the slider and the hinge.
const SLIDER_DAMPING: f64 = 5e-4;
const HINGE_DAMPING: f64 = 2e-6;

/// The stops are at ±1.8 m.
const STOP: f64 = 1.8;
/// Inverse weight of the slider's limit.
const STOP_INVERSE_WEIGHT: f64 = 0.973_352_054_461_412_8;
/// Reference dynamics: time constant in s; the damping ratio is 1.
const STOP_TIME_CONSTANT: f64 = 0.08;
/// Impedance: from 0.9 at the stop to 0.95 at a depth of 1 mm, by two parabolas that meet in the middle.
const IMPEDANCE_LOW: f64 = 0.9;
const IMPEDANCE_HIGH: f64 = 0.95;
const IMPEDANCE_WIDTH: f64 = 0.001;

/// The original solver's tolerance, on values divided by the trace of the mass matrix.
const SOLVER_TOLERANCE: f64 = 1e-8;

const M11: f64 = CART_MASS + POLE_MASS;
const M22: f64 = POLE_MASS * POLE_CENTRE * POLE_CENTRE + POLE_INERTIA;

pub(super) type Pair = [f64; 2];

/// `(ẍ, θ̈)` at positions `q`, velocities `v`, action `u` in [−1, 1]; `warm` as in the module's documentation.
#[inline]
pub(super) fn accelerations(q: Pair, v: Pair, u: f64, warm: Pair) -> Pair {
    let (sin, cos) = q[1].sin_cos();
    let mass = Mass::at(cos);
    let moment = POLE_MASS * POLE_CENTRE;
    let force = [
        GEAR * u - SLIDER_DAMPING * v[0] + moment * sin * v[1] * v[1],
        moment * GRAVITY * sin - HINGE_DAMPING * v[1],
    ];
    let smooth = mass.solve(force);
    if q[0] < -STOP {
        StopProblem::new(&mass, smooth, 1.0, q[0] + STOP, v[0]).solve(&mass, smooth, warm)
    } else if q[0] > STOP {
        StopProblem::new(&mass, smooth, -1.0, STOP - q[0], v[0]).solve(&mass, smooth, warm)
    } else {
        smooth
    }
}

/// `M(θ)`, symmetric 2×2.
struct Mass {
    m12: f64,
    inverse_determinant: f64,
}

impl Mass {
    #[inline]
    fn at(cos: f64) -> Self {
        let m12 = POLE_MASS * POLE_CENTRE * cos;
        Mass { m12, inverse_determinant: 1.0 / (M11 * M22 - m12 * m12) }
    }

    #[inline]
    fn solve(&self, f: Pair) -> Pair {
        [
            (M22 * f[0] - self.m12 * f[1]) * self.inverse_determinant,
            (M11 * f[1] - self.m12 * f[0]) * self.inverse_determinant,
        ]
    }

    fn times(&self, a: Pair) -> Pair {
        [M11 * a[0] + self.m12 * a[1], self.m12 * a[0] + M22 * a[1]]
    }
}

/// `F` of the module's documentation.
struct StopProblem {
    /// `J`, ±1.
    side: f64,
    /// `a_ref`.
    reference: f64,
    /// `R`.
    regulariser: f64,
    /// `J M⁻¹ Jᵀ`.
    inverse_inertia: f64,
    /// `J·smooth − a_ref`; the stop pushes where it is negative.
    smooth_residual: f64,
}

impl StopProblem {
    fn new(mass: &Mass, smooth: Pair, side: f64, distance: f64, velocity: f64) -> Self {
        let depth = (-distance / IMPEDANCE_WIDTH).min(1.0);
        let blend =
            if depth <= 0.5 { 2.0 * depth * depth } else { 1.0 - 2.0 * (1.0 - depth) * (1.0 - depth) };
        let impedance = IMPEDANCE_LOW + blend * (IMPEDANCE_HIGH - IMPEDANCE_LOW);
        let rate = 1.0 / (IMPEDANCE_HIGH * STOP_TIME_CONSTANT);
        let reference = -2.0 * rate * side * velocity - rate * rate * impedance * distance;
        StopProblem {
            side,
            reference,
            regulariser: (1.0 - impedance) / impedance * STOP_INVERSE_WEIGHT,
            inverse_inertia: M22 * mass.inverse_determinant,
            smooth_residual: side * smooth[0] - reference,
        }
    }

    fn solve(&self, mass: &Mass, smooth: Pair, warm: Pair) -> Pair {
        if self.smooth_residual >= 0.0 {
            return smooth;
        }
        self.accepted_early(mass, smooth, warm).unwrap_or_else(|| self.minimiser(mass, smooth))
    }

    fn minimiser(&self, mass: &Mass, smooth: Pair) -> Pair {
        let force = -self.smooth_residual / (self.inverse_inertia + self.regulariser);
        let push = mass.solve([self.side * force, 0.0]);
        [smooth[0] + push[0], smooth[1] + push[1]]
    }

    /// The iterate other than the minimiser at which the original solver stops, if it does.
    ///
    /// From a point where the stop pushes one Newton step is exact. From a `warm` where it does not, the first
    /// step goes towards `smooth`, to the minimum along that line, and is final if the Newton decrement there
    /// is within tolerance. A start with a gradient within tolerance is final itself.
    fn accepted_early(&self, mass: &Mass, smooth: Pair, warm: Pair) -> Option<Pair> {
        let stiffness = 1.0 / self.regulariser;
        let offset = [warm[0] - smooth[0], warm[1] - smooth[1]];
        let weighted = mass.times(offset);
        let gauss = offset[0] * weighted[0] + offset[1] * weighted[1];
        let warm_residual = self.side * warm[0] - self.reference;
        let warm_value = gauss + stiffness * warm_residual.min(0.0).powi(2);
        if warm_value > stiffness * self.smooth_residual * self.smooth_residual {
            return None; // the solver starts at `smooth`, where the stop pushes
        }
        let gradient = |share: f64, residual: f64| {
            [share * weighted[0] + stiffness * residual.min(0.0) * self.side, share * weighted[1]]
        };
        let scale = 1.0 / (M11 + M22);
        let start = gradient(1.0, warm_residual);
        if scale * start[0].hypot(start[1]) < SOLVER_TOLERANCE {
            return Some(warm);
        }
        if warm_residual < 0.0 {
            return None;
        }
        // a = warm − t·offset; the minimum along the line lies where the stop pushes.
        let slope = self.smooth_residual - warm_residual;
        let t = (gauss - stiffness * warm_residual * slope) / (gauss + stiffness * slope * slope);
        let gradient = gradient(1.0 - t, warm_residual + t * slope);
        // (M + D JᵀJ)⁻¹ by Sherman–Morrison.
        let direction = mass.solve(gradient);
        let correction = direction[0] * direction[0] / (self.regulariser + self.inverse_inertia);
        let decrement = gradient[0] * direction[0] + gradient[1] * direction[1] - correction;
        (scale * 0.5 * decrement < SOLVER_TOLERANCE)
            .then(|| [warm[0] - t * offset[0], warm[1] - t * offset[1]])
    }
}
