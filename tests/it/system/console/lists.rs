//! Lists and fields: what the page says is what it shows.

use serde_json::{Value, json};

use super::browser::Browser;
use super::proxy::Proxy;
use super::{call, end, objects, post, put, settle};
use crate::system::cli::Server;

#[test]
fn the_fields_of_keys_say_what_is_listed() {
    let server = Server::in_memory();
    let at = server.address;
    put(at, "q", &json!({ "indexes": { "by_vat": "/vat" } }));
    let rows = (0..6).map(|n| json!({ "key": format!("k{n}"), "vat": if n % 2 == 1 { "19" } else { "7" } }));
    post(at, "q/add?source=erp", &rows.collect::<Value>());
    settle(at, "q", 4, "ack", None);
    let browser = Browser::start(at);
    let fields = || {
        browser.js("return [...document.querySelectorAll('.bar select, .bar [aria-label^=Value]')].map(one => one.value)")
    };
    browser.open("queues/q/keys");
    browser.until("keys that wait", || browser.count("tbody tr") == 2);
    browser.until_there(".group:not([hidden])");
    browser.choose("Index", "by_vat");
    browser.until("the acknowledged keys", || browser.count("tbody tr") == 4);
    browser.type_into("[aria-label^=Value]", "19");
    browser.until("the keys with a value", || browser.count("tbody tr") == 2);
    assert_eq!(fields(), json!(["known", "by_vat", "19"]));
    browser.choose("State", "ready");
    browser.until_text("Waits for");
    assert_eq!(fields(), json!(["ready", "", ""]));
    end(&browser);

    // A key is opened by the button, and by Enter in its field only.
    browser.type_into("[data-find]", "k5");
    browser.type_into("[aria-label=Source]", "erp\u{e007}");
    browser.until("one key", || browser.count("tbody tr") == 1);
    assert!(browser.url().contains("/keys?"), "{}", browser.url());
    browser.click("Open this key");
    browser.until("the key", || browser.url().ends_with("#/queues/q/keys/k5"));
    end(&browser);

    // Keys that were parked without an error.
    settle(at, "q", 1, "reject", None);
    settle(at, "q", 1, "reject", Some("no route"));
    browser.open("queues/q/parked");
    browser.click("without an error");
    browser.until_text("Keys without an error");
    browser.until_text("1 key, as of");
    end(&browser);
}

#[test]
fn rows_stay_while_the_next_ones_cannot_be_read() {
    let server = Server::durable();
    let at = server.address;
    post(at, "q/add", &objects("k", 250));
    let proxy = Proxy::start(at, "");
    let browser = Browser::start(proxy.address);
    browser.open("queues/q/keys");
    browser.until_text("100 keys, and there are more");
    proxy.refuse("continue=", 503, "not-owner", usize::MAX);
    browser.click("Show more");
    browser.until_text("Refused as not-owner. What you see is from before");
    assert_eq!(browser.count("tbody tr"), 100);
    proxy.pass_all();
    browser.until("more rows", || browser.count("tbody tr") == 200);
    browser.until_no_text("What you see is from before");
    end(&browser);

    // Older events, by a double click.
    for number in 0..120 {
        post(at, "q/update", &json!({ "key": "k1", "n": number }));
    }
    browser.open("queues/q/keys/k1");
    browser.until_text("Older events");
    let twice = "const more = [...document.querySelectorAll('button')].find(one => one.innerText === 'Older events'); more?.click(); more?.click()";
    let events = "const events = [...document.querySelectorAll('.timeline > li')].map(one => one.dataset.event); return [events.length, new Set(events).size]";
    browser.until("all events", || {
        browser.js(twice);
        let shown = browser.js(events);
        assert_eq!(shown[0], shown[1], "an event is listed twice");
        shown[0] == 121
    });
    // A change adds its event, and what was opened stays open.
    browser.js("document.querySelector('.deltas summary').click()");
    post(at, "q/update", &json!({ "key": "k1", "n": "last" }));
    browser.until("the newest event", || browser.js(events) == json!([122, 122]));
    assert_eq!(browser.js("return document.querySelector('.deltas details').open"), true);
    end(&browser);

    // The row with the focus stays where it is when an earlier one goes.
    for queue in ["f-a", "f-b", "f-c"] {
        post(at, &format!("{queue}/add"), &json!({ "key": "k" }));
    }
    browser.open("queues?find=f-");
    browser.until("three queues", || browser.count("tbody tr") == 3);
    browser.js("document.querySelectorAll('tbody a.row')[2].focus()");
    call(at, "DELETE", "/v1/queues/f-a", "");
    browser.until("two queues", || browser.count("tbody tr") == 2);
    assert_eq!(browser.js("return document.activeElement.innerText"), "f-c");
    end(&browser);
}

#[test]
fn keys_that_differ_look_different() {
    let server = Server::in_memory();
    let at = server.address;
    let keys = [
        "ab",
        "a b",
        "a  b",
        "a b ",
        " a b",
        "a\u{a0}b",
        "a\u{3164}b",
        "a\u{e0041}b",
        "a\u{34f}b",
        "a\u{fe0f}b",
        "a\u{115f}b",
        "a\u{1160}b",
        "a\u{ffa0}b",
        "a\u{180e}b",
        "a\u{e0100}b",
        "a\u{2800}b",
        "a\u{2009}b",
    ];
    for key in keys {
        post(at, "q/add", &json!({ "key": key }));
    }
    let browser = Browser::start(at);
    browser.open("queues/q/keys");
    browser.until("all keys", || browser.count("tbody tr") == keys.len() as u64);
    let looks = browser.js("return [...document.querySelectorAll('tbody a.row')].map(one => one.innerText)");
    let looks: std::collections::BTreeSet<&str> =
        looks.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(looks.len(), keys.len(), "{looks:?}");
    assert!(
        looks.iter().all(|text| text.chars().all(|one| one.is_ascii_graphic() || one == ' ')),
        "{looks:?}"
    );
    // Two spaces take more room than one.
    let width = |key: &str| {
        let script = "const row = [...document.querySelectorAll('tbody a.row')].find(one => decodeURIComponent(one.hash.split('/').pop()) === arguments[0]); return row.getBoundingClientRect().width";
        browser.js_with(script, vec![key.into()]).as_f64().expect("a width")
    };
    assert!(width("a  b") > width("a b"));
    end(&browser);

    // Instants inside the error of a worker stay as they are.
    post(at, "p/add", &json!({ "key": "k" }));
    settle(at, "p", 1, "reject", Some("expired 2020-02-03T04:05:06Z, next 9999-99-99T99:99:99Z"));
    browser.open("queues/p/keys/k");
    browser.until_text("with the error \"expired 2020-02-03T04:05:06Z, next 9999-99-99T99:99:99Z\"");
    end(&browser);
}

#[test]
fn large_objects_are_compared_and_shown_in_parts() {
    let server = Server::in_memory();
    let at = server.address;
    let browser = Browser::start(at);
    // Objects with very many values: what was not compared is not called the same.
    let mut values = vec![json!(1); 30_000];
    post(at, "large/add", &json!({ "key": "k", "v": values }));
    settle(at, "large", 1, "ack", None);
    values[29_999] = json!(2);
    post(at, "large/update", &json!({ "key": "k", "v": values }));
    browser.open("queues/large/keys/k");
    browser.until_text("Of each object the first 5,000 values are compared; they are the same.");
    // A value that moves out of the compared part is not called absent.
    values.insert(0, json!(3));
    post(at, "large/update", &json!({ "key": "k", "a": 0, "v": values }));
    browser.until("one more value", || browser.count(".diff tbody tr") > 0);
    assert!(!browser.text().contains("/v/4999"), "{}", browser.text());
    end(&browser);

    // Objects of some size are compared on request.
    let wide = "x".repeat(150_000);
    post(at, "wide/add", &json!({ "key": "k", "n": 1, "t": wide }));
    settle(at, "wide", 1, "ack", None);
    post(at, "wide/update", &json!({ "key": "k", "n": 2, "t": wide }));
    browser.open("queues/wide/keys/k");
    browser.click("Compare these large objects");
    browser.until("one difference", || browser.count(".diff tbody tr") == 1);
    end(&browser);

    // A part of an object ends with a whole character.
    let head = "{\"key\":\"k\",\"t\":\"";
    let text =
        format!("{head}{}{}{}\"}}", "x".repeat(20_000 - head.len() - 1), "😀".repeat(20), "y".repeat(60_000));
    call(at, "POST", "/v1/queues/emoji/add", &text);
    browser.open("queues/emoji/keys/k");
    browser.until_there(".object");
    browser.click_on(".object-box > button");
    let halves = "return [...document.querySelector('.object').childNodes].filter(one => /[\\ud800-\\udbff]$|\\\\ud83d/.test(one.textContent)).length";
    assert_eq!(browser.js(halves), 0);
    end(&browser);
}
