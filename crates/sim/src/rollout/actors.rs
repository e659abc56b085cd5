//! Who chooses the actions.

use coptidice_core::rng::Rng;

/// Chooses actions in one episode at a time.
///
/// An actor may keep scratch and, from [`Actor::begin_episode`] on, a memory of the episode; what it does may
/// depend on nothing older, or results would depend on which actor ran which episode.
pub trait Actor {
    /// Called with the number and the first observation `[O]` of an episode, before [`Actor::act`] is called with the
    /// same observation.
    fn begin_episode(&mut self, episode: u64, observation: &[f32], rng: &mut Rng) {
        let _ = (episode, observation, rng);
    }

    /// Writes the action for an observation `[O]`: `[A]`, or an id in one component. Continuous components are
    /// clipped to the environment's bounds afterwards.
    fn act(&mut self, observation: &[f32], rng: &mut Rng, action: &mut [f32]);
}

impl<F: FnMut(&[f32], &mut Rng, &mut [f32])> Actor for F {
    fn act(&mut self, observation: &[f32], rng: &mut Rng, action: &mut [f32]) {
        self(observation, rng, action);
    }
}

/// Chooses actions in several episodes that run in step, each in a row of its own.
///
/// What it does in a row may depend on that row's episode alone, as with [`Actor`], and on no other row: how many
/// episodes run in step, and which, depends on the number of threads.
pub trait Crew {
    /// An episode begins in `row`, which is the number of those under way so far; otherwise as [`Actor::begin_episode`].
    fn begin_episode(&mut self, row: usize, episode: u64, observation: &[f32], rng: &mut Rng) {
        let _ = (row, episode, observation, rng);
    }

    /// The episode in `row` is over. That of row `last`, which may be the same, goes on in `row`.
    fn end_episode(&mut self, row: usize, last: usize) {
        let _ = (row, last);
    }

    /// Writes the actions `[B * A]` for the observations `[B * O]` of the `B` episodes under way; row `b` draws from
    /// `rngs[b]`. An action is what it is for [`Actor::act`].
    fn act(&mut self, observations: &[f32], rngs: &mut [Rng], actions: &mut [f32]);
}

impl<F: FnMut(&[f32], &mut [Rng], &mut [f32])> Crew for F {
    fn act(&mut self, observations: &[f32], rngs: &mut [Rng], actions: &mut [f32]) {
        self(observations, rngs, actions);
    }
}

/// A crew of actors, one for each row.
#[derive(Clone, Debug)]
pub struct OneByOne<A> {
    actors: Vec<A>,
}

impl<A: Actor> Crew for OneByOne<A> {
    fn begin_episode(&mut self, row: usize, episode: u64, observation: &[f32], rng: &mut Rng) {
        self.actors[row].begin_episode(episode, observation, rng);
    }

    fn end_episode(&mut self, row: usize, last: usize) {
        self.actors.swap(row, last);
    }

    fn act(&mut self, observations: &[f32], rngs: &mut [Rng], actions: &mut [f32]) {
        let rows = rngs.len();
        let observations = observations.chunks_exact(observations.len() / rows);
        let actions = actions.chunks_exact_mut(actions.len() / rows);
        for (((actor, rng), observation), action) in
            self.actors.iter_mut().zip(rngs).zip(observations).zip(actions)
        {
            actor.act(observation, rng, action);
        }
    }
}

/// Makes a crew for each thread.
///
/// A closure `Fn(&[f32], &mut Rng, &mut [f32]) + Sync` without memory is one; [`PerRow`] wraps a function that makes
/// actors with scratch or memory, and [`PerThread`] one that makes crews.
pub trait CrewSource: Sync {
    /// What it makes; may borrow from the source.
    type Crew<'a>: Crew
    where
        Self: 'a;

    /// A new crew, for up to `rows` episodes in step.
    fn crew(&self, rows: usize) -> Self::Crew<'_>;
}

impl<F: Fn(&[f32], &mut Rng, &mut [f32]) + Sync> CrewSource for F {
    type Crew<'a>
        = OneByOne<&'a F>
    where
        F: 'a;

    fn crew(&self, rows: usize) -> OneByOne<&F> {
        OneByOne { actors: vec![self; rows] }
    }
}

/// A function that makes actors, as a source of crews in which each row has one.
#[derive(Clone, Copy, Debug)]
pub struct PerRow<F>(pub F);

impl<A: Actor, F: Fn() -> A + Sync> CrewSource for PerRow<F> {
    type Crew<'a>
        = OneByOne<A>
    where
        F: 'a;

    fn crew(&self, rows: usize) -> OneByOne<A> {
        OneByOne { actors: (0..rows).map(|_| (self.0)()).collect() }
    }
}

/// A function that makes crews, as a source of them.
#[derive(Clone, Copy, Debug)]
pub struct PerThread<F>(pub F);

impl<C: Crew, F: Fn() -> C + Sync> CrewSource for PerThread<F> {
    type Crew<'a>
        = C
    where
        F: 'a;

    fn crew(&self, _: usize) -> C {
        (self.0)()
    }
}
