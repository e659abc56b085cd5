//! The two files, read back by code of their own.

use super::events::{Event, What};
use super::*;
use proptest::prelude::*;
use prost::Message as _;
use std::fs;

/// CRC-32C bit by bit, from its definition (reflected polynomial 0x82f63b78).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |c, _| if c & 1 == 1 { (c >> 1) ^ 0x82f6_3b78 } else { c >> 1 })
    })
}

fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Decodes an event file, checking every checksum.
fn decode(bytes: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        assert_eq!(u32::from_le_bytes(rest[8..12].try_into().unwrap()), masked(&rest[..8]));
        let message = &rest[12..12 + length];
        let crc = &rest[12 + length..16 + length];
        assert_eq!(u32::from_le_bytes(crc.try_into().unwrap()), masked(message));
        events.push(Event::decode(message).unwrap());
        rest = &rest[16 + length..];
    }
    events
}

fn scalars(run: &Path) -> Vec<(i64, String, f32)> {
    let events = decode(&fs::read(run.join(EVENT_FILE)).unwrap());
    assert_eq!(events[0].what, Some(What::FileVersion("brain.Event:2".to_owned())));
    let mut all = Vec::new();
    for event in &events[1..] {
        let Some(What::Summary(summary)) = &event.what else { panic!("{event:?}") };
        assert_eq!(event.wall_time, event.step as f64);
        all.extend(summary.value.iter().map(|v| (event.step, v.tag.clone(), v.simple_value.unwrap())));
    }
    all
}

fn run() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn both(run: &Path) -> (Vec<u8>, Vec<u8>) {
    (fs::read(run.join(METRICS_FILE)).unwrap(), fs::read(run.join(EVENT_FILE)).unwrap())
}

fn log_steps(log: &mut MetricsLog, steps: std::ops::RangeInclusive<u64>) {
    for step in steps {
        let x = step as f64;
        let odd = if step % 3 == 0 { f64::NAN } else { f64::NEG_INFINITY };
        log.log(step * 10, &[("lambda", x / 7.0), ("zero", 0.0), ("odd", odd), ("tiny", 1e-310)]).unwrap();
    }
}

/// The record length 24 is how every TensorBoard file with a clock begins, so its checksum is widely documented:
/// the bytes a3 7f 4b 22.
#[test]
fn checksums_are_those_of_tensorboard() {
    assert_eq!(masked(&24_u64.to_le_bytes()), 0x224b_7fa3);
    // RFC 3720, B.4: 32 bytes of zeros.
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
}

#[test]
fn lines_are_as_documented() {
    let run = run();
    let mut log = MetricsLog::create(run.path()).unwrap();
    log.log(5, &[("b", 0.1), ("a", f64::NAN), ("c", f64::INFINITY)]).unwrap();
    log.log(5, &[]).unwrap();
    let text = fs::read_to_string(run.path().join(METRICS_FILE)).unwrap();
    let expected = "{\"step\":5,\"b\":0.1,\"a\":null,\"c\":null,\"nonfinite\":{\"a\":\"NaN\",\"c\":\"inf\"}}\n{\"step\":5}\n";
    assert_eq!(text, expected);
    let history = History::read(&run.path().join(METRICS_FILE)).unwrap();
    assert_eq!(history.names(), ["b", "a", "c"]);
    assert_eq!(history.last("c"), Some(f64::INFINITY));
    assert!(history.last("a").is_some_and(f64::is_nan));
    assert_eq!(history.last("missing"), None);
}

#[test]
fn event_files_hold_the_same_scalars() {
    let run = run();
    let mut log = MetricsLog::create(run.path()).unwrap();
    log_steps(&mut log, 1..=2);
    let read = scalars(run.path());
    assert_eq!(read[0], (10, "lambda".to_owned(), (1.0_f64 / 7.0) as f32));
    assert_eq!(read[1], (10, "zero".to_owned(), 0.0));
    assert_eq!(read[2], (10, "odd".to_owned(), f32::NEG_INFINITY));
    assert_eq!(read.len(), 8);
}

/// Stopped after any step and at any byte of the line being written, and resumed from any earlier step: the files
/// end up as if nothing had happened.
#[test]
fn a_resumed_run_leaves_the_same_bytes() {
    let whole = run();
    log_steps(&mut MetricsLog::create(whole.path()).unwrap(), 1..=6);
    let expected = both(whole.path());
    for (killed_at, resumed_from) in [(1, 0), (4, 2), (4, 4), (6, 3)] {
        for torn in [0, 1, 20] {
            let run = run();
            log_steps(&mut MetricsLog::create(run.path()).unwrap(), 1..=killed_at);
            for name in [METRICS_FILE, EVENT_FILE] {
                let path = run.path().join(name);
                let mut bytes = fs::read(&path).unwrap();
                bytes.extend_from_slice(&expected.0[..torn]);
                fs::write(&path, bytes).unwrap();
            }
            // Steps are logged in tens; resuming between two of them is as good.
            let mut log = MetricsLog::resume(run.path(), resumed_from * 10 + 5).unwrap();
            log_steps(&mut log, resumed_from + 1..=6);
            assert_eq!(both(run.path()), expected, "killed at {killed_at}, resumed from {resumed_from}");
        }
    }
}

#[test]
fn resuming_without_files_starts_them() {
    let (fresh, resumed) = (run(), run());
    log_steps(&mut MetricsLog::create(fresh.path()).unwrap(), 1..=2);
    log_steps(&mut MetricsLog::resume(resumed.path(), 0).unwrap(), 1..=2);
    assert_eq!(both(fresh.path()), both(resumed.path()));
}

#[test]
fn what_a_crash_left_behind_the_checkpoint_is_dropped() {
    let run = run();
    log_steps(&mut MetricsLog::create(run.path()).unwrap(), 1..=2);
    let (kept, _) = both(run.path());
    let path = run.path().join(METRICS_FILE);
    let mut torn = kept.clone();
    torn.extend_from_slice(&[0; 100]);
    torn.extend_from_slice(b"\nnot json\n");
    fs::write(&path, torn).unwrap();
    drop(MetricsLog::resume(run.path(), 20).unwrap());
    assert_eq!(both(run.path()).0, kept);
}

#[test]
fn damage_before_the_checkpoint_is_an_error_with_its_line() {
    let good = "{\"step\":1,\"a\":1.0}\n";
    let cases = [
        (format!("{good}nonsense\n{good}"), "line 2"),
        (format!("{good}{{\"a\":1.0}}\n{good}"), "missing field `step`"),
        (format!("{good}{{\"step\":1,\"a\":\"x\"}}\n{good}"), "line 2"),
        (format!("{good}{{\"step\":-1}}\n{good}"), "line 2"),
        (format!("{good}{{\"step\":1,\"a\":null,\"nonfinite\":{{\"a\":\"big\"}}}}\n{good}"), "none of NaN"),
        (format!("{{\"step\":9}}\n{good}"), "line 1: step 9 precedes"),
        (format!("{{\"step\":2}}\n{good}"), "line 2: step 1 follows step 2"),
        (format!("{good}{}\n{good}", "x".repeat(3 << 20)), "line 2"),
        (format!("{good}\u{feff}{good}{good}"), "line 2"),
    ];
    for (text, expected) in cases {
        let run = run();
        fs::write(run.path().join(METRICS_FILE), &text).unwrap();
        let error = MetricsLog::resume(run.path(), 5).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(METRICS_FILE), "{error}");
        // Nothing was cut.
        assert_eq!(fs::read_to_string(run.path().join(METRICS_FILE)).unwrap(), text);
    }
}

#[test]
fn reading_takes_no_broken_line_for_the_end() {
    let run = run();
    let path = run.path().join(METRICS_FILE);
    fs::write(&path, "{\"step\":1}\n{\"step\":2,\"a\":0.5").unwrap();
    assert_eq!(History::read(&path).unwrap().last_step(), Some(1));
    fs::write(&path, "{\"step\":1}\nnonsense\n").unwrap();
    assert!(matches!(History::read(&path), Err(MetricsError::Malformed { line: 2, .. })));
    assert!(matches!(History::read(&run.path().join("missing")), Err(MetricsError::Io { .. })));
}

#[test]
fn ambiguous_names_and_steps_are_refused() {
    let run = run();
    let mut log = MetricsLog::create(run.path()).unwrap();
    for names in [["", "a"], ["step", "a"], ["nonfinite", "a"], ["a", "a"]] {
        let values = names.map(|n| (n, 1.0));
        assert!(matches!(log.log(1, &values), Err(MetricsError::Name { .. })), "{names:?}");
    }
    log.log(7, &[("a", 1.0)]).unwrap();
    assert!(matches!(log.log(6, &[("a", 1.0)]), Err(MetricsError::StepOrder { step: 6, last: 7 })));
    assert!(matches!(log.log(u64::MAX, &[]), Err(MetricsError::StepTooLarge(u64::MAX))));
    let resumed = MetricsLog::resume(run.path(), 7).unwrap().log(6, &[]);
    assert!(matches!(resumed, Err(MetricsError::StepOrder { .. })));
    // What was refused left no trace.
    assert_eq!(both(run.path()).0, b"{\"step\":7,\"a\":1.0}\n");
    let missing = MetricsLog::create(&run.path().join("missing"));
    assert!(missing.unwrap_err().to_string().contains("cannot create it"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any name and any number survive, bit for bit.
    #[test]
    fn everything_survives(name in "\\PC{1,12}", bits in any::<u64>(), step in 0_u64..1 << 40) {
        prop_assume!(name != "step" && name != "nonfinite");
        let value = f64::from_bits(bits);
        let run = run();
        MetricsLog::create(run.path()).unwrap().log(step, &[(&name, value)]).unwrap();
        let read = History::read(&run.path().join(METRICS_FILE)).unwrap().series(&name);
        prop_assert_eq!(read[0].0, step);
        prop_assert!(read[0].1.to_bits() == bits || (read[0].1.is_nan() && value.is_nan()));
    }
}
