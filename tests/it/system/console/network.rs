//! Replies that break off, streams that fall silent, and grants that can't be read or change.

use serde_json::json;

use super::browser::Browser;
use super::proxy::Proxy;
use super::{Guarded, call, end, objects, post};
use crate::system::cli::Server;

/// What the header says.
fn header(browser: &Browser) -> String {
    browser
        .js("return document.getElementById('live-text').textContent")
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn reads_go_on_after_a_reply_that_breaks_off() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 3));
    let proxy = Proxy::start(at, "");
    let browser = Browser::start(proxy.address);
    browser.open("queues/prices");
    browser.until_there(".flow.wide .ready");
    proxy.cut("GET /v1/queues/prices ", usize::MAX);
    browser.until_text("The server can't be reached. What you see is from before");
    proxy.pass_all();
    post(at, "prices/add", &objects("more-", 3));
    browser.until_no_text("What you see is from before");
    browser.until("the new count", || {
        browser.js("return document.querySelector('.flow.wide .ready .count')?.textContent") == "6"
    });
    // A proxy that answers with a page of its own, as if all were well.
    proxy.answer("GET /v1/queues/prices ", 200, "text/html", "<h1>Welcome</h1>", usize::MAX);
    browser.until_text("The reply is not from deltaq. What you see is from before");
    proxy.pass_all();
    browser.until_no_text("What you see is from before");
    end(&browser);

    // Documents of a gateway that look like problems.
    for (status, body) in [(401, r#"{"code":"unauthorized","message":"no"}"#), (404, r#"{"code":404}"#)] {
        proxy.answer("GET /v1/queues?", status, "application/json", body, usize::MAX);
        browser.open("queues");
        browser.until_text(&format!("The reply has the status {status}"));
        browser.until("the end of the reads", || header(&browser) == "Stopped");
        proxy.pass_all();
    }
    end(&browser);

    // While one read of a page waits for its server, another one does not say that all is well.
    proxy.refuse("GET /v1/queues/prices ", 503, "not-owner", usize::MAX);
    browser.open("queues/prices");
    browser.until_text("Refused as not-owner");
    let script = "window.seen = new Set(); new MutationObserver(() => seen.add(document.getElementById('live-text').textContent)).observe(document.getElementById('live'), { childList: true, subtree: true, characterData: true })";
    browser.js(script);
    let before = proxy.requests("GET /v1/queues/prices ");
    browser.until("further reads", || proxy.requests("GET /v1/queues/prices ") > before + 3);
    assert_eq!(header(&browser), "Reconnecting");
    assert_eq!(browser.js("return [...seen]"), json!([]));
    end(&browser);
}

#[test]
fn changes_go_on_after_silence_and_name_what_is_missing() {
    let server = Server::durable();
    let at = server.address;
    post(at, "q/add", &json!({ "key": "first" }));
    let proxy = Proxy::start(at, "");
    let browser = Browser::start(proxy.address);

    // A page that is hidden before its first row misses nothing.
    browser.open("queues/q/tail");
    browser.until_text("Waiting for the next change");
    browser.hide(true);
    post(at, "q/update", &json!({ "key": "while-away" }));
    browser.hide(false);
    browser.until_text("while-away");
    end(&browser);

    // A connection that is open and silent.
    proxy.silence(true);
    post(at, "q/update", &json!({ "key": "unheard" }));
    browser.until("the end of the wait", || header(&browser) == "Reconnecting");
    proxy.silence(false);
    browser.until_text("unheard");
    browser.until("a stream", || header(&browser) == "Live");
    assert!(!browser.text().contains("changes are missing"));
    end(&browser);

    // The server has forgotten what has changed meanwhile.
    browser.hide(true);
    proxy.refuse("/watch?", 410, "expired", 1);
    browser.hide(false);
    browser.until_text("Here changes are missing");
    post(at, "q/update", &json!({ "key": "after-the-gap" }));
    browser.until_text("after-the-gap");
    let order = "return [...document.querySelectorAll('.tail li')].slice(0, 3).map(one => one.className)";
    assert_eq!(browser.js(order), json!(["added", "gap", "added"]));

    // A filter of the link that does not exist filters nothing.
    browser.open("queues/q/tail?type=Foo");
    browser.until_text("Waiting for the next change");
    post(at, "q/update", &json!({ "key": "of-any-type" }));
    browser.until_text("of-any-type");
    browser.click("Clear");
    browser.until_no_text("of-any-type");
    browser.until_text("Waiting for the next change");
    end(&browser);
}

#[test]
fn a_rate_leaves_out_the_numbers_between_two_lives() {
    let mut server = Server::durable();
    let at = server.address;
    let browser = Browser::start(at);
    let version = "return Number([...document.querySelectorAll('.facts dt')].find(one => one.innerText === 'Version')?.nextSibling.innerText)";
    post(at, "q/add", &objects("k", 20));
    browser.open("queues/q");
    browser.until("a version", || browser.js(version).as_f64() > Some(1.0));
    let before = browser.js(version).as_f64();
    browser.js("window.most = 0; setInterval(() => { const fact = [...document.querySelectorAll('.facts dt')].find(one => one.innerText.startsWith('Changes in')); most = Math.max(most, Number(fact?.nextSibling.innerText.replaceAll(/[^0-9]/g, '') ?? 0)); }, 20)");
    server.kill();
    browser.until_text("What you see is from before");
    server.start();
    browser.until("the version after the end", || browser.js(version).as_f64() > before);
    post(at, "q/add", &objects("k", 20));
    browser.until("a rate", || browser.js("return most").as_f64() > Some(0.0));
    assert!(browser.js("return most").as_f64() < Some(1000.0), "{}", browser.js("return most"));
    end(&browser);
}

#[test]
fn a_caller_whose_grants_are_unknown_gets_no_buttons() {
    let guarded = Guarded::start(&["prices"]);
    let proxy = Proxy::start(guarded.server.address, "");
    let browser = Browser::start(proxy.address);
    browser.open("queues");
    // What a header can't have is no token.
    browser.type_into("#token", "tok“en”");
    browser.click("Use the token");
    browser.until_text("A token can't contain these characters");
    browser.js("document.querySelector('#token').value = ''");
    browser.type_into("#token", "viewer");
    browser.click("Use the token");
    browser.until_text("1 queue");

    proxy.refuse("GET /v1/info", 503, "overloaded", usize::MAX);
    let enabled = "return [...document.querySelectorAll('.view .actions button, .view .bar button')].filter(one => !one.disabled && one.innerText !== 'Try again').length";
    for place in ["queues/prices", "queues/prices/keys/a", "queues/prices/parked"] {
        browser.open(place);
        browser.until_text("Refused as overloaded");
        assert_eq!(browser.js(enabled), 0, "{place}");
    }
    browser.open("queues/prices");
    browser.until_text("Refused as overloaded");
    proxy.pass_all();
    browser.until_text("Read only: the token viewer");
    end(&browser);

    // Grants that its operator adds are there after a step to another page.
    guarded.change(r#"["read"]"#, r#"["read", "produce", "admin"]"#);
    browser.until("the grants", || {
        browser.click("Queues");
        browser.until_text("1 queue");
        browser.click("prices");
        browser.until_there(".flow.wide .ready");
        !browser.text().contains("Read only")
    });
    browser.click("Pause");
    browser.until_text("Paused: workers get nothing");
    end(&browser);
}

#[test]
fn a_browser_that_keeps_nothing_shows_the_console() {
    let server = Server::in_memory();
    post(server.address, "prices/add", &objects("sku-", 3));
    let browser = Browser::start(server.address);
    browser.begin_with("for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(window, name, { get() { throw new DOMException('', 'SecurityError'); } })");
    browser.open("queues");
    browser.until_text("1 queue");
    browser.click("Auto theme");
    browser.click("Light theme");
    browser.until_text("Dark theme");
    assert_eq!(call(server.address, "GET", "/v1/queues/prices/status", "")["ready"], 3);
    end(&browser);
}
