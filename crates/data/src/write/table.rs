//! Tables of named columns: CSV and Parquet.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float32Array, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::Selection;
use super::arrays::{notes, numeric};
use crate::columns::in_family;
use crate::error::DataError;
use crate::problem::some_of;
use crate::table::is_word;
use crate::transitions::{Actions, Transitions};

/// Rows of a batch.
const BLOCK_ROWS: usize = 8192;

/// A column of a table.
struct Column<'a> {
    name: String,
    values: Values<'a>,
}

enum Values<'a> {
    /// Number of the episode in the table.
    Episode,
    /// Number of the step in its episode.
    Step,
    Float(Box<dyn Fn(usize) -> f32 + 'a>),
    Whole(Box<dyn Fn(usize) -> i64 + 'a>),
    Text(Box<dyn Fn(usize) -> &'a str + 'a>),
    Flag(Box<dyn Fn(usize) -> bool + 'a>),
}

/// A column of floats.
fn float<'a>(name: String, value: impl Fn(usize) -> f32 + 'a) -> Column<'a> {
    Column { name, values: Values::Float(Box::new(value)) }
}

/// The columns under names that the reader finds by itself.
fn columns(log: &Transitions) -> Vec<Column<'_>> {
    let mut columns = vec![
        Column { name: "episode".into(), values: Values::Episode },
        Column { name: "step".into(), values: Values::Step },
    ];
    let dim = log.observation_dim();
    let states: Vec<String> = (0..dim)
        .map(|j| match log.observation_names().get(j) {
            Some(name) if ["observation", "state", "obs"].iter().any(|stem| in_family(name, stem)) => {
                name.clone()
            }
            Some(name) => format!("observation_{name}"),
            None => format!("observation_{j}"),
        })
        .collect();
    // One family only is found by itself.
    let one_family =
        ["observation", "state", "obs"].iter().any(|stem| states.iter().all(|name| in_family(name, stem)));
    let states = if one_family { states } else { (0..dim).map(|j| format!("observation_{j}")).collect() };
    for (j, name) in states.iter().enumerate() {
        columns.push(float(name.clone(), move |i| log.observation(i)[j]));
    }
    match log.actions() {
        Actions::Continuous { dim, .. } => {
            for j in 0..*dim {
                let name = match log.action_names().get(j) {
                    Some(name) if in_family(name, "action") => name.clone(),
                    Some(name) => format!("action_{name}"),
                    None if *dim == 1 => "action".to_owned(),
                    None => format!("action_{j}"),
                };
                columns.push(float(name, move |i| log.continuous_action(i)[j]));
            }
        }
        Actions::Discrete { ids, labels, .. } => {
            let values = match numeric(labels) {
                Some(numbers) => Values::Whole(Box::new(move |i| numbers[ids[i] as usize])),
                None => Values::Text(Box::new(move |i| labels[ids[i] as usize].as_str())),
            };
            columns.push(Column { name: "action".into(), values });
        }
    }
    columns.push(float("reward".into(), |i| log.reward(i)));
    for (k, name) in log.cost_names().iter().enumerate() {
        let name = if name == "cost" { name.clone() } else { format!("cost_{name}") };
        columns.push(float(name, move |i| log.costs(i)[k]));
    }
    for (j, name) in states.iter().enumerate() {
        columns.push(float(format!("next_{name}"), move |i| log.next_observation(i)[j]));
    }
    columns.push(Column { name: "terminal".into(), values: Values::Flag(Box::new(|i| log.terminal(i))) });
    columns.push(Column { name: "timeout".into(), values: Values::Flag(Box::new(|i| log.timeout(i))) });
    if log.propensities.is_some() {
        columns.push(float("propensity".into(), |i| log.propensity(i).unwrap_or(f32::NAN)));
    }
    columns
}

pub(crate) fn write_csv(selection: &Selection<'_>, path: &Path) -> Result<(), DataError> {
    refuse_other_numbering(selection, path)?;
    let columns = columns(selection.log);
    let file = File::create(path).map_err(|e| DataError::io(path, "create", e))?;
    let mut out = csv::Writer::from_writer(BufWriter::with_capacity(1 << 18, file));
    let failure =
        |e: csv::Error| DataError::Write { path: path.to_owned(), format: "CSV", detail: e.to_string() };
    out.write_record(columns.iter().map(|column| column.name.as_str())).map_err(failure)?;
    let mut field = Vec::new();
    for (number, episode) in selection.episodes.iter().enumerate() {
        for (step, row) in episode.rows().enumerate() {
            for column in &columns {
                field.clear();
                // The debug form of a float keeps its point: 20.0 must not come back as the id 20.
                let written = match &column.values {
                    Values::Episode => write!(field, "{number}"),
                    Values::Step => write!(field, "{step}"),
                    Values::Float(value) => write!(field, "{:?}", value(row)),
                    Values::Whole(value) => write!(field, "{}", value(row)),
                    Values::Text(value) => field.write_all(value(row).as_bytes()),
                    Values::Flag(value) => write!(field, "{}", u8::from(value(row))),
                };
                written.map_err(|e| DataError::io(path, "write", e))?;
                out.write_field(&field).map_err(failure)?;
            }
            out.write_record(None::<&[u8]>).map_err(failure)?;
        }
    }
    out.flush().map_err(|e| DataError::io(path, "write", e))
}

/// A CSV file has no place for the list of actions: a reader numbers those that it finds, integers by value and words
/// by letters. A log whose actions would get other numbers, or become numbers, is refused.
fn refuse_other_numbering(selection: &Selection<'_>, path: &Path) -> Result<(), DataError> {
    let Actions::Discrete { count, ids, labels } = selection.log.actions() else { return Ok(()) };
    let refusal = |what: String| {
        let remedy =
            "write .hdf5, .npz, .parquet or a directory of .npy columns, which keep the list of actions";
        Err(DataError::Write { path: path.to_owned(), format: "CSV", detail: format!("{what}; {remedy}") })
    };
    let mut used = vec![false; *count];
    for rows in selection.blocks(BLOCK_ROWS) {
        for row in rows {
            used[ids[row] as usize] = true;
        }
    }
    if let Some(id) = used.iter().position(|used| !used) {
        return refusal(format!(
            "action {:?} occurs in no row, and CSV cannot record that it exists",
            labels[id]
        ));
    }
    let ascending = match numeric(labels) {
        Some(numbers) => numbers.is_sorted(),
        None => {
            if let Some(label) = labels.iter().find(|label| !is_word(label)) {
                return refusal(format!("action {label:?} would not be read as a word"));
            }
            labels.is_sorted()
        }
    };
    if ascending {
        return Ok(());
    }
    refusal(format!("actions {} would be numbered in another order", some_of(labels)))
}

pub(crate) fn write_parquet(selection: &Selection<'_>, path: &Path) -> Result<(), DataError> {
    let failure = |e: &dyn std::fmt::Display| DataError::Write {
        path: path.to_owned(),
        format: "Parquet",
        detail: e.to_string(),
    };
    let columns = columns(selection.log);
    let fields: Vec<Field> = columns
        .iter()
        .map(|column| {
            let data_type = match column.values {
                Values::Episode | Values::Step => DataType::UInt64,
                Values::Float(_) => DataType::Float32,
                Values::Whole(_) => DataType::Int64,
                Values::Text(_) => DataType::Utf8,
                Values::Flag(_) => DataType::Boolean,
            };
            Field::new(&column.name, data_type, false)
        })
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let notes = notes(selection.log).into_iter().map(|(key, names)| {
        KeyValue::new(key.to_owned(), serde_json::to_string(names).expect("a list of strings is JSON"))
    });
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(1 << 17))
        .set_key_value_metadata(Some(notes.collect()))
        .build();
    let file = File::create(path).map_err(|e| DataError::io(path, "create", e))?;
    let mut writer = ArrowWriter::try_new(file, schema.clone(), Some(properties)).map_err(|e| failure(&e))?;
    let mut places = selection
        .episodes
        .iter()
        .enumerate()
        .flat_map(|(number, episode)| (0..episode.len).map(move |step| (number as u64, step as u64)));
    for rows in selection.blocks(BLOCK_ROWS) {
        let places: Vec<(u64, u64)> = places.by_ref().take(rows.len()).collect();
        let arrays: Vec<ArrayRef> = columns.iter().map(|column| batch(column, &rows, &places)).collect();
        let batch = RecordBatch::try_new(schema.clone(), arrays).map_err(|e| failure(&e))?;
        writer.write(&batch).map_err(|e| failure(&e))?;
    }
    writer.close().map_err(|e| failure(&e))?;
    Ok(())
}

fn batch(column: &Column<'_>, rows: &[usize], places: &[(u64, u64)]) -> ArrayRef {
    match &column.values {
        Values::Episode => Arc::new(places.iter().map(|place| place.0).collect::<UInt64Array>()),
        Values::Step => Arc::new(places.iter().map(|place| place.1).collect::<UInt64Array>()),
        Values::Float(value) => Arc::new(rows.iter().map(|&row| value(row)).collect::<Float32Array>()),
        Values::Whole(value) => Arc::new(rows.iter().map(|&row| value(row)).collect::<Int64Array>()),
        Values::Text(value) => Arc::new(StringArray::from_iter_values(rows.iter().map(|&row| value(row)))),
        Values::Flag(value) => Arc::new(rows.iter().map(|&row| Some(value(row))).collect::<BooleanArray>()),
    }
}
