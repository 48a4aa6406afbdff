//! The history of a key: who did what.

use serde_json::json;

use super::browser::Browser;
use super::{call_with, end, post, settle, token_file};
use crate::harness::server::{Spawned, Store};
use crate::system::cli::Server;

/// The events of the page, newest first, without their instants.
const EVENTS: &str = "return [...document.querySelectorAll('.timeline > li > .what')].map(one => one.innerText.split(' · event ')[0])";

#[test]
fn the_history_of_a_key_names_the_token_of_each_call() {
    // Only a server with a store keeps the history.
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = token_file(folder.path());
    let store = Store::Borrowed(folder.path().join("data"));
    let server = Spawned::start_uncalled(&store, |command| {
        command.env("DELTAQ_ACCESS__TOKENS_FILE", tokens);
    });
    let at = server.api;
    let as_operator = |call: &str, body: &str| {
        call_with(
            at,
            "POST",
            &format!("/v1/queues/prices/{call}"),
            "authorization: Bearer operator\r\n",
            body,
        );
    };
    as_operator("add?source=erp", r#"{"key":"a"}"#);
    as_operator("pop?worker=nightly", "");
    let browser = Browser::start(at);
    browser.open("queues/prices/keys/a");
    browser.type_into("#token", "viewer");
    browser.click("Use the token");
    browser.until("two events", || browser.count(".timeline > li") == 2);
    let events = browser.js(EVENTS);
    let text = |index: usize| events[index].as_str().unwrap_or_default().to_owned();
    assert!(text(0).starts_with("leased · by operator · worker nightly"), "{events}");
    assert_eq!(text(1), "Added · by operator · from erp", "{events}");
    end(&browser);

    // Without a token nobody is named.
    let server = Server::durable();
    post(server.address, "prices/add?source=erp", &json!({ "key": "a" }));
    settle(server.address, "prices", 1, "ack", None);
    let browser = Browser::start(server.address);
    browser.open("queues/prices/keys/a");
    browser.until("three events", || browser.count(".timeline > li") == 3);
    let events = browser.js(EVENTS);
    assert!(!events.to_string().contains("by "), "{events}");
    end(&browser);
}
