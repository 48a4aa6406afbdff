//! What API servers, proxies and operators do to a reflector of Kubernetes. After each fault the queue equals the server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

/// A watch from a version, and not a list as a watch.
fn is_resumed(request: &Request) -> bool {
    request.parameter("watch") == Some("true") && request.parameter("sendInitialEvents").is_none()
}

fn is_list(request: &Request) -> bool {
    request.parameter("watch").is_none() && request.parameter("resourceVersion").is_none()
}

fn status(code: u16, message: &str) -> String {
    json!({ "kind": "Status", "apiVersion": "v1", "code": code, "message": message }).to_string()
}

fn start(server: &Server, api: &Api, upstream: &Upstream, options: &[&str]) -> Reflecting {
    let config = kubeconfig(server, upstream);
    let reflecting = Reflecting::start(server, &line_of(&config, options));
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    until_equal(server, api);
    reflecting
}

fn is_up(reflecting: &Reflecting) -> bool {
    (reflecting.metric("deltaq_reflect_up", "") - 1.0).abs() < f64::EPSILON
}

/// The problem that the queue shows of its source.
fn problem(server: &Server) -> Value {
    let rows = server.run(&["sources", "q", "-o", "ndjson"]).ok();
    let rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).expect("JSON"));
    rows.map(|mut row| row["problem"]["detail"].take()).next().unwrap_or_default()
}

/// Answers each watch from a version with a refusal, until the queue equals the server again by a list.
fn refuse_watches(code: u16, body: &str) {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(true, 5);
    let reflecting = start(&server, &api, &upstream, &[]);
    let (listed, sent) = (Arc::new(AtomicUsize::new(0)), body.to_owned());
    let seen = Arc::clone(&listed);
    api.hook(move |request, reply| {
        let is_list = request.parameter("resourceVersion") == Some("");
        seen.fetch_add(usize::from(is_list), Ordering::Relaxed);
        if is_resumed(request) {
            reply.send(code, &[], &sent);
        }
        is_resumed(request)
    });
    api.apply(0, 1);
    api.delete(1);
    until_equal(&server, &api);
    assert!(listed.load(Ordering::Relaxed) > 0, "a list follows {code} {body}");
    api.0.0.lock().hook = None;
    until("the watch goes on", || is_up(&reflecting));
    api.apply(0, 2);
    until_equal(&server, &api);
    reflecting.stop();
}

#[test]
fn a_watch_from_a_version_that_the_server_lacks_leads_to_a_list() {
    refuse_watches(504, &status(504, "Too large resource version: 12, current: 7"));
    refuse_watches(410, &status(410, "too old resource version: 7 (12)"));
    // The server ends the watch at once and says nothing.
    refuse_watches(200, "");
}

#[test]
fn a_watch_that_fails_leads_to_a_list() {
    refuse_watches(500, &status(500, "an error on the server"));
    refuse_watches(302, "");
    refuse_watches(200, "<html>log in</html>\n");
}

#[test]
fn a_watch_that_is_not_allowed_any_more_leads_to_lists() {
    refuse_watches(404, "404 page not found");
    refuse_watches(405, &status(405, "the server does not allow this method"));
    refuse_watches(403, &status(403, "pods is forbidden"));
    refuse_watches(400, &status(400, "field label not supported"));
}

#[test]
fn what_a_server_says_of_its_refusal_is_shown_by_the_queue() {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(false, 5);
    let reflecting = start(&server, &api, &upstream, &[]);
    until("there is no problem", || problem(&server) == Value::Null);
    let says = r#"pods is forbidden: User "shop" cannot list resource "pods""#;
    api.hook(move |_, reply| {
        reply.send(403, &[], &status(403, says));
        true
    });
    api.fail(Fault::ExpiredEvent);
    api.apply(1, 7);
    until("the queue shows it", || problem(&server).as_str().is_some_and(|shown| shown.contains(says)));
    api.hook(|_, _| false);
    until_equal(&server, &api);
    until("it has passed", || problem(&server) == Value::Null);
    drop(reflecting);
}

#[test]
fn a_watch_that_is_refused_for_now_keeps_its_version() {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(false, 5);
    let reflecting = start(&server, &api, &upstream, &[]);
    let lists = api.counts().0;
    for code in [429, 503] {
        let refused = AtomicUsize::new(0);
        api.hook(move |request, reply| {
            let is_refused =
                request.parameter("watch").is_some() && refused.fetch_add(1, Ordering::Relaxed) < 2;
            if is_refused {
                reply.send(code, &["retry-after: 1"], &status(code, "storage is (re)initializing"));
            }
            is_refused
        });
        api.apply(1, usize::from(code));
        until_equal(&server, &api);
    }
    assert_eq!(api.counts().0, lists, "no list was needed");
    let log = reflecting.stop();
    assert!(log.contains("status 503 Service Unavailable: storage is (re)initializing"), "{log}");
}

#[test]
fn a_server_that_went_back_is_listed() {
    for has_watch_list in [false, true] {
        let server = Server::in_memory();
        let (api, upstream) = Api::start(has_watch_list, 20);
        let reflecting = start(&server, &api, &upstream, &[]);
        // The database is restored from a copy: older versions, other objects. A watch from a version of the future is silent.
        {
            let mut state = api.0.0.lock();
            state.version = 5;
            state.changes.clear();
            state.objects = state.objects.clone().into_iter().take(12).collect();
        }
        api.end_watch();
        until_equal(&server, &api);
        api.apply(1, 1);
        until_equal(&server, &api);
        assert!(reflecting.stop().contains("a list follows"));
    }
}

#[test]
fn a_server_that_does_not_know_initial_events_is_listed_by_pages() {
    for ends in [true, false] {
        let server = Server::in_memory();
        let (api, upstream) = Api::start(true, 3);
        let objects = api.clone();
        api.0.0.lock().hook = Some(Arc::new(move |request: &Request, reply: &mut Reply| {
            let is_initial = request.parameter("sendInitialEvents").is_some();
            if is_initial {
                reply.write("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
                objects.objects().values().for_each(|object| {
                    reply.write(&line("ADDED", object));
                });
                let bookmark = line("BOOKMARK", &json!({ "metadata": { "resourceVersion": "3" } }));
                while !ends && reply.write(&bookmark) {
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
            is_initial
        }));
        let reflecting = start(&server, &api, &upstream, &[]);
        assert!(api.counts().0 > 0, "pages were listed");
        api.apply(1, 1);
        until_equal(&server, &api);
        assert!(reflecting.stop().contains("pages are read instead"));
    }
}

#[test]
fn a_resource_that_cannot_be_watched_is_listed_once_per_interval() {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(false, 3);
    api.0.0.lock().hook = Some(Arc::new(|request: &Request, reply: &mut Reply| {
        let is_watch = request.parameter("watch").is_some();
        if is_watch {
            reply.send(
                405,
                &[],
                &status(405, "the server does not allow this method on the requested resource"),
            );
        }
        is_watch
    }));
    let reflecting = start(&server, &api, &upstream, &["--interval", "200ms"]);
    for image in 1..4 {
        api.apply(1, image);
        api.delete(2);
        until_equal(&server, &api);
        assert!(is_up(&reflecting));
    }
    api.0.0.lock().hook = None;
    until("the resource is watched", || api.counts().1 > 0);
    let log = reflecting.stop();
    assert_eq!(log.matches("can't be watched").count(), 1, "{log}");
    assert!(log.contains("does not allow this method") && !log.contains("not in step"), "{log}");
}

#[test]
fn what_is_no_list_is_a_failure_that_deletes_nothing() {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(false, 3);
    let config = kubeconfig(&server, &upstream);
    let once =
        [&["reflect"][..], &line_of(&config, &["--once", "--no-watch-list", "--allow-empty"])].concat();
    server.run(&once).ok();
    for (text, named) in [
        (
            json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "a", "resourceVersion": "7" } }),
            "the kind \"Pod\"",
        ),
        (
            json!({ "kind": "Status", "code": 500, "message": "an error on the server" }),
            "an error on the server",
        ),
        (
            json!({ "kind": "Table", "metadata": { "resourceVersion": "7" }, "rows": [] }),
            "the kind \"Table\"",
        ),
        (json!({ "kind": "PodList", "metadata": { "resourceVersion": "7" } }), "without items"),
        (json!({ "kind": "PodList", "metadata": { "resourceVersion": "7" }, "items": {} }), "no array"),
        (json!({ "items": [] }), "the kind \"\""),
    ] {
        api.0.0.lock().hook = Some(Arc::new(move |_: &Request, reply: &mut Reply| {
            reply.send(200, &[], &text.to_string());
            true
        }));
        let said = server.run(&once).failed(1);
        assert!(said.contains(named), "{named}: {said}");
        until_equal(&server, &api);
    }
    let empty = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": { "resourceVersion": "7" }, "items": null });
    api.0.0.lock().hook = Some(Arc::new(move |_: &Request, reply: &mut Reply| {
        reply.send(200, &[], &empty.to_string());
        true
    }));
    assert!(server.run(&once).ok().contains("3 deleted"));
}

#[test]
fn credentials_are_read_again_when_the_server_refuses_them() {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(true, 3);
    let reflecting = start(&server, &api, &upstream, &[]);
    let path = server.folder.path().join("kubeconfig");
    let text = std::fs::read_to_string(&path).expect("a file");
    for (token, former) in [("second", "tokenFile: token"), ("third", "token: second")] {
        let present = std::fs::read_to_string(&path).expect("a file");
        std::fs::write(&path, present.replace(former, &format!("token: {token}"))).expect("a file");
        api.0.0.lock().token = Some(token);
        api.end_watch();
        api.apply(1, token.len());
        until_equal(&server, &api);
    }
    // A token that is not valid any more, and is replaced later.
    api.0.0.lock().token = Some("fourth");
    api.end_watch();
    until("the failure shows", || !is_up(&reflecting));
    std::fs::write(&path, text.replace("tokenFile: token", "token: fourth")).expect("a file");
    api.apply(2, 7);
    until_equal(&server, &api);
    until("the source is up", || is_up(&reflecting));
    let log = reflecting.stop();
    assert_eq!(log.matches("not in step").count(), log.matches("401 Unauthorized").count(), "{log}");
}

#[test]
fn an_expired_version_leads_to_a_list_at_once() {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(false, 3);
    let reflecting = start(&server, &api, &upstream, &[]);
    for round in 1..4 {
        api.fail(Fault::ExpiredEvent);
        api.until_met();
        api.apply(1, round);
        until_equal(&server, &api);
    }
    let log = reflecting.stop();
    assert_eq!(log.matches("the version has expired (410); a list follows").count(), 3, "{log}");
    assert!(!log.contains("not in step"), "{log}");
}

#[test]
fn an_open_watch_is_up_without_an_event() {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(false, 3);
    let reflecting = start(&server, &api, &upstream, &[]);
    let refused = AtomicUsize::new(0);
    api.hook(move |request, reply| {
        if is_list(request) || request.parameter("watch").is_none() {
            return false;
        }
        if refused.fetch_add(1, Ordering::Relaxed) < 1 {
            reply.send(500, &[], &status(500, "etcdserver: leader changed"));
            return true;
        }
        reply.write("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
        // Nothing has changed, and no bookmark is due.
        std::thread::sleep(WATCH_MAX);
        true
    });
    until("the failure shows", || reflecting.log().contains("etcdserver: leader changed"));
    until("the source is up", || is_up(&reflecting));
    reflecting.stop();
}

#[test]
fn pages_behind_a_rate_limit_are_asked_for_again() {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(true, 1_001);
    let config = kubeconfig(&server, &upstream);
    let refused: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&refused);
    api.0.0.lock().hook = Some(Arc::new(move |request, reply| {
        let Some(page) = request.parameter("continue").map(str::to_owned) else { return false };
        let mut seen = seen.lock();
        let is_new = !seen.contains(&page);
        if is_new {
            reply.send(429, &["retry-after: 0"], &status(429, "Too many requests, please try again later."));
            seen.push(page);
        }
        is_new
    }));
    let once = [&["reflect"][..], &line_of(&config, &["--no-watch-list", "--once"])].concat();
    assert_eq!(server.run(&once).ok(), "s: 1001 objects, 1001 replaced, 0 deleted, 0 unchanged\n");
    assert_eq!((refused.lock().len(), api.counts()), (2, (3, 0)), "each page once more, and no list anew");
}

#[test]
fn an_object_that_the_queue_refuses_does_not_stop_the_others() {
    let server = Server::in_memory();
    let (api, upstream) = Api::start(true, 5);
    let reflecting = start(&server, &api, &upstream, &["--create", "max_object_bytes=1024"]);
    let former = api.objects();
    let large = |name: &str| json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "shop" }, "data": "x".repeat(2_000) });
    api.change("MODIFIED", "pod-0001", |_| large("pod-0001"));
    api.apply(2, 7);
    api.delete(3);
    let expected = |api: &Api| {
        let mut objects = api.objects();
        objects.insert("shop/pod-0001".to_owned(), former["shop/pod-0001"].clone());
        objects
    };
    let until_right = || {
        until("the other changes arrive", || {
            let rows = server.run(&["latest", "q", "-o", "ndjson"]).ok();
            let rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).expect("JSON"));
            let latest =
                rows.map(|row| (row["key"].as_str().expect("a key").to_owned(), row["object"].clone()));
            latest.collect::<BTreeMap<_, _>>() == expected(&api)
        });
    };
    until_right();
    reflecting.until_metric("deltaq_reflect_left_out_objects", "", 1.0);
    let shown = "the queue refuses an object: \"shop/pod-0001\" (object-too-large)";
    until("the queue shows it", || problem(&server) == shown);
    // The same object again is one object, and is reported once.
    api.change("MODIFIED", "pod-0001", |_| large("pod-0001"));
    api.apply(2, 9);
    until_right();
    assert!((reflecting.metric("deltaq_reflect_left_out_objects", "") - 1.0).abs() < f64::EPSILON);
    // The same in a list.
    api.fail(Fault::ExpiredEvent);
    api.until_met();
    api.apply(2, 8);
    until_right();
    assert!(is_up(&reflecting));
    // The queue takes it again.
    api.apply(1, 9);
    until("no object is left out", || reflecting.metric("deltaq_reflect_left_out_objects", "") < 0.5);
    until("the queue shows nothing", || problem(&server) == Value::Null);
    let log = reflecting.stop();
    assert!(log.contains("which is left out") && log.contains("shop/pod-0001"), "{log}");
    assert_eq!(log.matches("refuses an object").count(), 1, "{log}");
    assert!(log.contains("refuses no object any more"), "{log}");
}

#[test]
fn a_server_that_ignores_watches_is_listed_once_per_interval() {
    type Write = fn(&Value) -> String;
    let forms: [Write; 3] = [
        Value::to_string,
        |list| format!("{list}\n"),
        |list| serde_json::to_string_pretty(list).expect("JSON"),
    ];
    for form in forms {
        let server = Server::in_memory();
        let (api, upstream) = Api::start(true, 3);
        let of = api.clone();
        api.0.0.lock().hook = Some(Arc::new(move |request: &Request, reply: &mut Reply| {
            let is_watch = request.parameter("watch").is_some();
            if is_watch {
                let objects: Vec<Value> = of.objects().into_values().collect();
                let metadata = json!({ "resourceVersion": of.0.0.lock().version.to_string() });
                let list =
                    json!({ "kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": objects });
                reply.send(200, &["content-type: application/json"], &form(&list));
            }
            is_watch
        }));
        let reflecting = start(&server, &api, &upstream, &["--interval", "200ms"]);
        for image in 1..4 {
            api.apply(1, image);
            api.delete(2);
            until_equal(&server, &api);
            assert!(is_up(&reflecting));
        }
        api.0.0.lock().hook = None;
        until("the resource is watched", || api.counts().1 > 0);
        let log = reflecting.stop();
        assert_eq!(log.matches("can't be watched").count(), 1, "{log}");
        assert!(log.contains("has answered the watch with a list") && !log.contains("not in step"), "{log}");
    }
}
