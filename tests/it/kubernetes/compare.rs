//! What clients act on, compared: status, reason, headers, objects, the order of lists and frames. Not the messages.

use std::fmt::{self, Display, Formatter};

use serde_json::Value;

use super::answer::Answer;
use super::recording::{Response, Step};
use super::symbols::{Symbols, is_symbol};

/// The annotation of the bookmark behind the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// Longest text of a value in a report, in characters.
const SHOWN_MAX: usize = 160;

/// Something that this server answers in another way than the recorded one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) scenario: String,
    pub(super) step: String,
    pub(super) request: String,
    /// `status`, the name of a header, `frames`, or the path of a member.
    pub(super) field: String,
    pub(super) recorded: String,
    pub(super) ours: String,
}

impl Display for Difference {
    fn fmt(&self, text: &mut Formatter<'_>) -> fmt::Result {
        let Self { scenario, step, request, field, recorded, ours } = self;
        write!(text, "{scenario} | {step} | {request} | {field}: {recorded} -> {ours}")
    }
}

/// Compares an answer with the recorded one, and learns what it gives for symbols.
pub(super) fn compare(step: &Step, answer: &Answer, symbols: &mut Symbols) -> Vec<Difference> {
    let mut comparison = Comparison { step, symbols, found: Vec::new() };
    comparison.response(&step.response, answer);
    comparison.found
}

struct Comparison<'a> {
    step: &'a Step,
    symbols: &'a mut Symbols,
    found: Vec<Difference>,
}

impl Comparison<'_> {
    fn differs(&mut self, field: &str, recorded: &str, ours: &str) {
        let shown = |text: &str| text.chars().take(SHOWN_MAX).collect::<String>();
        let difference = Difference {
            scenario: self.step.scenario.clone(),
            step: self.step.name.clone(),
            request: self.step.request.line.clone(),
            field: field.to_owned(),
            recorded: shown(recorded),
            ours: shown(ours),
        };
        if !self.found.contains(&difference) {
            self.found.push(difference);
        }
    }

    fn response(&mut self, recorded: &Response, answer: &Answer) {
        let body: Option<Value> = serde_json::from_str(&answer.text).ok();
        if recorded.status != answer.status {
            let reason = body.as_ref().and_then(|body| body["reason"].as_str()).unwrap_or_default();
            let ours = format!("{} {reason}", status(answer.status));
            self.differs("status", &status(recorded.status), ours.trim_end());
            return;
        }
        if recorded.status.is_none() {
            return;
        }
        if !self.step.left_out && !self.headers(recorded, answer) {
            return;
        }
        if let Some(frames) = &recorded.frames {
            self.watch(frames, answer);
            if recorded.end == Some(true) && !answer.is_whole {
                self.differs("end", "the whole body", "a broken connection");
            }
        } else if let Some(recorded) = &recorded.body {
            let mut body = body.unwrap_or_default();
            if recorded["kind"] == "Status" {
                without_messages(&mut body);
            }
            self.value(recorded, Some(&body), "", is_object(recorded));
        }
    }

    /// Returns whether the bodies have the same type, and can be read.
    fn headers(&mut self, recorded: &Response, answer: &Answer) -> bool {
        for name in ["retry-after", "warning", "content-encoding"] {
            let present = |is_there: bool| if is_there { "present" } else { "absent" };
            let (theirs, ours) = (recorded.headers.contains_key(name), answer.header(name).is_some());
            if theirs != ours {
                self.differs(name, present(theirs), present(ours));
            }
        }
        let theirs = match recorded.headers.get("content-type") {
            Some(given) => given.as_deref(),
            None => Some("application/json"),
        };
        let ours = answer.header("content-type");
        if theirs != ours {
            self.differs("content-type", theirs.unwrap_or("absent"), ours.unwrap_or("absent"));
        }
        theirs == ours && matches!(answer.header("content-encoding"), None | Some("gzip"))
    }

    fn watch(&mut self, recorded: &[Value], answer: &Answer) {
        let mut ours: Vec<Value> = Vec::new();
        for frame in answer.text.lines().filter(|line| !line.is_empty()) {
            match serde_json::from_str(frame) {
                Ok(frame) => ours.push(frame),
                Err(_) => return self.differs("frames", "lines of JSON", frame),
            }
        }
        let is_plain = |frame: &Value| summary(frame) == "BOOKMARK";
        let (plain, recorded): (Vec<&Value>, Vec<&Value>) =
            recorded.iter().partition(|frame| is_plain(frame));
        let (our_plain, ours): (Vec<&Value>, Vec<&Value>) = ours.iter().partition(|frame| is_plain(frame));
        let some = |frames: &[&Value]| if frames.is_empty() { "none" } else { "some" };
        if plain.is_empty() != our_plain.is_empty() {
            self.differs("bookmarks", some(&plain), some(&our_plain));
        }
        if let (Some(theirs), Some(ours)) = (plain.first(), our_plain.first()) {
            let has_version = |frame: &Value| frame["object"]["metadata"]["resourceVersion"].is_string();
            let members = |frame: &Value| frame["object"].as_object().map_or(0, serde_json::Map::len);
            if !has_version(ours) || members(theirs) != members(ours) {
                self.differs("bookmark", &theirs.to_string(), &ours.to_string());
            }
        }
        let sequence =
            |frames: &[&Value]| frames.iter().map(|frame| summary(frame)).collect::<Vec<_>>().join(", ");
        let (theirs, our_sequence) = (sequence(&recorded), sequence(&ours));
        if theirs != our_sequence {
            self.differs("frames", &theirs, &our_sequence);
            return self.learn(&recorded, &ours);
        }
        for (theirs, ours) in recorded.into_iter().zip(ours) {
            let mut ours = ours.clone();
            if theirs["type"] == "ERROR" {
                without_messages(&mut ours);
            }
            let is_object = theirs["type"] != "BOOKMARK" && is_object(&theirs["object"]);
            self.value(theirs, Some(&ours), "frame", is_object);
        }
    }

    /// Takes the versions of those frames that are there, since later requests name them.
    fn learn(&mut self, recorded: &[&Value], ours: &[&Value]) {
        for ours in ours {
            let theirs = recorded.iter().rev().find(|theirs| summary(theirs) == summary(ours));
            let version = |frame: &Value| frame["object"]["metadata"]["resourceVersion"].clone();
            if let Some(Value::String(symbol)) = theirs.map(|theirs| version(theirs)) {
                let _ = self.symbols.check(self.step.resource(), &symbol, Some(&version(ours)), true);
            }
        }
    }

    /// `is_of_object`: whether a version in here is one of a single object.
    fn value(&mut self, recorded: &Value, ours: Option<&Value>, field: &str, is_of_object: bool) {
        let absent = Value::Null;
        let value = ours.unwrap_or(&absent);
        match (recorded, value) {
            (Value::String(symbol), _) if is_symbol(symbol) => {
                let scope = self.step.resource();
                if let Some(wrong) = self.symbols.check(scope, symbol, ours, is_of_object) {
                    self.differs(field, symbol, &wrong);
                }
            }
            (Value::Object(theirs), Value::Object(members)) => {
                for (name, theirs) in theirs {
                    let of_object = is_of_object || field.ends_with("[]");
                    self.value(theirs, members.get(name), &below(field, name), of_object);
                }
                if !self.step.left_out {
                    for (name, ours) in members.iter().filter(|(name, _)| !theirs.contains_key(*name)) {
                        self.differs(&below(field, name), "absent", &ours.to_string());
                    }
                }
            }
            (Value::Number(count), Value::Array(items)) if field == "items" => {
                if count.as_u64() != u64::try_from(items.len()).ok() {
                    self.differs(field, &count.to_string(), &items.len().to_string());
                }
            }
            (Value::Array(theirs), Value::Array(values)) if field == "items" => self.items(theirs, values),
            (Value::Array(theirs), Value::Array(values)) => {
                if theirs.len() != values.len() {
                    let count = |values: &[Value]| format!("{} elements", values.len());
                    return self.differs(field, &count(theirs), &count(values));
                }
                for (theirs, ours) in theirs.iter().zip(values) {
                    self.value(theirs, Some(ours), &format!("{field}[]"), is_of_object);
                }
            }
            // `1` and `1.0` are equal; two integers are compared as such.
            (Value::Number(theirs), Value::Number(ours))
                if (theirs.is_f64() || ours.is_f64()) && theirs.as_f64() == ours.as_f64() => {}
            _ if ours == Some(recorded) => {}
            _ => {
                let ours = ours.map_or("absent".to_owned(), Value::to_string);
                self.differs(field, &recorded.to_string(), &ours);
            }
        }
    }

    /// The names in their order, and the first object as a whole.
    fn items(&mut self, recorded: &[Value], ours: &[Value]) {
        let names = |items: &[Value]| items.iter().map(name).collect::<Vec<_>>().join(", ");
        if names(recorded) != names(ours) {
            return self.differs("items", &names(recorded), &names(ours));
        }
        for (theirs, ours) in recorded.iter().zip(ours).filter(|(theirs, _)| theirs.is_object()) {
            self.value(theirs, Some(ours), "items[]", true);
        }
    }
}

fn status(status: Option<u16>) -> String {
    status.map_or("no answer".to_owned(), |status| status.to_string())
}

fn below(field: &str, name: &str) -> String {
    if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") }
}

/// Whether a document is one object, and no list or table.
fn is_object(document: &Value) -> bool {
    document["kind"].as_str().is_some_and(|kind| !kind.ends_with("List") && kind != "Table")
}

/// The name of an item, which the recording may have instead of the item.
fn name(item: &Value) -> String {
    let name = item.as_str().or_else(|| item["metadata"]["name"].as_str());
    name.unwrap_or("(no name)").to_owned()
}

/// Messages are for people.
fn without_messages(document: &mut Value) {
    match document {
        Value::Object(members) => {
            members.shift_remove("message");
            members.values_mut().for_each(without_messages);
        }
        Value::Array(values) => values.iter_mut().for_each(without_messages),
        _ => {}
    }
}

/// A frame in one line: type and name.
fn summary(frame: &Value) -> String {
    let object = if frame["type"].is_null() { frame } else { &frame["object"] };
    let kind = frame["type"].as_str().or(object["kind"].as_str()).unwrap_or_default();
    match kind {
        "ERROR" => format!("ERROR {} {}", object["code"], object["reason"].as_str().unwrap_or_default()),
        "BOOKMARK" if frame.to_string().contains(INITIAL_EVENTS_END) => {
            "BOOKMARK of initial events".to_owned()
        }
        "BOOKMARK" => kind.to_owned(),
        _ if object["kind"] == "Table" => {
            format!("{kind} {}", object["rows"][0]["cells"][0].as_str().unwrap_or("(no name)"))
        }
        _ => format!("{kind} {}", name(object)),
    }
}

#[test]
fn differences_are_found() {
    let step: Step = serde_json::from_value(serde_json::json!({
        "scenario": "s", "step": "t", "request": {"line": "GET ~/namespaces/shop/prices"}, "response": {
            "status": 200, "body": {
                "kind": "PriceList", "metadata": {"resourceVersion": "$rv2"},
                "items": [{"metadata": {"name": "a", "resourceVersion": "$rv1", "uid": "$uid1"}, "n": 1}, "b"]}}}))
    .expect("a step");
    let mut symbols = Symbols::default();
    let mut found = |status, body: &str| -> Vec<String> {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let answer = Answer { status: Some(status), headers, text: body.to_owned(), is_whole: true };
        let differences = compare(&step, &answer, &mut symbols);
        differences
            .iter()
            .map(|found| format!("{}: {} -> {}", found.field, found.recorded, found.ours))
            .collect()
    };
    let none: Vec<String> = Vec::new();
    let uid = "00000000-0000-4000-8000-000000000001";
    let body = |version: &str, object: &str, n: &str, last: &str| {
        format!(
            r#"{{"kind":"PriceList","metadata":{{"resourceVersion":"{version}"}},"items":[{{"metadata":
            {{"name":"a","resourceVersion":"{object}","uid":"{uid}"}},"n":{n}}},{{"metadata":{{"name":"{last}"}}}}]}}"#
        )
    };
    assert_eq!(found(200, &body("7", "7", "1.0", "b")), none);
    assert_eq!(found(200, &body("7", "7", "2", "b")), ["items[].n: 1 -> 2"]);
    assert_eq!(found(200, &body("7", "7", "1", "c")), ["items: a, b -> a, c"]);
    assert_eq!(found(200, &body("8", "7", "1", "b")), ["metadata.resourceVersion: $rv2 -> 8 after 7"]);
    assert_eq!(found(200, &body("7", "0", "1", "b")), ["items[].metadata.resourceVersion: $rv1 -> 0"]);
    assert_eq!(found(422, r#"{"reason":"Invalid"}"#), ["status: 200 -> 422 Invalid"]);
    let mut symbols = Symbols::default();
    let answer = |version| Value::from(version);
    assert_eq!(symbols.check("prices", "$rv3", Some(&answer("5")), true), None);
    assert_eq!(symbols.check("prices", "$rv2", Some(&answer("5")), false), None);
    let later =
        symbols.check("prices", "$rv4", Some(&answer("5")), true).expect("two objects have two versions");
    assert_eq!(later, "5 beside $rv3 = 5");
}
