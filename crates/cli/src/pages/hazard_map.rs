//! Logged and learned paths over the map of hazard navigation.

use coptidice_data::Transitions;
use coptidice_report::page::Section;
use coptidice_report::svg::{Disc, DiscKind, PathGroup, PathMap};
use coptidice_sim::Evaluation;
use coptidice_sim::hazard::HazardMap;

/// Logged episodes drawn: enough to see every habit, few enough to see through.
const LOGGED_SHOWN: usize = 60;

/// Positions of some of the logged episodes, metres.
pub(crate) fn logged_paths(data: &Transitions) -> Vec<Vec<[f32; 2]>> {
    let point = |at: &[f32]| [at[0], at[1]];
    let stride = data.episodes().len().div_ceil(LOGGED_SHOWN).max(1);
    let shown = data.episodes().iter().step_by(stride);
    shown.map(|episode| episode.rows().map(|i| point(data.observation(i))).collect()).collect()
}

/// The map with logged paths faint and each policy's paths strong.
pub(crate) fn section(logged: &[Vec<[f32; 2]>], policies: &[(String, Evaluation)]) -> Section {
    let map = HazardMap::STANDARD;
    let point = |at: &[f32]| (f64::from(at[0]), f64::from(at[1]));
    let logged = logged.iter().map(|path| path.iter().map(|at| point(at)).collect()).collect();
    let width = (-map.half_width, map.half_width);
    let mut figure = PathMap::new("Paths over the map", width, width)
        .labels("x, m", "y, m")
        .disc(Disc {
            kind: DiscKind::Hazard,
            center: map.hazard.centre.into(),
            radius: map.hazard.radius,
            label: "hazard".to_owned(),
        })
        .disc(Disc { kind: DiscKind::Goal, center: map.goal.into(), radius: 0.12, label: "goal".to_owned() })
        .paths(PathGroup::faint("logged", logged));
    for (name, evaluation) in policies {
        let paths = evaluation
            .paths
            .iter()
            .map(|path| path.observations.iter().map(|o| point(o)).collect())
            .collect();
        figure = figure.paths(PathGroup::new(name.clone(), paths));
    }
    Section::new("Paths").chart(&figure)
}
