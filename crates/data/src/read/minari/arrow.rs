//! Episodes that are folders of Arrow or Parquet files.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;

use super::episode::{Actions, RawEpisode, json_costs, natural, side_by_side};
use crate::error::DataError;
use crate::table::{Cell, CellColumn, parquet_batches, parquet_builder};

/// Reads the Arrow or Parquet files of one episode.
pub(super) fn episode(directory: &Path, cost_keys: &[String]) -> Result<RawEpisode, DataError> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|e| DataError::io(directory, "list", e))? {
        let path = entry.map_err(|e| DataError::io(directory, "list", e))?.path();
        if path.extension().is_some_and(|e| ["arrow", "feather", "parquet"].iter().any(|known| e == *known)) {
            files.push(path);
        }
    }
    files.sort();
    let mut batches = Vec::new();
    for file in &files {
        batches.extend(batches_of(file)?);
    }
    let Some(first) = batches.first() else {
        return Err(DataError::Empty { path: directory.to_owned() });
    };
    let table = arrow_select::concat::concat_batches(&first.schema(), &batches)
        .map_err(|e| DataError::malformed(directory, "Arrow", e))?;
    let column = |name: &'static str| {
        table.column_by_name(name).ok_or_else(|| DataError::MissingColumn {
            path: directory.to_owned(),
            column: name.to_owned(),
            role: name,
            available: table.schema().fields().iter().map(|field| field.name().clone()).collect(),
            remedy: "Write the episode again",
        })
    };
    // Every column is padded to the number of observations; what stands in the last row belongs to no step.
    let steps = table.num_rows().saturating_sub(1);
    let floats = |name: &'static str, rows: usize| {
        let array = column(name)?.slice(0, rows);
        let mut parts = Vec::new();
        leaves(directory, name, &array, &mut parts)?;
        side_by_side(directory, parts)
    };
    let (observations, observation_rows) = floats("observations", table.num_rows())?;
    let action_array = column("actions")?.slice(0, steps);
    let actions = if action_array.data_type().is_integer() {
        let cells = CellColumn::new(&action_array).expect("integers have a plain reading");
        let whole = (0..steps).map(|row| match cells.cell(row) {
            Cell::Int(value) => Ok(value),
            cell => Err(DataError::Cell {
                path: directory.to_owned(),
                column: "actions".to_owned(),
                row,
                value: cell.to_string(),
                expected: "a whole number",
            }),
        });
        Actions::Whole(whole.collect::<Result<_, _>>()?)
    } else {
        let (values, rows) = floats("actions", steps)?;
        let width = values.len() / rows.max(1);
        Actions::Real { values, width }
    };
    let flags = |name: &'static str| -> Result<Vec<u8>, DataError> {
        Ok(floats(name, steps)?.0.into_iter().map(|value| u8::from(value != 0.0)).collect())
    };
    let name = directory.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok(RawEpisode {
        name,
        observations,
        observation_rows,
        actions,
        rewards: floats("rewards", steps)?.0,
        terminations: flags("terminations")?,
        truncations: flags("truncations")?,
        costs: match table.column_by_name("infos") {
            Some(infos) => arrow_costs(directory, infos, cost_keys)?,
            None => Vec::new(),
        },
    })
}

fn batches_of(path: &Path) -> Result<Vec<RecordBatch>, DataError> {
    let open = || File::open(path).map_err(|e| DataError::io(path, "open", e));
    let mut magic = [0_u8; 6];
    let length = open()?.read(&mut magic).map_err(|e| DataError::io(path, "read", e))?;
    let failure = |format: &'static str, e: &dyn std::fmt::Display| DataError::malformed(path, format, e);
    match &magic[..length] {
        m if m.starts_with(b"PAR1") => {
            let reader = parquet_builder(path)?.build().map_err(|e| failure("Parquet", &e))?;
            parquet_batches(path, reader).collect()
        }
        m if m.starts_with(b"ARROW1") => {
            let reader =
                arrow_ipc::reader::FileReader::try_new(open()?, None).map_err(|e| failure("Arrow", &e))?;
            reader.collect::<Result<_, _>>().map_err(|e| failure("Arrow", &e))
        }
        _ => Err(DataError::UnknownFormat {
            path: path.to_owned(),
            detail: "an episode that is neither an Arrow nor a Parquet file".to_owned(),
        }),
    }
}

/// The numeric leaves of an array with their rows.
fn leaves(
    path: &Path,
    name: &str,
    array: &ArrayRef,
    parts: &mut Vec<(String, Vec<f32>, usize)>,
) -> Result<(), DataError> {
    let wrong = |found: &DataType| DataError::ColumnType {
        path: path.to_owned(),
        column: name.to_owned(),
        found: found.to_string(),
        expected: "numbers, lists of one length, or structures of these",
    };
    let push = |parts: &mut Vec<(String, Vec<f32>, usize)>, values: &ArrayRef| {
        let cells = CellColumn::new(values).ok_or_else(|| wrong(values.data_type()))?;
        let numbers = (0..values.len()).map(|i| cells.cell(i).number().map(|number| number as f32));
        let numbers = numbers.collect::<Option<Vec<f32>>>().ok_or_else(|| wrong(values.data_type()))?;
        parts.push((name.to_owned(), numbers, array.len()));
        Ok(())
    };
    match array.data_type() {
        DataType::Struct(_) => {
            let structure = array.as_struct();
            let mut fields: Vec<(&str, &ArrayRef)> =
                structure.column_names().into_iter().zip(structure.columns()).collect();
            fields.sort_by_key(|(name, _)| natural(name));
            fields
                .iter()
                .try_for_each(|(child, values)| leaves(path, &format!("{name}/{child}"), values, parts))
        }
        DataType::FixedSizeList(_, width) => {
            let list = array.as_fixed_size_list();
            let start = list.value_offset_at(0);
            push(parts, &list.values().slice(start, list.len() * *width as usize))
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            let width = if list.is_empty() { 0 } else { list.value_length(0) };
            if offsets.windows(2).any(|pair| pair[1] - pair[0] != width) {
                return Err(wrong(array.data_type()));
            }
            push(parts, &list.values().slice(offsets[0] as usize, list.len() * width as usize))
        }
        _ => push(parts, array),
    }
}

/// The costs out of `infos`: fields of a structure, or JSON texts.
fn arrow_costs(directory: &Path, infos: &ArrayRef, keys: &[String]) -> Result<Vec<Vec<f32>>, DataError> {
    match infos.data_type() {
        DataType::Struct(_) => {
            let structure = infos.as_struct();
            let columns: Option<Vec<&ArrayRef>> =
                keys.iter().map(|key| structure.column_by_name(key)).collect();
            let Some(columns) = columns else { return Ok(Vec::new()) };
            columns
                .into_iter()
                .map(|array| {
                    let mut parts = Vec::new();
                    leaves(directory, "infos/cost", array, &mut parts)?;
                    Ok(side_by_side(directory, parts)?.0)
                })
                .collect()
        }
        DataType::Binary | DataType::LargeBinary => Ok(Vec::new()),
        _ => {
            let Some(cells) = CellColumn::new(infos) else { return Ok(Vec::new()) };
            let texts: Vec<String> = (0..infos.len()).map(|row| cells.cell(row).to_string()).collect();
            json_costs(directory, "infos", &texts, keys)
        }
    }
}
