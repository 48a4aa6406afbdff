//! The files of the console as a browser gets them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use super::Guarded;
use crate::system::cli::Server;

/// Sends a request with these lines of a head; returns the head and the body of the reply.
#[track_caller]
fn exchange(server: SocketAddr, request: &str, lines: &[&str]) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(server).expect("a connection");
    let lines: String = lines.iter().map(|line| [line, "\r\n"].concat()).collect();
    let head = format!("{request} HTTP/1.1\r\nhost: {server}\r\nconnection: close\r\n{lines}\r\n");
    stream.write_all(head.as_bytes()).expect("a request");
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("a reply");
    let end = reply.windows(4).position(|part| part == b"\r\n\r\n").expect("a head");
    (String::from_utf8_lossy(&reply[..end]).to_lowercase(), reply[end + 4..].to_vec())
}

#[test]
fn a_browser_gets_the_files_of_the_repository_with_a_strict_policy() {
    let server = Server::in_memory();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("a file").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let request = format!("GET /console/{name}");
        let (head, body) = exchange(server.address, &request, &[]);
        assert!(head.starts_with("http/1.1 200"), "{name}: {head}");
        assert_eq!(body, std::fs::read(&path).expect("the file"), "{name}");
        for line in [
            "\r\ncontent-security-policy: default-src 'self'; ",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "\r\nx-content-type-options: nosniff",
            "\r\nreferrer-policy: no-referrer",
            "\r\ncache-control: no-cache",
        ] {
            assert!(head.contains(line), "{name}: {line} is not in {head}");
        }
        assert!(!head.contains("unsafe-"), "{name}: {head}");

        // The browser has a copy.
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: w/")).expect("a tag");
        let (head, body) = exchange(server.address, &request, &[&format!("if-none-match: W/{tag}")]);
        assert!(head.starts_with("http/1.1 304") && body.is_empty(), "{name}: {head}");
        let (head, _) = exchange(server.address, &request, &["if-none-match: \"other\""]);
        assert!(head.starts_with("http/1.1 200"), "{name}: {head}");
    }
    let (head, body) = exchange(server.address, "GET /console/key.js", &["accept-encoding: gzip"]);
    assert!(
        head.contains("\r\ncontent-encoding: gzip") && body.len() < 8_000,
        "{} bytes: {head}",
        body.len()
    );
}

#[test]
fn only_files_of_the_console_are_served_and_only_to_readers() {
    let server = Server::in_memory();
    for path in [
        "/console/none.js",
        "/console/../docs/plots/connections.svg",
        "/console/%2e%2e/docs/plots/connections.svg",
        "/console/..%2fdocs%2fplots%2fconnections.svg",
        "/console//etc/passwd",
        "/console/tests/",
    ] {
        let (head, body) = exchange(server.address, &format!("GET {path}"), &[]);
        assert!(head.starts_with("http/1.1 404"), "{path}: {head}");
        assert!(String::from_utf8_lossy(&body).contains("/problems/not-found\""), "{path}");
    }
    let (head, _) = exchange(server.address, "POST /console/", &["content-length: 0"]);
    assert!(head.starts_with("http/1.1 405"), "{head}");

    // A browser is led to the console, relative to wherever a proxy serves it.
    for (path, location) in [("/", "console/"), ("/console", "console/")] {
        let (head, _) = exchange(server.address, &format!("GET {path}"), &["accept: text/html,*/*;q=0.8"]);
        assert!(
            head.starts_with("http/1.1 307") && head.contains(&format!("\r\nlocation: {location}\r\n")),
            "{head}"
        );
    }
}

#[test]
fn the_files_need_no_token_and_can_be_turned_off() {
    let guarded = Guarded::start(&[]);
    let (head, _) = exchange(guarded.server.address, "GET /console/", &[]);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let (head, _) = exchange(guarded.server.address, "GET /v1/queues", &[]);
    assert!(head.starts_with("http/1.1 401"), "{head}");

    let server = Server::with_settings(&[("DELTAQ_CONSOLE__ENABLED", Path::new("false"))]);
    for path in ["/", "/console", "/console/", "/console/main.js"] {
        let (head, _) = exchange(server.address, &format!("GET {path}"), &["accept: text/html"]);
        assert!(head.starts_with("http/1.1 404"), "{path}: {head}");
    }
}
