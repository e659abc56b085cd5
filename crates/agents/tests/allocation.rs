//! Nothing is allocated while acting, in the policy's loss, in a step of training, or in an update of the online learner.

use coptidice_agents::cdmpo::{self, CdmpoConfig, SimulatedStep, Simulator, SimulatorError, SimulatorFacts};
use coptidice_agents::config::Extraction;
use coptidice_agents::policy::{
    Acting, ActionBatch, Actor, Candidates, Head, Normalizer, Policy, PolicyAbout, PolicyParts, Selector,
};
use coptidice_agents::problem::Problem;
use coptidice_agents::registry::ALGORITHMS;
use coptidice_agents::sampler::Sampler;
use coptidice_agents::{LogFacts, Observer, RawConfig, TrainIo};
use coptidice_core::rng::{Rng, stream};
use coptidice_data::{ActionSpace, Schema, Step, StepAction, Transitions, TransitionsBuilder};
use coptidice_nn::{Activation, BlockSpec, Network, NetworkSpec, Pool};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting this thread's requests.
struct Counting;

// SAFETY: every request is passed on to the system's allocator unchanged; counting touches only a thread-local
// integer that needs no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

fn policy(head: Head) -> Policy {
    let blocks = vec![
        BlockSpec::Dense { width: 32, layer_norm: true, activation: Activation::Tanh },
        BlockSpec::Residual { width: 24 },
    ];
    let network = Network::new(NetworkSpec { input: 4, blocks, output: head.outputs() })
        .expect("the widths are positive");
    let bounded = if head.is_discrete() { 0 } else { head.action_width() };
    Policy::new(PolicyParts {
        params: network.init(&mut stream(0, "allocation", 0)),
        network,
        head,
        normalizer: Normalizer::identity(4),
        acting: Acting::Mean,
        action_low: vec![-1.0; bounded],
        action_high: vec![1.0; bounded],
        action_unit: None,
        selector: None,
        about: PolicyAbout::new("test", 0, 0, "none"),
    })
    .expect("the parts fit")
}

const HEADS: [Head; 2] =
    [Head::Mixture { action_dim: 3, components: 5, min_scale: 1e-4 }, Head::Categorical { actions: 6 }];

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![0_u8; 100]))), 1);
}

#[test]
fn acting_allocates_nothing() {
    for head in HEADS {
        let policy = policy(head);
        for acting in Acting::OF_HEAD {
            let mut actor = policy.actor_with(acting);
            let mut rng = stream(0, "allocation", 1);
            let mut action = vec![0.0; policy.action_width()];
            let count = allocations(|| {
                for step in 0..10 {
                    actor.act(&[step as f32, 0.5, -0.5, 1.0], &mut rng, &mut action).unwrap();
                }
            });
            assert_eq!(count, 0, "{head:?} {acting}");
            in_step_allocates_nothing(&mut actor);
        }
    }
}

/// Once there were as many observations.
fn in_step_allocates_nothing(actor: &mut Actor) {
    let mut rngs = [0; 9].map(|_| stream(0, "allocation", 3));
    let mut actions = vec![0.0; 9 * actor.policy().action_width()];
    actor.act_rows(&[0.5; 36], &mut rngs, &mut actions).unwrap();
    let count = allocations(|| actor.act_rows(&[0.7; 36], &mut rngs, &mut actions).unwrap());
    assert_eq!(count, 0, "{}", actor.acting());
}

/// A critic of one cost with two candidates, or for all likely actions.
fn selector(head: Head) -> Selector {
    let (input, output, candidates) = if head.is_discrete() {
        (4, 2 * head.outputs(), Candidates::Likely { threshold: 0.1 })
    } else {
        let action = Normalizer::identity(head.action_width());
        (
            4 + head.action_width(),
            2,
            Candidates::Drawn { draws: vec![[0.3, 0.1]; 2 * head.action_width()], action },
        )
    };
    // Wider than the policy's network, so that no storage of the one serves the other.
    let blocks = vec![BlockSpec::Dense { width: 64, layer_norm: true, activation: Activation::Tanh }];
    let network = Network::new(NetworkSpec { input, blocks, output }).expect("the widths are positive");
    Selector { params: network.init(&mut stream(0, "allocation", 2)), network, prices: vec![0.5], candidates }
}

#[test]
fn selecting_allocates_nothing() {
    for head in HEADS {
        let parts = PolicyParts { selector: Some(selector(head)), ..policy(head).to_parts() };
        let mut actor = Policy::new(parts).expect("the parts fit").actor_with(Acting::Select);
        let mut rng = stream(0, "allocation", 1);
        let mut action = vec![0.0; head.action_width()];
        let count = allocations(|| {
            for step in 0..10 {
                actor.act(&[step as f32, 0.5, -0.5, 1.0], &mut rng, &mut action).unwrap();
            }
        });
        assert_eq!(count, 0, "{head:?}");
        in_step_allocates_nothing(&mut actor);
    }
}

#[test]
fn the_loss_allocates_nothing() {
    let pool = Pool::new(1).unwrap();
    let batch = 100;
    for head in HEADS {
        let outputs = vec![0.1; batch * head.outputs()];
        let mut d_out = vec![0.0; outputs.len()];
        let weights = vec![1.0; batch];
        let (continuous, discrete) = (vec![0.2; batch * head.action_width()], vec![1; batch]);
        let actions = if head.is_discrete() {
            ActionBatch::Discrete(&discrete)
        } else {
            ActionBatch::Continuous(&continuous)
        };
        let mut loss = 0.0;
        let count = allocations(|| loss = head.weighted_nll(&outputs, actions, &weights, &mut d_out, &pool));
        assert_eq!(count, 0, "{head:?}");
        assert!(loss.is_finite() && loss != 0.0);
    }
}

fn log(action: ActionSpace) -> Transitions {
    let cost_names = vec!["cost".to_owned()];
    let schema = Schema { observation_dim: 2, action: action.clone(), cost_names, propensity: false };
    let mut builder = TransitionsBuilder::new(schema).unwrap();
    for row in 0..200_u8 {
        let x = f32::from(row % 17) / 17.0;
        let pushed = [x];
        builder
            .push(&Step {
                observation: &[x, 1.0 - x],
                action: match action {
                    ActionSpace::Continuous { .. } => StepAction::Continuous(&pushed),
                    ActionSpace::Discrete { .. } => StepAction::Discrete(u32::from(row % 2)),
                },
                reward: x,
                costs: &[1.0 - x],
                next_observation: &[1.0 - x, x],
                terminal: row % 20 == 19,
                timeout: false,
                propensity: None,
            })
            .unwrap();
    }
    builder.finish().unwrap()
}

const EXTRACTIONS: [Extraction; 5] = [
    Extraction::WeightedBc,
    Extraction::StateNormalized,
    Extraction::CriticGuided,
    Extraction::InformationProjection,
    Extraction::GuidedSelection,
];

/// The buffers stand after the first steps.
#[test]
fn a_step_of_any_algorithm_allocates_nothing() {
    let pool = Pool::new(1).unwrap();
    let spaces = || [ActionSpace::Continuous { dim: 1 }, ActionSpace::discrete(2)];
    for (entry, extraction) in ALGORITHMS.iter().flat_map(|entry| EXTRACTIONS.map(|of| (entry, of))) {
        for (action, dual_share) in spaces().into_iter().flat_map(|of| [(of.clone(), 1.0), (of, 0.5)]) {
            let data = log(action);
            // The policy is drawn along with the dual, or in the last half of the steps.
            let text = format!(
                "algo = \"{}\"\nextraction = \"{}\"\nsteps = 12\ndual_share = {dual_share:?}\nbatch_size = 64\n\
                 successors = \"averaged\"\ngradient_penalty = {{ coefficient = 1.0, bound = 1e-3 }}\n\
                 [[limits]]\nlimit = 0.1\nunit = \"step\"\n",
                entry.name,
                extraction.name()
            );
            let config = RawConfig::from_toml(&text).unwrap().validate(&LogFacts::of(&data)).unwrap();
            let problem = Problem::new(&config, &data).unwrap();
            let mut learner = (entry.build)(&problem).unwrap();
            let mut sampler = Sampler::new(&problem);
            let mut counted = 0;
            for step in 0..12 {
                let count = allocations(|| {
                    learner.step(sampler.draw(step), &pool);
                    assert!(learner.health().is_ok());
                });
                // The first steps of each kind let the matrix kernels set up their own storage.
                counted += if step % 6 < 3 { 0 } else { count };
            }
            assert_eq!(counted, 0, "{} {} {dual_share}", entry.name, extraction.name());
        }
    }
}

/// Episodes of sixteen steps; counts what is allocated between the end of one and the first action of the next.
struct Counted {
    facts: SimulatorFacts,
    ended: Option<usize>,
    between: Vec<usize>,
}

impl Simulator for Counted {
    fn facts(&self) -> &SimulatorFacts {
        &self.facts
    }

    fn run(
        &mut self,
        _: u64,
        _: &mut Rng,
        act: &mut dyn FnMut(&[f32], &mut [f32]),
        visit: &mut dyn FnMut(&SimulatedStep<'_>),
    ) -> Result<(), SimulatorError> {
        let begun = ALLOCATIONS.with(Cell::get);
        self.between.extend(self.ended.map(|ended| begun - ended));
        for t in 0..16_u8 {
            let state = [f32::from(t) / 16.0];
            let mut action = [0.0];
            act(&state, &mut action);
            visit(&SimulatedStep {
                observation: &state,
                action: &action,
                reward: 0.5,
                costs: &[0.2],
                next_observation: &[state[0] + 1.0 / 16.0],
                terminal: false,
                last: t == 15,
            });
        }
        self.ended = Some(ALLOCATIONS.with(Cell::get));
        Ok(())
    }
}

struct Unwatched;

impl Observer for Unwatched {
    fn metrics(&mut self, _: u64, _: &[(&str, f64)]) {}
}

/// As much with sixteen updates after an episode as with one: what is allocated is the episode's.
#[test]
fn an_update_of_the_online_learner_allocates_nothing() {
    let between = |steps_per_update: u32| {
        let config = CdmpoConfig::from_toml(&format!(
            "steps = 320\nwarmup_steps = 32\nhold = 1\nsteps_per_update = {steps_per_update}.0\nbatch_size = 8\n\
             checkpoint_every = 10000\nreplay_capacity = 10000\n\
             policy = [{{ kind = \"dense\", width = 16, layer_norm = true, activation = \"tanh\" }}]\n\
             critic = [{{ kind = \"dense\", width = 16, layer_norm = true, activation = \"tanh\" }}]\n"
        ));
        let facts = SimulatorFacts {
            identity: "counted".into(),
            observation_names: vec!["state".into()],
            action_low: vec![-1.0],
            action_high: vec![1.0],
            cost_names: vec!["cost".into()],
            horizon: 16,
        };
        let mut simulator = Counted { facts, ended: None, between: Vec::new() };
        let directory = tempfile::tempdir().unwrap();
        let run = TrainIo { directory: directory.path().to_owned(), resume: false };
        cdmpo::train(&config.unwrap(), &mut simulator, &run, &mut Unwatched).unwrap();
        simulator.between
    };
    let (one, sixteen) = (between(16), between(1));
    assert_eq!(one.len(), 19);
    // The first updates let the matrix kernels set up their own storage.
    assert_eq!(one[10..], sixteen[10..]);
}
