//! A training step allocates nothing once its buffers stand.

use coptidice_agents::problem::Problem;
use coptidice_agents::registry::ALGORITHMS;
use coptidice_agents::sampler::Sampler;
use coptidice_agents::{LogFacts, RawConfig};
use coptidice_data::{ActionSpace, Schema, Step, StepAction, Transitions, TransitionsBuilder};
use coptidice_nn::Pool;
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

#[test]
fn a_step_of_any_algorithm_allocates_nothing() {
    let pool = Pool::new(1).unwrap();
    for entry in ALGORITHMS {
        for action in [ActionSpace::Continuous { dim: 1 }, ActionSpace::discrete(2)] {
            let data = log(action);
            let text = format!(
                "algo = \"{}\"\nbatch_size = 64\ngradient_penalty = {{ coefficient = 1.0, bound = 1e-3 }}\n\
                 [[limits]]\nlimit = 0.1\nunit = \"step\"\n",
                entry.name
            );
            let config = RawConfig::from_toml(&text).unwrap().validate(&LogFacts::of(&data)).unwrap();
            let problem = Problem::new(&config, &data).unwrap();
            let mut learner = (entry.build)(&problem).unwrap();
            let mut sampler = Sampler::new(&problem);
            let mut counted = 0;
            for step in 0..6 {
                let before = ALLOCATIONS.with(Cell::get);
                learner.step(sampler.draw(step), &pool);
                assert!(learner.health().is_ok());
                // The first steps let the matrix kernels set up their own storage.
                counted += if step < 3 { 0 } else { ALLOCATIONS.with(Cell::get) - before };
            }
            assert_eq!(counted, 0, "{}", entry.name);
        }
    }
}
