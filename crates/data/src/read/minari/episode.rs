//! One episode, and what both layouts need to read one.

use std::path::Path;

use crate::error::DataError;

/// One episode as its source holds it.
pub(super) struct RawEpisode {
    pub(super) name: String,
    /// `[rows, dim]`.
    pub(super) observations: Vec<f32>,
    pub(super) observation_rows: usize,
    /// `[T, width]`.
    pub(super) actions: Actions,
    pub(super) rewards: Vec<f32>,
    pub(super) terminations: Vec<u8>,
    pub(super) truncations: Vec<u8>,
    /// One column for each cost, `T` or `T + 1` rows.
    pub(super) costs: Vec<Vec<f32>>,
}

/// `[T, width]`.
pub(super) enum Actions {
    Whole(Vec<i64>),
    Real { values: Vec<f32>, width: usize },
}

impl Actions {
    /// Number of actions, `T`.
    pub(super) fn rows(&self) -> usize {
        match self {
            Actions::Whole(values) => values.len(),
            Actions::Real { values, width } => values.len() / width.max(&1),
        }
    }
}

/// Order of the leaves of a dictionary or tuple: by name, numbers in names by value.
pub(super) fn natural(name: &str) -> Vec<(u64, String)> {
    let part = |part: &str| match part.strip_prefix("_index_").unwrap_or(part).parse::<u64>() {
        Ok(number) => (number, String::new()),
        Err(_) => (u64::MAX, part.to_owned()),
    };
    name.split('/').map(part).collect()
}

/// The arrays side by side, `[rows, width]`, and the number of rows.
pub(super) fn side_by_side(
    path: &Path,
    parts: Vec<(String, Vec<f32>, usize)>,
) -> Result<(Vec<f32>, usize), DataError> {
    let rows = parts.first().map_or(0, |(_, _, rows)| *rows);
    for (name, _, found) in &parts {
        if *found != rows {
            return Err(DataError::ColumnLength {
                path: path.to_owned(),
                column: name.clone(),
                found: *found,
                expected: rows,
                reference: parts[0].0.clone(),
            });
        }
    }
    if let [(_, values, _)] = &parts[..] {
        return Ok((values.clone(), rows));
    }
    let mut matrix = Vec::new();
    for row in 0..rows {
        for (_, values, rows) in &parts {
            let width = values.len() / rows.max(&1);
            matrix.extend_from_slice(&values[row * width..(row + 1) * width]);
        }
    }
    Ok((matrix, rows))
}

/// The costs out of one JSON object for each step; none where the keys are missing. The first object may be that of
/// the reset and lack them.
pub(super) fn json_costs(
    path: &Path,
    column: &str,
    texts: &[String],
    keys: &[String],
) -> Result<Vec<Vec<f32>>, DataError> {
    let mut columns = vec![Vec::with_capacity(texts.len()); keys.len()];
    for (row, text) in texts.iter().enumerate() {
        let bad = |value: String, expected: &'static str| DataError::Cell {
            path: path.to_owned(),
            column: column.to_owned(),
            row,
            value: value.chars().take(60).collect(),
            expected,
        };
        let object: serde_json::Value =
            serde_json::from_str(text).map_err(|_| bad(text.clone(), "a JSON object"))?;
        for (key, values) in keys.iter().zip(&mut columns) {
            match object.get(key).map(|value| (value.as_f64().or_else(|| value.as_bool().map(f64_of)), value))
            {
                Some((Some(value), _)) => values.push(value as f32),
                Some((None, value)) => return Err(bad(value.to_string(), "a number as cost")),
                None if row == 0 => values.push(0.0),
                None if values.iter().all(|&value| value == 0.0) && row == 1 => return Ok(Vec::new()),
                None => return Err(bad(text.clone(), "an object with the cost, as in the steps before")),
            }
        }
    }
    Ok(columns)
}

fn f64_of(flag: bool) -> f64 {
    f64::from(u8::from(flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_ordered_by_number_then_name() {
        let mut names = ["o/_index_10", "o/b", "o/_index_2", "o/a"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["o/_index_2", "o/_index_10", "o/a", "o/b"]);
    }

    #[test]
    fn costs_of_json_infos() {
        let costs = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
            json_costs(Path::new("x"), "infos", &texts, &["cost".to_owned()])
        };
        assert_eq!(costs(&["{}", r#"{"cost":1}"#, r#"{"cost":true}"#]).unwrap(), [vec![0.0, 1.0, 1.0]]);
        assert!(costs(&["{}", "{}", "{}"]).unwrap().is_empty());
        assert!(costs(&[r#"{"cost":1}"#, "{}"]).is_err(), "a cost that stops");
        assert!(costs(&[r#"{"cost":"x"}"#]).is_err() && costs(&["{"]).is_err());
    }
}
