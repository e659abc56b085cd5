//! The policy: everything needed to act, checked once.

use super::{
    ActError, Acting, ActionBatch, ActionUnit, Actor, Head, Normalizer, PolicyAbout, PolicyDefect, Selector,
};
use coptidice_core::rng::{self, Rng};
use coptidice_nn::{Network, Pool};
use rayon::prelude::*;
use std::sync::Arc;

/// Observations worked on at once by the batch methods: enough to fill the matrix products, small enough to stay
/// in cache.
const CHUNK: usize = 512;

/// The parts of a policy, put together by a learner; [`Policy::new`] checks that they fit.
#[derive(Clone, Debug)]
pub struct PolicyParts {
    /// Normalised observations `[O]` to the head's outputs.
    pub network: Network,
    /// The network's parameters, laid out as [`Network::layout`].
    pub params: Vec<f32>,
    /// What the outputs mean.
    pub head: Head,
    /// Applied to every observation before the network.
    pub normalizer: Normalizer,
    /// How actions are chosen unless said otherwise.
    pub acting: Acting,
    /// Lower bounds of the action, `[A]`: the least logged. Actions are clipped, so that none is taken outside the
    /// range seen. Empty for finitely many actions.
    pub action_low: Vec<f32>,
    /// Upper bounds, `[A]`; empty for finitely many actions.
    pub action_high: Vec<f32>,
    /// In what the head counts continuous actions; in the action's own units where there is none.
    pub action_unit: Option<ActionUnit>,
    /// What [`Acting::Select`] selects by.
    pub selector: Option<Selector>,
    /// Where the policy comes from.
    pub about: PolicyAbout,
}

/// A policy that can act. Cheap to clone: clones share the parameters.
#[derive(Clone, Debug)]
pub struct Policy {
    parts: Arc<PolicyParts>,
}

impl Policy {
    /// Checks that the parts fit each other and that every number is usable.
    ///
    /// # Errors
    /// The first [`PolicyDefect`] found.
    pub fn new(parts: PolicyParts) -> Result<Self, PolicyDefect> {
        let head = parts.head.validated()?;
        let spec = parts.network.spec();
        if spec.output != head.outputs() {
            return Err(PolicyDefect::Outputs { network: spec.output, head: head.outputs() });
        }
        let bounded = if head.is_discrete() { 0 } else { head.action_width() };
        let vectors = [
            ("params", &parts.params, spec.parameter_count()),
            ("normalizer.mean", &parts.normalizer.mean, spec.input),
            ("normalizer.scale", &parts.normalizer.scale, spec.input),
            ("action.low", &parts.action_low, bounded),
            ("action.high", &parts.action_high, bounded),
        ];
        for (tensor, values, expected) in vectors {
            check_vector(&parts.network, "", tensor, values, expected)?;
        }
        if let Some(ActionUnit { middle, half }) = &parts.action_unit {
            check_vector(&parts.network, "", "action.middle", middle, bounded)?;
            check_vector(&parts.network, "", "action.half", half, bounded)?;
            if let Some(dimension) = half.iter().position(|&half| half <= 0.0) {
                return Err(PolicyDefect::ActionUnit { dimension, half: half[dimension] });
            }
        }
        if let Some(column) = parts.normalizer.scale.iter().position(|&scale| scale <= 0.0) {
            return Err(PolicyDefect::Scale { column, scale: parts.normalizer.scale[column] });
        }
        for (dimension, (&low, &high)) in parts.action_low.iter().zip(&parts.action_high).enumerate() {
            if low > high {
                return Err(PolicyDefect::Bounds { dimension, low, high });
            }
        }
        match &parts.selector {
            Some(selector) => check_selector(selector, head, spec.input)?,
            None if parts.acting == Acting::Select => return Err(PolicyDefect::NoSelector),
            None => {}
        }
        let actions = if head.is_discrete() { head.outputs() } else { head.action_width() };
        parts.about.check(spec.input, actions)?;
        Ok(Self { parts: Arc::new(parts) })
    }

    /// The network, from normalised observations to the head's outputs.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.parts.network
    }

    /// The network's parameters.
    #[must_use]
    pub fn params(&self) -> &[f32] {
        &self.parts.params
    }

    /// The head.
    #[must_use]
    pub fn head(&self) -> Head {
        self.parts.head
    }

    /// The observation's normaliser.
    #[must_use]
    pub fn normalizer(&self) -> &Normalizer {
        &self.parts.normalizer
    }

    /// How actions are chosen unless said otherwise.
    #[must_use]
    pub fn acting(&self) -> Acting {
        self.parts.acting
    }

    /// Lower bounds of the action; empty for finitely many actions.
    #[must_use]
    pub fn action_low(&self) -> &[f32] {
        &self.parts.action_low
    }

    /// Upper bounds of the action; empty for finitely many actions.
    #[must_use]
    pub fn action_high(&self) -> &[f32] {
        &self.parts.action_high
    }

    /// In what the head counts continuous actions; in the action's own units where there is none.
    #[must_use]
    pub fn action_unit(&self) -> Option<&ActionUnit> {
        self.parts.action_unit.as_ref()
    }

    /// What [`Acting::Select`] selects by.
    #[must_use]
    pub fn selector(&self) -> Option<&Selector> {
        self.parts.selector.as_ref()
    }

    /// Where the policy comes from.
    #[must_use]
    pub fn about(&self) -> &PolicyAbout {
        &self.parts.about
    }

    /// Columns of an observation.
    #[must_use]
    pub fn observation_width(&self) -> usize {
        self.parts.normalizer.columns()
    }

    /// Numbers per action: the dimensions, or 1 (the index) for finitely many actions.
    #[must_use]
    pub fn action_width(&self) -> usize {
        self.parts.head.action_width()
    }

    /// The same policy, choosing its actions in another way.
    ///
    /// # Errors
    /// [`PolicyDefect::NoSelector`].
    pub fn with_acting(&self, acting: Acting) -> Result<Self, PolicyDefect> {
        if acting == Acting::Select && self.selector().is_none() {
            return Err(PolicyDefect::NoSelector);
        }
        Ok(Self { parts: Arc::new(PolicyParts { acting, ..(*self.parts).clone() }) })
    }

    /// The parts, for changing some and building another policy.
    #[must_use]
    pub fn to_parts(&self) -> PolicyParts {
        (*self.parts).clone()
    }

    /// Something that acts step by step, in the policy's own way.
    #[must_use]
    pub fn actor(&self) -> Actor {
        self.actor_with(self.acting())
    }

    /// Something that acts step by step, in the way given; it refuses to act by `Select` without a selector.
    #[must_use]
    pub fn actor_with(&self, acting: Acting) -> Actor {
        Actor::new(self.clone(), acting)
    }

    /// Actions for many observations, `[N * O]` to `[N * action_width]`, clipped to the bounds.
    ///
    /// Row `i` draws, where `acting` draws at all, from the stream `("act_batch", i)` of `seed`.
    ///
    /// # Errors
    /// [`ActError`] naming the row.
    pub fn act_batch(
        &self,
        observations: &[f32],
        acting: Acting,
        seed: u64,
        pool: &Pool,
    ) -> Result<Vec<f32>, ActError> {
        let (columns, width) = (self.observation_width(), self.action_width());
        let mut actions = vec![0.0; self.rows(observations)? * width];
        let actor = self.actor_with(acting);
        let chunk = |actor: &mut Actor, index: usize, observations: &[f32], actions: &mut [f32]| {
            let first = index * CHUNK;
            let rows = first..first + actions.len() / width;
            let mut rngs: Vec<Rng> = rows.map(|row| rng::stream(seed, "act_batch", row as u64)).collect();
            actor.act_rows(observations, &mut rngs, actions).map_err(|error| error.after(first))
        };
        if pool.threads() == 1 {
            let mut actor = actor;
            let chunks = observations.chunks(CHUNK * columns).zip(actions.chunks_mut(CHUNK * width));
            for (index, (observations, actions)) in chunks.enumerate() {
                chunk(&mut actor, index, observations, actions)?;
            }
        } else {
            let results: Vec<Result<(), ActError>> = pool.install(|| {
                let chunks =
                    observations.par_chunks(CHUNK * columns).zip(actions.par_chunks_mut(CHUNK * width));
                chunks
                    .enumerate()
                    .map_init(
                        || actor.clone(),
                        |actor, (index, (observations, actions))| chunk(actor, index, observations, actions),
                    )
                    .collect()
            });
            // The first of them, whichever came first.
            results.into_iter().collect::<Result<(), ActError>>()?;
        }
        Ok(actions)
    }

    /// `log π(a|s)` of `N` logged actions: a log-density per dimension's unit for continuous actions (before
    /// clipping), a log-probability for discrete ones.
    ///
    /// # Errors
    /// [`ActError`] if the actions are of another kind, number or range, or an observation is unusable.
    pub fn log_prob(
        &self,
        observations: &[f32],
        actions: ActionBatch<'_>,
        pool: &Pool,
    ) -> Result<Vec<f32>, ActError> {
        let rows = self.rows(observations)?;
        self.check_actions(actions, rows)?;
        let width = self.action_width();
        let mut values = vec![0.0; rows];
        let inside;
        let mut log_volume = 0.0;
        let actions = match (actions, &self.parts.action_unit) {
            (ActionBatch::Continuous(all), Some(unit)) => {
                let mut all = all.to_vec();
                unit.enter(&mut all);
                inside = all;
                log_volume = unit.half.iter().map(|half| half.ln()).sum::<f32>();
                ActionBatch::Continuous(&inside)
            }
            (actions, _) => actions,
        };
        self.for_chunks(observations, pool, |first, outputs| {
            let count = outputs.len() / self.head().outputs();
            let range = first..first + count;
            let chunk = match actions {
                ActionBatch::Continuous(all) => {
                    ActionBatch::Continuous(&all[first * width..range.end * width])
                }
                ActionBatch::Discrete(all) => ActionBatch::Discrete(&all[range.clone()]),
            };
            self.head().log_prob(outputs, chunk, &mut values[range], pool);
        })?;
        values.iter_mut().for_each(|value| *value -= log_volume);
        Ok(values)
    }

    /// `π(·|s)` of every observation, `[N * actions]`, for a policy with finitely many actions.
    ///
    /// # Errors
    /// [`ActError::Continuous`] for continuous actions, or the unusable observation.
    pub fn probabilities(&self, observations: &[f32], pool: &Pool) -> Result<Vec<f32>, ActError> {
        let Head::Categorical { actions } = self.head() else {
            return Err(ActError::Continuous);
        };
        let mut values = vec![0.0; self.rows(observations)? * actions];
        self.for_chunks(observations, pool, |first, outputs| {
            let into = &mut values[first * actions..][..outputs.len()];
            for (logits, out) in outputs.chunks_exact(actions).zip(into.chunks_exact_mut(actions)) {
                super::acting::softmax(logits, out);
            }
        })?;
        Ok(values)
    }

    /// Clips an action of the head to the bounds; does nothing to an index.
    pub(super) fn clip(&self, action: &mut [f32]) {
        let Some(ActionUnit { middle, half }) = &self.parts.action_unit else {
            return self.clip_outside(action);
        };
        let bounds = self.parts.action_low.iter().zip(&self.parts.action_high);
        let units = middle.iter().zip(half);
        for ((action, (&low, &high)), (&middle, &half)) in action.iter_mut().zip(bounds).zip(units) {
            *action = action.clamp((low - middle) / half, (high - middle) / half);
        }
    }

    /// Clips an action, in its own units, to the bounds.
    fn clip_outside(&self, action: &mut [f32]) {
        let bounds = self.parts.action_low.iter().zip(&self.parts.action_high);
        for (action, (&low, &high)) in action.iter_mut().zip(bounds) {
            *action = action.clamp(low, high);
        }
    }

    /// Turns clipped actions of the head into actions, in the logged range.
    pub(super) fn leave(&self, actions: &mut [f32]) {
        let Some(unit) = &self.parts.action_unit else { return };
        unit.leave(actions);
        // What comes back from the range's ends may be beyond them by a rounding.
        actions.chunks_exact_mut(unit.middle.len()).for_each(|action| self.clip_outside(action));
    }

    /// Checks one observation's length and values; `row` is named in the error.
    pub(super) fn check_observation(&self, observation: &[f32], row: usize) -> Result<(), ActError> {
        let expected = self.observation_width();
        if observation.len() != expected {
            return Err(ActError::ObservationLength { expected, found: observation.len() });
        }
        match observation.iter().position(|x| !x.is_finite()) {
            Some(column) => Err(ActError::NotFinite { row, column, value: observation[column] }),
            None => Ok(()),
        }
    }

    fn rows(&self, observations: &[f32]) -> Result<usize, ActError> {
        let columns = self.observation_width();
        if observations.len().is_multiple_of(columns) {
            Ok(observations.len() / columns)
        } else {
            Err(ActError::Rows { columns, found: observations.len() })
        }
    }

    fn check_actions(&self, actions: ActionBatch<'_>, rows: usize) -> Result<(), ActError> {
        let wrong = |reason: String| Err(ActError::Actions { reason });
        match (self.head(), actions) {
            (Head::Mixture { action_dim, .. }, ActionBatch::Continuous(values)) => {
                if values.len() == rows * action_dim {
                    Ok(())
                } else {
                    wrong(format!("{} values for {rows} actions of {action_dim} dimensions", values.len()))
                }
            }
            (Head::Categorical { actions: count }, ActionBatch::Discrete(values)) => {
                if values.len() != rows {
                    return wrong(format!("{} actions for {rows} observations", values.len()));
                }
                match values.iter().position(|&action| action as usize >= count) {
                    Some(row) => wrong(format!("action {} in row {row}, of {count}", values[row])),
                    None => Ok(()),
                }
            }
            (Head::Mixture { .. }, _) => wrong("it takes continuous actions".to_owned()),
            (Head::Categorical { .. }, _) => wrong("it takes indices of actions".to_owned()),
        }
    }

    /// Runs the network over chunks of rows and hands on `(first row, outputs)`.
    fn for_chunks(
        &self,
        observations: &[f32],
        pool: &Pool,
        mut take: impl FnMut(usize, &[f32]),
    ) -> Result<(), ActError> {
        let columns = self.observation_width();
        let outputs_width = self.head().outputs();
        let most = CHUNK.min(self.rows(observations)?);
        let mut cache = self.network().cache(most);
        let mut normalized = vec![0.0; most * columns];
        for (chunk, observations) in observations.chunks(CHUNK * columns).enumerate() {
            let (first, rows) = (chunk * CHUNK, observations.len() / columns);
            for (i, observation) in observations.chunks_exact(columns).enumerate() {
                self.check_observation(observation, first + i)?;
            }
            let normalized = &mut normalized[..observations.len()];
            self.normalizer().apply(observations, normalized);
            // As after the network: an infinity that enters it need not come out.
            if let Some(bad) = normalized.iter().position(|x| !x.is_finite()) {
                return Err(ActError::Overflow { row: first + bad / columns });
            }
            let outputs = self.network().forward(self.params(), normalized, rows, &mut cache, pool);
            if let Some(bad) = outputs.iter().position(|x| !x.is_finite()) {
                return Err(ActError::Overflow { row: first + bad / outputs_width });
            }
            take(first, outputs);
        }
        Ok(())
    }
}

/// Checks the length and the values of a vector; that of a network's parameters, called `params`, is taken apart to name
/// the place.
fn check_vector(
    network: &Network,
    owner: &str,
    vector: &str,
    values: &[f32],
    expected: usize,
) -> Result<(), PolicyDefect> {
    if values.len() != expected {
        let tensor = format!("{owner}{vector}");
        return Err(PolicyDefect::TensorShape {
            tensor,
            expected: vec![expected],
            found: vec![values.len()],
        });
    }
    let Some(index) = values.iter().position(|x| !x.is_finite()) else { return Ok(()) };
    let inside =
        network.layout().iter().find(|slice| (slice.offset..slice.offset + slice.len).contains(&index));
    Err(match inside {
        Some(slice) if vector == "params" => {
            PolicyDefect::NotFinite { tensor: format!("{owner}{}", slice.name), index: index - slice.offset }
        }
        _ => PolicyDefect::NotFinite { tensor: format!("{owner}{vector}"), index },
    })
}

fn check_selector(selector: &Selector, head: Head, columns: usize) -> Result<(), PolicyDefect> {
    let network = &selector.network;
    selector.check(head, columns)?;
    check_vector(network, "selector.", "params", &selector.params, network.parameter_count())?;
    for (tensor, values) in selector.vectors() {
        check_vector(network, "", tensor, values, values.len())?;
    }
    Ok(())
}
