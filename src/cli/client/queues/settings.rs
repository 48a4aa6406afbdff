//! Settings of a queue on the command line.

use clap::Args;
use serde_json::{Map, Value};

use super::Failure;
use crate::cli::client::input::Input;

/// Settings of a queue.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// Settings, as NAME=VALUE; null means the default.
    #[arg(value_name = "NAME=VALUE", long_help = HELP)]
    pub settings: Vec<String>,
    /// A JSON object of settings: text, a file, or - for stdin.
    #[arg(long, value_name = "JSON")]
    pub from: Option<String>,
}

const HELP: &str = "\
Settings, as NAME=VALUE; null means the default.
VALUE is JSON, or text without quotes: lease=1m, max_failures=5, key='[\"/namespace\",\"/name\"]'. A dot separates a setting from its
member: retention.age=7d. `deltaq queue settings QUEUE` shows all settings.";

impl Settings {
    /// The settings as a document.
    pub(super) fn document(&self) -> Result<Value, Failure> {
        let mut document = match &self.from {
            None => Map::new(),
            Some(from) => {
                let text = Input::open(Some(from))?.text()?;
                let parsed = serde_json::from_str(&text);
                parsed.map_err(|error| Failure::Usage(format!("--from is not a JSON object: {error}")))?
            }
        };
        insert_all(&mut document, &self.settings)?;
        Ok(Value::Object(document))
    }
}

/// The document of settings of the form NAME=VALUE.
pub(in crate::cli) fn document(settings: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut document = Map::new();
    insert_all(&mut document, settings)?;
    Ok(document)
}

fn insert_all(document: &mut Map<String, Value>, settings: &[String]) -> Result<(), Failure> {
    for setting in settings {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| Failure::Usage(format!("{setting:?} is not a setting of the form NAME=VALUE")))?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        insert(document, name, value);
    }
    Ok(())
}

fn insert(document: &mut Map<String, Value>, name: &str, value: Value) {
    let Some((first, rest)) = name.split_once('.') else {
        document.insert(name.to_owned(), value);
        return;
    };
    let inner = document.entry(first).or_insert_with(|| Value::Object(Map::new()));
    if !inner.is_object() {
        *inner = Value::Object(Map::new());
    }
    if let Value::Object(inner) = inner {
        insert(inner, rest, value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_json_or_text() {
        let settings = [
            "lease=1m",
            "max_failures=5",
            "key=[\"/a\"]",
            "retention.age=7d",
            "retention.bytes=9",
            "schema=null",
        ];
        let settings = Settings {
            settings: settings.map(str::to_owned).to_vec(),
            from: Some("{\"mode\":\"keys\",\"lease\":\"2m\"}".to_owned()),
        };
        let expected = json!({
            "mode": "keys", "lease": "1m", "max_failures": 5, "key": ["/a"], "retention": { "age": "7d", "bytes": 9 },
            "schema": null,
        });
        assert_eq!(settings.document().unwrap(), expected);
        let wrong = Settings { settings: vec!["lease".to_owned()], from: None };
        assert!(wrong.document().unwrap_err().to_string().contains("NAME=VALUE"));
    }
}
