//! Elementwise work, compiled for several instruction sets and dispatched at run time.

use pulp::{Arch, Simd, WithSimd};
use std::array::from_fn;
use std::marker::PhantomData;

/// Values handled side by side: one register of the widest instruction set, several of the others. Sums keep this
/// many partial sums on every machine, so that they do not depend on the instruction set.
const LANES: usize = 16;

/// Work that is compiled for each instruction set.
pub trait Kernel<A> {
    /// What comes out.
    type Output;

    /// The work. Implementations are `#[inline(always)]`, and so are the functions they call: only what is inlined
    /// into the place where the instruction set is known is compiled for it.
    fn run(arguments: A) -> Self::Output;
}

/// Runs a kernel as compiled for the best instruction set of this processor, found once.
///
/// Loops inside are vectorised by the compiler. No operations are fused or reordered: the result is the same bits on
/// every machine.
#[inline]
pub fn run_vectorised<K: Kernel<A>, A>(arguments: A) -> K::Output {
    Arch::new().dispatch(Work::<A, K>(arguments, PhantomData))
}

struct Work<A, K>(A, PhantomData<K>);

impl<A, K: Kernel<A>> WithSimd for Work<A, K> {
    type Output = K::Output;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> K::Output {
        K::run(self.0)
    }
}

/// [`run_vectorised`] for a closure. The compiler decides whether a closure is inlined, and leaves a large one as
/// compiled for the oldest processors; a [`Kernel`] is always inlined.
#[inline]
pub fn vectorised<R>(work: impl FnOnce() -> R) -> R {
    Arch::new().dispatch(work)
}

#[inline(always)]
fn load(values: &[f32], start: usize) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    lanes.copy_from_slice(&values[start..start + LANES]);
    lanes
}

/// `outs = f(outs, ins)`, element by element; all slices have the length of the first output.
#[inline(always)]
pub(crate) fn map<const O: usize, const I: usize>(
    outs: [&mut [f32]; O],
    ins: [&[f32]; I],
    f: impl Fn([f32; O], [f32; I]) -> [f32; O],
) {
    let len = outs[0].len();
    assert!(outs.iter().all(|out| out.len() == len) && ins.iter().all(|x| x.len() == len));
    let whole = len - len % LANES;
    for start in (0..whole).step_by(LANES) {
        let x: [[f32; LANES]; I] = from_fn(|i| load(ins[i], start));
        let mut y: [[f32; LANES]; O] = from_fn(|o| load(outs[o], start));
        for lane in 0..LANES {
            let result = f(from_fn(|o| y[o][lane]), from_fn(|i| x[i][lane]));
            for o in 0..O {
                y[o][lane] = result[o];
            }
        }
        for o in 0..O {
            outs[o][start..start + LANES].copy_from_slice(&y[o]);
        }
    }
    for i in whole..len {
        let result = f(from_fn(|o| outs[o][i]), from_fn(|k| ins[k][i]));
        for o in 0..O {
            outs[o][i] = result[o];
        }
    }
}

/// Sums over the elements of the slices, all as long as the first.
#[inline(always)]
pub(crate) fn sums<const N: usize, const I: usize>(
    ins: [&[f32]; I],
    terms: impl Fn([f32; I]) -> [f32; N],
) -> [f32; N] {
    let len = ins[0].len();
    assert!(ins.iter().all(|x| x.len() == len));
    let mut partial = [[0.0_f32; LANES]; N];
    let whole = len - len % LANES;
    for start in (0..whole).step_by(LANES) {
        let x: [[f32; LANES]; I] = from_fn(|i| load(ins[i], start));
        for lane in 0..LANES {
            let values = terms(from_fn(|i| x[i][lane]));
            for n in 0..N {
                partial[n][lane] += values[n];
            }
        }
    }
    for i in whole..len {
        let values = terms(from_fn(|k| ins[k][i]));
        for n in 0..N {
            partial[n][i - whole] += values[n];
        }
    }
    partial.map(total)
}

/// The sum of partial sums, in a fixed order.
#[inline(always)]
fn total(mut partial: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            partial[lane] += partial[lane + half];
        }
        half /= 2;
    }
    partial[0]
}
