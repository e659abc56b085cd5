//! A configuration file with single settings on top.

use std::path::Path;

use coptidice_agents::RawConfig;
use toml::{Table, Value};

use crate::failure::Failure;

/// Reads a configuration of training on a log from [`read_table`].
pub(crate) fn read(file: Option<&Path>, settings: &[String]) -> Result<RawConfig, Failure> {
    from_table(read_table(file, settings)?)
}

/// Reads the file, if any, and lays each `KEY=VALUE` over it.
pub(crate) fn read_table(file: Option<&Path>, settings: &[String]) -> Result<Table, Failure> {
    let mut table = match file {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failure::usage(format!("{}: {error}", path.display()), "give a configuration file in TOML")
            })?;
            text.parse::<Table>().map_err(|error| {
                Failure::usage(format!("{}: {error}", path.display()), "the file must be TOML")
            })?
        }
        None => Table::new(),
    };
    for setting in settings {
        let (key, value) = setting.split_once('=').ok_or_else(|| {
            Failure::usage(format!("--set {setting}: no '='"), "write it as --set KEY=VALUE")
        })?;
        let value = value.trim();
        let parsed = parse(value);
        let whole = value.strip_prefix(['-', '+']).unwrap_or(value);
        if parsed.is_str() && !whole.is_empty() && whole.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
            return Err(Failure::usage(
                format!("--set {setting}: no setting takes this number"),
                "give a number between -2^63 and 2^63 - 1, without leading zeros",
            ));
        }
        place(&mut table, key.trim(), parsed)?;
    }
    Ok(table)
}

/// Lays one table over another: tables inside are laid over each other in turn, all else is replaced.
pub(crate) fn lay_over(table: &mut Table, over: Table) {
    for (key, value) in over {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(value)) => lay_over(inner, value),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

/// A configuration from a TOML table.
pub(crate) fn from_table(table: Table) -> Result<RawConfig, Failure> {
    let text = toml::to_string(&table).map_err(|error| Failure::work(&error))?;
    RawConfig::from_toml(&text).map_err(|error| Failure::input(&error))
}

/// A TOML value; what is none is a string, so that names need no quotes on a command line.
fn parse(text: &str) -> Value {
    format!("value = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Sets a dotted key.
fn place(table: &mut Table, key: &str, value: Value) -> Result<(), Failure> {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
            Ok(())
        }
        Some((head, rest)) => {
            let inner = table.entry(head).or_insert_with(|| Value::Table(Table::new()));
            match inner {
                Value::Table(inner) => place(inner, rest, value),
                _ => Err(Failure::usage(
                    format!("--set {key}: {head} is a single value"),
                    "leave out what follows the dot",
                )),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_lie_over_each_other_and_keep_their_types() {
        let settings: Vec<String> =
            ["alpha=0.5", "divergence=kl", "networks.mixture_components=1", "alpha=0.25"]
                .map(String::from)
                .into();
        let Ok(raw) = read(None, &settings) else { panic!("these settings are right") };
        assert_eq!(raw.alpha, Some(0.25));
        assert_eq!(raw.divergence, Some(coptidice_core::Divergence::Kl));
        assert_eq!(raw.networks.unwrap().mixture_components, Some(1));
    }

    #[test]
    fn tables_are_merged_key_by_key_and_lists_replaced() {
        let read = |text: &str| text.parse::<Table>().expect("TOML");
        let mut shared = read("alpha = 1.0\n[networks]\nmin_scale = 0.1\nvalue = [1, 2]\n");
        lay_over(&mut shared, read("[networks]\nmixture_components = 2\nvalue = [3]\n"));
        assert_eq!(
            shared,
            read("alpha = 1.0\n[networks]\nmin_scale = 0.1\nmixture_components = 2\nvalue = [3]\n")
        );
    }

    #[test]
    fn mistakes_are_refused() {
        for wrong in ["alpha", "alpa=1", "alpha=x", "steps.more=1", "batch_size=99999999999999999999"] {
            let settings = ["steps=5".to_owned(), wrong.to_owned()];
            assert!(read(None, &settings).is_err(), "{wrong}");
        }
    }
}
