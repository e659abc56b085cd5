//! A column of plain values, owned or mapped from a file.

use std::ops::Deref;
use std::sync::Arc;

use bytemuck::Pod;
use memmap2::Mmap;

/// A read-only array of plain values. It lies in memory, or in a file that the operating system pages in on demand,
/// so that a log may be larger than memory.
#[derive(Clone)]
pub struct Column<T: Pod>(Source<T>);

#[derive(Clone)]
enum Source<T> {
    Owned(Arc<Vec<T>>),
    Mapped { map: Arc<Mmap>, offset: usize, bytes: usize },
}

impl<T: Pod> Column<T> {
    /// `values` of a mapped file: `len` values from byte `offset`, or `None` if they do not fit the file or are not
    /// aligned for `T`.
    pub(crate) fn mapped(map: Arc<Mmap>, offset: usize, len: usize) -> Option<Self> {
        let bytes = len.checked_mul(size_of::<T>())?;
        let slice = map.get(offset..offset.checked_add(bytes)?)?;
        bytemuck::try_cast_slice::<u8, T>(slice).ok()?;
        Some(Column(Source::Mapped { map, offset, bytes }))
    }

    /// The values as a vector; copied only if they are mapped or shared.
    pub(crate) fn into_vec(self) -> Vec<T> {
        match self.0 {
            Source::Owned(values) => Arc::try_unwrap(values).unwrap_or_else(|shared| shared.as_ref().clone()),
            Source::Mapped { .. } => self.to_vec(),
        }
    }

    /// Whether the values are paged in from a file instead of lying in memory.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        matches!(self.0, Source::Mapped { .. })
    }
}

impl<T: Pod> From<Vec<T>> for Column<T> {
    fn from(values: Vec<T>) -> Self {
        Column(Source::Owned(Arc::new(values)))
    }
}

impl<T: Pod> Deref for Column<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Source::Owned(values) => values,
            // Range and alignment were checked when the column was made, and a mapping never moves.
            Source::Mapped { map, offset, bytes } => bytemuck::cast_slice(&map[*offset..offset + bytes]),
        }
    }
}

impl<T: Pod> std::fmt::Debug for Column<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.is_mapped() { "mapped" } else { "in memory" };
        write!(f, "Column<{}>({} values, {place})", std::any::type_name::<T>(), self.len())
    }
}
