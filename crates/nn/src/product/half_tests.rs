//! Products in bfloat16: to the bit against a model of what [`super::half`] says, and within rounding of plain sums.

use super::tests::{SHAPES, assert_close, plain, values};
use super::*;

/// The processor's instructions; without them there is nothing to test.
fn form() -> Option<Form> {
    let half = Half::detect().map(Form::Half);
    if half.is_none() {
        eprintln!("skipped: this processor lacks AVX512-BF16");
    }
    half
}

/// `x` rounded to bfloat16: to nearest, ties to even, below the smallest normal number to zero.
fn rounded(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE {
        return 0.0 * x;
    }
    if x.is_nan() {
        return x;
    }
    let (kept, lost) = (x.to_bits() >> 16, x.to_bits() & 0xFFFF);
    let up = lost > 0x8000 || lost == 0x8000 && kept & 1 == 1;
    f32::from_bits((kept + u32::from(up)) << 16)
}

fn flushed(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0.0 } else { x }
}

/// Terms in the order of the instruction: of each pair the second, then the first, each sum rounded. Products are exact in
/// single precision, so that `+` rounds as the instruction does.
fn sum_of_pairs(terms: &[(f32, f32)]) -> f32 {
    let mut sum = 0.0;
    for pair in terms.chunks(2) {
        for &(a, b) in pair.iter().rev() {
            sum = flushed(sum + rounded(a) * rounded(b));
        }
    }
    sum
}

/// Blocks of terms, each summed on its own and then added.
fn sum_of_blocks<'a>(start: Option<f32>, blocks: impl Iterator<Item = &'a [(f32, f32)]>) -> f32 {
    blocks
        .map(sum_of_pairs)
        .fold(start, |sum, block| Some(sum.map_or(block, |sum| sum + block)))
        .unwrap_or(0.0)
}

#[test]
fn rounding_is_to_nearest_even() {
    for (x, expected) in [
        (1.0 + 2.0_f32.powi(-8), 1.0),
        (1.0 + 3.0 * 2.0_f32.powi(-8), 1.0 + 2.0_f32.powi(-6)),
        (1.0 + 2.0_f32.powi(-8) + 2.0_f32.powi(-20), 1.0 + 2.0_f32.powi(-7)),
        (-3.0e-39, 0.0),
        (f32::INFINITY, f32::INFINITY),
        (f32::MAX, f32::INFINITY),
    ] {
        assert_eq!(rounded(x), expected, "the model, {x}");
        let Some(form) = form() else { return };
        let mut packed = Aligned::zeroed(packed_len(1, 1));
        pack(form, packed.as_mut_slice(), &[1.0], 1, 1, true);
        let mut out = [0.0];
        multiply(form, &mut out, &[x], packed.as_slice(), 1, 1, 1, false);
        assert_eq!(out, [expected], "the processor, {x}");
    }
}

const DEEP: [(usize, usize, usize); 3] = [(3, 1501, 70), (530, 7, 3), (2, 2050, 5)];

#[test]
fn products_with_packed_weights() {
    let Some(form) = form() else { return };
    for (rows, depth, width) in SHAPES.into_iter().chain(DEEP) {
        for transposed in [false, true] {
            let (x, w) = (values(rows * depth, 1), values(depth * width, 2));
            let (output, input) = if transposed { (width, depth) } else { (depth, width) };
            let mut packed = Aligned::zeroed(packed_len(depth, width));
            pack(form, packed.as_mut_slice(), &w, output, input, transposed);
            let b = |k: usize, j: usize| if transposed { w[j * depth + k] } else { w[k * width + j] };
            let sums = plain(rows, depth, width, |i, k| rounded(x[i * depth + k]), |k, j| rounded(b(k, j)));
            for start in [None, Some(1.0)] {
                let mut out = vec![start.unwrap_or(f32::NAN); rows * width];
                multiply(form, &mut out, &x, packed.as_slice(), rows, depth, width, start.is_some());
                let what = format!("{rows} {depth} {width} {transposed}");
                let expected: Vec<f64> = sums.iter().map(|e| e + f64::from(start.unwrap_or(0.0))).collect();
                assert_close(&out, &expected, depth, &what);
                for (index, &got) in out.iter().enumerate() {
                    let (i, j) = (index / width, index % width);
                    let terms: Vec<(f32, f32)> = (0..depth).map(|k| (x[i * depth + k], b(k, j))).collect();
                    let model = sum_of_blocks(start, terms.chunks(block_of(depth)));
                    assert_eq!(
                        got.to_bits(),
                        model.to_bits(),
                        "{what}: element {index} is {got}, not {model}"
                    );
                }
            }
        }
    }
}

#[test]
fn gradients_of_weights() {
    let Some(form) = form() else { return };
    for (height, depth, width) in SHAPES.into_iter().chain([(3, 1501, 70), (530, 7, 3), (1100, 9, 2)]) {
        let stride = height + 3;
        let (d, x) = (values(depth * stride, 3), values(depth * width, 4));
        let at = |i: usize, k: usize| d[2 + k * stride + i];
        let sums = plain(height, depth, width, |i, k| rounded(at(i, k)), |k, j| rounded(x[k * width + j]));
        // Rows in parts of even and odd length, and of one: two of those make two words.
        for (start, most) in [(Some(0.5), 1024), (None, 256), (None, 255), (None, 1)] {
            let parts = |index: usize| {
                let from = index * most;
                let rows = most.min(depth.checked_sub(from).filter(|&left| left > 0)?);
                Some(Part { d: &d[2 + from * stride..], x: &x[from * width..], rows })
            };
            let mut out = vec![start.unwrap_or(f32::NAN); height * width];
            outer(form, &mut out, &parts, height, stride, width, start.is_some());
            let what = format!("{height} {depth} {width} in parts of {most}");
            let expected: Vec<f64> = sums.iter().map(|e| e + f64::from(start.unwrap_or(0.0))).collect();
            assert_close(&out, &expected, depth, &what);
            // As many parts as have at most DEPTH terms together are one block; a part of odd length is filled up.
            let filled = most.next_multiple_of(2);
            let (block, pad) = (DEPTH / filled * most, (0.0, 0.0));
            for (index, &got) in out.iter().enumerate().step_by(7) {
                let (i, j) = (index / width, index % width);
                let terms: Vec<(f32, f32)> = (0..depth).map(|k| (at(i, k), x[k * width + j])).collect();
                let blocks: Vec<Vec<(f32, f32)>> = terms
                    .chunks(block)
                    .map(|block| {
                        let padded = |part: &[(f32, f32)]| {
                            let mut part = part.to_vec();
                            part.resize(part.len().next_multiple_of(2), pad);
                            part
                        };
                        block.chunks(most).flat_map(padded).collect()
                    })
                    .collect();
                let model = sum_of_blocks(start, blocks.iter().map(Vec::as_slice));
                assert_eq!(got.to_bits(), model.to_bits(), "{what}: element {index} is {got}, not {model}");
            }
        }
    }
}

/// What no number is shows in every sum that it belongs to, and in no other.
#[test]
fn nan_stays_where_it_belongs() {
    let Some(form) = form() else { return };
    let (rows, depth, width) = (7, 5, 18);
    let mut x = values(rows * depth, 1);
    x[2 * depth + 4] = f32::NAN;
    let w = values(width * depth, 2);
    let mut packed = Aligned::zeroed(packed_len(depth, width));
    pack(form, packed.as_mut_slice(), &w, width, depth, true);
    let mut out = vec![0.0; rows * width];
    multiply(form, &mut out, &x, packed.as_slice(), rows, depth, width, false);
    for (index, value) in out.iter().enumerate() {
        assert_eq!(value.is_nan(), index / width == 2, "element {index}");
    }
}

/// An element's sum does not depend on the rows that are computed with it.
#[test]
fn rows_do_not_see_each_other() {
    let Some(form) = form() else { return };
    let (rows, depth, width) = (50, 301, 70);
    let x = values(rows * depth, 5);
    let mut packed = Aligned::zeroed(packed_len(depth, width));
    pack(form, packed.as_mut_slice(), &values(depth * width, 6), width, depth, true);
    let mut together = vec![0.0; rows * width];
    multiply(form, &mut together, &x, packed.as_slice(), rows, depth, width, false);
    for row in 0..rows {
        let mut alone = vec![0.0; width];
        multiply(form, &mut alone, &x[row * depth..], packed.as_slice(), 1, depth, width, false);
        assert_eq!(alone, &together[row * width..][..width]);
    }
}
