//! Runs the steps of a scenario: writes one after the other, reads and watches beside them as they were recorded.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use deltaq::config::access::Verb;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::answer::{Answer, Call};
use super::compare::{Difference, compare};
use super::recording::Step;
use super::symbols::{self, Symbols};
use crate::access::token;
use crate::harness::{Service, spawn};

/// The scenario in which versions are forgotten.
const FORGETFUL: &str = "expired";
/// How many deleted keys that scenario remembers.
const TOMBSTONES: usize = 4;

/// How long a write waits for the frames that a watch had of it. Where they don't come, that is a difference.
const FRAMES_PATIENCE: Duration = Duration::from_secs(1);

/// How many lines of an answer have come, once it has begun.
type Progress = watch::Receiver<Option<usize>>;

/// Who answers.
pub(super) enum Target {
    Server(Box<Service>),
    /// The recording itself.
    Recording,
}

impl Target {
    pub(super) fn recording() -> Self {
        Self::Recording
    }
}

/// A server with the two resources of the recording and its three users.
pub(super) async fn server(steps: &[Step]) -> Target {
    let is_forgetful = steps.iter().any(|step| step.scenario == FORGETFUL);
    let service = Service::with(|settings| {
        settings.kubernetes.enabled = true;
        settings.access.tokens = vec![
            token("admin", &Verb::ALL, "*"),
            token("reader", &[Verb::Read], "*"),
            token("nobody", &[Verb::Read], "elsewhere"),
        ];
        if is_forgetful {
            settings.watch.tombstones = TOMBSTONES;
        }
    })
    .await;
    let resource =
        |kind: &str, plural: &str| json!({"group":"shop.example","version":"v1","kind":kind,"plural":plural});
    let namespace = json!({"pointer":"/metadata/namespace","optional":true});
    let prices = json!({"key":[namespace, "/metadata/name"],"kubernetes":resource("Price", "prices")});
    let rates = json!({"key":["/metadata/name"],"kubernetes":resource("Rate", "rates")});
    for (queue, settings) in [("prices", prices), ("rates", rates)] {
        let mut client = service.client().await;
        client.call_as("admin", "PUT", &format!("/v1/queues/{queue}"), &settings).await.ok();
    }
    Target::Server(Box::new(service))
}

/// Returns the differences of a scenario.
pub(super) async fn replay(steps: Vec<Step>, target: Target) -> Vec<Difference> {
    let mut watches: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, step) in steps.iter().enumerate() {
        if let Some(first) = first_during(&steps[..index], step) {
            watches.entry(first).or_default().push(index);
        }
    }
    let mut replay =
        Replay { steps, target, symbols: Symbols::default(), open: Vec::new(), found: Vec::new() };
    let begun_before: Vec<usize> = watches.values().flatten().copied().collect();
    for index in 0..replay.steps.len() {
        // The time of a watch must not run out while others are awaited.
        if is_write(&replay.steps[index]) {
            let name = replay.steps[index].name.clone();
            replay.end(|other| !other.during.contains(&name)).await;
        }
        for watch in watches.remove(&index).unwrap_or_default() {
            replay.begin(watch).await;
        }
        let step = &replay.steps[index];
        if step.action.is_some() {
            replay.end(|_| true).await;
            replay.act(index).await;
        } else if step.method() == "GET" {
            if !begun_before.contains(&index) {
                replay.begin(index).await;
            }
        } else if !begun_before.contains(&index) {
            replay.begin(index).await;
            replay.end(|other| other.during.is_empty()).await;
            replay.frames_of(index).await;
        }
    }
    replay.end(|_| true).await;
    replay.found
}

/// Whether a step changes objects.
fn is_write(step: &Step) -> bool {
    step.action.is_none() && step.method() != "GET"
}

/// The first of the steps that ran while a watch was open.
fn first_during(before: &[Step], watch: &Step) -> Option<usize> {
    watch.during.iter().filter_map(|name| before.iter().rposition(|step| step.name == *name)).min()
}

struct Replay {
    steps: Vec<Step>,
    target: Target,
    symbols: Symbols,
    /// The requests whose answers are awaited.
    open: Vec<Open>,
    found: Vec<Difference>,
}

struct Open {
    index: usize,
    answer: JoinHandle<Answer>,
    progress: Progress,
}

impl Replay {
    /// Sends a request. A watch has begun when this returns, if something has to happen while it is open.
    async fn begin(&mut self, index: usize) {
        let texts = |step: &Step| {
            let target = if is_slower_than_needed(step) { sooner(&step.target()) } else { step.target() };
            (step.resource(), format!("{target}\n{}", step.body()))
        };
        let (scope, text) = texts(&self.steps[index]);
        let mut filled = self.symbols.in_request(scope, &text);
        if filled.is_none() {
            self.end(|_| true).await;
            self.learn_version(scope, &text).await;
            filled = Some(self.symbols.in_request_at_last(scope, &text));
        }
        let filled = filled.unwrap_or_default();
        let (target, body) = filled.split_once('\n').unwrap_or((&filled, ""));
        let step = &self.steps[index];
        let call = Call {
            method: step.method().to_owned(),
            target: target.to_owned(),
            headers: headers(step, body),
            body: body.to_owned(),
        };
        let (sender, mut progress) = watch::channel(None);
        let answer = match &self.target {
            Target::Server(service) => spawn(call.send(service.api, sender)),
            Target::Recording => {
                let answer = recorded(step);
                drop(sender);
                spawn(async move { answer })
            }
        };
        if !step.during.is_empty() {
            let first = initial_lines(step);
            // An answer that has ended drops the sender.
            let _ = progress.wait_for(|lines| lines.is_some_and(|lines| lines >= first)).await;
        }
        self.open.push(Open { index, answer, progress });
    }

    /// Asks for the version of now, where a request needs one that only a frame had.
    async fn learn_version(&mut self, scope: &'static str, text: &str) {
        let (Target::Server(service), Some(symbol)) =
            (&self.target, self.symbols.newest_missing(scope, text))
        else {
            return;
        };
        let path = if scope == "rates" { "rates" } else { "namespaces/shop/prices" };
        let answer = ask(service.api, "GET", path, "").await;
        let list: Value = serde_json::from_str(&answer.text).expect("a list is JSON");
        let _ = self.symbols.check(scope, &symbol, Some(&list["metadata"]["resourceVersion"]), false);
    }

    /// Waits until the open watches have the frames of a write, so that each write has its own.
    async fn frames_of(&mut self, write: usize) {
        for open in self.open.iter_mut().filter(|open| !self.steps[open.index].during.is_empty()) {
            let wanted = lines_after(&self.steps[open.index], &self.steps[write]);
            let wait = open.progress.wait_for(|lines| lines.is_some_and(|lines| lines >= wanted));
            let _ = tokio::time::timeout(FRAMES_PATIENCE, wait).await;
        }
    }

    /// Waits for the answers of some requests, and compares them.
    async fn end(&mut self, is_awaited: impl Fn(&Step) -> bool) {
        let open = std::mem::take(&mut self.open);
        let (awaited, open): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|open| is_awaited(&self.steps[open.index]));
        self.open = open;
        for Open { index, answer, .. } in awaited {
            let answer = answer.await.expect("a request ends");
            self.found.extend(compare(&self.steps[index], &answer, &mut self.symbols));
        }
    }

    /// Does what happened outside HTTP, as far as a server has it.
    async fn act(&mut self, index: usize) {
        let Target::Server(service) = &self.target else { return };
        match self.steps[index].name.as_str() {
            // A restart forgets old versions; so do enough deletions.
            "restart" => {
                for number in 0..=TOMBSTONES {
                    let name = format!("filler{number}");
                    create(service.api, "elsewhere", &name, "x").await;
                    ask(service.api, "DELETE", &format!("namespaces/elsewhere/prices/{name}"), "").await;
                }
            }
            "4 objects of 50 kB are created" => {
                for number in 0..4 {
                    create(service.api, "shop", &format!("big{number}"), &"x".repeat(50_000)).await;
                }
            }
            _ => {}
        }
    }
}

async fn create(api: SocketAddr, namespace: &str, name: &str, spec: &str) {
    let object =
        json!({"apiVersion":"shop.example/v1","kind":"Price","metadata":{"name":name},"spec":{"eur":spec}});
    ask(api, "POST", &format!("namespaces/{namespace}/prices"), &object.to_string()).await;
}

async fn ask(api: SocketAddr, method: &str, path: &str, body: &str) -> Answer {
    let call = Call {
        method: method.to_owned(),
        target: format!("/apis/shop.example/v1/{path}"),
        headers: vec![
            ("authorization".to_owned(), "Bearer admin".to_owned()),
            ("content-type".to_owned(), "application/json".to_owned()),
        ],
        body: body.to_owned(),
    };
    let answer = call.send(api, watch::channel(None).0).await;
    assert!(matches!(answer.status, Some(200 | 201)), "{method} {path}: {answer:?}");
    answer
}

fn headers(step: &Step, body: &str) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    let token = step.request.token.as_deref().unwrap_or("admin").trim_matches(['<', '>']);
    if !token.is_empty() {
        headers.push(("authorization".to_owned(), format!("Bearer {token}")));
    }
    let given = &step.request.headers;
    let has_body = !body.is_empty() || step.request.body_text.is_some();
    if has_body && !given.contains_key("content-type") {
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    headers.extend(given.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?))));
    headers
}

fn initial_lines(step: &Step) -> usize {
    let frames = step.response.frames.as_deref().unwrap_or_default();
    frames.iter().position(|frame| frame.to_string().contains("initial-events-end")).map_or(0, |end| end + 1)
}

/// How many frames a recorded watch had when a write had been made.
fn lines_after(watch: &Step, write: &Step) -> usize {
    let number = |value: &Value| {
        value["metadata"]["resourceVersion"].as_str()?.strip_prefix("$rv")?.parse::<u32>().ok()
    };
    let frames = watch.response.frames.as_deref().unwrap_or_default();
    let Some(version) = write.response.body.as_ref().and_then(number) else { return 0 };
    let is_after = |frame: &&Value| number(&frame["object"]).is_some_and(|frame| frame <= version);
    frames.iter().filter(is_after).count()
}

/// Whether a watch without bookmarks and without writes was open for longer than a second: that shows no more than a second
/// does.
fn is_slower_than_needed(step: &Step) -> bool {
    let has_bookmarks = |frames: &Vec<Value>| frames.iter().any(|frame| frame["type"] == "BOOKMARK");
    step.during.is_empty() && step.response.frames.as_ref().is_some_and(|frames| !has_bookmarks(frames))
}

fn sooner(target: &str) -> String {
    let parameter = |part: &str| match part {
        "timeoutSeconds=2" | "timeoutSeconds=3" | "timeoutSeconds=4" => "timeoutSeconds=1".to_owned(),
        _ => part.to_owned(),
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    format!("{path}?{}", query.split('&').map(parameter).collect::<Vec<_>>().join("&"))
}

/// The recorded response as an answer.
fn recorded(step: &Step) -> Answer {
    let response = &step.response;
    let text = match (&response.frames, &response.body, &response.body_text) {
        (Some(frames), _, _) => {
            frames.iter().fold(String::new(), |text, frame| text + &frame.to_string() + "\n")
        }
        (_, Some(body), _) => body.to_string(),
        (_, _, text) => text.clone().unwrap_or_default(),
    };
    let mut headers: Vec<_> =
        response.headers.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?))).collect();
    if !response.headers.contains_key("content-type") {
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    Answer {
        status: response.status,
        headers,
        text: symbols::invented(&text),
        is_whole: response.end != Some(false),
    }
}
