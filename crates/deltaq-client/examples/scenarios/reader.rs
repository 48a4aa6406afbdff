//! A reader of single keys.

use deltaq_client::types::{EventName, ObjectDocument};
use deltaq_client::{CancellationToken, Error, Queue};
use serde_json::{Value, json};

use crate::Failure;
use crate::commands::{read, report};

pub(crate) async fn run(queue: Queue, stop: CancellationToken) -> Result<(), Failure> {
    let mut commands = read();
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            () = stop.cancelled() => None,
        };
        let Some(command) = command else { return Ok(()) };
        let found = match call(&queue, &command).await {
            Err(error) if error.code() == Some("key-not-found") => (Value::Null, Value::Null),
            found => found?,
        };
        report(&json!({"event": "read", "key": found.0, "object": found.1}));
    }
}

/// The key and the object of a reply.
async fn call(queue: &Queue, command: &Value) -> Result<(Value, Value), Error> {
    let key = command["key"].as_str().unwrap_or_default();
    let of_view = |found: ObjectDocument| (json!(found.key), json!(found.object));
    Ok(match command["command"].as_str() {
        Some("item") => {
            let item = queue.item(key).await?;
            (json!(item.key), json!(item.deltas.last().map(|delta| &delta.object)))
        }
        Some("latest") => of_view(queue.latest_object(key).await?),
        Some("known") => of_view(queue.known_object(key).await?),
        Some("explain") => (json!(queue.explain(key).await?.key), Value::Null),
        _ => {
            let events = queue.history(key).await?.items;
            let newest = events.iter().find(|event| event.event == EventName::Appended);
            (Value::Null, json!(newest.map(|event| &event.object)))
        }
    })
}
