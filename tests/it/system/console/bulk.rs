//! Actions on all keys of a filter: the count first, then the progress, then what has changed in between.

use serde_json::json;

use super::browser::Browser;
use super::proxy::Proxy;
use super::{Guarded, call, end, objects, post, settle};
use crate::system::cli::Server;

/// Records the bodies of the calls that the page sends.
const RECORD: &str = "window.sent = []; const send = fetch; window.fetch = (...all) => { if (all[1]?.body) sent.push(JSON.parse(all[1].body)); return send(...all); }";

#[test]
fn an_action_on_a_filter_counts_first_and_names_what_has_changed() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add?source=erp", &objects("sku-", 8));
    settle(at, "prices", 6, "reject", Some("no route"));
    settle(at, "prices", 2, "nack", Some("busy"));
    let proxy = Proxy::start(at, "");
    let answer = |path: &str, keys: u64| {
        let mut document = json!({ "keys": keys, "resource_version": 77 });
        if path.ends_with("redrive") {
            document["older_than_at"] = json!("2026-11-30T12:00:00.000Z");
        }
        proxy.answer(path, 200, "application/json", &document.to_string(), 1);
    };
    let browser = Browser::start(proxy.address);
    browser.begin_with(RECORD);
    browser.open("queues/prices/keys?state=parked&find=sku-&error=no%20route");
    browser.until_text("6 keys, as of");
    browser.type_into("[aria-label='Only keys whose change is older than']", "1h");
    answer("/parked/redrive", 6);
    answer("/parked/redrive", 4);
    browser.click("Redrive these keys…");
    browser.until_text("Redrive 6 keys of prices?");
    browser.click("Redrive 6 keys");
    browser.until_text("Redriven: 4 keys. 2 keys had changed in the meantime and were left out.");
    let filter = json!({ "prefix": "sku-", "error": "no route", "older_than": "1h" });
    let until = json!({ "prefix": "sku-", "error": "no route", "older_than_at": "2026-11-30T12:00:00.000Z", "until": 77 });
    assert_eq!(
        browser.js("return sent"),
        json!([{ "filter": filter, "dry_run": true }, { "filter": until }])
    );
    end(&browser);

    // To discard needs the name of the queue; without a filter it is about all keys of the state.
    browser.open("queues/prices/keys?state=parked");
    answer("/parked/discard", 6);
    answer("/parked/discard", 6);
    browser.click("Discard these keys…");
    browser.until_text("These are all parked keys.");
    assert_eq!(browser.js("return document.querySelector('dialog [type=submit]').disabled"), true);
    browser.type_into("#typed", "prices");
    browser.click("Discard 6 keys");
    browser.until_text("Discarded: 6 keys.");
    assert_eq!(
        browser.js("return sent"),
        json!([{ "all": true, "dry_run": true }, { "filter": { "until": 77 } }])
    );
    // Delayed keys, of which none matches, and a refusal.
    browser.open("queues/prices/keys?state=delayed");
    answer("/delayed/promote", 0);
    browser.click("Deliver these keys now…");
    browser.until_text("No key matches.");
    proxy.refuse("/delayed/promote", 400, "invalid-request", 1);
    browser.click("Deliver these keys now…");
    browser.until_text("the proxy says invalid-request");
    // Other states have no such actions.
    browser.choose("State", "ready");
    browser.until("no actions", || !browser.text().contains("Deliver these keys now"));
    assert_eq!(call(at, "GET", "/v1/queues/prices/status", "")["parked"], 6);
    end(&browser);

    let guarded = Guarded::start(&["prices"]);
    let browser = Browser::start(guarded.server.address);
    browser.open("queues/prices/keys?state=parked");
    browser.type_into("#token", "viewer");
    browser.click("Use the token");
    browser.until_text("Redrive these keys…");
    assert_eq!(browser.js("return document.querySelectorAll('.view .bar button:enabled').length"), 0);
    end(&browser);
}

#[test]
fn keys_without_an_error_are_discarded_and_the_others_stay() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 5));
    settle(at, "prices", 5, "reject", Some("no route"));
    post(at, "prices/add", &objects("bare-", 3));
    settle(at, "prices", 3, "reject", None);
    let browser = Browser::start(at);
    browser.open("queues/prices/parked");
    browser.click("without an error");
    browser.until_text("3 keys, as of");
    browser.click("Discard these keys…");
    browser.until_text("Discard 3 keys of prices?");
    browser.until_text("error none");
    browser.type_into("#typed", "prices");
    browser.click("Discard 3 keys");
    browser.until_text("Discarded: 3 keys.");
    let parked = || call(at, "GET", "/v1/queues/prices/status", "")["parked"].clone();
    assert_eq!(parked(), 5);

    // Together with another filter, which matches keys with an error as well.
    post(at, "prices/add", &objects("sku-bare-", 2));
    settle(at, "prices", 2, "reject", None);
    browser.open("queues/prices/keys?state=parked&find=sku-&error=");
    browser.until_text("2 keys, as of");
    browser.click("Discard these keys…");
    browser.until_text("Discard 2 keys of prices?");
    browser.type_into("#typed", "prices");
    browser.click("Discard 2 keys");
    browser.until_text("Discarded: 2 keys.");
    assert_eq!(parked(), 5);
    end(&browser);

    // A link whose list is not that of its state offers no action on all keys of the state.
    for link in ["state=parked&worker=importer", "state=parked&index=by_n&value=1"] {
        browser.open(&format!("queues/prices/keys?{link}"));
        browser.until("the list", || browser.count("[aria-busy]") == 0);
        assert!(!browser.text().contains("these keys"), "{link}: {}", browser.text());
    }
}

#[test]
fn an_action_that_is_done_is_shown_as_done_although_its_counts_cannot_be_read() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 7));
    settle(at, "prices", 4, "reject", Some("no route"));
    settle(at, "prices", 3, "reject", Some("no price"));
    let proxy = Proxy::start(at, "");
    let browser = Browser::start(proxy.address);
    let status = "GET /v1/queues/prices/status";
    browser.open("queues/prices/keys?state=parked&error=no%20route");
    browser.until_text("4 keys, as of");
    browser.click("Discard these keys…");
    browser.type_into("#typed", "prices");
    proxy.refuse(status, 503, "not-owner", usize::MAX);
    browser.click("Discard 4 keys");
    browser.until_text("Discarded: 4 keys.");
    browser.until_text("4 of 4 keys.");
    browser.until_text("No key matches");
    assert_eq!(browser.count(".view .error:not(:empty)"), 0, "{}", browser.text());
    assert_eq!(call(at, "GET", "/v1/queues/prices/status", "")["parked"], 3);

    // A refusal is shown as the reason that it has, and without a progress.
    browser.open("queues/prices/keys?state=parked");
    browser.until_text("3 keys, as of");
    browser.click("Redrive these keys…");
    browser.until_text("Redrive 3 keys of prices?");
    proxy.refuse("/parked/redrive", 400, "invalid-request", 1);
    browser.click("Redrive 3 keys");
    browser.until_text("the proxy says invalid-request");
    assert_eq!(browser.count(".progress"), 0);
    proxy.pass_all();
    assert_eq!(call(at, "GET", "/v1/queues/prices/status", "")["parked"], 3);
    end(&browser);

    // On the page of errors, too.
    browser.open("queues/prices/parked");
    browser.until_text("3 parked keys with 1 error");
    browser.click_on("tbody input");
    proxy.refuse(status, 503, "not-owner", usize::MAX);
    browser.click("Redrive 3 keys");
    browser.click_on("dialog [type=submit]");
    browser.until_text("Redriven: 3 keys");
    browser.until_text("3 of 3 keys.");
    assert_eq!(browser.count(".view > .error:not(:empty)"), 0, "{}", browser.text());
    proxy.pass_all();
    end(&browser);
}
