//! Shortcuts, copies, colours and other small things of every day.

use serde_json::json;

use super::browser::Browser;
use super::{call, end, objects, post, put};
use crate::system::cli::Server;

#[test]
fn the_keyboard_does_what_its_list_says() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 3));
    let browser = Browser::start(at);
    browser.open("queues");
    browser.until_there("tbody tr");
    browser.press("j\u{e007}");
    browser.until_there(".flow.wide .ready");
    browser.press("gk");
    browser.until("the keys", || browser.count("tbody tr") == 3);
    browser.press("jj\u{e007}");
    browser.until("the second key", || browser.url().ends_with("/keys/sku-1"));
    browser.press("go");
    browser.until_there(".flow.wide .ready");
    assert!(browser.url().ends_with("#/queues/prices"), "{}", browser.url());

    // Pause: the counts stand still until the next press.
    browser.press("p");
    browser.until_text("Paused");
    post(at, "prices/add", &objects("more-", 3));
    // On a page without a field of its own, the key leads to that of the header.
    browser.press("/");
    browser.until("the field of the header", || browser.js("return document.activeElement.id") == "find");
    browser.js("document.activeElement.blur()");
    let ready = || browser.js("return document.querySelector('.flow.wide .ready .count')?.textContent");
    assert_eq!(ready(), "3");
    browser.press("r");
    browser.until("the count of now", || ready() == "6");
    post(at, "prices/add", &objects("still-", 3));
    browser.press("p");
    browser.until("live counts", || ready() == "9");
    end(&browser);

    // The shortcuts can be turned off, and stay so.
    browser.press("?");
    browser.until_text("Use these keys");
    browser.click_on("dialog input");
    browser.click("Close");
    browser.open("queues/prices");
    browser.until_there(".flow.wide .ready");
    browser.press("gq?p");
    assert_eq!(browser.count("dialog"), 0);
    assert!(browser.url().ends_with("#/queues/prices") && !browser.text().contains("Paused"));
    browser.click("?");
    browser.click_on("dialog input");
    browser.click("Close");
    browser.press("gq");
    browser.until("all queues", || browser.url().ends_with("#/queues"));
    end(&browser);
}

#[test]
fn a_group_is_paused_and_resumed() {
    let server = Server::in_memory();
    let at = server.address;
    put(at, "mails", &json!({ "groups": { "by": "/tenant" } }));
    let mails = json!([{ "key": "a1", "tenant": "acme" }, { "key": "a2", "tenant": "acme" }, { "key": "b1", "tenant": "bolt" }]);
    post(at, "mails/add", &mails);
    let browser = Browser::start(at);
    browser.open("queues/mails");
    browser.until_there(".flow.wide .ready");
    browser.press("gg");
    browser.until("the groups", || browser.count("tbody tr") == 3);
    let row = || {
        browser.js("return [...document.querySelectorAll('tbody tr')].find(row => row.textContent.startsWith('acme'))?.textContent ?? ''")
    };
    let press = "[...document.querySelectorAll('tbody tr')].find(row => row.textContent.startsWith('acme')).querySelector('button').click()";
    let has = |word: &str| row().as_str().is_some_and(|text| text.contains(word));
    assert!(has("takes turns") && has("Pause"), "{}", row());
    browser.js(press);
    browser.until("the pause", || has("paused") && has("Resume"));
    assert_eq!(post(at, "mails/pop?max=9", &json!({}))["items"].as_array().map(Vec::len), Some(1));
    browser.js(press);
    browser.until("the end of the pause", || has("takes turns"));
    assert_eq!(post(at, "mails/pop?max=9", &json!({}))["items"].as_array().map(Vec::len), Some(2));
    // The group with the most leases comes first, and the link says so.
    browser.click("Leased");
    browser
        .until("the order", || browser.js("return document.querySelector('tbody th').textContent") == "acme");
    assert!(browser.url().ends_with("groups?sort=leased"), "{}", browser.url());
    end(&browser);
}

#[test]
fn the_group_without_a_name_is_paused_alone() {
    let server = Server::in_memory();
    let at = server.address;
    put(at, "mails", &json!({ "groups": { "by": "/tenant" } }));
    post(at, "mails/add", &json!([{ "key": "a", "tenant": "acme" }, { "key": "nobody" }]));
    let browser = Browser::start(at);
    browser.open("queues/mails/groups");
    let row = "return [...document.querySelectorAll('tbody tr')].find(row => row.textContent.startsWith('without a name'))";
    browser.until("the group", || browser.js(&format!("{row} !== undefined")) == true);
    browser.js(&format!("{row}.querySelector('button').click()"));
    browser.until("the pause", || browser.js(&format!("{row}.textContent.includes('paused')")) == true);
    assert_eq!(call(at, "GET", "/v1/queues/mails/status", "")["paused"], false);
    let popped = post(at, "mails/pop?max=9", &json!({}));
    assert_eq!(popped["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(popped["items"][0]["key"], "a");
    end(&browser);
}

#[test]
fn texts_are_copied_and_times_and_colours_are_those_of_the_reader() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &json!({ "key": "sku-1", "price": 9_007_199_254_740_993_u64 }));
    put(at, "search", &json!({ "follow": { "queue": "prices" } }));
    let browser = Browser::start(at);
    browser.open("queues/prices/keys/sku-1");
    browser.until_there(".object");
    // Once with the clipboard of HTTPS, once without it.
    let object = r#"{"key":"sku-1","price":9007199254740993}"#;
    browser.js("window.copied = []; Object.defineProperty(navigator, 'clipboard', { configurable: true, value: { writeText: async text => { copied.push(text); } } })");
    browser.click("Copy the object");
    browser.until_text("Copied");
    browser.js("Object.defineProperty(navigator, 'clipboard', { value: undefined }); addEventListener('copy', () => copied.push(document.activeElement.value))");
    browser.until_no_text("Copied");
    browser.click("Copy the object");
    browser.until_text("Copied");
    browser.click("As curl");
    browser.click_on(".commands dd button");
    let curl = format!("curl 'http://{at}/v1/queues/prices/explain?key=sku-1'");
    browser.until("all texts", || browser.js("return copied") == json!([object, object, curl]));
    end(&browser);

    // UTC is the title of a local time.
    let items = call(at, "GET", "/v1/queues/prices/items?key=sku-1", "");
    let instant = items["items"][0]["deltas"][0]["queued_at"].as_str().expect("an instant");
    let instant = instant.replace('T', " ").replace('Z', " UTC");
    assert_eq!(browser.js("return document.querySelector('.deltas time').title"), instant);

    // The lag of a follower.
    browser.open("queues/prices");
    browser.until_text("Followers");
    let row = "return [...document.querySelectorAll('.view tbody tr')].find(one => one.innerText.includes('search'))?.innerText.split(/\\s+/).slice(0, 3)";
    browser.until("no lag", || browser.js(row) == json!(["search", "following", "0"]));

    // Colours: those of the system, then those that the reader chooses, also on the next visit.
    let paper = || browser.js("return getComputedStyle(document.body).backgroundColor");
    browser.show_as(1280, "dark");
    let dark = paper();
    browser.show_as(1280, "light");
    let light = paper();
    assert_ne!(dark, light);
    browser.click("Auto theme");
    browser.click("Light theme");
    assert_eq!(paper(), dark);
    browser.open("queues");
    browser.until_there("tbody tr");
    assert_eq!(paper(), dark);
    browser.click("Dark theme");
    browser.until_text("Auto theme");
    assert_eq!(paper(), light);
    end(&browser);
}

#[test]
fn many_queues_are_shown_in_parts() {
    let server = Server::in_memory();
    let at = server.address;
    for number in 0..120 {
        post(at, &format!("q-{number:03}/add"), &json!({ "key": "k" }));
    }
    let browser = Browser::start(at);
    browser.open("queues");
    browser.until_text("120 queues");
    assert_eq!(browser.count("tbody tr"), 100);
    browser.click("Show more");
    browser.until("all queues", || browser.count("tbody tr") == 120);
    end(&browser);
}
