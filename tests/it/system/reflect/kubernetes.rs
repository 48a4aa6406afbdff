//! A Kubernetes API as its wire looks: lists in pages, watches with bookmarks, 410 as a status and as an event, 429, connections that
//! are cut in the middle of a line, WatchList.

mod faults;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

use super::upstream::{Reply, Request, Upstream};
use super::{Reflecting, counts, known, needless, restored};
use crate::harness::waiting::until;
use crate::system::cli::Server;

/// Longest time of a watch in these tests.
const WATCH_MAX: Duration = Duration::from_secs(30);

/// What the server does wrong, once each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// 429 with `Retry-After` for a list.
    Busy,
    /// 410 for a page after the first.
    PageExpired,
    /// The next event of a watch is cut in the middle of its line.
    Cut,
    /// The watch ends with an event ERROR, code 410.
    ExpiredEvent,
    /// The next watch gets the status 410.
    ExpiredStatus,
    /// The watch ends as at its time limit.
    End,
}

/// Answers a request in the place of the server. False leaves it to the server.
type Hook = Arc<dyn Fn(&Request, &mut Reply) -> bool + Send + Sync>;

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    /// The changes: version, type, object.
    changes: Vec<(u64, &'static str, Value)>,
    version: u64,
    fault: Option<Fault>,
    has_watch_list: bool,
    /// Whether each watch ends at once.
    always_ends: bool,
    /// The token that the server takes, if it is not the usual one.
    token: Option<&'static str>,
    hook: Option<Hook>,
    /// The lists and the watches that were answered.
    lists: usize,
    watches: usize,
}

/// A resource `pods` of a namespace.
#[derive(Clone, Default)]
struct Api(Arc<(Mutex<State>, Condvar)>);

impl Api {
    fn start(has_watch_list: bool, pods: usize) -> (Self, Upstream) {
        let api = Self::default();
        api.0.0.lock().has_watch_list = has_watch_list;
        (0..pods).for_each(|number| api.apply(number, 0));
        let handler = api.clone();
        let upstream = Upstream::start(move |request, reply| handler.handle(request, reply));
        (api, upstream)
    }

    fn change(&self, kind: &'static str, name: &str, change: impl FnOnce(u64) -> Value) {
        let mut state = self.0.0.lock();
        state.version += 1;
        let version = state.version;
        let mut object = change(version);
        object["metadata"]["resourceVersion"] = version.to_string().into();
        if kind == "DELETED" {
            state.objects.remove(name);
        } else {
            state.objects.insert(name.to_owned(), object.clone());
        }
        state.changes.push((version, kind, object));
        self.0.1.notify_all();
    }

    fn apply(&self, number: usize, image: usize) {
        let name = format!("pod-{number:04}");
        let kind = if self.0.0.lock().objects.contains_key(&name) { "MODIFIED" } else { "ADDED" };
        self.change(kind, &name, |_| pod(&name, image));
    }

    fn delete(&self, number: usize) {
        let name = format!("pod-{number:04}");
        let last = self.0.0.lock().objects.get(&name).cloned();
        if let Some(last) = last {
            self.change("DELETED", &name, |_| last);
        }
    }

    fn fail(&self, fault: Fault) {
        self.0.0.lock().fault = Some(fault);
        self.0.1.notify_all();
    }

    /// Answers requests by a hook from now on. The present watch ends.
    fn hook(&self, hook: impl Fn(&Request, &mut Reply) -> bool + Send + Sync + 'static) {
        self.0.0.lock().hook = Some(Arc::new(hook));
        self.end_watch();
    }

    fn end_watch(&self) {
        self.fail(Fault::End);
        self.until_met();
    }

    fn take(state: &mut State, fault: Fault) -> bool {
        let is_set = state.fault == Some(fault);
        if is_set {
            state.fault = None;
        }
        is_set
    }

    /// Waits until the fault was met.
    #[track_caller]
    fn until_met(&self) {
        until("the fault is met", || self.0.0.lock().fault.is_none());
    }

    fn handle(&self, request: &Request, reply: &mut Reply) {
        let token = format!("Bearer {}", self.0.0.lock().token.unwrap_or("robot"));
        if request.header("authorization") != Some(&token) {
            return reply.send(401, &[], "{\"kind\":\"Status\",\"code\":401,\"message\":\"Unauthorized\"}");
        }
        assert!(request.target.starts_with("/base/api/v1/namespaces/shop/pods?"), "{}", request.target);
        assert_eq!(request.parameter("labelSelector"), Some("app%3Dshop"));
        let hook = self.0.0.lock().hook.clone();
        if hook.is_some_and(|hook| hook(request, reply)) {
            return;
        }
        if request.parameter("watch") == Some("true") {
            self.watch(request, reply);
        } else {
            self.list(request, reply);
        }
    }

    fn list(&self, request: &Request, reply: &mut Reply) {
        let mut state = self.0.0.lock();
        let from = request.parameter("continue").map_or(0, |text| text.parse().expect("an offset"));
        if Self::take(&mut state, Fault::Busy) {
            return reply.send(429, &["retry-after: 1"], "{\"kind\":\"Status\",\"code\":429}");
        }
        if from > 0 && Self::take(&mut state, Fault::PageExpired) {
            return reply.send(410, &[], "{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}");
        }
        let least = request.parameter("resourceVersion").map_or(0, |text| text.parse().expect("a number"));
        if least > state.version {
            return reply.send(
                504,
                &[],
                "{\"kind\":\"Status\",\"code\":504,\"message\":\"Too large resource version\"}",
            );
        }
        state.lists += usize::from(least == 0);
        let limit = request.parameter("limit").map_or(usize::MAX, |text| text.parse().expect("a limit"));
        let all = state.objects.values().skip(from);
        let items: Vec<Value> = all.take(limit).cloned().map(without_kind).collect();
        let has_more = from + items.len() < state.objects.len();
        let next = if has_more { (from + limit).to_string() } else { String::new() };
        let list = json!({ "kind": "PodList", "apiVersion": "v1",
            "metadata": { "resourceVersion": state.version.to_string(), "continue": next }, "items": items });
        reply.send(200, &[], &list.to_string());
    }

    fn watch(&self, request: &Request, reply: &mut Reply) {
        let mut state = self.0.0.lock();
        let is_list = request.parameter("sendInitialEvents") == Some("true");
        if is_list && !state.has_watch_list {
            return reply.send(422, &[], "{\"kind\":\"Status\",\"code\":422}");
        }
        if Self::take(&mut state, Fault::ExpiredStatus) {
            return reply.send(410, &[], "{\"kind\":\"Status\",\"code\":410}");
        }
        state.watches += 1;
        reply.write("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
        let mut from = if is_list {
            for object in state.objects.values() {
                reply.write(&line("ADDED", object));
            }
            let end = json!({ "kind": "Pod", "apiVersion": "v1", "metadata": {
                "resourceVersion": state.version.to_string(), "annotations": { "k8s.io/initial-events-end": "true" } } });
            reply.write(&line("BOOKMARK", &end));
            state.version
        } else {
            request.parameter("resourceVersion").expect("a version").parse().expect("a number")
        };
        loop {
            if state.always_ends || Self::take(&mut state, Fault::End) {
                return;
            }
            if Self::take(&mut state, Fault::ExpiredEvent) {
                let status = json!({ "kind": "Status", "code": 410, "reason": "Expired" });
                reply.write(&line("ERROR", &status));
                return;
            }
            let new: Vec<_> = state.changes.iter().filter(|(version, ..)| *version > from).cloned().collect();
            for (version, kind, object) in new {
                let text = line(kind, &object);
                if Self::take(&mut state, Fault::Cut) {
                    reply.write(&text[..text.len() / 2]);
                    return;
                }
                if !reply.write(&text) {
                    return;
                }
                from = version;
            }
            let bookmark = json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "resourceVersion": from.to_string() } });
            if !reply.write(&line("BOOKMARK", &bookmark))
                || self.0.1.wait_for(&mut state, WATCH_MAX).timed_out()
            {
                return;
            }
        }
    }

    /// The objects in the form of [`known`].
    fn objects(&self) -> BTreeMap<String, Value> {
        let objects = self.0.0.lock().objects.clone();
        objects.into_iter().map(|(name, object)| (format!("shop/{name}"), object)).collect()
    }

    fn counts(&self) -> (usize, usize) {
        let state = self.0.0.lock();
        (state.lists, state.watches)
    }
}

fn pod(name: &str, image: usize) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "shop" }, "spec": { "image": image } })
}

/// An object as lists have it.
fn without_kind(mut object: Value) -> Value {
    let members = object.as_object_mut().expect("an object");
    members.remove("kind");
    members.remove("apiVersion");
    object
}

fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({ "type": kind, "object": object }))
}

fn kubeconfig(server: &Server, upstream: &Upstream) -> String {
    let token = server.folder.path().join("token");
    std::fs::write(&token, "robot\n").expect("a file");
    let path = server.folder.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: other\nclusters:\n- name: c\n  cluster:\n    server: {}\n\
         contexts:\n- name: main\n  context: {{cluster: c, user: u}}\nusers:\n- name: u\n  user:\n    tokenFile: token\n",
        upstream.url("/base/")
    );
    std::fs::write(&path, text).expect("a file");
    path.display().to_string()
}

/// The arguments of reflect for the pods, without the name of the command.
fn line_of<'a>(config: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    let line = [
        "q",
        "--source",
        "s",
        "--kubernetes",
        "/api/v1/namespaces/shop/pods",
        "--context",
        "main",
        "--label-selector",
        "app=shop",
        "--kubeconfig",
        config,
    ];
    [&line, options].concat()
}

/// Waits until the newest objects of the queue are those of the API.
#[track_caller]
fn until_equal(server: &Server, api: &Api) {
    until("the queue equals the API", || {
        let rows = server.run(&["latest", "q", "-o", "ndjson"]).ok();
        let rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).expect("JSON"));
        let latest = rows.map(|row| (row["key"].as_str().expect("a key").to_owned(), row["object"].clone()));
        latest.collect::<BTreeMap<_, _>>() == api.objects()
    });
}

/// Runs through all faults with changes in between, and returns the process.
fn with_all_faults(server: &Server, api: &Api, reflecting: &Reflecting) {
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    until_equal(server, api);
    for (round, fault) in
        [Fault::Cut, Fault::End, Fault::ExpiredEvent, Fault::Cut, Fault::ExpiredEvent].into_iter().enumerate()
    {
        api.fail(fault);
        for number in 0..30 {
            api.apply(number * 7, round + 1);
        }
        api.delete(round);
        api.apply(10_000 + round, 0);
        api.until_met();
        until_equal(server, api);
    }
    // A watch that ends, whose successor gets 410.
    api.fail(Fault::End);
    api.until_met();
    api.fail(Fault::ExpiredStatus);
    api.apply(1, 99);
    until_equal(server, api);
    assert_eq!(needless(server, "q"), 0);
}

#[test]
fn pages_and_watches_survive_every_fault_without_needless_deltas() {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(false, 1_200);
    let config = kubeconfig(&server, &upstream);
    api.fail(Fault::Busy);
    let reflecting = Reflecting::start(&server, &line_of(&config, &[]));
    with_all_faults(&server, &api, &reflecting);
    let config_of = server.json(&["queue", "get", "q"])["settings"]["key"].clone();
    assert_eq!(config_of, json!([{ "pointer": "/metadata/namespace", "optional": true }, "/metadata/name"]));
    assert!(api.counts().0 >= 3 * 3, "lists of three pages: {:?}", api.counts());
    super::drain(&server, "q");
    assert_eq!(known(&server, "q"), api.objects());
    let log = reflecting.stop();
    assert!(log.contains("status 429") && !log.contains("robot"), "{log}");
}

#[test]
fn a_watch_list_takes_the_place_of_pages() {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(true, 700);
    let config = kubeconfig(&server, &upstream);
    let reflecting = Reflecting::start(&server, &line_of(&config, &[]));
    with_all_faults(&server, &api, &reflecting);
    // A bookmark is a success, though nothing has changed.
    let time = || reflecting.metric("deltaq_reflect_last_success_timestamp_seconds", "");
    let before = time();
    until("a bookmark counts", || {
        api.0.1.notify_all();
        time() > before
    });
    server.run(&["queue", "delete", "q", "--yes"]).ok();
    until("the queue is created again", || server.run(&["queue", "get", "q"]).code == Some(0));
    until_equal(&server, &api);
    assert_eq!(api.counts().0, 0, "no list was asked for");
    reflecting.stop();
}

#[test]
fn watches_that_end_at_once_are_begun_again_after_pauses() {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(false, 3);
    api.0.0.lock().always_ends = true;
    let config = kubeconfig(&server, &upstream);
    let reflecting = Reflecting::start(&server, &line_of(&config, &[]));
    reflecting.until_metric("deltaq_reflect_failures_total", "side=\"source\"", 2.0);
    assert!(api.counts().1 <= 3, "{:?}", api.counts());
    assert!(reflecting.stop().contains("the watch has ended at once"));
}

#[test]
fn pages_that_expire_are_listed_as_a_whole() {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(true, 1_001);
    let config = kubeconfig(&server, &upstream);
    api.fail(Fault::PageExpired);
    let once = [
        &["reflect"][..],
        &line_of(&config, &["--no-watch-list", "--once", "--field-selector", "spec.nodeName=a"]),
    ]
    .concat();
    assert_eq!(server.run(&once).ok(), "s: 1001 objects, 1001 replaced, 0 deleted, 0 unchanged\n");
    assert_eq!(api.counts(), (2, 0), "one page, and the whole list");
    let wrong = [&["reflect"][..], &line_of("missing", &["--once"])].concat();
    assert!(server.run(&wrong).failed(1).contains("can't read missing (kubeconfig)"));
}

#[test]
fn a_deletion_reaches_a_queue_with_versions() {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(true, 20);
    let config = kubeconfig(&server, &upstream);
    // The last state of a pod has the same version as the queue.
    let line = line_of(&config, &["--create", "version=/spec/image"]);
    let reflecting = Reflecting::start(&server, &line);
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    api.delete(7);
    api.apply(3, 1);
    until_equal(&server, &api);
    reflecting.stop();
}

#[test]
fn a_restored_queue_gets_all_pods_again() {
    let mut server = Server::durable();
    let (api, upstream) = Api::start(true, 20);
    let config = kubeconfig(&server, &upstream);
    let reflecting = Reflecting::start(&server, &line_of(&config, &[]));
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    restored::keep(&mut server);
    api.apply(3, 1);
    api.apply(20, 0);
    api.delete(7);
    until_equal(&server, &api);
    restored::restore(&mut server);
    until_equal(&server, &api);
    assert!(reflecting.log().contains("queue q may have lost what was sent"), "{}", reflecting.log());
    reflecting.stop();
}

#[test]
fn a_pod_of_which_only_ignored_members_change_is_not_queued() {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(true, 20);
    let config = kubeconfig(&server, &upstream);
    let ignore = r#"ignore=["/metadata/resourceVersion","/metadata/managedFields","/status"]"#;
    let reflecting = Reflecting::start(&server, &line_of(&config, &["--create", ignore]));
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    assert_eq!(super::drain(&server, "q").values().sum::<usize>(), 20);
    let touch = |deletion: Option<&str>| {
        for number in 0..20 {
            let name = format!("pod-{number:04}");
            api.change("MODIFIED", &name, |version| {
                let mut touched = pod(&name, 0);
                touched["status"] = json!({ "restarts": version });
                touched["metadata"]["managedFields"] =
                    json!([{ "time": version, "text": "x".repeat(2_000) }]);
                if let Some(deletion) = deletion {
                    touched["metadata"]["deletionTimestamp"] = deletion.into();
                }
                touched
            });
        }
    };
    for fault in [None, Some(Fault::ExpiredEvent)] {
        // The watch shows the changes, or a list after it.
        if let Some(fault) = fault {
            api.fail(fault);
        }
        touch(None);
        until_equal(&server, &api);
        assert_eq!(super::drain(&server, "q"), counts(&[]), "{fault:?}");
    }
    touch(Some("2026-01-02T03:04:05Z"));
    until_equal(&server, &api);
    assert_eq!(super::drain(&server, "q"), counts(&[("Updated", 20)]));
    reflecting.stop();
}
