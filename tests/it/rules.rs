//! Runs the rule scripts of `docs/rules` over HTTP. The engine runs the same scripts in its own tests.

mod calls;
#[path = "../../crates/deltaq-engine/tests/it/scripts/command.rs"]
mod command;
#[path = "../../crates/deltaq-engine/tests/it/scripts/duration.rs"]
mod duration;
#[path = "../../crates/deltaq-engine/tests/it/scripts/folder.rs"]
mod folder;
mod http;
#[path = "../../crates/deltaq-engine/tests/it/scripts/reply.rs"]
mod reply;
#[path = "../../crates/deltaq-engine/tests/it/scripts/script.rs"]
mod script;

use std::path::Path;

use http::Http;

#[test]
fn the_server_follows_the_scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rules");
    folder::run_all(&folder, false, Http::new);
}
