//! Nothing is allocated in a step: a global allocator counts.

mod common;

use common::{dense, normal, parameters};
use coptidice_core::rng::stream;
use coptidice_nn::{Activation, Adam, BlockSpec, Network, NetworkSpec, Pool, Precision, exponential_average};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test, so that no other thread of the test program allocates meanwhile.
#[test]
fn a_step_allocates_nothing() {
    let blocks = vec![
        dense(64, true, Activation::Tanh),
        dense(70, false, Activation::Elu),
        BlockSpec::Residual { width: 65 },
    ];
    let network = Network::new(NetworkSpec { input: 6, blocks, output: 2 }).unwrap();
    let mut params = parameters(&network, 1);
    let mut averaged = params.clone();
    let mut rng = stream(1, "batch", 0);
    let batch = 600;
    let x = normal(&mut rng, batch * 6, 1.0);
    let d_out = normal(&mut rng, batch * 2, 0.01);
    let mut grads = vec![0.0; params.len()];
    let mut d_x = vec![0.0; x.len()];
    let (three, mut few) = (&x[..18], [0.0; 6]);
    let (weights, mut room) = (network.forward_weights(&params), network.forward_room(3));
    let mut adam = Adam::new(params.len(), 1e-3);
    for (threads, precision) in [1, 2].into_iter().flat_map(|t| [(t, Precision::F32), (t, Precision::Bf16)]) {
        let pool = Pool::new(threads).unwrap();
        let Ok(mut cache) = network.cache_in(batch, precision) else { continue };
        // Entering the pool hands a job over, for which rayon allocates now and then; a step enters it once.
        pool.install(|| {
            let mut step = |batch: usize| {
                let (x, d_out) = (&x[..batch * 6], &d_out[..batch * 2]);
                grads.fill(0.0);
                network.forward(&params, x, batch, &mut cache, &pool);
                let d_x = Some(&mut d_x[..batch * 6]);
                network.backward(&params, x, d_out, batch, &mut cache, &mut grads, d_x, &pool);
                let penalty =
                    network.gradient_penalty(&params, x, batch, 1.0, 0.1, &mut cache, &mut grads, &pool);
                assert!(penalty.exceeding > 0);
                adam.update(&mut params, &grads, &pool);
                exponential_average(&mut averaged, &params, 0.01, &pool);
                network.forward_with(&params, &weights, three, &mut few, &mut room);
            };
            // Each thread makes its scratch when it first works on a product.
            for _ in 0..5 {
                step(batch);
            }
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            for batch in [batch, 1, 130, batch] {
                step(batch);
            }
            assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "{threads} threads, {precision:?}");
        });
    }
}
