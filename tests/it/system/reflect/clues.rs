//! What the errors of a source say, so that a user sees the mistake.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use super::Reflecting;
use super::upstream::Upstream;
use crate::access::tls::Authority;
use crate::system::cli::Server;

/// Answers each connection with the same bytes.
fn answering(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let _asked = stream.read(&mut [0; 4096]);
            let _gone = stream.write_all(answer);
        }
    });
    port
}

#[test]
fn a_reply_that_is_no_list_is_shown() {
    let upstream = Upstream::start(|request, reply| match request.target.as_str() {
        "/list" => reply.send(302, &["location: /login?token=hidden-in-query"], ""),
        "/text" => reply.send(200, &[], "Service\u{1b}[31m Unavailable\n"),
        "/latin" => reply.send_bytes(&["content-type: application/json"], b"[{\"key\":\"caf\xe9\"}]"),
        "/broken" => {
            reply.send(500, &["content-type: application/json"], "{\"error\":{\"message\":\"no\\tquota\"}}");
        }
        _ => reply.send(200, &["content-type: text/html"], "<!DOCTYPE html>\r\n<title>Log\u{7} in</title>"),
    });
    let server = Server::in_memory();
    for (path, expected) in [
        (
            "/list",
            [
                "/list answered with text/html from http://",
                "/login, which begins with \"<!DOCTYPE html> <title>Log in</title>\"",
                "it is not JSON",
            ],
        ),
        (
            "/text",
            [
                "/text answered with no content type, which begins with \"Service [31m Unavailable\"",
                "it is not JSON",
                "",
            ],
        ),
        ("/latin", ["/latin answered with application/json, which begins with", "it is not UTF-8", ""]),
        ("/broken", ["answered with status 500 Internal Server Error", "no quota", ""]),
    ] {
        let url = upstream.url(path);
        let failed = server.run(&["reflect", "q", "--source", "s", "--list", &url, "--once"]).failed(1);
        for part in expected {
            assert!(failed.contains(part), "{path}: {failed}");
        }
        assert!(
            !failed.contains(|c: char| c.is_control() && c != '\n') && !failed.contains("hidden"),
            "{failed:?}"
        );
    }
}

#[test]
fn http_and_https_are_told_apart() {
    let server = Server::in_memory();
    let plain = answering(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    // A handshake failure, as a server of TLS answers it to a request that is none.
    let tls = answering(b"\x15\x03\x01\x00\x02\x02\x46");
    for (url, expected) in [
        (format!("https://127.0.0.1:{plain}/"), "a server without TLS needs http://"),
        (format!("http://127.0.0.1:{tls}/"), "a server with TLS needs https://"),
    ] {
        let failed = server.run(&["reflect", "q", "--source", "s", "--list", &url, "--once"]).failed(1);
        assert!(failed.contains(expected), "{url}: {failed}");
    }
}

#[test]
fn a_refused_list_is_told_in_objects_and_flags() {
    let upstream = Upstream::start(|request, reply| {
        let good: Vec<Value> = (0..4).map(|at| json!({ "key": format!("k{at}") })).collect();
        let list = match request.target.as_str() {
            "/all" => good,
            "/one" => good[..1].to_vec(),
            "/few" => vec![good[0].clone(), json!({ "key": "b" }), json!({ "name": "c" })],
            _ => vec![good[0].clone(), json!({ "name": "b" }), json!({ "name": "c" })],
        };
        reply.send(200, &[], &Value::from(list).to_string());
    });
    let server = Server::in_memory();
    let url = upstream.url("/bad");
    let failed = server.run(&["reflect", "q", "--source", "s", "--list", &url, "--once"]).failed(1);
    assert!(failed.contains("object 2 of the list: ") && !failed.contains("line"), "{failed}");
    let url = upstream.url("/few");
    let run = server.run(&["reflect", "q", "--source", "s", "--list", &url, "--once"]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (Some(0), "s: 3 objects, 2 replaced, 0 deleted, 0 unchanged\n")
    );
    assert!(run.stderr.contains("the queue refuses an object, which is left out"), "{run:?}");
    let url = upstream.url("/all");
    server.run(&["reflect", "q", "--source", "s", "--list", &url, "--once"]).ok();
    let url = upstream.url("/one");
    let line = ["q", "--source", "s", "--list", &url, "--max-delete-percent", "30", "--max-deletes", "1"];
    let reflecting = Reflecting::start(&server, &line);
    reflecting.until_metric("deltaq_reflect_failures_total", "side=\"queue\"", 1.0);
    let log = reflecting.stop();
    assert!(log.contains("--max-delete-percent is 30 and --max-deletes is 1"), "{log}");
    assert!(
        log.contains("allow it once with --max-delete-percent 100") && !log.contains("max_delete"),
        "{log}"
    );
}

#[test]
fn an_authority_that_is_replaced_is_read_again() {
    let (old, new) = (Authority::new(), Authority::new());
    let pair = old.issue("server");
    let mut source = Server::with_settings(&[
        ("DELTAQ_SERVER__TLS_CERT", &pair.cert),
        ("DELTAQ_SERVER__TLS_KEY", &pair.key),
    ]);
    let server = Server::in_memory();
    let trusted = server.folder.path().join("ca.pem");
    std::fs::copy(old.certificates(), &trusted).expect("a file");
    let url = format!("https://localhost:{}/v1/queues", source.address.port());
    let file = trusted.display().to_string();
    let line = ["q", "--source", "s", "--list", &url, "--items", "/items", "--source-ca-file", &file];
    let reflecting = Reflecting::start(&server, &[&line[..], &["--interval", "50ms"]].concat());
    reflecting.until_lists(1);
    source.kill();
    let next = new.issue("server");
    std::fs::copy(&next.cert, &pair.cert).expect("a file");
    std::fs::copy(&next.key, &pair.key).expect("a file");
    source.start();
    crate::harness::waiting::until("the old authority is of no use", || {
        reflecting.log().contains("invalid peer certificate")
    });
    std::fs::copy(new.certificates(), &trusted).expect("a file");
    reflecting.until_metric("deltaq_reflect_up", "", 1.0);
    reflecting.stop();
}
