//! `report.html`: one file that holds all it shows and reaches for nothing else.
//!
//! A [`Report`] is composed of a headline with its [`Verdict`], key figures, and [`Section`]s. Typed sections
//! ([`DataSummary`], [`Curves`], [`WeightSummary`], [`Evaluation`], [`Problems`], [`Reproduce`]) turn into sections by
//! `Into`; anything else is put together from the blocks of [`Section`]. All text is escaped; the page has no script,
//! and its content policy forbids every request.
//!
//! ```
//! use coptidice_report::page::{Report, Section};
//! let html = Report::new("Training report", "COptiDICE on logs.csv")
//!     .key_figure("transitions", "200,000", "200 episodes")
//!     .section(Section::new("Remarks").paragraph("Nothing <unusual>."))
//!     .html()?;
//! assert!(html.contains("Nothing &lt;unusual&gt;."));
//! # Ok::<(), coptidice_report::page::ReportError>(())
//! ```

mod curves;
mod data;
mod evaluation;
mod reproduce;
mod section;
mod training;
mod verdict;
mod weights;

pub use curves::{Curve, Curves};
pub use data::{ActionSummary, CostSummary, DataSummary};
pub use evaluation::{EvaluatedCost, Evaluation, EvaluationRow};
pub use reproduce::{Problem, Problems, Reproduce};
pub use section::{Block, Card, Section};
pub use verdict::{CostReading, Evidence, LimitReading, Standing, Verdict};
pub use weights::{WeightSummary, effective_sample_size};

use crate::svg::{escape, style_sheet};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior, Value, context};
use std::io;
use std::path::{Path, PathBuf};

/// A report that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file system refused.
    #[error("{}: cannot write the report: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The page's own template is at fault: a defect of this library.
    #[error("the report's template failed; this is a defect, please report it")]
    Template(#[from] minijinja::Error),
}

/// A page in the making.
#[derive(Clone, Debug)]
pub struct Report {
    kind: String,
    title: String,
    subtitle: String,
    verdict: Option<Verdict>,
    key_figures: Vec<Card>,
    sections: Vec<Section>,
    footer: String,
}

impl Report {
    /// A page of a `kind` ("Training report") about `title`.
    #[must_use]
    pub fn new(kind: impl Into<String>, title: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            title: title.into(),
            subtitle: String::new(),
            verdict: None,
            key_figures: Vec::new(),
            sections: Vec::new(),
            footer: String::new(),
        }
    }

    /// A line below the title.
    #[must_use]
    pub fn subtitle(mut self, text: impl Into<String>) -> Self {
        self.subtitle = text.into();
        self
    }

    /// What the reader came for: does it keep its limits?
    #[must_use]
    pub fn verdict(mut self, verdict: Verdict) -> Self {
        self.verdict = Some(verdict);
        self
    }

    /// One of the figures shown right below the verdict; `note` may be empty.
    #[must_use]
    pub fn key_figure(
        mut self,
        label: impl Into<String>,
        value: impl Into<String>,
        note: impl Into<String>,
    ) -> Self {
        self.key_figures.push(Card::new(label, value, note));
        self
    }

    /// Adds a section; one without content is left out.
    #[must_use]
    pub fn section(mut self, section: impl Into<Section>) -> Self {
        let section = section.into();
        if !section.is_empty() {
            self.sections.push(section);
        }
        self
    }

    /// A line at the very end, such as the version that made the page.
    #[must_use]
    pub fn footer(mut self, text: impl Into<String>) -> Self {
        self.footer = text.into();
        self
    }

    /// The page.
    ///
    /// # Errors
    /// [`ReportError::Template`] only where this library is at fault.
    pub fn html(&self) -> Result<String, ReportError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_syntax(
            SyntaxConfig::builder()
                .trim_blocks(true)
                .lstrip_blocks(true)
                .keep_trailing_newline(true)
                .build()?,
        );
        // One escaping for figures and page: it also replaces characters that no document may hold.
        environment.set_formatter(|out, _state, value| {
            let text = value.to_string();
            out.write_str(&if value.is_safe() { text } else { escape(&text) }).map_err(minijinja::Error::from)
        });
        environment.add_template("report.html", include_str!("report.html"))?;
        let sections: Vec<Value> = section::anchors(&self.sections)
            .into_iter()
            .zip(&self.sections)
            .map(|(anchor, section)| context! { anchor, ..section.context() })
            .collect();
        let page = environment.get_template("report.html")?.render(context! {
            kind => self.kind.as_str(),
            title => self.title.as_str(),
            subtitle => self.subtitle.as_str(),
            footer => self.footer.as_str(),
            verdict => self.verdict.as_ref().map(Verdict::context),
            key_figures => self.key_figures.iter().map(Card::context).collect::<Vec<_>>(),
            sections,
            style => Value::from_safe_string(include_str!("style.css").to_owned()),
            figure_style => Value::from_safe_string(style_sheet()),
        })?;
        Ok(page)
    }

    /// Writes the page to `path`, whole or not at all.
    ///
    /// # Errors
    /// [`ReportError::Io`] where the file system refuses.
    pub fn write(&self, path: &Path) -> Result<(), ReportError> {
        let html = self.html()?;
        crate::files::write_whole(path, html.as_bytes())
            .map_err(|source| ReportError::Io { path: path.to_owned(), source })
    }
}
