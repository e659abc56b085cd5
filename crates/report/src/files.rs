//! Writing whole files so that nobody ever sees half of one.

use std::io::{self, Write as _};
use std::path::Path;
use tempfile::NamedTempFile;

/// A file beside `path`, to be written and then renamed onto it.
pub(crate) fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".coptidice-");
    // Temporary files are private by default; a result is to be as readable as any other new file.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(directory_of(path))
}

/// Writes `bytes` to `path` whole or not at all: under a temporary name beside it, synced, renamed.
///
/// # Errors
/// Whatever the file system says; then `path` is as it was.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// let path = directory.path().join("result.json");
/// coptidice_report::write_whole(&path, b"{}")?;
/// assert_eq!(std::fs::read(&path)?, b"{}");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = beside(path)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    // The new name is in the directory, which has a cache of its own.
    #[cfg(unix)]
    std::fs::File::open(directory_of(path))?.sync_all()?;
    Ok(())
}

/// A parent of "" means the working directory.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
