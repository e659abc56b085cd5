//! The suite's safety constraints as costs: a state costs 1 where it violates one.

use crate::env::CostSpec;
use crate::error::SimError;
use crate::registry::EnvOptions;
use coptidice_core::CostLimit;

/// In place of names, [`EnvOptions::constraints`] may ask for all.
const ALL: &str = "all";

/// A constraint on states of type `S`.
#[derive(Debug)]
pub(super) struct Constraint<S> {
    /// Name of the cost.
    pub(super) name: &'static str,
    /// When it is violated, for a safety coefficient.
    pub(super) violation: fn(f64) -> String,
    /// Whether a state satisfies it, for a safety coefficient.
    pub(super) satisfied: fn(&S, f64) -> bool,
}

/// What the paper's experiments use of a task's constraints: the first, with these numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paper {
    /// How loose the constraint is: 1 is the suite's own, less is tighter.
    pub(super) safety_coeff: f64,
    /// Limit on the cost per step.
    pub(super) threshold: f64,
}

/// The constraints that cost, as the user or the paper chose them.
#[derive(Debug)]
pub(super) struct Safety<S: 'static> {
    coefficient: f64,
    threshold: f64,
    paper: Paper,
    /// `[K]`.
    chosen: Vec<&'static Constraint<S>>,
    /// The paper's constraint.
    first: &'static str,
}

impl<S> Clone for Safety<S> {
    fn clone(&self) -> Self {
        Safety { chosen: self.chosen.clone(), ..*self }
    }
}

impl<S> Safety<S> {
    /// Resolves the options for the task `name`, of which the paper uses the first constraint of `all`.
    pub(super) fn resolve(
        name: &'static str,
        all: &'static [Constraint<S>],
        paper: Paper,
        options: &EnvOptions,
    ) -> Result<Self, SimError> {
        let positive = |option, value: f64| {
            let fits = value > 0.0 && value.is_finite();
            if fits { Ok(value) } else { Err(SimError::OptionValue { name, option, value }) }
        };
        Ok(Safety {
            coefficient: positive("safety_coeff", options.safety_coeff.unwrap_or(paper.safety_coeff))?,
            threshold: positive("threshold", options.threshold.unwrap_or(paper.threshold))?,
            paper,
            chosen: choose(name, all, &options.constraints)?,
            first: all[0].name,
        })
    }

    /// The costs, `[K]`.
    pub(super) fn specs(&self) -> Vec<CostSpec> {
        self.chosen
            .iter()
            .map(|constraint| CostSpec {
                name: constraint.name.to_owned(),
                description: (constraint.violation)(self.coefficient),
                default_limit: CostLimit::PerStep { limit: self.threshold },
                paper_threshold: (constraint.name == self.first).then_some(self.paper.threshold),
            })
            .collect()
    }

    /// Writes the costs of a state, `[K]`.
    #[inline]
    pub(super) fn costs(&self, state: &S, costs: &mut [f64]) {
        for (cost, constraint) in costs.iter_mut().zip(&self.chosen) {
            *cost = if (constraint.satisfied)(state, self.coefficient) { 0.0 } else { 1.0 };
        }
    }
}

fn choose<S>(
    name: &'static str,
    all: &'static [Constraint<S>],
    asked: &[String],
) -> Result<Vec<&'static Constraint<S>>, SimError> {
    if asked.is_empty() {
        return Ok(vec![&all[0]]);
    }
    if asked.len() == 1 && asked[0] == ALL {
        return Ok(all.iter().collect());
    }
    let mut chosen: Vec<&'static Constraint<S>> = Vec::with_capacity(asked.len());
    for asked in asked {
        let constraint =
            all.iter().find(|constraint| constraint.name == asked.as_str()).ok_or_else(|| {
                let known = all.iter().map(|constraint| constraint.name).chain([ALL]).collect();
                SimError::UnknownConstraint { name, constraint: asked.clone(), known }
            })?;
        if chosen.iter().any(|earlier| earlier.name == constraint.name) {
            return Err(SimError::RepeatedConstraint { name, constraint: asked.clone() });
        }
        chosen.push(constraint);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: Paper = Paper { safety_coeff: 0.5, threshold: 0.1 };
    const CONSTRAINTS: &[Constraint<f64>] = &[
        Constraint { name: "small", violation: |c| format!("{c} or more"), satisfied: |x, c| *x < c },
        Constraint { name: "large", violation: |c| format!("{c} or less"), satisfied: |x, c| *x > c },
    ];

    fn resolve(options: &EnvOptions) -> Result<Safety<f64>, SimError> {
        Safety::resolve("task", CONSTRAINTS, PAPER, options)
    }

    fn asked(constraints: &[&str]) -> EnvOptions {
        EnvOptions {
            constraints: constraints.iter().map(|&name| name.to_owned()).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn the_papers_choice_unless_another_is_asked_for() {
        let names = |options: &EnvOptions| {
            let specs = resolve(options).unwrap().specs();
            specs
                .into_iter()
                .map(|cost| (cost.name, cost.description, cost.paper_threshold))
                .collect::<Vec<_>>()
        };
        let small = ("small".to_owned(), "0.5 or more".to_owned(), Some(0.1));
        let large = ("large".to_owned(), "0.5 or less".to_owned(), None);
        assert_eq!(names(&EnvOptions::default()), std::slice::from_ref(&small));
        assert_eq!(names(&asked(&["all"])), [small.clone(), large.clone()]);
        assert_eq!(names(&asked(&["large", "small"])), [large, small]);
        let options = EnvOptions { safety_coeff: Some(2.0), threshold: Some(0.3), ..asked(&["all"]) };
        let safety = resolve(&options).unwrap();
        assert!(safety.specs().iter().all(|cost| cost.default_limit == CostLimit::PerStep { limit: 0.3 }));
        let mut costs = [9.0; 2];
        safety.costs(&1.5, &mut costs);
        assert_eq!(costs, [0.0, 1.0]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let error = resolve(&asked(&["smal"])).unwrap_err();
        assert!(error.to_string().contains("small, large, all"), "{error}");
        assert!(matches!(resolve(&asked(&["all", "small"])), Err(SimError::UnknownConstraint { .. })));
        assert!(matches!(resolve(&asked(&["small", "small"])), Err(SimError::RepeatedConstraint { .. })));
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let options = EnvOptions { threshold: Some(value), ..EnvOptions::default() };
            assert!(matches!(resolve(&options), Err(SimError::OptionValue { option: "threshold", .. })));
        }
    }
}
