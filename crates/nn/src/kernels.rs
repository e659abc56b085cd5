//! Row kernels between the matrix products: bias, activation, layer normalisation, their adjoints and tangents.
//! All matrices are row-major; `width` is the row length; sums over rows are taken in row order.
//!
//! With `z` the affine map's result, layer normalisation is `y = gain * n + shift`, `n = (z - mean z) r`,
//! `r = 1 / sqrt(var z + 1e-5)` (biased variance), and the block's output is `a = f(y)`. A dot over a letter is a
//! tangent, `d_` an adjoint. Derivatives of `f` are taken from `a`, which is all that is kept.

use crate::Activation;

/// Added to the variance, as in the frameworks' default.
pub(crate) const NORM_EPSILON: f32 = 1e-5;

fn activate(activation: Activation, y: f32) -> f32 {
    match activation {
        Activation::Identity => y,
        Activation::Relu => y.max(0.0),
        Activation::Elu => {
            if y > 0.0 {
                y
            } else {
                y.exp_m1()
            }
        }
        Activation::Tanh => y.tanh(),
    }
}

/// `f'(y)` from `a = f(y)`.
fn slope(activation: Activation, a: f32) -> f32 {
    match activation {
        Activation::Identity => 1.0,
        Activation::Relu => f32::from(a > 0.0),
        Activation::Elu => a.min(0.0) + 1.0,
        Activation::Tanh => 1.0 - a * a,
    }
}

/// `f''(y) / f'(y)` from `a = f(y)`.
fn curvature_ratio(activation: Activation, a: f32) -> f32 {
    match activation {
        Activation::Identity | Activation::Relu => 0.0,
        Activation::Elu => f32::from(a <= 0.0),
        Activation::Tanh => -2.0 * a,
    }
}

/// `out = f(out + bias)`.
pub(crate) fn bias_activation(out: &mut [f32], bias: &[f32], activation: Activation) {
    for row in out.chunks_exact_mut(bias.len()) {
        for (value, b) in row.iter_mut().zip(bias) {
            *value = activate(activation, *value + b);
        }
    }
}

/// What layer normalisation leaves for its adjoint.
pub(crate) struct NormState<'a> {
    pub(crate) normalised: &'a mut [f32],
    pub(crate) inverse_std: &'a mut [f32],
}

/// `z = out + bias (+ skip)`, then `out = f(norm(z))`.
pub(crate) fn bias_norm_activation(
    out: &mut [f32],
    state: NormState<'_>,
    skip: Option<&[f32]>,
    bias: &[f32],
    gain: &[f32],
    shift: &[f32],
    activation: Activation,
) {
    let width = bias.len();
    let inverse_width = 1.0 / width as f32;
    for (index, row) in out.chunks_exact_mut(width).enumerate() {
        for i in 0..width {
            row[i] += bias[i];
        }
        if let Some(skip) = skip {
            let skip = &skip[index * width..][..width];
            for i in 0..width {
                row[i] += skip[i];
            }
        }
        let mean = row.iter().sum::<f32>() * inverse_width;
        let variance = row.iter().map(|z| (z - mean) * (z - mean)).sum::<f32>() * inverse_width;
        let r = 1.0 / (variance + NORM_EPSILON).sqrt();
        state.inverse_std[index] = r;
        let normalised = &mut state.normalised[index * width..][..width];
        for i in 0..width {
            normalised[i] = (row[i] - mean) * r;
            row[i] = activate(activation, normalised[i] * gain[i] + shift[i]);
        }
    }
}

/// `d_linear = f'(y) d_output`; adds the row sums to `d_bias`.
pub(crate) fn activation_adjoint(
    d_linear: &mut [f32],
    d_output: &[f32],
    output: &[f32],
    d_bias: &mut [f32],
    activation: Activation,
) {
    let width = d_bias.len();
    for ((d_z, d_a), a) in
        d_linear.chunks_exact_mut(width).zip(d_output.chunks_exact(width)).zip(output.chunks_exact(width))
    {
        for i in 0..width {
            d_z[i] = slope(activation, a[i]) * d_a[i];
            d_bias[i] += d_z[i];
        }
    }
}

/// Gradients of a normalised affine map's vectors, accumulated over the rows of a chunk.
pub(crate) struct NormSums<'a> {
    pub(crate) bias: &'a mut [f32],
    pub(crate) gain: &'a mut [f32],
    pub(crate) shift: &'a mut [f32],
}

/// The adjoint of [`bias_norm_activation`] down to `z`; adds to the sums.
/// `d_z = r (u - mean u - n mean(u n))`, `u = gain d_y`, `d_y = f'(y) d_output`.
pub(crate) fn norm_adjoint(
    d_linear: &mut [f32],
    d_output: &[f32],
    output: &[f32],
    normalised: &[f32],
    inverse_std: &[f32],
    gain: &[f32],
    sums: NormSums<'_>,
    activation: Activation,
) {
    let width = gain.len();
    let inverse_width = 1.0 / width as f32;
    for (index, d_z) in d_linear.chunks_exact_mut(width).enumerate() {
        let row = index * width..(index + 1) * width;
        let (d_a, a, n) = (&d_output[row.clone()], &output[row.clone()], &normalised[row]);
        let (mut mean_u, mut mean_un) = (0.0, 0.0);
        for i in 0..width {
            let d_y = slope(activation, a[i]) * d_a[i];
            sums.gain[i] += d_y * n[i];
            sums.shift[i] += d_y;
            let u = gain[i] * d_y;
            d_z[i] = u;
            mean_u += u;
            mean_un += u * n[i];
        }
        mean_u *= inverse_width;
        mean_un *= inverse_width;
        for i in 0..width {
            d_z[i] = inverse_std[index] * (d_z[i] - mean_u - n[i] * mean_un);
            sums.bias[i] += d_z[i];
        }
    }
}

/// Turns `ȧ = ż` into `ȧ = f'(y) ż`.
pub(crate) fn activation_tangent(t_output: &mut [f32], output: &[f32], activation: Activation) {
    for (t, &a) in t_output.iter_mut().zip(output) {
        *t *= slope(activation, a);
    }
}

/// From `ż` in `t_output` to `ȧ` there: `ṅ = r (ż - mean ż - n mean(n ż))`, `ȧ = f'(y) gain ṅ`;
/// `t_ratio = ṙ / r = -r mean(n ż)`.
pub(crate) fn norm_tangent(
    t_output: &mut [f32],
    t_normalised: &mut [f32],
    t_ratio: &mut [f32],
    output: &[f32],
    normalised: &[f32],
    inverse_std: &[f32],
    gain: &[f32],
    activation: Activation,
) {
    let width = gain.len();
    let inverse_width = 1.0 / width as f32;
    for (index, t) in t_output.chunks_exact_mut(width).enumerate() {
        let row = index * width..(index + 1) * width;
        let (a, n, t_n) = (&output[row.clone()], &normalised[row.clone()], &mut t_normalised[row]);
        let r = inverse_std[index];
        let mean = t.iter().sum::<f32>() * inverse_width;
        let mean_n = t.iter().zip(n).map(|(t, n)| t * n).sum::<f32>() * inverse_width;
        t_ratio[index] = -r * mean_n;
        for i in 0..width {
            t_n[i] = r * (t[i] - mean - n[i] * mean_n);
            t[i] = slope(activation, a[i]) * gain[i] * t_n[i];
        }
    }
}

/// The tangent of [`activation_adjoint`]: `ḋ_z = f'(y) ḋ_a + f''(y) ẏ d_a`, where `f'(y) ẏ = ȧ`.
pub(crate) fn activation_adjoint_tangent(
    t_d_linear: &mut [f32],
    t_d_output: &[f32],
    d_output: &[f32],
    output: &[f32],
    t_output: &[f32],
    t_d_bias: &mut [f32],
    activation: Activation,
) {
    let width = t_d_bias.len();
    for (index, t_d_z) in t_d_linear.chunks_exact_mut(width).enumerate() {
        let row = index * width..(index + 1) * width;
        let (t_d_a, d_a) = (&t_d_output[row.clone()], &d_output[row.clone()]);
        let (a, t_a) = (&output[row.clone()], &t_output[row]);
        for i in 0..width {
            t_d_z[i] =
                slope(activation, a[i]) * t_d_a[i] + curvature_ratio(activation, a[i]) * t_a[i] * d_a[i];
            t_d_bias[i] += t_d_z[i];
        }
    }
}

/// What the tangent of [`norm_adjoint`] reads, all from the passes before it.
pub(crate) struct NormTangentInputs<'a> {
    pub(crate) t_d_output: &'a [f32],
    pub(crate) d_output: &'a [f32],
    pub(crate) d_linear: &'a [f32],
    pub(crate) output: &'a [f32],
    pub(crate) t_output: &'a [f32],
    pub(crate) normalised: &'a [f32],
    pub(crate) t_normalised: &'a [f32],
    pub(crate) inverse_std: &'a [f32],
    pub(crate) t_ratio: &'a [f32],
    pub(crate) gain: &'a [f32],
}

/// The tangent of [`norm_adjoint`]:
/// `ḋ_z = (ṙ/r) d_z + r (u̇ - mean u̇ - ṅ mean(u n) - n mean(u̇ n + u ṅ))`; adds the tangents of the vectors'
/// gradients to the sums.
pub(crate) fn norm_adjoint_tangent(
    t_d_linear: &mut [f32],
    inputs: &NormTangentInputs<'_>,
    sums: NormSums<'_>,
    activation: Activation,
) {
    let gain = inputs.gain;
    let width = gain.len();
    let inverse_width = 1.0 / width as f32;
    for (index, t_d_z) in t_d_linear.chunks_exact_mut(width).enumerate() {
        let row = index * width..(index + 1) * width;
        let (t_d_a, d_a) = (&inputs.t_d_output[row.clone()], &inputs.d_output[row.clone()]);
        let (a, t_a) = (&inputs.output[row.clone()], &inputs.t_output[row.clone()]);
        let (n, t_n) = (&inputs.normalised[row.clone()], &inputs.t_normalised[row.clone()]);
        let d_z = &inputs.d_linear[row];
        let (mut mean_t_u, mut mean_un, mut mean_t_un) = (0.0, 0.0, 0.0);
        for i in 0..width {
            let f1 = slope(activation, a[i]);
            let d_y = f1 * d_a[i];
            let t_d_y = f1 * t_d_a[i] + curvature_ratio(activation, a[i]) * t_a[i] * d_a[i];
            sums.gain[i] += t_d_y * n[i] + d_y * t_n[i];
            sums.shift[i] += t_d_y;
            let (u, t_u) = (gain[i] * d_y, gain[i] * t_d_y);
            t_d_z[i] = t_u;
            mean_t_u += t_u;
            mean_un += u * n[i];
            mean_t_un += t_u * n[i] + u * t_n[i];
        }
        mean_t_u *= inverse_width;
        mean_un *= inverse_width;
        mean_t_un *= inverse_width;
        let (r, ratio) = (inputs.inverse_std[index], inputs.t_ratio[index]);
        for i in 0..width {
            t_d_z[i] = ratio * d_z[i] + r * (t_d_z[i] - mean_t_u - t_n[i] * mean_un - n[i] * mean_t_un);
            sums.bias[i] += t_d_z[i];
        }
    }
}

/// `out *= f'` for a ReLU with result `hidden`.
pub(crate) fn relu_mask(out: &mut [f32], hidden: &[f32]) {
    for (value, &h) in out.iter_mut().zip(hidden) {
        *value = if h > 0.0 { *value } else { 0.0 };
    }
}

/// Adds the sum of the rows.
pub(crate) fn add_rows(sum: &mut [f32], rows: &[f32]) {
    for row in rows.chunks_exact(sum.len()) {
        for (s, value) in sum.iter_mut().zip(row) {
            *s += value;
        }
    }
}
