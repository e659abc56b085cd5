//! Files that lie: each kind of failure has its own error, and none panics or allocates what a header claims.

#![allow(clippy::unwrap_used)] // a test's unwrap is its assertion

use std::path::{Path, PathBuf};

use coptidice_data::{CheckOptions, DataError, ReadOptions, TabularColumns, load, read, read_tabular};
use proptest::prelude::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/logs").join(name)
}

fn read_file(path: &Path) -> Result<(), DataError> {
    load(path, &ReadOptions::default(), &CheckOptions::default()).map(|_| ())
}

fn read_bytes(bytes: &[u8]) -> DataError {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    std::fs::write(&path, bytes).unwrap();
    read_file(&path).unwrap_err()
}

#[test]
fn what_is_no_log_is_said_to_be_none() {
    assert_eq!(read_file(Path::new("no/such/file")).unwrap_err().code(), "io");
    assert_eq!(read_bytes(b"").code(), "empty");
    assert_eq!(read_bytes(b"\x89PNG\r\n\x1a\n\0\0\0").code(), "unknown-format");
    assert_eq!(read_bytes(b"\x1f\x8b\x08\0").code(), "unknown-format");
    assert_eq!(read_bytes(b"hello\nworld\n").code(), "unknown-format");
    assert_eq!(read_bytes(b"\x93NUMPY\x01\0").code(), "unknown-format");
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(read_file(directory.path()).unwrap_err().code(), "unknown-format");
    let table = read_tabular(&fixture("dsrl.hdf5"), &TabularColumns::default()).unwrap_err();
    assert_eq!(table.code(), "unknown-format");
}

#[test]
fn a_claim_of_ten_gigabytes_allocates_nothing() {
    let before = peak_memory();
    let error = read_file(&fixture("hostile-claim.hdf5")).unwrap_err();
    assert!(matches!(error, DataError::TooLarge { claimed: 10_000_000_000, .. }), "{error}");
    if let (Some(before), Some(after)) = (before, peak_memory()) {
        assert!(after < before + 100_000_000, "{before} to {after} bytes");
    }

    let directory = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture("columns")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), directory.path().join(entry.file_name())).unwrap();
    }
    let rewards = directory.path().join("rewards.npy");
    let text = String::from_utf8_lossy(&std::fs::read(&rewards).unwrap())
        .replace("(11,), }         ", "(9999999999,), }");
    assert!(text.contains("9999999999"));
    // The lossy text stands in for the header; what follows it does not matter.
    let mut bytes = b"\x93NUMPY\x01\0v\0".to_vec();
    bytes.extend_from_slice(&text.as_bytes()[text.find('{').unwrap()..]);
    std::fs::write(&rewards, bytes).unwrap();
    assert_eq!(read_file(directory.path()).unwrap_err().code(), "too-large");
}

/// Most bytes this process has held, where the system says so.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| 1024 * kilobytes)
}

#[test]
fn odd_names_and_types_are_errors() {
    let name = read_file(&fixture("hostile-name.hdf5")).unwrap_err();
    assert_eq!(name.code(), "column-name", "{name}");
    let text = read_file(&fixture("hostile-text.hdf5")).unwrap_err();
    assert!(matches!(&text, DataError::ColumnType { column, .. } if column == "rewards"), "{text}");
}

#[test]
fn every_truncation_of_every_file_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    for name in
        ["dsrl.hdf5", "dsrl-latest.hdf5", "omnisafe.npz", "table.parquet", "minari-hdf5/data/main_data.hdf5"]
    {
        let bytes = std::fs::read(fixture(name)).unwrap();
        for cut in
            [1, 7, 9, 40, 100, 500, bytes.len() / 3, bytes.len() / 2, bytes.len() - 300, bytes.len() - 9]
        {
            let path = directory.path().join("cut");
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let result = read_file(&path);
            let code = result.map_err(|e| e.code());
            // The end of an HDF5 file may be padding that no array needs; all before it is needed.
            let spared = name.ends_with("hdf5") && cut + 300 >= bytes.len();
            let refused = matches!(code, Err("malformed" | "unknown-format" | "empty" | "too-large"));
            assert!(refused || spared && code.is_ok(), "{name} cut to {cut}: {code:?}");
        }
    }
}

/// The footer of a Parquet file is full of places and lengths: every seventh of its bytes, made the least and the most.
#[test]
fn damaged_parquet_footers_never_panic() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged.parquet");
    let bytes = std::fs::read(fixture("table.parquet")).unwrap();
    let length = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap()) as usize;
    for position in (bytes.len() - 8 - length..bytes.len()).step_by(7) {
        for value in [0x00, 0xff] {
            let mut damaged = bytes.clone();
            damaged[position] = value;
            std::fs::write(&path, damaged).unwrap();
            let _ = read(&path, &ReadOptions::default());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever bytes are changed, the answer is a log or an error.
    #[test]
    fn damaged_files_never_panic(
        file in 0..7_usize,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let name = ["dsrl.hdf5", "dsrl-latest.hdf5", "omnisafe.npz", "suffixed.npz", "table.csv", "d4rl.hdf5", "table.parquet"]
            [file];
        let mut bytes = std::fs::read(fixture(name)).unwrap();
        for (position, value) in damage {
            let position = position.index(bytes.len());
            bytes[position] = value;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("damaged");
        std::fs::write(&path, bytes).unwrap();
        let _ = read(&path, &ReadOptions::default());
        let _ = read_tabular(&path, &TabularColumns::default());
    }
}
