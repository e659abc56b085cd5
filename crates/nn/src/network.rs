//! A network: its shape, its initial parameters, and its passes over batches.

use crate::cache::{Cache, Chunk, ChunkPenalty, Cut, Shape, cut};
use crate::gradients::{self, Inputs, Piece, Sources};
use crate::passes::Weights;
use crate::penalty::Orientations;
use crate::product::Form;
use crate::spec::{Block, Linear};
use crate::{Adam, NetworkSpec, NnError, ParamSlice, Pool, Precision, passes, penalty};
use coptidice_core::rng::Rng;
use rand::distr::Distribution;
use rand_distr::StandardNormal;

/// The shape of a network. Parameters live outside, in one flat vector laid out as [`Network::layout`] says.
#[derive(Debug, Clone)]
pub struct Network {
    spec: NetworkSpec,
    layout: Vec<ParamSlice>,
    blocks: Vec<Block>,
    linears: Vec<Linear>,
    /// Of gradients in single precision, and in the other form.
    pieces: Vec<Piece>,
    half_pieces: Vec<Piece>,
    parameters: usize,
}

/// The one-sided gradient penalty of a batch. A sample whose norm is no number exceeds the bound, and value and largest
/// norm are none either.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Penalty {
    /// `mean_b coefficient * max(0, norm_b - bound)^2`.
    pub value: f64,
    /// The largest norm of the batch.
    pub max_norm: f32,
    /// How many samples exceed the bound.
    pub exceeding: usize,
}

impl Network {
    /// Lays a network out.
    ///
    /// # Errors
    /// [`NnError::ZeroWidth`] and [`NnError::TooLarge`].
    pub fn new(spec: NetworkSpec) -> Result<Self, NnError> {
        let (blocks, layout) = spec.lay_out()?;
        let pieces = gradients::pieces(&blocks, Form::Single);
        let half = Precision::Bf16.form();
        let half_pieces = half.map_or_else(Vec::new, |form| gradients::pieces(&blocks, form));
        let linears = blocks.iter().flat_map(Block::linears).collect();
        let parameters = spec.parameter_count();
        Ok(Self { spec, layout, blocks, linears, pieces, half_pieces, parameters })
    }

    /// What the network was built from.
    #[must_use]
    pub fn spec(&self) -> &NetworkSpec {
        &self.spec
    }

    /// Every tensor of the flat parameter vector, in order and without gaps.
    #[must_use]
    pub fn layout(&self) -> &[ParamSlice] {
        &self.layout
    }

    /// Length of the flat parameter vector.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.parameters
    }

    /// Fresh parameters: weights from the normal distribution of deviation `1/sqrt(inputs)` truncated at two
    /// deviations, as in the frameworks of the paper's authors; biases 0, gains 1, shifts 0.
    #[must_use]
    pub fn init(&self, rng: &mut Rng) -> Vec<f32> {
        let mut params = vec![0.0; self.parameters];
        let mut fill = |linear: &Linear| {
            let deviation = 1.0 / (linear.input as f32).sqrt();
            for weight in &mut params[linear.weight..][..linear.input * linear.output] {
                *weight = loop {
                    let draw: f32 = StandardNormal.sample(rng);
                    if draw.abs() <= 2.0 {
                        break draw * deviation;
                    }
                };
            }
        };
        for linear in self.blocks.iter().flat_map(Block::linears) {
            fill(&linear);
        }
        for block in &self.blocks {
            if let Some(norm) = block.norm() {
                params[norm.weight..][..block.width()].fill(1.0);
            }
        }
        params
    }

    /// Buffers for batches of up to `max_batch` rows, for passes in single precision.
    #[must_use]
    pub fn cache(&self, max_batch: usize) -> Cache {
        Cache::new(&[self.shape()], max_batch, Form::Single)
    }

    /// Buffers for batches of up to `max_batch` rows, for passes in `precision`.
    ///
    /// # Errors
    /// [`NnError::NoBf16`] if the processor does not have it.
    pub fn cache_in(&self, max_batch: usize, precision: Precision) -> Result<Cache, NnError> {
        Self::cache_of(&[self], max_batch, precision)
    }

    /// One set of buffers for networks that are used one after another: what a pass of one leaves is lost with the next
    /// pass of another.
    ///
    /// # Errors
    /// [`NnError::NoBf16`] if the processor does not have `precision`.
    pub fn cache_of(networks: &[&Self], max_batch: usize, precision: Precision) -> Result<Cache, NnError> {
        let form = precision.form().ok_or(NnError::NoBf16)?;
        let shapes: Vec<Shape<'_>> = networks.iter().map(|network| network.shape()).collect();
        Ok(Cache::new(&shapes, max_batch, form))
    }

    fn pieces(&self, form: Form) -> &[Piece] {
        match form {
            Form::Single => &self.pieces,
            Form::Half(_) => &self.half_pieces,
        }
    }

    fn shape(&self) -> Shape<'_> {
        (&self.blocks, self.spec.input)
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Its affine maps, in the order of the flat vector.
    pub(crate) fn linears(&self) -> &[Linear] {
        &self.linears
    }

    pub(crate) fn check_parameters(&self, params: &[f32]) {
        assert_eq!(params.len(), self.parameters, "parameters of another network");
    }

    fn check(&self, params: &[f32], x: &[f32], batch: usize, cache: &Cache) {
        self.check_parameters(params);
        assert_eq!(x.len(), batch * self.spec.input, "x must be [batch * input]");
        assert!(batch <= cache.max_batch, "batch {batch} exceeds the cache's {}", cache.max_batch);
        assert!(cache.fits(self.shape(), batch), "cache of another network");
    }

    /// The forward pass. `x: [batch * input]`; the result `[batch * output]` lies in the cache, which also keeps
    /// what [`Network::backward`] needs.
    ///
    /// # Panics
    /// If a length does not fit the network, or the batch the cache.
    pub fn forward<'c>(
        &self,
        params: &[f32],
        x: &[f32],
        batch: usize,
        cache: &'c mut Cache,
        pool: &Pool,
    ) -> &'c [f32] {
        self.check(params, x, batch, cache);
        let Cache { form, chunks, output, packed, .. } = cache;
        let form = *form;
        let (output, packed) = (&mut output[..batch * self.spec.output], packed.as_mut_slice());
        let rows = Rows::new(batch, self.spec.input, self.spec.output);
        pool.install(|| {
            pack_all(&self.linears, params, packed, true, form, pool);
            let weights = Weights { params, packed, form };
            rows.each(chunks, x, output, pool, &|chunk, count, x, out| {
                passes::forward(&self.blocks, weights, x, out, chunk, count);
            });
        });
        output
    }

    /// The backward pass, after [`Network::forward`] with the same arguments. `d_out: [batch * output]` is the
    /// loss's derivative with respect to the result; its derivative with respect to the parameters is **added** to
    /// `grads`, that with respect to the input written to `d_x: [batch * input]` if asked for.
    ///
    /// # Panics
    /// If a length does not fit the network, or the batch the cache.
    pub fn backward(
        &self,
        params: &[f32],
        x: &[f32],
        d_out: &[f32],
        batch: usize,
        cache: &mut Cache,
        grads: &mut [f32],
        d_x: Option<&mut [f32]>,
        pool: &Pool,
    ) {
        self.backward_pass(params, x, d_out, batch, cache, Some((grads, false)), d_x, pool);
    }

    /// [`Network::backward`] that **replaces** what stands in `grads`: saves setting it to zero and reading it.
    ///
    /// # Panics
    /// If a length does not fit the network, or the batch the cache.
    pub fn backward_overwrite(
        &self,
        params: &[f32],
        x: &[f32],
        d_out: &[f32],
        batch: usize,
        cache: &mut Cache,
        grads: &mut [f32],
        d_x: Option<&mut [f32]>,
        pool: &Pool,
    ) {
        self.backward_pass(params, x, d_out, batch, cache, Some((grads, true)), d_x, pool);
    }

    /// [`Network::backward`] of frozen parameters: only the derivative with respect to the input is formed, and
    /// written to `d_x: [batch * input]`.
    ///
    /// # Panics
    /// If a length does not fit the network, or the batch the cache.
    pub fn input_gradient(
        &self,
        params: &[f32],
        x: &[f32],
        d_out: &[f32],
        batch: usize,
        cache: &mut Cache,
        d_x: &mut [f32],
        pool: &Pool,
    ) {
        self.backward_pass(params, x, d_out, batch, cache, None, Some(d_x), pool);
    }

    /// The backward pass and a step of `adam` down the gradient, which is taken piece by piece as it is formed. The
    /// gradient stays in the cache until the next pass: [`Network::last_gradient`].
    ///
    /// # Panics
    /// If a length does not fit the network, or the batch the cache.
    pub fn descend(
        &self,
        params: &mut [f32],
        x: &[f32],
        d_out: &[f32],
        batch: usize,
        cache: &mut Cache,
        adam: &mut Adam,
        pool: &Pool,
    ) {
        pool.install(|| {
            self.backward_pass(params, x, d_out, batch, cache, None, None, pool);
            let Cache { form, chunks, packed, .. } = cache;
            let cut = cut(batch);
            let inputs = Inputs::Batch { x, rows: cut.rows, width: self.spec.input };
            let chunks = &chunks[..cut.chunks];
            let grads = &mut packed.as_mut_slice()[..self.parameters];
            let sources = Sources { blocks: &self.blocks, chunks, inputs, form: *form, overwrite: true };
            sources.descend(grads, params, adam, self.pieces(*form), pool);
        });
    }

    /// The gradient that the last [`Network::descend`] with this cache went down, if no pass has used the cache since.
    #[must_use]
    pub fn last_gradient<'c>(&self, cache: &'c Cache) -> &'c [f32] {
        &cache.packed.as_slice()[..self.parameters]
    }

    fn backward_pass(
        &self,
        params: &[f32],
        x: &[f32],
        d_out: &[f32],
        batch: usize,
        cache: &mut Cache,
        grads: Option<(&mut [f32], bool)>,
        d_x: Option<&mut [f32]>,
        pool: &Pool,
    ) {
        self.check(params, x, batch, cache);
        assert_eq!(d_out.len(), batch * self.spec.output, "d_out must be [batch * output]");
        let (d_x, d_x_width): (&mut [f32], usize) = match d_x {
            Some(d_x) => {
                assert_eq!(d_x.len(), x.len(), "d_x must be [batch * input]");
                (d_x, self.spec.input)
            }
            None => (&mut [], 0),
        };
        let rows = Rows::new(batch, self.spec.output, d_x_width);
        let Cache { form, chunks, packed, .. } = cache;
        let (form, packed) = (*form, packed.as_mut_slice());
        pool.install(|| {
            pack_all(&self.linears, params, packed, false, form, pool);
            let weights = Weights { params, packed, form };
            rows.each(chunks, d_out, d_x, pool, &|chunk, count, d_out, d_x| {
                passes::backward(&self.blocks, weights, d_out, d_x, chunk, count, false);
            });
            if let Some((grads, overwrite)) = grads {
                assert_eq!(grads.len(), self.parameters, "gradients of another network");
                let inputs = Inputs::Batch { x, rows: rows.cut.rows, width: self.spec.input };
                let chunks = &chunks[..rows.cut.chunks];
                Sources { blocks: &self.blocks, chunks, inputs, form, overwrite }.add_to(
                    grads,
                    self.pieces(form),
                    pool,
                );
            }
        });
    }

    /// The one-sided gradient penalty
    /// `mean_b coefficient * max(0, |g_b| - bound)^2`, `g_b = d(sum_o net(x_b)_o) / d x_b`,
    /// which keeps the dual potentials smooth between the logged states; `x: [batch * input]`.
    ///
    /// Runs its own forward and backward pass on `x` (a cached forward pass is lost) and **adds** the penalty's exact
    /// gradient to `grads`. That takes a second-order pass, run only on the samples over the bound: the others
    /// contribute exactly zero. With `v_b` the penalty's derivative with respect to `g_b`, the gradient is
    /// `d/dθ Σ_b v_b · ∂s(x_b)/∂x`, the derivative along `v` of the first-order gradient `∂s/∂θ`: a tangent of the
    /// forward and of the backward pass.
    ///
    /// # Panics
    /// If a length does not fit the network, or the batch the cache.
    pub fn gradient_penalty(
        &self,
        params: &[f32],
        x: &[f32],
        batch: usize,
        coefficient: f32,
        bound: f32,
        cache: &mut Cache,
        grads: &mut [f32],
        pool: &Pool,
    ) -> Penalty {
        self.check(params, x, batch, cache);
        assert_eq!(grads.len(), self.parameters, "gradients of another network");
        let Cache { form, chunks, input_gradient, packed, packed_too, .. } = cache;
        let (form, packed, packed_too) = (*form, packed.as_mut_slice(), packed_too.as_mut_slice());
        let input_gradient = &mut input_gradient[..batch * self.spec.input];
        // One over the batch belongs to the mean.
        let scale = 2.0 * coefficient / batch as f32;
        let width = self.spec.input;
        let rows = Rows::new(batch, width, width);
        pool.install(|| {
            pack_all(&self.linears, params, packed, true, form, pool);
            pack_all(&self.linears, params, packed_too, false, form, pool);
            let weights = Orientations {
                forward: Weights { params, packed, form },
                backward: Weights { params, packed: packed_too, form },
            };
            rows.each(chunks, x, input_gradient, pool, &|chunk, count, x, gradient| {
                penalty::chunk_pass(&self.blocks, weights, x, gradient, chunk, count, bound, scale);
            });
            let chunks = &chunks[..rows.cut.chunks];
            let inputs = Inputs::Tangent;
            Sources { blocks: &self.blocks, chunks, inputs, form, overwrite: false }.add_to(
                grads,
                self.pieces(form),
                pool,
            );
            let mut total = ChunkPenalty::default();
            for chunk in chunks {
                total.excess += chunk.penalty.excess;
                total.max_norm = penalty::larger(total.max_norm, chunk.penalty.max_norm);
            }
            Penalty {
                value: f64::from(coefficient) * total.excess / batch.max(1) as f64,
                max_norm: total.max_norm,
                exceeding: chunks.iter().map(|chunk| chunk.rows).sum(),
            }
        })
    }
}

/// Lays all weights out for forward (`transposed`) or backward passes; `packed` begins with the first map's.
fn pack_all(
    linears: &[Linear],
    params: &[f32],
    packed: &mut [f32],
    transposed: bool,
    form: Form,
    pool: &Pool,
) {
    match linears {
        [linear] => linear.pack(params, packed, transposed, form),
        [] => {}
        _ => {
            let (left, right) = linears.split_at(linears.len() / 2);
            let (left_packed, right_packed) = packed.split_at_mut(right[0].packed - left[0].packed);
            pool.join(
                || pack_all(left, params, left_packed, transposed, form, pool),
                || pack_all(right, params, right_packed, transposed, form, pool),
            );
        }
    }
}

/// A batch cut into chunks, with the row lengths of what goes in and out.
#[derive(Clone, Copy)]
struct Rows {
    cut: Cut,
    batch: usize,
    width_in: usize,
    width_out: usize,
}

impl Rows {
    fn new(batch: usize, width_in: usize, width_out: usize) -> Self {
        Self { cut: cut(batch), batch, width_in, width_out }
    }

    /// Calls `work(chunk, rows, in, out)` for every chunk.
    fn each<F>(self, chunks: &mut [Chunk], input: &[f32], output: &mut [f32], pool: &Pool, work: &F)
    where
        F: Fn(&mut Chunk, usize, &[f32], &mut [f32]) + Sync,
    {
        self.span(&mut chunks[..self.cut.chunks], input, output, self.batch, pool, work);
    }

    fn span<F>(
        self,
        chunks: &mut [Chunk],
        input: &[f32],
        output: &mut [f32],
        batch: usize,
        pool: &Pool,
        work: &F,
    ) where
        F: Fn(&mut Chunk, usize, &[f32], &mut [f32]) + Sync,
    {
        match chunks {
            [] => {}
            [chunk] => work(chunk, batch, input, output),
            _ => {
                let (left, right) = chunks.split_at_mut(chunks.len() / 2);
                let rows = left.len() * self.cut.rows;
                let (left_in, right_in) = input.split_at(rows * self.width_in);
                let (left_out, right_out) = output.split_at_mut(rows * self.width_out);
                pool.join(
                    || self.span(left, left_in, left_out, rows, pool, work),
                    || self.span(right, right_in, right_out, batch - rows, pool, work),
                );
            }
        }
    }
}
