//! Dialogs ask about the place that is shown, with the numbers of now.

use serde_json::json;

use super::browser::Browser;
use super::proxy::Proxy;
use super::{call, end, objects, post, put, settle};
use crate::system::cli::Server;

#[test]
fn a_question_has_the_numbers_of_now_and_belongs_to_its_page() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 1));
    post(at, "stock/add", &objects("s-", 2));
    let browser = Browser::start(at);

    // The page is paused, and keys come meanwhile.
    browser.open("queues/prices");
    browser.until_there(".flow.wide .ready");
    browser.press("p");
    browser.until_text("Paused");
    post(at, "prices/add", &objects("more-", 500));
    browser.click("Purge…");
    browser.until_text("Drop the waiting changes of prices?");
    browser.until_text("Drop 501 keys");
    browser.click("Cancel");
    browser.press("p");
    end(&browser);

    // A step back closes a dialog: it belongs to the queue that is left.
    browser.js("location.hash = '#/queues/stock'");
    browser.until("the other queue", || {
        browser.js("return document.querySelector('h1')?.innerText === 'stock' && document.querySelector('.flow.wide .ready') !== null") == true
    });
    browser.click("Close");
    browser.until_text("Close the queue stock?");
    browser.back();
    browser.until("no dialog", || browser.count("dialog") == 0);
    assert_eq!(browser.js("return document.querySelector('h1').innerText"), "prices");
    end(&browser);

    // Known objects once more.
    settle(at, "stock", 2, "ack", None);
    browser.open("queues/stock");
    browser.click("Resync");
    browser.until_text("Deliver all known objects of stock again?");
    browser.until_text("each of the 2 known objects");
    browser.click_on("dialog [type=submit]");
    browser.until("the syncs", || call(at, "GET", "/v1/queues/stock/status", "")["ready"] == 2);
    end(&browser);

    // Parked keys.
    settle(at, "prices", 10, "reject", Some("no route"));
    browser.open("queues/prices/parked");
    browser.until_text("10 parked keys");
    browser.press("p");
    browser.click_on("tbody input");
    settle(at, "prices", 90, "reject", Some("no route"));
    browser.click("Discard 10 keys…");
    browser.until_text("Discard 100 keys of prices with this error?");
    browser.click("Cancel");
    end(&browser);
}

#[test]
fn a_redrive_leaves_no_reads_behind() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "q/add", &objects("k", 20));
    settle(at, "q", 10, "reject", Some("first"));
    settle(at, "q", 10, "reject", Some("second"));
    let proxy = Proxy::start(at, "");
    let browser = Browser::start(proxy.address);
    browser.open("queues/q/parked");
    browser.until_text("20 parked keys with 2 errors");
    browser.click_on("tbody tr:nth-child(1) input");
    browser.click("Redrive 10 keys");
    browser.click_on("dialog [type=submit]");
    browser.until_text("Redriven: 10 keys");
    browser.until_text("10 of 10 keys. Now 10 ready");
    let reads = |request| proxy.requests(request);
    let (before, rounds) = (reads("/q/status"), reads("/q/parked/errors?"));
    browser.until("further reads", || reads("/q/parked/errors?") > rounds + 2);
    assert!(reads("/q/status") <= before + 1, "only the last read may come late");

    // The second of two errors can't be redriven: the page says what was done.
    settle(at, "q", 5, "reject", Some("third"));
    browser.until_text("15 parked keys with 2 errors");
    for row in [1, 2] {
        browser.click_on(&format!("tbody tr:nth-child({row}) input"));
    }
    browser.click("Redrive 15 keys");
    browser.until_there("dialog");
    // The proxy passes on the first call, and refuses the second.
    let calls = reads("/parked/redrive");
    browser.js("const send = fetch; let calls = 0; window.fetch = (...all) => String(all[0]).endsWith('/redrive') && ++calls === 2 ? send(`${all[0]}?unknown=1`, all[1]) : send(...all)");
    browser.click_on("dialog [type=submit]");
    browser.until("the reason", || browser.count(".view > .error:not(:empty)") == 1);
    browser.until_text("Redriven: 10 keys");
    browser.until_text("5 parked keys with 1 error");
    assert_eq!(reads("/parked/redrive"), calls + 2);
    end(&browser);
}

#[test]
fn a_number_of_keys_that_has_changed_is_asked_about_again() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "q/add", &objects("k", 30));
    settle(at, "q", 10, "reject", Some("no route"));
    let browser = Browser::start(at);
    browser.open("queues/q/parked");
    browser.until_text("10 parked keys with 1 error");
    browser.click_on("tbody input");
    browser.click("Redrive 10 keys");
    browser.until_text("Redrive 10 keys of q with this error?");
    // More keys are parked while the question is open.
    settle(at, "q", 5, "reject", Some("no route"));
    browser.click_on("dialog [type=submit]");
    browser.until_text("Redrive 15 keys of q with this error?");
    assert_eq!(call(at, "GET", "/v1/queues/q/status", "")["parked"], 15);
    browser.click_on("dialog [type=submit]");
    browser.until_text("Redriven: 15 keys");
    assert_eq!(call(at, "GET", "/v1/queues/q/status", "")["parked"], 0);
    end(&browser);
}

#[test]
fn queues_of_events_are_described_as_they_work() {
    let server = Server::in_memory();
    let at = server.address;
    let slow = json!({ "item_exponential": { "base": "10m", "max": "1h" } });
    put(at, "events", &json!({ "mode": "events", "rate_limiter": slow }));
    for number in 0..5 {
        post(at, "events/add", &json!({ "key": "k", "n": number }));
    }
    let browser = Browser::start(at);
    settle(at, "events", 1, "reject", Some("bad"));
    browser.open("queues/events");
    browser.until_there(".flow.wide .ready");
    assert_eq!(browser.js("return document.querySelector('.flow.wide .redrive').textContent"), "a redrive");
    browser.open("queues/events/parked");
    browser.until_there("tbody tr");
    browser.click_on("tbody input");
    browser.click("Discard 1 key…");
    browser
        .until_text("The change that failed of this key is dropped. No worker gets it. Later changes stay.");
    browser.open("queues/events/keys/k");
    browser.click("Discard…");
    browser.until_text(
        "The oldest change of this key, which fails, is dropped. No worker gets it. 4 newer changes stay.",
    );
    browser.type_into("#typed", "events");
    browser.click("Discard 1 change");
    browser.until_text("It is ready");
    let item = &call(at, "GET", "/v1/queues/events/items?key=k", "")["items"][0];
    assert_eq!(item["deltas"].as_array().map(Vec::len), Some(4));
    settle(at, "events", 1, "nack", Some("busy"));
    browser.until_text("after 1 failure");
    assert!(!browser.text().contains("new change of the key"), "{}", browser.text());
    end(&browser);
}
