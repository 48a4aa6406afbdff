//! A REST list: pages, validators, headers, failures in the middle.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deltaq_runtime::clock;
use httpdate::fmt_http_date;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::upstream::{Reply, Request, Upstream};
use super::{Reflecting, by_key, counts, drain, known};
use crate::harness::waiting::until;
use crate::system::cli::Server;

/// Objects `sku-0`.. with a price.
fn objects(count: usize) -> Vec<Value> {
    (0..count).map(|number| json!({ "key": format!("sku-{number}"), "price": number })).collect()
}

/// A list that tests change, which a server sends in pages.
#[derive(Clone)]
struct Shop(Arc<Mutex<State>>);

struct State {
    objects: Vec<Value>,
    /// The page that fails, from 0, and how.
    failing: Option<(usize, Fault)>,
}

#[derive(Clone, Copy)]
enum Fault {
    Status(u16),
    Cut,
    NotJson,
}

impl Shop {
    fn new(objects: Vec<Value>) -> Self {
        Self(Arc::new(Mutex::new(State { objects, failing: None })))
    }

    fn set(&self, change: impl FnOnce(&mut Vec<Value>)) {
        change(&mut self.0.lock().objects);
    }

    fn fail(&self, failing: Option<(usize, Fault)>) {
        self.0.lock().failing = failing;
    }

    /// Replies with a page: headers, and the members of the reply besides `data`.
    fn page(
        &self,
        reply: &mut Reply,
        page: usize,
        size: usize,
        more: impl FnOnce(bool) -> (Vec<String>, Value),
    ) {
        let state = self.0.lock();
        let data: Vec<_> = state.objects.iter().skip(page * size).take(size).cloned().collect();
        let (headers, mut body) = more((page + 1) * size < state.objects.len());
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        body["data"] = data.into();
        let body = body.to_string();
        match state.failing.filter(|(failing, _)| *failing == page) {
            None => reply.send(200, &headers, &body),
            Some((_, Fault::Status(status))) => reply.send(status, &[], "{}"),
            Some((_, Fault::Cut)) => reply.send_cut(200, &headers, &body, body.len() / 2),
            Some((_, Fault::NotJson)) => reply.send(200, &headers, "<html>"),
        }
    }
}

fn number(request: &Request, name: &str) -> usize {
    request.parameter(name).map_or(0, |value| value.parse().expect("a number"))
}

/// An upstream with the objects of a shop in pages of ten, by a cursor, a URL, a number and a header.
fn paged(shop: &Shop) -> Upstream {
    let pages = shop.clone();
    Upstream::start(move |request, reply| match request.target.split('?').next().expect("a path") {
        "/cursor" => {
            let page = number(request, "after");
            pages.page(reply, page, 10, |more| {
                (vec![], json!({ "meta": { "next": more.then(|| (page + 1).to_string()) } }))
            });
        }
        "/url" => {
            let page = number(request, "at");
            pages.page(reply, page, 10, |more| {
                (vec![], json!({ "next": more.then(|| format!("?at={}", page + 1)) }))
            });
        }
        "/page" => pages.page(reply, number(request, "page") - 1, 10, |_| (vec![], json!({}))),
        _ => {
            let page = number(request, "p");
            let link = format!(
                "link: <http://{}/link?p={}>; rel=\"next\"",
                request.header("host").expect("a host"),
                page + 1
            );
            pages.page(reply, page, 10, |more| (if more { vec![link] } else { vec![] }, json!({})));
        }
    })
}

#[test]
fn pages_of_all_kinds_make_one_list() {
    let shop = Shop::new(objects(25));
    let upstream = paged(&shop);
    let server = Server::in_memory();
    for (path, options) in [
        ("/cursor", &["--next", "/meta/next", "--next-parameter", "after"][..]),
        ("/url", &["--next", "/next"]),
        ("/page", &["--page-parameter", "page", "--first-page", "1"]),
        ("/link", &[]),
    ] {
        let queue = &path[1..];
        let url = upstream.url(path);
        let line =
            [&["reflect", queue, "--source", "shop", "--list", &url, "--items", "/data", "--once"], options]
                .concat();
        assert_eq!(
            server.run(&line).ok(),
            "shop: 25 objects, 25 replaced, 0 deleted, 0 unchanged\n",
            "{path}"
        );
        assert_eq!(
            server.run(&line).ok(),
            "shop: 25 objects, 0 replaced, 0 deleted, 25 unchanged\n",
            "{path}"
        );
        assert_eq!(drain(&server, queue), counts(&[("Replaced", 25)]), "{path}");
        assert_eq!(known(&server, queue), by_key(&objects(25)), "{path}");

        // A page that fails changes nothing, whichever page and failure it is.
        shop.set(|objects| objects.truncate(21));
        for page in 0..3 {
            // A page behind the first one is asked for again after a failure that may pass.
            let faults = [Fault::Status(400), Fault::NotJson, Fault::Cut, Fault::Status(500)];
            for fault in &faults[..if page == 0 { 4 } else { 2 }] {
                shop.fail(Some((page, *fault)));
                let message = server.run(&line).failed(1);
                assert!(
                    message.starts_with("deltaq: source shop: http")
                        || message.contains("the connection broke"),
                    "{message}"
                );
            }
        }
        assert_eq!(drain(&server, queue), counts(&[]), "{path}");
        shop.fail(None);
        assert_eq!(
            server.run(&line).ok(),
            "shop: 21 objects, 0 replaced, 4 deleted, 21 unchanged\n",
            "{path}"
        );
        assert_eq!(drain(&server, queue), counts(&[("Deleted", 4)]), "{path}");
        assert_eq!(known(&server, queue), by_key(&objects(21)), "{path}");
        shop.set(|all| *all = objects(25));
    }
}

#[test]
fn a_list_that_has_not_changed_is_not_sent() {
    let state = Arc::new(Mutex::new((1, objects(3))));
    let shown = Arc::clone(&state);
    let upstream = Upstream::start(move |request, reply| {
        let (version, objects) = shown.lock().clone();
        let tag = format!("\"v{version}\"");
        if request.header("if-none-match") == Some(&tag) {
            reply.send(304, &[], "");
        } else {
            reply.send(200, &[&format!("etag: {tag}")], &Value::from(objects).to_string());
        }
    });
    let mut server = Server::durable();
    let url = upstream.url("/");
    let reflecting =
        Reflecting::start(&server, &["prices", "--source", "shop", "--list", &url, "--interval", "50ms"]);
    let sent = |count| reflecting.until_metric("deltaq_reflect_lists_total", "result=\"sent\"", count);
    let unchanged = || reflecting.metric("deltaq_reflect_lists_total", "result=\"unchanged\"");
    sent(1.0);
    reflecting.until_metric("deltaq_reflect_lists_total", "result=\"unchanged\"", 3.0);
    assert!((reflecting.metric("deltaq_reflect_lists_total", "result=\"sent\"") - 1.0).abs() < 0.1);
    *state.lock() = (2, objects(2));
    sent(2.0);
    reflecting.until_metric("deltaq_reflect_lists_total", "result=\"unchanged\"", unchanged() + 1.0);

    // A list that the queue could not take is sent whole again.
    server.kill();
    *state.lock() = (3, objects(4));
    reflecting.until_metric("deltaq_reflect_failures_total", "side=\"queue\"", 1.0);
    server.start();
    sent(3.0);
    assert_eq!(drain(&server, "prices"), counts(&[("Replaced", 5), ("Deleted", 1)]));
    assert_eq!(known(&server, "prices"), by_key(&objects(4)));
    let log = reflecting.stop();
    assert!(log.contains("its last list stays in force") && !log.contains("panick"), "{log}");
}

#[test]
fn a_file_that_is_written_twice_in_a_second_is_read_again() {
    // As a server of files does it: the time in seconds, and a tag of it and the size. The second content has the same of both.
    let state = Arc::new(Mutex::new((objects(3), now())));
    let shown = Arc::clone(&state);
    let upstream = Upstream::start(move |request, reply| {
        let (objects, written) = shown.lock().clone();
        let text = Value::from(objects).to_string();
        let (modified, now) = (fmt_http_date(written), fmt_http_date(now()));
        let tag = format!("\"{modified}-{}\"", text.len());
        let is_same = request
            .header("if-none-match")
            .map_or_else(|| request.header("if-modified-since") == Some(&modified), |known| known == tag);
        let headers = [format!("date: {now}"), format!("last-modified: {modified}"), format!("etag: {tag}")];
        let headers = headers.each_ref().map(String::as_str);
        if is_same { reply.send(304, &headers, "") } else { reply.send(200, &headers, &text) }
    });
    let server = Server::in_memory();
    let url = upstream.url("/");
    let line = ["prices", "--source", "shop", "--list", &url, "--interval", "20ms"];
    let reflecting = Reflecting::start(&server, &line);
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    state.lock().0[0]["price"] = json!(9);
    reflecting.until_metric("deltaq_reflect_changes_total", "type=\"replaced\"", 4.0);
    // Once the file is older, the server tells that it has not changed.
    reflecting.until_metric("deltaq_reflect_lists_total", "result=\"unchanged\"", 2.0);
    assert_eq!(drain(&server, "prices"), counts(&[("Replaced", 4)]));
    reflecting.stop();
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(clock::wall_us())
}

#[test]
fn a_tag_of_one_page_is_forgotten_after_a_list_of_two() {
    let phase = Arc::new(Mutex::new(1));
    let shown = Arc::clone(&phase);
    let upstream = Upstream::start(move |request, reply| {
        let all = objects(4);
        match (*shown.lock(), request.parameter("page")) {
            (2, None) => {
                reply.send(
                    200,
                    &["etag: \"two\"", "link: </?page=2>; rel=\"next\""],
                    &json!(all[..2]).to_string(),
                );
            }
            (2, Some(_)) => reply.send(200, &["etag: \"more\""], &json!(all[2..]).to_string()),
            _ if request.header("if-none-match") == Some("\"one\"") => reply.send(304, &[], ""),
            _ => reply.send(200, &["etag: \"one\""], &json!(all[..3]).to_string()),
        }
    });
    let server = Server::in_memory();
    let url = upstream.url("/");
    let line = ["prices", "--source", "shop", "--list", &url, "--interval", "50ms"];
    let reflecting = Reflecting::start(&server, &line);
    let sent = |count| reflecting.until_metric("deltaq_reflect_lists_total", "result=\"sent\"", count);
    reflecting.until_metric("deltaq_reflect_lists_total", "result=\"unchanged\"", 1.0);
    *phase.lock() = 2;
    sent(3.0);
    *phase.lock() = 3;
    reflecting.until_lists(3);
    drain(&server, "prices");
    assert_eq!(known(&server, "prices"), by_key(&objects(3)));
    reflecting.stop();
}

#[test]
fn a_source_that_is_down_deletes_nothing() {
    let shop = Shop::new(objects(5));
    let pages = shop.clone();
    let upstream = Upstream::start(move |_, reply| pages.page(reply, 0, 100, |_| (vec![], json!({}))));
    let server = Server::in_memory();
    let url = upstream.url("/?api_key=hidden-in-query");
    let line = ["prices", "--source", "shop", "--list", &url, "--items", "/data", "--interval", "20ms"];
    let reflecting = Reflecting::start(&server, &line);
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    shop.fail(Some((0, Fault::Status(500))));
    reflecting.until_metric("deltaq_reflect_failures_total", "side=\"source\"", 2.0);
    assert!(reflecting.metric("deltaq_reflect_up", "") < 0.5);
    assert_eq!(
        (reflecting.get("/readyz").0, reflecting.get("/livez").0, reflecting.get("/nothing").0),
        (503, 200, 404)
    );
    assert_eq!(drain(&server, "prices"), counts(&[("Replaced", 5)]));
    shop.set(|objects| objects[0]["price"] = json!(99));
    shop.fail(None);
    reflecting.until_metric("deltaq_reflect_up", "", 1.0);
    assert_eq!(drain(&server, "prices"), counts(&[("Replaced", 1)]));
    assert_eq!(known(&server, "prices")["sku-0"]["price"], 99);
    let log = reflecting.stop();
    assert!(log.contains("answered with status 500") && !log.contains("hidden-in-query"), "{log}");
}

#[test]
fn replies_that_are_no_list_are_failures() {
    let upstream = Upstream::start(|request, reply| match request.target.split('?').next() {
        Some("/unasked") => reply.send(304, &[], ""),
        Some("/part") => reply.send(206, &[], "[{\"key\":\"a\"}]"),
        Some("/packed") => reply.send(200, &["content-encoding: zstd"], "[]"),
        Some("/again") => reply.send(302, &["location: /again"], ""),
        Some("/busy") => reply.send(503, &["retry-after: Sat, 06 Nov 2094 08:49:37 GMT"], ""),
        _ => reply.send(200, &[], "[{\"key\":\"a\"}]"),
    });
    let server = Server::in_memory();
    for (path, expected) in [
        (
            "/unasked",
            "answered with status 304 Not Modified, without being asked whether the list has changed",
        ),
        ("/part", "answered with status 206 Partial Content: the list is not complete"),
        ("/packed", "has the encoding \"zstd\", without being asked for it"),
        ("/again", "answered with status 302 Found\n"),
        ("/busy", "answered with status 503 Service Unavailable\n"),
        ("/same", "in a row have the same objects; does the server know the parameter of the page?"),
    ] {
        let url = upstream.url(path);
        let line = ["reflect", "q", "--source", "s", "--list", &url, "--page-parameter", "number", "--once"];
        let failed = server.run(&line).failed(1);
        assert!(failed.contains(expected), "{path}: {failed}");
    }
    assert!(!server.run(&["queues", "-o", "ndjson"]).ok().contains("\"q\""), "the queue was created");
}

#[test]
fn mass_deletes_are_refused_as_the_flags_say() {
    let shop = Shop::new(objects(20));
    let pages = shop.clone();
    let upstream = Upstream::start(move |_, reply| pages.page(reply, 0, 100, |_| (vec![], json!({}))));
    let server = Server::in_memory();
    let url = upstream.url("/");
    let once = |options: &[&str]| {
        let line = ["reflect", "prices", "--source", "shop", "--list", &url, "--items", "/data", "--once"];
        server.run(&[&line, options].concat())
    };
    once(&[]).ok();
    shop.set(|objects| objects.truncate(8));
    let refused = once(&[]).failed(1);
    assert!(refused.contains("source shop, queue prices: ") && refused.contains("mass-delete"), "{refused}");
    assert!(once(&["--max-delete-percent", "30"]).failed(1).contains("mass-delete"));
    assert!(once(&["--max-deletes", "11"]).failed(1).contains("mass-delete"));
    assert!(once(&["--max-deletes", "12"]).ok().contains("12 deleted"));
    shop.set(Vec::clear);
    assert!(once(&[]).failed(1).contains("mass-delete"));
    assert!(once(&["--allow-empty"]).ok().contains("0 objects, 0 replaced, 8 deleted"));
    shop.set(|all| *all = [objects(2), vec![json!({ "key": "sku-0", "price": 9 })]].concat());
    assert!(once(&[]).failed(1).contains("duplicate-key"));
    assert!(once(&["--last-duplicate"]).ok().contains("2 replaced"));
}

#[test]
fn headers_come_from_a_file_that_is_read_at_each_list() {
    let upstream = Upstream::start(|request, reply| match request.header("authorization") {
        Some("Bearer two") => {
            reply.send(200, &["content-type: application/x-ndjson"], "{\"key\":\"a\"}\n\n{\"key\":\"b\"}\n");
        }
        _ => reply.send(401, &[], "{}"),
    });
    let server = Server::in_memory();
    let file = server.folder.path().join("headers");
    std::fs::write(&file, "Authorization: Bearer one\n").expect("a file");
    let (url, path) = (upstream.url("/"), file.display().to_string());
    let line = ["users", "--source", "crm", "--list", &url, "--header-file", &path, "--interval", "20ms"];
    let reflecting = Reflecting::start(&server, &line);
    reflecting.until_metric("deltaq_reflect_failures_total", "", 1.0);
    std::fs::write(&file, "Authorization: Bearer two\n").expect("a file");
    until("the list is accepted", || reflecting.get("/readyz").0 == 200);
    let log = reflecting.stop();
    assert!(log.contains("401") && log.contains("check its credentials") && !log.contains("Bearer"), "{log}");
    assert_eq!(server.count("users", "ready"), 2);
}

#[test]
fn redirects_to_other_servers_are_not_followed() {
    let other = Upstream::start(|_, reply| reply.send(200, &[], "[]"));
    let elsewhere = format!("location: {}", other.url("/"));
    let upstream = Upstream::start(move |request, reply| match request.target.as_str() {
        "/here" => reply.send(302, &["location: /list"], ""),
        "/list" => reply.send(200, &[], "{\"a\":{\"n\":1e999}}"),
        _ => reply.send(302, &[&elsewhere], ""),
    });
    let server = Server::in_memory();
    let once = |path: &str| {
        let url = upstream.url(path);
        server.run(&[
            "reflect",
            "q",
            "--source",
            "s",
            "--list",
            &url,
            "--map-key",
            "key",
            "--format",
            "json",
            "--timeout",
            "20s",
            "--once",
        ])
    };
    let refused = once("/there").failed(1);
    assert!(refused.contains("status 302 Found; a redirect to another server is not followed"), "{refused}");
    assert!(other.requests().is_empty());
    once("/here").ok();
    assert!(server.run(&["items", "q", "-o", "ndjson"]).ok().contains("{\"key\":\"a\",\"n\":1e999}"));
}
