//! Episodes that are groups of an HDF5 file.

use super::super::arrays::{ArraySource, Block, Element, read_f32, read_flags};
use super::super::hdf5::Hdf5Source;
use super::episode::{Actions, RawEpisode, json_costs, natural, side_by_side};
use crate::error::DataError;

/// Reads the group of one episode.
pub(super) fn episode(
    source: &Hdf5Source,
    group: &str,
    cost_keys: &[String],
) -> Result<RawEpisode, DataError> {
    let names = source.names_below(group)?;
    let leaves = |stem: &str| {
        let whole = format!("{group}/{stem}");
        let inside = format!("{whole}/");
        let mut leaves: Vec<&String> =
            names.iter().filter(|name| **name == whole || name.starts_with(&inside)).collect();
        leaves.sort_by_key(|name| natural(name));
        leaves
    };
    let required = |stem: &'static str| {
        let found = leaves(stem);
        if found.is_empty() {
            return Err(DataError::MissingColumn {
                path: source.path().to_owned(),
                column: format!("{group}/{stem}"),
                role: stem,
                available: names.clone(),
                remedy: "Write the episode again",
            });
        }
        Ok(found)
    };
    let matrix = |leaves: Vec<&String>| {
        let parts = leaves
            .into_iter()
            .map(|name| Ok((name.clone(), read_f32(source, name)?.values, source.info(name)?.rows())))
            .collect::<Result<Vec<_>, DataError>>()?;
        side_by_side(source.path(), parts)
    };
    let (observations, observation_rows) = matrix(required("observations")?)?;
    let action_leaves = required("actions")?;
    let whole = match action_leaves[..] {
        [name] => source.info(name).map(|info| info.element != Element::Float && info.width() == 1)?,
        _ => false,
    };
    let actions = if whole {
        let mut values = Vec::new();
        source.for_each_block(action_leaves[0], &mut |block| {
            if let Block::Int(block) = block {
                values.extend_from_slice(block);
            }
            Ok(())
        })?;
        Actions::Whole(values)
    } else {
        let (values, rows) = matrix(action_leaves)?;
        let width = values.len() / rows.max(1);
        Actions::Real { values, width }
    };
    let flags = |stem: &'static str| read_flags(source, required(stem)?[0]);
    let costs = match leaves("infos")[..] {
        // A list of JSON texts, one for each step.
        [name] if name.ends_with("/infos") => {
            json_costs(source.path(), name, &source.strings(name)?, cost_keys)?
        }
        _ => {
            let columns = cost_keys.iter().map(|key| format!("{group}/infos/{key}"));
            let found: Vec<String> = columns.filter(|name| names.contains(name)).collect();
            let complete = found.len() == cost_keys.len();
            let read = |name: &String| read_f32(source, name).map(|floats| floats.values);
            if complete { found.iter().map(read).collect::<Result<_, _>>()? } else { Vec::new() }
        }
    };
    Ok(RawEpisode {
        name: group.to_owned(),
        observations,
        observation_rows,
        actions,
        rewards: read_f32(source, required("rewards")?[0])?.values,
        terminations: flags("terminations")?,
        truncations: flags("truncations")?,
        costs,
    })
}
