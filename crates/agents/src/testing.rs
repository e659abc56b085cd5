//! Small logs and configurations for this crate's tests.

use coptidice_core::rng::stream;
use coptidice_data::{ActionSpace, Schema, Step, StepAction, Transitions, TransitionsBuilder};
use rand::RngExt as _;

use crate::{LogFacts, RawConfig, TrainConfig};

/// A random log: `episodes` of `length` steps, two costs `first` and `second` in `[0, 1]`, rewards in `[0, 1]`.
/// Every third episode ends in a terminal, the others in time-outs, the last one is cut.
pub(crate) fn random_log(
    observation_dim: usize,
    action: ActionSpace,
    episodes: usize,
    length: usize,
) -> Transitions {
    let names = vec!["first".to_owned(), "second".to_owned()];
    let schema = Schema { observation_dim, action: action.clone(), cost_names: names, propensity: false };
    let mut builder = TransitionsBuilder::new(schema).expect("a valid schema");
    let mut rng = stream(5, "random log", 0);
    for episode in 0..episodes {
        let mut observation: Vec<f32> = (0..observation_dim).map(|_| rng.random_range(-1.0..1.0)).collect();
        for step in 0..length {
            let next: Vec<f32> = (0..observation_dim).map(|_| rng.random_range(-1.0..1.0)).collect();
            let vector: Vec<f32> = (0..4).map(|_| rng.random_range(-0.5..0.5)).collect();
            let taken = match &action {
                ActionSpace::Continuous { dim } => StepAction::Continuous(&vector[..*dim]),
                ActionSpace::Discrete { labels } => {
                    StepAction::Discrete(rng.random_range(0..labels.len() as u32))
                }
            };
            let last = step + 1 == length && episode + 1 < episodes;
            let row = Step {
                observation: &observation,
                action: taken,
                reward: rng.random(),
                costs: &[rng.random(), rng.random()],
                next_observation: &next,
                terminal: last && episode % 3 == 0,
                timeout: last && episode % 3 != 0,
                propensity: None,
            };
            builder.push(&row).expect("a row of the schema");
            observation = next;
        }
    }
    builder.finish().expect("a log with rows")
}

/// A configuration from TOML, for `data`, with small networks and a limit on both costs unless the text says otherwise.
pub(crate) fn config(data: &Transitions, toml: &str) -> TrainConfig {
    const LIMITS: &str = "[[limits]]\ncost = \"first\"\nlimit = 0.4\nunit = \"step\"\n\
                          [[limits]]\ncost = \"second\"\nlimit = 0.3\nunit = \"step\"\n";
    const NETWORKS: &str = "[networks]\n\
        value = [{ kind = \"dense\", width = 8, layer_norm = true, activation = \"tanh\" }]\n\
        policy = [{ kind = \"dense\", width = 8, layer_norm = false, activation = \"relu\" }]\n";
    let mut text = toml.to_owned();
    if !toml.contains("[networks]") {
        text.push_str(NETWORKS);
    }
    if !toml.contains("[[limits]]") {
        text.push_str(LIMITS);
    }
    RawConfig::from_toml(&text)
        .expect("valid TOML")
        .validate(&LogFacts::of(data))
        .expect("a valid configuration")
}
