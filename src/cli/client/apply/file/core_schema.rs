//! The core schema of YAML 1.2 (section 10.3 of its specification): what a scalar means.
//!
//! It differs from YAML 1.1, and from what many parsers accept: `no`, `1_000` and `0b11` are texts, `012` is the number twelve.

use super::super::exact::{Exact, Number};

/// What the tag of a scalar says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A plain scalar without a tag: its spelling decides.
    Plain,
    /// A scalar in quotes, a block, or one with the tag `!` or `!!str`.
    Text,
    Null,
    Bool,
    Int,
    Float,
}

/// Whether a plain scalar means null.
pub(super) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// The value of a scalar.
///
/// # Errors
/// It does not agree with its tag, or JSON has no such number.
pub(super) fn value(text: &str, kind: Kind) -> Result<Exact, String> {
    let value = match kind {
        Kind::Plain => plain(text)?,
        Kind::Text => Some(Exact::Text(text.to_owned())),
        Kind::Null => is_null(text).then_some(Exact::Null),
        Kind::Bool => boolean(text).map(Exact::Bool),
        Kind::Int => int(text)?.map(Exact::Number),
        Kind::Float => float(text)?.map(Exact::Number),
    };
    value.ok_or_else(|| format!("{text:?} is not of the type that its tag names"))
}

fn plain(text: &str) -> Result<Option<Exact>, String> {
    if is_null(text) {
        return Ok(Some(Exact::Null));
    }
    if let Some(value) = boolean(text) {
        return Ok(Some(Exact::Bool(value)));
    }
    let number = match int(text)? {
        None => float(text)?,
        int => int,
    };
    Ok(Some(number.map_or_else(|| Exact::Text(text.to_owned()), Exact::Number)))
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

fn int(text: &str) -> Result<Option<Number>, String> {
    for (prefix, radix) in [("0o", 8), ("0x", 16)] {
        let digits = text.strip_prefix(prefix).filter(|digits| !digits.is_empty());
        if let Some(digits) = digits.filter(|digits| digits.chars().all(|digit| digit.is_digit(radix))) {
            return Number::whole(digits, radix).map(Some);
        }
    }
    let is_whole = !text.contains(['.', 'e', 'E']);
    Ok(Number::decimal(text).filter(|_| is_whole))
}

fn float(text: &str) -> Result<Option<Number>, String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_infinite = matches!(unsigned, ".inf" | ".Inf" | ".INF");
    if is_infinite || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(format!("{text} is no number of JSON"));
    }
    Ok(Number::decimal(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        value(text, Kind::Plain).unwrap().to_string()
    }

    #[test]
    fn a_plain_scalar_means_what_the_core_schema_says() {
        for (text, expected) in [
            ("", "null"),
            ("~", "null"),
            ("Null", "null"),
            ("nULL", "\"nULL\""),
            ("true", "true"),
            ("FALSE", "false"),
            ("tRue", "\"tRue\""),
            ("12", "12"),
            ("012", "12"),
            ("+012", "12"),
            ("-012", "-12"),
            ("0o17", "15"),
            ("0x1F", "31"),
            ("1e5", "1e5"),
            ("4.90", "4.90"),
            (".5", "0.5"),
            ("5.", "5"),
            ("1e400", "1e400"),
            ("72044e0", "72044e0"),
            ("12345678901234567890123", "12345678901234567890123"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        for text in [
            "no",
            "yes",
            "on",
            "y",
            "1_000",
            "1_0.5",
            "0b11",
            "0B11",
            "0O17",
            "0X1F",
            "-0o17",
            "+0x1F",
            "0o18",
            "0o",
            "0x",
            ".",
            "1m",
            "60s",
            "1:30",
            "2026-01-01",
            "inf",
            "nan",
            "NaN",
            ".NAn",
            "+.nan",
            "infinity",
            "1e",
            "e5",
            "1.2.3",
            "<<",
            "=",
        ] {
            assert_eq!(read(text), format!("{text:?}"), "{text}");
        }
        for (text, part) in [
            (".inf", "no number of JSON"),
            ("-.INF", "no number of JSON"),
            (".NaN", "no number of JSON"),
            (&format!("0x{}", "f".repeat(33)), "more than 128 bits"),
        ] {
            assert!(value(text, Kind::Plain).unwrap_err().contains(part), "{text}");
        }
    }

    #[test]
    fn a_tag_decides_the_type() {
        for (text, kind, expected) in [
            ("5", Kind::Text, "\"5\""),
            ("", Kind::Text, "\"\""),
            ("012", Kind::Int, "12"),
            ("5", Kind::Float, "5"),
            ("null", Kind::Null, "null"),
            ("True", Kind::Bool, "true"),
        ] {
            assert_eq!(value(text, kind).unwrap().to_string(), expected);
        }
        for (text, kind) in [
            ("1.5", Kind::Int),
            ("x", Kind::Float),
            ("x", Kind::Null),
            ("yes", Kind::Bool),
            ("1_0", Kind::Int),
        ] {
            assert!(value(text, kind).unwrap_err().contains("its tag"), "{text}");
        }
    }
}
