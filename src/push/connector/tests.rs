//! The connections of a sender: to which addresses, how many, and how long they are kept.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deltaq_types::Push;
use futures_util::StreamExt as _;
use futures_util::stream;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::config;
use crate::push::{Answer, Call, Sender};

/// A policy for any port of `shop.example`, and of addresses in these networks.
fn policy(networks: &[&str]) -> Policy {
    let settings = config::Push {
        allow: vec!["http://shop.example:*".to_owned()],
        allow_networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
        ..config::Push::default()
    };
    Policy::read(&settings).unwrap()
}

/// A sender to a port of `shop.example`.
fn sender(policy: &Policy, lookup: Lookup, port: u16) -> Sender {
    let push = serde_json::json!({"url": format!("http://shop.example:{port}/"), "format": "raw"});
    let push: Push = serde_json::from_value(push).unwrap();
    Sender::new(Connector::looking_up(policy, lookup).unwrap(), policy.endpoint("q", &push).unwrap())
}

/// Sends a request with this body.
async fn send(sender: &Sender, body: Bytes) -> Answer {
    let call = Call { id: "a".to_owned(), timestamp: 1, headers: HeaderMap::new(), body, keys: 1 };
    sender.send(call, Duration::from_mins(1)).await
}

/// Sends a request to `shop.example`, whose name server gives these answers, one after the other.
async fn sends(networks: &[&str], answers: &[&[&str]], port: u16) -> Vec<Answer> {
    let addresses = |texts: &&[&str]| -> Vec<SocketAddr> {
        texts.iter().map(|text| SocketAddr::new(text.parse::<IpAddr>().unwrap(), 0)).collect()
    };
    let left = Arc::new(Mutex::new(answers.iter().map(addresses).collect::<VecDeque<_>>()));
    let lookup: Lookup = Arc::new(move |_name| {
        let next = left.lock().pop_front().unwrap_or_default();
        Box::pin(std::future::ready(Ok(next)))
    });
    let sender = sender(&policy(networks), lookup, port);
    let mut received = Vec::new();
    for _ in answers {
        received.push(send(&sender, Bytes::new()).await);
    }
    received
}

/// Finds 127.0.0.1 after this time.
fn after(wait: Duration) -> Lookup {
    Arc::new(move |_name| {
        Box::pin(async move {
            tokio::time::sleep(wait).await;
            Ok(vec![SocketAddr::new("127.0.0.1".parse().unwrap(), 0)])
        })
    })
}

fn is_forbidden(answer: &Answer) -> bool {
    matches!(answer, Answer::None { why } if why.contains("not global"))
}

fn is_success(answer: &Answer) -> bool {
    matches!(answer, Answer::Status { status: 204, .. })
}

/// Gives each connection to an address to a task of its own, and counts them.
async fn serve<F: Future<Output = ()> + Send + 'static>(
    address: &str,
    talk: impl Fn(TcpStream) -> F + Send + 'static,
) -> (u16, Arc<Mutex<usize>>) {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(0)));
    let counted = count.clone();
    #[expect(clippy::disallowed_methods, reason = "a test needs no orderly end")]
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            *counted.lock() += 1;
            tokio::spawn(talk(stream));
        }
    });
    (port, count)
}

/// Answers each connection to one address once, and counts them.
async fn listener(address: &str) -> (u16, Arc<Mutex<usize>>) {
    serve(address, async |mut stream: TcpStream| {
        let mut head = [0; 4_096];
        let _ = stream.read(&mut head).await;
        let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
    })
    .await
}

#[tokio::test]
async fn a_name_of_an_inner_address_is_not_connected_to() {
    let (port, count) = listener("127.0.0.1").await;
    let inner: [&[&str]; 5] =
        [&["127.0.0.1"], &["::ffff:127.0.0.1"], &["::1", "127.0.0.1"], &["10.0.0.1"], &[]];
    for answer in sends(&[], &inner, port).await {
        assert!(is_forbidden(&answer), "{answer:?}");
    }
    assert_eq!(*count.lock(), 0);
}

#[tokio::test]
async fn a_name_that_changes_its_address_gains_nothing() {
    let (port, count) = listener("127.0.0.1").await;
    // The first answer is permitted, and the next ones are not.
    let answers: [&[&str]; 3] = [&["127.0.0.1"], &["127.0.0.2"], &["0.0.0.0"]];
    let received = sends(&["127.0.0.1/32"], &answers, port).await;
    assert!(is_success(&received[0]), "{received:?}");
    assert!(is_forbidden(&received[1]) && is_forbidden(&received[2]), "{received:?}");
    assert_eq!(*count.lock(), 1);
}

#[tokio::test]
async fn every_address_of_an_answer_is_checked() {
    let (port, count) = listener("127.0.0.1").await;
    // Nothing listens on the permitted address, and the request must not fall back to the other one.
    let received = sends(&["127.0.0.9/32"], &[&["127.0.0.9", "127.0.0.1"]], port).await;
    assert!(matches!(&received[0], Answer::None { .. }) && !is_forbidden(&received[0]), "{received:?}");
    assert_eq!(*count.lock(), 0);
}

#[tokio::test]
async fn a_proxy_gets_all_requests_and_only_its_name_may_be_an_inner_address() {
    let (port, count) = listener("127.0.0.1").await;
    let settings = config::Push {
        allow: vec!["http://shop.example:*".to_owned()],
        proxy: Some(format!("http://proxy.internal:{port}")),
        ..config::Push::default()
    };
    let policy = Policy::read(&settings).unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = asked.clone();
    let lookup: Lookup = Arc::new(move |name| {
        noted.lock().push(name);
        Box::pin(std::future::ready(Ok(vec![SocketAddr::new("127.0.0.1".parse().unwrap(), 0)])))
    });
    let answer = send(&sender(&policy, lookup, 9), Bytes::new()).await;
    assert!(is_success(&answer), "{answer:?}");
    assert_eq!((*count.lock(), &**asked.lock()), (1, &["proxy.internal".to_owned()][..]));
}

/// Reads heads of requests without a body and answers them, one after the other.
async fn answer_all(mut stream: TcpStream) {
    let mut head = [0; 4_096];
    while stream.read(&mut head).await.is_ok_and(|read| read > 0) {
        let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    }
}

#[tokio::test]
async fn there_are_never_more_connections_than_requests_at_once() {
    let (port, count) = serve("127.0.0.1", answer_all).await;
    // A connection takes longer than an answer, so most requests could be done by one that another request has opened.
    let sender = sender(&policy(&["127.0.0.1/32"]), after(Duration::from_millis(20)), port);
    let requests = stream::iter(0..200).map(|_| send(&sender, Bytes::new())).buffer_unordered(4);
    let answers: Vec<Answer> = requests.collect().await;
    assert!(answers.iter().all(is_success), "{answers:?}");
    assert!(*count.lock() <= 4, "{} connections", *count.lock());
}

#[tokio::test]
async fn a_connection_whose_endpoint_leaves_a_request_unread_is_not_kept() {
    let (port, count) = serve("127.0.0.1", async |mut stream: TcpStream| {
        let mut head = [0; 64];
        let _ = stream.read(&mut head).await;
        let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
        std::future::pending::<()>().await;
    })
    .await;
    let sender = sender(&policy(&["127.0.0.1/32"]), after(Duration::ZERO), port);
    for _ in 0..2 {
        let answer = send(&sender, vec![b'a'; 16 << 20].into()).await;
        assert!(is_success(&answer), "{answer:?}");
    }
    assert_eq!(*count.lock(), 2);
    assert_eq!(sender.close_idle(tokio::time::Instant::now()), None);
}

#[tokio::test]
async fn a_connection_is_closed_after_four_idle_seconds() {
    let (port, count) = serve("127.0.0.1", answer_all).await;
    let sender = sender(&policy(&["127.0.0.1/32"]), after(Duration::ZERO), port);
    for _ in 0..2 {
        assert!(is_success(&send(&sender, Bytes::new()).await));
    }
    assert_eq!(*count.lock(), 1);
    let now = tokio::time::Instant::now();
    let until = sender.close_idle(now).unwrap();
    assert!(until <= now + Duration::from_secs(4));
    assert_eq!(sender.close_idle(until), None);
    assert!(is_success(&send(&sender, Bytes::new()).await));
    assert_eq!(*count.lock(), 2);
}

#[tokio::test]
async fn a_retired_sender_keeps_no_connection() {
    let (port, count) = serve("127.0.0.1", answer_all).await;
    let sender = sender(&policy(&["127.0.0.1/32"]), after(Duration::ZERO), port);
    for connections in 1..=2 {
        assert!(is_success(&send(&sender, Bytes::new()).await));
        assert_eq!(*count.lock(), connections);
        sender.retire();
    }
    assert_eq!(sender.close_idle(tokio::time::Instant::now()), None);
}

/// Ends the look-ups of the test, and counts those that have begun.
static END: Barrier = Barrier::new(LOOKUPS_MAX + 1);
static BEGUN: AtomicUsize = AtomicUsize::new(0);

#[tokio::test]
async fn look_ups_that_were_given_up_keep_their_place_until_they_end() {
    let lookup = bounded(|_name| {
        if BEGUN.fetch_add(1, Ordering::SeqCst) < LOOKUPS_MAX {
            END.wait();
        }
        Ok(Vec::new())
    });
    for begun in 1..=LOOKUPS_MAX {
        let mut found = lookup("shop.example".to_owned());
        while BEGUN.load(Ordering::SeqCst) < begun {
            assert!(futures_util::poll!(&mut found).is_pending());
            tokio::task::yield_now().await;
        }
    }
    // All were dropped, and none has ended.
    let mut waits = lookup("shop.example".to_owned());
    assert!(futures_util::poll!(&mut waits).is_pending());
    assert_eq!(BEGUN.load(Ordering::SeqCst), LOOKUPS_MAX);
    END.wait();
    assert!(waits.await.unwrap().is_empty());
}
