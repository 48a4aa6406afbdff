//! Lists of several pages whose source changes while they are read, or whose server hides that a page is missing.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::upstream::{Reply, Request, Upstream};
use super::{Reflecting, drain};
use crate::harness::process::Run;
use crate::system::cli::Server;

const SIZE: usize = 20;

fn objects(count: usize) -> Vec<Value> {
    (0..count).map(|at| json!({ "key": format!("k{at:03}"), "n": at })).collect()
}

/// Rows that are sent in pages by their position.
#[derive(Clone)]
struct Rows(Arc<Mutex<(Vec<Value>, Vec<String>)>>);

impl Rows {
    fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new((objects(count), Vec::new()))))
    }

    /// The next readings each remove one of these rows after their first page.
    fn remove_while_reading(&self, keys: &[&str]) {
        self.0.lock().1 = keys.iter().map(|key| (*key).to_owned()).collect();
    }

    /// A page from this position on, and whether another one follows.
    fn page(&self, from: usize) -> (Vec<Value>, bool) {
        let (rows, removed) = &mut *self.0.lock();
        let page = rows.iter().skip(from).take(SIZE).cloned().collect();
        let follows = from + SIZE < rows.len();
        if from == 0 && !removed.is_empty() {
            let key = removed.remove(0);
            rows.retain(|row| row["key"] != *key);
        }
        (page, follows)
    }

    fn keys(&self) -> Vec<String> {
        self.0.lock().0.iter().map(|row| row["key"].as_str().expect("a text").to_owned()).collect()
    }
}

fn number(request: &Request, name: &str) -> usize {
    request.parameter(name).map_or(0, |number| number.parse().expect("a number"))
}

/// Replies as APIs do: with numbers, with a cursor in the reply, and with the header `Link`.
fn send(rows: &Rows, request: &Request, reply: &mut Reply) {
    if let Some(page) = request.parameter("page") {
        let page: usize = page.parse().expect("a number");
        return reply.send(200, &[], &json!({ "d": rows.page((page - 1) * SIZE).0 }).to_string());
    }
    let (from, count) = (number(request, "from"), rows.keys().len());
    let (page, follows) = rows.page(from);
    let link = format!("link: <?from={}>; rel=\"next\"", from + SIZE);
    let next = if follows { json!(from + SIZE) } else { Value::Null };
    match (request.target.starts_with("/link"), follows) {
        (true, true) => reply.send(200, &[&link], &json!({ "d": page }).to_string()),
        (true, false) => reply.send(200, &[], &json!({ "d": page }).to_string()),
        (false, _) => {
            reply.send(200, &[], &json!({ "d": page, "next": next, "count": count }).to_string());
        }
    }
}

fn latest(server: &Server, queue: &str) -> Vec<String> {
    let lines = server.run(&["latest", queue, "-o", "ndjson"]).ok();
    let key =
        |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["key"].as_str().map(str::to_owned);
    let mut keys: Vec<String> = lines.lines().filter_map(key).collect();
    keys.sort();
    keys
}

#[test]
fn a_row_that_is_removed_while_pages_are_read_takes_no_other_row_with_it() {
    let server = Server::in_memory();
    let kinds: [(&str, &str, &[&str]); 3] = [
        ("numbers", "/", &["--page-parameter", "page"]),
        ("cursor", "/", &["--next", "/next", "--next-parameter", "from"]),
        ("link", "/link", &[]),
    ];
    for (queue, path, flags) in kinds {
        let rows = Rows::new(60);
        let state = rows.clone();
        let upstream = Upstream::start(move |request, reply| send(&state, request, reply));
        let url = upstream.url(path);
        let once = || {
            let line = ["reflect", queue, "--source", "s", "--list", &url, "--items", "/d", "--once"];
            server.run(&[&line[..], flags].concat())
        };
        once().ok();
        let of_one_reading = upstream.requests().len();
        once().ok();
        assert_eq!(upstream.requests().len(), 2 * of_one_reading, "{queue}: nothing would be deleted");
        // One row goes, and the row at the beginning of the next page is on no page.
        rows.remove_while_reading(&["k003"]);
        assert!(once().ok().contains("0 deleted"), "{queue}");
        assert!(once().ok().contains("1 deleted"), "{queue}");
        assert_eq!(latest(&server, queue), rows.keys(), "{queue}");
        // A row goes in each reading. No other row is deleted, and the rows that have gone are deleted in time.
        for keys in [["k004", "k005"], ["k025", "k006"], ["k007", "k045"]] {
            rows.remove_while_reading(&keys);
            once().ok();
            let present = latest(&server, queue);
            assert!(rows.keys().iter().all(|key| present.contains(key)), "{queue}: {keys:?}");
        }
        assert!(latest(&server, queue).len() <= rows.keys().len() + 2, "{queue}: deletions go on");
        once().ok();
        assert_eq!(latest(&server, queue), rows.keys(), "{queue}");
        drain(&server, queue);
    }
}

/// Reads a list of 60 objects in numbered pages, and reads it again while `bad` replies to the page and the number of
/// the request for it. Otherwise, `end` replies to a page after the last. Returns the second run, and what is left.
fn read_twice(
    flags: &[&str],
    end: fn(&mut Reply),
    bad: fn(usize, usize, &mut Reply) -> bool,
) -> (Run, usize) {
    let asked: Arc<Mutex<Option<HashMap<usize, usize>>>> = Arc::default();
    let state = Arc::clone(&asked);
    let upstream = Upstream::start(move |request, reply| {
        let page = number(request, "page");
        let times = state.lock().as_mut().map(|asked| {
            let times = asked.entry(page).or_default();
            *times += 1;
            *times
        });
        let is_answered = times.is_some_and(|times| bad(page, times, reply));
        let list: Vec<Value> = objects(60).into_iter().skip((page - 1) * SIZE).take(SIZE).collect();
        match list.as_slice() {
            _ if is_answered => {}
            [] => end(reply),
            list => reply.send(200, &[], &json!({ "d": list }).to_string()),
        }
    });
    let server = Server::in_memory();
    let url = upstream.url("/");
    let line = ["reflect", "q", "--source", "s", "--list", &url, "--items", "/d", "--once"];
    let once = || server.run(&[&line[..], &["--page-parameter", "page"], flags].concat());
    assert!(once().ok().starts_with("s: 60 objects"), "{flags:?}");
    *asked.lock() = Some(HashMap::new());
    (once(), latest(&server, "q").len())
}

#[test]
fn a_page_that_is_no_end_does_not_end_numbered_pages() {
    type Bad = fn(usize, usize, &mut Reply) -> bool;
    type Outage = (&'static str, fn(&mut Reply), Bad);
    let third: [Bad; 10] = [
        |page, _, reply| page == 3 && sent(reply, 200, "{\"success\":false,\"message\":\"busy\",\"d\":[]}"),
        |page, _, reply| page == 3 && sent(reply, 200, "{\"code\":429,\"d\":[]}"),
        |page, _, reply| page == 3 && sent(reply, 200, "{\"d\":[],\"has_more\":true}"),
        |page, _, reply| page == 3 && sent(reply, 200, "{\"d\":[],\"next_page\":4}"),
        |page, _, reply| page == 3 && sent(reply, 200, "{\"d\":[],\"total_pages\":3}"),
        |page, _, reply| page == 3 && sent(reply, 200, "{\"message\":\"slow down\"}"),
        |page, _, reply| page == 3 && sent(reply, 202, "{\"d\":[]}"),
        |page, _, reply| page == 3 && sent(reply, 207, "{\"d\":[]}"),
        |page, _, reply| page == 2 && sent(reply, 200, "{\"d\":[{\"key\":\"k020\"}],\"partial\":true}"),
        |page, _, reply| {
            page == 2 && sent(reply, 200, "{\"d\":[{\"key\":\"k020\"}],\"errors\":[\"shard 2\"]}")
        },
    ];
    for (at, bad) in third.into_iter().enumerate() {
        let (run, left) = read_twice(&[], |reply| reply.send(200, &[], "{\"d\":[]}"), bad);
        assert_eq!((run.code, left), (Some(1), 60), "{at}: {run:?}");
    }
    // In an outage, the pages before have the status, too.
    let outages: [Outage; 3] = [
        (
            "404",
            |reply| reply.send(404, &[], "{}"),
            |page, times, reply| {
                (page == 3 || page == 2 && times > 1) && sent(reply, 404, "404 page not found")
            },
        ),
        (
            "400",
            |reply| reply.send(400, &[], "{}"),
            |page, times, reply| {
                (page == 3 || page == 2 && times > 1) && sent(reply, 400, "<h1>Bad Request</h1>")
            },
        ),
        (
            "404",
            |reply| reply.send(404, &[], "{}"),
            |page, times, reply| {
                (page == 3 || page == 2 && times > 1) && sent(reply, if page == 3 { 404 } else { 403 }, "")
            },
        ),
    ];
    for (status, end, bad) in outages {
        let (run, left) = read_twice(&["--page-end", status], end, bad);
        assert_eq!((run.code, left), (Some(1), 60), "{status}: {run:?}");
    }
}

fn sent(reply: &mut Reply, status: u16, body: &str) -> bool {
    reply.send(status, &[], body);
    true
}

/// The replies to one page, or from one page on, that are not those of the API, and the words of the failure.
const NO_PAGES: [(u16, &[&str], &str, &str); 16] = [
    (400, &[], "{}", "answered with status 400"),
    (401, &[], "{}", "answered with status 401"),
    (403, &[], "{}", "answered with status 403"),
    (404, &[], "{}", "answered with status 404"),
    (404, &["content-type: text/html"], "<h1>Not Found</h1>", "answered with status 404"),
    (410, &[], "", "answered with status 410"),
    (422, &[], "{\"d\":[]}", "answered with status 422"),
    (501, &[], "{\"d\":[]}", "answered with status 501"),
    (203, &[], "{\"d\":[]}", "answered with status 203"),
    (206, &[], "{\"d\":[]}", "answered with status 206"),
    (304, &[], "", "answered with status 304"),
    (302, &["location: http://127.0.0.1:9/login"], "", "a redirect to another server is not followed"),
    (302, &["location: /"], "", "was redirected to"),
    (200, &["content-type: text/html"], "<h1>Sign in</h1>", "which begins with"),
    (200, &[], "", "which begins with"),
    (200, &["content-type: text/html"], "null", "nothing at the pointer"),
];

#[test]
fn a_reply_that_is_no_page_deletes_nothing() {
    let fault: Arc<Mutex<Option<usize>>> = Arc::default();
    let (state, rows) = (Arc::clone(&fault), Rows::new(60));
    let upstream = Upstream::start(move |request, reply| {
        let position = number(request, "page").saturating_sub(1) * SIZE + number(request, "from");
        match *state.lock() {
            Some(at) if position == 40 => {
                let (status, headers, body, _) = NO_PAGES[at];
                reply.send(status, headers, body);
            }
            _ => send(&rows, request, reply),
        }
    });
    let server = Server::in_memory();
    let kinds: [(&str, &str, &[&str]); 3] = [
        ("numbers", "/", &["--page-parameter", "page"]),
        ("cursor", "/", &["--next", "/next", "--next-parameter", "from"]),
        ("link", "/link", &[]),
    ];
    for (queue, path, flags) in kinds {
        let url = upstream.url(path);
        let once = || {
            let line = ["reflect", queue, "--source", "s", "--list", &url, "--items", "/d", "--once"];
            server.run(&[&line[..], flags].concat())
        };
        *fault.lock() = None;
        assert!(once().ok().starts_with("s: 60 objects"), "{queue}");
        for (at, (status, .., expected)) in NO_PAGES.iter().enumerate() {
            *fault.lock() = Some(at);
            let failed = once().failed(1);
            let is_link = queue == "link" && *status == 302;
            assert!(is_link || failed.contains(expected), "{queue} {at}: {failed}");
            assert_eq!(latest(&server, queue).len(), 60, "{queue} {at}");
        }
    }
}

#[test]
fn an_end_before_other_pages_is_no_end() {
    type Bad = fn(usize, usize, &mut Reply) -> bool;
    type Case = (&'static [&'static str], fn(&mut Reply), Bad, &'static str);
    type Shorter = (&'static [&'static str], fn(&mut Reply), Bad);
    let empty: fn(&mut Reply) = |reply| reply.send(200, &[], "{\"d\":[]}");
    let not_found: fn(&mut Reply) = |reply| reply.send(404, &[], "{}");
    let bad_request: fn(&mut Reply) = |reply| reply.send(400, &[], "{}");
    let cases: [Case; 9] = [
        (&[], empty, |page, _, reply| page == 2 && sent(reply, 200, "{\"d\":[]}"), "has objects"),
        (&[], empty, |page, _, reply| page == 2 && sent(reply, 200, "{\"d\":null}"), "has objects"),
        (&[], empty, |page, _, reply| page == 2 && sent(reply, 200, "{}"), "has objects"),
        (&[], empty, |page, _, reply| page == 2 && sent(reply, 204, ""), "has objects"),
        (
            &["--page-end", "404"],
            not_found,
            |page, _, reply| page == 2 && sent(reply, 404, "404 page not found"),
            "is not refused",
        ),
        // The pages behind the last one are refused, too.
        (
            &["--page-end", "404"],
            not_found,
            |page, _, reply| page == 3 && sent(reply, 404, "") || page == 4 && sent(reply, 200, "{\"d\":[]}"),
            "is not refused",
        ),
        (
            &["--page-end", "404"],
            not_found,
            |page, _, reply| {
                let is_last = page == 3;
                if is_last {
                    reply.send(404, &["content-type: text/plain"], "404 page not found");
                }
                is_last
            },
            "is refused in another way",
        ),
        (
            &["--page-end", "400"],
            bad_request,
            |page, _, reply| page == 2 && sent(reply, 400, "<h1>Bad Request</h1>"),
            "is not refused",
        ),
        (
            &[],
            empty,
            |page, _, reply| page == 3 && sent(reply, 200, &json!({ "d": objects(SIZE) }).to_string()),
            "have the same objects",
        ),
    ];
    for (at, (flags, end, bad, expected)) in cases.into_iter().enumerate() {
        let (run, left) = read_twice(flags, end, bad);
        assert_eq!((run.code, left), (Some(1), 60), "{at}: {run:?}");
        assert!(run.stderr.contains(expected), "{at}: {run:?}");
    }
    // A shorter list is accepted, however the API ends it.
    let shorter: [Shorter; 5] = [
        (&[], empty, |page, _, reply| page == 3 && sent(reply, 200, "{\"d\":[]}")),
        (&[], |reply| reply.send(204, &[], ""), |page, _, reply| page == 3 && sent(reply, 204, "")),
        (&[], empty, |page, _, reply| match page {
            3 => sent(reply, 200, "{\"d\":[]}"),
            page => page > 3 && sent(reply, 422, "{}"),
        }),
        (&["--page-end", "404"], not_found, |page, _, reply| page == 3 && sent(reply, 404, "{}")),
        (&["--page-end", "400"], bad_request, |page, _, reply| page == 3 && sent(reply, 400, "{}")),
    ];
    for (at, (flags, end, fewer)) in shorter.into_iter().enumerate() {
        let (run, left) = read_twice(flags, end, fewer);
        assert_eq!((run.code, left), (Some(0), 40), "{at}: {run:?}");
    }
}
#[test]
fn a_page_without_a_list_is_an_empty_page() {
    let ends: [fn(&mut Reply); 4] = [
        |reply| reply.send(200, &[], "{\"d\":null}"),
        |reply| reply.send(200, &[], "{}"),
        |reply| reply.send(204, &[], ""),
        |reply| reply.send(200, &[], "{\"d\":[]}"),
    ];
    for end in ends {
        let (run, left) = read_twice(&[], end, |_, _, _| false);
        assert_eq!((run.code, left), (Some(0), 60), "{run:?}");
    }
    let upstream =
        Upstream::start(|request, reply| match (request.target.as_str(), number(request, "from")) {
            ("/204", _) => reply.send(204, &[], ""),
            ("/null", _) => reply.send(200, &[], "{\"d\":null}"),
            ("/none", _) => reply.send(200, &[], "{}"),
            (_, 0) => reply.send(200, &[], &json!({ "d": objects(2), "next": 2 }).to_string()),
            (_, 2) => reply.send(200, &[], "{\"next\":4}"),
            _ => reply.send(200, &[], "{\"d\":[{\"key\":\"last\"}]}"),
        });
    let server = Server::in_memory();
    let once = |path: &str| {
        let url = upstream.url(path);
        let line = ["reflect", "q", "--source", "s", "--list", &url, "--items", "/d", "--next", "/next"];
        server.run(&[&line[..], &["--next-parameter", "from", "--once"]].concat())
    };
    assert!(once("/").ok().starts_with("s: 3 objects"));
    for path in ["/204", "/null", "/none"] {
        once(path).failed(1);
    }
}

#[test]
fn a_tag_of_the_objects_does_not_hide_a_second_page() {
    // The tag is that of the objects of the page, and only a header says that another page follows.
    let all = Arc::new(Mutex::new(objects(7)));
    let state = Arc::clone(&all);
    let upstream = Upstream::start(move |request, reply| {
        let all = state.lock().clone();
        let (size, has_link) = if request.target.starts_with("/ten") { (10, false) } else { (7, true) };
        let from = number(request, "from");
        let page: Vec<Value> = all.iter().skip(from).take(size).cloned().collect();
        let tag = format!("etag: \"{}\"", page.len());
        let link = format!("link: <?from={}>; rel=next", from + size);
        let follows = all.len() > from + size;
        let known = request.header("if-none-match").is_some_and(|known| tag.ends_with(known));
        let mut headers = vec![tag.as_str()];
        if follows && (has_link || !known) {
            headers.push(&link);
        }
        if known {
            reply.send(304, &headers, "");
        } else {
            reply.send(200, &headers, &Value::from(page).to_string());
        }
    });
    let server = Server::in_memory();
    for (path, first, second) in [("/seven", 7, 8), ("/ten", 10, 11)] {
        *all.lock() = objects(first);
        let url = upstream.url(path);
        let queue = path.trim_start_matches('/');
        let reflecting =
            Reflecting::start(&server, &[queue, "--source", "s", "--list", &url, "--interval", "50ms"]);
        reflecting.until_metric("deltaq_reflect_objects", "", f64::from(u32::try_from(first).expect("few")));
        reflecting.until_lists(2);
        *all.lock() = objects(second);
        reflecting.until_metric("deltaq_reflect_objects", "", f64::from(u32::try_from(second).expect("few")));
        reflecting.stop();
    }
}

#[test]
fn an_older_file_with_other_content_is_read() {
    let old = Arc::new(Mutex::new(false));
    let state = Arc::clone(&old);
    // As a simple server of files does it: whatever is not newer has not changed.
    let upstream = Upstream::start(move |request, reply| {
        let is_old = *state.lock();
        let time = if is_old { "Fri, 27 Nov 2026 08:00:00 GMT" } else { "Fri, 27 Nov 2026 09:00:00 GMT" };
        let headers = [format!("last-modified: {time}"), "date: Fri, 27 Nov 2026 10:00:00 GMT".to_owned()];
        let headers = headers.each_ref().map(String::as_str);
        match request.header("if-modified-since") {
            Some(_) => reply.send(304, &headers, ""),
            None => reply.send(200, &headers, &json!(objects(if is_old { 4 } else { 3 })).to_string()),
        }
    });
    let server = Server::in_memory();
    let url = upstream.url("/");
    let reflecting =
        Reflecting::start(&server, &["q", "--source", "s", "--list", &url, "--interval", "50ms"]);
    reflecting.until_metric("deltaq_reflect_objects", "", 3.0);
    *old.lock() = true;
    reflecting.until_metric("deltaq_reflect_objects", "", 4.0);
    reflecting.stop();
}

#[test]
fn a_row_on_two_pages_is_one_and_what_is_no_object_is_left_out() {
    let upstream =
        Upstream::start(|request, reply| match (request.target.as_str(), number(request, "from")) {
            ("/twins", _) => reply.send(200, &[], "[{\"key\":\"a\",\"n\":1},{\"key\":\"a\",\"n\":2}]"),
            ("/null", _) => reply.send(200, &[], "[{\"key\":\"k000\",\"n\":0},null,{\"key\":\"new\"}]"),
            ("/numbers", _) => reply.send(200, &[], "[1,2,3]"),
            ("/long", _) => {
                let long = "x".repeat(1_100);
                reply.send(
                    200,
                    &[],
                    &json!([{ "key": "k000" }, { "key": long }, { "key": "new" }]).to_string(),
                );
            }
            (_, 0) => reply.send(200, &["link: </?from=2>; rel=next"], &json!(objects(3)).to_string()),
            _ => reply.send(200, &[], &json!(objects(5)[2..]).to_string()),
        });
    let server = Server::in_memory();
    let once = |path: &str| {
        let url = upstream.url(path);
        server.run(&["reflect", "q", "--source", "s", "--list", &url, "--once"])
    };
    assert!(once("/").ok().starts_with("s: 5 objects"));
    assert!(once("/twins").failed(1).contains("have the same key"));
    once("/numbers").failed(1);
    let run = once("/null");
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stderr.contains("the list deletes nothing"), "{run:?}");
    assert_eq!(latest(&server, "q").len(), 6);
    assert!(latest(&server, "q").contains(&"new".to_owned()));
    // The queue has no key like a text that can't be a key.
    let run = once("/long");
    assert!(run.stdout.contains("4 deleted") && run.stderr.contains("invalid-key"), "{run:?}");
    assert!(run.stderr.contains(&"x".repeat(1_024)) && !run.stderr.contains("deletes nothing"), "{run:?}");
    assert_eq!(latest(&server, "q"), ["k000", "new"]);
}

#[test]
fn lines_without_a_length_are_refused() {
    let upstream = Upstream::start(|request, reply| {
        let length = if request.target == "/cut" { "" } else { "content-length: 12\r\n" };
        reply.write(&format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n{length}\r\n{{\"key\":\"a\"}}\n"
        ));
    });
    let server = Server::in_memory();
    let once = |path: &str| {
        let url = upstream.url(path);
        server.run(&["reflect", "q", "--source", "s", "--list", &url, "--once"])
    };
    assert!(once("/").ok().starts_with("s: 1 objects"));
    assert!(once("/cut").failed(1).contains("lines without a length"));
}

#[test]
fn a_reply_that_repeats_a_secret_is_shown_without_it() {
    let upstream = Upstream::start(|request, reply| {
        let token = request.header("authorization").unwrap_or_default().to_owned();
        match request.target.split('?').next() {
            Some("/html") => {
                reply.send(200, &["content-type: text/html"], &format!("<p>GET {} {token}", request.target));
            }
            Some("/json") => reply.send(
                404,
                &[],
                &json!({ "message": format!("no {} for {token}", request.target) }).to_string(),
            ),
            _ => reply.send(401, &[], &format!("unknown token {token} at {}", request.target)),
        }
    });
    let server = Server::in_memory();
    let file = server.folder.path().join("headers");
    std::fs::write(&file, "Authorization: Bearer hidden-token\n").expect("a file");
    let headers = file.display().to_string();
    let queries = ["api_key=hidden%20key&sign=hidden-sign", "hidden-token", "page=12345&hidden%20key"];
    let paths = ["/html", "/json", "/text"].iter().flat_map(|path| queries.map(|query| (path, query)));
    for (path, query) in paths {
        let url = upstream.url(&format!("{path}?{query}"));
        let line = ["reflect", "q", "--source", "s", "--list", &url, "--header-file", &headers, "--once"];
        let failed = server.run(&line).failed(1);
        assert!(failed.contains("***") && !failed.contains("hidden"), "{path}: {failed}");
    }
}
