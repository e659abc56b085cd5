//! Delimited text.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use csv::{ByteRecord, ReaderBuilder};

use super::{Cell, Row};
use crate::error::DataError;

/// A longer first line is not a header.
const MAX_HEADER_BYTES: u64 = 1 << 20;
/// A byte-order mark that spreadsheets put before UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// A CSV file whose header has been read.
pub(crate) struct CsvFile {
    path: PathBuf,
    delimiter: u8,
    names: Vec<String>,
}

impl CsvFile {
    /// Reads the header. The delimiter is the one of `,`, `;` and tab that stands in it most often.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let file = File::open(path).map_err(|e| DataError::io(path, "open", e))?;
        let mut header = Vec::new();
        BufReader::new(file)
            .take(MAX_HEADER_BYTES)
            .read_until(b'\n', &mut header)
            .map_err(|e| DataError::io(path, "read", e))?;
        if header.is_empty() {
            return Err(DataError::Empty { path: path.to_owned() });
        }
        let count = |delimiter: u8| header.iter().filter(|&&byte| byte == delimiter).count();
        let mut delimiter = b',';
        for candidate in [b';', b'\t'] {
            if count(candidate) > count(delimiter) {
                delimiter = candidate;
            }
        }
        let text = header.strip_prefix(MARK).unwrap_or(&header);
        let mut record = ByteRecord::new();
        ReaderBuilder::new()
            .delimiter(delimiter)
            .has_headers(false)
            .from_reader(text)
            .read_byte_record(&mut record)
            .map_err(|e| DataError::malformed(path, "CSV", e))?;
        let names = header_names(path, &record)?;
        Ok(CsvFile { path: path.to_owned(), delimiter, names })
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn for_each_row(
        &self,
        wanted: &[usize],
        visit: &mut dyn FnMut(usize, &dyn Row) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let mut file = File::open(&self.path).map_err(|e| DataError::io(&self.path, "open", e))?;
        let mut start = [0_u8; MARK.len()];
        let marked = file.read_exact(&mut start).is_ok() && start == MARK;
        file.seek(SeekFrom::Start(if marked { MARK.len() as u64 } else { 0 }))
            .map_err(|e| DataError::io(&self.path, "read", e))?;
        let mut reader = ReaderBuilder::new()
            .delimiter(self.delimiter)
            .trim(csv::Trim::Fields)
            .buffer_capacity(1 << 18)
            .from_reader(file);
        let mut record = ByteRecord::new();
        let mut number = 0;
        while reader.read_byte_record(&mut record).map_err(|e| self.failure(&e))? {
            // Different bytes would become one and the same word.
            if let Some(&column) = wanted
                .iter()
                .find(|&&column| record.get(column).is_some_and(|b| std::str::from_utf8(b).is_err()))
            {
                let line = record.position().map_or(number as u64 + 2, csv::Position::line);
                let detail = format!("line {line}, field {}: not UTF-8; save the file as UTF-8", column + 1);
                return Err(DataError::malformed(&self.path, "CSV", detail));
            }
            visit(number, &CsvRow { record: &record, wanted })?;
            number += 1;
        }
        Ok(())
    }

    fn failure(&self, error: &csv::Error) -> DataError {
        match error.kind() {
            csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
                let line = pos.as_ref().map_or_else(String::new, |pos| format!("line {}: ", pos.line()));
                let detail = format!("{line}{len} fields where the header has {expected_len}");
                DataError::malformed(&self.path, "CSV", detail)
            }
            _ => DataError::malformed(&self.path, "CSV", error),
        }
    }
}

struct CsvRow<'a> {
    record: &'a ByteRecord,
    wanted: &'a [usize],
}

impl Row for CsvRow<'_> {
    fn cell(&self, position: usize) -> Cell<'_> {
        let bytes = self.record.get(self.wanted[position]).unwrap_or_default();
        std::str::from_utf8(bytes).map_or(Cell::Null, parse)
    }
}

/// The value that a field spells.
fn parse(text: &str) -> Cell<'_> {
    if text.is_empty() || ["NA", "N/A", "null", "NULL", "None"].contains(&text) {
        return Cell::Null;
    }
    // Only a digit, a sign, a point, or the words nan and inf can begin a number.
    let first = text.as_bytes()[0];
    if first.is_ascii_digit() || matches!(first, b'-' | b'+' | b'.' | b'n' | b'N' | b'i' | b'I') {
        if let Ok(value) = text.parse::<i64>() {
            return Cell::Int(value);
        }
        if let Ok(value) = text.parse::<f64>() {
            return Cell::Float(value);
        }
    }
    Cell::Text(text)
}

/// Whether a field that holds `text` is read as this very word.
pub(crate) fn is_word(text: &str) -> bool {
    text.trim() == text && matches!(parse(text), Cell::Text(_))
}

fn header_names(path: &Path, record: &ByteRecord) -> Result<Vec<String>, DataError> {
    let mut names: Vec<String> = Vec::new();
    for (position, field) in record.iter().enumerate() {
        let name = std::str::from_utf8(field).map_err(|_| DataError::ColumnName {
            path: path.to_owned(),
            column: format!("column {position}, {:?},", String::from_utf8_lossy(field)),
        })?;
        names.push(name.trim().to_owned());
    }
    for (position, name) in names.iter().enumerate() {
        if names[..position].contains(name) {
            return Err(DataError::DuplicateColumn {
                path: path.to_owned(),
                detail: format!("two columns are named {name:?}; rename one"),
            });
        }
    }
    Ok(names)
}
