//! An informer whose handlers report their events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deltaq_client::types::RawObject;
use deltaq_client::{
    CancellationToken, Deleted, Handler, Handlers, Informer, Object, Queue, Store, View, wait_for_cache_sync,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::commands::{read, report};
use crate::{Failure, duration_setting, setting};

const PATIENCE: Duration = Duration::from_mins(10);

/// Reports its events under its number.
struct Reporter(u64);

impl Handler<RawObject> for Reporter {
    async fn on_add(&mut self, object: Arc<Object<RawObject>>, is_in_initial_list: bool) {
        report(&json!({"event": "add", "handler": self.0, "key": *object.key, "object": object.object,
            "is_in_initial_list": is_in_initial_list}));
    }

    async fn on_update(&mut self, old: Arc<Object<RawObject>>, new: Arc<Object<RawObject>>) {
        report(
            &json!({"event": "update", "handler": self.0, "key": *new.key, "old": old.object, "new": new.object}),
        );
    }

    async fn on_delete(&mut self, deleted: Deleted<RawObject>) {
        report(
            &json!({"event": "delete", "handler": self.0, "key": deleted.key(), "object": deleted.object().object,
            "final_state_unknown": matches!(deleted, Deleted::FinalStateUnknown(_))}),
        );
    }
}

pub(crate) async fn run(queue: Queue, stop: CancellationToken) -> Result<(), Failure> {
    let mut informer: Informer = queue.informer();
    if setting("VIEW").as_deref() == Some("known") {
        informer = informer.view(View::Known);
    }
    if let Some((name, pointer)) = setting("INDEX").as_deref().and_then(|index| index.split_once('=')) {
        let pointer = pointer.to_owned();
        informer = informer.index(name, move |object: &RawObject| {
            let object: Value = serde_json::from_str(object.as_str()).unwrap_or_default();
            object.pointer(&pointer).and_then(Value::as_str).map(str::to_owned).into_iter().collect()
        });
    }
    if let Some(period) = duration_setting("RESYNC")? {
        informer = informer.resync(period);
    }
    if let Some(interval) = duration_setting("BOOKMARK")? {
        informer = informer.bookmark(interval);
    }
    let informer = informer.on_notice(|notice| eprintln!("{notice:?}"));
    let (store, handlers) = (informer.store(), informer.handlers());
    let mut waits = JoinSet::new();
    let mut added = 0;
    add_handler(&handlers, &mut added, &mut waits);
    let mut commands = read();
    let running = informer.run();
    tokio::pin!(running);
    loop {
        tokio::select! {
            error = &mut running => return Err(error.into()),
            () = stop.cancelled() => return Ok(()),
            command = commands.recv() => match command {
                None => return Ok(()),
                Some(command) if is_handler(&command) => add_handler(&handlers, &mut added, &mut waits),
                Some(command) => answer(&command, &store, &mut waits),
            },
        }
    }
}

fn is_handler(command: &Value) -> bool {
    command.get("command").is_some_and(|name| name == "handler")
}

fn add_handler(handlers: &Handlers<RawObject>, added: &mut u64, waits: &mut JoinSet<()>) {
    *added += 1;
    let number = *added;
    let synced = handlers.add(Reporter(number)).synced();
    waits.spawn(async move {
        if synced.wait().await {
            report(&json!({"event": "synced", "handler": number}));
        }
    });
}

fn answer(command: &Value, store: &Store<RawObject>, waits: &mut JoinSet<()>) {
    let text = |name: &str| command[name].as_str().unwrap_or_default().to_owned();
    match text("command").as_str() {
        "store" => {
            let objects = store.list();
            let objects: BTreeMap<_, _> =
                objects.iter().map(|object| (&*object.key, &object.object)).collect();
            report(&json!({"event": "store", "objects": objects}));
        }
        "index" => {
            let objects = store.by_index(&text("name"), &text("value"));
            let keys: Vec<_> = objects.iter().map(|object| &*object.key).collect();
            report(&json!({"event": "index", "keys": keys}));
        }
        "get" => {
            let object = store.get(&text("key"));
            report(&json!({"event": "get", "object": object.as_ref().map(|object| &object.object)}));
        }
        "wait_for_sync" => {
            let synced = store.synced();
            waits.spawn(async move {
                if wait_for_cache_sync([synced], PATIENCE).await {
                    report(&json!({"event": "cache_synced"}));
                }
            });
        }
        other => eprintln!("unknown command {other:?}"),
    }
}
