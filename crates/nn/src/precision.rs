//! In what numbers the products of a network's passes are taken.

use crate::product::{Form, Half};
use crate::spec::Linear;
use serde::{Deserialize, Serialize};

/// How the operands of matrix products are rounded. Parameters, activations, derivatives, moments and all sums are in
/// single precision either way.
///
/// Rounding to bfloat16 changes an operand by up to 2^-8 of it (0.4 percent); products are taken at up to twice the
/// rate. A network's first affine map and its last stay in single precision: inputs may differ by less than bfloat16
/// tells apart, and outputs are compared to that degree. Both maps are small beside the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Not at all.
    #[default]
    F32,
    /// To bfloat16, on processors with AVX512-BF16.
    Bf16,
}

impl Precision {
    /// The name used in configurations.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        }
    }

    /// Whether this processor has it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Precision::F32 => true,
            Precision::Bf16 => Half::detect().is_some(),
        }
    }

    /// The form of products; `None` where this processor does not have it.
    pub(crate) fn form(self) -> Option<Form> {
        match self {
            Precision::F32 => Some(Form::Single),
            Precision::Bf16 => Half::detect().map(Form::Half),
        }
    }
}

/// The form of one map's products, in a network of this one.
pub(crate) fn form_of(linear: &Linear, form: Form) -> Form {
    if linear.inside { form } else { Form::Single }
}
