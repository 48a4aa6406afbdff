//! The file of `deltaq apply`.

mod core_schema;
mod toml;
mod yaml;

use std::io::{self, Read as _};
use std::path::Path;

use deltaq_types::name::Name;

use super::exact::{Exact, Members};
use super::plan::OWNER;
use crate::cli::client::failure::Failure;

/// Maximum size of a file in bytes.
const BYTES_MAX: u64 = 64 << 20;
/// The member of the file that has the queues.
const QUEUES: &str = "queues";
/// The member of the file that names its schema, for editors.
const SCHEMA: &str = "$schema";

/// The content of a file.
#[derive(Debug)]
pub(super) struct File {
    /// Who declares the queues.
    pub(super) owner: Option<Name>,
    /// The settings of queues, by name, in the order of the file.
    pub(super) queues: Vec<(Name, Members)>,
}

/// Reads a file, or stdin if it is `-`.
pub(super) fn read(file: &str) -> Result<File, Failure> {
    let name = if file == "-" { "stdin" } else { file };
    let wrong = |why: String| Failure::Other(format!("{name}: {why}"));
    let text = text_of(file).map_err(|source| Failure::Read { name: name.to_owned(), source })?;
    let text = text.ok_or_else(|| wrong(format!("it has more than {} MiB", BYTES_MAX >> 20)))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
    let document = match extension {
        Some("json") => Exact::parse(text),
        Some("toml") => toml::parse(text),
        _ => yaml::parse(text),
    };
    let document = document.map_err(|fault| wrong(fault.to_string()))?;
    File::of(document).map_err(wrong)
}

/// The text of a file; `None` if it is too long.
fn text_of(file: &str) -> io::Result<Option<String>> {
    let mut reader: Box<dyn io::Read> =
        if file == "-" { Box::new(io::stdin()) } else { Box::new(std::fs::File::open(file)?) };
    let mut text = String::new();
    let read = reader.by_ref().take(BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok((read as u64 <= BYTES_MAX).then_some(text))
}

impl File {
    fn of(document: Exact) -> Result<Self, String> {
        let Exact::Object(members) = document else { return Err("it has no member `queues`".to_owned()) };
        let (mut owner, mut queues) = (None, None);
        for (name, value) in members {
            match name.as_str() {
                OWNER => owner = owner_of(value)?,
                QUEUES => queues = Some(value),
                SCHEMA => {}
                _ => {
                    return Err(format!(
                        "unknown field `{name}`, expected one of `owner`, `queues`, `$schema`"
                    ));
                }
            }
        }
        let Exact::Object(queues) = queues.ok_or("missing field `queues`")? else {
            return Err("queues has no settings by the name of a queue".to_owned());
        };
        if queues.is_empty() {
            return Err("it names no queue".to_owned());
        }
        let queue = |(queue, settings): (String, Exact)| {
            let valid = Name::new(&queue).map_err(|error| format!("queue {queue:?}: {error}"))?;
            match settings {
                Exact::Object(settings) => Ok((valid, settings)),
                Exact::Null => Ok((valid, Members::default())),
                _ => Err(format!("queue {queue}: its settings are no object")),
            }
        };
        let queues = queues.into_iter().map(queue).collect::<Result<_, String>>()?;
        Ok(Self { owner, queues })
    }
}

fn owner_of(value: Exact) -> Result<Option<Name>, String> {
    match value {
        Exact::Null => Ok(None),
        Exact::Text(owner) => match Name::new(&owner) {
            Err(_) => Err(format!("owner {owner:?} breaks the rules of the name of a queue")),
            Ok(owner) => Ok(Some(owner)),
        },
        other => Err(format!("owner {other} is no name: write it in quotes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<File, String> {
        File::of(yaml::parse(text).map_err(|fault| fault.to_string())?)
    }

    #[test]
    fn a_file_has_an_owner_and_queues_in_their_order() {
        let file = parsed("owner: 1e5\n$schema: {x: 1}\nqueues: {b: {lease: 1m}, a: , no: {}}").unwrap();
        assert_eq!(file.owner.unwrap().as_str(), "1e5");
        let queues: Vec<String> = file
            .queues
            .into_iter()
            .map(|(name, settings)| format!("{name} {}", Exact::Object(settings)))
            .collect();
        assert_eq!(queues, [r#"b {"lease":"1m"}"#, "a {}", "no {}"]);
        let same = r#"{"owner":null,"queues":{"a":null}}"#;
        assert!(File::of(Exact::parse(same).unwrap()).unwrap().owner.is_none());
    }

    #[test]
    fn a_wrong_file_is_refused() {
        for (text, part) in [
            ("queues: {}\n", "it names no queue"),
            ("queues: {a: {}}\nsources: {}\n", "unknown field `sources`"),
            ("owner: a\n", "missing field `queues`"),
            ("queues:\n", "queues has no settings"),
            ("queues: {a: 5}\n", "queue a: its settings are no object"),
            ("queues: {'a b': {}}\n", "queue \"a b\""),
            ("owner: [a]\nqueues: {a: {}}\n", "owner [\"a\"] is no name"),
            ("owner: a b\nqueues: {a: {}}\n", "owner \"a b\" breaks the rules"),
            ("5", "it has no member `queues`"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let number = File::of(Exact::parse(r#"{"owner":5,"queues":{"a":{}}}"#).unwrap()).unwrap_err();
        assert!(number.contains("owner 5 is no name"), "{number}");
    }
}
