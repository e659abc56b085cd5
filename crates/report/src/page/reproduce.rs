//! What a reader needs to do it again, and what went wrong on the way.

use super::section::{Block, Section};
use crate::table::{Cell, Column, Status, Table};

/// How to make the same result again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reproduce {
    /// The exact command.
    pub command: String,
    /// The whole configuration, as text; left out where empty.
    pub config: String,
    /// Versions, seed, data fingerprint and the like, name and value each.
    pub facts: Vec<(String, String)>,
}

impl From<Reproduce> for Section {
    fn from(reproduce: Reproduce) -> Self {
        let mut section = Section::new("Reproduce").code("Command", reproduce.command);
        if !reproduce.facts.is_empty() {
            let mut table = Table::new([Column::text("what"), Column::text("value")]);
            for (name, value) in reproduce.facts {
                table.push([Cell::from(name), Cell::from(value)]);
            }
            section = section.table(table);
        }
        if !reproduce.config.is_empty() {
            section =
                section.block(Block::Code { caption: "Configuration".to_owned(), text: reproduce.config });
        }
        section
    }
}

/// Something about the input or the run that the reader should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How serious.
    pub status: Status,
    /// A short fixed name, for looking it up.
    pub code: String,
    /// Where: a column, a row, a step; may be empty.
    pub place: String,
    /// What it is and what to do.
    pub message: String,
}

/// A list of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// The list as a table, for the terminal too; `None` where there is nothing to say.
    #[must_use]
    pub fn table(&self) -> Option<Table> {
        if self.0.is_empty() {
            return None;
        }
        let columns = [Column::text("code"), Column::text("where"), Column::text("what")];
        let mut table = Table::new(columns);
        for p in &self.0 {
            table.push([
                Cell::with_status(p.code.as_str(), p.status),
                p.place.as_str().into(),
                p.message.as_str().into(),
            ]);
        }
        Some(table)
    }
}

impl From<Problems> for Section {
    fn from(problems: Problems) -> Self {
        match problems.table() {
            Some(table) => Section::new("Problems and warnings").table(table),
            None => Section::new("Problems and warnings").paragraph("None."),
        }
    }
}
