//! Descriptions of networks, and where each parameter stands in the flat vector.

use crate::NnError;
use crate::product::packed_len;
use serde::{Deserialize, Serialize};

/// The largest number of parameters accepted: 2^31, 8 GiB of `f32`.
pub const MAX_PARAMETERS: usize = 1 << 31;

/// A function applied to each unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `y`
    Identity,
    /// `max(0, y)`
    Relu,
    /// `y` where positive, `exp(y) - 1` elsewhere.
    Elu,
    /// `tanh(y)`
    Tanh,
}

/// One block of a network, from `d` inputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum BlockSpec {
    /// `activation(norm(W x + b))`, `W: [width, d]`; `norm` is layer normalisation or nothing.
    Dense {
        /// Units of the layer.
        width: usize,
        /// Whether layer normalisation stands between the affine map and the activation.
        layer_norm: bool,
        /// The function applied to each unit.
        activation: Activation,
    },
    /// `layer_norm(x + W2 relu(W1 x + b1) + b2)`, `W1: [width, d]`, `W2: [d, width]`; `d` outputs.
    Residual {
        /// Units of the inner layer.
        width: usize,
    },
}

/// A multilayer perceptron: its blocks, then an affine map to `output` values without activation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// Values per sample at the input.
    pub input: usize,
    /// Hidden blocks, in order.
    pub blocks: Vec<BlockSpec>,
    /// Values per sample at the output.
    pub output: usize,
}

/// A named tensor inside the flat parameter vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamSlice {
    /// `layers.N.weight`, `layers.N.bias`, `layers.N.norm.weight`, `layers.N.norm.bias`; in residual blocks the
    /// affine maps are `layers.N.inner` and `layers.N.outer`.
    pub name: String,
    /// `[out, in]` of a weight, `[out]` of all else.
    pub shape: Vec<usize>,
    /// Index of the first element in the flat vector.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
}

/// An affine map's place in the flat vector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Linear {
    /// Whether it is neither the first nor the last.
    pub(crate) inside: bool,
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) weight: usize,
    pub(crate) bias: usize,
    /// Where its weights stand among all that are laid out for a pass.
    pub(crate) packed: usize,
}

impl Linear {
    /// Where what is behind it stands.
    pub(crate) fn packed_end(&self) -> usize {
        self.packed + packed_len(self.input, self.output).max(packed_len(self.output, self.input))
    }
}

/// A layer normalisation's place in the flat vector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Norm {
    pub(crate) weight: usize,
    pub(crate) bias: usize,
}

/// A block with its places. The final affine map is a `Dense` without norm or activation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Block {
    Dense { linear: Linear, norm: Option<Norm>, activation: Activation },
    Residual { inner: Linear, outer: Linear, norm: Norm },
}

impl Block {
    /// Values per sample that come out.
    pub(crate) fn width(&self) -> usize {
        match self {
            Self::Dense { linear, .. } => linear.output,
            Self::Residual { outer, .. } => outer.output,
        }
    }

    /// Values per sample between the two affine maps of a residual block.
    pub(crate) fn hidden(&self) -> usize {
        match self {
            Self::Dense { .. } => 0,
            Self::Residual { inner, .. } => inner.output,
        }
    }

    /// The block's affine maps, in the order of the flat vector.
    pub(crate) fn linears(&self) -> impl Iterator<Item = Linear> {
        let (first, second) = match *self {
            Self::Dense { linear, .. } => (linear, None),
            Self::Residual { inner, outer, .. } => (inner, Some(outer)),
        };
        std::iter::once(first).chain(second)
    }

    /// The layer normalisation, if there is one.
    pub(crate) fn norm(&self) -> Option<Norm> {
        match *self {
            Self::Dense { norm, .. } => norm,
            Self::Residual { norm, .. } => Some(norm),
        }
    }

    /// The function behind the (outer) affine map.
    pub(crate) fn activation(&self) -> Activation {
        match *self {
            Self::Dense { activation, .. } => activation,
            Self::Residual { .. } => Activation::Identity,
        }
    }

    pub(crate) fn has_norm(&self) -> bool {
        self.norm().is_some()
    }
}

impl NetworkSpec {
    /// Length of the flat parameter vector. Saturates at `usize::MAX` for absurd widths, which
    /// [`crate::Network::new`] refuses.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        let affine = |input: usize, output: usize| output.saturating_mul(input).saturating_add(output);
        let (mut count, mut width) = (0_usize, self.input);
        for block in &self.blocks {
            let added = match *block {
                BlockSpec::Dense { width: out, layer_norm, .. } => {
                    let norm = if layer_norm { out.saturating_mul(2) } else { 0 };
                    let added = affine(width, out).saturating_add(norm);
                    width = out;
                    added
                }
                BlockSpec::Residual { width: inner } => affine(width, inner)
                    .saturating_add(affine(inner, width))
                    .saturating_add(width.saturating_mul(2)),
            };
            count = count.saturating_add(added);
        }
        count.saturating_add(affine(width, self.output))
    }

    /// Checks the widths and lays the parameters out.
    pub(crate) fn lay_out(&self) -> Result<(Vec<Block>, Vec<ParamSlice>), NnError> {
        if self.input == 0 {
            return Err(NnError::ZeroWidth { place: "input".into() });
        }
        if self.output == 0 {
            return Err(NnError::ZeroWidth { place: "output".into() });
        }
        let mut layout = Layout::default();
        let mut blocks = Vec::with_capacity(self.blocks.len() + 1);
        let mut width = self.input;
        for (index, block) in self.blocks.iter().enumerate() {
            let (BlockSpec::Dense { width: units, .. } | BlockSpec::Residual { width: units }) = *block;
            if units == 0 {
                return Err(NnError::ZeroWidth { place: format!("block {index}") });
            }
            let name = format!("layers.{index}");
            blocks.push(match *block {
                BlockSpec::Dense { width: output, layer_norm, activation } => {
                    let linear = layout.linear(&name, width, output)?;
                    let norm =
                        if layer_norm { Some(layout.norm(&format!("{name}.norm"), output)?) } else { None };
                    width = output;
                    Block::Dense { linear, norm, activation }
                }
                BlockSpec::Residual { width: hidden } => Block::Residual {
                    inner: layout.linear(&format!("{name}.inner"), width, hidden)?,
                    outer: layout.linear(&format!("{name}.outer"), hidden, width)?,
                    norm: layout.norm(&format!("{name}.norm"), width)?,
                },
            });
        }
        let last = layout.linear(&format!("layers.{}", self.blocks.len()), width, self.output)?;
        let linear = Linear { inside: false, ..last };
        blocks.push(Block::Dense { linear, norm: None, activation: Activation::Identity });
        Ok((blocks, layout.slices))
    }
}

/// The flat vector as it is laid out.
#[derive(Default)]
struct Layout {
    slices: Vec<ParamSlice>,
    end: usize,
    packed: usize,
}

impl Layout {
    fn tensor(&mut self, name: String, shape: Vec<usize>) -> Result<usize, NnError> {
        let len = shape.iter().try_fold(1_usize, |product, &side| product.checked_mul(side));
        let end = len.and_then(|len| self.end.checked_add(len)).filter(|&end| end <= MAX_PARAMETERS);
        let (Some(len), Some(end)) = (len, end) else {
            return Err(NnError::TooLarge { place: name, limit: MAX_PARAMETERS });
        };
        let offset = std::mem::replace(&mut self.end, end);
        self.slices.push(ParamSlice { name, shape, offset, len });
        Ok(offset)
    }

    fn linear(&mut self, name: &str, input: usize, output: usize) -> Result<Linear, NnError> {
        let weight = self.tensor(format!("{name}.weight"), vec![output, input])?;
        let bias = self.tensor(format!("{name}.bias"), vec![output])?;
        let inside = self.packed > 0;
        let linear = Linear { inside, input, output, weight, bias, packed: self.packed };
        self.packed = linear.packed_end();
        Ok(linear)
    }

    fn norm(&mut self, name: &str, width: usize) -> Result<Norm, NnError> {
        let weight = self.tensor(format!("{name}.weight"), vec![width])?;
        let bias = self.tensor(format!("{name}.bias"), vec![width])?;
        Ok(Norm { weight, bias })
    }
}
