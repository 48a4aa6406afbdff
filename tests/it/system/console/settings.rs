//! Settings are edited field by field, shown before they are saved, and saved only if nobody else has changed them. A queue and an object are made by
//! hand.

use serde_json::{Value, json};

use super::browser::Browser;
use super::proxy::Proxy;
use super::{Guarded, call, end, objects, post, put};
use crate::system::cli::Server;

/// Sets the content of the field of a setting, as a user does.
fn set(browser: &Browser, setting: &str, text: &str) {
    let script = "const field = document.getElementById(`setting-${arguments[0]}`); field.value = arguments[1]; field.dispatchEvent(new Event('input', { bubbles: true }))";
    browser.js_with(script, vec![setting.into(), text.into()]);
}

fn field(browser: &Browser, setting: &str) -> Value {
    browser.js_with("return document.getElementById(`setting-${arguments[0]}`).value", vec![setting.into()])
}

/// The rows of the differences in the dialog.
const CHANGES: &str = "return [...document.querySelectorAll('dialog tbody tr')].map(row => [...row.cells].map(cell => cell.innerText.trim()))";

#[test]
fn a_change_of_settings_is_shown_before_it_is_saved() {
    let server = Server::in_memory();
    let at = server.address;
    let settings = || call(at, "GET", "/v1/queues/prices/settings", "");
    let exact = json!({ "maximum": 9_007_199_254_740_993_u64 });
    put(at, "prices", &json!({ "lease": "1m", "schema": exact, "max_failures": 5 }));
    let browser = Browser::start(at);
    browser.open("queues/prices/settings");
    browser.until_text("max_failures");
    // Each field has what the schema of the API says about it.
    let missing = browser.js("return [...document.querySelectorAll('.field')].filter(field => field.querySelector('.muted').innerText.length < 10).map(field => field.querySelector('code').innerText)");
    assert_eq!(missing, json!([]));
    let names =
        browser.js("return [...document.querySelectorAll('.field label')].map(label => label.innerText)");
    let known: Vec<String> = settings().as_object().expect("settings").keys().cloned().collect();
    assert_eq!(names.as_array().map(Vec::len), Some(known.len()));
    browser.until_text("From 0 to 4,294,967,295.");

    set(&browser, "lease", "2m");
    set(&browser, "max_failures", "7");
    browser.click("Review 2 changes…");
    browser.until_text("Change 2 settings of prices?");
    assert_eq!(browser.js(CHANGES), json!([["lease", "\"1m\"", "\"2m\""], ["max_failures", "5", "7"]]));
    assert_eq!(browser.axe(), Vec::<String>::new());
    browser.click("Cancel");
    assert_eq!(settings()["lease"], "1m");
    browser.click("Review 2 changes…");
    browser.click("Save");
    browser.until_text("Saved: lease, max_failures.");
    let now = settings();
    assert_eq!((&now["lease"], &now["max_failures"]), (&json!("2m"), &json!(7)));
    assert_eq!(now["schema"], exact, "a number keeps its digits");
    end(&browser);

    // The same value in other words changes nothing; an empty field has its default; what is no JSON is not sent.
    set(&browser, "lease", "120s");
    browser.click("Review 1 change…");
    browser.until_text("These values mean the same as the present ones.");
    browser.click("Undo");
    set(&browser, "max_failures", "");
    browser.click("Review 1 change…");
    browser.until("the default", || browser.js(CHANGES) == json!([["max_failures", "7", "20"]]));
    browser.click("Save");
    browser.until_text("Saved: max_failures.");
    set(&browser, "indexes", "{\"by_n\":");
    browser.click("Review 1 change…");
    browser.until_text("This is not JSON");
    set(&browser, "indexes", "{\"by_n\":\"/n\"}");
    set(&browser, "lease", "0s");
    browser.click("Review 2 changes…");
    browser.until("the reason", || browser.count(".view .error:not(:empty)") > 0);
    assert!(browser.text().contains("lease"), "{}", browser.text());
    assert_eq!(settings()["indexes"], json!({}), "a refused change changes nothing");
    end(&browser);
}

#[test]
fn a_member_that_is_removed_from_a_setting_is_removed_from_the_queue() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("deltaq.toml");
    std::fs::write(&config, "[push]\nallow = [\"http://127.0.0.1:*\"]\nallow_networks = [\"127.0.0.1\"]\n")
        .expect("a file");
    let server = Server::with_settings(&[("DELTAQ_CONFIG", &config)]);
    let at = server.address;
    let settings = || call(at, "GET", "/v1/queues/prices/settings", "");
    let headers = json!({ "x-env": "prod", "x-team": "shop" });
    let overrides =
        json!({ "": { "weight": 3 }, "acme": { "weight": 2, "max_leased": 4 }, "bolt": { "weight": 5 } });
    let document = json!({
        "indexes": { "a": "/a", "b": "/b" },
        "groups": { "by": "/tenant", "overrides": overrides },
        "push": { "url": "http://127.0.0.1:9/hooks", "format": "raw", "headers": headers },
        "diff": { "array_keys": { "/items": "/sku", "/tags": "/id" } },
        "rate_limiter": { "bucket": { "qps": 5, "burst": 2 }, "max_wait": "1h" },
        "schema": { "maximum": 9_007_199_254_740_993_u64, "required": ["key"] },
    });
    put(at, "prices", &document);
    let browser = Browser::start(at);
    browser.open("queues/prices/settings");
    browser.until_text("max_failures");

    // A nested member, a name that is empty, a member whose default is none, and a schema, in which null would be a value.
    set(&browser, "indexes", r#"{"a":"/a"}"#);
    set(&browser, "groups", r#"{"by":"/tenant","overrides":{"":{"weight":3},"acme":{"weight":2}}}"#);
    set(&browser, "push", r#"{"url":"http://127.0.0.1:9/hooks","format":"raw","headers":{"x-team":"shop"}}"#);
    set(&browser, "diff", r#"{"array_keys":{"/tags":"/id"}}"#);
    set(&browser, "rate_limiter", r#"{"max_wait":"1h"}"#);
    set(&browser, "schema", r#"{"maximum":9007199254740995}"#);
    browser.click("Review 6 changes…");
    browser.until_text("Change 6 settings of prices?");
    browser.click("Save");
    browser.until_text("Saved: rate_limiter, groups, push, schema, indexes, diff.");
    let now = settings();
    assert_eq!(now["indexes"], json!({ "a": "/a" }));
    let weights = json!({ "": { "weight": 3, "max_leased": null, "rate": null }, "acme": { "weight": 2, "max_leased": null, "rate": null } });
    assert_eq!(now["groups"]["overrides"], weights);
    assert_eq!(now["push"]["headers"], json!({ "x-team": "shop" }));
    assert_eq!(now["diff"], json!({ "array_keys": { "/tags": "/id" } }));
    assert_eq!(
        (&now["rate_limiter"]["bucket"], &now["rate_limiter"]["max_wait"]),
        (&Value::Null, &json!("1h"))
    );
    assert_eq!(now["schema"], json!({ "maximum": 9_007_199_254_740_995_u64 }));
    end(&browser);
}

#[test]
fn what_the_server_has_set_is_compared_with_what_was_reviewed() {
    let server = Server::in_memory();
    let at = server.address;
    put(at, "prices", &json!({ "lease": "1m" }));
    let proxy = Proxy::start(at, "");
    let browser = Browser::start(proxy.address);
    browser.open("queues/prices/settings");
    browser.until_text("max_failures");
    let mut reply = call(at, "GET", "/v1/queues/prices", "");
    reply["settings"]["lease"] = json!("7m");
    set(&browser, "lease", "2m");
    browser.click("Review 1 change…");
    browser.until_text("Change 1 setting of prices?");
    proxy.answer("PATCH /v1/queues/prices", 200, "application/json", &reply.to_string(), 1);
    browser.click("Save");
    browser.until_text("Saved, but not as reviewed: lease. The fields show what the server has set.");
    assert_eq!(field(&browser, "lease"), "7m");
    end(&browser);
}

#[test]
fn settings_that_somebody_else_has_changed_are_not_overwritten() {
    let server = Server::in_memory();
    let at = server.address;
    let settings = || call(at, "GET", "/v1/queues/prices/settings", "");
    let patch = |text: &str| call(at, "PATCH", "/v1/queues/prices", text);
    put(at, "prices", &json!({ "lease": "1m" }));
    let browser = Browser::start(at);
    browser.open("queues/prices/settings");
    browser.until_text("max_failures");
    // Before the review: the fields show the present values, and what the user has changed stays.
    set(&browser, "lease", "3m");
    patch(r#"{"max_failures":7}"#);
    browser.click("Review 1 change…");
    browser.until_text("Somebody else has changed the settings.");
    assert_eq!((field(&browser, "lease"), field(&browser, "max_failures")), (json!("3m"), json!("7")));
    // Between the review and the save.
    browser.click("Review 1 change…");
    browser.until_text("Change 1 setting of prices?");
    patch(r#"{"lease":"9m"}"#);
    browser.click("Save");
    browser.until_text("so nothing is saved");
    assert_eq!(settings()["lease"], "9m");
    browser.click("Cancel");
    browser.click("Review 1 change…");
    browser.until("the present value", || browser.js(CHANGES) == json!([["lease", "\"9m\"", "\"3m\""]]));
    browser.click("Save");
    browser.until_text("Saved: lease.");
    let now = settings();
    assert_eq!((&now["lease"], &now["max_failures"]), (&json!("3m"), &json!(7)));
    end(&browser);

    // Without the grant admin, the fields can be read.
    let guarded = Guarded::start(&["prices"]);
    let browser = Browser::start(guarded.server.address);
    browser.open("queues/prices/settings");
    browser.type_into("#token", "viewer");
    browser.click("Use the token");
    browser.until_text("Read only: the token viewer has no grant of admin on this queue.");
    let enabled = "return document.querySelectorAll('.field :enabled, .view button:enabled').length";
    assert_eq!(browser.js(enabled), 0);
    end(&browser);
}

#[test]
fn a_queue_and_a_test_object_are_made_by_hand() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 1));
    put(at, "pods", &json!({ "key": ["/metadata/namespace", "/metadata/name"] }));
    let browser = Browser::start(at);
    browser.open("queues");
    browser.click("New queue…");
    browser.type_into("#new-name", "prices");
    browser.click("Create the queue");
    browser.until_text("A queue of this name exists already.");
    assert_eq!(call(at, "GET", "/v1/queues/prices/status", "")["ready"], 1);
    browser.js("document.getElementById('new-name').value = 'made.by-hand'; document.getElementById('new-mode').value = 'events'");
    browser.click("Create the queue");
    browser.until("its settings", || browser.url().ends_with("#/queues/made.by-hand/settings"));
    browser.until_text("max_failures");
    assert_eq!(call(at, "GET", "/v1/queues/made.by-hand/settings", "")["mode"], "events");
    end(&browser);

    browser.open("queues/pods");
    browser.click("Send a test object…");
    browser.until_text("Send a test object to pods?");
    browser.click_on("dialog [type=submit]");
    browser.until_text("The test object is queued");
    assert_eq!(call(at, "GET", "/v1/queues/pods/items", "")["items"][0]["key"], "test-1/test-1");
    browser.click("Send a test object…");
    browser.until_there("dialog textarea");
    browser.js("document.querySelector('dialog textarea').value = '{'");
    browser.click_on("dialog [type=submit]");
    browser.until_text("This is not JSON");
    browser.click("Cancel");
    end(&browser);
}
