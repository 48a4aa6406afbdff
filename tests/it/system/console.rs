//! The console in a real Chromium: what its users do, step by step. Each test starts one browser for several of these flows, and after
//! each flow the browser must have logged nothing: no violation of the content security policy, and no error of a script.

mod accessibility;
mod browser;
mod bulk;
mod charts;
mod everyday;
mod files;
mod first_view;
mod history;
mod hostile;
mod lists;
mod network;
mod pages;
mod proxy;
mod questions;
mod settings;
mod stuck_keys;
mod troubles;
mod webhooks;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use deltaq::access::digest_text;
use serde_json::{Value, json};

use self::browser::Browser;
use self::proxy::Proxy;
use crate::harness::process::finished;
use crate::system::cli::Server;

/// Calls the API and returns the document of its reply.
#[track_caller]
fn call(server: SocketAddr, method: &str, path: &str, body: &str) -> Value {
    call_with(server, method, path, "", body)
}

/// The same with these lines of the head.
#[track_caller]
fn call_with(server: SocketAddr, method: &str, path: &str, lines: &str, body: &str) -> Value {
    let mut stream = TcpStream::connect(server).expect("a connection");
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {server}\r\nconnection: close\r\n{lines}content-length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).expect("a request");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    let (head, text) = reply.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 2"), "{method} {path}: {reply}");
    serde_json::from_str(text).unwrap_or(Value::Null)
}

#[track_caller]
fn post(server: SocketAddr, path: &str, body: &Value) -> Value {
    call(server, "POST", &format!("/v1/queues/{path}"), &body.to_string())
}

#[track_caller]
fn put(server: SocketAddr, queue: &str, config: &Value) {
    call(server, "PUT", &format!("/v1/queues/{queue}"), &config.to_string());
}

/// Objects with the keys `PREFIX0`, `PREFIX1` and so on.
fn objects(prefix: &str, count: usize) -> Value {
    (0..count).map(|number| json!({ "key": format!("{prefix}{number}"), "n": number })).collect()
}

/// Leases keys and settles them in one way.
fn settle(server: SocketAddr, queue: &str, keys: usize, how: &str, error: Option<&str>) {
    let popped = post(server, &format!("{queue}/pop?max={keys}&worker=importer"), &json!({}));
    let items = popped["items"].as_array().expect("a list");
    assert_eq!(items.len(), keys);
    let mut body = json!({ "lease_ids": items.iter().map(|item| &item["lease"]["id"]).collect::<Vec<_>>() });
    if let Some(error) = error {
        body["error"] = error.into();
    }
    post(server, &format!("{queue}/{how}"), &body);
}

/// Ends a flow: the browser has nothing to complain about.
#[track_caller]
fn end(browser: &Browser) {
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_user_looks_at_queues() {
    let server = Server::in_memory();
    let at = server.address;
    let browser = Browser::start(at);

    // A browser comes from the root, to a server without queues.
    browser.visit(&format!("http://{at}/"));
    browser.until_text("There is no queue yet");
    assert!(browser.url().contains("/console/"), "{}", browser.url());
    end(&browser);

    // Queues appear and their counts change by themselves.
    post(at, "prices/add", &objects("sku-", 12));
    post(at, "stock.eu-west_1/add", &objects("s-", 3));
    settle(at, "prices", 5, "reject", Some("no route"));
    browser.until_text("stock.eu-west_1");
    browser.until("12 keys", || browser.js("return [...document.querySelectorAll('tbody tr')].find(r => r.innerText.includes('prices'))?.cells[4].innerText") == "5");
    end(&browser);

    // Find and sort are in the URL, and a step back undoes them.
    browser.type_into("[data-find]", "stock");
    browser.until("one row", || browser.count("tbody tr") == 1);
    assert!(browser.url().contains("find=stock"), "{}", browser.url());
    browser.open("queues");
    browser.click("Parked");
    browser.until("sorted by parked keys", || {
        browser.js("return document.querySelector('tbody tr')?.innerText.startsWith('prices')") == true
    });
    assert!(browser.url().contains("sort=parked") && browser.url().contains("order=desc"));
    browser.click_on("label.check input");
    browser.until("only the queue that needs a person", || browser.url().contains("only=trouble"));
    browser.back();
    browser
        .until("a step back", || !browser.url().contains("only=trouble") && browser.count("tbody tr") == 2);
    end(&browser);

    switch_a_queue(&browser, at);
    lose_queues(&browser, at);
}

/// A queue: its counts move, its switches work, and a purge says how many keys.
fn switch_a_queue(browser: &Browser, at: SocketAddr) {
    browser.open("queues/prices");
    browser.until_text("No worker takes the keys that are ready.");
    post(at, "prices/add", &objects("more-", 30));
    browser.until("counts that move", || {
        browser.js("return document.querySelector('.flow.wide .ready .count')?.textContent") == "37"
    });
    browser.click("Pause");
    browser.until_text("Paused: workers get nothing");
    browser.click("Resume");
    browser.until_no_text("Paused: workers get nothing");
    browser.click("Close");
    browser.until_text("Close the queue prices?");
    browser.click_on("dialog button[type=submit]");
    browser.until_text("closed");
    browser.click("Reopen");
    browser.until("the queue is open", || call(at, "GET", "/v1/queues/prices/status", "")["closed"] == false);
    end(browser);

    // A purge says how many keys, and needs the name of the queue.
    browser.click("Purge…");
    browser.until_text("37 keys");
    assert_eq!(browser.js("return document.querySelector('dialog [type=submit]').disabled"), true);
    browser.type_into("#typed", "price");
    assert_eq!(browser.js("return document.querySelector('dialog [type=submit]').disabled"), true);
    browser.type_into("#typed", "s");
    browser.click("Drop 37 keys");
    browser.until("the purge", || call(at, "GET", "/v1/queues/prices/status", "")["ready"] == 0);
    assert_eq!(call(at, "GET", "/v1/queues/prices/status", "")["parked"], 5);
    end(browser);
}

/// Queues that are drained, that another client deletes while their page is open, and that the user deletes.
fn lose_queues(browser: &Browser, at: SocketAddr) {
    browser.open("queues/stock.eu-west_1");
    settle(at, "stock.eu-west_1", 3, "ack", None);
    call(at, "POST", "/v1/queues/stock.eu-west_1/close", "");
    browser.until_text("Drained: the queue is closed");
    // Another client deletes the queue while its page is open.
    call(at, "DELETE", "/v1/queues/stock.eu-west_1", "");
    browser.until_text("The queue does not exist");
    end(browser);

    // The user deletes a queue, and is back at the list.
    browser.open("queues/prices");
    browser.click("Delete…");
    browser.type_into("#typed", "prices");
    browser.click("Delete the queue");
    browser.until_text("There is no queue yet");
    end(browser);
}

#[test]
fn a_user_finds_why_a_key_is_stuck_and_mends_it() {
    let server = Server::durable();
    let at = server.address;
    put(at, "prices", &json!({ "lease": "10m", "indexes": { "by_vat": "/vat" } }));
    post(
        at,
        "prices/add?source=erp",
        &json!({ "key": "sku-1", "price": 9_007_199_254_740_993_u64, "vat": "19", "same": "x" }),
    );
    settle(at, "prices", 1, "ack", None);
    let text = r#"{"key":"sku-1","price":9007199254740995,"rate":1.50,"vat":"19","same":"x"}"#;
    call(at, "POST", "/v1/queues/prices/update?source=shop", text);
    settle(at, "prices", 1, "reject", Some("currency EU is unknown"));
    post(at, "prices/add", &objects("other/", 3));
    let browser = Browser::start(at);

    // From the list of queues to the mended key in three clicks: the number of parked keys, the first key of the error, Redrive.
    browser.open("queues");
    browser.click_on("tbody a.alarm");
    browser.until_text("1 parked key with 1 error");
    browser.click("sku-1");
    browser.until_text("It is parked with the error");
    browser.until_text("currency EU is unknown");
    browser.click("Redrive");
    browser.until_text("It is ready");
    assert_eq!(call(at, "GET", "/v1/queues/prices/status", "")["parked"], 0);
    browser.click("Overview");
    browser.until_text("No worker takes the keys that are ready.");
    end(&browser);

    // The page of the key: exact numbers, differences, the history, commands.
    browser.open("queues/prices/keys/sku-1");
    // The history is read last.
    browser.until_text("redriven");
    browser.until_text("rejected");
    let page = browser.text();
    for part in ["9007199254740993", "9007199254740995", "1.50", "What changes", "/price", "/rate"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(browser.js("return document.querySelectorAll('.diff tbody tr').length"), 2);
    let shown =
        browser.js("return [...document.querySelectorAll('.object')].map(one => one.innerText).join()");
    let shown = shown.as_str().expect("a text");
    assert!(shown.contains("9007199254740995") && shown.contains("1.50"), "{shown}");
    browser.click("As curl");
    browser.until_text("/v1/queues/prices/explain?key=sku-1");
    end(&browser);

    find_keys(&browser, at);
    use_the_keyboard(&browser);
}

/// Keys by their start, state, source, and value of an index.
fn find_keys(browser: &Browser, at: SocketAddr) {
    browser.open("queues/prices/keys");
    browser.until("all keys that wait", || browser.count("tbody tr") == 4);
    browser.type_into("[data-find]", "other/");
    browser.until("keys with a prefix", || browser.count("tbody tr") == 3);
    browser.open("queues/prices/keys?source=shop");
    browser.until("keys of a source", || browser.count("tbody tr") == 1);
    browser.open("queues/prices/keys?state=known&index=by_vat&value=19");
    browser.until("keys with a value", || browser.count("tbody tr") == 1);
    browser.open("queues/prices/keys?state=delayed");
    browser.until_text("No key matches");
    end(browser);

    // What a key that nobody has sent gets.
    browser.open("queues/prices/keys/sku-none");
    browser.until_text("Check the spelling");
    // A leased key, which its user takes from the worker.
    post(at, "prices/pop?worker=nightly", &json!({}));
    browser.open("queues/prices/keys?state=leased");
    browser.until_text("nightly");
    browser.click_on("tbody a.row");
    browser.until_text("holds it until");
    browser.click("Release the lease…");
    browser.click("Release");
    browser.until("the lease ends", || call(at, "GET", "/v1/queues/prices/status", "")["leased"] == 0);
    end(browser);
}

fn use_the_keyboard(browser: &Browser) {
    browser.open("queues/prices/keys");
    browser.until("rows", || browser.count("tbody tr") == 4);
    browser.press("jjk");
    browser.until("the first row", || {
        browser.js("return document.activeElement === document.querySelector('tbody a.row')") == true
    });
    browser.press("/");
    browser
        .until("the field", || browser.js("return document.activeElement.hasAttribute('data-find')") == true);
    browser.js("document.activeElement.blur()");
    browser.press("gp");
    browser.until_text("No key is parked");
    browser.press("gt");
    browser.until_text("Waiting for the next change");
    browser.press("?");
    browser.until_there("dialog[open] kbd");
    browser.click("Close");
    browser.press("gq");
    browser.until("all queues", || browser.url().ends_with("#/queues"));
    assert_eq!(browser.js("return document.activeElement.tagName"), "H1", "focus moves to the heading");

    // A link keeps the focus while its table is read again and again.
    browser.open("queues/prices");
    let link = "main tbody a[href*='source=erp']";
    browser.until_there(link);
    browser.js_with("window.first = document.querySelector(arguments[0]); first.focus()", vec![link.into()]);
    let script = "const now = document.querySelector(arguments[0]); return now !== first && now === document.activeElement";
    browser.until("another table", || browser.js_with(script, vec![link.into()]) == true);
    end(browser);
}

#[test]
fn a_user_redrives_many_parked_keys() {
    let server = Server::in_memory();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 1_230));
    settle(at, "prices", 1_000, "reject", Some("503 <b>Service</b> Unavailable"));
    settle(at, "prices", 200, "reject", Some("no route"));
    settle(at, "prices", 20, "reject", None);
    let browser = Browser::start(at);
    browser.open("queues/prices/parked");
    browser.until_text("1,220 parked keys with 3 errors");
    assert_eq!(browser.count("main b"), 0);
    browser.click_on("tbody tr:nth-child(1) input");
    browser.until_text("Redrive 1,000 keys");
    browser.click("Redrive 1,000 keys");
    browser.until_text("Redrive 1,000 keys of prices with this error?");
    browser.click_on("dialog [type=submit]");
    browser.until_text("Redriven: 1,000 keys");
    browser.until_text("1,000 of 1,000 keys");
    browser.until_text("220 parked keys with 2 errors");
    let status = call(at, "GET", "/v1/queues/prices/status", "");
    assert_eq!((&status["ready"], &status["parked"]), (&json!(1_010), &json!(220)));
    end(&browser);

    // To discard needs the name of the queue. Keys without an error are a group, too.
    browser.click_on("tbody tr:nth-child(2) input");
    browser.click("Discard 20 keys…");
    browser.until_there("#typed");
    browser.type_into("#typed", "prices");
    browser.click("Discard 20 keys");
    browser.until_text("200 parked keys with 1 error");
    // The keys of an error.
    browser.click("no route");
    browser.until_text("Keys with the error no route");
    browser.until_text("100 keys, and there are more");
    browser.click("Show more");
    browser.until("all of them", || browser.count("tbody tr") == 200);
    end(&browser);

    // All at once.
    browser.open("queues/prices/parked");
    browser.until_there("tbody tr");
    let is_off =
        browser.js("return [...document.querySelectorAll('.bar button')].every(one => one.disabled)");
    assert_eq!(is_off, true, "nothing is chosen");
    browser.click_on("label.check input");
    browser.click("Redrive 200 keys");
    browser.click_on("dialog [type=submit]");
    browser.until_text("200 of 200 keys");
    assert_eq!(call(at, "GET", "/v1/queues/prices/status", "")["parked"], 0);
    end(&browser);
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_busy_queue_and_a_restart_do_not_disturb_an_open_page() {
    let mut server = Server::durable();
    let at = server.address;
    post(at, "prices/add", &objects("sku-", 5));
    let browser = Browser::start(at);

    // Changes, with a filter, and paused.
    browser.open("queues/prices/tail?find=wanted");
    browser.until_text("Waiting for the next change");
    browser.until("the watch", || {
        post(at, "prices/add", &json!([{ "key": "noise" }, { "key": "wanted" }]));
        browser.text().contains("wanted")
    });
    assert_eq!(
        browser.js("return [...document.querySelectorAll('.tail a')].every(a => a.textContent === 'wanted')"),
        true
    );
    end(&browser);

    // A queue that changes all the time: the page shows a part and still answers its user.
    browser.open("queues/prices/tail");
    browser.until_text("Waiting for the next change");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                post(at, "prices/update", &objects(&format!("r{round}-"), 250));
                round = (round + 1) % 8;
            }
        });
        // A failure must end the producer, too, or the scope would wait for ever.
        let _stopped = SetOnDrop(&stop);
        browser.until_text("They come faster than anyone can read");
        assert!(browser.count(".tail li") <= 200);
        browser.click_on(".bar button");
        browser.until_text("200 rows or more while paused");
        browser.click_on(".bar button");
        browser.until_no_text("while paused");
        assert!(browser.count(".tail li") <= 200);
        browser.click("Overview");
        browser.until_there(".flow.wide .ready");
    });
    end(&browser);

    // The page says so only while it is so.
    browser.open("queues/prices/tail");
    browser.until_text("Waiting for the next change");
    browser.until("the warning", || {
        post(at, "prices/update", &objects("burst-", 250));
        browser.text().contains("They come faster than anyone can read")
    });
    browser.until_no_text("They come faster than anyone can read");
    end(&browser);

    // The server is away and comes back, with what has changed.
    browser.open("queues/prices/tail");
    browser.until_text("Waiting for the next change");
    server.kill();
    browser.until_text("Reconnecting");
    browser.until_text("The server can't be reached");
    server.start();
    browser.until("the watch", || {
        post(at, "prices/add", &json!({ "key": "after-the-restart" }));
        browser.text().contains("after-the-restart")
    });
    browser.until_no_text("The server can't be reached");
    browser.open("queues/prices");
    browser.until_there(".flow.wide .ready");
    server.kill();
    browser.until_text("What you see is from before");
    server.start();
    browser.until_no_text("What you see is from before");
    browser.until_text("Live");
    end(&browser);
}

/// Writes the token file of the tokens `viewer`, which reads the queues `prices*`, and `operator`, which may do everything.
fn token_file(folder: &Path) -> PathBuf {
    let entry = |token: &str, verbs: &str, queue: &str| {
        format!(
            "[[tokens]]\nname = \"{token}\"\nsha256 = \"{}\"\ngrants = [{{ verbs = {verbs}, queues = [\"{queue}\"] }}]\n",
            digest_text(token)
        )
    };
    let text = entry("viewer", r#"["read"]"#, "prices*")
        + &entry("operator", r#"["read", "produce", "consume", "admin"]"#, "*");
    let file = folder.join("tokens.toml");
    std::fs::write(&file, text).expect("a file");
    file
}

/// A server with the tokens of [`token_file`].
struct Guarded {
    server: Server,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Guarded {
    /// Starts the server with a key `a` in each of these queues.
    fn start(queues: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = token_file(folder.path());
        let server = Server::with_settings(&[("DELTAQ_ACCESS__TOKENS_FILE", &file)]);
        for queue in queues {
            let mut command = server.command(&["add", queue, "--key", "a", "{}"]);
            command.env("DELTAQ_TOKEN", "operator");
            finished(command, "").ok();
        }
        Self { server, file, _folder: folder }
    }

    /// Changes the first place of the token file that has this text, and lets the server read it.
    fn change(&self, from: &str, to: &str) {
        let text = std::fs::read_to_string(&self.file).expect("the file");
        std::fs::write(&self.file, text.replacen(from, to, 1)).expect("the file");
        self.server.signal("HUP");
    }
}

#[test]
fn a_token_decides_what_a_user_may_do() {
    let guarded = Guarded::start(&["prices", "secrets"]);
    let browser = Browser::start(guarded.server.address);
    browser.open("queues");
    browser.until_text("This server needs a token.");
    browser.type_into("#token", "wrong");
    browser.click("Use the token");
    browser.until_text("The token is unknown.");
    browser.type_into("#token", "viewer");
    browser.click("Use the token");
    browser.until_text("1 queue");
    assert!(!browser.text().contains("secrets"));
    assert_eq!(browser.js("return JSON.stringify([location.href, localStorage, performance.getEntries().map(e => e.name)]).includes('viewer')"), false, "the token is in no URL");

    // A token that may only read.
    browser.click("prices");
    browser.until_text("Read only: the token viewer has no grant of admin and produce on this queue.");
    assert_eq!(
        browser.js(
            "return [...document.querySelectorAll('.view .actions button')].every(b => b.disabled && b.title)"
        ),
        true
    );
    browser.js("location.hash = '#/queues/secrets'");
    browser.until_text("The token does not permit this");
    end(&browser);

    // Another token.
    browser.click("Token");
    browser.type_into("#token", "operator");
    browser.click("Use the token");
    browser.js("location.hash = '#/queues/secrets'");
    browser.until("a switch", || {
        browser.js("return document.querySelector('.view .actions button')?.disabled") == false
    });
    browser.click("Pause");
    browser.until_text("Paused: workers get nothing");
    browser.js("location.hash = '#/queues/prices/keys/a'");
    browser.click("As curl");
    browser.until_text("$DELTAQ_TOKEN");
    assert!(!browser.text().contains("operator"));
    end(&browser);
}

#[test]
fn the_console_works_below_a_path_of_a_proxy() {
    let server = Server::in_memory();
    post(server.address, "prices/add", &objects("sku-", 2));
    let address = Proxy::start(server.address, "/tools/deltaq").address;
    let browser = Browser::start(address);
    browser.visit(&format!("http://{address}/tools/deltaq/"));
    browser.until_text("prices");
    assert!(browser.url().starts_with(&format!("http://{address}/tools/deltaq/console/")));
    browser.click("prices");
    browser.until_text("No worker takes the keys that are ready.");
    browser.click("Pause");
    browser.until_text("Paused: workers get nothing");
    end(&browser);
}
