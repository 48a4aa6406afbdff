//! The rules of the engine as scripts that operators can read: `docs/rules`.
//!
//! `UPDATE_RULES=1` writes what the commands print into the scripts. `tests/it/rules.rs` of the product runs the same scripts over HTTP,
//! and the simulator of the documents runs them in a browser.

mod command;
mod duration;
mod engine;
mod folder;
mod order;
mod reply;
#[path = "../../../../simulator/src/run.rs"]
mod run;
mod script;
mod settings;

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use engine::Engine;
use script::Part;
use serde_json::{Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules")
}

#[test]
fn the_engine_follows_the_scripts() {
    #[expect(clippy::disallowed_methods, reason = "a switch of the tests, not a setting of the product")]
    let update = std::env::var("UPDATE_RULES").is_ok();
    folder::run_all(&folder(), update, Engine::new);
}

/// The simulator is built apart from the product, so this test compiles and runs what it has of its own.
#[test]
fn the_simulator_prints_what_the_scripts_say() {
    for path in folder::scripts(&folder()) {
        let source = fs::read_to_string(&path).expect("a script is text");
        let documents = RefCell::new(Vec::new());
        run::run(&source, |_| (), |document| documents.borrow_mut().push(document.clone()));
        let mut documents = documents.into_inner().into_iter();
        for part in script::parts(&source) {
            let Part::Step { line, expected, .. } = part else { continue };
            let document = documents.next().expect("a document for each command");
            assert_eq!(document["printed"], json!(expected), "{}:{line}", path.display());
            assert_eq!(document["defect"], Value::Null, "{}:{line}", path.display());
        }
    }
    let error = RefCell::new(Value::Null);
    run::run("fly a\n----\n", |_| (), |document| *error.borrow_mut() = document.clone());
    assert_eq!(*error.borrow(), json!({ "line": 1, "error": "no command is called \"fly\"" }));
    assert_eq!(run::panicked(2, "x"), json!({ "line": 2, "error": "the command can't run: x" }));
}
