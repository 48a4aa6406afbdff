//! Objects whose validation does not end: the server serves other requests, and stops, without waiting for them.

use super::*;

/// Levels of an object. Each is checked in two ways, so the innermost is checked 2^48 times.
const LEVELS: usize = 48;

fn schema() -> Value {
    let below = |level: usize| json!({"properties": {"a": {"$ref": format!("#/$defs/{}", level + 1)}}, "required": ["a"]});
    let twice = |level: usize| json!({"anyOf": [below(level), below(level)]});
    let mut defs: serde_json::Map<_, _> =
        (1..LEVELS).map(|level| (level.to_string(), twice(level))).collect();
    defs.insert(LEVELS.to_string(), json!(false));
    let mut schema = twice(0);
    schema["$defs"] = Value::Object(defs);
    schema
}

fn object() -> Value {
    let mut object = json!({});
    for _ in 0..LEVELS {
        object = json!({"a": object});
    }
    object["key"] = json!("k");
    object
}

fn threads(process: &Process) -> usize {
    let tasks = format!("/proc/{}/task", process.server.process.child.id());
    std::fs::read_dir(tasks).expect("the process runs").count()
}

async fn hostile() -> (Process, Client) {
    let process = Process::start(folder(), &[root()], |command| {
        command.env("DELTAQ_SERVER__REQUEST_TIMEOUT", "1s");
    });
    let mut client = process.client().await;
    client.call_as("root", "PUT", "/v1/queues/hostile", &json!({"schema": schema()})).await.ok();
    (process, client)
}

#[tokio::test]
async fn its_callers_time_out_and_other_requests_are_served() {
    let (process, mut client) = hostile().await;
    let before = threads(&process);
    let mut waiting = Vec::new();
    for (call, body) in [
        ("add", object()),
        ("update", json!([object()])),
        ("deltas", json!({"type": "Added", "object": object()})),
        ("add", object()),
        ("add", object()),
    ] {
        let mut caller = process.client().await;
        let (path, text) = (format!("/v1/queues/hostile/{call}"), body.to_string());
        caller.send_text("POST", &path, &[("authorization", "Bearer root")], &text).await;
        waiting.push(caller);
    }
    client.call_as("root", "GET", "/livez", &Value::Null).await.ok();
    client.call_as("root", "POST", "/v1/queues/plain/add", &json!({"key": "k"})).await.ok();
    client.call_as("root", "GET", "/v1/queues/hostile", &Value::Null).await.ok();
    client.call_as("root", "POST", "/v1/queues/hostile/delete?key=k", &Value::Null).await.ok();
    for mut caller in waiting {
        caller.reply().await.problem("timeout");
    }
    assert!(threads(&process) <= before + 2, "{} threads were {before}", threads(&process));
    let rules = json!({"schema": {"properties": {"n": {"default": 1}}}});
    client.call_as("root", "PUT", "/v1/queues/other", &rules).await.ok();
    client.call_as("root", "POST", "/v1/queues/other/add", &json!({"key": "k"})).await.ok();
    process.stop();
}

#[tokio::test]
async fn a_disconnected_list_does_not_delay_the_shutdown() {
    let (process, mut client) = hostile().await;
    for (call, body) in [("replace", json!([object()])), ("seed", json!({"object": object()}))] {
        let mut caller = process.client().await;
        let path = format!("/v1/queues/hostile/{call}");
        caller.send_text("POST", &path, &[("authorization", "Bearer root")], &body.to_string()).await;
    }
    // Both permits are taken, or will be.
    client.call_as("root", "POST", "/v1/queues/hostile/add", &object()).await.problem("timeout");
    client.call_as("root", "GET", "/livez", &Value::Null).await.ok();
    process.stop();
}
