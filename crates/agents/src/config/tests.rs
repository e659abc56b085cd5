use coptidice_core::rng::stream;
use coptidice_nn::Precision;

use super::*;

fn facts() -> LogFacts {
    LogFacts {
        cost_names: vec!["heat".into(), "wear".into()],
        horizon: EpisodeHorizon::Fixed(50.0),
        always_terminal: false,
        any_terminal: false,
        discrete: false,
        noisy: false,
    }
}

fn validate(toml: &str) -> Result<TrainConfig, ConfigError> {
    RawConfig::from_toml(toml)?.validate(&facts())
}

const LIMIT: &str = "[[limits]]\ncost = \"heat\"\nlimit = 0.1\nunit = \"step\"\n";

#[test]
fn presets_round_trip_with_every_default_written_out() {
    for preset in ["fast", "paper"] {
        for algo in Algorithm::ALL {
            let config = validate(&format!("algo = \"{algo}\"\npreset = \"{preset}\"\n{LIMIT}")).unwrap();
            let written = config.to_toml().unwrap();
            let again = RawConfig::from_toml(&written).unwrap();
            // Nothing is left to a preset that may change later.
            let full = serde_json::to_value(&again).unwrap();
            assert!(full.as_object().unwrap().values().all(|value| !value.is_null()), "{full}");
            assert_eq!(again.validate(&facts()).unwrap(), config);
        }
    }
}

#[test]
fn fields_override_the_preset_one_by_one() {
    let config = validate(&format!(
        "steps = 7\nreward_scale = 0.5\nbound_loss = \"reference\"\nacting = \"mode\"\n\
         [gradient_penalty]\nbound = 2.0\n[networks]\nmixture_components = 1\n\
         value = [{{ kind = \"dense\", width = 8, layer_norm = false, activation = \"relu\" }}]\n{LIMIT}"
    ))
    .unwrap();
    assert_eq!((config.steps, config.algo), (7, Algorithm::Coptidice));
    assert_eq!(config.reward_scale, RewardScale::Factor(0.5));
    assert_eq!(config.gradient_penalty, GradientPenalty { coefficient: 1e-5, bound: 2.0 });
    assert_eq!((config.networks.value.len(), config.networks.policy.len()), (1, 2));
}

#[test]
fn the_precision_is_what_was_asked_for_or_f32_with_a_remark() {
    let raw = |text: &str| RawConfig::from_toml(&format!("{text}\n{LIMIT}")).unwrap();
    assert_eq!(raw("").validate(&facts()).unwrap().precision, Precision::F32);
    assert_eq!(raw("precision = \"f32\"").no_bf16(), None);
    let asked = raw("precision = \"bf16\"");
    let remark = asked.no_bf16();
    let taken = asked.validate(&facts()).unwrap().precision;
    if Precision::Bf16.is_available() {
        assert_eq!((taken, remark), (Precision::Bf16, None));
    } else {
        assert_eq!((taken, remark), (Precision::F32, Some(NoBf16)));
    }
    assert!(NoBf16.to_string().contains("AVX512-BF16"));
    assert!(matches!(RawConfig::from_toml("precision = \"f16\""), Err(ConfigError::Parse(_))));
}

#[test]
fn limits_carry_their_units_and_take_the_logged_length() {
    let config = validate(
        "[[limits]]\ncost = \"wear\"\nlimit = 5\nunit = \"episode\"\n\
         [[limits]]\ncost = \"heat\"\nlimit = 5\nunit = \"episode\"\nhorizon = 10\n",
    )
    .unwrap();
    let horizon = EpisodeHorizon::Fixed(50.0);
    assert_eq!(config.limits[0].limit, CostLimit::PerEpisode { limit: 5.0, horizon });
    assert_eq!(config.limits[1].limit.constraint(config.reading(&facts())).unwrap().limit, 0.5);

    let varying = LogFacts { horizon: EpisodeHorizon::Varying { logged_mean: 9.0 }, ..facts() };
    let raw = "[[limits]]\ncost = \"wear\"\nlimit = 5\nunit = \"episode\"\nhorizon = \"logged\"\n";
    let refused = RawConfig::from_toml(&format!("gamma = 0.9\n{raw}")).unwrap().validate(&varying);
    assert_eq!(refused, Err(ConfigError::Limit(LimitError::VaryingLengths { gamma: 0.9 })));
    let chain = RawConfig::from_toml(raw).unwrap().validate(&varying).unwrap();
    let again = RawConfig::from_toml(&chain.to_toml().unwrap()).unwrap().validate(&facts()).unwrap();
    assert_eq!(again, chain, "the length stays as it was in the log that was trained on");
}

#[test]
fn the_process_is_read_as_it_was_logged() {
    let config = validate(LIMIT).unwrap();
    assert_eq!(config.reading(&facts()), ProcessReading::Continuing { gamma: 0.98 });
    let terminal = LogFacts { always_terminal: true, any_terminal: true, ..facts() };
    assert_eq!(config.reading(&terminal), ProcessReading::Terminating { gamma: 0.98 });
    let some = LogFacts { any_terminal: true, ..facts() };
    assert_eq!(config.reading(&some), ProcessReading::Terminating { gamma: 0.98 });
    let chain = validate(&format!("gamma = 1\n{LIMIT}")).unwrap();
    assert_eq!(chain.reading(&terminal), ProcessReading::RestartChain);
}

#[test]
fn each_mistake_has_its_own_error() {
    let limit = |name: &str| format!("[[limits]]\ncost = \"{name}\"\nlimit = 0.1\nunit = \"step\"\n");
    assert!(matches!(validate("stepps = 3"), Err(ConfigError::Parse(message)) if message.contains("stepps")));
    assert!(matches!(validate("algo = \"crr\""), Err(ConfigError::Parse(_))));
    assert!(matches!(validate(""), Err(ConfigError::NoLimit { algo: Algorithm::Coptidice })));
    assert!(validate("algo = \"bc\"").is_ok() && validate("algo = \"optidice\"").is_ok());
    assert!(matches!(validate(&limit("cold")), Err(ConfigError::UnknownCost { .. })));
    assert!(matches!(validate(&(limit("heat") + &limit("heat"))), Err(ConfigError::TwoLimits { .. })));
    let unnamed = "[[limits]]\nlimit = 0.1\nunit = \"step\"\n";
    assert!(matches!(validate(unnamed), Err(ConfigError::UnnamedCost { .. })));
    let unit = "[[limits]]\ncost = \"heat\"\nlimit = 0.1\n";
    assert!(matches!(validate(unit), Err(ConfigError::NoUnit { .. })));
    let endless = "[[limits]]\ncost = \"heat\"\nlimit = inf\nunit = \"step\"\n";
    assert!(matches!(validate(endless), Err(ConfigError::Limit(LimitError::NotFinite(_)))));
}

#[test]
fn values_out_of_range_are_named() {
    for (field, values) in [
        ("steps", vec!["0"]),
        ("batch_size", vec!["1", "99999999"]),
        ("gamma", vec!["0.0", "1.001", "nan", "-1.0"]),
        ("alpha", vec!["0.0", "-1.0", "nan", "inf"]),
        ("epsilon", vec!["-0.1", "nan"]),
        ("learning_rate", vec!["0.0", "inf"]),
        ("policy_learning_rate", vec!["0.0"]),
        ("multiplier_learning_rate", vec!["-1.0"]),
        ("lambda_max", vec!["1.0", "nan"]),
        ("reward_scale", vec!["0.0", "-2.0"]),
        ("policy_average_rate", vec!["1.0", "-0.1", "nan"]),
        ("checkpoint_every", vec!["0"]),
        ("keep_checkpoints", vec!["0"]),
        ("log_every", vec!["0"]),
        ("networks.mixture_components", vec!["0", "65"]),
        ("finalists", vec!["0", "65"]),
        ("critic.ensemble", vec!["0", "1", "17"]),
        ("selection.candidates", vec!["0", "1025"]),
        ("selection.threshold", vec!["0.0", "1.1", "nan"]),
        ("projection.floor", vec!["0.0", "1.0", "nan"]),
        ("projection.behaviour_components", vec!["0", "65"]),
    ] {
        for value in values {
            let extraction = match field.split('.').next() {
                Some("projection") => "information_projection",
                Some("selection") => "guided_selection",
                _ => "critic_guided",
            };
            let found = validate(&format!("extraction = \"{extraction}\"\n{field} = {value}\n{LIMIT}"));
            assert!(
                matches!(&found, Err(ConfigError::Range { field: named, .. }) if *named == field),
                "{found:?}"
            );
        }
    }
}

#[test]
fn facts_are_read_off_a_log() {
    use coptidice_data::{ActionSpace, Schema, Step, StepAction, TransitionsBuilder};
    let schema = Schema {
        observation_dim: 1,
        action: ActionSpace::discrete(2),
        cost_names: vec!["heat".into()],
        propensity: false,
    };
    let mut builder = TransitionsBuilder::new(schema).unwrap();
    let mut rng = stream(0, "facts", 0);
    // Two whole episodes of three steps, then one that was cut after two.
    for step in 0..8 {
        let observation = [rand::RngExt::random::<f32>(&mut rng)];
        builder
            .push(&Step {
                observation: &observation,
                action: StepAction::Discrete(0),
                reward: 0.0,
                costs: &[0.0],
                next_observation: &observation,
                terminal: step == 2,
                timeout: step == 5,
                propensity: None,
            })
            .unwrap();
    }
    let facts = LogFacts::of(&builder.finish().unwrap());
    assert_eq!(facts.horizon, EpisodeHorizon::Fixed(3.0));
    assert!(!facts.always_terminal);
}

#[test]
fn networks_and_batches_that_fit_no_memory_are_refused() {
    let network = |name: &str, width: u64, count: usize| {
        let block =
            format!("{{ kind = \"dense\", width = {width}, layer_norm = false, activation = \"relu\" }},");
        format!("[networks]\n{name} = [{}]\n{LIMIT}", block.repeat(count))
    };
    for (text, key, said) in [
        (network("value", 0, 1), "networks.value", "block 1 of width 0"),
        (network("policy", 16_385, 2), "networks.policy", "16384"),
        (network("policy", 1 << 62, 1), "networks.policy", "16384"),
        (network("value", 1, 101), "networks.value", "101 blocks"),
        (network("value", 16_384, 4), "networks", "8 GiB"),
        (format!("batch_size = 1048576\n{LIMIT}"), "batch_size", "1048576 (about"),
        (format!("batch_size = 9223372036854775807\n{LIMIT}"), "batch_size", "8 GiB"),
    ] {
        let found = validate(&text);
        let Err(ConfigError::Range { field, value, allowed }) = &found else { panic!("{text}: {found:?}") };
        assert!(*field == key && format!("{value} {allowed}").contains(said), "{found:?}");
    }
    assert!(validate(&format!("batch_size = 65536\n{LIMIT}")).is_ok());
    assert!(validate(&format!("preset = \"paper\"\nbatch_size = 8192\n{LIMIT}")).is_ok());
}

#[test]
fn settings_of_an_extraction_that_was_not_chosen_are_refused() {
    let guided = "[critic]\nguidance = 1.0\n";
    let normalized = "[state_weight]\nclip = 5.0\n";
    let projected = "[projection]\nfloor = 0.1\nbehaviour_components = 3\n";
    for (extraction, settings, good) in [
        ("critic_guided", guided, true),
        ("critic_guided", normalized, false),
        ("state_normalized", normalized, true),
        ("state_normalized", guided, false),
        ("information_projection", projected, true),
        ("information_projection", guided, false),
        ("critic_guided", projected, false),
        ("guided_selection", "[critic]\nlookahead = 1\n", true),
        ("guided_selection", guided, false),
        ("guided_selection", "[critic]\nleast_weight = 0.1\n", false),
        ("guided_selection", "[selection]\ncandidates = 4\nthreshold = 0.5\n", true),
        ("critic_guided", "[selection]\ncandidates = 4\n", false),
        ("weighted_bc", guided, false),
        ("weighted_bc", "caution = 2.0\n", false),
        ("critic_guided", "caution = 2.0\n", true),
        ("guided_selection", "caution = 2.0\n", true),
        // What a run wrote is read back, with the defaults of every extraction in it.
        ("weighted_bc", "[state_weight]\nclip = 10.0\n", true),
    ] {
        let found = validate(&format!("extraction = \"{extraction}\"\n{settings}{LIMIT}"));
        match found {
            Ok(_) => assert!(good, "{extraction} {settings}"),
            Err(ConfigError::Unused { .. }) => assert!(!good, "{extraction} {settings}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(validate(&format!("algo = \"bc\"\n{guided}")).is_ok());
}

#[test]
fn the_discount_follows_the_log_unless_it_is_given() {
    let discount = |facts: &LogFacts, fields: &str| {
        let raw = RawConfig::from_toml(&format!("{fields}{LIMIT}")).unwrap();
        let config = raw.validate(facts).unwrap();
        (config.gamma, config.critic.discount)
    };
    let of = |steps, always_terminal| LogFacts {
        horizon: EpisodeHorizon::Fixed(steps),
        always_terminal,
        ..facts()
    };
    assert_eq!(discount(&of(1000.0, false), ""), (0.999, 0.99));
    assert_eq!(discount(&of(50.0, false), ""), (0.98, 0.98));
    assert_eq!(discount(&of(1.0, false), ""), (0.9, 0.9), "something is to add up");
    assert_eq!(discount(&of(50.0, true), ""), (1.0, 0.99), "the process ends by itself");
    let varying = LogFacts { horizon: EpisodeHorizon::Varying { logged_mean: 50.0 }, ..facts() };
    assert_eq!(discount(&varying, ""), (0.98, 0.98), "an average of a step needs no end");
    let totals = RawConfig::from_toml(&LIMIT.replace("step", "episode")).unwrap();
    assert_eq!(totals.validate(&varying).unwrap().gamma, 1.0, "the total of an episode that varies does");
    assert_eq!(discount(&of(1000.0, false), "gamma = 0.9\n"), (0.9, 0.9));
    assert_eq!(discount(&of(1000.0, false), "gamma = 1.0\n"), (1.0, 0.99));
    assert_eq!(discount(&of(1000.0, false), "preset = \"paper\"\n").0, 0.995);
}

#[test]
fn successors_are_averaged_where_the_log_shows_several_unless_it_is_said() {
    let successors = |facts: &LogFacts, fields: &str| {
        RawConfig::from_toml(&format!("{fields}{LIMIT}")).unwrap().validate(facts).unwrap().successors
    };
    let noisy = LogFacts { noisy: true, ..facts() };
    assert_eq!(successors(&facts(), ""), Successors::Sampled);
    assert_eq!(successors(&noisy, ""), Successors::Averaged);
    assert_eq!(successors(&noisy, "successors = \"sampled\"\n"), Successors::Sampled);
    assert_eq!(successors(&noisy, "preset = \"paper\"\n"), Successors::Sampled, "the paper's are");
}

#[test]
fn only_continuous_policies_are_mixtures() {
    let raw = format!("[networks]\nmixture_components = 3\n{LIMIT}");
    assert!(matches!(validate(&raw), Err(ConfigError::Range { field: "networks.mixture_components", .. })));
    let discrete = LogFacts { discrete: true, ..facts() };
    assert!(RawConfig::from_toml(&raw).unwrap().validate(&discrete).is_ok());
}

/// The number comes from the file of another run as often as from a hand.
#[test]
fn a_mixture_under_the_guided_extraction_is_explained() {
    let facts = LogFacts {
        cost_names: vec!["cost".to_owned()],
        horizon: EpisodeHorizon::Fixed(10.0),
        always_terminal: false,
        any_terminal: false,
        discrete: false,
        noisy: false,
    };
    let text = "algo = \"optidice\"\nextraction = \"critic_guided\"\nnetworks.mixture_components = 5\n";
    for text in [text, &text.replace("critic_guided", "information_projection")] {
        let refused =
            RawConfig::from_toml(text).expect("TOML").validate(&facts).expect_err("no mixtures there");
        assert!(refused.to_string().contains("config.toml of a run with another extraction"), "{refused}");
    }
    let threads = RawConfig::from_toml("algo = \"bc\"\nthreads = 1025\n").expect("TOML").validate(&facts);
    assert!(matches!(threads, Err(ConfigError::Range { field: "threads", .. })));
}

#[test]
fn policies_that_can_select_do_and_others_may_not() {
    use crate::policy::Acting;
    let acting = |fields: &str| validate(&format!("{fields}\n{LIMIT}")).map(|config| config.acting);
    let selecting = "extraction = \"guided_selection\"";
    assert_eq!(acting(selecting), Ok(Acting::Select));
    assert_eq!(acting(&format!("{selecting}\nacting = \"mode\"")), Ok(Acting::Mode));
    assert_eq!(acting(&format!("{selecting}\nalgo = \"bc\"")), Ok(Acting::Mean), "it has no critic");
    let refused = acting("extraction = \"weighted_bc\"\nacting = \"select\"");
    assert!(matches!(refused, Err(ConfigError::Range { field: "acting", .. })), "{refused:?}");
}
