//! HDF5 files, read with a library that has no C in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hdf5_reader::error::{ByteOrder, Error};
use hdf5_reader::{Dataset, Datatype, FileStorage, H5Type, Hdf5File, OpenOptions, SliceInfo, SliceInfoElem};

use super::arrays::{ArrayInfo, ArraySource, Block, Element, Visit, check_claim};
use crate::error::DataError;

/// Numbers decoded at a time. Large enough that a chunk is decoded once, small enough not to show in memory.
const BLOCK_NUMBERS: usize = 1 << 18;
/// Groups inside groups deeper than this hold no log.
const MAX_DEPTH: usize = 4;
/// A file with more arrays than this is refused; Minari files have a few for each episode.
const MAX_ARRAYS: usize = 20_000_000;

/// An open HDF5 file.
pub(crate) struct Hdf5Source {
    path: PathBuf,
    file: Hdf5File,
    bytes: u64,
    names: Vec<String>,
    groups: Vec<String>,
}

impl Hdf5Source {
    /// Opens the file and lists the root and the groups in it that are not episodes.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let failure = |e: Error| failure(path, &e);
        let bytes = std::fs::metadata(path).map_err(|e| DataError::io(path, "open", e))?.len();
        let storage = FileStorage::open(path).map_err(failure)?;
        // Whole chunks are read one after another, each once: nothing is gained by keeping them.
        let options = OpenOptions { chunk_cache_bytes: 0, ..OpenOptions::default() };
        let options = options.with_max_chunk_bytes(64 << 20).with_max_read_bytes(1 << 30);
        let file = Hdf5File::from_storage_with_options(Arc::new(storage), options).map_err(failure)?;
        let (groups, mut names) = file.root_group().and_then(|root| root.member_names()).map_err(failure)?;
        for group in groups.iter().filter(|name| !is_episode(name)) {
            list(&file, group, 1, &mut names).map_err(failure)?;
        }
        names.sort_unstable();
        Ok(Hdf5Source { path: path.to_owned(), file, bytes, names, groups })
    }

    /// Names of the groups of the root.
    pub(crate) fn groups(&self) -> &[String] {
        &self.groups
    }

    /// Names of the arrays below `group`, as paths from the root.
    pub(crate) fn names_below(&self, group: &str) -> Result<Vec<String>, DataError> {
        let mut names = Vec::new();
        list(&self.file, group, 1, &mut names).map_err(|e| self.failure(&e))?;
        names.sort_unstable();
        Ok(names)
    }

    /// The strings of a dataset of text.
    pub(crate) fn strings(&self, name: &str) -> Result<Vec<String>, DataError> {
        self.dataset(name)?.read_strings().map_err(|e| self.failure(&e))
    }

    fn dataset(&self, name: &str) -> Result<Dataset, DataError> {
        self.file.dataset(name).map_err(|e| self.failure(&e))
    }

    fn failure(&self, error: &Error) -> DataError {
        failure(&self.path, error)
    }
}

/// The error of the library as one of a log.
fn failure(path: &Path, error: &Error) -> DataError {
    let text = error.to_string();
    // The library refuses such a file whole, and does not say which name it is.
    if text.contains("invalid UTF-8") {
        return DataError::ColumnName {
            path: path.to_owned(),
            column: "an array, a group or an attribute".to_owned(),
        };
    }
    DataError::malformed(path, "HDF5", text)
}

/// What a type is called that holds no numbers.
fn kind_of(datatype: &Datatype) -> &'static str {
    match datatype {
        Datatype::String { .. } | Datatype::VarLen { .. } => "text or lists of varying length",
        Datatype::Compound { .. } => "records of several fields",
        Datatype::Array { .. } => "an array in each element",
        Datatype::Reference { .. } => "references to other objects",
        _ => "a type that has no plain numbers",
    }
}

/// Whether a group is one episode of a Minari file.
pub(crate) fn is_episode(group: &str) -> bool {
    group.strip_prefix("episode_").is_some_and(|number| number.parse::<u64>().is_ok())
}

fn list(file: &Hdf5File, group: &str, depth: usize, names: &mut Vec<String>) -> Result<(), Error> {
    let (groups, datasets) = file.group(group)?.member_names()?;
    names.extend(datasets.iter().map(|name| format!("{group}/{name}")));
    if names.len() > MAX_ARRAYS {
        return Err(Error::ResourceLimit(format!("more than {MAX_ARRAYS} arrays")));
    }
    if depth < MAX_DEPTH {
        for child in groups {
            list(file, &format!("{group}/{child}"), depth + 1, names)?;
        }
    }
    Ok(())
}

impl ArraySource for Hdf5Source {
    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn info(&self, name: &str) -> Result<ArrayInfo, DataError> {
        let dataset = self.dataset(name)?;
        let (element, bytes) = element(dataset.dtype()).ok_or_else(|| DataError::ColumnType {
            path: self.path.clone(),
            column: name.to_owned(),
            found: kind_of(dataset.dtype()).to_owned(),
            expected: "floating-point, integer or boolean numbers",
        })?;
        let shape: Result<Vec<usize>, _> =
            dataset.shape().iter().map(|&axis| usize::try_from(axis)).collect();
        let shape = shape
            .map_err(|_| DataError::malformed(&self.path, "HDF5", "an axis exceeds the address space"))?;
        let info = ArrayInfo { shape, element, bytes };
        check_claim(&self.path, name, &info, self.bytes)?;
        Ok(info)
    }

    fn for_each_block(&self, name: &str, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let info = self.info(name)?;
        let dataset = self.dataset(name)?;
        let rows = info.rows();
        let chunk_rows =
            dataset.chunks().and_then(|chunk| chunk.first().copied()).unwrap_or(1).max(1) as usize;
        let wanted = (BLOCK_NUMBERS / info.width().max(1)).max(1);
        // Whole chunks at a time, so that none is decoded twice.
        let step = (wanted / chunk_rows * chunk_rows).max(chunk_rows).min(rows.max(1));
        let single = matches!(dataset.dtype(), Datatype::FloatingPoint { size: 4, .. });
        let mut start = 0;
        while start < rows {
            let end = (start + step).min(rows);
            match (info.element, single) {
                (Element::Float, true) => {
                    visit(Block::F32(&self.slice::<f32>(&dataset, start, end)?))?;
                }
                (Element::Float, false) => {
                    let values: Vec<f64> =
                        self.slice::<Real>(&dataset, start, end)?.into_iter().map(|real| real.0).collect();
                    visit(Block::F64(&values))?;
                }
                (Element::Int | Element::Bool, _) => {
                    let values: Vec<i64> =
                        self.slice::<Whole>(&dataset, start, end)?.into_iter().map(|whole| whole.0).collect();
                    visit(Block::Int(&values))?;
                }
            }
            start = end;
        }
        Ok(())
    }

    fn note(&self, key: &str) -> Option<Vec<String>> {
        let text = self.file.root_group().ok()?.attribute(key).ok()?.read_string().ok()?;
        serde_json::from_str(&text).ok()
    }
}

impl Hdf5Source {
    /// Rows `start..end`.
    fn slice<T: H5Type>(&self, dataset: &Dataset, start: usize, end: usize) -> Result<Vec<T>, DataError> {
        let mut selections = vec![SliceInfoElem::Slice { start: 0, end: u64::MAX, step: 1 }; dataset.ndim()];
        if let Some(first) = selections.first_mut() {
            *first = SliceInfoElem::Slice { start: start as u64, end: end as u64, step: 1 };
        }
        let array = dataset.read_slice::<T>(&SliceInfo { selections }).map_err(|e| self.failure(&e))?;
        Ok(array.into_raw_vec_and_offset().0)
    }
}

/// The kind and size of a number, or `None` for text, compounds and the like.
fn element(datatype: &Datatype) -> Option<(Element, usize)> {
    match datatype {
        Datatype::FloatingPoint { size, .. } if [2, 4, 8].contains(size) => {
            Some((Element::Float, usize::from(*size)))
        }
        Datatype::FixedPoint { size, .. } | Datatype::Bitfield { size, .. } if *size <= 8 => {
            Some((Element::Int, usize::from(*size)))
        }
        // Python's booleans are an enumeration of FALSE and TRUE.
        Datatype::Enum { base, members } if members.len() == 2 => {
            element(base).map(|(_, bytes)| (Element::Bool, bytes))
        }
        Datatype::Enum { base, .. } => element(base),
        _ => None,
    }
}

/// A whole number of any width, or an enumeration of them.
#[derive(Clone, Copy)]
struct Whole(i64);

/// A floating-point number of 16 or 64 bits.
#[derive(Clone, Copy)]
struct Real(f64);

fn size_of_element(datatype: &Datatype) -> usize {
    element(datatype).map_or(1, |(_, bytes)| bytes)
}

fn mismatch(datatype: &Datatype) -> Error {
    Error::TypeMismatch { expected: "a number".into(), actual: format!("{datatype:?}") }
}

/// Up to eight bytes, least significant first.
fn little_endian(bytes: &[u8], size: usize, order: ByteOrder) -> Option<[u8; 8]> {
    let mut word = [0; 8];
    let given = bytes.get(..size)?;
    let target = word.get_mut(..size)?;
    target.copy_from_slice(given);
    if order == ByteOrder::BigEndian {
        target.reverse();
    }
    Some(word)
}

impl H5Type for Whole {
    fn hdf5_type() -> Datatype {
        i64::hdf5_type()
    }

    fn from_bytes(bytes: &[u8], datatype: &Datatype) -> Result<Self, Error> {
        match datatype {
            Datatype::Enum { base, .. } => Whole::from_bytes(bytes, base),
            Datatype::FixedPoint { size, signed, byte_order } => {
                let size = usize::from(*size);
                let word = little_endian(bytes, size, *byte_order).ok_or_else(|| mismatch(datatype))?;
                let unused = 64 - 8 * size as u32;
                let value = u64::from_le_bytes(word);
                Ok(Whole(if *signed {
                    (value << unused) as i64 >> unused
                } else {
                    i64::try_from(value).unwrap_or(i64::MAX)
                }))
            }
            Datatype::Bitfield { size, byte_order } => {
                let word = little_endian(bytes, usize::from(*size), *byte_order)
                    .ok_or_else(|| mismatch(datatype))?;
                Ok(Whole(i64::try_from(u64::from_le_bytes(word)).unwrap_or(i64::MAX)))
            }
            _ => Err(mismatch(datatype)),
        }
    }

    fn element_size(datatype: &Datatype) -> usize {
        size_of_element(datatype)
    }
}

impl H5Type for Real {
    fn hdf5_type() -> Datatype {
        f64::hdf5_type()
    }

    fn from_bytes(bytes: &[u8], datatype: &Datatype) -> Result<Self, Error> {
        let Datatype::FloatingPoint { size, byte_order } = datatype else { return Err(mismatch(datatype)) };
        let word = little_endian(bytes, usize::from(*size), *byte_order).ok_or_else(|| mismatch(datatype))?;
        let bits = u64::from_le_bytes(word);
        match size {
            8 => Ok(Real(f64::from_bits(bits))),
            4 => Ok(Real(f64::from(f32::from_bits(bits as u32)))),
            2 => Ok(Real(half_to_f64(bits as u16))),
            _ => Err(mismatch(datatype)),
        }
    }

    fn element_size(datatype: &Datatype) -> usize {
        size_of_element(datatype)
    }
}

/// IEEE binary16.
pub(crate) fn half_to_f64(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let fraction = f64::from(bits & 0x3ff) / 1024.0;
    sign * match (bits >> 10) & 0x1f {
        0 => fraction * 2.0_f64.powi(-14),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        exponent => (1.0 + fraction) * 2.0_f64.powi(i32::from(exponent) - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves() {
        let cases = [(0x3c00, 1.0), (0xc000, -2.0), (0x0001, 5.960_464_477_539_063e-8), (0x7bff, 65504.0)];
        for (bits, value) in cases {
            assert_eq!(half_to_f64(bits), value);
        }
        assert!(half_to_f64(0x7c00).is_infinite() && half_to_f64(0x7e00).is_nan());
    }

    #[test]
    fn whole_numbers_of_any_width_and_order() {
        let fixed = |size, signed, byte_order| Datatype::FixedPoint { size, signed, byte_order };
        let decode = |bytes: &[u8], datatype: &Datatype| Whole::from_bytes(bytes, datatype).unwrap().0;
        assert_eq!(decode(&[0xff], &fixed(1, true, ByteOrder::LittleEndian)), -1);
        assert_eq!(decode(&[0xff], &fixed(1, false, ByteOrder::LittleEndian)), 255);
        assert_eq!(decode(&[0xff, 0xfe], &fixed(2, true, ByteOrder::BigEndian)), -2);
        assert_eq!(decode(&[0; 8], &fixed(8, true, ByteOrder::LittleEndian)), 0);
        assert!(Whole::from_bytes(&[1], &fixed(4, true, ByteOrder::LittleEndian)).is_err());
    }
}
