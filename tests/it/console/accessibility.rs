//! The views in both schemes and at both widths, with axe-core.

use serde_json::json;

use super::browser::Browser;
use super::{end, objects, post, put, settle};
use crate::cli::Server;

#[test]
fn every_view_is_accessible_and_fits_every_width() {
    let server = Server::in_memory();
    let at = server.address;
    put(at, "prices", &json!({ "max_failures": 1, "indexes": { "by_n": "/n" } }));
    put(at, "search", &json!({ "follow": { "queue": "prices" } }));
    post(at, "prices/add?source=erp", &objects("sku-", 60));
    settle(at, "prices", 20, "ack", None);
    settle(
        at,
        "prices",
        5,
        "nack",
        Some("a long error without a place to break: https://erp.example/v1/prices/of/the/whole/catalogue"),
    );
    post(at, "prices/pop?max=3&worker=importer", &json!({}));
    post(at, "prices/update?source=shop", &json!({ "key": "sku-1", "n": 1, "new": [1, 2, { "a": null }] }));
    let browser = Browser::start(at);
    let views = [
        "queues",
        "queues/prices",
        "queues/prices/keys",
        "queues/prices/keys/sku-1",
        "queues/prices/keys/sku-21",
        "queues/prices/parked",
        "queues/prices/tail",
    ];
    let empty = ["queues/prices/keys?find=absent", "queues/search/parked", "queues/absent"];
    let mut wrong = Vec::new();
    for scheme in ["light", "dark"] {
        for width in [1280, 360] {
            browser.show_as(width, scheme);
            // Two of the four combinations have both widths and both schemes.
            let more: &[&str] = if (scheme == "dark") == (width == 360) { &empty } else { &[] };
            for &view in views.iter().chain(more) {
                browser.open(view);
                browser.until("the view", || {
                    browser.count("[aria-busy]") == 0 && browser.count(".view > *") > 0
                });
                if view == "queues/prices" {
                    browser.until_text("Followers");
                }
                wrong
                    .extend(browser.axe().into_iter().map(|rule| format!("{view} {scheme} {width}: {rule}")));
                if browser.js("return document.documentElement.scrollWidth > innerWidth") == true {
                    wrong.push(format!("{view} {scheme} {width}: the page is wider than the window"));
                }
            }
        }
    }
    for (button, content) in [("Purge…", "#typed"), ("?", "dialog kbd")] {
        browser.open("queues/prices");
        browser.click(button);
        browser.until_there(content);
        wrong.extend(browser.axe());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    end(&browser);
}
