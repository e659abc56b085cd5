//! The same program in other units has the same solution.

use coptidice_core::{Cmdp, Divergence};
use coptidice_tabular::Outcome;
use coptidice_tabular::dice::{self, BoundProblem, CostBound, Effort, Problem, Samples, Solution};

use crate::instances::{Instance, drawn};

/// An instance with limits per episode, where episodes restart: costs less a credit at ends, under a limit of zero.
struct Program {
    instance: Instance,
    costs: Vec<Vec<f64>>,
    credits: Vec<f64>,
    alpha: f64,
}

impl Program {
    fn new(mut i: Instance) -> Self {
        let mut parts = i.model.clone().into_parts();
        let (costs, k) = (parts.costs.clone(), i.limits.len());
        let mut credits = vec![0.0; k];
        if i.model.restarts() && i.model.gamma() >= 1.0 {
            credits = i.limits.iter().map(|l| 4.0 * l).collect();
            i.limits.fill(0.0);
        }
        for (cost, credit) in parts.costs.iter_mut().zip(&credits) {
            for (pair, c) in cost.iter_mut().enumerate() {
                *c -= credit * parts.transitions.end_probability(pair);
            }
        }
        i.model = Cmdp::new(parts).unwrap();
        Self { instance: i, costs, credits, alpha: 0.05 }
    }

    /// With rewards `r` and costs `c` times as large.
    fn times(&self, r: f64, c: f64) -> Self {
        let scale = |x: &Vec<f64>| x.iter().map(|v| v * c).collect::<Vec<f64>>();
        let mut parts = self.instance.model.clone().into_parts();
        parts.reward.iter_mut().for_each(|x| *x *= r);
        parts.costs = parts.costs.iter().map(scale).collect();
        Self {
            instance: Instance {
                model: Cmdp::new(parts).unwrap(),
                data: self.instance.data.clone(),
                limits: scale(&self.instance.limits),
            },
            costs: self.costs.iter().map(scale).collect(),
            credits: scale(&self.credits),
            alpha: self.alpha * r,
        }
    }

    /// Without and with bounds, and the bounds of the former's `w`.
    fn solve(&self) -> (Solution, Solution, Vec<CostBound>) {
        let i = &self.instance;
        let problem = Problem {
            model: &i.model,
            data_occupancy: &i.data,
            limits: &i.limits,
            divergence: Divergence::Chi2,
            alpha: self.alpha,
        };
        let samples = Samples::from_model(&i.model, &i.data).unwrap();
        let bound = BoundProblem {
            samples: &samples,
            epsilon: 1e-3,
            weight_floor: 0.0,
            costs: &self.costs,
            last_step_credits: &self.credits,
        };
        let effort = Effort::default();
        let naive = dice::coptidice_naive(&problem, None, effort).unwrap();
        let bounds = (0..i.limits.len())
            .map(|k| dice::cost_bound(&i.model, &bound, k, &naive.w, effort).unwrap())
            .collect();
        (naive, dice::coptidice(&problem, &bound, None, effort).unwrap(), bounds)
    }
}

/// By powers of 1024, bit for bit, multipliers and bounds with their units.
#[test]
fn units_that_are_powers_of_1024_change_no_digit() {
    let (r, c) = (2.0_f64.powi(30), 2.0_f64.powi(-20));
    let times = |x: &[f64], f: f64| x.iter().map(|v| v * f).collect::<Vec<f64>>();
    for index in 0..30 {
        let program = Program::new(drawn(index, 1..3).0);
        let (naive, conservative, bounds) = program.solve();
        let (other_naive, other_conservative, other_bounds) = program.times(r, c).solve();
        // Without a solution there may be no `w` at all to bound the costs of, and nothing to tell their size by.
        if naive.outcome.is_usable() {
            assert_eq!(
                bounds.iter().map(|b| b.value * c).collect::<Vec<_>>(),
                other_bounds.iter().map(|b| b.value).collect::<Vec<_>>()
            );
        }
        for (a, b) in [(naive, other_naive), (conservative, other_conservative)] {
            assert_eq!((a.outcome, &a.w, times(&a.nu, r)), (b.outcome, &b.w, b.nu), "{index}");
            assert_eq!(
                (a.mu * r, times(&a.lambda, r / c), times(&a.costs, c)),
                (b.mu, b.lambda, b.costs),
                "{index}"
            );
            let values = |s: &[CostBound], f: f64| {
                s.iter().map(|x| (x.value * f, x.tau * f, times(&x.chi, f))).collect::<Vec<_>>()
            };
            assert_eq!(values(&a.bounds, c), values(&b.bounds, 1.0), "{index}");
            let (a, b) = (a.certificate, b.certificate);
            assert_eq!((a.objective * r, a.dual_objective * r), (b.objective, b.dual_objective), "{index}");
            assert_eq!((a.limit_excess * c, a.complementarity * r), (b.limit_excess, b.complementarity));
        }
    }
}

/// What is solved is solved in any units, with the same `w`. That is found to a flow residual of at most 1e-9, and
/// conditions of a hundred or so lie between one and the other.
#[test]
fn outcomes_do_not_depend_on_units() {
    for index in 0..30 {
        let program = Program::new(drawn(index, 1..3).0);
        let (naive, conservative, _) = program.solve();
        for (r, c) in [(1e5, 1.0), (1e-9, 1.0), (1.0, 1e-4), (1.0, 1e9), (3e7, 2e-6)] {
            let (other_naive, other_conservative, _) = program.times(r, c).solve();
            for (a, b) in [(&naive, other_naive), (&conservative, other_conservative)] {
                assert_eq!(a.outcome, b.outcome, "{index} {r} {c}: {:?}", b.certificate);
                if a.outcome == Outcome::Solved {
                    let off =
                        a.w.iter().zip(&b.w).map(|(x, y)| (x - y).abs() / (1.0 + x)).fold(0.0, f64::max);
                    assert!(off <= 1e-6, "{index} {r} {c}: off by {off}");
                }
            }
        }
    }
}
