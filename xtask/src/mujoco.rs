//! `cargo xtask mujoco`: what the feature `mujoco` is built with, fetched, verified and unpacked.
//!
//! Two wheels hold all of it: MuJoCo's shared library, and the models of the control suite's tasks. They are
//! fetched by pip from whichever index it is set up with, so no address stands here; their checksums do, so that
//! it does not matter which index that is. The result lies in the user's cache and is found by builds through a
//! link under `target/`, whose place `.cargo/config.toml` names.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use sha2::{Digest, Sha256};

use crate::Failure;

/// Overrides the directory under which everything is kept.
const CACHE_VARIABLE: &str = "COPTIDICE_CACHE";
/// Where builds look, relative to the root of the repository; see `.cargo/config.toml`.
const LINK: &str = "target/cargo-xtask-mujoco";
/// The library's own name, under which programs look for it; the linker wants it without the version.
const LIBRARY: &str = "libmujoco.so.3.17.0";
const LINKER_NAME: &str = "libmujoco.so";
/// The checksums of what was unpacked; written last, so that a directory that has it is whole.
const SUMS: &str = "SHA256SUMS";

/// Where the wheels come from.
#[derive(Args)]
pub(crate) struct Mujoco {
    /// Take the two wheels from this directory instead of fetching them with pip
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
}

/// One archive of the Python index.
struct Wheel {
    package: &'static str,
    version: &'static str,
    file: &'static str,
    sha256: &'static str,
    /// What is taken from it: the name there, and the path under the cache.
    members: &'static [(&'static str, &'static str)],
}

const LIBRARY_MEMBERS: &[(&str, &str)] = &[
    ("mujoco/libmujoco.so.3.17.0", LIBRARY),
    ("mujoco-3.17.0.dist-info/licenses/LICENSE", "licences/mujoco.txt"),
    ("mujoco-3.17.0.dist-info/licenses/LICENSES_THIRD_PARTY.md", "licences/mujoco-third-party.md"),
];

const LIBRARY_X86_64: Wheel = Wheel {
    package: "mujoco",
    version: "3.17.0",
    file: "mujoco-3.17.0-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
    sha256: "d66928d86a2d1b601bbaa4dc11db50214d17d5301bb8afd84721313b67ff0874",
    members: LIBRARY_MEMBERS,
};

const LIBRARY_AARCH64: Wheel = Wheel {
    file: "mujoco-3.17.0-cp311-cp311-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl",
    sha256: "91a70ed9979c383ff1f5c03f25cc2e1280a8254c1a8e558d5dd7f4184f01efc9",
    ..LIBRARY_X86_64
};

const SUITE: Wheel = Wheel {
    package: "dm_control",
    version: "1.0.50",
    file: "dm_control-1.0.50-py3-none-any.whl",
    sha256: "5434e1e51ff69016867426da7df6064b18d140e4d0a628f879bbcf0e7d0a586d",
    members: &[
        ("dm_control/suite/cartpole.xml", "suite/cartpole.xml"),
        ("dm_control/suite/walker.xml", "suite/walker.xml"),
        ("dm_control/suite/quadruped.xml", "suite/quadruped.xml"),
        ("dm_control/suite/humanoid.xml", "suite/humanoid.xml"),
        ("dm_control/suite/common/materials.xml", "suite/common/materials.xml"),
        ("dm_control/suite/common/skybox.xml", "suite/common/skybox.xml"),
        ("dm_control/suite/common/visual.xml", "suite/common/visual.xml"),
        ("dm_control-1.0.50.dist-info/licenses/LICENSE", "licences/dm_control.txt"),
    ],
};

#[allow(clippy::print_stdout)] // where things are is the result
pub(crate) fn run(options: &Mujoco) -> Result<(), Failure> {
    let library = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => &LIBRARY_X86_64,
        ("linux", "aarch64") => &LIBRARY_AARCH64,
        (os, arch) => {
            return Err(format!(
                "no checksum of MuJoCo for {arch} {os} is known here; Linux on x86_64 and aarch64 are"
            ));
        }
    };
    let wheels = [library, &SUITE];
    let directory = cache()?.join("mujoco-3.17.0");
    if is_whole(&directory, &wheels) {
        println!("{} is whole", directory.display());
    } else {
        install(&directory, &wheels, options.from.as_deref())?;
        println!("{} was filled", directory.display());
    }
    link(&directory)?;
    println!(
        "MuJoCo 3.17.0 and the models of dm_control 1.0.50 are both under the Apache-2.0 licence; their texts, and \
         those of what MuJoCo contains, lie in {}.\n\
         Build with it:  cargo build --release --features mujoco\n\
         Test with it:   cargo xtask test-mujoco",
        directory.join("licences").display()
    );
    Ok(())
}

/// The project's directory in the user's cache.
fn cache() -> Result<PathBuf, Failure> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set(CACHE_VARIABLE)
        .or_else(|| set("XDG_CACHE_HOME").map(|base| base.join("coptidice")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/coptidice")))
        .ok_or_else(|| {
            format!("no HOME and no {CACHE_VARIABLE} is set; set {CACHE_VARIABLE} to a directory")
        })?;
    std::path::absolute(&cache).map_err(|error| format!("{}: {error}", cache.display()))
}

/// Whether everything is there, with the checksums that were written when it was unpacked.
fn is_whole(directory: &Path, wheels: &[&Wheel]) -> bool {
    let Ok(recorded) = fs::read_to_string(directory.join(SUMS)) else { return false };
    sums(directory, wheels).is_ok_and(|found| found == recorded) && directory.join(LINKER_NAME).exists()
}

/// The checksums of the wheels and of every file unpacked, in the form that `sha256sum --check` reads.
fn sums(directory: &Path, wheels: &[&Wheel]) -> Result<String, Failure> {
    let mut text = String::new();
    for wheel in wheels {
        text.push_str(&format!("# {}  {}\n", wheel.sha256, wheel.file));
        for (_, path) in wheel.members {
            text.push_str(&format!("{}  {path}\n", sha256(&read(&directory.join(path))?)));
        }
    }
    Ok(text)
}

/// Fetches, verifies and unpacks beside the final place, then moves there.
fn install(directory: &Path, wheels: &[&Wheel], from: Option<&Path>) -> Result<(), Failure> {
    let work = directory.with_extension(format!("partial-{}", std::process::id()));
    let result = fill(&work, wheels, from).and_then(|()| {
        remove(directory)?;
        fs::rename(&work, directory).map_err(|error| format!("{}: {error}", directory.display()))
    });
    if result.is_err() {
        remove(&work)?;
    }
    result
}

fn fill(work: &Path, wheels: &[&Wheel], from: Option<&Path>) -> Result<(), Failure> {
    remove(work)?;
    let downloads = work.join("wheels");
    make_directory(&downloads)?;
    if from.is_none() {
        fetch(wheels, &downloads)?;
    }
    for wheel in wheels {
        let path = from.unwrap_or(&downloads).join(wheel.file);
        let bytes = read(&path)?;
        let found = sha256(&bytes);
        if found != wheel.sha256 {
            return Err(format!(
                "{} is not the file that was checked: its SHA-256 is {found}, expected {}",
                path.display(),
                wheel.sha256
            ));
        }
        unpack(bytes, wheel, work)?;
    }
    symlink(Path::new(LIBRARY), &work.join(LINKER_NAME))?;
    remove(&downloads)?;
    write(&work.join(SUMS), sums(work, wheels)?.as_bytes())
}

/// Has pip fetch the wheels.
fn fetch(wheels: &[&Wheel], into: &Path) -> Result<(), Failure> {
    let by_hand = || {
        let names: Vec<_> = wheels.iter().map(|wheel| wheel.file).collect();
        format!("put {} into a directory and name it with --from", names.join(" and "))
    };
    eprintln!("fetching {} with pip", wheels.iter().map(|w| w.package).collect::<Vec<_>>().join(" and "));
    let status = Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"])
        .args(["--implementation", "cp", "--python-version", "3.11"])
        .args(["--platform", &format!("manylinux_2_28_{}", std::env::consts::ARCH), "--dest"])
        .arg(into)
        .args(wheels.iter().map(|wheel| format!("{}=={}", wheel.package, wheel.version)))
        .status()
        .map_err(|error| {
            format!("python3 cannot be run ({error}); install Python 3 with pip, or {}", by_hand())
        })?;
    if status.success() { Ok(()) } else { Err(format!("pip could not fetch the wheels; {}", by_hand())) }
}

/// Writes the wheel's members under `directory`.
fn unpack(bytes: Vec<u8>, wheel: &Wheel, directory: &Path) -> Result<(), Failure> {
    let in_wheel = |what: &str, error: &dyn std::fmt::Display| format!("{}: {what}: {error}", wheel.file);
    let mut archive =
        zip::ZipArchive::new(std::io::Cursor::new(bytes)).map_err(|error| in_wheel("archive", &error))?;
    for (member, path) in wheel.members {
        let mut contents = Vec::new();
        let mut entry = archive.by_name(member).map_err(|error| in_wheel(member, &error))?;
        entry.read_to_end(&mut contents).map_err(|error| in_wheel(member, &error))?;
        let path = directory.join(path);
        make_directory(path.parent().unwrap_or(directory))?;
        write(&path, &contents)?;
    }
    Ok(())
}

/// Points the place where builds look to `directory`.
fn link(directory: &Path) -> Result<(), Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let link = root.join(LINK);
    if fs::read_link(&link).is_ok_and(|target| target == directory) {
        return Ok(());
    }
    make_directory(link.parent().unwrap_or(root))?;
    remove(&link)?;
    symlink(directory, &link)
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> Result<(), Failure> {
    std::os::unix::fs::symlink(target, link).map_err(|error| format!("{}: {error}", link.display()))
}

/// Never reached: there is no wheel for such a system.
#[cfg(not(unix))]
fn symlink(_: &Path, link: &Path) -> Result<(), Failure> {
    Err(format!("{}: this system has no symbolic links", link.display()))
}

/// Whether builds will find what this command fetches.
pub(crate) fn is_linked() -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(LINK).join(SUMS).exists()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Removes a file, a link or a directory, if it is there.
fn remove(path: &Path) -> Result<(), Failure> {
    let result = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    result.map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A wheel of our own, with one member.
    fn sample(contents: &[u8]) -> (Vec<u8>, Wheel) {
        let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        archive.start_file("package/file.txt", zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(contents).unwrap();
        let bytes = archive.finish().unwrap().into_inner();
        let sha256: &'static str = Box::leak(sha256(&bytes).into_boxed_str());
        let members = &[("package/file.txt", "inside/file.txt")];
        (bytes, Wheel { package: "package", version: "1", file: "package-1.whl", sha256, members })
    }

    #[test]
    fn fills_a_directory_once_and_notices_damage() {
        let folder = tempfile::tempdir().unwrap();
        let (bytes, wheel) = sample(b"text");
        fs::write(folder.path().join(wheel.file), bytes).unwrap();
        let target = folder.path().join("cache/thing");
        assert!(!is_whole(&target, &[&wheel]));
        install(&target, &[&wheel], Some(folder.path())).unwrap();
        fs::write(target.join(LIBRARY), b"").unwrap();
        assert!(is_whole(&target, &[&wheel]));
        assert_eq!(fs::read(target.join("inside/file.txt")).unwrap(), b"text");
        let beside = fs::read_dir(target.parent().unwrap()).unwrap().count();
        assert_eq!(beside, 1, "nothing is left of the work");
        fs::write(target.join("inside/file.txt"), b"test").unwrap();
        assert!(!is_whole(&target, &[&wheel]));
        install(&target, &[&wheel], Some(folder.path())).unwrap();
        assert_eq!(fs::read(target.join("inside/file.txt")).unwrap(), b"text");
    }

    #[test]
    fn another_file_of_the_same_name_is_refused_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (_, wheel) = sample(b"text");
        fs::write(folder.path().join(wheel.file), sample(b"tampered").0).unwrap();
        let target = folder.path().join("cache/thing");
        let failure = install(&target, &[&wheel], Some(folder.path())).unwrap_err();
        assert!(failure.contains(wheel.sha256) && failure.contains(wheel.file), "{failure}");
        assert_eq!(fs::read_dir(target.parent().unwrap()).unwrap().count(), 0);
    }
}
