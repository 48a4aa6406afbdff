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
mod script;
mod settings;

use std::path::Path;

use engine::Engine;

#[test]
fn the_engine_follows_the_scripts() {
    #[expect(clippy::disallowed_methods, reason = "a switch of the tests, not a setting of the product")]
    let update = std::env::var("UPDATE_RULES").is_ok();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules");
    folder::run_all(&folder, update, Engine::new);
}
