//! NumPy's .npy files: a directory of them, and the .npz archive.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use memmap2::Mmap;
use zip::ZipArchive;

use super::arrays::{ArrayInfo, ArraySource, Block, Element, Visit, check_claim};
use super::hdf5::half_to_f64;
use crate::column::Column;
use crate::error::DataError;

/// The first bytes of every .npy file.
pub(crate) const NPY_MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy itself refuses to parse longer headers.
const MAX_HEADER: usize = 10_000;
/// Bytes decoded at a time, a multiple of every element size.
const BLOCK_BYTES: usize = 1 << 22;

/// What a .npy header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NpyHeader {
    /// Kind of number: `f`, `i`, `u` or `b`.
    kind: u8,
    bytes: usize,
    big_endian: bool,
    shape: Vec<usize>,
    /// Where the numbers begin.
    offset: usize,
}

impl NpyHeader {
    /// Parses the header at the beginning of `reader`. The result's error is what is wrong with it.
    pub(crate) fn read(reader: &mut impl Read) -> Result<Self, String> {
        let mut start = [0_u8; 8];
        reader.read_exact(&mut start).map_err(|_| "shorter than a header".to_owned())?;
        if !start.starts_with(NPY_MAGIC) {
            return Err("does not begin as a .npy file".to_owned());
        }
        let length_bytes = match start[6] {
            1 => 2,
            2 | 3 => 4,
            version => return Err(format!("unknown version {version} of the .npy format")),
        };
        let mut length = [0_u8; 4];
        reader.read_exact(&mut length[..length_bytes]).map_err(|_| "header cut off".to_owned())?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_HEADER {
            return Err(format!("header claims {length} bytes, more than the {MAX_HEADER} ever needed"));
        }
        let mut text = vec![0; length];
        reader.read_exact(&mut text).map_err(|_| "header cut off".to_owned())?;
        let text = String::from_utf8(text).map_err(|_| "header is not text".to_owned())?;
        Self::parse(&text, 8 + length_bytes + length)
    }

    fn parse(text: &str, offset: usize) -> Result<Self, String> {
        let value = |key: &str| {
            let quoted = [format!("'{key}':"), format!("\"{key}\":")];
            let found = quoted.iter().find_map(|quoted| text.split_once(quoted.as_str()));
            found.map(|(_, rest)| rest.trim_start()).ok_or_else(|| format!("header without {key}"))
        };
        let descr = value("descr")?;
        let quote = descr.chars().next().filter(|c| *c == '\'' || *c == '"');
        let descr = quote.and_then(|quote| descr[1..].split(quote).next());
        let descr = descr.ok_or("a structured type; save each column as a plain array")?;
        if value("fortran_order")?.starts_with('T') {
            return Err("columns-first (Fortran) order; save numpy.ascontiguousarray(x)".to_owned());
        }
        let shape = value("shape")?;
        let shape = shape.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let (axes, _) = shape.ok_or("a shape that is no tuple")?;
        let shape: Result<Vec<usize>, String> = axes
            .split(',')
            .map(str::trim)
            .filter(|axis| !axis.is_empty())
            .map(|axis| axis.parse().map_err(|_| format!("axis {axis:?} in its shape")))
            .collect();
        let shape = shape?;
        if shape.iter().try_fold(1_usize, |product, &axis| product.checked_mul(axis)).is_none() {
            return Err("a shape that exceeds the address space".to_owned());
        }
        let mut letters = descr.chars();
        let (order, kind) = (letters.next().unwrap_or(' '), letters.next().unwrap_or(' '));
        let bytes: usize = letters.as_str().parse().unwrap_or(0);
        let known = match kind {
            'f' => [2, 4, 8].contains(&bytes),
            'i' | 'u' => [1, 2, 4, 8].contains(&bytes),
            'b' => bytes == 1,
            _ => false,
        };
        if !known {
            return Err(format!("numbers of type {descr:?}; save floats, integers or booleans"));
        }
        Ok(NpyHeader { kind: kind as u8, bytes, big_endian: order == '>', shape, offset })
    }

    pub(crate) fn info(&self) -> ArrayInfo {
        let element = match self.kind {
            b'f' => Element::Float,
            b'b' => Element::Bool,
            _ => Element::Int,
        };
        ArrayInfo { shape: self.shape.clone(), element, bytes: self.bytes }
    }

    /// Numbers in the array.
    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Streams the numbers of `reader`, which stands behind the header.
    fn decode(&self, reader: &mut impl Read, visit: &mut Visit<'_>) -> Result<Result<(), DataError>, String> {
        let width: usize = self.shape.iter().skip(1).product::<usize>().max(1);
        let row_bytes = width.saturating_mul(self.bytes);
        let mut left = self.len();
        let block = (BLOCK_BYTES / row_bytes).max(1) * width;
        let mut raw = Vec::new();
        while left > 0 {
            let count = block.min(left);
            raw.clear();
            // Growing with what arrives, a false claim never allocates more than the file holds.
            let wanted = (count * self.bytes) as u64;
            let got = reader.take(wanted).read_to_end(&mut raw).map_err(|e| e.to_string())?;
            if got as u64 != wanted {
                return Err(format!("ends {} numbers early", left - got / self.bytes));
            }
            if let Err(error) = self.visit(&mut raw, visit) {
                return Ok(Err(error));
            }
            left -= count;
        }
        Ok(Ok(()))
    }

    fn visit(&self, raw: &mut [u8], visit: &mut Visit<'_>) -> Result<(), DataError> {
        if self.big_endian != cfg!(target_endian = "big") && self.bytes > 1 {
            raw.chunks_exact_mut(self.bytes).for_each(<[u8]>::reverse);
        }
        macro_rules! whole {
            ($type:ty) => {{
                let values = numbers::<$type>(raw);
                #[allow(clippy::unnecessary_fallible_conversions)] // one arm serves every width
                let whole: Vec<i64> =
                    values.iter().map(|&value| i64::try_from(value).unwrap_or(i64::MAX)).collect();
                visit(Block::Int(&whole))
            }};
        }
        match (self.kind, self.bytes) {
            (b'f', 4) => visit(Block::F32(&numbers::<f32>(raw))),
            (b'f', 8) => visit(Block::F64(&numbers::<f64>(raw))),
            (b'f', _) => {
                let halves = numbers::<u16>(raw);
                visit(Block::F64(&halves.iter().map(|&half| half_to_f64(half)).collect::<Vec<f64>>()))
            }
            (b'i', 1) => whole!(i8),
            (b'i', 2) => whole!(i16),
            (b'i', 4) => whole!(i32),
            (b'i', _) => whole!(i64),
            (b'u', 2) => whole!(u16),
            (b'u', 4) => whole!(u32),
            (b'u', 8) => whole!(u64),
            _ => whole!(u8),
        }
    }
}

/// The numbers that `raw` holds in native byte order; copied only where the bytes are not aligned.
fn numbers<T: bytemuck::Pod>(raw: &[u8]) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(raw) {
        Ok(values) => Cow::Borrowed(values),
        Err(_) => raw.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect(),
    }
}

/// A directory with one .npy file for each column.
pub(crate) struct NpyDir {
    path: PathBuf,
    names: Vec<String>,
    /// What is wrong with an array matters only if it is asked for.
    headers: Vec<Result<NpyHeader, String>>,
    notes: Option<serde_json::Value>,
}

/// The file of a .npy directory that keeps the names of components, costs and actions.
pub(crate) const NOTES_FILE: &str = "names.json";
/// Longer lists of names are not read from an archive.
const MAX_NOTES: u64 = 1 << 26;

impl NpyDir {
    /// Reads the headers of all .npy files in the directory.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let entries = std::fs::read_dir(path).map_err(|e| DataError::io(path, "list", e))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| DataError::io(path, "list", e))?;
            let file_name = entry.file_name();
            if Path::new(&file_name).extension().is_none_or(|extension| extension != "npy") {
                continue;
            }
            let name = file_name.to_str().and_then(|name| name.strip_suffix(".npy")).ok_or_else(|| {
                DataError::ColumnName {
                    path: path.to_owned(),
                    column: format!("the file {:?}", file_name.to_string_lossy()),
                }
            })?;
            names.push(name.to_owned());
        }
        names.sort_unstable();
        let mut headers = Vec::new();
        for name in &names {
            let file_path = path.join(format!("{name}.npy"));
            let mut file = File::open(&file_path).map_err(|e| DataError::io(&file_path, "open", e))?;
            let bytes = file.metadata().map_err(|e| DataError::io(&file_path, "open", e))?.len();
            let header = NpyHeader::read(&mut file);
            if let Ok(header) = &header {
                let claimed = (header.len() as u64).saturating_mul(header.bytes as u64);
                if claimed.saturating_add(header.offset as u64) > bytes {
                    return Err(DataError::TooLarge {
                        path: file_path,
                        column: name.clone(),
                        claimed,
                        reason: format!("but the whole file has {bytes}"),
                    });
                }
            }
            headers.push(header);
        }
        let notes_path = path.join(NOTES_FILE);
        let notes = match std::fs::read_to_string(&notes_path) {
            Ok(text) => {
                Some(serde_json::from_str(&text).map_err(|e| DataError::malformed(&notes_path, "JSON", e))?)
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(DataError::io(&notes_path, "read", e)),
        };
        Ok(NpyDir { path: path.to_owned(), names, headers, notes })
    }

    fn header(&self, name: &str) -> Result<&NpyHeader, DataError> {
        let position = self.names.binary_search_by(|candidate| candidate.as_str().cmp(name));
        let position = position.map_err(|_| no_array(&self.path, name, &self.names))?;
        self.headers[position].as_ref().map_err(|e| DataError::malformed(&self.file_path(name), ".npy", e))
    }

    fn file_path(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.npy"))
    }

    fn map<T: bytemuck::Pod>(&self, name: &str, kinds: &[(u8, usize)]) -> Option<Column<T>> {
        let header = self.header(name).ok()?;
        let plain = !header.big_endian && cfg!(target_endian = "little") || header.bytes == 1;
        if !plain || !kinds.contains(&(header.kind, header.bytes)) || header.len() == 0 {
            return None;
        }
        let file = File::open(self.file_path(name)).ok()?;
        // SAFETY: a mapping is sound as long as nobody truncates or rewrites the file while it is mapped; this is
        // the condition on which a log directory is used, stated in the crate's documentation. The mapping is
        // read-only and any bit pattern is a valid number.
        let map = unsafe { Mmap::map(&file) }.ok()?;
        Column::mapped(Arc::new(map), header.offset, header.len())
    }
}

fn no_array(path: &Path, name: &str, available: &[String]) -> DataError {
    DataError::MissingColumn {
        path: path.to_owned(),
        column: name.to_owned(),
        role: "log",
        available: available.to_vec(),
        remedy: "Add it",
    }
}

impl ArraySource for NpyDir {
    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn info(&self, name: &str) -> Result<ArrayInfo, DataError> {
        Ok(self.header(name)?.info())
    }

    fn for_each_block(&self, name: &str, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let path = self.file_path(name);
        let mut file = File::open(&path).map_err(|e| DataError::io(&path, "open", e))?;
        let failure = |e: String| DataError::malformed(&path, ".npy", e);
        let header = NpyHeader::read(&mut file).map_err(failure)?;
        header.decode(&mut file, visit).map_err(failure)?
    }

    fn mapped_f32(&self, name: &str) -> Option<Column<f32>> {
        self.map(name, &[(b'f', 4)])
    }

    fn mapped_u8(&self, name: &str) -> Option<Column<u8>> {
        self.map(name, &[(b'b', 1)])
    }

    fn note(&self, key: &str) -> Option<Vec<String>> {
        serde_json::from_value(self.notes.as_ref()?.get(key)?.clone()).ok()
    }
}

/// A .npz archive.
pub(crate) struct Npz {
    path: PathBuf,
    bytes: u64,
    names: Vec<String>,
    /// What is wrong with an array matters only if it is asked for.
    headers: Vec<Result<NpyHeader, String>>,
    notes: Option<serde_json::Value>,
    /// A reader has a position; every use seeks first.
    archive: Mutex<ZipArchive<std::io::BufReader<File>>>,
}

impl Npz {
    /// Reads the directory of the archive and the header of every array in it.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let file = File::open(path).map_err(|e| DataError::io(path, "open", e))?;
        let bytes = file.metadata().map_err(|e| DataError::io(path, "open", e))?.len();
        let failure = |e: &dyn std::fmt::Display| DataError::malformed(path, "npz", e);
        let mut archive = ZipArchive::new(std::io::BufReader::new(file)).map_err(|e| failure(&e))?;
        let mut arrays = Vec::new();
        let mut notes = None;
        for position in 0..archive.len() {
            let mut entry = archive.by_index(position).map_err(|e| failure(&e))?;
            let raw = entry.name_raw().to_vec();
            let Ok(name) = String::from_utf8(raw) else {
                let column = format!("the array {:?}", entry.name());
                return Err(DataError::ColumnName { path: path.to_owned(), column });
            };
            if name == NOTES_FILE {
                notes = serde_json::from_reader(entry.take(MAX_NOTES)).ok();
            } else if let Some(name) = name.strip_suffix(".npy") {
                arrays.push((name.to_owned(), NpyHeader::read(&mut entry)));
            }
        }
        arrays.sort_by(|a, b| a.0.cmp(&b.0));
        let (names, headers) = arrays.into_iter().unzip();
        Ok(Npz { path: path.to_owned(), bytes, names, headers, notes, archive: Mutex::new(archive) })
    }
}

impl ArraySource for Npz {
    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn info(&self, name: &str) -> Result<ArrayInfo, DataError> {
        let position = self.names.binary_search_by(|candidate| candidate.as_str().cmp(name));
        let position = position.map_err(|_| no_array(&self.path, name, &self.names))?;
        let header = self.headers[position].as_ref();
        let header =
            header.map_err(|e| DataError::malformed(&self.path, "npz", format!("array {name:?}: {e}")))?;
        check_claim(&self.path, name, &header.info(), self.bytes)?;
        Ok(header.info())
    }

    fn note(&self, key: &str) -> Option<Vec<String>> {
        serde_json::from_value(self.notes.as_ref()?.get(key)?.clone()).ok()
    }

    fn for_each_block(&self, name: &str, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let failure = |e: String| DataError::malformed(&self.path, "npz", format!("array {name:?}: {e}"));
        let mut archive = self.archive.lock().map_err(|_| failure("a former read failed".to_owned()))?;
        let mut entry = archive.by_name(&format!("{name}.npy")).map_err(|e| failure(e.to_string()))?;
        let header = NpyHeader::read(&mut entry).map_err(failure)?;
        header.decode(&mut entry, visit).map_err(failure)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NpyHeader, String> {
        NpyHeader::parse(text, 128)
    }

    #[test]
    fn headers_of_numpy_are_understood() {
        let header = parse("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }      \n").unwrap();
        assert_eq!(header.info(), ArrayInfo { shape: vec![3, 4], element: Element::Float, bytes: 4 });
        let flags = parse("{'descr': '|b1', 'fortran_order': False, 'shape': (7,), }").unwrap();
        assert_eq!(flags.info(), ArrayInfo { shape: vec![7], element: Element::Bool, bytes: 1 });
        assert_eq!(parse("{'descr': '>i8', 'fortran_order': False, 'shape': (), }").unwrap().len(), 1);
    }

    #[test]
    fn other_headers_are_refused() {
        for text in [
            "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }",
            "{'descr': '<U8', 'fortran_order': False, 'shape': (3,), }",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3, x), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999, 99999999999999), }",
            "{'descr': '<f4', 'fortran_order': False, }",
            "",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let mut long = NPY_MAGIC.to_vec();
        long.extend([2, 0, 0xff, 0xff, 0xff, 0xff]);
        assert!(NpyHeader::read(&mut long.as_slice()).unwrap_err().contains("claims"));
        assert!(NpyHeader::read(&mut &long[..4]).is_err());
    }

    #[test]
    fn a_short_array_is_an_error_not_an_allocation() {
        let header = parse("{'descr': '<f4', 'fortran_order': False, 'shape': (9000000000,), }").unwrap();
        let error = header.decode(&mut [0_u8; 8].as_slice(), &mut |_| Ok(())).unwrap_err();
        assert!(error.contains("early"), "{error}");
    }
}
