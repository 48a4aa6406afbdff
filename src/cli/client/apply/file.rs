//! The file of `deltaq apply`.

use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;

use deltaq_types::name::Name;
use serde::de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use crate::cli::client::failure::Failure;

/// Maximum size of a file in bytes.
const BYTES_MAX: u64 = 64 << 20;
/// Maximum number of values in a YAML file, which is enough for 50,000 queues with all of their settings.
const NODES_MAX: usize = 4_000_000;
/// The name by which the crate toml marks a date.
const TOML_DATE: &str = "$__toml_private_datetime";

/// The content of a file.
#[derive(Debug)]
pub(super) struct File {
    /// Who declares the queues.
    pub(super) owner: Option<Name>,
    /// The settings of queues, by name, in the order of the file.
    pub(super) queues: Vec<(Name, Map<String, Value>)>,
}

/// The members of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    owner: Option<String>,
    queues: Document,
    /// For editors.
    #[serde(rename = "$schema")]
    _schema: Option<IgnoredAny>,
}

/// A value without doubled names.
struct Document(Value);

/// Reads a file, or stdin if it is `-`.
pub(super) fn read(file: &str) -> Result<File, Failure> {
    let name = if file == "-" { "stdin" } else { file };
    let wrong = |why: String| Failure::Other(format!("{name}: {why}"));
    let text = text_of(file).map_err(|source| Failure::Read { name: name.to_owned(), source })?;
    let text = text.ok_or_else(|| wrong(format!("it has more than {} MiB", BYTES_MAX >> 20)))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
    let parsed: Result<Members, String> = match extension {
        Some("json") => serde_json::from_str(text).map_err(|error| error.to_string()),
        Some("toml") => toml::from_str(text).map_err(|error| error.to_string()),
        _ => yaml(text),
    };
    let Members { owner, queues: Document(queues), .. } = parsed.map_err(wrong)?;
    let owner = owner.map(|owner| match Name::new(&owner) {
        Err(_) => Err(wrong(format!("owner {owner:?} breaks the rules of the name of a queue"))),
        Ok(owner) => Ok(owner),
    });
    let owner = owner.transpose()?;
    let Value::Object(queues) = queues else {
        return Err(wrong("queues has no settings by the name of a queue".to_owned()));
    };
    if queues.is_empty() {
        return Err(wrong("it names no queue".to_owned()));
    }
    let queue = |(queue, settings): (String, Value)| {
        let valid = Name::new(&queue).map_err(|error| wrong(format!("queue {queue:?}: {error}")))?;
        match settings {
            Value::Object(settings) => Ok((valid, settings)),
            Value::Null => Ok((valid, Map::new())),
            _ => Err(wrong(format!("queue {queue}: its settings are no object"))),
        }
    };
    let queues = queues.into_iter().map(queue).collect::<Result<_, _>>()?;
    Ok(File { owner, queues })
}

/// The text of a file; `None` if it is too long.
fn text_of(file: &str) -> io::Result<Option<String>> {
    let mut reader: Box<dyn io::Read> =
        if file == "-" { Box::new(io::stdin()) } else { Box::new(std::fs::File::open(file)?) };
    let mut text = String::new();
    let read = reader.by_ref().take(BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok((read as u64 <= BYTES_MAX).then_some(text))
}

/// Parses YAML 1.2: a name such as `no` stays text.
fn yaml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    // One anchor with the settings of a thousand queues is usual. What aliases expand to stays bounded.
    let budget = serde_saphyr::budget! {
        enforce_alias_anchor_ratio: false, max_nodes: NODES_MAX, max_events: 2 * NODES_MAX,
    };
    let options = serde_saphyr::options! { strict_booleans: true, budget: budget };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyValue;

        impl<'de> Visitor<'de> for AnyValue {
            type Value = Document;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of JSON")
            }

            fn visit_unit<E>(self) -> Result<Document, E> {
                Ok(Document(Value::Null))
            }

            fn visit_none<E>(self) -> Result<Document, E> {
                Ok(Document(Value::Null))
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Document, D::Error> {
                Document::deserialize(deserializer)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
                Ok(Document(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Document, E> {
                Ok(Document(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Document, E> {
                Ok(Document(value.into()))
            }

            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Document, E> {
                let number = Number::from_f64(value)
                    .ok_or_else(|| E::custom(format!("{value} is no number of JSON")))?;
                Ok(Document(number.into()))
            }

            fn visit_str<E>(self, value: &str) -> Result<Document, E> {
                Ok(Document(value.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Document, A::Error> {
                let mut list = Vec::new();
                while let Some(Document(value)) = elements.next_element()? {
                    list.push(value);
                }
                Ok(Document(list.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Document, A::Error> {
                let mut object = Map::new();
                while let Some(name) = members.next_key::<String>()? {
                    if name == TOML_DATE {
                        return Err(A::Error::custom("JSON has no dates: write it in quotes"));
                    }
                    if object.contains_key(&name) {
                        return Err(A::Error::custom(format!("{name:?} is there twice")));
                    }
                    let Document(value) = members.next_value()?;
                    object.insert(name, value);
                }
                Ok(Document(object.into()))
            }
        }

        deserializer.deserialize_any(AnyValue)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::json;

    use super::*;

    fn parsed(text: &str) -> Result<Value, String> {
        yaml::<Members>(text).map(|file| file.queues.0)
    }

    #[test]
    fn names_stay_text_and_numbers_are_numbers() {
        let text = "queues:\n  no: {mode: keys, max_failures: 5}\n  1e5:\n  0o17: {lease: 1m}\n  72044e0: {rate: {per_second: 4.90}}\n";
        let expected = json!({
            "no": {"mode": "keys", "max_failures": 5}, "1e5": null, "0o17": {"lease": "1m"}, "72044e0": {"rate": {"per_second": 4.9}},
        });
        assert_eq!(parsed(text).unwrap(), expected);
        assert_eq!(
            parsed("queues: {a: {prune: [no, yes, on]}}").unwrap(),
            json!({"a": {"prune": ["no", "yes", "on"]}})
        );
        assert_eq!(
            parsed("queues: {a: {known_objects: false, version: null}}").unwrap(),
            json!({"a": {"known_objects": false, "version": null}})
        );
    }

    #[test]
    fn doubled_names_and_growing_aliases_are_errors() {
        for (text, part) in [
            ("queues:\n  a: {}\n  b: {}\n  a: {}\n", "4"),
            ("queues:\n  a: {lease: 1m, lease: 2m}\n", "lease"),
            ("queues:\n  a: {rate: {burst: 1, burst: 2}}\n", "burst"),
            ("queues: {}\nsources: {}\n", "sources"),
            ("queues:\n  ~: {}\n", "line 2"),
            ("", "line 1"),
            ("queues:\n  a: {lease: 1m\n", "line"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let mut bomb = "queues:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            writeln!(bomb, "  a{level}: &a{level} [{aliases}]").expect("a string grows");
        }
        let error = parsed(&bomb).unwrap_err();
        assert!(error.contains("line 7"), "{error}");
        let merged = parsed("queues:\n  a: &a {lease: 1m, mode: keys}\n  b: {<<: *a, lease: 2m}\n").unwrap();
        assert_eq!(merged["b"], json!({"mode": "keys", "lease": "2m"}));
        let usual = (1..1_000).fold(String::new(), |text, number| text + &format!("  q{number}: *default\n"));
        let usual = parsed(&format!("queues:\n  q0: &default {{lease: 1m}}\n{usual}")).unwrap();
        assert_eq!((usual.as_object().unwrap().len(), &usual["q999"]["lease"]), (1_000, &json!("1m")));
        let date = toml::from_str::<Members>("[queues.a]\nlease = 2026-01-01\n").err().unwrap().to_string();
        assert!(date.contains("JSON has no dates"), "{date}");
        for text in [r#"{"queues":{"a":{},"a":{}}}"#, r#"{"queues":{"a":{"lease":"1m","lease":"2m"}}}"#] {
            let error = serde_json::from_str::<Members>(text).err().expect(text).to_string();
            assert!(error.contains("twice") && error.contains("line 1"), "{error}");
        }
    }
}
