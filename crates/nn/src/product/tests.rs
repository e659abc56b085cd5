use super::*;
use pulp::WithSimd;

/// Numbers in [-1, 1].
pub(super) fn values(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect()
}

#[derive(Clone, Copy, Debug)]
enum Set {
    Best,
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

/// Every instruction set at hand.
const SETS: &[Set] = &[
    Set::Best,
    Set::Scalar,
    #[cfg(target_arch = "x86_64")]
    Set::Avx2,
];

impl Set {
    fn run<T: WithSimd<Output = ()>>(self, task: T) {
        match self {
            Self::Best => Arch::new().dispatch(task),
            Self::Scalar => task.with_simd(pulp::Scalar),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => match pulp::x86::V3::try_new() {
                Some(simd) => pulp::Simd::vectorize(simd, task),
                None => Arch::new().dispatch(task),
            },
        }
    }
}

/// `[rows, columns]` of `sum_k a(i, k) b(k, j)` in `f64`.
pub(super) fn plain(
    rows: usize,
    depth: usize,
    columns: usize,
    a: impl Fn(usize, usize) -> f32,
    b: impl Fn(usize, usize) -> f32,
) -> Vec<f64> {
    let mut out = Vec::with_capacity(rows * columns);
    for i in 0..rows {
        for j in 0..columns {
            out.push((0..depth).map(|k| f64::from(a(i, k)) * f64::from(b(k, j))).sum());
        }
    }
    out
}

/// Terms are at most 1, so `depth` of them in `f32` err by at most `depth` times half the spacing at `depth`.
pub(super) fn assert_close(got: &[f32], expected: &[f64], depth: usize, what: &str) {
    let allowed = (depth * depth).max(16) as f64 * f64::from(f32::EPSILON);
    for (index, (&g, &e)) in got.iter().zip(expected).enumerate() {
        assert!((f64::from(g) - e).abs() <= allowed, "{what}: element {index} is {g}, not {e}");
    }
}

pub(super) const SHAPES: [(usize, usize, usize); 12] = [
    (1, 1, 1),
    (5, 3, 2),
    (13, 14, 33),
    (12, 256, 32),
    (25, 257, 31),
    (265, 20, 40),
    (3, 600, 65),
    (70, 64, 1),
    (7, 50, 15),
    (8, 1000, 100),
    (6, 64, 64),
    (300, 40, 70),
];

#[test]
fn products_with_packed_weights() {
    for &set in SETS {
        for (rows, depth, width) in SHAPES {
            for transposed in [false, true] {
                let x = values(rows * depth, 1);
                let w = values(depth * width, 2);
                let (output, input) = if transposed { (width, depth) } else { (depth, width) };
                let mut packed = Aligned::zeroed(packed_len(depth, width));
                set.run(Pack { packed: packed.as_mut_slice(), weights: &w, output, input, transposed });
                let b = |k: usize, j: usize| if transposed { w[j * depth + k] } else { w[k * width + j] };
                let expected = plain(rows, depth, width, |i, k| x[i * depth + k], b);
                for accumulate in [false, true] {
                    let mut out = vec![if accumulate { 1.0 } else { f32::NAN }; rows * width];
                    SCRATCH.with_borrow_mut(|scratch| {
                        let packed = packed.as_slice();
                        set.run(Multiply {
                            out: &mut out,
                            x: &x,
                            packed,
                            rows,
                            depth,
                            width,
                            accumulate,
                            scratch,
                        });
                    });
                    let expected: Vec<f64> =
                        expected.iter().map(|e| e + if accumulate { 1.0 } else { 0.0 }).collect();
                    assert_close(&out, &expected, depth, &format!("{set:?} {rows} {depth} {width}"));
                }
            }
        }
    }
}

#[test]
fn gradients_of_weights() {
    for &set in SETS {
        for (height, depth, width) in SHAPES {
            let stride = height + 3;
            let d = values(depth * stride, 3);
            let x = values(depth * width, 4);
            let at = |i: usize, k: usize| d[2 + k * stride + i];
            let expected = plain(height, depth, width, at, |k, j| x[k * width + j]);
            // The rows in one part, or in parts of 700 at most, one of them empty.
            for (accumulate, start, most) in [(true, 0.5, depth), (false, f32::NAN, depth), (false, 7.0, 700)]
            {
                let mut out = vec![start; height * width];
                let parts = |index: usize| {
                    let (from, rows) = match index {
                        0 => (0, most.min(depth)),
                        1 => (0, 0),
                        _ => ((index - 1) * most, most.min(depth.checked_sub((index - 1) * most)?)),
                    };
                    let inside = from < depth || index == 1;
                    inside.then(|| Part { d: &d[2 + from * stride..], x: &x[from * width..], rows })
                };
                SCRATCH.with_borrow_mut(|scratch| {
                    let out = &mut out[..];
                    set.run(Outer { out, parts: &parts, height, stride, width, accumulate, scratch });
                });
                let added = if accumulate { 0.5 } else { 0.0 };
                let expected: Vec<f64> = expected.iter().map(|e| e + added).collect();
                assert_close(&out, &expected, depth, &format!("{set:?} {height} {depth} {width}"));
            }
        }
    }
}

#[test]
fn a_sum_of_nothing_is_zero() {
    let mut out = [f32::NAN; 6];
    outer(Form::Single, &mut out, &|_| None, 2, 2, 3, false);
    assert_eq!(out, [0.0; 6]);
}

/// An element's sum does not depend on the rows that are computed with it.
#[test]
fn rows_do_not_see_each_other() {
    let (rows, depth, width) = (50, 300, 70);
    let x = values(rows * depth, 5);
    let mut packed = Aligned::zeroed(packed_len(depth, width));
    pack(Form::Single, packed.as_mut_slice(), &values(depth * width, 6), width, depth, true);
    let mut together = vec![0.0; rows * width];
    multiply(Form::Single, &mut together, &x, packed.as_slice(), rows, depth, width, false);
    for row in 0..rows {
        let mut alone = vec![0.0; width];
        multiply(Form::Single, &mut alone, &x[row * depth..], packed.as_slice(), 1, depth, width, false);
        assert_eq!(alone, &together[row * width..][..width]);
    }
}
