//! A user who has read nothing finds why a key is stuck, and puts it right. The clicks are counted from the first page on.

use serde_json::json;

use super::browser::Browser;
use super::{call, end, post, put, settle};
use crate::cli::Server;

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
    browser.until_text("Paused: workers get nothing until somebody resumes the queue.");
    browser.click("Resume");
    browser.until_no_text("Paused: workers get nothing");
    explained("next");
    assert_eq!(browser.clicks(), 2);
    end(&browser);
}
