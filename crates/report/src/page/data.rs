//! What the logs hold.

use super::section::{Card, Section};
use super::verdict::LimitReading;
use crate::bins::{Bins, Summary};
use crate::number::{count, counted, significant};
use crate::svg::Histogram;
use crate::table::{Column, Table, printable};
use crate::text;

/// The kind of actions logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionSummary {
    /// Real vectors of this dimension.
    Continuous {
        /// Numbers to an action.
        dim: usize,
    },
    /// One of this many.
    Discrete {
        /// How many actions there are.
        count: usize,
    },
}

impl ActionSummary {
    fn kind(self) -> &'static str {
        match self {
            ActionSummary::Continuous { .. } => "continuous",
            ActionSummary::Discrete { .. } => "discrete",
        }
    }

    fn text(self) -> String {
        match self {
            ActionSummary::Continuous { dim } => counted(dim as u64, "number"),
            ActionSummary::Discrete { count } => format!("1 of {count}"),
        }
    }
}

/// A cost column of the logs.
#[derive(Clone, Debug, PartialEq)]
pub struct CostSummary {
    /// Its name.
    pub name: String,
    /// Mean per step over all transitions.
    pub per_step: f64,
    /// The total of each episode.
    pub per_episode: Vec<f64>,
    /// The limit set for it, if any.
    pub limit: Option<LimitReading>,
}

impl CostSummary {
    /// Share of episodes whose total exceeds the limit per episode; `None` without a limit or episodes.
    #[must_use]
    pub fn share_over_limit(&self) -> Option<f64> {
        let limit = self.limit.as_ref()?.per_episode;
        let over = self.per_episode.iter().filter(|c| **c > limit).count();
        (!self.per_episode.is_empty()).then(|| over as f64 / self.per_episode.len() as f64)
    }
}

/// The logs in numbers and small pictures, for the page and the terminal.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSummary {
    /// Where the logs came from, as the user named them.
    pub source: String,
    /// How many transitions.
    pub transitions: u64,
    /// Numbers to an observation.
    pub observation_dim: usize,
    /// What an action is.
    pub action: ActionSummary,
    /// Steps of each episode.
    pub lengths: Vec<f64>,
    /// Undiscounted return of each episode.
    pub returns: Vec<f64>,
    /// The cost columns.
    pub costs: Vec<CostSummary>,
}

impl DataSummary {
    /// A few lines and histograms for a terminal of `width` columns.
    #[must_use]
    pub fn to_text(&self, width: usize) -> String {
        let mut out = format!(
            "{}\n{} in {}; observation: {}; action: {}\n\n",
            printable(&self.source),
            counted(self.transitions, "transition"),
            counted(self.lengths.len() as u64, "episode"),
            counted(self.observation_dim as u64, "number"),
            self.action.text()
        );
        out.push_str(&self.table(true).to_text(u16::try_from(width).ok()));
        for (name, values) in self.distributions() {
            if distinct(values) {
                out.push_str(&format!("\n{}\n", printable(&name)));
                out.push_str(&text::histogram(&Bins::linear(values, 10), width.min(72)));
            }
        }
        out
    }

    /// Per-episode figures, one row each for length, return and costs.
    fn table(&self, with_picture: bool) -> Table {
        let mut columns = vec![
            Column::text("per episode"),
            Column::numeric("mean"),
            Column::numeric("s.d."),
            Column::numeric("min"),
            Column::numeric("median"),
            Column::numeric("max"),
        ];
        if with_picture {
            columns.push(Column::text("distribution"));
        }
        let mut table = Table::new(columns);
        for (name, values) in self.distributions() {
            let show = |v| significant(v, 4);
            let Some(s) = Summary::of(values) else { continue };
            let mut cells =
                vec![name, show(s.mean), show(s.deviation), show(s.min), show(s.median), show(s.max)];
            if with_picture {
                cells.push(text::histogram_line(&Bins::linear(values, 12)));
            }
            table.push(cells.into_iter().map(Into::into));
        }
        table
    }

    fn distributions(&self) -> Vec<(String, &[f64])> {
        let mut all: Vec<(String, &[f64])> =
            vec![("length".to_owned(), self.lengths.as_slice()), ("return".to_owned(), &self.returns)];
        for cost in &self.costs {
            // A column that is called "cost" needs no more words.
            let name =
                if cost.name.starts_with("cost") { cost.name.clone() } else { format!("cost {}", cost.name) };
            all.push((name, &cost.per_episode));
        }
        all
    }
}

/// Whether there is a distribution to draw.
fn distinct(values: &[f64]) -> bool {
    values.windows(2).any(|v| v[0] != v[1])
}

impl From<&DataSummary> for Section {
    fn from(data: &DataSummary) -> Self {
        let mut cards = vec![
            Card::new("transitions", count(data.transitions), ""),
            Card::new("episodes", count(data.lengths.len() as u64), length_note(&data.lengths)),
            Card::new("observation", data.observation_dim.to_string(), "numbers"),
            Card::new("action", data.action.text(), data.action.kind()),
        ];
        for cost in &data.costs {
            let over = cost.share_over_limit().map_or(String::new(), |share| {
                format!("{} of episodes over the limit", crate::number::percent(share))
            });
            cards.push(Card::new(format!("{} per step", cost.name), significant(cost.per_step, 4), over));
        }
        let mut section = Section::new("Data").paragraph(format!("Logs: {}", data.source)).cards(cards);
        section = section.table(data.table(false));
        for (i, (name, values)) in data.distributions().into_iter().enumerate() {
            if !distinct(values) {
                continue;
            }
            // Lengths in grey, returns in the first colour, costs in the second.
            let color = [crate::svg::NEUTRAL, 0].get(i).copied().unwrap_or(1);
            let label = format!("{name} per episode");
            let title = if i == 0 { "Episode length".to_owned() } else { capitalised(&label) };
            let label = if i == 0 { "steps".to_owned() } else { label };
            let mut chart =
                Histogram::new(title, label, Bins::linear(values, 24)).counting("episodes").color(color);
            if let Some(limit) = i.checked_sub(2).and_then(|k| data.costs[k].limit.as_ref()) {
                chart = chart.mark(limit.per_episode, format!("limit {}", significant(limit.per_episode, 4)));
            }
            section = section.chart(&chart);
        }
        section
    }
}

fn length_note(lengths: &[f64]) -> String {
    match Summary::of(lengths) {
        Some(s) if s.min == s.max => format!("{} steps each", significant(s.min, 6)),
        Some(s) => format!("{} to {} steps", significant(s.min, 6), significant(s.max, 6)),
        None => String::new(),
    }
}

pub(super) fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}
