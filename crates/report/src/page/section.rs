//! Sections and the blocks they are made of.

use crate::svg::{Chart, Figure};
use crate::table::{Status, Table};
use minijinja::{Value, context};

/// A number with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    label: String,
    value: String,
    note: String,
}

impl Card {
    /// A card; `note` may be empty.
    #[must_use]
    pub fn new(label: impl Into<String>, value: impl Into<String>, note: impl Into<String>) -> Self {
        Self { label: label.into(), value: value.into(), note: note.into() }
    }

    pub(super) fn context(&self) -> Value {
        context! { label => self.label.as_str(), value => self.value.as_str(), note => self.note.as_str() }
    }
}

/// A piece of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// Running text.
    Paragraph(String),
    /// Figures side by side where there is room.
    Figures(Vec<Figure>),
    /// A figure over the whole width, which scrolls sideways on a small screen.
    Wide(Figure),
    /// A table.
    Table(Table),
    /// Numbers with their names.
    Cards(Vec<Card>),
    /// Text as it was typed, with a heading of its own.
    Code {
        /// What it is.
        caption: String,
        /// The text.
        text: String,
    },
    /// A remark that stands out.
    Callout {
        /// How serious it is.
        status: Status,
        /// The remark.
        text: String,
    },
}

/// A titled part of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    title: String,
    blocks: Vec<Block>,
}

impl Section {
    /// A section without content.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), blocks: Vec::new() }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds a block.
    #[must_use]
    pub fn block(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }

    /// Adds running text.
    #[must_use]
    pub fn paragraph(self, text: impl Into<String>) -> Self {
        self.block(Block::Paragraph(text.into()))
    }

    /// Adds a chart beside the ones added just before.
    #[must_use]
    pub fn chart(self, chart: &impl Chart) -> Self {
        self.figure(chart.figure())
    }

    /// Adds a figure beside the ones added just before.
    #[must_use]
    pub fn figure(mut self, figure: Figure) -> Self {
        match self.blocks.last_mut() {
            Some(Block::Figures(figures)) => figures.push(figure),
            _ => self.blocks.push(Block::Figures(vec![figure])),
        }
        self
    }

    /// Adds a figure over the whole width.
    #[must_use]
    pub fn wide(self, chart: &impl Chart) -> Self {
        self.block(Block::Wide(chart.figure()))
    }

    /// Adds a table.
    #[must_use]
    pub fn table(self, table: Table) -> Self {
        self.block(Block::Table(table))
    }

    /// Adds numbers with their names.
    #[must_use]
    pub fn cards(self, cards: impl IntoIterator<Item = Card>) -> Self {
        self.block(Block::Cards(cards.into_iter().collect()))
    }

    /// Adds text as it was typed.
    #[must_use]
    pub fn code(self, caption: impl Into<String>, text: impl Into<String>) -> Self {
        self.block(Block::Code { caption: caption.into(), text: text.into() })
    }

    /// Adds a remark that stands out.
    #[must_use]
    pub fn callout(self, status: Status, text: impl Into<String>) -> Self {
        self.block(Block::Callout { status, text: text.into() })
    }

    pub(super) fn context(&self) -> Value {
        let blocks: Vec<Value> = self.blocks.iter().map(block_context).collect();
        context! { title => self.title.as_str(), blocks }
    }
}

fn block_context(block: &Block) -> Value {
    match block {
        Block::Paragraph(text) => context! { kind => "paragraph", text => text.as_str() },
        Block::Figures(figures) => {
            context! { kind => "figures", figures => figures.iter().map(figure_context).collect::<Vec<_>>() }
        }
        Block::Wide(figure) => context! { kind => "wide", ..figure_context(figure) },
        Block::Table(table) => context! { kind => "table", ..table_context(table) },
        Block::Cards(cards) => {
            context! { kind => "cards", cards => cards.iter().map(Card::context).collect::<Vec<_>>() }
        }
        Block::Code { caption, text } => {
            context! { kind => "code", caption => caption.as_str(), text => text.as_str() }
        }
        Block::Callout { status, text } => {
            context! { kind => "callout", status => status.class(), symbol => status.symbol(), text => text.as_str() }
        }
    }
}

pub(super) fn figure_context(figure: &Figure) -> Value {
    context! {
        svg => Value::from_safe_string(figure.inline()),
        caption => figure.title(),
        notes => figure.notes().to_vec(),
        width => figure.width() as u32,
    }
}

fn table_context(table: &Table) -> Value {
    let columns: Vec<Value> = table
        .columns
        .iter()
        .map(|c| context! { title => c.title.as_str(), class => if c.numeric { "number" } else { "text" } })
        .collect();
    let cell = |(column, cell): (&crate::table::Column, &crate::table::Cell)| {
        context! {
            text => cell.text.as_str(),
            class => if column.numeric { "number" } else { "text" },
            status => cell.status.class(),
            symbol => cell.status.symbol(),
        }
    };
    let rows: Vec<Vec<Value>> =
        table.rows.iter().map(|row| table.columns.iter().zip(row).map(cell).collect()).collect();
    context! { columns, rows, note => table.note.as_str() }
}

/// A name for each section to link to: its title in lower case, numbered where it would not be unique.
pub(super) fn anchors(sections: &[Section]) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for section in sections {
        let words: Vec<String> = section
            .title
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|w| !w.is_empty())
            .map(str::to_ascii_lowercase)
            .collect();
        let base = if words.is_empty() { "section".to_owned() } else { words.join("-") };
        let mut anchor = base.clone();
        let mut number = 2;
        while anchors.contains(&anchor) {
            anchor = format!("{base}-{number}");
            number += 1;
        }
        anchors.push(anchor);
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_unique() {
        let sections = ["Data", "Data", "λ", "Costs & limits"].map(Section::new);
        assert_eq!(anchors(&sections), ["data", "data-2", "section", "costs-limits"]);
    }
}
