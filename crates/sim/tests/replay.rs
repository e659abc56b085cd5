//! The native cart-pole against recorded traces of the original simulator.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its input has to stop")]

use std::path::PathBuf;

use coptidice_sim::{Replay, Trace, TraceError, make, replay};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/rwrl").join(name)
}

fn replay_fixture(name: &str) -> Replay {
    let trace = Trace::read_npz(&fixture(name)).unwrap();
    replay(&trace, make("rwrl/cartpole-swingup").unwrap().as_ref()).unwrap()
}

/// Both sides compute in float64, in another order of operations: 1e-16 per operation, amplified over 400 steps
/// of a system whose errors grow like e^(5 t) at most while the pole is upright and by little while it swings.
/// 1e-9 is what users of the trace are promised; a wrong constant in the 9th digit already fails it.
#[test]
fn agrees_with_the_real_suite() {
    let result = replay_fixture("cartpole.npz");
    assert_eq!((result.steps, result.cost_mismatches), (400, 0));
    assert!(result.max_abs_observation < 1e-9, "{result:?}");
    assert!(result.max_abs_reward < 1e-9, "{result:?}");
}

/// 184 of 600 steps lie beyond an end stop. The exact minimiser of the stop's problem, without the original
/// solver's early acceptance, is 1e-4 away here.
#[test]
fn agrees_where_the_cart_leans_on_the_stops() {
    let result = replay_fixture("cartpole-stops.npz");
    assert_eq!((result.steps, result.cost_mismatches), (600, 0));
    assert!(result.max_abs_observation < 1e-9, "{result:?}");
    assert!(result.max_abs_reward < 1e-9, "{result:?}");
}

#[test]
fn a_changed_trace_is_noticed() {
    let env = make("rwrl/cartpole-swingup").unwrap();
    let original = Trace::read_npz(&fixture("cartpole.npz")).unwrap();
    let mut trace = original.clone();
    trace.rewards[7] += 1e-3;
    trace.costs[9] = 1.0 - trace.costs[9];
    trace.observations[400][2] -= 1e-2;
    let result = replay(&trace, env.as_ref()).unwrap();
    assert_eq!(result.cost_mismatches, 1);
    assert!((result.max_abs_reward - 1e-3).abs() < 1e-8 && (result.max_abs_observation - 1e-2).abs() < 1e-8);

    let mut trace = original;
    trace.observations[3][0] = f64::NAN;
    assert_eq!(replay(&trace, env.as_ref()).unwrap().max_abs_observation, f64::INFINITY);
}

#[test]
fn a_trace_of_another_task_is_refused() {
    let trace = Trace::read_npz(&fixture("cartpole.npz")).unwrap();
    let error = replay(&trace, make("nav/hazard").unwrap().as_ref()).unwrap_err();
    assert!(matches!(error, TraceError::Shape { what: "action components", found: 1, expected: 2 }));
}

#[test]
fn broken_files_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.npz");
    assert!(matches!(Trace::read_npz(&path), Err(TraceError::Io { .. })));
    std::fs::write(&path, b"no archive").unwrap();
    assert!(matches!(Trace::read_npz(&path), Err(TraceError::Archive { .. })));
    let whole = std::fs::read(fixture("cartpole.npz")).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(matches!(Trace::read_npz(&path), Err(TraceError::Archive { .. })));
}

/// One array, as the header of an npy file and its data.
fn npy(shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn write_archive(path: &std::path::Path, arrays: &[(&str, Vec<u8>)]) {
    use std::io::Write as _;
    let mut archive = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    for (name, bytes) in arrays {
        archive.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap();
}

#[test]
fn hostile_arrays_are_refused_without_believing_their_headers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.npz");
    write_archive(&path, &[]);
    assert!(matches!(Trace::read_npz(&path), Err(TraceError::Missing { name: "qpos0", .. })));
    // 10^16 numbers claimed, 16 bytes there.
    write_archive(&path, &[("qpos0", npy("(10000000000000000,)", &[0; 16]))]);
    assert!(matches!(Trace::read_npz(&path), Err(TraceError::Array { name: "qpos0", .. })));
    write_archive(&path, &[("qpos0", npy("(2, 1)", &[0; 16]))]);
    assert!(matches!(Trace::read_npz(&path), Err(TraceError::Array { name: "qpos0", dimensions: 1, .. })));
    let arrays = |rewards: &str, count: usize| {
        vec![
            ("qpos0", npy("(2,)", &[0; 16])),
            ("qvel0", npy("(2,)", &[0; 16])),
            ("act0", npy("(0,)", &[])),
            ("actions", npy("(1, 1)", &[0; 8])),
            ("observations", npy("(2, 5)", &[0; 80])),
            ("rewards", npy(rewards, &vec![0; 8 * count])),
            ("costs", npy("(2,)", &[0; 16])),
        ]
    };
    write_archive(&path, &arrays("(3,)", 3));
    let error = Trace::read_npz(&path).unwrap_err();
    assert!(matches!(error, TraceError::Shape { what: "rewards", found: 3, expected: 1 }));
    write_archive(&path, &arrays("(1,)", 1));
    assert_eq!(Trace::read_npz(&path).unwrap().actions.len(), 1);
    // What is no number, and what is nothing, agrees with everything.
    let mut broken = arrays("(1,)", 1);
    broken[3].1 = npy("(1, 1)", &f64::NAN.to_le_bytes());
    write_archive(&path, &broken);
    let error = Trace::read_npz(&path).unwrap_err();
    assert!(matches!(error, TraceError::NotFinite { name: "actions", row: 0, .. }), "{error}");
    let mut empty = arrays("(0,)", 0);
    empty[3].1 = npy("(0, 1)", &[]);
    empty[4].1 = npy("(1, 5)", &[0; 40]);
    empty[6].1 = npy("(1,)", &[0; 8]);
    write_archive(&path, &empty);
    let error = Trace::read_npz(&path).unwrap_err();
    assert!(matches!(error, TraceError::Shape { what: "steps", found: 0, .. }), "{error}");
}
