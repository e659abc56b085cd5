//! The learning curves of a training run, from the names that learners log under.
//!
//! | name | meaning |
//! |---|---|
//! | `cost/C`, `cost_reweighted/C`, `cost_bound/C`, `limit/C` | cost `C` per step: estimate, estimate under the bound's weights, upper bound, limit |
//! | `lambda/C`, `tau/C`, `kl/C` | multiplier, temperature of the bound, divergence of its weights |
//! | `reward` | reward per step at the optimum |
//! | `critic/*` | spread of the critics' values between actions, and what the policy's actions gain over the logged ones |
//! | `w/mean`, `w/effective_share`, `w/q05` … `w/max` | occupancy ratio within a batch |
//! | `mu`, `nu/largest`, `loss/*`, `penalty/*` | multipliers, losses and gradient penalties |
//!
//! A run that lacks some of them gets the curves of the others.

use super::curves::{Curve, Curves};
use crate::metrics::History;
use crate::number::significant;
use crate::svg::Axis;

impl<'a> Curves<'a> {
    /// Every curve that the record allows. `epsilon` is the radius of the cost bound, drawn beside its divergence.
    ///
    /// ```
    /// use coptidice_report::metrics::{History, Record};
    /// use coptidice_report::page::{Curves, Report};
    /// let values = [("cost/violation", 0.08), ("cost_bound/violation", 0.09), ("limit/violation", 0.1)];
    /// let values = values.map(|(name, value)| (name.to_owned(), value)).to_vec();
    /// let history = History::from_records(vec![Record { step: 100, values }]);
    /// let page = Report::new("Training report", "run").section(Curves::training(&history, Some(0.01))).html()?;
    /// assert!(page.contains("violation: estimate and upper bound"));
    /// # Ok::<(), coptidice_report::page::ReportError>(())
    /// ```
    #[must_use]
    pub fn training(history: &'a History, epsilon: Option<f64>) -> Self {
        let names = history.names();
        let costs: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("cost/")).collect();
        let mut curves = Curves::new("Learning curves", history);
        for cost in costs {
            curves = of_cost(curves, history, cost, epsilon);
        }
        curves = of_weights(
            curves.curve(Curve::new("Reward of the optimum", "reward per step").metric("reward", "optimum")),
        );
        let loss = |title: &str, name: &str| {
            Curve::new(title, "loss").axis(Axis::linear("loss").robust()).metric(name, name).averaged(0.9)
        };
        curves
            .curve(loss("Loss of nu", "loss/nu"))
            .curve(loss("Loss of lambda", "loss/lambda"))
            .curve(loss("Loss of the critics", "loss/critic"))
            .curve(loss("Loss of the policy", "loss/policy"))
            .curve(
                Curve::new("Worth of the policy's actions over the logged ones", "spreads of the critic")
                    .metric("critic/gain", "gain")
                    .averaged(0.9),
            )
            .curve(Curve::new("Normalisation multiplier", "mu").metric("mu", "mu"))
            .curve(
                Curve::new("Largest value of nu in a batch", "absolute value")
                    .axis(Axis::linear("absolute value").including(0.0).robust())
                    .metric("nu/largest", "nu"),
            )
            .curve(
                Curve::new("Largest gradient norm in the penalty", "norm")
                    .axis(Axis::linear("norm").including(0.0).robust())
                    .metric("penalty/nu_norm", "nu")
                    .metric("penalty/chi_norm", "chi"),
            )
    }
}

fn of_cost<'a>(curves: Curves<'a>, history: &History, cost: &str, epsilon: Option<f64>) -> Curves<'a> {
    let name = |stem: &str| format!("{stem}/{cost}");
    let mut estimate = Curve::new(format!("{cost}: estimate and upper bound"), "cost per step")
        .axis(Axis::linear("cost per step").including(0.0).robust())
        .metric(name("cost"), "estimate")
        .metric(name("cost_bound"), "upper bound")
        .metric(name("cost_reweighted"), "reweighted estimate");
    if let Some(limit) = history.last(&name("limit")) {
        estimate = estimate.reference(limit, format!("limit {}", significant(limit, 4)));
    }
    let mut divergence = Curve::new(format!("{cost}: divergence of the bound's weights"), "KL")
        .axis(Axis::linear("KL").including(0.0).robust())
        .metric(name("kl"), "KL")
        .averaged(0.9);
    if let Some(epsilon) = epsilon {
        divergence = divergence.reference(epsilon, format!("epsilon {}", significant(epsilon, 4)));
    }
    curves
        .curve(estimate)
        .curve(
            Curve::new(format!("{cost}: multiplier"), "reward per cost")
                .from_zero()
                .metric(name("lambda"), "lambda"),
        )
        .curve(
            Curve::new(format!("{cost}: temperature of the bound"), "tau")
                .axis(Axis::logarithmic("tau"))
                .metric(name("tau"), "tau"),
        )
        .curve(divergence)
}

fn of_weights(curves: Curves<'_>) -> Curves<'_> {
    curves
        .curve(
            Curve::new("Mean of w in a batch", "mean of w")
                .axis(Axis::linear("mean of w").robust())
                .metric("w/mean", "mean")
                .reference(1.0, "1: a normalised optimum")
                .averaged(0.9),
        )
        .curve(
            Curve::new("Spread of w in a batch", "w")
                .axis(Axis::logarithmic("w"))
                .metric("w/max", "largest")
                .metric("w/q99", "99%")
                .metric("w/q95", "95%")
                .metric("w/q50", "median")
                .metric("w/q05", "5%"),
        )
        .curve(
            Curve::new("Effective sample size", "share of a batch")
                .axis(Axis::linear("share of a batch").range(0.0, 1.0))
                .metric("w/effective_share", "share")
                .averaged(0.9),
        )
}
