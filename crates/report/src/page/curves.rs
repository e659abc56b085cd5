//! Learning curves from a run's record.

use super::section::Section;
use crate::metrics::History;
use crate::svg::{Axis, Chart, Figure, LineChart, Reference, Series};

/// One chart of metrics by training step.
///
/// ```
/// use coptidice_report::metrics::{History, Record};
/// use coptidice_report::page::Curve;
/// let record = |step, value| Record { step, values: vec![("lambda".into(), value)] };
/// let history = History::from_records(vec![record(0, 1.0), record(100, 0.4)]);
/// assert!(Curve::new("Cost multiplier", "lambda").metric("lambda", "lambda").figure(&history).is_some());
/// assert!(Curve::new("Other", "").metric("unheard_of", "").figure(&history).is_none());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    title: String,
    axis: Axis,
    metrics: Vec<(String, String)>,
    references: Vec<Reference>,
    average: Option<f64>,
}

impl Curve {
    /// A chart without lines; `label` names the vertical axis.
    #[must_use]
    pub fn new(title: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            axis: Axis::linear(label),
            metrics: Vec::new(),
            references: Vec::new(),
            average: None,
        }
    }

    /// Adds a line: the metric's name in the record, and its name in the legend. The second and later lines are
    /// passed over where the record lacks them.
    #[must_use]
    pub fn metric(mut self, name: impl Into<String>, label: impl Into<String>) -> Self {
        self.metrics.push((name.into(), label.into()));
        self
    }

    /// Adds a horizontal line to compare with.
    #[must_use]
    pub fn reference(mut self, value: f64, label: impl Into<String>) -> Self {
        self.references.push(Reference::new(value, label));
        self
    }

    /// Replaces the vertical axis, for a logarithmic or a fixed one.
    #[must_use]
    pub fn axis(mut self, axis: Axis) -> Self {
        self.axis = axis;
        self
    }

    /// Makes the vertical axis reach zero.
    #[must_use]
    pub fn from_zero(mut self) -> Self {
        self.axis = self.axis.including(0.0);
        self
    }

    /// Draws the raw values pale, and over them their moving average with this decay (0.9 weighs about the last ten
    /// records).
    #[must_use]
    pub fn averaged(mut self, decay: f64) -> Self {
        self.average = Some(decay);
        self
    }

    /// Draws the chart; `None` where the record has none of its metrics.
    #[must_use]
    pub fn figure(&self, history: &History) -> Option<Figure> {
        let mut chart = LineChart::new(self.title.as_str(), Axis::linear("training step"), self.axis.clone());
        let mut any = false;
        for (i, (name, label)) in self.metrics.iter().enumerate() {
            let points = history.series(name);
            if points.is_empty() {
                continue;
            }
            any = true;
            let series = Series::by_step(label.as_str(), &points).color(i);
            chart = match self.average {
                Some(decay) => {
                    let average = series.averaged(decay);
                    chart.series(series.faint()).series(average)
                }
                None => chart.series(series),
            };
        }
        for reference in &self.references {
            chart = chart.reference(reference.clone());
        }
        let figure = any.then(|| chart.figure())?;
        Some(match self.average {
            Some(_) => figure.noted("pale: recorded; full: moving average"),
            None => figure,
        })
    }
}

/// A section of learning curves.
#[derive(Clone, Debug)]
pub struct Curves<'a> {
    title: String,
    history: &'a History,
    curves: Vec<Curve>,
}

impl<'a> Curves<'a> {
    /// A section without curves.
    #[must_use]
    pub fn new(title: impl Into<String>, history: &'a History) -> Self {
        Self { title: title.into(), history, curves: Vec::new() }
    }

    /// Adds a curve; one whose metrics the record lacks is left out.
    #[must_use]
    pub fn curve(mut self, curve: Curve) -> Self {
        self.curves.push(curve);
        self
    }
}

impl From<Curves<'_>> for Section {
    fn from(curves: Curves<'_>) -> Self {
        let figures = curves.curves.iter().filter_map(|c| c.figure(curves.history));
        figures.fold(Section::new(curves.title), Section::figure)
    }
}
