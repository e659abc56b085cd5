//! Episodes in step.

use coptidice_core::rng::{Rng, stream};

use super::lane::Lane;
use super::{Crew, EpisodeSink, Episodes};
use crate::env::Environment;
use crate::error::SimError;

/// Environments side by side, and who acts in them. The episodes that are under way take the first rows: where one ends,
/// the last takes its place.
pub(super) struct Convoy<C> {
    crew: C,
    lanes: Vec<Lane>,
    /// Of each row, the place of its episode among those that run.
    places: Vec<usize>,
    rngs: Vec<Rng>,
    /// `[rows * O]` and `[rows * A]`.
    observations: Vec<f32>,
    actions: Vec<f32>,
}

impl<C: Crew> Convoy<C> {
    /// Environments with the parameters of this one, for up to `rows` episodes.
    pub(super) fn new(env: &dyn Environment, rows: usize, crew: C) -> Self {
        Convoy {
            crew,
            lanes: (0..rows).map(|_| Lane::new(env)).collect(),
            places: Vec::with_capacity(rows),
            rngs: Vec::with_capacity(rows),
            observations: vec![0.0; rows * env.spec().observation_dim()],
            actions: vec![0.0; rows * env.spec().action.width()],
        }
    }

    /// Runs `episodes`, no more than there are rows, each to its end, and shows its steps to its sink.
    pub(super) fn run<S: EpisodeSink>(
        &mut self,
        episodes: Episodes,
        mut sinks: Vec<S>,
    ) -> Vec<Result<S, SimError>> {
        let mut failures: Vec<Option<SimError>> = vec![None; sinks.len()];
        self.places.clear();
        self.rngs.clear();
        for (place, failure) in failures.iter_mut().enumerate() {
            let (row, episode) = (self.rngs.len(), episodes.first + place as u64);
            let lane = &mut self.lanes[row];
            if let Err(error) = lane.begin(episode, &mut stream(episodes.seed, "episode", episode)) {
                *failure = Some(error);
                continue;
            }
            let mut rng = stream(episodes.seed, "actor", episode);
            self.crew.begin_episode(row, episode, lane.observation(), &mut rng);
            self.places.push(place);
            self.rngs.push(rng);
        }
        while !self.rngs.is_empty() {
            self.step(&mut sinks, &mut failures);
        }
        let outcome = |(sink, failure): (S, Option<SimError>)| failure.map_or(Ok(sink), Err);
        sinks.into_iter().zip(failures).map(outcome).collect()
    }

    /// One step of every episode under way.
    fn step<S: EpisodeSink>(&mut self, sinks: &mut [S], failures: &mut [Option<SimError>]) {
        let rows = self.lanes.len();
        let (dim, width) = (self.observations.len() / rows, self.actions.len() / rows);
        let under_way = self.rngs.len();
        for (lane, observation) in
            self.lanes.iter().zip(self.observations.chunks_exact_mut(dim)).take(under_way)
        {
            observation.copy_from_slice(lane.observation());
        }
        let observations = &self.observations[..under_way * dim];
        self.crew.act(observations, &mut self.rngs, &mut self.actions[..under_way * width]);
        let mut row = 0;
        while row < self.rngs.len() {
            let (place, action) = (self.places[row], &mut self.actions[row * width..(row + 1) * width]);
            match self.lanes[row].step(action, |step| sinks[place].step(step)) {
                Ok(false) => {
                    row += 1;
                    continue;
                }
                Ok(true) => {}
                Err(error) => failures[place] = Some(error),
            }
            // Over. What takes its place has not moved yet, so that its action comes along.
            let last = self.rngs.len() - 1;
            self.lanes.swap(row, last);
            self.places.swap_remove(row);
            self.rngs.swap_remove(row);
            self.actions.copy_within(last * width..(last + 1) * width, row * width);
            self.crew.end_episode(row, last);
        }
    }
}
