//! A user who has read nothing finds why a key is stuck, and puts it right. The clicks are counted from the first page on.

use serde_json::json;

use super::browser::Browser;
use super::{call, end, post, put, settle};
use crate::system::cli::Server;

/// The console as somebody opens it who knows its address only.
fn first_page(browser: &Browser, server: &Server) {
    browser.visit("about:blank");
    browser.visit(&format!("http://{}/console/", server.address));
    browser.until_text("Needs attention");
    browser.clicks();
}

/// Clicks the count of a state in the row of the queue `prices`.
fn click_count(browser: &Browser, state: &str) {
    let column =
        ["ready", "delayed", "leased", "parked"].iter().position(|name| *name == state).expect("a state");
    browser.click_on(&format!("tbody tr td:nth-child({}) a", column + 2));
}

#[test]
fn a_new_user_frees_stuck_keys_with_few_clicks() {
    let server = Server::in_memory();
    let at = server.address;
    let config =
        json!({ "lease": "10m", "rate_limiter": { "item_exponential": { "base": "10m", "max": "1h" } } });
    put(at, "prices", &config);
    let browser = Browser::start(at);
    let explained = |reason: &str| {
        let reply = call(at, "GET", "/v1/queues/prices/explain?key=sku-1", "");
        assert_eq!(reply["reason"], reason, "{reply}");
    };
    let object = json!({ "key": "sku-1", "price": 9_007_199_254_740_993_u64 });
    post(at, "prices/add?source=erp", &object);

    // A parked key: the number of parked keys, the key, Redrive.
    settle(at, "prices", 1, "reject", Some("currency EU is unknown"));
    first_page(&browser, &server);
    click_count(&browser, "parked");
    browser.click("sku-1");
    browser.until_text("It is parked with the error \"currency EU is unknown\"");
    browser.click("Redrive");
    browser.until_text("It is ready");
    explained("next");
    assert_eq!(browser.clicks(), 3);
    end(&browser);

    // A delayed key: the number of delayed keys, the key, Deliver now. What the producer has sent since the page last read the key stays.
    settle(at, "prices", 1, "nack", Some("503 Service Unavailable"));
    first_page(&browser, &server);
    click_count(&browser, "delayed");
    browser.until("the delayed keys", || browser.url().ends_with("/keys?state=delayed"));
    browser.click("sku-1");
    browser.until_text("after 1 failure, the last with the error \"503 Service Unavailable\"");
    browser.click("Deliver now");
    browser.until_text("It is ready");
    explained("next");
    assert_eq!(browser.clicks(), 3);
    let newest = &call(at, "GET", "/v1/queues/prices/latest?key=sku-1", "")["items"][0];
    assert_eq!((&newest["object"], &newest["source"]), (&object, &json!("erp")));
    let item = &call(at, "GET", "/v1/queues/prices/items?key=sku-1", "")["items"][0];
    assert_eq!(item["deltas"].as_array().map(Vec::len), Some(1), "nothing is sent: {item}");
    end(&browser);

    // A leased key whose worker has died: the number of leased keys, the key, Release, and the question.
    post(at, "prices/pop?worker=nightly", &json!({}));
    first_page(&browser, &server);
    click_count(&browser, "leased");
    browser.click("sku-1");
    browser.until_text("\"nightly\" holds it until");
    browser.click("Release the lease…");
    browser.click("Release");
    browser.until_text("It is ready");
    explained("next");
    assert_eq!(browser.clicks(), 4);
    end(&browser);

    // A paused queue, which its row says: the queue, Resume.
    call(at, "POST", "/v1/queues/prices/pause", "");
    first_page(&browser, &server);
    browser.until_text("paused");
    browser.click("prices");
    browser.until_text("Paused: workers get nothing until the queue is resumed.");
    browser.click("Resume");
    browser.until_no_text("Paused: workers get nothing");
    explained("next");
    assert_eq!(browser.clicks(), 2);
    end(&browser);
}

#[test]
fn deliver_now_changes_no_object_and_works_in_every_queue() {
    let server = Server::in_memory();
    let at = server.address;
    let slow = json!({ "item_exponential": { "base": "10m", "max": "1h" } });
    put(at, "changes", &json!({ "rate_limiter": slow }));
    put(at, "versions", &json!({ "version": "/n", "rate_limiter": slow }));
    put(at, "events", &json!({ "mode": "events", "rate_limiter": slow }));
    put(at, "names", &json!({ "mode": "keys", "rate_limiter": slow }));
    let browser = Browser::start(at);
    for queue in ["changes", "versions", "events", "names"] {
        post(at, &format!("{queue}/add"), &json!({ "key": "k", "n": 1 }));
        settle(at, queue, 1, "nack", None);
        browser.open(&format!("queues/{queue}/keys/k"));
        browser.until_text("after 1 failure");
        browser.click("Deliver now");
        browser.until_text("It is ready");
    }
    end(&browser);

    // A producer deletes the key while its page reads nothing: the key stays deleted.
    post(at, "changes/add", &json!([{ "key": "gone", "n": 1 }, { "key": "newer", "n": 1 }]));
    settle(at, "changes", 3, "nack", None);
    let away = [
        ("gone", "delete", json!({ "key": "gone" })),
        ("newer", "update", json!({ "key": "newer", "n": 2 })),
    ];
    for (key, call, object) in away {
        browser.open(&format!("queues/changes/keys/{key}"));
        browser.until_text("after 1 failure");
        browser.press("p");
        browser.until_text("Paused");
        post(at, &format!("changes/{call}"), &object);
        browser.click("Deliver now");
        browser.press("p");
        browser.until_text("It is ready");
    }
    let latest = |key| call(at, "GET", &format!("/v1/queues/changes/latest?key={key}"), "")["items"].clone();
    assert_eq!(latest("gone"), json!([]));
    assert_eq!(latest("newer")[0]["object"]["n"], 2);
    end(&browser);
}
