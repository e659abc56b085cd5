//! With the feature `mujoco`: lets the program find MuJoCo's library where the simulators' build found it.

fn main() {
    println!("cargo::rerun-if-env-changed=DEP_MUJOCO_DIRECTORY");
    if let Ok(directory) = std::env::var("DEP_MUJOCO_DIRECTORY") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{directory}");
    }
}
