//! Queues that push, and queues with a hook: what a person sees, tests and repairs.

use std::fs;

use serde_json::json;

use super::browser::Browser;
use super::{call, call_with, end, post, put};
use crate::harness::private_file::private_file;
use crate::system::cli::Server;

/// The header of a delivery of the scheme `gitlab`: the secret itself.
const SECRET: &str = "a-secret-of-gitlab";

#[test]
fn an_endpoint_that_fails_is_shown_and_tested_and_a_delivery_is_delivered_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = private_file(folder.path(), "secret", &format!("{SECRET}\n"));
    let config = folder.path().join("deltaq.toml");
    let text = format!(
        "[push]\nallow = [\"http://127.0.0.1:*\"]\nallow_networks = [\"127.0.0.1\"]\n[hooks.secrets.gitlab]\nfile = {secret:?}\nqueues = [\"*\"]\n"
    );
    fs::write(&config, text).expect("a file");
    let server = Server::with_settings(&[("DELTAQ_CONFIG", &config)]);
    let at = server.address;
    let browser = Browser::start(at);

    // Nobody listens at port 9.
    put(at, "out", &json!({ "push": { "url": "http://127.0.0.1:9/hooks", "format": "raw" } }));
    post(at, "out/add", &json!({ "key": "a" }));
    browser.open("queues/out");
    browser.until_text("The endpoint fails");
    browser.click("Test endpoint");
    browser.until_text("The endpoint: ");
    browser.open("queues");
    browser.until_text("pushes, failing");
    end(&browser);

    put(
        at,
        "in",
        &json!({ "key": ["/iid"], "hook": { "scheme": "gitlab", "secrets": ["gitlab"], "object": "/object" } }),
    );
    let body = r#"{"object":{"id":"7"}}"#;
    let token = format!("x-gitlab-token: {SECRET}\r\n");
    assert_eq!(call_with(at, "POST", "/v1/hooks/in", &token, body)["reason"], "no_key");
    browser.open("queues/in");
    browser.until_text("Kept deliveries");
    browser.until_text("1 delivery of the hook could not be applied.");
    browser.click("Deliver again");
    browser.until("what became of it", || {
        browser.js("return document.getElementById('announcer').textContent") == "0 applied, 1 kept"
    });
    call(at, "PATCH", "/v1/queues/in", &json!({ "key": ["/id"] }).to_string());
    browser.click("Deliver again");
    browser.until_no_text("Kept deliveries");
    browser.until_no_text("nothing applied yet");
    end(&browser);
}
