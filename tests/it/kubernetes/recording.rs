//! The recorded steps, as tests/data/kubernetes/README.md describes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

/// The path of the resources, which the files shorten to `~`.
const GROUP_VERSION: &str = "/apis/shop.example/v1";

/// A request and its response, or something that happened outside HTTP.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) scenario: String,
    #[serde(rename = "step")]
    pub(super) name: String,
    #[serde(default)]
    pub(super) action: Option<String>,
    #[serde(default)]
    pub(super) request: Request,
    #[serde(default)]
    pub(super) response: Response,
    /// The steps that ran while this watch was open.
    #[serde(default)]
    pub(super) during: Vec<String>,
    /// Whether the recording lacks the response. Only what is there is compared.
    #[serde(default)]
    pub(super) left_out: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// Method, path and query.
    pub(super) line: String,
    /// Whose token it has: `admin` if nothing is written, none if that is empty.
    pub(super) token: Option<String>,
    /// A header that is null is not sent. The content type of a body is JSON if nothing is written.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Option<String>>,
    pub(super) body: Option<Value>,
    pub(super) body_text: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Response {
    /// None if the connection ended without a response.
    pub(super) status: Option<u16>,
    /// The content type is JSON if nothing is written.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Option<String>>,
    pub(super) body: Option<Value>,
    pub(super) body_text: Option<String>,
    pub(super) frames: Option<Vec<Value>>,
    /// Whether the stream ended as a whole reply.
    pub(super) end: Option<bool>,
}

impl Step {
    pub(super) fn method(&self) -> &str {
        self.request.line.split(' ').next().unwrap_or_default()
    }

    /// Path and query, with symbols.
    pub(super) fn target(&self) -> String {
        let target = self.request.line.split_once(' ').map_or("", |(_, target)| target);
        target.replacen('~', GROUP_VERSION, 1)
    }

    /// The resource, by its plural. Versions of different resources can't be compared.
    pub(super) fn resource(&self) -> &'static str {
        let target = self.target();
        let path = target.split('?').next().unwrap_or_default();
        ["rates", "stocks"]
            .into_iter()
            .find(|plural| path.split('/').any(|part| part == *plural))
            .unwrap_or("prices")
    }

    pub(super) fn body(&self) -> String {
        let Request { body, body_text, .. } = &self.request;
        body.as_ref().map(Value::to_string).or_else(|| body_text.clone()).unwrap_or_default()
    }
}

/// The steps of all files, by scenario.
pub(super) fn scenarios() -> Vec<Vec<Step>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/kubernetes");
    let entries = fs::read_dir(folder).expect("the recordings are there");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "jsonl"));
    files.sort();
    let mut scenarios: Vec<Vec<Step>> = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("recordings are text");
        for line in text.lines() {
            let step: Step = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{}: {error}: {line}", file.display()));
            match scenarios.last_mut() {
                Some(steps) if steps.iter().all(|other| other.scenario == step.scenario) => steps.push(step),
                _ => scenarios.push(vec![step]),
            }
        }
    }
    scenarios
}
