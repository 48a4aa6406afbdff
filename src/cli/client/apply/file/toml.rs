//! Files in TOML.

use toml::Spanned;
use toml::de::{DeFloat, DeInteger, DeString, DeTable, DeValue};

use super::super::exact::{Exact, Number};
use super::super::fault::Fault;

/// Reads a file.
pub(super) fn parse(text: &str) -> Result<Exact, Fault> {
    let reader = Reader { text };
    let parsed = DeTable::parse(text);
    let table = parsed.map_err(|error| match error.span() {
        Some(span) => Fault::at(reader.line(span.start), error.message()),
        None => Fault::anywhere(error.message()),
    })?;
    reader.object(table.get_ref())
}

struct Reader<'t> {
    text: &'t str,
}

impl Reader<'_> {
    /// The line of a byte.
    fn line(&self, offset: usize) -> usize {
        self.text.get(..offset).unwrap_or_default().matches('\n').count() + 1
    }

    fn value(&self, value: &Spanned<DeValue<'_>>) -> Result<Exact, Fault> {
        let fault = |why: String| Fault::at(self.line(value.span().start), why);
        Ok(match value.get_ref() {
            DeValue::String(text) => Exact::Text(text.clone().into_owned()),
            DeValue::Integer(number) => Exact::Number(integer(number).map_err(fault)?),
            DeValue::Float(number) => Exact::Number(float(number).map_err(fault)?),
            DeValue::Boolean(value) => Exact::Bool(*value),
            DeValue::Datetime(_) => return Err(fault("JSON has no dates: write it in quotes".to_owned())),
            DeValue::Array(elements) => {
                let element = |(index, element): (usize, &Spanned<DeValue<'_>>)| {
                    self.value(element).map_err(|fault| fault.inside(&index.to_string()))
                };
                Exact::List(elements.iter().enumerate().map(element).collect::<Result<_, Fault>>()?)
            }
            DeValue::Table(table) => self.object(table)?,
        })
    }

    /// The members of a table in the order of the file.
    fn object(&self, table: &DeTable<'_>) -> Result<Exact, Fault> {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let member = |(name, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
            let name = name.get_ref();
            Ok((name.clone().into_owned(), self.value(value).map_err(|fault| fault.inside(name))?))
        };
        Ok(Exact::Object(entries.into_iter().map(member).collect::<Result<_, Fault>>()?))
    }
}

fn integer(number: &DeInteger<'_>) -> Result<Number, String> {
    let text = number.as_str().replace('_', "");
    match number.radix() {
        10 => Number::decimal(&text).ok_or_else(|| format!("{text} is no number")),
        radix => Number::whole(&text, radix),
    }
}

fn float(number: &DeFloat<'_>) -> Result<Number, String> {
    let text = number.as_str().replace('_', "");
    Number::decimal(&text).ok_or_else(|| format!("{text} is no number of JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits_and_members_their_order() {
        let text = "b = [1_000, +5, -7, 0xff, 0o17, 0b11, 12345678901234567890123]\na = {d = 4.90, c = 1e400}\nf = 0.12345678901234567890123\ng = +1e+06\n[t.\"1e5\"]\nx = 'y'\n";
        let expected = r#"{"b":[1000,5,-7,255,15,3,12345678901234567890123],"a":{"d":4.90,"c":1e400},"f":0.12345678901234567890123,"g":1e+06,"t":{"1e5":{"x":"y"}}}"#;
        assert_eq!(parse(text).unwrap().to_string(), expected);
    }

    #[test]
    fn a_fault_has_its_line_and_its_member() {
        for (text, expected) in [
            ("[a]\nb = 2026-01-01\n", "line 2: a.b: JSON has no dates: write it in quotes"),
            ("[a]\nb = [1, inf]\n", "line 2: a.b.1: inf is no number of JSON"),
            ("a = 1\nb = 1\na = 2\n", "line 3: duplicate key"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected);
        }
        let large = format!("a = 0x{}", "f".repeat(40));
        assert!(parse(&large).unwrap_err().to_string().contains("a: ffff"));
    }
}
