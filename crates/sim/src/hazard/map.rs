//! The map, as data: for the environment, the controllers, and whoever draws it.

use serde::{Deserialize, Serialize};

/// A disc.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Circle {
    /// Centre, m.
    pub centre: [f64; 2],
    /// Radius, m.
    pub radius: f64,
}

impl Circle {
    /// Whether a point lies strictly inside.
    #[must_use]
    pub fn contains(&self, point: [f64; 2]) -> bool {
        distance(point, self.centre) < self.radius
    }
}

/// A closed interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Span {
    /// The point at `share` of the way from the lower to the upper end.
    #[must_use]
    pub fn at(&self, share: f64) -> f64 {
        self.low + share * (self.high - self.low)
    }
}

/// Where things are, in m.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HazardMap {
    /// Walls at ± this, in both coordinates.
    pub half_width: f64,
    /// Starts are uniform in this rectangle: first coordinate.
    pub start_x: Span,
    /// Second coordinate.
    pub start_y: Span,
    /// The goal.
    pub goal: [f64; 2],
    /// Distance from the goal at which a step earns 0.1.
    pub reward_margin: f64,
    /// A step costs 1 inside.
    pub hazard: Circle,
}

impl HazardMap {
    /// The map of `nav/hazard`.
    pub const STANDARD: HazardMap = HazardMap {
        half_width: 3.0,
        start_x: Span { low: -2.1, high: -1.9 },
        start_y: Span { low: -0.8, high: 0.8 },
        goal: [2.0, 0.0],
        reward_margin: 2.0,
        hazard: Circle { centre: [0.0, 0.0], radius: 1.2 },
    };
}

/// Euclidean distance.
pub(crate) fn distance(a: [f64; 2], b: [f64; 2]) -> f64 {
    (a[0] - b[0]).hypot(a[1] - b[1])
}
