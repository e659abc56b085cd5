//! Sampling of episodes from a CMDP under a policy.
//!
//! An episode ends after `max_steps` steps, after a step that ends it by the CMDP's end probability, or after the
//! first step taken *in* an absorbing state: that one self-transition is recorded, as in the reference, so that an
//! estimate from the trajectories knows the state to absorb.
//!
//! A step is one draw. Action and successor are drawn together from `π(a|s)·T(s'|s,a)` by the alias method (Walker
//! 1977, Vose 1991), whose cost does not depend on the number of outcomes.

use coptidice_core::{ActionId, Cmdp, CmdpError, Policy, StateId};
use rand::Rng;

use super::GenerateError;
use crate::counts::Counts;

/// One step of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// Where the action was taken.
    pub state: StateId,
    /// The action.
    pub action: ActionId,
    /// Where it led; `None` if the step ended the episode.
    pub next: Option<StateId>,
}

/// Episodes, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Episodes {
    steps: Vec<StepRecord>,
    /// First step of each episode, and the number of steps as the last entry.
    start: Vec<usize>,
}

impl Episodes {
    /// Number of episodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.start.len().saturating_sub(1)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Steps of all episodes.
    #[must_use]
    pub fn steps(&self) -> &[StepRecord] {
        &self.steps
    }

    /// Steps of one episode.
    #[must_use]
    pub fn episode(&self, index: usize) -> &[StepRecord] {
        &self.steps[self.start[index]..self.start[index + 1]]
    }

    /// The episodes in order.
    pub fn iter(&self) -> impl Iterator<Item = &[StepRecord]> {
        (0..self.len()).map(|i| self.episode(i))
    }

    /// Appends an episode.
    pub fn push(&mut self, steps: impl IntoIterator<Item = StepRecord>) {
        if self.start.is_empty() {
            self.start.push(0);
        }
        self.steps.extend(steps);
        self.start.push(self.steps.len());
    }
}

/// Counts the steps of chosen episodes, each as often as it is chosen.
///
/// # Errors
/// [`CmdpError::Shape`] if a step ended its episode: counts hold successors only; [`CmdpError::Index`] if a step
/// lies outside.
pub fn count_episodes(
    states: usize,
    actions: usize,
    episodes: &Episodes,
    chosen: impl IntoIterator<Item = usize>,
) -> Result<Counts, CmdpError> {
    let mut steps = Vec::new();
    for step in chosen.into_iter().flat_map(|i| episodes.episode(i)) {
        let Some(next) = step.next else {
            return Err(CmdpError::Shape {
                what: "step that ended an episode: successors",
                expected: 1,
                found: 0,
            });
        };
        steps.push((step.state.0, step.action.0, next.0));
    }
    Counts::from_steps(states, actions, steps)
}

/// Draws episodes of one policy in one CMDP.
#[derive(Clone, Debug)]
pub struct TrajectorySampler {
    outcomes: Vec<Outcome>,
    /// `[S+1]`, ranges of `outcomes`.
    row_start: Vec<u32>,
    initial: Vec<Outcome>,
    absorbing: Vec<bool>,
    actions: usize,
}

/// A column of an alias table: itself below the threshold, its alias above.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    threshold: u64,
    own: Move,
    other: Move,
}

/// Action and successor; the successor `ENDED` says that the step ended the episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Move {
    action: u32,
    next: u32,
}

const ENDED: u32 = u32::MAX;

impl TrajectorySampler {
    /// Prepares the tables.
    ///
    /// # Errors
    /// If the policy has another shape than the CMDP.
    pub fn new(cmdp: &Cmdp, policy: &Policy) -> Result<Self, GenerateError> {
        if (policy.states(), policy.actions()) != (cmdp.states(), cmdp.actions()) {
            return Err(GenerateError::Setting {
                field: "policy",
                why: "give one with as many states and actions as the CMDP",
            });
        }
        let mut builder = AliasBuilder::default();
        let mut outcomes = Vec::new();
        let mut row_start = vec![0];
        for s in 0..cmdp.states() {
            builder.clear();
            for (a, &choice) in policy.row(s).iter().enumerate() {
                let pair = s * cmdp.actions() + a;
                let (next, probability) = cmdp.row(pair);
                for (&next, &p) in next.iter().zip(probability) {
                    builder.add(Move { action: a as u32, next }, choice * p);
                }
                let end = cmdp.transitions().end_probability(pair);
                builder.add(Move { action: a as u32, next: ENDED }, choice * end);
            }
            builder.build(&mut outcomes);
            row_start.push(outcomes.len() as u32);
        }
        builder.clear();
        for (s, &p) in cmdp.initial().iter().enumerate() {
            builder.add(Move { action: 0, next: s as u32 }, p);
        }
        let mut initial = Vec::new();
        builder.build(&mut initial);
        let absorbing = (0..cmdp.states()).map(|s| cmdp.is_absorbing(s)).collect();
        Ok(Self { outcomes, row_start, initial, absorbing, actions: cmdp.actions() })
    }

    /// Walks one episode and shows each step `(state, action, next)`; `next` is `None` if the step ended it.
    pub fn walk(
        &self,
        random: &mut impl Rng,
        max_steps: usize,
        mut visit: impl FnMut(u32, u32, Option<u32>),
    ) {
        let mut state = pick(&self.initial, random).next;
        for _ in 0..max_steps {
            let row = self.row_start[state as usize] as usize..self.row_start[state as usize + 1] as usize;
            let step = pick(&self.outcomes[row], random);
            let next = (step.next != ENDED).then_some(step.next);
            visit(state, step.action, next);
            match next {
                Some(next) if !self.absorbing[state as usize] => state = next,
                _ => return,
            }
        }
    }

    /// Draws `episodes` episodes of at most `max_steps` steps.
    pub fn sample(&self, random: &mut impl Rng, episodes: usize, max_steps: usize) -> Episodes {
        let mut all = Episodes { steps: Vec::new(), start: vec![0] };
        for _ in 0..episodes {
            self.walk(random, max_steps, |state, action, next| {
                all.steps.push(StepRecord {
                    state: StateId(state),
                    action: ActionId(action),
                    next: next.map(StateId),
                });
            });
            all.start.push(all.steps.len());
        }
        all
    }

    /// Draws episodes and counts their steps without storing them, on top of `seen` (`[S*A*S]`).
    ///
    /// Steps that end an episode have no successor and are not counted.
    ///
    /// # Panics
    /// If `seen` has another shape.
    pub fn count_into(&self, random: &mut impl Rng, episodes: usize, max_steps: usize, seen: &mut [u32]) {
        let states = self.absorbing.len();
        assert_eq!(seen.len(), states * self.actions * states, "a table over triples");
        for _ in 0..episodes {
            self.walk(random, max_steps, |s, a, next| {
                if let Some(next) = next {
                    seen[(s as usize * self.actions + a as usize) * states + next as usize] += 1;
                }
            });
        }
    }
}

/// The counts of a table `[S*A*S]`.
///
/// # Errors
/// If the table has another shape.
pub fn counts_of_table(states: usize, actions: usize, seen: &[u32]) -> Result<Counts, CmdpError> {
    if seen.len() != states * actions * states {
        let (expected, found) = (states * actions * states, seen.len());
        return Err(CmdpError::Shape { what: "table of counts", expected, found });
    }
    let entries = seen.iter().enumerate().filter(|(_, n)| **n > 0);
    Counts::from_weighted(
        states,
        actions,
        entries.map(|(i, &n)| {
            let (pair, next) = (i / states, i % states);
            ((pair / actions) as u32, (pair % actions) as u32, next as u32, f64::from(n))
        }),
    )
}

/// One draw: the high word of `u·n` is a column, the low word a uniform threshold independent of it up to `n/2^64`.
fn pick(row: &[Outcome], random: &mut impl Rng) -> Move {
    let product = u128::from(random.next_u64()) * row.len() as u128;
    let column = &row[(product >> 64) as usize];
    if (product as u64) < column.threshold { column.own } else { column.other }
}

/// Builds alias tables, keeping its buffers.
#[derive(Default)]
struct AliasBuilder {
    moves: Vec<Move>,
    weight: Vec<f64>,
    small: Vec<usize>,
    large: Vec<usize>,
}

impl AliasBuilder {
    fn clear(&mut self) {
        self.moves.clear();
        self.weight.clear();
    }

    fn add(&mut self, step: Move, probability: f64) {
        if probability > 0.0 {
            self.moves.push(step);
            self.weight.push(probability);
        }
    }

    /// Appends the table of the added moves. Distributions have at least one positive probability, so that it is
    /// never empty.
    fn build(&mut self, table: &mut Vec<Outcome>) {
        let count = self.moves.len();
        let scale = count as f64 / self.weight.iter().sum::<f64>();
        let base = table.len();
        self.small.clear();
        self.large.clear();
        for (i, (w, &own)) in self.weight.iter_mut().zip(&self.moves).enumerate() {
            *w *= scale;
            if *w < 1.0 {
                self.small.push(i)
            } else {
                self.large.push(i)
            }
            // Columns that keep the whole of their mass need no alias.
            table.push(Outcome { threshold: u64::MAX, own, other: own });
        }
        while let (Some(&low), Some(&high)) = (self.small.last(), self.large.last()) {
            self.small.pop();
            // Conversion saturates; 2^64 is exact as a double.
            table[base + low].threshold = (self.weight[low] * 18_446_744_073_709_551_616.0) as u64;
            table[base + low].other = self.moves[high];
            self.weight[high] -= 1.0 - self.weight[low];
            if self.weight[high] < 1.0 {
                self.large.pop();
                self.small.push(high);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::RandomCmdpConfig;
    use coptidice_core::{CmdpParts, EpisodeEnd, Transitions, rng};

    /// State 0 moves on with probability 1/4 under action 1 and stays otherwise; 1 absorbs.
    fn chain(end: bool) -> (Cmdp, Policy) {
        let stay = if end { 0.5 } else { 0.75 };
        let triples = [(0, 0, 0, 1.0), (0, 1, 1, 0.25), (0, 1, 0, stay), (1, 0, 1, 1.0), (1, 1, 1, 1.0)];
        let transitions = Transitions::from_triples(2, 2, triples)
            .unwrap()
            .with_end_probability(vec![0.0, if end { 0.25 } else { 0.0 }, 0.0, 0.0])
            .unwrap();
        let m = Cmdp::new(CmdpParts {
            transitions,
            episode_end: EpisodeEnd::Absorb,
            reward: vec![0.0; 4],
            costs: vec![],
            initial: vec![1.0, 0.0],
            gamma: 0.9,
        })
        .unwrap();
        (m, Policy::new(2, 2, vec![0.2, 0.8, 1.0, 0.0]).unwrap())
    }

    #[test]
    fn episodes_hang_together_and_stop_where_they_should() {
        let (m, policy) = chain(false);
        let sampler = TrajectorySampler::new(&m, &policy).unwrap();
        let episodes = sampler.sample(&mut rng::stream(0, "test", 0), 500, 12);
        assert_eq!(episodes.len(), 500);
        for episode in episodes.iter() {
            assert_eq!(episode[0].state, StateId(0));
            assert!(episode.windows(2).all(|w| w[0].next == Some(w[1].state)));
            let absorbed = episode.iter().filter(|step| step.state == StateId(1)).count();
            assert!(absorbed <= 1, "one self-transition of an absorbing state is recorded");
            assert!(absorbed == 1 || episode.len() == 12);
        }
    }

    #[test]
    fn an_ended_episode_has_no_successor() {
        let (m, policy) = chain(true);
        let episodes =
            TrajectorySampler::new(&m, &policy).unwrap().sample(&mut rng::stream(0, "test", 1), 2000, 1000);
        let ended = episodes.iter().filter(|e| e[e.len() - 1].next.is_none()).count();
        // Of the ways out of state 0, half end the episode. Standard deviation √(2000/4) = 22.
        assert!((ended as f64 - 1000.0).abs() < 110.0, "{ended}");
        assert!(episodes.iter().all(|e| e[..e.len() - 1].iter().all(|step| step.next.is_some())));
    }

    /// Chi-square of the counts of (a, s') in each state against π(a|s)T(s'|s,a), over all states of a random CMDP.
    #[test]
    fn frequencies_match_probabilities() {
        let m = RandomCmdpConfig::default().draw(2, 0).unwrap().cmdp;
        let mut table: Vec<f64> = (0..200).map(|i| 1.0 + f64::from(i * 7 % 11)).collect();
        table[5] = 0.0;
        let policy = Policy::from_mass(&Policy::uniform(50, 4).unwrap(), &table).unwrap();
        let sampler = TrajectorySampler::new(&m, &policy).unwrap();
        let mut random = rng::stream(0, "test", 2);
        let mut counts = vec![0_u32; 50 * 4 * 50];
        for _ in 0..20_000 {
            sampler.walk(&mut random, 50, |s, a, next| {
                counts[(s as usize * 4 + a as usize) * 50 + next.unwrap() as usize] += 1;
            });
        }
        let (mut statistic, mut freedom) = (0.0, -50.0);
        for s in 0..50 {
            let total: u32 = counts[s * 200..(s + 1) * 200].iter().sum();
            for a in 0..4 {
                let (next, probability) = m.row(s * 4 + a);
                for (&t, &p) in next.iter().zip(probability) {
                    let expected = f64::from(total) * policy.row(s)[a] * p;
                    let seen = f64::from(counts[(s * 4 + a) * 50 + t as usize]);
                    if expected > 0.0 {
                        statistic += (seen - expected) * (seen - expected) / expected;
                        freedom += 1.0;
                    } else {
                        assert_eq!(seen, 0.0);
                    }
                }
            }
        }
        // χ² has mean `freedom` and standard deviation √(2·freedom), about 38; six of them.
        assert!((statistic - freedom).abs() < 6.0 * (2.0_f64 * freedom).sqrt(), "{statistic} on {freedom}");
    }

    #[test]
    fn counting_while_walking_is_counting_stored_episodes() {
        let m = RandomCmdpConfig::default().draw(0, 1).unwrap().cmdp;
        let sampler = TrajectorySampler::new(&m, &Policy::uniform(50, 4).unwrap()).unwrap();
        let mut table = vec![0; 50 * 4 * 50];
        sampler.count_into(&mut rng::stream(0, "test", 0), 40, 50, &mut table);
        let episodes = sampler.sample(&mut rng::stream(0, "test", 0), 40, 50);
        let stored = count_episodes(50, 4, &episodes, 0..40).unwrap();
        assert_eq!(counts_of_table(50, 4, &table).unwrap(), stored);
        assert_eq!(stored.total(), episodes.steps().len() as f64);
        assert!(counts_of_table(50, 4, &table[1..]).is_err());
        let (ending, policy) = chain(true);
        let ended = TrajectorySampler::new(&ending, &policy).unwrap();
        let episodes = ended.sample(&mut rng::stream(0, "test", 0), 50, 50);
        assert!(count_episodes(2, 2, &episodes, 0..50).is_err());
    }

    #[test]
    fn a_policy_of_another_shape_is_refused() {
        let (m, _) = chain(false);
        assert!(TrajectorySampler::new(&m, &Policy::uniform(2, 3).unwrap()).is_err());
    }
}
