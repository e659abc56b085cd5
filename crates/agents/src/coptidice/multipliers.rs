//! The scalars of the dual: `lambda` and `tau` of every cost, `mu`, and with a bound at `gamma = 1` `zeta` of every cost.
//!
//! `lambda` and `tau` are held as logarithms, which keeps them positive and lets Adam move them by a constant ratio per
//! step whatever their size. All are in the units of training: scaled reward, and costs divided by the largest
//! logged one, so that a start at `lambda = tau = 1` is sensible whatever the log's units.

use coptidice_nn::{Adam, Pool};

use super::losses::{Bound, TAU_FLOOR};
use crate::learner::StateMut;
use crate::trained::visit_adam;

/// `lambda` is kept above this, scaled reward per scaled cost: a price too small to matter, from which the logarithm
/// can still climb back when a limit begins to bind.
pub(crate) const LAMBDA_MIN: f64 = 1e-4;

/// `tau` is kept above this, in scaled cost. At the floor the bound exceeds its minimum over `tau` by at most
/// `TAU_MIN * epsilon`, or the spread of `ell` is below about `TAU_MIN * sqrt(2 epsilon)`.
pub(crate) const TAU_MIN: f64 = 1e-3;

/// `[log lambda (K), log tau (K), mu, zeta (K or 0)]` with their optimiser.
pub(crate) struct Multipliers {
    costs: usize,
    params: Vec<f32>,
    grads: Vec<f32>,
    adam: Adam,
    log_lambda_max: f32,
    /// `[K]`; zero throughout where nothing is constrained.
    pub(crate) lambda: Vec<f64>,
    /// `[K]`.
    pub(crate) tau: Vec<f64>,
    /// Zero while `gamma < 1`.
    pub(crate) mu: f64,
    /// `[K]` with a bound at `gamma = 1`, else empty.
    pub(crate) zeta: Vec<f64>,
    constrained: bool,
}

impl Multipliers {
    /// Starts at `mu` and `zeta`, the latter empty or `[K]`.
    pub(crate) fn new(
        costs: usize,
        constrained: bool,
        mu: f64,
        zeta: &[f64],
        learning_rate: f32,
        lambda_max: f64,
    ) -> Self {
        let mut params = vec![0.0; 2 * costs];
        params.extend(std::iter::once(&mu).chain(zeta).map(|&start| start as f32));
        let mut multipliers = Multipliers {
            costs,
            grads: vec![0.0; params.len()],
            adam: Adam::new(params.len(), learning_rate),
            params,
            log_lambda_max: lambda_max.ln() as f32,
            lambda: vec![0.0; costs],
            tau: vec![0.0; costs],
            mu,
            zeta: zeta.to_vec(),
            constrained,
        };
        multipliers.refresh();
        multipliers
    }

    /// Recomputes the values from the parameters; needed after the parameters were overwritten.
    pub(crate) fn refresh(&mut self) {
        for k in 0..self.costs {
            let exp = |p: f32| f64::from(p).exp();
            self.lambda[k] = if self.constrained { exp(self.params[k]) } else { 0.0 };
            self.tau[k] = exp(self.params[self.costs + k]) + TAU_FLOOR;
        }
        self.mu = f64::from(self.params[2 * self.costs]);
        for (zeta, &p) in self.zeta.iter_mut().zip(&self.params[2 * self.costs + 1..]) {
            *zeta = f64::from(p);
        }
    }

    /// Sets the gradient: in `log lambda` `[K]` (empty for none), in `tau` and `zeta` as `bounds` say (empty for none), in
    /// `mu`.
    pub(crate) fn set_gradient(&mut self, d_log_lambda: &[f64], bounds: &[Bound], d_mu: f64) {
        self.grads.fill(0.0);
        for (gradient, &d) in self.grads.iter_mut().zip(d_log_lambda) {
            *gradient = d as f32;
        }
        for ((gradient, bound), tau) in self.grads[self.costs..].iter_mut().zip(bounds).zip(&self.tau) {
            // d/d(log) of exp(log) + TAU_FLOOR is exp(log) itself.
            *gradient = ((tau - TAU_FLOOR) * bound.d_tau) as f32;
        }
        self.grads[2 * self.costs] = d_mu as f32;
        for (gradient, bound) in self.grads[2 * self.costs + 1..].iter_mut().zip(bounds) {
            *gradient = bound.d_zeta as f32;
        }
    }

    #[cfg(test)]
    pub(crate) fn gradient(&self) -> &[f32] {
        &self.grads
    }

    pub(crate) fn update(&mut self, pool: &Pool) {
        self.adam.update(&mut self.params, &self.grads, pool);
        let (lambdas, taus) = self.params[..2 * self.costs].split_at_mut(self.costs);
        for p in lambdas {
            *p = p.clamp(LAMBDA_MIN.ln() as f32, self.log_lambda_max);
        }
        for p in taus {
            *p = p.max(TAU_MIN.ln() as f32);
        }
        self.refresh();
    }

    /// Whether `lambda` of cost `k` stands at its upper end.
    pub(crate) fn at_lambda_max(&self, k: usize) -> bool {
        self.constrained && self.params[k] >= self.log_lambda_max
    }

    pub(crate) fn visit_state(&mut self, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        visit("multipliers.params", StateMut::F32(&mut self.params));
        visit_adam(&mut self.adam, "multipliers", visit);
        self.refresh();
    }
}
