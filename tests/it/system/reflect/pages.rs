//! Lists of several pages whose server is slow, busy, broken or ambiguous.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::Reflecting;
use super::upstream::{Reply, Request, Upstream};
use crate::system::cli::Server;

/// Objects `k0`.. of one page.
fn page(number: usize) -> Vec<Value> {
    (0..4).map(|at| json!({ "key": format!("k{number}-{at}") })).collect()
}

fn number(request: &Request) -> usize {
    request.parameter("page").map_or(1, |number| number.parse().expect("a number"))
}

/// Replies with a page, which links to the next one unless it is the last.
fn linked(reply: &mut Reply, number: usize, last: usize) {
    let link = format!("link: <?page={}>; rel=\"next\"", number + 1);
    let links = if number < last { vec![link.as_str()] } else { vec![] };
    reply.send(200, &links, &Value::from(page(number)).to_string());
}

#[test]
fn a_page_is_asked_for_again_after_a_failure_that_passes() {
    type Fail = fn(&mut Reply);
    let faults: [Fail; 7] = [
        |reply| reply.send(429, &["retry-after: 0"], "{}"),
        |reply| reply.send(502, &["content-type: text/html"], "<html>"),
        |reply| reply.send(503, &["retry-after: 0.1, 0.2"], ""),
        |reply| reply.send(403, &["x-ratelimit-remaining: 0", "x-ratelimit-reset: 1"], "{}"),
        |reply| reply.send(408, &[], ""),
        |reply| reply.send_cut(200, &[], "[{\"key\":\"cut\"}]", 7),
        |reply| {
            reply.write("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n");
        },
    ];
    let last = faults.len() + 1;
    let asked: Arc<Mutex<HashMap<usize, usize>>> = Arc::default();
    let counts = Arc::clone(&asked);
    let upstream = Upstream::start(move |request, reply| {
        let number = number(request);
        let times = *counts.lock().entry(number).and_modify(|times| *times += 1).or_insert(1);
        if number > 1 && times == 1 { faults[number - 2](reply) } else { linked(reply, number, last) }
    });
    let server = Server::in_memory();
    let url = upstream.url("/");
    let sent = server.run(&["reflect", "q", "--source", "s", "--list", &url, "--once"]).ok();
    assert!(sent.starts_with(&format!("s: {} objects, ", last * 4)), "{sent}");
    let expected = (1..=last).map(|number| (number, if number == 1 { 1 } else { 2 })).collect();
    assert_eq!(*asked.lock(), expected);
}

#[test]
fn a_page_whose_cursor_has_expired_ends_the_list() {
    let upstream = Upstream::start(|request, reply| match number(request) {
        1 => linked(reply, 1, 2),
        _ => reply.send(410, &[], "{}"),
    });
    let server = Server::in_memory();
    let url = upstream.url("/");
    let failed = server.run(&["reflect", "q", "--source", "s", "--list", &url, "--once"]).failed(1);
    assert!(failed.contains("answered with status 410"), "{failed}");
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn a_list_that_waits_for_a_page_is_not_in_step_and_ends_with_the_process() {
    let upstream = Upstream::start(|request, reply| match number(request) {
        1 => linked(reply, 1, 2),
        _ => reply.send(429, &["retry-after: 3000"], "{}"),
    });
    let server = Server::in_memory();
    let url = upstream.url("/?secret=hidden-in-query");
    let reflecting = Reflecting::start(&server, &["q", "--source", "s", "--list", &url]);
    reflecting.until_metric("deltaq_reflect_failures_total", "side=\"source\"", 1.0);
    assert!(reflecting.metric("deltaq_reflect_up", "") < 0.5);
    let log = reflecting.stop();
    assert!(log.contains("a page of the list has failed and is asked for again"), "{log}");
    assert!(log.contains("429 Too Many Requests") && log.contains("\"again_in\":\"3000"), "{log}");
    assert!(!log.contains("hidden-in-query"), "{log}");
}

#[test]
fn a_token_that_is_replaced_within_a_list_is_read_again() {
    let server = Server::in_memory();
    let file = server.folder.path().join("headers");
    std::fs::write(&file, "Authorization: Bearer one\n").expect("a file");
    let path = file.clone();
    let upstream =
        Upstream::start(move |request, reply| match (number(request), request.header("authorization")) {
            (1, _) => linked(reply, 1, 2),
            (_, Some("Bearer two")) => linked(reply, 2, 2),
            _ => {
                std::fs::write(&path, "Authorization: Bearer two\n").expect("a file");
                reply.send(401, &[], "{}");
            }
        });
    let (url, path) = (upstream.url("/"), file.display().to_string());
    let line = ["reflect", "q", "--source", "s", "--list", &url, "--header-file", &path, "--once"];
    assert!(server.run(&line).ok().starts_with("s: 8 objects"));
}
