//! Columns whose values name members of a finite set.

use std::collections::HashMap;

use super::Cell;

/// More different labels than this is no finite set of actions or states but a measurement.
pub(crate) const MAX_LABELS: usize = 1 << 20;

/// Collects the labels of a column: whole numbers, or words.
#[derive(Debug, Default)]
pub(crate) struct LabelColumn {
    kind: Option<Kind>,
    /// Provisional ids in the order of first appearance, one a row.
    ids: Vec<u32>,
    numbers: Vec<i64>,
    number_ids: HashMap<i64, u32>,
    words: Vec<String>,
    word_ids: HashMap<String, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Numbers,
    Words,
}

/// Dense ids, and what the source called them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Labels {
    /// `[N]`, in `0..labels.len()`.
    pub(crate) ids: Vec<u32>,
    /// Ascending: by value for numbers, by letters for words.
    pub(crate) labels: Vec<String>,
}

impl Labels {
    /// Whether the labels are 0, 1, 2, … themselves.
    pub(crate) fn are_their_ids(&self) -> bool {
        self.labels.iter().enumerate().all(|(id, label)| *label == id.to_string())
    }
}

impl LabelColumn {
    /// Appends the label of one row. A number with a fraction is refused; so are numbers among words, words among
    /// numbers, empty cells, and more than [`MAX_LABELS`] labels: the result says what was expected then.
    /// `integral_floats` admits `3.0` as 3.
    pub(crate) fn push(&mut self, cell: Cell<'_>, integral_floats: bool) -> Result<(), &'static str> {
        let number = match cell {
            Cell::Int(value) => Some(value),
            Cell::Bool(value) => Some(i64::from(value)),
            // Whole numbers below 2^53 are exact in f64.
            Cell::Float(value) if integral_floats && value.fract() == 0.0 && value.abs() < 9e15 => {
                Some(value as i64)
            }
            _ => None,
        };
        match (cell, number) {
            (_, Some(number)) => self.push_number(number),
            (Cell::Text(word), None) => self.push_word(word),
            _ => Err("a whole number or a label"),
        }
    }

    fn push_number(&mut self, number: i64) -> Result<(), &'static str> {
        if self.kind.replace(Kind::Numbers) == Some(Kind::Words) {
            return Err("a label, as in the rows before");
        }
        if let Some(&id) = self.ids.last().filter(|&&id| self.numbers[id as usize] == number) {
            self.ids.push(id);
            return Ok(());
        }
        let next = self.numbers.len();
        let id = *self.number_ids.entry(number).or_insert(next as u32);
        if id as usize == next {
            self.numbers.push(number);
        }
        self.ids.push(id);
        if next > MAX_LABELS { Err("one of at most 1048576 different whole numbers") } else { Ok(()) }
    }

    fn push_word(&mut self, word: &str) -> Result<(), &'static str> {
        if self.kind.replace(Kind::Words) == Some(Kind::Numbers) {
            return Err("a whole number, as in the rows before");
        }
        let id = match self.word_ids.get(word) {
            Some(&id) => id,
            None => {
                let id = self.words.len() as u32;
                self.words.push(word.to_owned());
                self.word_ids.insert(word.to_owned(), id);
                id
            }
        };
        self.ids.push(id);
        if self.words.len() > MAX_LABELS { Err("one of at most 1048576 different labels") } else { Ok(()) }
    }

    /// Whether two rows carry one label.
    pub(crate) fn same(&self, a: usize, b: usize) -> bool {
        self.ids[a] == self.ids[b]
    }

    /// Keeps only `rows`, in that order.
    pub(crate) fn take_rows(&mut self, rows: &[u32]) {
        self.ids = rows.iter().map(|&row| self.ids[row as usize]).collect();
    }

    /// Ids in the ascending order of their labels.
    pub(crate) fn finish(self) -> Labels {
        match self.kind {
            Some(Kind::Words) => ascending(self.ids, &self.words),
            Some(Kind::Numbers) | None => ascending(self.ids, &self.numbers),
        }
    }
}

/// Renumbers `ids`, positions in `labels`, by the order of the labels.
fn ascending<T: Ord + ToString>(mut ids: Vec<u32>, labels: &[T]) -> Labels {
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by(|&a, &b| labels[a].cmp(&labels[b]));
    let mut rank = vec![0_u32; labels.len()];
    for (position, &label) in order.iter().enumerate() {
        rank[label] = position as u32;
    }
    for id in &mut ids {
        *id = rank[*id as usize];
    }
    Labels { ids, labels: order.iter().map(|&label| labels[label].to_string()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(cells: &[Cell<'_>], integral_floats: bool) -> Result<Labels, &'static str> {
        let mut column = LabelColumn::default();
        for &cell in cells {
            column.push(cell, integral_floats)?;
        }
        Ok(column.finish())
    }

    #[test]
    fn numbers_are_ranked_by_value_and_words_by_letters() {
        let numbers = collect(&[Cell::Int(10), Cell::Int(-1), Cell::Int(2), Cell::Int(10)], false).unwrap();
        assert_eq!(numbers.labels, ["-1", "2", "10"]);
        assert_eq!(numbers.ids, [2, 0, 1, 2]);
        assert!(!numbers.are_their_ids());
        let words = collect(&[Cell::Text("wait"), Cell::Text("act")], false).unwrap();
        assert_eq!((words.ids, words.labels), (vec![1, 0], vec!["act".to_owned(), "wait".to_owned()]));
        assert!(collect(&[Cell::Int(1), Cell::Int(0)], false).unwrap().are_their_ids());
    }

    #[test]
    fn mixtures_and_fractions_are_refused() {
        assert!(collect(&[Cell::Int(1), Cell::Text("act")], false).is_err());
        assert!(collect(&[Cell::Text("act"), Cell::Int(1)], false).is_err());
        assert!(collect(&[Cell::Float(2.0)], false).is_err());
        assert!(collect(&[Cell::Float(2.0)], true).is_ok());
        assert!(collect(&[Cell::Float(2.5)], true).is_err());
        assert!(collect(&[Cell::Null], true).is_err());
    }
}
