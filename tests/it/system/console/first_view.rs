//! What a page says when it is opened: whole numbers on a narrow page, all of its tables at once, and what its rates count.

use serde_json::{Value, json};

use super::browser::Browser;
use super::proxy::Proxy;
use super::{call, end, objects, post, put, settle};
use crate::system::cli::Server;

/// The cells of a narrow table whose text is not on the line of its label, or leaves the page.
const CUT_CELLS: &str =
    "return [...document.querySelectorAll('tbody td[data-label].number')].filter(cell => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    const [box, texts] = [cell.getBoundingClientRect(), [...range.getClientRects()]];
    return texts.some(text => text.top - box.top > 12 || text.right > innerWidth || text.left < box.left);
}).map(cell => `${cell.dataset.label}: ${cell.innerText}`)";

#[test]
fn numbers_are_whole_on_a_narrow_page() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 3));
    post(at, "prices/pop?worker=importer", &json!({}));
    let proxy = Proxy::start(at, "");
    let browser = Browser::start(proxy.address);
    browser.show_as(360, "light");
    for age_ms in [930, 59_999, 3_599_000, 86_399_000, 8_639_999_000_u64] {
        let mut page = call(at, "GET", "/v1/queues", "");
        for count in ["ready", "delayed", "leased", "known"] {
            page["items"][0]["status"][count] = json!(9_999);
        }
        page["items"][0]["status"]["oldest_unacknowledged_age_ms"] = json!(age_ms);
        proxy.pass_all();
        proxy.answer("GET /v1/queues?", 200, "application/json", &page.to_string(), usize::MAX);
        browser.open("queues");
        browser.until_there("tbody td.number");
        assert_eq!(browser.js(CUT_CELLS), json!([]), "{age_ms} ms");
        let mut workers = call(at, "GET", "/v1/workers", "");
        for count in ["leased", "waiting", "recent_acks", "recent_failures"] {
            workers["workers"][0][count] = json!(9_999);
        }
        for age in ["oldest_lease_age_ms", "slow_after_ms", "next_expires_in_ms"] {
            workers["workers"][0][age] = json!(age_ms);
        }
        proxy.pass_all();
        proxy.answer("GET /v1/workers?", 200, "application/json", &workers.to_string(), usize::MAX);
        browser.open("workers");
        browser.until_there("tbody td.number");
        assert_eq!(browser.js(CUT_CELLS), json!([]), "workers, {age_ms} ms");
    }
    proxy.pass_all();
    end(&browser);
}

#[test]
fn the_tables_of_a_queue_come_with_its_first_view() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add?source=erp", &objects("sku-", 3));
    post(at, "prices/pop?worker=importer", &json!({}));
    put(at, "search", &json!({ "follow": { "queue": "prices" } }));
    let browser = Browser::start(at);
    // The text of the page at the moment when its drawing appears, and the place of its last table.
    browser.begin_with(
        "new MutationObserver((_, observer) => {
            if (!document.querySelector('.flow')) return;
            observer.disconnect();
            window.firstText = document.body.innerText;
            window.firstTop = [...document.querySelectorAll('main h2')].at(-1).getBoundingClientRect().top;
        }).observe(document, { childList: true, subtree: true })",
    );
    browser.open("queues/prices");
    browser.until("the first view", || browser.js("return window.firstText !== undefined") == true);
    let text = browser.js("return firstText").as_str().expect("a text").to_owned();
    for word in ["erp", "importer", "search"] {
        assert!(text.contains(word), "{word} comes later than {text}");
    }
    // The tables are read again, and nothing moves.
    let marked = "document.querySelector(\"main a[href*='source=erp']\").dataset.first = 'yes'";
    browser.js(marked);
    let again = "const link = document.querySelector(\"main a[href*='source=erp']\"); return link !== null && link.dataset.first === undefined";
    browser.until("the next read", || browser.js(again) == true);
    let moved = "return Math.abs([...document.querySelectorAll('main h2')].at(-1).getBoundingClientRect().top - firstTop)";
    assert_eq!(browser.js(moved).as_f64(), Some(0.0));
    end(&browser);

    // A server that is slow with the tables does not hold back the rest.
    let proxy = Proxy::start(at, "");
    proxy.refuse("/prices/sources", 503, "overloaded", usize::MAX);
    let browser = Browser::start(proxy.address);
    browser.open("queues/prices");
    browser.until_there(".flow.wide .ready");
    proxy.pass_all();
    browser.until_text("erp");
    end(&browser);
}

/// The number of a fact of the queue's page.
fn fact(browser: &Browser, name: &str) -> Value {
    let script = "const fact = [...document.querySelectorAll('.facts dt')].find(one => one.innerText === arguments[0]); return fact?.nextSibling.innerText.trim() ?? null";
    browser.js_with(script, vec![name.into()])
}

#[test]
fn changes_in_are_counted_without_leases_and_acks() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 600));
    let browser = Browser::start(at);
    browser.open("queues/prices");
    browser.until("a rate", || fact(&browser, "Changes in per second") == "0");
    let version = || fact(&browser, "Version").as_str().and_then(|text| text.parse::<f64>().ok());
    let before = version();
    browser.js("window.most = ''; setInterval(() => { const fact = [...document.querySelectorAll('.facts dt')].find(one => one.innerText === 'Changes in per second'); const now = fact?.nextSibling.innerText.trim() ?? ''; if (now !== '0') most = now; }, 20)");
    settle(at, "prices", 300, "ack", None);
    settle(at, "prices", 300, "ack", None);
    browser.until("events of leases and acks", || version() >= before.map(|rv| rv + 1200.0));
    assert_eq!(browser.js("return most"), "", "leases and acks are not changes");
    post(at, "prices/update", &objects("sku-", 50));
    browser.until("changes", || browser.js("return most") != "");
    end(&browser);

    browser.open("queues");
    browser.until_there("tbody tr");
    assert!(browser.text().contains("Changes in/s"), "{}", browser.text());
    let rate = "return document.querySelector('tbody tr').cells[7].innerText";
    browser.until("no changes", || browser.js(rate) == "0");
    settle(at, "prices", 50, "ack", None);
    browser.until("the acks", || {
        browser.js("return document.querySelector('tbody tr').cells[1].innerText") == "0"
    });
    assert_eq!(browser.js(rate), "0");
    end(&browser);
}

#[test]
fn a_list_of_keys_says_that_it_is_a_snapshot_and_an_empty_search_says_so() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 3));
    let browser = Browser::start(at);
    browser.open("queues/prices/keys");
    browser.until_text("3 keys, as of");
    let is_live = || browser.js("return document.getElementById('live').checkVisibility()");
    assert_eq!(is_live(), false);
    post(at, "prices/add", &json!({ "key": "sku-new" }));
    browser.click("Read again");
    browser.until_text("4 keys, as of");
    browser.type_into("[data-find]", "none");
    browser.until_text("No key matches");
    end(&browser);

    browser.open("queues");
    browser.until_there("tbody tr");
    assert_eq!(is_live(), true);
    browser.type_into("main [data-find]", "none");
    browser.until_text("No queue matches");
    browser.until_text("No name contains none.");
    end(&browser);
}
