//! The console while its server, a proxy, a node or a clock does not do what it should.

use serde_json::json;

use super::browser::Browser;
use super::proxy::Proxy;
use super::{Guarded, call, end, objects, post};
use crate::system::cli::Server;

#[test]
fn a_refusal_that_passes_is_shown_until_it_has_passed() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 250));
    let proxy = Proxy::start(at, "");
    let browser = Browser::start(proxy.address);

    // Views that are read again by themselves keep what they show.
    for (place, content, request) in [
        ("queues", "tbody tr", "GET /v1/queues?"),
        ("queues/prices", ".flow.wide .ready", "GET /v1/queues/prices "),
        ("queues/prices/keys/sku-1", ".object", "GET /v1/queues/prices/explain?"),
    ] {
        browser.open(place);
        browser.until_there(content);
        proxy.refuse(request, 503, "not-owner", usize::MAX);
        browser.until_text("Refused as not-owner. What you see is from before");
        assert!(browser.count(content) > 0, "{place}: the content stays");
        proxy.pass_all();
        browser.until_no_text("What you see is from before");
    }
    // A proxy that answers in its own words.
    browser.open("queues/prices");
    browser.until_there(".flow.wide .ready");
    proxy.answer("GET /v1/queues/prices ", 502, "text/html", "<h1>Bad <b>gateway</b></h1>", usize::MAX);
    browser.until_text("The reply has the status 502.");
    assert_eq!(browser.count("main b"), 0);
    proxy.pass_all();
    browser.until_no_text("The reply has the status 502.");
    end(&browser);

    // A list of keys that can't be read is read again.
    proxy.refuse("GET /v1/queues/prices/items", 429, "too-many-requests", usize::MAX);
    browser.open("queues/prices/keys");
    browser.until_text("Refused as too-many-requests");
    proxy.pass_all();
    browser.until_text("100 keys, and there are more");
    // The place in the list is no longer valid: the list begins again.
    proxy.refuse("continue=", 410, "expired", 1);
    browser.click("Show more");
    browser.until_text("Refused as expired");
    browser.click("Try again");
    browser.until_text("100 keys, and there are more");
    end(&browser);

    // A grant that ends while the page is open.
    browser.open("queues/prices");
    browser.until_there(".flow.wide .ready");
    proxy.refuse("GET /v1/queues/prices ", 403, "forbidden", 1);
    browser.until_text("The token does not permit this");
    browser.click("All queues");
    browser.until_there("tbody tr");
    end(&browser);
}

#[test]
fn a_console_whose_files_do_not_all_arrive_says_so_and_loads_again() {
    let server = Server::in_memory();
    for file in ["main.js", "queues.js", "api.js"] {
        let proxy = Proxy::start(server.address, "");
        proxy.answer(&format!("/console/{file}"), 502, "text/html", "<h1>Bad gateway</h1>", usize::MAX);
        let browser = Browser::start(proxy.address);
        browser.visit(&format!("http://{}/console/", proxy.address));
        browser.until_text("The console can't be loaded");
        proxy.pass_all();
        browser.until_text("There is no queue yet");
    }

    // Without the script that says so, the text of the page does.
    let proxy = Proxy::start(server.address, "");
    proxy.answer("/console/start.js", 502, "text/html", "<h1>Bad gateway</h1>", usize::MAX);
    let browser = Browser::start(proxy.address);
    browser.visit(&format!("http://{}/console/", proxy.address));
    browser.until_text("If this stays, reload the page");
}

#[test]
fn a_change_is_sent_again_until_a_node_owns_the_queue() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 7));
    let proxy = Proxy::start(at, "");
    let browser = Browser::start(proxy.address);
    browser.open("queues/prices");
    browser.until_there(".flow.wide .ready");
    proxy.refuse("POST /v1/queues/prices/pause", 503, "not-owner", 2);
    browser.click("Pause");
    browser.until_text("Paused: workers get nothing");
    assert_eq!(proxy.pass_all(), 0, "the first two calls were refused");
    end(&browser);

    // A purge is sent once: its user has confirmed a number of keys, and more may have come since.
    proxy.refuse("POST /v1/queues/prices/purge", 503, "not-owner", 5);
    browser.click("Purge…");
    browser.type_into("#typed", "prices");
    browser.click("Drop 7 keys");
    browser.until_text("the proxy says not-owner");
    assert_eq!(proxy.pass_all(), 4, "one call was sent");
    assert_eq!(call(at, "GET", "/v1/queues/prices/status", "")["ready"], 7);
    browser.click("Drop 7 keys");
    browser.until("the purge", || call(at, "GET", "/v1/queues/prices/status", "")["ready"] == 0);
    end(&browser);
}

#[test]
fn a_token_that_ends_while_a_page_is_open_is_asked_for_again() {
    let guarded = Guarded::start(&["prices"]);
    let browser = Browser::start(guarded.server.address);
    browser.open("queues/prices");
    // Somebody who closes the dialog finds the way back to it.
    browser.until_there("dialog[open] #token");
    browser.js("document.querySelector('dialog').close()");
    browser.click("Enter a token");
    browser.type_into("#token", "viewer");
    browser.click("Use the token");
    browser.until_there(".flow.wide .ready");

    guarded.change("name = \"viewer\"", "name = \"viewer\"\nexpires = \"2020-01-01T00:00:00Z\"");
    browser.until_there("dialog[open] #token");
    browser.until_text("A token is needed");
    browser.js("document.querySelector('dialog').close()");
    assert!(!browser.text().contains("goes on trying"), "{}", browser.text());
    browser.click("Enter a token");
    browser.type_into("#token", "operator");
    browser.click("Use the token");
    browser.until_there(".flow.wide .ready");
    assert!(browser.url().ends_with("#/queues/prices"), "the place stays: {}", browser.url());
    browser.click("Pause");
    browser.until_text("Paused: workers get nothing");
    end(&browser);
}

#[test]
fn ages_are_those_of_the_server_whatever_the_clock_of_the_browser_says() {
    let server = Server::durable();
    let at = server.address;
    for hours in [-30, 30] {
        let browser = Browser::start(at);
        post(at, "prices/replace?source=erp", &objects("sku-", 2));
        browser.shift_clock(hours * 3_600_000);
        browser.open("queues");
        let age = "return /^erp \\d+ m?s ago$/.test(document.querySelector('tbody tr')?.cells[8].innerText)";
        browser.until("seconds", || browser.js(age) == true);
        // An instant of today has no date.
        browser.open("queues/prices/keys/sku-1");
        browser.until_there(".timeline time");
        let text = browser.js("return document.querySelector('.timeline time').innerText");
        assert_eq!(text.as_str().map(str::len), Some("13:05:59".len()), "{text}");
        // Changes says when it got a change.
        browser.open("queues/prices/tail");
        browser.until_text("Waiting for the next change");
        post(at, "prices/update", &json!({ "key": "sku-1", "hours": hours }));
        browser.until_there(".tail time");
        let history = call(at, "GET", "/v1/queues/prices/history?key=sku-1", "");
        let script = "const time = document.querySelector('.tail time'); return [Math.abs(Date.parse(time.dateTime) - Date.parse(arguments[0])) < 60_000, time.title.startsWith('Seen here at 20')]";
        assert_eq!(browser.js_with(script, vec![history["items"][0]["at"].clone()]), json!([true, true]));
        end(&browser);
    }
}

#[test]
fn a_queue_that_is_deleted_ends_every_view_of_it() {
    let server = Server::in_memory();
    let at = server.address;
    let browser = Browser::start(at);
    for (place, content) in [
        ("queues/q/tail", ".tail li"),
        ("queues/q/keys/k", ".sentence"),
        ("queues/q/parked", ".state"),
        ("queues/q", ".flow"),
    ] {
        post(at, "q/add", &json!({ "key": "k" }));
        browser.open(place);
        browser.until(content, || {
            post(at, "q/add", &json!({ "key": "k" }));
            browser.count(content) > 0
        });
        call(at, "DELETE", "/v1/queues/q", "");
        browser.until_text("The queue does not exist");
        // A producer creates it again.
        post(at, "q/add", &json!({ "key": "k" }));
        browser.click("Try again");
        browser.until_no_text("The queue does not exist");
    }
    end(&browser);
}

#[test]
fn a_page_that_nobody_sees_watches_nothing_and_misses_nothing() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "q/add", &json!({ "key": "first" }));
    let proxy = Proxy::start(at, "");
    let browser = Browser::start(proxy.address);
    browser.open("queues/q/tail");
    browser.until("a row", || {
        post(at, "q/update", &json!({ "key": "seen" }));
        browser.count(".tail li") > 0
    });
    assert_eq!(proxy.watches(), 1);
    browser.hide(true);
    // The proxy notices the end when it sends the next row.
    browser.until("the end of the watch", || {
        post(at, "q/update", &json!({ "key": "unseen" }));
        proxy.watches() == 0
    });
    post(at, "q/update", &json!({ "key": "while-away" }));
    assert!(!browser.text().contains("while-away"));
    browser.hide(false);
    browser.until_text("while-away");
    assert_eq!(proxy.watches(), 1);
    end(&browser);
}

#[test]
fn a_link_shows_what_its_sender_saw_and_back_leads_back() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add?source=shop", &objects("a/b ", 3));
    post(at, "prices/add?source=erp", &objects("a/c ", 2));
    let browser = Browser::start(at);
    browser.open("queues");
    browser.click("prices");
    browser.until_there(".flow.wide .ready");
    browser.click("Keys");
    browser.until("all keys", || browser.count("tbody tr") == 5);
    browser.type_into("[data-find]", "a/b");
    browser.until("some keys", || browser.count("tbody tr") == 3);
    let link = browser.url();
    browser.click("a/b 1");
    browser.until_text("It is ready");
    browser.back();
    browser.until("the same keys", || browser.count("tbody tr") == 3 && browser.url() == link);
    browser.back();
    browser.until_there(".flow.wide .ready");
    browser.forward();
    browser.until("the same keys", || browser.count("tbody tr") == 3 && browser.url() == link);
    let other = Browser::start(at);
    other.visit(&link);
    other.until("the same keys", || other.count("tbody tr") == 3);
    assert_eq!(other.js("return document.querySelector('[data-find]').value"), "a/b");
    end(&browser);
    end(&other);
}
