//! Writing whole files so that nobody ever sees half of one.

use std::io::{self, Write as _};
use std::path::Path;
use tempfile::NamedTempFile;

/// A file beside `path`, to be written and then renamed onto it.
pub(crate) fn beside(path: &Path) -> io::Result<NamedTempFile> {
    // A parent of "" means the working directory.
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".coptidice-");
    // Temporary files are private by default; a result is to be as readable as any other new file.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(directory)
}

/// Writes `bytes` beside `path`, syncs, and renames onto it.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = beside(path)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}
