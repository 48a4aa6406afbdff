//! Calls against servers that misbehave.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use futures_util::stream::iter;
use http::Method;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::*;

#[test]
fn a_token_with_a_line_break_is_refused() {
    let options =
        |token: &str| ClientOptions { token: Some(token.to_owned()), ..ClientOptions::new("localhost:1") };
    assert!(Client::new(options("abc\n")).is_ok(), "the line break at the end of a file is ignored");
    assert!(matches!(Client::new(options("a\nb")), Err(Error::Token)));
}

/// A server that takes requests and never answers.
fn silent_server() -> (Client, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = Client::at(listener.local_addr().unwrap().to_string()).unwrap();
    client.reply_timeout = Duration::from_millis(200);
    client.list_wait = Duration::from_millis(100);
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (connection, seen) = (connection.unwrap(), Arc::clone(&seen));
            std::thread::spawn(move || {
                let mut lines = BufReader::new(connection).lines().map_while(Result::ok);
                seen.lock().extend(lines.next());
                lines.for_each(drop);
            });
        }
    });
    (client, requests)
}

#[tokio::test]
async fn a_server_that_takes_a_stream_and_never_answers_is_silent() {
    let (client, _) = silent_server();
    let pieces = iter([Ok::<_, io::Error>(b"{}\n".to_vec()), Ok(b"{}\n".to_vec())]);
    let call = Call::on_queue(Method::POST, "q", ["replace"]).body(Body::lines(pieces));
    let reply = timeout(Duration::from_secs(20), client.send(call)).await.expect("it ends");
    assert!(reply.is_err_and(|error| matches!(error, Error::Silence { .. }) && error.is_outcome_unknown()));
}

type Shared<T> = Arc<Mutex<T>>;

/// A server that accepts one token. Returns its address, this token, and the tokens of the requests.
fn server_with_token() -> (String, Shared<String>, Shared<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (accepted, seen) = (Arc::new(Mutex::new(String::new())), Arc::new(Mutex::new(Vec::new())));
    let (known, requests) = (Arc::clone(&accepted), Arc::clone(&seen));
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let lines = BufReader::new(connection.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let token = head.iter().find_map(|line| line.strip_prefix("authorization: Bearer "));
            let status = if token == Some(&*known.lock()) { 200 } else { 401 };
            requests.lock().push(token.unwrap_or_default().to_owned());
            let reply =
                format!("HTTP/1.1 {status} Status\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}");
            connection.write_all(reply.as_bytes()).unwrap();
        }
    });
    (address, accepted, seen)
}

#[tokio::test]
async fn a_token_that_is_replaced_in_its_file_is_used_after_a_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let (url, accepted, seen) = server_with_token();
    let options = ClientOptions { token_file: Some(file.clone()), ..ClientOptions::new(url) };
    assert!(matches!(Client::new(options.clone()), Err(Error::TokenFile { .. })), "there is no file");
    std::fs::write(&file, "one\n").unwrap();
    let client = Client::new(options.clone()).unwrap();
    let call = || client.fetch::<serde_json::Value>(Call::new(Method::GET, ["v1", "info"]));
    let is_refused = |reply: Result<serde_json::Value, Error>| reply.unwrap_err().is_unauthorized();
    let tokens = || std::mem::take(&mut *seen.lock());

    "one".clone_into(&mut accepted.lock());
    call().await.unwrap();
    "two".clone_into(&mut accepted.lock());
    assert!(is_refused(call().await), "the file has the old token");
    for moment in ["", "a\nb"] {
        std::fs::write(&file, moment).unwrap();
        assert!(is_refused(call().await), "{moment:?}");
    }
    std::fs::remove_file(&file).unwrap();
    assert!(is_refused(call().await), "the file is absent");
    assert_eq!(tokens(), ["one"; 5]);

    std::fs::write(&file, "two").unwrap();
    for _ in 0..2 {
        call().await.unwrap();
    }
    assert_eq!(tokens(), ["one", "two", "two"]);

    // A stream can't be sent again. The next call has the new token.
    "three".clone_into(&mut accepted.lock());
    std::fs::write(&file, "three").unwrap();
    let lines = Body::lines(iter([Ok::<_, io::Error>(b"{}\n".to_vec())]));
    let streamed = client.send(Call::on_queue(Method::POST, "q", ["replace"]).body(lines)).await;
    assert!(streamed.is_err_and(|error| error.is_unauthorized()));
    call().await.unwrap();
    assert_eq!(tokens(), ["two", "three"]);

    let fixed = Client::new(ClientOptions { token: Some("old".to_owned()), token_file: None, ..options });
    assert!(fixed.unwrap().info().await.unwrap_err().is_unauthorized());
    assert_eq!(tokens(), ["old"]);
}

#[tokio::test]
async fn a_token_source_is_asked_for_each_attempt_and_again_after_a_refusal() {
    let (url, accepted, seen) = server_with_token();
    "two".clone_into(&mut accepted.lock());
    let tokens = Arc::new(Mutex::new(vec!["one", "two", "two\n"]));
    let left = Arc::clone(&tokens);
    let source = TokenSource::new(move || {
        let token = left.lock().pop();
        async move { token.map(str::to_owned).ok_or("no identity provider") }
    });
    let client =
        Client::new(ClientOptions { token_source: Some(source), ..ClientOptions::new(url) }).unwrap();
    client.info().await.unwrap_err();
    assert_eq!(*seen.lock(), ["two"], "the reply is no document");
    tokens.lock().push("one");
    client.info().await.unwrap_err();
    assert_eq!(*seen.lock(), ["two", "one", "two"]);
    tokens.lock().clear();
    let error = client.info().await.unwrap_err();
    assert!(
        matches!(error, Error::TokenSource { .. }) && error.is_temporary() && !error.is_retryable(),
        "{error}"
    );
    assert_eq!(seen.lock().len(), 3, "nothing was sent without a token");
}

#[tokio::test]
async fn a_queue_is_not_deleted_twice() {
    let (client, requests) = silent_server();
    let reply = client.queue("q").delete_queue().await;
    assert!(reply.is_err_and(|error| error.is_outcome_unknown()));
    while requests.lock().is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(*requests.lock(), ["DELETE /v1/queues/q HTTP/1.1"]);
}

/// A server that answers with one status and document, and keeps the first lines of the requests.
fn web(status: u16, document: &'static str) -> (String, Shared<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&seen);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let lines = BufReader::new(connection.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            requests.lock().extend(head.first().cloned());
            let head = format!(
                "HTTP/1.1 {status} Status\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                document.len()
            );
            connection.write_all((head + document).as_bytes()).unwrap();
        }
    });
    (address, seen)
}

/// An address without a server.
fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

const DRAINING: &str =
    r#"{"type":"","title":"","status":503,"detail":"","code":"draining","retryable":true,"request_id":""}"#;
const NOT_OWNER: &str =
    r#"{"type":"","title":"","status":503,"detail":"","code":"not-owner","retryable":true,"request_id":""}"#;

/// Calls that are not safe to repeat go on at the next server exactly if nothing was done.
#[tokio::test]
async fn a_call_that_is_not_safe_to_repeat_goes_on_where_nothing_was_done() {
    let ((draining, _), (strict, _), (other, _)) = (web(503, DRAINING), web(401, "{}"), web(404, "<html>"));
    let (second, seen) = web(200, r#"{"keys":0,"deltas":0}"#);
    for undone in [nobody(), draining, other, strict.clone(), format!("{},{strict},{}", nobody(), nobody())] {
        let client = Client::at(format!("{undone},{second}")).unwrap();
        client.queue("q").purge().await.unwrap();
        assert_eq!(std::mem::take(&mut *seen.lock()), ["POST /v1/queues/q/purge HTTP/1.1"], "{undone}");
        client.queue("q").purge().await.unwrap();
        assert_eq!(seen.lock().drain(..).len(), 1, "the client stays");
    }
    for (status, unknown) in [(503, NOT_OWNER), (502, "<html>"), (200, "<html>")] {
        let (first, _) = web(status, unknown);
        let client = Client::at(format!("{first},{second}")).unwrap();
        let refused = client.queue("q").purge().await;
        assert!(refused.is_err_and(|error| error.is_outcome_unknown()), "{status}");
        assert_eq!(*seen.lock(), Vec::<String>::new());
        if status != 200 {
            client.queue("q").purge().await.unwrap();
            seen.lock().clear();
        }
    }
    let lists = Client::at(format!("{},{second}", nobody())).unwrap();
    let lines = Body::lines(iter([Ok::<_, io::Error>(b"{}\n".to_vec())]));
    let call = Call::on_queue(Method::POST, "q", ["replace"]).body(lines);
    assert!(matches!(lists.send(call).await, Err(Error::Connect { .. })), "a stream can't be read twice");
    assert_eq!(lists.address(), format!("http://{second}"), "the next list goes to the next server");
    let refused = Client::at(format!("{strict},{strict}/other")).unwrap().info().await;
    assert!(refused.is_err_and(|error| error.is_unauthorized()));
    let nowhere = Client::at(format!("{},{}", nobody(), nobody())).unwrap();
    assert!(matches!(nowhere.send(Call::new(Method::GET, ["v1", "info"])).await, Err(Error::Connect { .. })));
}

/// A server that accepts connections and passes nothing on.
#[tokio::test]
async fn a_server_that_does_not_say_that_it_is_alive_is_left() {
    let (silent, requests) = silent_server();
    let (second, seen) = web(200, "{}");
    let mut client = Client::at(format!("{},{second}", silent.address())).unwrap();
    let servers = Arc::get_mut(&mut client.servers).unwrap();
    (servers.silence, servers.answer) = (Duration::from_millis(200), Duration::from_millis(300));
    let lost = client.queue("q").purge().await;
    assert!(lost.is_err_and(|error| matches!(error, Error::Silence { .. }) && error.is_outcome_unknown()));
    assert_eq!(*requests.lock(), ["POST /v1/queues/q/purge HTTP/1.1", "GET /livez HTTP/1.1"]);
    assert_eq!(*seen.lock(), Vec::<String>::new(), "the purge may have been applied");
    client.info().await.unwrap_err();
    assert_eq!(*seen.lock(), ["GET /v1/info HTTP/1.1"]);
}

/// A server that is slow to answer a call, such as a pop that waits, and says that it is alive.
#[tokio::test]
async fn a_server_that_is_alive_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = listener.local_addr().unwrap().to_string();
    let questions = Arc::new(Mutex::new(0));
    let asked = Arc::clone(&questions);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (mut connection, asked) = (connection.unwrap(), Arc::clone(&asked));
            std::thread::spawn(move || {
                let lines = BufReader::new(connection.try_clone().unwrap()).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let is_question = head.first().is_some_and(|line| line == "GET /livez HTTP/1.1");
                assert!(!is_question || !head.iter().any(|line| line.starts_with("authorization")));
                *asked.lock() += u32::from(is_question);
                while !is_question && *asked.lock() < 3 {
                    std::thread::sleep(Duration::from_millis(10));
                }
                connection
                    .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")
                    .unwrap();
            });
        }
    });
    let (second, seen) = web(200, "{}");
    let url = format!("{slow},{second}");
    let options = ClientOptions { token: Some("secret".to_owned()), ..ClientOptions::new(url) };
    let mut client = Client::new(options).unwrap();
    Arc::get_mut(&mut client.servers).unwrap().silence = Duration::from_millis(50);
    client.fetch::<serde_json::Value>(Call::new(Method::GET, ["v1", "info"])).await.unwrap();
    assert!(*questions.lock() >= 3 && seen.lock().is_empty());
}
