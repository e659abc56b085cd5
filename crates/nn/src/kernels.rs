//! Row kernels between the matrix products: bias, activation, layer normalisation, their adjoints and tangents.
//! All matrices are row-major; `width` is the row length; sums over rows are taken in row order.
//!
//! With `z` the affine map's result, layer normalisation is `y = gain * n + shift`, `n = (z - mean z) r`,
//! `r = 1 / sqrt(var z + 1e-5)` (biased variance), and the block's output is `a = f(y)`. A dot over a letter is a
//! tangent, `d_` an adjoint. Derivatives of `f` are taken from `a`, which is all that is kept.

use crate::Activation;
use crate::math;
use crate::simd::{Kernel, map, run_vectorised, sums};
use std::marker::PhantomData;

/// Derivatives and moments smaller than this (2^-96, 1.3e-29) count as zero.
///
/// Where samples have weights that span many magnitudes, so do derivatives, and some fall below the smallest normal
/// number, 2^-126. Processors take a hundred cycles and more for an operation on such a number, which made products
/// ten times slower. Cut here, every operand of the products that follow is zero or has room to be multiplied by
/// anything a network holds; next to Adam's `epsilon` such a derivative is nothing.
const NEGLIGIBLE: f32 = f32::from_bits((127 - 96) << 23);
/// The root of [`NEGLIGIBLE`]: less than this has a square that counts as zero.
const NEGLIGIBLE_ROOT: f32 = f32::from_bits((127 - 48) << 23);

/// `x`, or zero if it is negligible; NaN stays.
#[inline(always)]
fn settled(x: f32) -> f32 {
    if x.abs() < NEGLIGIBLE { 0.0 } else { x }
}

/// Added to the variance, as in the frameworks' default.
const NORM_EPSILON: f32 = 1e-5;

/// An activation as a type, so that each kernel is compiled for each.
trait Function {
    /// `f(y)`.
    fn value(y: f32) -> f32;
    /// `f'(y)` from `a = f(y)`.
    fn slope(a: f32) -> f32;
    /// `f''(y) / f'(y)` from `a = f(y)`.
    fn curvature(a: f32) -> f32;
}

struct Identity;
struct Relu;
struct Elu;
struct Tanh;

impl Function for Identity {
    #[inline(always)]
    fn value(y: f32) -> f32 {
        y
    }
    #[inline(always)]
    fn slope(_: f32) -> f32 {
        1.0
    }
    #[inline(always)]
    fn curvature(_: f32) -> f32 {
        0.0
    }
}

impl Function for Relu {
    #[inline(always)]
    fn value(y: f32) -> f32 {
        // NaN stays NaN.
        if y < 0.0 { 0.0 } else { y }
    }
    #[inline(always)]
    fn slope(a: f32) -> f32 {
        if a > 0.0 { 1.0 } else { 0.0 }
    }
    #[inline(always)]
    fn curvature(_: f32) -> f32 {
        0.0
    }
}

impl Function for Elu {
    #[inline(always)]
    fn value(y: f32) -> f32 {
        let negative = math::exp_m1_negative(y);
        if y < 0.0 { negative } else { y }
    }
    #[inline(always)]
    fn slope(a: f32) -> f32 {
        1.0 + if a < 0.0 { a } else { 0.0 }
    }
    #[inline(always)]
    fn curvature(a: f32) -> f32 {
        if a < 0.0 { 1.0 } else { 0.0 }
    }
}

impl Function for Tanh {
    #[inline(always)]
    fn value(y: f32) -> f32 {
        math::tanh(y)
    }
    #[inline(always)]
    fn slope(a: f32) -> f32 {
        1.0 - a * a
    }
    #[inline(always)]
    fn curvature(a: f32) -> f32 {
        -2.0 * a
    }
}

/// Runs a kernel for the function that `$activation` names.
macro_rules! with_function {
    ($activation:expr, $kernel:ident($($argument:expr),* $(,)?)) => {
        match $activation {
            Activation::Identity => run_vectorised::<$kernel<Identity>, _>(($($argument,)*)),
            Activation::Relu => run_vectorised::<$kernel<Relu>, _>(($($argument,)*)),
            Activation::Elu => run_vectorised::<$kernel<Elu>, _>(($($argument,)*)),
            Activation::Tanh => run_vectorised::<$kernel<Tanh>, _>(($($argument,)*)),
        }
    };
}

/// Defines a kernel, a function of its arguments and, where it says so, of an activation.
macro_rules! kernel {
    ($name:ident<F>($($argument:ident: $kind:ty),* $(,)?) $body:block) => {
        struct $name<F>(PhantomData<F>);

        impl<F: Function> Kernel<($($kind,)*)> for $name<F> {
            type Output = ();

            #[inline(always)]
            fn run(($($argument,)*): ($($kind,)*)) $body
        }
    };
    ($name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block) => {
        struct $name;

        impl Kernel<($($kind,)*)> for $name {
            type Output = ();

            #[inline(always)]
            fn run(($($argument,)*): ($($kind,)*)) $body
        }
    };
}

/// `out = f(out + bias)`.
pub(crate) fn bias_activation(out: &mut [f32], bias: &[f32], activation: Activation) {
    with_function!(activation, BiasActivation(out, bias));
}

kernel! {
    BiasActivation<F>(out: &mut [f32], bias: &[f32]) {
        for row in out.chunks_exact_mut(bias.len()) {
            map([row], [bias], |[z], [b]| [F::value(z + b)]);
        }
    }
}

/// What layer normalisation leaves for its adjoint.
pub(crate) struct NormState<'a> {
    pub(crate) normalised: &'a mut [f32],
    pub(crate) inverse_std: &'a mut [f32],
}

/// The vectors of a normalised affine map.
#[derive(Clone, Copy)]
pub(crate) struct NormParams<'a> {
    pub(crate) bias: &'a [f32],
    pub(crate) gain: &'a [f32],
    pub(crate) shift: &'a [f32],
}

/// `z = out + bias (+ skip)`, then `out = f(norm(z))`.
pub(crate) fn bias_norm_activation(
    out: &mut [f32],
    state: NormState<'_>,
    skip: Option<&[f32]>,
    params: NormParams<'_>,
    activation: Activation,
) {
    with_function!(activation, BiasNormActivation(out, state, skip, params));
}

kernel! {
    BiasNormActivation<F>(
        out: &mut [f32],
        state: NormState<'_>,
        skip: Option<&[f32]>,
        params: NormParams<'_>,
    ) {
        let width = params.bias.len();
        let inverse_width = 1.0 / width as f32;
        for (index, row) in out.chunks_exact_mut(width).enumerate() {
            match skip {
                None => map([row], [params.bias], |[z], [b]| [z + b]),
                Some(skip) => {
                    let skip = &skip[index * width..][..width];
                    map([row], [params.bias, skip], |[z], [b, x]| [z + b + x]);
                }
            }
            let [sum] = sums([row], |[z]| [z]);
            let mean = sum * inverse_width;
            let [squares] = sums([row], |[z]| [(z - mean) * (z - mean)]);
            let r = 1.0 / (squares * inverse_width + NORM_EPSILON).sqrt();
            state.inverse_std[index] = r;
            let normalised = &mut state.normalised[index * width..][..width];
            map([row, normalised], [params.gain, params.shift], |[z, _], [gain, shift]| {
                let n = (z - mean) * r;
                [F::value(n * gain + shift), n]
            });
        }
    }
}

/// `d = f'(y) d` for a block with result `output`; adds the sum of the rows to `d_bias`.
pub(crate) fn activation_adjoint(d: &mut [f32], output: &[f32], d_bias: &mut [f32], activation: Activation) {
    with_function!(activation, ActivationAdjoint(d, output, d_bias));
}

kernel! {
    ActivationAdjoint<F>(d: &mut [f32], output: &[f32], d_bias: &mut [f32]) {
        let width = d_bias.len();
        for (d, a) in d.chunks_exact_mut(width).zip(output.chunks_exact(width)) {
            map([d, d_bias], [a], |[d, sum], [a]| {
                let d = settled(F::slope(a) * d);
                [d, sum + d]
            });
        }
    }
}

/// Gradients of a normalised affine map's vectors, accumulated over the rows of a chunk.
pub(crate) struct NormSums<'a> {
    pub(crate) bias: &'a mut [f32],
    pub(crate) gain: &'a mut [f32],
    pub(crate) shift: &'a mut [f32],
}

/// What the forward pass left of a normalised block.
#[derive(Clone, Copy)]
pub(crate) struct NormForward<'a> {
    pub(crate) output: &'a [f32],
    pub(crate) normalised: &'a [f32],
    pub(crate) inverse_std: &'a [f32],
    pub(crate) gain: &'a [f32],
}

/// The adjoint of [`bias_norm_activation`] down to `z`, in place; adds to the sums.
/// `d_z = r (u - mean u - n mean(u n))`, `u = gain d_y`, `d_y = f'(y) d`.
pub(crate) fn norm_adjoint(
    d: &mut [f32],
    forward: NormForward<'_>,
    sums: NormSums<'_>,
    activation: Activation,
) {
    with_function!(activation, NormAdjoint(d, forward, sums));
}

kernel! {
    NormAdjoint<F>(d: &mut [f32], forward: NormForward<'_>, into: NormSums<'_>) {
        let gain = forward.gain;
        let width = gain.len();
        let inverse_width = 1.0 / width as f32;
        for (index, d) in d.chunks_exact_mut(width).enumerate() {
            let row = index * width..(index + 1) * width;
            let (a, n) = (&forward.output[row.clone()], &forward.normalised[row]);
            map([d, into.gain, into.shift], [a, n, gain], |[d, d_gain, d_shift], [a, n, gain]| {
                let d_y = F::slope(a) * d;
                [gain * d_y, d_gain + d_y * n, d_shift + d_y]
            });
            let [sum_u, sum_un] = sums([d, n], |[u, n]| [u, u * n]);
            let (mean_u, mean_un) = (sum_u * inverse_width, sum_un * inverse_width);
            let r = forward.inverse_std[index];
            map([d, into.bias], [n], |[u, d_bias], [n]| {
                let d_z = settled(r * (u - mean_u - n * mean_un));
                [d_z, d_bias + d_z]
            });
        }
    }
}

/// Turns `ȧ = ż` into `ȧ = f'(y) ż`.
pub(crate) fn activation_tangent(t_output: &mut [f32], output: &[f32], activation: Activation) {
    with_function!(activation, ActivationTangent(t_output, output));
}

kernel! {
    ActivationTangent<F>(t_output: &mut [f32], output: &[f32]) {
        let output = &output[..t_output.len()];
        map([t_output], [output], |[t], [a]| [settled(F::slope(a) * t)]);
    }
}

/// From `ż` in `t_output` to `ȧ` there: `ṅ = r (ż - mean ż - n mean(n ż))`, `ȧ = f'(y) gain ṅ`;
/// `t_ratio = ṙ / r = -r mean(n ż)`.
pub(crate) fn norm_tangent(
    t_output: &mut [f32],
    t_normalised: &mut [f32],
    t_ratio: &mut [f32],
    forward: NormForward<'_>,
    activation: Activation,
) {
    with_function!(activation, NormTangent(t_output, t_normalised, t_ratio, forward));
}

kernel! {
    NormTangent<F>(
        t_output: &mut [f32],
        t_normalised: &mut [f32],
        t_ratio: &mut [f32],
        forward: NormForward<'_>,
    ) {
        let gain = forward.gain;
        let width = gain.len();
        let inverse_width = 1.0 / width as f32;
        for (index, t) in t_output.chunks_exact_mut(width).enumerate() {
            let row = index * width..(index + 1) * width;
            let t_n = &mut t_normalised[row.clone()];
            let (a, n) = (&forward.output[row.clone()], &forward.normalised[row]);
            let r = forward.inverse_std[index];
            let [sum, sum_n] = sums([t, n], |[t, n]| [t, t * n]);
            let (mean, mean_n) = (sum * inverse_width, sum_n * inverse_width);
            t_ratio[index] = -r * mean_n;
            map([t, t_n], [a, n, gain], |[t, _], [a, n, gain]| {
                let t_n = r * (t - mean - n * mean_n);
                [settled(F::slope(a) * gain * t_n), t_n]
            });
        }
    }
}

/// The tangent of [`activation_adjoint`], in place: `ḋ_z = f'(y) ḋ_a + f''(y) ẏ d_a`, where `f'(y) ẏ = ȧ`;
/// `d_output` is `d_a`.
pub(crate) fn activation_adjoint_tangent(
    t_d: &mut [f32],
    d_output: &[f32],
    output: &[f32],
    t_output: &[f32],
    t_d_bias: &mut [f32],
    activation: Activation,
) {
    with_function!(activation, ActivationAdjointTangent(t_d, d_output, output, t_output, t_d_bias));
}

kernel! {
    ActivationAdjointTangent<F>(
        t_d: &mut [f32],
        d_output: &[f32],
        output: &[f32],
        t_output: &[f32],
        t_d_bias: &mut [f32],
    ) {
        let width = t_d_bias.len();
        for (index, t_d) in t_d.chunks_exact_mut(width).enumerate() {
            let row = index * width..(index + 1) * width;
            let ins = [&d_output[row.clone()], &output[row.clone()], &t_output[row]];
            map([t_d, t_d_bias], ins, |[t_d, sum], [d, a, t_a]| {
                let t_d = settled(F::slope(a) * t_d + F::curvature(a) * t_a * d);
                [t_d, sum + t_d]
            });
        }
    }
}

/// What the tangent of [`norm_adjoint`] reads besides, all from the passes before it.
pub(crate) struct NormTangents<'a> {
    pub(crate) d_output: &'a [f32],
    pub(crate) d_linear: &'a [f32],
    pub(crate) t_output: &'a [f32],
    pub(crate) t_normalised: &'a [f32],
    pub(crate) t_ratio: &'a [f32],
}

/// The tangent of [`norm_adjoint`], in place:
/// `ḋ_z = (ṙ/r) d_z + r (u̇ - mean u̇ - ṅ mean(u n) - n mean(u̇ n + u ṅ))`; adds the tangents of the vectors'
/// gradients to the sums. `scratch` has room for a row.
pub(crate) fn norm_adjoint_tangent(
    t_d: &mut [f32],
    forward: NormForward<'_>,
    tangents: &NormTangents<'_>,
    sums: NormSums<'_>,
    scratch: &mut [f32],
    activation: Activation,
) {
    with_function!(activation, NormAdjointTangent(t_d, forward, tangents, sums, scratch));
}

kernel! {
    NormAdjointTangent<F>(
        t_d: &mut [f32],
        forward: NormForward<'_>,
        tangents: &NormTangents<'_>,
        into: NormSums<'_>,
        scratch: &mut [f32],
    ) {
        let gain = forward.gain;
        let width = gain.len();
        let u = &mut scratch[..width];
        let inverse_width = 1.0 / width as f32;
        for (index, t_d) in t_d.chunks_exact_mut(width).enumerate() {
            let row = index * width..(index + 1) * width;
            let (a, n) = (&forward.output[row.clone()], &forward.normalised[row.clone()]);
            let (t_a, t_n) = (&tangents.t_output[row.clone()], &tangents.t_normalised[row.clone()]);
            let (d_a, d_z) = (&tangents.d_output[row.clone()], &tangents.d_linear[row]);
            map([t_d, u, into.gain, into.shift], [a, n, t_a, t_n, d_a, gain], |outs, ins| {
                let ([t_d, _, d_gain, d_shift], [a, n, t_a, t_n, d_a, gain]) = (outs, ins);
                let f1 = F::slope(a);
                let d_y = f1 * d_a;
                let t_d_y = f1 * t_d + F::curvature(a) * t_a * d_a;
                [gain * t_d_y, gain * d_y, d_gain + t_d_y * n + d_y * t_n, d_shift + t_d_y]
            });
            let [sum_t_u, sum_un, sum_t_un] =
                sums([t_d, u, n, t_n], |[t_u, u, n, t_n]| [t_u, u * n, t_u * n + u * t_n]);
            let (mean_t_u, mean_un) = (sum_t_u * inverse_width, sum_un * inverse_width);
            let mean_t_un = sum_t_un * inverse_width;
            let (r, ratio) = (forward.inverse_std[index], tangents.t_ratio[index]);
            map([t_d, into.bias], [n, t_n, d_z], |[t_u, sum], [n, t_n, d_z]| {
                let t_d_z = settled(ratio * d_z + r * (t_u - mean_t_u - t_n * mean_un - n * mean_t_un));
                [t_d_z, sum + t_d_z]
            });
        }
    }
}

/// `d = 0` where a ReLU with result `hidden` is off; adds the sum of the rows to `d_bias`.
pub(crate) fn relu_adjoint(d: &mut [f32], hidden: &[f32], d_bias: &mut [f32]) {
    activation_adjoint(d, hidden, d_bias, Activation::Relu);
}

/// `out = x`, less what is negligible.
pub(crate) fn copy_settled(out: &mut [f32], x: &[f32]) {
    run_vectorised::<CopySettled, _>((out, x));
}

kernel! {
    CopySettled(out: &mut [f32], x: &[f32]) {
        map([out], [x], |_, [x]| [settled(x)]);
    }
}

/// Adds the sum of the rows.
pub(crate) fn add_rows(sum: &mut [f32], rows: &[f32]) {
    run_vectorised::<AddRows, _>((sum, rows));
}

kernel! {
    AddRows(sum: &mut [f32], rows: &[f32]) {
        for row in rows.chunks_exact(sum.len()) {
            map([sum], [row], |[s], [x]| [s + x]);
        }
    }
}

/// `out += x`.
pub(crate) fn add(out: &mut [f32], x: &[f32]) {
    run_vectorised::<Add, _>((out, x));
}

kernel! {
    Add(out: &mut [f32], x: &[f32]) {
        map([out], [x], |[o], [x]| [o + x]);
    }
}

/// Adam's rates, corrected for the step.
#[derive(Clone, Copy)]
pub(crate) struct AdamRates {
    pub(crate) beta1: f32,
    pub(crate) beta2: f32,
    pub(crate) step: f32,
    pub(crate) inverse_root: f32,
    pub(crate) epsilon: f32,
}

/// Moments and parameters in one pass.
pub(crate) fn adam(
    params: &mut [f32],
    grads: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    rates: AdamRates,
) {
    run_vectorised::<AdamUpdate, _>((params, grads, first, second, rates));
}

kernel! {
    AdamUpdate(
        params: &mut [f32],
        grads: &[f32],
        first: &mut [f32],
        second: &mut [f32],
        rates: AdamRates,
    ) {
        let AdamRates { beta1, beta2, step, inverse_root, epsilon } = rates;
        map([params, first, second], [grads], |[p, m, v], [g]| {
            // Without a gradient the moments decay; they reach zero, not numbers that are slow to work with.
            let m = settled(beta1 * m + (1.0 - beta1) * g);
            let root = if g.abs() < NEGLIGIBLE_ROOT { 0.0 } else { g };
            let v = settled(beta2 * v + (1.0 - beta2) * (root * root));
            [p - step * m / (v.sqrt() * inverse_root + epsilon), m, v]
        });
    }
}

/// `average += rate (params - average)`.
pub(crate) fn average(average: &mut [f32], params: &[f32], rate: f32) {
    run_vectorised::<Average, _>((average, params, rate));
}

kernel! {
    Average(average: &mut [f32], params: &[f32], rate: f32) {
        map([average], [params], |[a], [p]| [a + rate * (p - a)]);
    }
}
