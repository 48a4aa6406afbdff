//! A server whose store another process has taken over, as on a file system that loses locks.

use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use crate::harness::blocking::{Connection, Message};
use crate::harness::server::{Spawned, Store};

/// Takes over the store of a server, as another process does that starts on it.
async fn take_over(store: &Store) -> SqliteConnection {
    let folder = store.path();
    let options = SqliteConnectOptions::new().filename(folder.join("deltaq.db"));
    let mut other: SqliteConnection = options.connect().await.expect("a database");
    sqlx::query("UPDATE store SET epoch = epoch + 1").execute(&mut other).await.expect("the next epoch");
    other
}

#[tokio::test]
async fn a_server_whose_store_was_taken_over_ends_with_exit_code_3() {
    let store = Store::folder("fenced");
    let server = Spawned::start(&store);
    let mut other = take_over(&store).await;
    let add = Message::post("/v1/queues/q/add".to_owned(), &json!({"key": "a"}));
    let answer = Connection::open(server.api).and_then(|mut connection| connection.call(&add));
    assert!(!answer.is_ok_and(|answer| answer.status() == Some(200)), "nothing is confirmed");
    let (code, log) = server.ended();
    assert_eq!(code, Some(3), "{log}");
    assert!(log.contains("another process has taken over the store"), "{log}");
    let queues: i64 =
        sqlx::query_scalar("SELECT count(*) FROM queues").fetch_one(&mut other).await.expect("a count");
    assert_eq!(queues, 0, "nothing was written");
    other.close().await.expect("a database");
}

#[tokio::test]
async fn a_server_that_finds_out_while_it_drains_ends_with_the_same_exit_code() {
    let store = Store::folder("fenced-draining");
    let server = Spawned::start(&store);
    let other = take_over(&store).await;
    // The mark of a clean end is the first write since then.
    server.signal("TERM");
    let (code, log) = server.ended();
    assert_eq!(code, Some(3), "{log}");
    assert!(log.contains("another process has taken over the store"), "{log}");
    other.close().await.expect("a database");
}
