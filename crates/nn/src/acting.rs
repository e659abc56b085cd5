//! Forward passes of a network whose parameters stay: weights are laid out once, and rows pass on the caller's thread.

use crate::Network;
use crate::cache::{Chunk, Widths};
use crate::passes::{self, Weights};
use crate::product::{self, Aligned, Form};
use crate::spec::Linear;

/// The weights of a network's parameters, laid out for forward passes in single precision. Made by
/// [`Network::forward_weights`]; any number of threads may use it at once.
#[derive(Debug)]
pub struct ForwardWeights {
    packed: Aligned,
    parameters: usize,
}

/// Buffers of [`Network::forward_with`], for one thread. They grow to the most rows that ever passed.
#[derive(Debug, Clone)]
pub struct ForwardRoom {
    chunk: Chunk,
    rows: usize,
}

impl Network {
    /// Lays the weights of `params` out for [`Network::forward_with`].
    ///
    /// # Panics
    /// If `params` are not this network's.
    #[must_use]
    pub fn forward_weights(&self, params: &[f32]) -> ForwardWeights {
        self.check_parameters(params);
        let mut packed = Aligned::zeroed(self.linears().last().map_or(0, Linear::packed_end));
        for linear in self.linears() {
            linear.pack(params, &mut packed.as_mut_slice()[linear.packed..], true, Form::Single);
        }
        ForwardWeights { packed, parameters: params.len() }
    }

    /// Buffers for up to `rows` rows, and more when they come; and what this thread's products need, which is otherwise made
    /// by the first of them.
    #[must_use]
    pub fn forward_room(&self, rows: usize) -> ForwardRoom {
        product::prepare_thread();
        let widths: Vec<Widths> = self.blocks().iter().map(Widths::of).collect();
        ForwardRoom { chunk: Chunk::new(&widths, 0, rows), rows }
    }

    /// [`Network::forward`] with weights laid out before, from the same `params`, on the caller's thread: `x: [rows *
    /// input]`, `out: [rows * output]`. For passes of few rows with parameters that stay, which laying out would cost as
    /// much as the pass itself. A row of the result is the same bits whatever the other rows are and however many, and those
    /// of [`Network::forward`] in single precision.
    ///
    /// Allocates only when there are more rows than ever before, and in a thread's first product.
    ///
    /// # Panics
    /// If a length does not fit the network, or `weights` are another network's.
    pub fn forward_with(
        &self,
        params: &[f32],
        weights: &ForwardWeights,
        x: &[f32],
        out: &mut [f32],
        room: &mut ForwardRoom,
    ) {
        self.check_parameters(params);
        assert_eq!(weights.parameters, params.len(), "weights of another network");
        let rows = out.len() / self.spec().output;
        assert_eq!(out.len(), rows * self.spec().output, "out must be [rows * output]");
        assert_eq!(x.len(), rows * self.spec().input, "x must be [rows * input]");
        if rows == 0 {
            return;
        }
        if rows > room.rows {
            *room = self.forward_room(rows);
        }
        let weights = Weights { params, packed: weights.packed.as_slice(), form: Form::Single };
        passes::forward(self.blocks(), weights, x, out, &mut room.chunk, rows);
    }
}
