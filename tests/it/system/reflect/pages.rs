//! Lists of several pages whose server is slow, busy, broken or ambiguous.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
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

/// Signs of another page: a header, members beside the list, and the words of the failure that they cause.
fn signs() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        (
            "link: <?page=5>; rel=\"ne",
            json!({}),
            "the header Link can't be read: at byte 18 the end of a text in quotes",
        ),
        (
            "link: http://a/?page=5&key=hidden-in-query; rel=\"next\"",
            json!({}),
            "at byte 0 \"<\" before a URL",
        ),
        (
            "x-next-page: 5",
            json!({}),
            "the header x-next-page says that another page follows; --page-parameter",
        ),
        (
            "x-total-count: 20",
            json!({}),
            "the header x-total-count says that there are 20 objects, and it has 16",
        ),
        ("a: b", json!({ "has_more": true }), "its member /has_more says that another page follows"),
        (
            "a: b",
            json!({ "meta": { "next": "hidden-in-query" } }),
            "--next /meta/next with --next-parameter NAME leads to it",
        ),
        (
            "a: b",
            json!({ "cursor": "hidden-in-query" }),
            "--next /cursor with --next-parameter NAME leads to it",
        ),
        ("a: b", json!({ "total_things": 20 }), "says that there are 20 objects, and it has 16"),
        ("a: b", json!({ "has_more": "Y" }), "its member /has_more says that another page follows"),
        (
            "a: b",
            json!({ "data_links": [{ "rel": "next", "href": "/?page=5" }] }),
            "its member /data_links says that another page follows",
        ),
        (
            "a: b",
            json!({ "pagination": { "total_pages": 2 } }),
            "says that there are 2 pages, and 1 were read",
        ),
    ]
}

#[test]
fn a_sign_of_another_page_is_never_the_end() {
    type Shown = (Vec<String>, Value);
    let all: Vec<Value> = (1..=5).flat_map(page).collect();
    let shown: Arc<Mutex<Shown>> = Arc::new(Mutex::new((Vec::new(), json!({ "data": all }))));
    let state = Arc::clone(&shown);
    let upstream = Upstream::start(move |request, reply| {
        let (headers, body) = state.lock().clone();
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        match number(request) {
            1 => reply.send(200, &headers, &body.to_string()),
            number => reply.send(200, &[], &json!({ "data": page(number) }).to_string()),
        }
    });
    let server = Server::in_memory();
    let url = upstream.url("/?key=hidden-in-query");
    let once = |options: &[&str]| {
        let line = ["reflect", "q", "--source", "s", "--list", &url, "--items", "/data", "--once"];
        server.run(&[&line, options].concat())
    };
    once(&[]).ok();
    let part: Vec<Value> = (1..=4).flat_map(page).collect();
    for (header, members, expected) in signs() {
        let mut body = json!({ "data": part });
        body.as_object_mut().expect("an object").extend(members.as_object().expect("an object").clone());
        *shown.lock() = (vec![header.to_owned()], body);
        let failed = once(&[]).failed(1);
        assert!(failed.contains(expected) && failed.contains("--trust-end"), "{header}: {failed}");
        assert!(!failed.contains("hidden-in-query"), "{failed}");
        assert_eq!(latest(&server), 20, "{header}");
    }
    // A link in UTF-8 and single quotes is followed.
    *shown.lock() = (vec!["link: <?q=Zürich&page=5>; rel='next'".to_owned()], json!({ "data": part }));
    assert!(once(&[]).ok().contains("20 objects, 0 replaced, 0 deleted"));
    *shown.lock() = (vec![], json!({ "data": part, "total": 20 }));
    assert!(once(&["--trust-end"]).ok().contains("16 objects, 0 replaced, 4 deleted"));
}

#[test]
fn a_cursor_without_a_page_ends_the_list() {
    let upstream = Upstream::start(|request, reply| {
        let end = request.target.split(['/', '?']).nth(1).expect("a path");
        let last = format!("{{\"ids\":{},\"next_cursor\":{end}}}", Value::from(page(2)));
        match request.parameter("cursor") {
            None => reply.send(200, &[], &json!({ "ids": page(1), "next_cursor": 1374 }).to_string()),
            Some("1374") => reply.send(200, &[], &last.replace("%22", "\"")),
            Some(_) => reply.send(400, &[], "{}"),
        }
    });
    let server = Server::in_memory();
    for end in ["0", "-1", "null", "false", "%22%22", "%220%22", "%22-1%22"] {
        let url = upstream.url(&format!("/{end}"));
        let cursor = ["--next", "/next_cursor", "--next-parameter", "cursor", "--once"];
        let line = [&["reflect", "q", "--source", "s", "--list", &url, "--items", "/ids"][..], &cursor];
        assert!(server.run(&line.concat()).ok().starts_with("s: 8 objects"), "{end}");
    }
}

/// The number of keys of the queue `q` whose newest state is an object.
fn latest(server: &Server) -> usize {
    server.run(&["latest", "q", "-o", "ndjson"]).ok().lines().count()
}

#[test]
fn a_list_of_numbered_pages_ends_as_the_api_ends_it() {
    let upstream = Upstream::start(|request, reply| {
        let number = number(request);
        let body = |number| json!({ "results": page(number) }).to_string();
        match (request.target.split('?').next(), number) {
            // Knows no parameter.
            (Some("/same"), _) => reply.send(200, &[], &body(1)),
            (Some("/gone"), _) => reply.send(404, &[], "{}"),
            (_, 1 | 2) => reply.send(200, &[], &body(number)),
            (Some("/repeat"), _) => reply.send(200, &[], &body(2)),
            (Some("/400"), _) => reply.send(400, &[], "{}"),
            (Some("/empty"), _) => reply.send(200, &[], "{\"results\":[]}"),
            _ => reply.send(404, &[], "{\"detail\":\"Invalid page.\"}"),
        }
    });
    let server = Server::in_memory();
    let once = |path: &str, options: &[&str]| {
        let url = upstream.url(path);
        let line = ["reflect", "q", "--source", "s", "--list", &url, "--items", "/results", "--once"];
        server.run(&[&line[..], &["--page-parameter", "page"], options].concat())
    };
    for end in ["404", "400", "repeat"] {
        assert!(once(&format!("/{end}"), &["--page-end", end]).ok().starts_with("s: 8 objects"), "{end}");
        assert!(once("/empty", &["--page-end", end]).ok().starts_with("s: 8 objects"), "{end}");
        let failed = once(&format!("/{end}"), &[]).failed(1);
        assert!(failed.contains(&format!("if the list ends so, --page-end {end} says that")), "{failed}");
    }
    for (path, end, expected) in [
        ("/same", "repeat", "does the server know the parameter of the page?"),
        ("/gone", "404", "answered with status 404"),
        ("/400", "404", "answered with status 400"),
        ("/404", "repeat", "answered with status 404"),
    ] {
        let failed = once(path, &["--page-end", end]).failed(1);
        assert!(failed.contains(expected), "{path}: {failed}");
    }
    assert_eq!(latest(&server), 8);
    let alone = ["reflect", "q", "--source", "s", "--list", "http://a/", "--page-end", "404"];
    assert!(server.run(&alone).failed(2).contains("--page-end: page_parameter is required with it"));
}

#[test]
fn links_are_relative_to_the_page_behind_a_redirect() {
    let upstream = Upstream::start(|request, reply| match request.target.as_str() {
        "/list" => reply.send(302, &["location: /v2/all/?size=4"], ""),
        "/v2/all/?size=4" => {
            reply.send(
                200,
                &["link: <2>; rel=next"],
                &json!({ "next": "?page=2", "d": page(1) }).to_string(),
            );
        }
        "/v2/all/2" | "/v2/all/?page=2" => reply.send(200, &[], &json!({ "d": page(2) }).to_string()),
        _ => reply.send(404, &[], ""),
    });
    let server = Server::in_memory();
    let url = upstream.url("/list");
    for options in [&[][..], &["--next", "/next"]] {
        let line = ["reflect", "q", "--source", "s", "--list", &url, "--items", "/d", "--once"];
        assert!(server.run(&[&line, options].concat()).ok().starts_with("s: 8 objects"), "{options:?}");
    }
}

#[test]
fn a_reply_in_gzip_is_read_although_nobody_asked_for_it() {
    let packed = |bytes: &[u8]| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(bytes).and_then(|()| packed.finish()).expect("memory")
    };
    let plain = Value::from(page(1)).to_string().into_bytes();
    let list = packed(&plain);
    let (twice, large) = (packed(&list), packed(format!("[{}]", " ".repeat(1 << 20)).as_bytes()));
    let upstream = Upstream::start(move |request, reply| match request.target.as_str() {
        "/gzip" => reply.send_bytes(&["content-encoding: gzip"], &list),
        "/x-gzip" => reply.send_bytes(&["content-encoding: X-GZIP"], &list),
        "/file" => reply.send_bytes(&["content-type: application/gzip"], &list),
        "/cut" => reply.send_bytes(&["content-encoding: gzip"], &list[..list.len() - 9]),
        "/large" => reply.send_bytes(&["content-encoding: gzip"], &large),
        "/plain" => reply.send_bytes(&["content-encoding: gzip"], b"[]"),
        // The proxy names the encoding again, or packs the reply again.
        "/named-twice" => reply.send_bytes(&["content-encoding: gzip, gzip"], &list),
        "/twice" => reply.send_bytes(&["content-encoding: gzip", "content-encoding: gzip"], &twice),
        "/named-once" => reply.send_bytes(&["content-encoding: gzip"], &twice),
        "/identity,gzip" => reply.send_bytes(&["content-encoding: identity, gzip"], &list),
        "/aws-chunked,gzip" => reply.send_bytes(&["content-encoding: aws-chunked,gzip"], &list),
        "/gzip,br" => reply.send_bytes(&["content-encoding: gzip, br"], &list),
        "/three" => reply.send_bytes(&["content-encoding: gzip, gzip, gzip"], &twice),
        target if target.starts_with("/as-it-is/") => {
            let name = target.trim_start_matches("/as-it-is/");
            reply.send_bytes(&[&format!("content-encoding: {name}")], &plain);
        }
        _ => reply.send_bytes(&["content-encoding: br"], b"[]"),
    });
    let server = Server::in_memory();
    let once = |path: &str| {
        let url = upstream.url(path);
        server.run(&["reflect", "q", "--source", "s", "--list", &url, "--max-bytes", "65536", "--once"])
    };
    let names =
        ["utf-8", "UTF8", "none", "identity", "aws-chunked", "8bit", "binary", "identity,identity", ""];
    let taken = [
        "/gzip",
        "/x-gzip",
        "/file",
        "/twice",
        "/named-once",
        "/named-twice",
        "/identity,gzip",
        "/aws-chunked,gzip",
    ];
    for path in taken.map(str::to_owned).into_iter().chain(names.map(|name| format!("/as-it-is/{name}"))) {
        assert!(once(&path).ok().starts_with("s: 4 objects"), "{path}");
    }
    for (path, expected) in [
        ("/cut", "can't be unpacked as gzip"),
        ("/plain", "can't be unpacked as gzip"),
        ("/large", "has more than 65536 bytes (max_bytes)"),
        ("/gzip,br", "has the encoding \"gzip, br\", without being asked for it"),
        ("/three", "has the encoding \"gzip, gzip, gzip\", without being asked for it"),
        ("/as-it-is/deflate", "has the encoding \"deflate\", without being asked for it"),
        ("/as-it-is/compress", "has the encoding \"compress\", without being asked for it"),
        ("/br", "has the encoding \"br\", without being asked for it"),
    ] {
        let failed = once(path).failed(1);
        assert!(failed.contains(expected), "{path}: {failed}");
    }
}
