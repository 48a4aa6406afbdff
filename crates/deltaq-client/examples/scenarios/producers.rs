//! A reflector whose source is stdin, and a producer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use deltaq_client::types::{Produced, Replaced};
use deltaq_client::{
    Body, CancellationToken, Error, Event, Queue, RawValue, Reflector, ReflectorError, ReflectorOptions,
    ReplaceOptions, Step,
};
use futures_util::stream;
use serde_json::{Value, json};

use crate::commands::{read, report};
use crate::{Failure, required, setting};

pub(crate) async fn reflector(queue: Queue, stop: CancellationToken) -> Result<(), Failure> {
    let last = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
    let seen = last.clone();
    let options = ReflectorOptions::new(queue.name(), required("SOURCE")?);
    let mut reflector = Reflector::new(queue.client().clone(), options).on_step(move |step| {
        let (is_duplicate, invalid) = match step {
            Step::List { replaced, .. } => (replaced.duplicate, replaced.invalid),
            Step::Changes { produced, .. } => (produced.duplicate, produced.invalid),
            Step::Restart { .. } => (false, 0),
        };
        seen.0.store(is_duplicate, Ordering::Relaxed);
        seen.1.store(invalid, Ordering::Relaxed);
    });
    let mut commands = read();
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            () = stop.cancelled() => None,
        };
        let Some(command) = command else { return Ok(()) };
        let events = events(&command)?.into_iter().map(Ok::<_, Failure>);
        match reflector.run(stream::iter(events)).await {
            Ok(_) => {
                let (duplicate, invalid) = (last.0.load(Ordering::Relaxed), last.1.load(Ordering::Relaxed));
                report(&json!({"event": "applied", "duplicate": duplicate, "invalid": invalid}));
            }
            Err(ReflectorError::Send {
                source: Error::QueueDeleted { .. } | Error::QueueRestored { .. },
                ..
            }) => report(&json!({"event": "lost"})),
            Err(ReflectorError::Send { source: Error::Problem(problem), .. }) if !problem.retryable => {
                report(&json!({"event": "refused", "code": problem.code}));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn events(command: &Value) -> Result<Vec<Event>, Failure> {
    let raw = |object: &Value| RawValue::from_string(object.to_string());
    let mut events = Vec::new();
    if let Some(objects) = command["objects"].as_array() {
        events.push(Event::Init);
        for object in objects {
            events.push(Event::InitApply(raw(object)?));
        }
        events.push(Event::InitDone);
    }
    for delta in command["deltas"].as_array().into_iter().flatten() {
        events.push(match (delta["type"].as_str(), delta["key"].as_str()) {
            (Some("Deleted"), Some(key)) => Event::DeleteKey(key.to_owned()),
            (Some("Deleted"), None) => Event::Delete(raw(&delta["object"])?),
            _ => Event::Apply(raw(&delta["object"])?),
        });
    }
    Ok(events)
}

pub(crate) async fn produce(queue: Queue, stop: CancellationToken) -> Result<(), Failure> {
    let mut commands = read();
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            () = stop.cancelled() => None,
        };
        let Some(command) = command else { return Ok(()) };
        match call(&queue, &command).await {
            Ok((queued, duplicate)) => {
                report(&json!({"event": "reply", "queued": queued, "duplicate": duplicate}));
            }
            Err(error) => report(&json!({"event": "error", "code": error.code(),
                "status": error.problem().map(|problem| problem.status), "retryable": error.is_retryable()})),
        }
    }
}

async fn call(queue: &Queue, command: &Value) -> Result<(u64, bool), Error> {
    let objects = command["objects"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sequence = command["sequence"].as_str().and_then(|text| text.parse().ok());
    let source = setting("SOURCE").filter(|_| sequence.is_some()).zip(sequence);
    let key = command["key"].as_str().unwrap_or_default();
    macro_rules! produced {
        ($call:expr) => {{
            let call = $call;
            let produced: Produced = match source {
                Some((source, sequence)) => call.source(source).sequence(sequence).await?,
                None => call.await?,
            };
            Ok((produced.queued, produced.duplicate))
        }};
    }
    match command["command"].as_str() {
        Some("add") => produced!(queue.add(objects)),
        Some("update") => produced!(queue.update(objects)),
        Some("delete") => produced!(queue.delete_key(key)),
        Some("purge") => queue.purge().await.map(|_| (0, false)),
        Some("remove") => queue.delete_queue().await.map(|()| (0, false)),
        _ => {
            let list = Body::Json(Value::from(objects).to_string().into());
            let replaced: Replaced = queue.replace(None, &ReplaceOptions::default(), list).await?;
            Ok((replaced.queued, replaced.duplicate))
        }
    }
}
