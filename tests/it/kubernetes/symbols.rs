//! The symbols of a recording, such as `$rv3`, and what this server gave for each.

use std::collections::HashMap;

use serde_json::Value;

/// How far `$ahead` is ahead of the newest version.
const AHEAD: u64 = 1_000_000;

/// What a version is a version of: those of two resources can't be compared.
type Scope = &'static str;

#[derive(Debug, Default)]
pub(super) struct Symbols {
    given: HashMap<(Scope, String), Given>,
}

#[derive(Clone, Debug)]
struct Given {
    value: String,
    is_of_object: bool,
}

/// The name and the number of a symbol at the beginning of a text, and the length of both.
fn symbol(text: &str) -> Option<(&str, u32, usize)> {
    let rest = text.strip_prefix('$')?;
    let letters = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
    let name = rest.get(..letters)?;
    let numbered = matches!(name, "rv" | "uid" | "continue" | "generated");
    if !numbered && !matches!(name, "time" | "age" | "big" | "ahead") {
        return None;
    }
    let digits = rest[letters..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - letters);
    let number = rest[letters..letters + digits].parse().unwrap_or_default();
    Some((name, number, 1 + letters + digits))
}

/// Whether a recorded text is one symbol.
pub(super) fn is_symbol(text: &str) -> bool {
    symbol(text).is_some_and(|(_, _, length)| length == text.len())
}

/// Replaces the symbols of a text.
fn replaced(text: &str, mut value: impl FnMut(&str, &str, u32) -> Option<String>) -> Option<String> {
    let mut new = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        new.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = if let Some((name, number, length)) = symbol(rest) {
            new.push_str(&value(&rest[..length], name, number)?);
            length
        } else {
            new.push('$');
            1
        };
        rest = &rest[length..];
    }
    new.push_str(rest);
    Some(new)
}

impl Symbols {
    /// A recorded text as this server has to be asked. None if a token or a version that it needs is not there yet.
    pub(super) fn in_request(&self, scope: Scope, text: &str) -> Option<String> {
        replaced(text, |symbol, name, _| match name {
            "time" => Some("2026-01-01T00:00:00Z".to_owned()),
            "big" => Some("x".repeat(50_000)),
            "ahead" => Some((self.newest() + AHEAD).to_string()),
            _ => self.value(scope, symbol),
        })
    }

    /// The version that a text needs, if no answer gave that or a later one.
    pub(super) fn newest_missing(&self, scope: Scope, text: &str) -> Option<String> {
        let mut missing = None;
        let _ = replaced(text, |symbol, name, number| {
            let is_later =
                (number..number + 100).all(|later| self.value(scope, &format!("$rv{later}")).is_none());
            if name == "rv" && is_later {
                missing = Some(symbol.to_owned());
            }
            Some(String::new())
        });
        missing
    }

    fn newest(&self) -> u64 {
        let versions = self.given.iter().filter(|((_, symbol), _)| symbol.starts_with("$rv"));
        versions.filter_map(|(_, given)| given.value.parse().ok()).max().unwrap_or_default()
    }

    /// The same, where no answer gave a value. Of a version that is the next smaller one: versions change by writes, and
    /// all of those were recorded. Of anything else it is a value that nothing has.
    pub(super) fn in_request_at_last(&self, scope: Scope, text: &str) -> String {
        let filled = replaced(text, |symbol, name, number| {
            let version = || (0..=number).rev().find_map(|number| self.value(scope, &format!("$rv{number}")));
            Some(match name {
                "time" | "big" | "ahead" => self.in_request(scope, symbol)?,
                "rv" => version().unwrap_or_else(|| "1".to_owned()),
                _ => self.value(scope, symbol).unwrap_or_else(|| invented(symbol)),
            })
        });
        filled.unwrap_or_default()
    }

    fn value(&self, scope: Scope, symbol: &str) -> Option<String> {
        let other = || self.given.iter().find(|((_, other), _)| other == symbol).map(|(_, given)| given);
        self.given.get(&(scope, symbol.to_owned())).or_else(other).map(|given| given.value.clone())
    }

    /// Compares what this server gives for a recorded symbol with what it gave before. Returns what is wrong.
    pub(super) fn check(
        &mut self,
        scope: Scope,
        recorded: &str,
        ours: Option<&Value>,
        is_of_object: bool,
    ) -> Option<String> {
        let Some(value) = ours.and_then(Value::as_str).filter(|value| !value.is_empty()) else {
            return Some(ours.map_or("absent".to_owned(), Value::to_string));
        };
        let (name, number, _) = symbol(recorded)?;
        let is_time = |text: &str| text.len() == 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T';
        let wrong = match name {
            "rv" => value.parse::<u64>().map_or(true, |version| version == 0),
            "uid" => value.len() != 36,
            "time" => !is_time(value),
            "age" => !value.ends_with(['s', 'm', 'h', 'd']),
            _ => false,
        };
        if wrong {
            return Some(value.to_owned());
        }
        if matches!(name, "time" | "age" | "big") {
            return None;
        }
        let given = Given { value: value.to_owned(), is_of_object };
        let before = self.given.entry((scope, recorded.to_owned())).or_insert_with(|| given.clone());
        let is_other = before.value != given.value && name != "continue";
        if is_other {
            return Some(format!("{value} after {}", before.value));
        }
        if name == "rv" { self.out_of_order(scope, number, &given) } else { None }
    }

    /// Versions keep the order of their numbers. A list may have the version of its newest object.
    fn out_of_order(&self, scope: Scope, number: u32, given: &Given) -> Option<String> {
        let version = |given: &Given| given.value.parse::<u64>().unwrap_or_default();
        self.given.iter().filter(|((other, _), _)| *other == scope).find_map(|((_, recorded), other)| {
            let ("rv", other_number, _) = symbol(recorded)? else { return None };
            let (first, second) = if other_number < number { (other, given) } else { (given, other) };
            let is_wrong = version(first) > version(second)
                || (other_number != number
                    && given.is_of_object
                    && other.is_of_object
                    && version(first) == version(second));
            is_wrong.then(|| format!("{} beside {recorded} = {}", given.value, other.value))
        })
    }
}

/// A recorded text as a server might have said it.
pub(super) fn invented(text: &str) -> String {
    let invented = replaced(text, |_, name, number| {
        Some(match name {
            "rv" => (1000 + number).to_string(),
            "uid" => format!("00000000-0000-4000-8000-{number:012}"),
            "continue" => format!("token{number}"),
            "generated" => format!("gen-{number:05}"),
            "time" => "2026-01-01T00:00:00Z".to_owned(),
            "age" => "5s".to_owned(),
            _ => "x".to_owned(),
        })
    });
    invented.unwrap_or_default()
}
