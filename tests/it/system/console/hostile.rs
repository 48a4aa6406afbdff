//! Keys and objects that try to be more than text.

use serde_json::{Value, json};

use super::browser::Browser;
use super::{call, end, post, put, settle};
use crate::system::cli::Server;

#[test]
fn hostile_keys_and_objects_are_text() {
    let server = Server::in_memory();
    let at = server.address;
    let keys = [
        "<img src=x onerror=alert(1)>",
        "a/b c",
        "..",
        "\u{202e}gnp.exe",
        "日本語 ключ",
        "%2e%2e/x?y#z",
        "a/../b%2F",
        "👩\u{200d}👧 🏴",
        &"long-".repeat(200),
        "'\"&;",
    ];
    for key in keys {
        let object = json!({ "key": key, "html": "<script>document.title='owned'</script>", "rtl": "\u{202e}abc", "__proto__": { "x": 1 } });
        post(at, "q/add?source=%3Cb%3Esource", &object);
    }
    post(at, "q/add", &json!({ "key": "large", "text": "x".repeat(1_000_000) }));
    settle(at, "q", 1, "reject", Some("</td><script>alert(1)</script>\u{202e}"));
    let browser = Browser::start(at);
    browser.open("queues/q/keys");
    browser.until("all keys", || browser.count("tbody tr") == keys.len() as u64 + 1);
    assert_eq!(browser.count("main img, main script, main b"), 0);
    assert!(browser.text().contains("\\u202egnp.exe"), "{}", browser.text());
    for (index, key) in keys.iter().enumerate() {
        browser.open("queues/q/keys");
        browser.until("all keys", || browser.count("tbody tr") == keys.len() as u64 + 1);
        // The link of a row leads to the key, whatever the key is.
        browser.js_with("[...document.querySelectorAll('tbody a.row')].find(a => decodeURIComponent(a.hash.split('/').pop()) === arguments[0]).click()", vec![(*key).into()]);
        browser.until_text(if index == 0 { "It is parked" } else { "It is ready" });
        browser.until_text("Waiting changes");
        assert_eq!(browser.count("main img, main script, main b"), 0);
        assert!(!browser.js("return document.title").as_str().expect("a title").contains("owned"));
        browser.until_text("<script>document.title='owned'</script>");
        browser.until_text("\\u202eabc");
    }
    browser.open("queues/q/keys/large");
    browser.until_text("976.6 KiB");
    browser.click_on(".object-box > button");
    let lines = "line\\n".repeat(10_000);
    let odd = format!(
        r#"{{"key":"odd","digits":123456789012345678901234567890,"half":1.50,"control":"\u0000\u001b[31m","emoji":"🏴","lines":"{lines}"}}"#
    );
    call(at, "POST", "/v1/queues/q/add", &odd);
    browser.open("queues/q/keys/odd");
    for part in ["123456789012345678901234567890", "1.50", r"\u0000\u001b[31m", "🏴"] {
        browser.until_text(part);
    }
    assert_eq!(browser.js("return document.documentElement.scrollWidth > innerWidth"), false);
    browser.open("queues/q/parked");
    browser.until_text("</td><script>alert(1)</script>\\u202e");
    browser.open("nowhere");
    browser.until_text("There is no such page");
    end(&browser);

    // A key with very many deltas: both ends are shown.
    for _ in 0..3 {
        post(at, "many/add", &(0..300).map(|n| json!({ "key": "k", "n": n })).collect::<Value>());
    }
    browser.open("queues/many/keys/k");
    browser.until_text("900 deltas");
    browser.until_text("Show more of the 800 deltas in between");
    end(&browser);
}

#[test]
fn names_that_scripts_know_are_names_like_any_other() {
    let server = Server::in_memory();
    let at = server.address;
    put(at, "q", &json!({ "key": ["/__proto__/match", "/toJSON", "/constructor/__proto__"] }));
    let browser = Browser::start(at);
    browser.open("queues/q");
    browser.click("Send a test object…");
    browser.until_there("dialog textarea");
    let object = browser.js("return document.querySelector('dialog textarea').value");
    let object: Value = serde_json::from_str(object.as_str().expect("a text")).expect("JSON");
    let wanted = json!({ "__proto__": { "match": "test-1" }, "toJSON": "test-1", "constructor": { "__proto__": "test-1" } });
    assert_eq!(object, wanted);
    assert_eq!(browser.js("return 'match' in {}"), false, "an object of the page has changed");
    browser.click("Send");
    browser.until_text("The test object is queued");
    assert_eq!(call(at, "GET", "/v1/queues/q/items", "")["items"][0]["key"], "test-1/test-1/test-1");
    end(&browser);

    // Nor does a link that has one.
    for name in ["__proto__", "constructor", "toString"] {
        browser.open(&format!("queues?sort={name}&range={name}"));
        browser.until_text("1 queue");
        browser.open(&format!("queues/q/keys?state={name}&{name}=1"));
        browser.until("the refusal", || browser.count(".state.error") == 1);
        assert!(!browser.text().contains("Something went wrong in this page"), "{}", browser.text());
    }
    end(&browser);
}
