//! Charts: points at their place in time, labelled in the zone of the reader; gaps where no server ran.

use serde_json::{Value, json};

use super::browser::Browser;
use super::proxy::Proxy;
use super::{end, objects, post};
use crate::system::cli::Server;

const MINUTE_MS: i64 = 60_000;

/// The text of an instant.
fn instant(ms: i64) -> String {
    humantime::format_rfc3339_seconds(
        std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms.unsigned_abs()),
    )
    .to_string()
}

/// A series of an hour from this instant on. In the minutes of `gap` no server ran.
fn series(from_ms: i64, gap: std::ops::Range<i64>) -> Value {
    let point = |minute: i64| {
        let at = instant(from_ms + minute * MINUTE_MS);
        if gap.contains(&minute) {
            return json!({ "at": at, "minutes": 0, "counts": null, "per_minute": null, "gauges": null, "processing": null });
        }
        json!({
            "at": at, "minutes": 1, "counts": {},
            "per_minute": { "changes": 20 + minute, "deliveries": 20, "acks": 20, "failures": 0 },
            "gauges": { "ready": 300 - minute, "oldest_unacknowledged_age_ms": 60_000 },
            "processing": { "leases": 3, "p50_ms": 120.0, "p99_ms": 900.0 },
        })
    };
    json!({
        "queue": "prices", "queues": 1, "from_at": instant(from_ms), "until_at": instant(from_ms + 60 * MINUTE_MS), "step_ms": MINUTE_MS,
        "complete_from_at": instant(from_ms), "points": (0..60).map(point).collect::<Vec<_>>(),
        "drain": { "empties_in_ms": 740_000, "reason": null, "waiting": 123, "shrinks_per_minute": 10.0, "measured_minutes": 10 },
    })
}

/// The labels of the axis of the first chart, with their instants.
const TICKS: &str = "return [...document.querySelector('.chart').querySelectorAll('.tick')].map(tick => [tick.textContent, tick.dataset.at])";

struct Charts {
    browser: Browser,
    proxy: Proxy,
    _server: Server,
}

impl Charts {
    fn start() -> Self {
        let server = Server::in_memory();
        post(server.address, "prices/add", &objects("sku-", 3));
        let proxy = Proxy::start(server.address, "");
        let browser = Browser::start(proxy.address);
        Self { browser, proxy, _server: server }
    }

    fn show(&self, series: &Value) {
        self.proxy.pass_all();
        self.proxy.answer("/series?", 200, "application/json", &series.to_string(), usize::MAX);
        self.browser.open("queues/prices");
        self.browser.until_there(".chart .line");
    }
}

#[test]
fn minutes_without_a_server_are_gaps_and_no_line_crosses_them() {
    let charts = Charts::start();
    let browser = &charts.browser;
    let from = 1_796_007_600_000;
    charts.show(&series(from, 20..30));
    browser.until_text("Empty in about 13 min at this rate: 123 keys wait.");
    // A line has two parts, and the gap lies between them.
    let parts = "return document.querySelector('.chart .line').getAttribute('d').split('M').filter(part => part !== '').map(part => part.split('L').map(point => point.trim().split(' ').map(Number)))";
    let parts = browser.js(parts);
    let parts = parts.as_array().expect("parts");
    assert_eq!(
        parts.iter().map(|part| part.as_array().map(Vec::len)).collect::<Vec<_>>(),
        [Some(20), Some(30)]
    );
    let gap = browser.js("const area = document.querySelector('.chart .gap-area'); return [Number(area.getAttribute('x')), Number(area.getAttribute('width'))]");
    let x = |point: &Value| point[0].as_f64().expect("a number");
    let (begin, width) = (x(&gap), gap[1].as_f64().expect("a number"));
    assert!(x(&parts[0][19]) < begin && begin + width < x(&parts[1][0]), "{gap} {parts:?}");
    // Points are drawn by their position in time: equal steps, also across the gap.
    let step = x(&parts[0][1]) - x(&parts[0][0]);
    assert!((x(&parts[1][0]) - x(&parts[0][0]) - 30.0 * step).abs() < 1.0, "{parts:?}");
    assert_eq!(browser.count(".chart-box"), 4);
    browser.until_text("Grey: the server did not run, or did not record (10 minutes).");
    for (width, scheme) in [(360, "dark"), (1280, "light")] {
        browser.show_as(width, scheme);
        assert_eq!(browser.axe(), Vec::<String>::new(), "{width} {scheme}");
    }
    // The values of a minute, by the keyboard.
    browser.js("document.querySelector('.chart').focus()");
    browser.type_into(".chart", "\u{e012}");
    browser.until_text("in 79, acknowledged 20, failed 0");
    browser.type_into(".chart", "\u{e012}");
    browser.until_text("in 78, acknowledged 20, failed 0");
    end(browser);

    // A gap at the end: the last points are not stretched to now.
    charts.show(&series(from, 50..60));
    let last = "const area = [...document.querySelectorAll('.chart .gap-area')].at(-1); return Number(area.getAttribute('x')) + Number(area.getAttribute('width'))";
    assert!(browser.js(last).as_f64() > Some(620.0), "{}", browser.js(last));
    end(browser);
}

#[test]
fn an_hour_of_the_night_and_the_end_of_the_backlog_are_three_clicks_away() {
    let charts = Charts::start();
    let browser = &charts.browser;
    let answer = series(1_796_007_600_000, 0..0);
    charts.proxy.answer("/series?", 200, "application/json", &answer.to_string(), usize::MAX);
    browser.open("queues");
    browser.until_text("1 queue");
    browser.clicks();
    browser.click("prices");
    browser.until_text("Empty in about 13 min at this rate");
    assert_eq!(browser.clicks(), 1);
    browser.click_on("select[aria-label=Time]");
    browser.click_on("select[aria-label=Time] option[value='24h']");
    browser.until("the series of a day", || charts.proxy.requests("since=24h&step=15m") > 0);
    assert_eq!(browser.clicks(), 2);
    end(browser);
}

#[test]
fn times_are_those_of_the_reader_in_every_zone() {
    let charts = Charts::start();
    let browser = &charts.browser;
    let hour = |browser: &Browser| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let ticks = browser.js(TICKS);
        ticks.as_array().expect("ticks").iter().map(|tick| (text(&tick[0]), text(&tick[1]))).collect()
    };
    // 2026-11-30T03:00Z in zones with whole hours, half hours and quarters. Labels are round in the zone, whatever they are in UTC.
    for (zone, first, last) in [
        ("Europe/Berlin", "04:00", "05:00"),
        ("Asia/Kolkata", "08:30", "09:30"),
        ("Asia/Kathmandu", "08:50", "09:40"),
        ("America/St_Johns", "23:30", "00:30"),
    ] {
        browser.in_zone(zone);
        charts.show(&series(1_796_007_600_000, 0..0));
        let ticks = hour(browser);
        let texts: Vec<&str> = ticks.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!((texts.first(), texts.last()), (Some(&first), Some(&last)), "{zone}: {texts:?}");
        assert!(texts.iter().all(|text| text.ends_with('0')), "{zone}: {texts:?}");
    }
    // Clocks are set back at 2026-10-25T01:00Z in Berlin: 02:00 comes twice, at two places.
    browser.in_zone("Europe/Berlin");
    charts.show(&series(1_792_888_200_000, 0..0));
    let ticks = hour(browser);
    let texts: Vec<&str> = ticks.iter().map(|(text, _)| text.as_str()).collect();
    assert!(
        texts.iter().any(|text| text.ends_with("GMT+2")) && texts.iter().any(|text| text.ends_with("GMT+1")),
        "{texts:?}"
    );
    let mut instants: Vec<&str> = ticks.iter().map(|(_, at)| at.as_str()).collect();
    assert!(instants.is_sorted(), "{instants:?}");
    instants.dedup();
    assert_eq!(instants.len(), ticks.len());
    // Clocks are set forward at 2026-03-29T01:00Z: no label between 02:00 and 03:00.
    charts.show(&series(1_774_744_200_000, 0..0));
    let ticks = hour(browser);
    assert!(ticks.iter().all(|(text, _)| !text.starts_with("02:")), "{ticks:?}");
    assert!(ticks.iter().any(|(text, _)| text.starts_with("03:")), "{ticks:?}");
    end(browser);
}

#[test]
fn the_range_is_in_the_link_and_a_server_without_series_has_no_charts() {
    let charts = Charts::start();
    let browser = &charts.browser;
    charts.show(&series(1_796_007_600_000, 0..0));
    browser.choose("Time", "24h");
    browser.until("the range", || charts.proxy.requests("series?since=24h&step=15m") > 0);
    assert!(browser.url().ends_with("#/queues/prices?range=24h"), "{}", browser.url());
    browser.open("queues");
    browser.until_there(".chart .line");
    end(browser);
    for (status, code) in [(404, "not-found"), (503, "overloaded")] {
        charts.proxy.pass_all();
        charts.proxy.refuse("/series?", status, code, usize::MAX);
        for place in ["queues", "queues/prices"] {
            browser.open(place);
            browser.until_text("prices");
            browser.until_there("tbody tr, .flow");
            browser.until("no charts", || browser.count(".chart .line") == 0);
        }
    }
    charts.proxy.pass_all();
    end(browser);
}
