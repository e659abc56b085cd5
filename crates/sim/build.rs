//! With the feature `mujoco`: finds what `cargo xtask mujoco` fetched, and lets programs find the library where it is.

use std::path::PathBuf;

const REMEDY: &str =
    "run `cargo xtask mujoco` once (it fetches MuJoCo and the task models), then build again";

fn main() {
    println!("cargo::rerun-if-env-changed=MUJOCO_DYNAMIC_LINK_DIR");
    if std::env::var_os("CARGO_FEATURE_MUJOCO").is_none() {
        return;
    }
    let found = std::env::var_os("MUJOCO_DYNAMIC_LINK_DIR")
        .map(PathBuf::from)
        .inspect(|link| println!("cargo::rerun-if-changed={}", link.display()))
        // The link's target, so that programs do not need the link to run.
        .and_then(|link| link.canonicalize().ok())
        .filter(|directory| directory.join("libmujoco.so").exists() && directory.join("suite").exists());
    let Some(directory) = found else {
        println!(
            "cargo::error=the feature `mujoco` needs MuJoCo and the task models, which are not here; {REMEDY}"
        );
        return;
    };
    let directory = directory.display();
    println!("cargo::rustc-env=COPTIDICE_SUITE={directory}/suite");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{directory}");
    // For the build scripts of packages with programs: DEP_MUJOCO_DIRECTORY.
    println!("cargo::metadata=DIRECTORY={directory}");
}
