//! A Chromium that a test drives over WebDriver, and what it finds on a page of the console.

use std::cell::Cell;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use axum::http::Method;
use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::harness::waiting::until;

/// A command of chromedriver that WebDriver does not have.
#[derive(Debug)]
struct Extension {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for Extension {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, <Url as std::str::FromStr>::Err> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}

/// Ports that are tried: chromedriver takes a free one for IPv4 and needs the same for IPv6, where another process may have it.
const PORTS_MAX: usize = 10;

/// Starts a chromedriver. Returns it with its port, or nothing if it has found none.
fn driver() -> Option<(Child, String)> {
    let mut driver = Command::new("chromedriver");
    driver.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut driver = driver.spawn().expect("chromedriver is installed; .ci/run installs it");
    let output = BufReader::new(driver.stdout.take().expect("a pipe"));
    let started = "started successfully on port ";
    let mut lines = output.lines().map_while(Result::ok);
    let port = lines.find_map(|line| Some(line.split_once(started)?.1.trim_end_matches('.').to_owned()));
    if port.is_none() {
        let _ended = driver.wait();
    }
    Some((driver, port?))
}

/// A browser with one page.
pub(super) struct Browser {
    driver: Child,
    runtime: Runtime,
    client: Client,
    base: String,
    clicks: Cell<u32>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser for the server at this address.
    pub(super) fn start(server: SocketAddr) -> Self {
        let (driver, port) = (0..PORTS_MAX).find_map(|_| driver()).expect("chromedriver says its port");
        let profile = tempfile::tempdir().expect("a folder");
        let runtime = Runtime::new().expect("a runtime");
        // The sandbox of Chromium does not run as root, as in CI.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1280,900",
            &format!("--user-data-dir={}", profile.path().display()),
        ]
        .map(str::to_owned);
        let capabilities = json!({
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": arguments },
        });
        let Value::Object(capabilities) = capabilities else { panic!("an object") };
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(Capabilities::from_iter(capabilities));
        let client = runtime.block_on(builder.connect(&format!("http://127.0.0.1:{port}")));
        let client = client.expect("Chromium starts");
        Self {
            driver,
            runtime,
            client,
            base: format!("http://{server}"),
            clicks: Cell::new(0),
            _profile: profile,
        }
    }

    /// Opens a place of the console, by its fragment, as a new page.
    pub(super) fn open(&self, fragment: &str) {
        self.visit("about:blank");
        self.visit(&format!("{}/console/#/{fragment}", self.base));
        self.until_there("h1");
    }

    pub(super) fn visit(&self, url: &str) {
        self.runtime.block_on(self.client.goto(url)).expect("the page loads");
    }

    pub(super) fn url(&self) -> String {
        self.js("return location.href").as_str().expect("a URL").to_owned()
    }

    pub(super) fn js(&self, script: &str) -> Value {
        self.js_with(script, Vec::new())
    }

    pub(super) fn js_with(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.runtime
            .block_on(self.client.execute(script, arguments))
            .unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// The visible text of the whole page.
    pub(super) fn text(&self) -> String {
        self.js("return document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    #[track_caller]
    pub(super) fn until_text(&self, text: &str) {
        self.until(text, || self.text().contains(text));
    }

    #[track_caller]
    pub(super) fn until_no_text(&self, text: &str) {
        self.until(text, || !self.text().contains(text));
    }

    #[track_caller]
    pub(super) fn until_there(&self, selector: &str) {
        self.until(selector, || self.count(selector) > 0);
    }

    /// Waits for a condition. The failure shows the page.
    #[track_caller]
    pub(super) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let waiting = std::panic::AssertUnwindSafe(|| until(what, &mut holds));
        let is_in_time = std::panic::catch_unwind(waiting).is_ok();
        let log = if is_in_time { Vec::new() } else { self.log() };
        assert!(
            is_in_time,
            "not in time: {what}; {} has\n{}\nand has logged {log:?}",
            self.url(),
            self.text()
        );
    }

    pub(super) fn count(&self, selector: &str) -> u64 {
        let found =
            self.js_with("return document.querySelectorAll(arguments[0]).length", vec![selector.into()]);
        found.as_u64().expect("a number")
    }

    /// Clicks the visible link or button with this text.
    #[track_caller]
    pub(super) fn click(&self, text: &str) {
        let path = format!(
            "(//dialog//*[self::button][normalize-space()='{text}'] | //*[self::a or self::button or self::summary][normalize-space()='{text}'])[last()]"
        );
        self.click_at(Locator::XPath(&path), text);
    }

    /// Clicks an element.
    #[track_caller]
    pub(super) fn click_on(&self, selector: &str) {
        self.click_at(Locator::Css(selector), selector);
    }

    #[track_caller]
    fn click_at(&self, locator: Locator<'_>, what: &str) {
        self.until(what, || {
            self.runtime.block_on(async {
                match self.client.find(locator).await {
                    Ok(element) => element.click().await.is_ok(),
                    Err(_) => false,
                }
            })
        });
        self.clicks.set(self.clicks.get() + 1);
    }

    /// The clicks since the last call.
    pub(super) fn clicks(&self) -> u32 {
        self.clicks.take()
    }

    /// Types into an element, or into the page.
    #[track_caller]
    pub(super) fn type_into(&self, selector: &str, text: &str) {
        self.until(selector, || {
            self.runtime.block_on(async {
                match self.client.find(Locator::Css(selector)).await {
                    Ok(element) => element.send_keys(text).await.is_ok(),
                    Err(_) => false,
                }
            })
        });
    }

    /// Chooses an option of a list.
    pub(super) fn choose(&self, label: &str, value: &str) {
        let script = "const list = document.querySelector(`select[aria-label='${arguments[0]}']`); list.value = arguments[1]; list.dispatchEvent(new Event('change'))";
        self.js_with(script, vec![label.into(), value.into()]);
    }

    /// Hides the page, or shows it again.
    pub(super) fn hide(&self, is_hidden: bool) {
        let script = "Object.defineProperty(document, 'hidden', { configurable: true, value: arguments[0] }); document.dispatchEvent(new Event('visibilitychange'))";
        self.js_with(script, vec![is_hidden.into()]);
    }

    /// Presses keys without a focused field.
    pub(super) fn press(&self, keys: &str) {
        self.type_into("body", keys);
    }

    pub(super) fn back(&self) {
        self.runtime.block_on(self.client.back()).expect("a step back");
    }

    pub(super) fn forward(&self) {
        self.runtime.block_on(self.client.forward()).expect("a step forward");
    }

    /// Sends a command of the DevTools protocol.
    fn devtools(&self, command: &str, parameters: &Value) {
        let body = json!({ "cmd": command, "params": parameters });
        let command = Extension { path: "goog/cdp/execute", body };
        self.runtime.block_on(self.client.issue_cmd(command)).expect("a command of DevTools");
    }

    /// Sets the width of the page, and the colours that its user prefers.
    pub(super) fn show_as(&self, width: u32, scheme: &str) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
        let feature = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", &feature);
    }

    /// Sets the zone of the user, such as `Asia/Kolkata`.
    pub(super) fn in_zone(&self, zone: &str) {
        self.devtools("Emulation.setTimezoneOverride", &json!({ "timezoneId": zone }));
    }

    /// Runs a script at the start of the next pages.
    pub(super) fn begin_with(&self, script: &str) {
        self.devtools("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": script }));
    }

    /// Sets the clock that scripts of the next pages read.
    pub(super) fn shift_clock(&self, ms: i64) {
        self.begin_with(&format!("(() => {{ const read = Date.now; Date.now = () => read() + {ms}; }})()"));
    }

    /// What the browser has logged since the last call.
    fn log(&self) -> Vec<String> {
        let command = Extension { path: "se/log", body: json!({ "type": "browser" }) };
        let lines = self.runtime.block_on(self.client.issue_cmd(command)).expect("the log");
        let lines = lines.as_array().cloned().unwrap_or_default();
        lines.iter().map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The log without replies with an error, which the tests cause themselves.
    pub(super) fn complaints(&self) -> Vec<String> {
        let lines = self.log().into_iter();
        lines
            .filter(|text| !text.contains("Failed to load resource") && !text.contains("net::ERR_"))
            .collect()
    }

    /// The rules of axe-core that the present page breaks.
    pub(super) fn axe(&self) -> Vec<String> {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/axe/axe_playwright_python/axe.min.js");
        let axe = std::fs::read_to_string(file).expect("scripts/tools.sh installs axe-core");
        self.js(&axe);
        let script = "const done = arguments[arguments.length - 1]; axe.run(document, { resultTypes: ['violations'] }).then(r => done(r.violations.map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160) + ' ' + n.failureSummary).join(' | '))), e => done(['failed: ' + e]))";
        let found = self.runtime.block_on(self.client.execute_async(script, Vec::new())).expect("axe runs");
        let found = found.as_array().expect("a list").iter();
        found.map(|rule| rule.as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ended = self.runtime.block_on(self.client.clone().close());
        let _killed = self.driver.kill();
        let _reaped = self.driver.wait();
    }
}
