//! Small tables that read the same on a page and in a terminal.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};

/// How something stands. Shown as a symbol and a colour, never by colour alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// Nothing to judge.
    #[default]
    Neutral,
    /// As it should be.
    Good,
    /// Look at this.
    Warning,
    /// Not as it should be.
    Bad,
}

impl Status {
    /// The symbol put before a text.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Status::Neutral => "",
            Status::Good => "✓",
            Status::Warning => "!",
            Status::Bad => "✗",
        }
    }

    pub(crate) fn class(self) -> &'static str {
        match self {
            Status::Neutral => "neutral",
            Status::Good => "good",
            Status::Warning => "warning",
            Status::Bad => "bad",
        }
    }
}

/// A table's cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    pub(crate) text: String,
    pub(crate) status: Status,
}

impl Cell {
    /// A cell whose text is marked as good, bad, or to be looked at.
    #[must_use]
    pub fn with_status(text: impl Into<String>, status: Status) -> Self {
        Self { text: text.into(), status }
    }

    fn plain(&self) -> String {
        let text = printable(&self.text);
        match self.status.symbol() {
            "" => text,
            symbol => format!("{symbol} {text}"),
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), status: Status::Neutral }
    }
}

/// A column's heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub(crate) title: String,
    pub(crate) numeric: bool,
}

impl Column {
    /// A column of text, flush left.
    #[must_use]
    pub fn text(title: impl Into<String>) -> Self {
        Self { title: title.into(), numeric: false }
    }

    /// A column of numbers, flush right.
    #[must_use]
    pub fn numeric(title: impl Into<String>) -> Self {
        Self { title: title.into(), numeric: true }
    }
}

/// A table.
///
/// ```
/// use coptidice_report::table::{Cell, Column, Status, Table};
/// let table = Table::new([Column::text("policy"), Column::numeric("return"), Column::text("limit")])
///     .row(["bc".into(), "120.4".into(), Cell::with_status("exceeded", Status::Bad)])
///     .row(["coptidice".into(), "98.0".into(), Cell::with_status("kept", Status::Good)]);
/// assert_eq!(
///     table.to_text(None),
///     "policy     return  limit\n\
///      ──────────────────────────────\n\
///      bc          120.4  ✗ exceeded\n\
///      coptidice    98.0  ✓ kept\n"
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
    pub(crate) note: String,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), ..Self::default() }
    }

    /// Adds a row; missing cells stay empty, cells beyond the last column are dropped.
    #[must_use]
    pub fn row(mut self, cells: impl IntoIterator<Item = Cell>) -> Self {
        self.push(cells);
        self
    }

    /// Adds a row in place, as [`Table::row`].
    pub fn push(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut row: Vec<Cell> = cells.into_iter().take(self.columns.len()).collect();
        row.resize(self.columns.len(), Cell::default());
        self.rows.push(row);
    }

    /// Adds a remark below the table.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table for a terminal; cells are wrapped where it would exceed `width` columns.
    ///
    /// Control characters are replaced, so that no name from a file can drive the terminal.
    #[must_use]
    pub fn to_text(&self, width: Option<u16>) -> String {
        let mut out = comfy_table::Table::new();
        out.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
        out.set_header(self.columns.iter().map(|c| printable(&c.title)));
        for row in &self.rows {
            out.add_row(row.iter().map(Cell::plain));
        }
        for (i, column) in self.columns.iter().enumerate() {
            if let Some(c) = out.column_mut(i) {
                c.set_padding((0, 1));
                if column.numeric {
                    c.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        if let Some(width) = width {
            out.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        let mut text: String = out.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        if !self.note.is_empty() {
            text.push_str(&printable(&self.note));
            text.push('\n');
        }
        text
    }
}

/// `text` without characters that would steer a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_drive_the_terminal() {
        let text = Table::new([Column::text("column")]).row(["\u{1b}[2Jx\r\ny".into()]).to_text(None);
        assert!(!text.contains('\u{1b}') && !text.contains('\r'));
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn rows_fit_the_columns() {
        let table = Table::new([Column::text("a"), Column::text("b")]).row(["1".into()]).row([
            "1".into(),
            "2".into(),
            "3".into(),
        ]);
        assert!(table.rows.iter().all(|r| r.len() == 2));
    }

    #[test]
    fn narrow_terminals_wrap() {
        let table = Table::new([Column::text("message")]).row(["a rather long message that wraps".into()]);
        assert!(table.to_text(Some(20)).lines().all(|l| l.chars().count() <= 20));
    }
}
