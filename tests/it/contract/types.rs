//! Every reply of the transcripts reads into its type of `deltaq-types`, and the type writes the same document.

use std::fmt::Debug;

use deltaq_types::{
    EventDocument, ExplainDocument, Found, GroupList, Info, ItemDocument, KeysCount, NodeList,
    ObjectDocument, Page, ParkedErrors, Popped, ProblemDocument, Produced, PurgedDocument, QueueDocument,
    QueuePage, QueueSettings, QueueStatus, Replaced, SelectedCount, SettingsPlan, SettledList,
    SourceDocument, SyncedDocument, WorkerDocument, WorkerList,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Checks the reply to a request. `text` is a whole JSON document.
pub(super) fn check(method: &str, uri: &str, status: u16, text: &str) {
    let (path, _) = uri.split_once('?').unwrap_or((uri, ""));
    let parts: Vec<&str> = path.trim_start_matches("/v1/queues").split('/').skip(1).collect();
    let is_single = parts.len() > 2;
    if status >= 400 {
        return problem(text);
    }
    if uri.contains("fields=") {
        return;
    }
    match (method, parts.as_slice()) {
        (_, ["openapi.json"]) => {}
        ("GET", []) => same::<QueuePage>(text),
        (_, ["v1", "info"]) => same::<Info>(text),
        (_, ["v1", "nodes"]) => same::<NodeList>(text),
        (_, ["v1", "workers"]) => same::<WorkerList>(text),
        (_, ["v1", "find"]) => same::<Found>(text),
        ("GET" | "PUT" | "PATCH", [_]) | (_, [_, "pause" | "resume" | "close" | "reopen"]) => {
            same::<QueueDocument>(text);
        }
        (_, [_, "add" | "update" | "delete" | "deltas" | "resync" | "seed"]) => same::<Produced>(text),
        (_, [_, "replace"]) => same::<Replaced>(text),
        (_, [_, "purge"]) => same::<PurgedDocument>(text),
        ("GET", [_, "parked", "errors"]) => same::<ParkedErrors>(text),
        (_, [_, "forget"]) => same::<KeysCount>(text),
        (_, [_, "parked" | "delayed", _]) => same::<SelectedCount>(text),
        (_, [_, "pop"]) => same::<Popped>(text),
        (_, [_, "settle" | "ack" | "done" | "nack" | "release" | "reject" | "extend"]) => {
            same::<SettledList>(text);
        }
        (_, [_, "settings"]) => same::<QueueSettings>(text),
        (_, [_, "settings", "plan"]) => same::<SettingsPlan>(text),
        (_, [_, "status"]) => same::<QueueStatus>(text),
        (_, [_, "synced"]) => same::<SyncedDocument>(text),
        (_, [_, "item"]) => same::<ItemDocument>(text),
        (_, [_, "object"]) => same::<ObjectDocument>(text),
        (_, [_, "items", ..]) if is_single => same::<ItemDocument>(text),
        (_, [_, "items"]) => same::<Page<ItemDocument>>(text),
        (_, [_, "known" | "latest", ..]) if is_single => same::<ObjectDocument>(text),
        (_, [_, "known" | "latest"]) => same::<Page<ObjectDocument>>(text),
        (_, [_, "explain", _, ..]) => same::<ExplainDocument>(text),
        (_, [_, "workers"]) => same::<Page<WorkerDocument>>(text),
        (_, [_, "groups"]) => same::<GroupList>(text),
        (_, [_, "sources"]) => same::<Page<SourceDocument>>(text),
        (_, [_, "history", ..]) => same::<Page<EventDocument>>(text),
        other => panic!("no type is known for {other:?}: {text}"),
    }
}

fn same<T: Serialize + DeserializeOwned + Debug>(text: &str) {
    let read: T = serde_json::from_str(text)
        .unwrap_or_else(|error| panic!("{error}: {}", &text[..text.len().min(500)]));
    let value: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(serde_json::to_value(&read).expect("it can be written"), value);
}

/// Problems have further fields, which the type ignores.
fn problem(text: &str) {
    let read: ProblemDocument = serde_json::from_str(text)
        .unwrap_or_else(|error| panic!("{error}: {}", &text[..text.len().min(500)]));
    let value: Value = serde_json::from_str(text).expect("JSON");
    let written = serde_json::to_value(&read).expect("it can be written");
    for (name, field) in written.as_object().expect("an object") {
        assert_eq!(value.get(name), Some(field), "{name}: {text}");
    }
}
