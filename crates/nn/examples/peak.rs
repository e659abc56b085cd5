//! The most operations per second that this machine's vector units give: multiply-adds on registers alone, on `THREADS`
//! threads at once. `peak THREADS SECONDS f32|bf16` prints GFLOP/s, the best of short rounds; `none` where the processor
//! has no products of bfloat16.

use pulp::{Arch, Simd, WithSimd};
use std::time::Instant;

/// Independent chains: more than latency times units.
const CHAINS: usize = 20;
const ROUND: usize = 200_000;

struct MultiplyAdds;

impl WithSimd for MultiplyAdds {
    type Output = (f64, f32);

    /// Operations done, and a value that keeps them from being left out.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (f64, f32) {
        let (factor, term) = (simd.splat_f32s(0.999), simd.splat_f32s(0.001));
        let mut chains: [S::f32s; CHAINS] = std::array::from_fn(|i| simd.splat_f32s(i as f32));
        for _ in 0..ROUND {
            for chain in &mut chains {
                *chain = simd.mul_add_e_f32s(*chain, factor, term);
            }
        }
        let total = chains.into_iter().fold(simd.splat_f32s(0.0), |sum, chain| simd.add_f32s(sum, chain));
        (2.0 * (S::F32_LANES * CHAINS * ROUND) as f64, simd.reduce_sum_f32s(total))
    }
}

/// Sums of products of pairs of bfloat16.
#[cfg(target_arch = "x86_64")]
mod bf16 {
    use super::ROUND;
    use std::arch::x86_64::{
        __m512, __m512bh, _mm512_dpbf16_ps, _mm512_reduce_add_ps, _mm512_set1_epi32, _mm512_set1_ps,
    };

    /// More than latency times units here too; the compiler keeps no more of them in registers.
    const CHAINS: usize = 14;

    pub(crate) fn is_available() -> bool {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16")
    }

    /// As `MultiplyAdds`; one is 1.0 in bfloat16 twice.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(crate) fn run() -> (f64, f32) {
        let ones = _mm512_set1_epi32(0x3F80_3F80);
        // SAFETY: registers of the same size, any bits.
        let ones: __m512bh = unsafe { std::mem::transmute(std::hint::black_box(ones)) };
        let mut chains: [__m512; CHAINS] = std::array::from_fn(|i| _mm512_set1_ps(i as f32));
        for _ in 0..ROUND {
            for chain in &mut chains {
                *chain = _mm512_dpbf16_ps(*chain, ones, ones);
            }
        }
        let total = chains.into_iter().map(|chain| _mm512_reduce_add_ps(chain)).sum();
        (4.0 * (16 * CHAINS * ROUND) as f64, total)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod bf16 {
    pub(crate) fn is_available() -> bool {
        false
    }

    pub(crate) unsafe fn run() -> (f64, f32) {
        (0.0, 0.0)
    }
}

#[allow(clippy::print_stdout)] // the number is the result
fn main() {
    let half = std::env::args().nth(3).is_some_and(|word| word == "bf16");
    if half && !bf16::is_available() {
        println!("none");
        return;
    }
    let number =
        |index: usize| std::env::args().nth(index).and_then(|word| word.parse::<usize>().ok()).unwrap_or(1);
    let (threads, seconds) = (number(1), number(2) as f64);
    let rates: Vec<f64> = std::thread::scope(|scope| {
        let work = || {
            let (mut best, begin) = (0.0_f64, Instant::now());
            while begin.elapsed().as_secs_f64() < seconds {
                let start = Instant::now();
                let (operations, value) = if half {
                    // SAFETY: the processor has the instructions, as found above.
                    unsafe { bf16::run() }
                } else {
                    Arch::new().dispatch(MultiplyAdds)
                };
                std::hint::black_box(value);
                best = best.max(operations / start.elapsed().as_secs_f64());
            }
            best
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("the loop does not panic")).collect()
    });
    println!("{:.1}", rates.iter().sum::<f64>() / 1e9);
}
