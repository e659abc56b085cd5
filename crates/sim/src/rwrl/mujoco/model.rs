//! Models from the suite's files, which `cargo xtask mujoco` fetched and the build took in.

use std::ops::Range;
use std::sync::Once;

use mujoco_rs::prelude::*;
use mujoco_rs::wrappers::{MjVfs, MjtObjBase};

/// A file of the suite, by its path there.
macro_rules! suite_file {
    ($path:literal) => {
        include_bytes!(concat!(env!("COPTIDICE_SUITE"), "/", $path))
    };
}
pub(super) use suite_file;

/// What the models include, under the names by which they do.
const COMMON: [(&str, &[u8]); 3] = [
    ("./common/materials.xml", suite_file!("common/materials.xml")),
    ("./common/skybox.xml", suite_file!("common/skybox.xml")),
    ("./common/visual.xml", suite_file!("common/visual.xml")),
];

/// Compiles a model after changing its description.
pub(super) fn load(
    xml: &[u8],
    edit: impl FnOnce(&mut MjSpec) -> Result<(), String>,
) -> Result<MjModel, String> {
    quieten();
    let mut files = MjVfs::new();
    for (name, contents) in COMMON.into_iter().chain([("model.xml", xml)]) {
        files.add_from_buffer(name, contents).map_err(|error| format!("{name}: {error}"))?;
    }
    let mut spec = MjSpec::from_xml_vfs("model.xml", &files).map_err(|error| error.to_string())?;
    edit(&mut spec)?;
    let mut model = spec.compile_with_vfs(&files).map_err(|error| error.to_string())?;
    // A state that is no longer finite is to be seen as such, not replaced by the model's initial state.
    model.opt_mut().disableflags |= MjtDisableBit::mjDSBL_AUTORESET as i32;
    Ok(model)
}

/// Keeps MuJoCo from writing its warnings into a file in the working directory. They are about states that are no
/// longer finite, which callers notice themselves, and about contacts left out where a reset starts inside the floor.
fn quieten() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: MuJoCo must not be in use by another thread meanwhile. Every use of it in this crate begins with
        // the loading of a model, which waits here.
        unsafe { set_log_handler(report_errors) };
    });
}

/// MuJoCo ends the process after an error (it is out of memory, say), so it is at least said.
fn report_errors(message: &MjLogMessage) {
    if message.level() == MjtLogLevel::mjLOG_ERROR {
        eprintln!("MuJoCo: {}", message.subject());
    }
}

/// The names in a model.
pub(super) struct Names<'m> {
    model: &'m MjModel,
}

impl<'m> Names<'m> {
    pub(super) fn new(model: &'m MjModel) -> Self {
        Names { model }
    }

    /// The number of a body.
    pub(super) fn body(&self, name: &str) -> Result<usize, String> {
        self.id(MjtObjBase::mjOBJ_BODY, "body", name)
    }

    /// Where a sensor's readings are among those of all sensors.
    pub(super) fn sensor(&self, name: &str) -> Result<Range<usize>, String> {
        let id = self.id(MjtObjBase::mjOBJ_SENSOR, "sensor", name)?;
        let start = self.model.sensor_adr()[id] as usize;
        Ok(start..start + self.model.sensor_dim()[id] as usize)
    }

    /// Names of all bodies but the world, in order.
    pub(super) fn bodies(&self) -> Vec<String> {
        self.all(MjtObjBase::mjOBJ_BODY, self.model.ffi().nbody as usize).skip(1).collect()
    }

    /// Names of all joints, in order.
    pub(super) fn joints(&self) -> Vec<String> {
        self.all(MjtObjBase::mjOBJ_JOINT, self.model.ffi().njnt as usize).collect()
    }

    /// Names of all actuators, in order.
    pub(super) fn actuators(&self) -> Vec<String> {
        self.all(MjtObjBase::mjOBJ_ACTUATOR, self.model.ffi().nu as usize).collect()
    }

    /// Smallest and largest values of every control.
    pub(super) fn control_bounds(&self) -> (Vec<f64>, Vec<f64>) {
        self.model.actuator_ctrlrange().iter().map(|&[low, high]| (low, high)).unzip()
    }

    fn id(&self, kind: MjtObjBase, what: &str, name: &str) -> Result<usize, String> {
        self.model.name_to_id(kind, name).ok_or_else(|| format!("it has no {what} {name:?}"))
    }

    fn all(&self, kind: MjtObjBase, count: usize) -> impl Iterator<Item = String> {
        (0..count)
            .map(move |id| self.model.id_to_name(kind, id).map_or_else(|| id.to_string(), str::to_owned))
    }
}

/// `name_suffix` for every name and suffix, names outermost.
pub(super) fn with_suffixes(names: &[String], suffixes: &[&str]) -> Vec<String> {
    names.iter().flat_map(|name| suffixes.iter().map(move |suffix| format!("{name}_{suffix}"))).collect()
}
