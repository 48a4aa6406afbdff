//! Compares recorded When tables of client-go's rate limiters with the engine's waits.

use std::collections::HashMap;
use std::time::Duration;

use deltaq_engine::rate_limit::{ItemExponential, ItemFastSlow, RateLimiter};
use deltaq_engine::time::Time;
use serde::Deserialize;

use super::report::Report;

/// The only difference that the README of the recorded files allows.
const OVERFLOW: &str = "6. a negative wait becomes the maximum";
/// Not a difference: of more than a thousand calls for one item, the recording omits the middle ones.
const GAP: &str = "no difference, but the recording omits calls";

/// A recorded table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    limiter: String,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    item: String,
    op: Op,
    when_ns: i64,
    num_requeues_after: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    When,
    Forget,
    NumRequeues,
}

/// Compares every recorded wait. The replay counts failures per item, as a queue counts them per key.
pub(crate) fn replay(tables: &[Table]) -> Report {
    let mut report = Report::default();
    for table in tables {
        let limiter = limiter(&table.limiter);
        let mut failures: HashMap<&str, u32> = HashMap::new();
        for (index, row) in table.rows.iter().enumerate() {
            if let Err(error) = compare(&limiter, &mut failures, row, &mut report) {
                report.wrong.push(format!("{}, row {index}, {row:?}: {error}", table.limiter));
            }
            report.compared += 1;
        }
    }
    report
}

fn compare<'t>(
    limiter: &RateLimiter,
    failures: &mut HashMap<&'t str, u32>,
    row: &'t Row,
    report: &mut Report,
) -> Result<(), String> {
    let count = failures.entry(&row.item).or_default();
    match row.op {
        Op::Forget => *count = 0,
        Op::When => *count += 1,
        Op::NumRequeues => {}
    }
    // `max_of()` without limiters does not count failures.
    let remembers = limiter.item_exponential.is_some() || limiter.item_fast_slow.is_some();
    if remembers && row.op == Op::When && row.num_requeues_after > *count {
        *count = row.num_requeues_after;
        report.expect(GAP);
    }
    let requeues = if remembers { *count } else { 0 };
    if requeues != row.num_requeues_after {
        return Err(format!("NumRequeues {requeues}"));
    }
    if row.op != Op::When {
        return Ok(());
    }
    let (wait, _) = limiter.wait(&row.item, *count, None, Time::default());
    let recorded = u64::try_from(row.when_ns).map(Duration::from_nanos).or_else(|_| {
        report.expect(OVERFLOW);
        limiter.item_exponential.as_ref().map(|limiter| limiter.max).ok_or("only this limiter overflows")
    })?;
    let recorded = limiter.max_wait.map_or(recorded, |most| recorded.min(most));
    if wait == recorded { Ok(()) } else { Err(format!("waits {wait:?} instead of {recorded:?}")) }
}

/// Parses the limiter of a table, such as `max_of(item_fast_slow(fast=5ms,slow=3s,max_fast=3))`.
fn limiter(text: &str) -> RateLimiter {
    let none = RateLimiter {
        item_exponential: None,
        item_fast_slow: None,
        bucket: None,
        max_wait: None,
        jitter: 0.0,
    };
    add_limiter(none, text)
}

fn add_limiter(mut limiter: RateLimiter, text: &str) -> RateLimiter {
    let call = text.strip_suffix(')').and_then(|rest| rest.split_once('('));
    let (name, arguments) = call.unwrap_or_else(|| panic!("{text:?} is not a limiter"));
    let parts = split(arguments);
    let value = |name: &str| {
        let found = parts.iter().find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("no {name} in limiter {text:?}"))
    };
    match name {
        "item_exponential" if limiter.item_exponential.is_none() => {
            let (base, max) = (duration(value("base")), duration(value("max")));
            limiter.item_exponential = Some(ItemExponential { base, max });
            limiter
        }
        "item_fast_slow" if limiter.item_fast_slow.is_none() => {
            let (fast, slow) = (duration(value("fast")), duration(value("slow")));
            let max_fast = value("max_fast").parse().expect("max_fast is a number");
            limiter.item_fast_slow = Some(ItemFastSlow { fast, slow, max_fast });
            limiter
        }
        "max_of" => parts.iter().fold(limiter, |limiter, part| add_limiter(limiter, part)),
        "with_max_wait" if limiter.max_wait.is_none() => {
            limiter.max_wait = Some(duration(value("max")));
            let inner = parts.iter().filter(|part| !part.starts_with("max="));
            inner.fold(limiter, |limiter, part| add_limiter(limiter, part))
        }
        _ => panic!("unknown or repeated limiter {text:?}"),
    }
}

/// Splits at commas outside parentheses.
fn split(arguments: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let at_top = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    };
    arguments.split(at_top).filter(|part| !part.is_empty()).collect()
}

fn duration(text: &str) -> Duration {
    if text == "max_int64" {
        return Duration::from_nanos(i64::MAX.unsigned_abs());
    }
    if text == "0" {
        return Duration::ZERO;
    }
    let unit = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let number: u64 = number.parse().unwrap_or_else(|_| panic!("{text:?} is not a duration"));
    match unit {
        "ns" => Duration::from_nanos(number),
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        _ => panic!("{text:?} is not a duration"),
    }
}

#[test]
fn limiters_are_parsed() {
    let read = limiter(
        "with_max_wait(max_of(item_exponential(base=7ns,max=1s),item_fast_slow(fast=1ms,slow=3s,max_fast=2)),max=2s)",
    );
    assert_eq!(read.item_exponential.map(|limiter| limiter.base), Some(Duration::from_nanos(7)));
    assert_eq!(read.item_fast_slow.map(|limiter| limiter.max_fast), Some(2));
    assert_eq!(read.max_wait, Some(Duration::from_secs(2)));
}
