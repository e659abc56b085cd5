//! Sets of defaults.

use coptidice_core::Divergence;
use coptidice_nn::{Activation, BlockSpec, Precision};
use coptidice_ope::fqe;
use serde::{Deserialize, Serialize};

use super::{
    Critic, Extraction, GradientPenalty, Networks, Projection, RewardScale, ScaleRule, Selection,
    StateWeight, Successors, TrainConfig,
};
use crate::coptidice::losses::BoundLoss;
use crate::policy::Acting;
use crate::registry::Algorithm;

/// A set of defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// Small networks that train within minutes on a CPU; scales itself to the log.
    Fast,
    /// The networks and hyperparameters of the paper's experiments on continuous control.
    Paper,
}

impl Preset {
    /// The extraction that `algo` has by default.
    #[must_use]
    pub fn extraction(self, algo: Algorithm) -> Extraction {
        self.defaults(algo).extraction
    }

    /// The defaults, for `algo`.
    pub(crate) fn defaults(self, algo: Algorithm) -> TrainConfig {
        match self {
            Preset::Fast => fast(algo),
            Preset::Paper => paper(algo),
        }
    }
}

fn dense(width: usize, layer_norm: bool, activation: Activation) -> BlockSpec {
    BlockSpec::Dense { width, layer_norm, activation }
}

fn fast(algo: Algorithm) -> TrainConfig {
    TrainConfig {
        preset: Preset::Fast,
        steps: 60_000,
        dual_share: 0.4,
        balance: 0.5,
        caution: 0.5,
        choose_acting: true,
        finalists: 3,
        batch_size: 256,
        alpha: 0.5,
        learning_rate: 1e-3,
        bound_loss: BoundLoss::Reweighted,
        multiplier_learning_rate: 3e-3,
        start_at_mean: true,
        normalize_observations: true,
        reward_scale: RewardScale::Rule(ScaleRule::Std),
        extraction: Extraction::CriticGuided,
        policy_average_rate: 2e-4,
        critic: Critic { ensemble: 4, ..paper(algo).critic },
        networks: Networks {
            value: vec![dense(128, true, Activation::Tanh), dense(128, false, Activation::Elu)],
            policy: vec![dense(128, true, Activation::Tanh), dense(128, false, Activation::Relu)],
            mixture_components: 5,
            min_scale: 1e-2,
        },
        ..paper(algo)
    }
}

/// The paper's appendix on RWRL tasks, completed from the authors' published code where the text is silent.
fn paper(algo: Algorithm) -> TrainConfig {
    let mut policy = vec![dense(300, true, Activation::Tanh), dense(1024, false, Activation::Identity)];
    policy.extend(vec![BlockSpec::Residual { width: 1024 }; 4]);
    TrainConfig {
        algo,
        preset: Preset::Paper,
        steps: 10_000,
        dual_share: 1.0,
        balance: 0.0,
        caution: 0.0,
        batch_size: 1024,
        seed: 0,
        threads: 0,
        precision: Precision::F32,
        gamma: 0.995,
        alpha: 0.01,
        epsilon: 0.01,
        divergence: Divergence::SoftChi,
        learning_rate: 3e-4,
        policy_learning_rate: 3e-4,
        multiplier_learning_rate: 3e-4,
        lambda_max: 1e3,
        successors: Successors::Sampled,
        bound_loss: BoundLoss::Paper,
        start_at_mean: false,
        normalize_observations: false,
        reward_scale: RewardScale::Rule(ScaleRule::None),
        extraction: Extraction::WeightedBc,
        state_weight: StateWeight { floor: 0.02, clip: 10.0 },
        critic: Critic {
            ensemble: 2,
            discount: 0.99,
            lookahead: 5,
            guidance: 0.3,
            least_weight: 0.5,
            target_rate: 0.005,
            smoothing: 0.2,
        },
        projection: Projection { floor: 0.01, behaviour_components: 5 },
        selection: Selection { candidates: 16, threshold: 0.1 },
        policy_average_rate: 0.0,
        acting: Acting::Mean,
        choose_acting: false,
        finalists: 1,
        evaluation: fqe::Settings::DEFAULT,
        holdout: 0.0,
        checkpoint_every: 1000,
        keep_checkpoints: 2,
        log_every: 100,
        gradient_penalty: GradientPenalty { coefficient: 1e-5, bound: 5.0 },
        networks: Networks {
            value: vec![
                dense(512, true, Activation::Tanh),
                dense(512, false, Activation::Elu),
                dense(256, false, Activation::Elu),
            ],
            policy,
            mixture_components: 5,
            min_scale: 1e-4,
        },
        limits: Vec::new(),
    }
}
