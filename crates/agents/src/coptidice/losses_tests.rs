use coptidice_core::rng::stream;
use proptest::prelude::*;

use super::*;

const SIZE: usize = 7;
const COSTS: usize = 2;

/// A random batch whose every number is of order one.
struct Case {
    rewards: Vec<f32>,
    costs: Vec<f32>,
    discounts: Vec<f32>,
    gamma: f64,
    nu: Vec<f32>,
    chi: Vec<f32>,
    w: Vec<f32>,
    lambda: Vec<f64>,
    tau: Vec<f64>,
    zeta: Vec<f64>,
    limits: Vec<f64>,
    mu: f64,
}

impl Case {
    fn new(seed: u64, gamma: f64) -> Self {
        let mut rng = stream(seed, "loss test", 0);
        let mut draw = |n: usize, low: f32, high: f32| -> Vec<f32> {
            (0..n).map(|_| rng.random_range(low..high)).collect()
        };
        let mut discounts = vec![gamma as f32; SIZE];
        if gamma < 1.0 {
            discounts[2] = 0.0;
        }
        let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<f64>>();
        Case {
            rewards: draw(SIZE, 0.0, 1.0),
            costs: draw(SIZE * COSTS, 0.0, 1.0),
            discounts,
            gamma,
            nu: draw(3 * SIZE, -1.0, 1.0),
            chi: draw(3 * SIZE * COSTS, -1.0, 1.0),
            w: draw(SIZE, 0.0, 3.0),
            lambda: wide(draw(COSTS, 0.1, 2.0)),
            tau: wide(draw(COSTS, 0.3, 2.0)),
            limits: wide(draw(COSTS, 0.0, 1.0)),
            mu: if gamma == 1.0 { f64::from(draw(1, -0.5, 0.5)[0]) } else { 0.0 },
            zeta: if gamma == 1.0 { wide(draw(COSTS, -0.5, 1.0)) } else { Vec::new() },
        }
    }

    fn samples(&self) -> Samples<'_> {
        Samples { rewards: &self.rewards, costs: &self.costs, discounts: &self.discounts, gamma: self.gamma }
    }

    fn flow(&self, alpha: f64, divergence: Divergence) -> (FlowLoss, Vec<f32>, Vec<f32>, Vec<f32>) {
        self.flow_at(None, alpha, divergence)
    }

    fn flow_at(
        &self,
        fitted: Option<&[f32]>,
        alpha: f64,
        divergence: Divergence,
    ) -> (FlowLoss, Vec<f32>, Vec<f32>, Vec<f32>) {
        let (mut e, mut w, mut d_nu) = (vec![0.0; SIZE], vec![0.0; SIZE], vec![0.0; 3 * SIZE]);
        let loss = flow_loss(
            self.samples(),
            &self.nu,
            &self.lambda,
            &self.limits,
            self.mu,
            alpha,
            divergence,
            fitted,
            &mut e,
            &mut w,
            &mut d_nu,
        );
        (loss, e, w, d_nu)
    }

    fn bound(&self, epsilon: f64, form: BoundLoss) -> (Vec<Bound>, Vec<f32>) {
        let mut bounds = vec![Bound::default(); COSTS];
        let mut d_chi = vec![f32::NAN; 3 * SIZE * COSTS];
        let mut ell = vec![0.0; SIZE];
        bound_loss(
            self.samples(),
            &self.w,
            &self.chi,
            &self.tau,
            &self.zeta,
            epsilon,
            form,
            &mut ell,
            &mut d_chi,
            &mut bounds,
        );
        (bounds, d_chi)
    }
}

/// `eq:minmax_objective_gamma1` as it is printed, term by term, at a given `w`.
fn lagrangian(case: &Case, w: &[f64], alpha: f64, divergence: Divergence) -> f64 {
    let n = SIZE as f64;
    let mut value = case.mu;
    for b in 0..SIZE {
        let at = |row: usize| f64::from(case.nu[row]);
        let mut e =
            f64::from(case.rewards[b]) + f64::from(case.discounts[b]) * at(SIZE + b) - at(b) - case.mu;
        for k in 0..COSTS {
            e -= case.lambda[k] * f64::from(case.costs[b * COSTS + k]);
        }
        value += (w[b] * e - alpha * divergence.f(w[b]) + (1.0 - case.gamma) * at(2 * SIZE + b)) / n;
    }
    value + (0..COSTS).map(|k| case.lambda[k] * case.limits[k]).sum::<f64>()
}

/// `eq:cost_ub_min_objective` as it is printed, without the guard against overflow.
fn plain_bound(case: &Case, k: usize, epsilon: f64) -> f64 {
    let mean: f64 = exponents(case, k).iter().map(|l| (l / case.tau[k]).exp()).sum::<f64>() / SIZE as f64;
    case.tau[k] * mean.ln() + case.tau[k] * epsilon
}

fn exponents(case: &Case, k: usize) -> Vec<f64> {
    (0..SIZE)
        .map(|b| {
            let chi = |row: usize| f64::from(case.chi[row * COSTS + k]);
            let step =
                f64::from(case.costs[b * COSTS + k]) + f64::from(case.discounts[b]) * chi(SIZE + b) - chi(b);
            let zeta = case.zeta.get(k).copied().unwrap_or(0.0);
            f64::from(case.w[b]) * (step - zeta) + (1.0 - case.gamma) * chi(2 * SIZE + b) + zeta
        })
        .collect()
}

/// `sum softmax(ell/tau) ell`, the reference form as a function.
fn reweighted(case: &Case, k: usize) -> f64 {
    let ell = exponents(case, k);
    let weights: Vec<f64> = ell.iter().map(|l| (l / case.tau[k]).exp()).collect();
    ell.iter().zip(&weights).map(|(l, w)| l * w).sum::<f64>() / weights.iter().sum::<f64>()
}

/// Central difference in one `f32` place; the step taken is the one that the rounded values really make.
fn slope(case: &mut Case, place: impl Fn(&mut Case) -> &mut f32, value: impl Fn(&Case) -> f64) -> f64 {
    let middle = *place(case);
    let (low, high) = (middle - 1e-3, middle + 1e-3);
    *place(case) = low;
    let below = value(case);
    *place(case) = high;
    let above = value(case);
    *place(case) = middle;
    (above - below) / (f64::from(high) - f64::from(low))
}

// Tolerance of the difference quotients below: truncation is h^2/6 = 1.7e-7 times a third derivative, which for numbers
// of order one divided by alpha or tau >= 0.3 stays below 100 (1/0.3^3 is 37, over B = 7 samples); rounding of an f64
// value of order 10 over a step of 2e-3 is 1e-12; gradients are rounded to f32, 6e-8 relative. Together 2e-5.
const TOLERANCE: f64 = 2e-5;

#[test]
fn flow_value_is_the_printed_lagrangian_at_its_maximiser() {
    for (seed, gamma) in [(1, 0.9), (2, 1.0), (3, 0.5)] {
        for divergence in Divergence::ALL {
            let case = Case::new(seed, gamma);
            let (loss, e, w, _) = case.flow(0.7, divergence);
            let wide: Vec<f64> = w.iter().map(|&v| f64::from(v)).collect();
            // `w` is a maximiser, so that its rounding to f32 enters in second order only.
            assert!((loss.value - lagrangian(&case, &wide, 0.7, divergence)).abs() < 1e-12, "{divergence}");
            for b in 0..SIZE {
                // Both are rounded to single precision; no ratio here moves by more than 40 for one of its argument.
                let from_advantage = divergence.weight(f64::from(e[b]) / 0.7);
                assert!((from_advantage - wide[b]).abs() < 1e-5, "{divergence}: {} at {}", w[b], e[b]);
                for rival in [0.0, wide[b] * 0.9, wide[b] + 0.1] {
                    let mut other = wide.clone();
                    other[b] = rival;
                    assert!(lagrangian(&case, &other, 0.7, divergence) <= loss.value + 1e-12);
                }
            }
        }
    }
}

#[test]
fn flow_gradient_matches_differences() {
    for (seed, gamma) in [(4, 0.9), (5, 1.0)] {
        for divergence in Divergence::ALL {
            let mut case = Case::new(seed, gamma);
            let (alpha, (_, _, _, d_nu)) = (0.7, case.flow(0.7, divergence));
            for row in 0..3 * SIZE {
                let expected = slope(&mut case, |c| &mut c.nu[row], |c| c.flow(alpha, divergence).0.value);
                assert!((f64::from(d_nu[row]) - expected).abs() < TOLERANCE, "{divergence} nu[{row}]");
            }
        }
    }
}

/// All samples being of one state and action, the problem's advantage is the mean of theirs, `alpha g(mean e/alpha)` stands
/// in its objective, and the plain loss is larger by Jensen's inequality.
#[test]
fn at_the_mean_advantage_value_and_gradient_are_those_of_the_problem() {
    for (seed, gamma) in [(6, 0.9), (7, 1.0)] {
        for divergence in Divergence::ALL {
            let (mut case, alpha) = (Case::new(seed, gamma), 0.7);
            let mean = |case: &Case| {
                let (_, e, _, _) = case.flow(alpha, divergence);
                e.iter().map(|&e| f64::from(e)).sum::<f64>() / SIZE as f64
            };
            let rest = |case: &Case| {
                let starts: f64 = case.nu[2 * SIZE..].iter().map(|&nu| f64::from(nu)).sum();
                let multipliers: f64 = case.lambda.iter().zip(&case.limits).map(|(l, limit)| l * limit).sum();
                (1.0 - gamma) * starts / SIZE as f64 + multipliers + case.mu
            };
            let fitted = vec![mean(&case) as f32; SIZE];
            let (loss, _, _, d_nu) = case.flow_at(Some(&fitted), alpha, divergence);
            // The mean is handed over in single precision, 6e-8 relative, and w is at most of order 10.
            let problem = |case: &Case, mean: f64| alpha * divergence.conjugate(mean / alpha) + rest(case);
            assert!((loss.value - problem(&case, f64::from(fitted[0]))).abs() < 1e-12, "{divergence}");
            assert!(case.flow(alpha, divergence).0.value > loss.value + 1e-3, "{divergence}");
            for row in 0..3 * SIZE {
                // Of e in double precision: that of single precision is too coarse for differences.
                let exact_mean = |case: &Case| {
                    (0..SIZE)
                        .map(|b| advantage(case.samples(), &case.nu, &case.lambda, case.mu, b))
                        .sum::<f64>()
                        / SIZE as f64
                };
                let expected = slope(&mut case, |c| &mut c.nu[row], |c| problem(c, exact_mean(c)));
                assert!((f64::from(d_nu[row]) - expected).abs() < TOLERANCE, "{divergence} nu[{row}]");
            }
        }
    }
}

/// The multipliers' gradients: in `mu` it is `1 - mean(w)`; in `lambda` it is `limit - mean(w c)`, which is what
/// [`multiplier_loss`] descends where no bound is trained.
#[test]
fn multiplier_gradients_match_differences_of_the_dual() {
    let (alpha, h) = (0.7, 1e-5);
    for divergence in Divergence::ALL {
        let mut case = Case::new(6, 1.0);
        let (loss, _, w, _) = case.flow(alpha, divergence);
        let mut difference = |change: &dyn Fn(&mut Case, f64)| {
            change(&mut case, h);
            let above = case.flow(alpha, divergence).0.value;
            change(&mut case, -2.0 * h);
            let below = case.flow(alpha, divergence).0.value;
            change(&mut case, h);
            (above - below) / (2.0 * h)
        };
        let in_mu = difference(&|case, h| case.mu += h);
        let in_lambda: Vec<f64> = (0..COSTS).map(|k| difference(&|case, h| case.lambda[k] += h)).collect();
        // Rounding of the value over the step, 1e-16/1e-5, and of w to f32.
        assert!((loss.d_mu - in_mu).abs() < 1e-6);
        let estimates: Vec<f64> = (0..COSTS)
            .map(|k| (0..SIZE).map(|b| f64::from(w[b]) * f64::from(case.costs[b * COSTS + k])).sum::<f64>())
            .map(|sum| sum / SIZE as f64)
            .collect();
        let mut d_log = vec![0.0; COSTS];
        let value = multiplier_loss(&case.lambda, &case.limits, &estimates, &mut d_log);
        assert!((value - d_log.iter().sum::<f64>()).abs() < 1e-15);
        for k in 0..COSTS {
            assert!((d_log[k] - case.lambda[k] * in_lambda[k]).abs() < 1e-6);
        }
    }
}

#[test]
fn bound_value_and_gradient_match_the_printed_form() {
    for (seed, gamma) in [(7, 0.9), (8, 1.0)] {
        let mut case = Case::new(seed, gamma);
        let epsilon = 0.05;
        let (bounds, d_chi) = case.bound(epsilon, BoundLoss::Paper);
        for k in 0..COSTS {
            assert!((bounds[k].value - plain_bound(&case, k, epsilon)).abs() < 1e-13);
            assert_eq!(bounds[k].value, bounds[k].descended);
            for row in 0..3 * SIZE {
                let place = row * COSTS + k;
                let expected = slope(&mut case, |c| &mut c.chi[place], |c| plain_bound(c, k, epsilon));
                assert!((f64::from(d_chi[place]) - expected).abs() < TOLERANCE, "chi[{row},{k}]");
            }
            let h = 1e-5;
            case.tau[k] += h;
            let above = plain_bound(&case, k, epsilon);
            case.tau[k] -= 2.0 * h;
            let below = plain_bound(&case, k, epsilon);
            case.tau[k] += h;
            assert!((bounds[k].d_tau - (above - below) / (2.0 * h)).abs() < 1e-8);
            assert!((bounds[k].d_tau - (epsilon - bounds[k].kl)).abs() < 1e-15);
            if gamma < 1.0 {
                assert_eq!(bounds[k].d_zeta, 0.0, "it belongs to gamma = 1");
                continue;
            }
            case.zeta[k] += h;
            let above = plain_bound(&case, k, epsilon);
            case.zeta[k] -= 2.0 * h;
            let below = plain_bound(&case, k, epsilon);
            case.zeta[k] += h;
            assert!((bounds[k].d_zeta - (above - below) / (2.0 * h)).abs() < 1e-8);
        }
    }
}

#[test]
fn reference_form_descends_the_reweighted_mean() {
    let mut case = Case::new(9, 0.9);
    let (paper, _) = case.bound(0.05, BoundLoss::Paper);
    let (bounds, d_chi) = case.bound(0.05, BoundLoss::Reference);
    for k in 0..COSTS {
        assert!((bounds[k].descended - reweighted(&case, k)).abs() < 1e-13);
        assert_eq!((bounds[k].d_tau, bounds[k].value), (paper[k].d_tau, paper[k].value));
        assert_eq!(bounds[k].cost(BoundLoss::Reference, 0.0), bounds[k].reweighted_cost);
        for row in 0..3 * SIZE {
            let place = row * COSTS + k;
            let expected = slope(&mut case, |c| &mut c.chi[place], |c| reweighted(c, k));
            assert!((f64::from(d_chi[place]) - expected).abs() < TOLERANCE);
        }
    }
}

#[test]
fn the_reweighted_form_changes_only_what_lambda_follows() {
    let case = Case::new(12, 0.9);
    let (paper, d_paper) = case.bound(0.05, BoundLoss::Paper);
    let (bounds, d_chi) = case.bound(0.05, BoundLoss::Reweighted);
    assert_eq!((&bounds, &d_chi), (&paper, &d_paper));
    for bound in bounds {
        assert_eq!(bound.cost(BoundLoss::Paper, 9.0), bound.value);
        assert_eq!(bound.cost(BoundLoss::Reweighted, -9.0), bound.reweighted_cost);
        assert_eq!(bound.cost(BoundLoss::Reweighted, 9.0), 9.0, "never below the plain estimate");
    }
}

#[test]
fn a_tiny_temperature_gives_the_largest_term_and_stays_finite() {
    let mut case = Case::new(10, 0.9);
    case.w.fill(1e6);
    case.tau.fill(TAU_FLOOR);
    let (bounds, d_chi) = case.bound(0.01, BoundLoss::Paper);
    for k in 0..COSTS {
        let top = exponents(&case, k).into_iter().fold(f64::NEG_INFINITY, f64::max);
        // tau log mean exp lies within tau log B of the largest term.
        assert!((bounds[k].value - top).abs() <= TAU_FLOOR * 3.0 + 1e-9 * top.abs());
        assert!((bounds[k].kl - (SIZE as f64).ln()).abs() < 1e-9, "all weight on one of B samples");
    }
    assert!(d_chi.iter().all(|d| d.is_finite()));
}

#[test]
fn overflowing_ratios_are_reported_not_hidden() {
    let mut case = Case::new(11, 0.9);
    case.rewards[0] = 1000.0;
    let (loss, _, w, _) = case.flow(0.1, Divergence::Kl);
    assert!(!w[0].is_finite() && !loss.value.is_finite());
    case.w = w;
    assert!(!case.bound(0.01, BoundLoss::Paper).0[0].value.is_finite());
}

proptest! {
    /// Jensen: the bound is never below the mean of `ell`; and where `chi = 0` that is the plain cost estimate.
    #[test]
    fn the_bound_is_above_the_plain_estimate(seed in 0..1000_u64, epsilon in 0.0..1.0f64) {
        let mut case = Case::new(seed, 0.9);
        case.chi.fill(0.0);
        let (bounds, _) = case.bound(epsilon, BoundLoss::Paper);
        for k in 0..COSTS {
            let plain = exponents(&case, k).iter().sum::<f64>() / SIZE as f64;
            prop_assert!(bounds[k].value >= plain + case.tau[k] * epsilon - 1e-12);
            prop_assert!(bounds[k].reweighted_cost >= plain - 1e-7, "tilting towards cost cannot lower it");
            prop_assert!(bounds[k].kl >= 0.0);
        }
    }
}
