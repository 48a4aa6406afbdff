//! A run of a script, as documents for the page. The tests of the engine run all scripts with this module, too.

use std::time::Duration;

use serde_json::{Value, json};

use super::command::Command;
use super::engine::Engine;
use super::reply::{Places, Reply};
use super::script::{Part, Target, parts, step};

/// Runs a script. `begin` gets the line of each command before it runs, and `write` the document of each command.
pub(crate) fn run(source: &str, begin: impl Fn(usize), write: impl Fn(&Value)) {
    let mut target = Engine::new();
    let mut places = Places::default();
    let mut now = Duration::ZERO;
    let queue = Command::parse(&["queue"]).expect("a command");
    step(&mut target, &queue, &mut places);
    for part in parts(source) {
        let Part::Step { line, command: lines, .. } = part else { continue };
        begin(line);
        let command = match Command::parse(&lines) {
            Ok(command) => command,
            Err(message) => return write(&error(line, &message)),
        };
        let printed = step(&mut target, &command, &mut places);
        let defect = target.defect();
        match command {
            Command::Queue(_) => now = Duration::ZERO,
            Command::Tick(span) => now += span,
            _ => {}
        }
        write(&json!({
            "line": line,
            "command": lines,
            "printed": printed,
            "defect": defect,
            "now": u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            "places": document(&places),
            "items": items(&mut target, &places),
            "status": target.run(&Command::Status).lines(),
            "known": known(&mut target),
        }));
    }
}

/// The document of a command at which the interpreter has panicked.
pub(crate) fn panicked(line: usize, message: &str) -> Value {
    error(line, &format!("the command can't run: {message}"))
}

/// The document of a command that can't be run.
fn error(line: usize, message: &str) -> Value {
    json!({ "line": line, "error": message })
}

fn document(places: &Places) -> Value {
    let leased = places.leased.iter().map(|(lease, key, worker)| json!([key, lease, worker]));
    json!({
        "ready": places.ready,
        "delayed": places.delayed,
        "leased": leased.collect::<Vec<_>>(),
        "parked": places.parked,
    })
}

/// What waits for each key, by key, as the command `item` prints it.
fn items(target: &mut Engine, places: &Places) -> Value {
    let delayed = places.delayed.iter().map(|(key, _)| key);
    let leased = places.leased.iter().map(|(_, key, _)| key);
    let keys = places.ready.iter().chain(delayed).chain(leased).chain(&places.parked);
    keys.map(|key| (key.clone(), json!(target.run(&Command::Item(key.clone())).lines()))).collect()
}

/// The known objects, as the command `known` prints them.
fn known(target: &mut Engine) -> Vec<String> {
    let reply = target.run(&Command::Known);
    match &reply {
        Reply::Objects(objects) if objects.is_empty() => Vec::new(),
        _ => reply.lines(),
    }
}
