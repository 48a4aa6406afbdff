//! Files in YAML 1.2, with the merge key `<<` of YAML 1.1.
//!
//! The events of the parser are read here and not by its crate's own deserializer. That one takes `1_000` and `0b11` for numbers, and it
//! rounds numbers to 64 bits.
//!
//! What aliases expand to is bounded: see [`VALUES_MAX`] and [`BYTES_MAX`].

use std::collections::HashMap;

use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, StrInput, Tag};

use super::super::exact::{DEPTH_MAX, Exact, Members};
use super::super::fault::Fault;
use super::OWNER;
use super::core_schema::{self, Kind};

/// Maximum number of values in a file, which is enough for 50,000 queues with all of their settings.
const VALUES_MAX: usize = 4_000_000;
/// Maximum length of all texts in a file in bytes, after the aliases were expanded.
const BYTES_MAX: usize = 256 << 20;
/// The name of the merge key.
const MERGE: &str = "<<";

/// Reads a file.
pub(super) fn parse(text: &str) -> Result<Exact, Fault> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let events = Parser::new_from_str_with_options(text, options);
    Composer { events, anchors: HashMap::new(), total: Size::default() }.document()
}

/// Makes values of the events of the parser.
struct Composer<'t> {
    events: Parser<'t, StrInput<'t>>,
    /// The values with an anchor that are complete, by the number of the anchor.
    anchors: HashMap<usize, (Exact, Size)>,
    /// Invariant: at most [`VALUES_MAX`] and [`BYTES_MAX`]. Copies of values count as well.
    total: Size,
}

/// The size of a value.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    values: usize,
    bytes: usize,
    /// The number of containers around the innermost value.
    depth: usize,
}

impl Size {
    fn of_text(text: &str) -> Self {
        Self { values: 1, bytes: text.len(), depth: 0 }
    }

    /// Adds a value that is inside.
    fn add(&mut self, inner: Self) {
        self.values += inner.values;
        self.bytes += inner.bytes;
        self.depth = self.depth.max(inner.depth + 1);
    }
}

impl<'t> Composer<'t> {
    /// The only document.
    fn document(&mut self) -> Result<Exact, Fault> {
        loop {
            match self.next()? {
                (Event::DocumentStart(..), _) => break,
                (Event::StreamEnd, line) => return Err(unexpected_end(line)),
                _ => {}
            }
        }
        let first = self.next()?;
        let (value, _) = self.node(first, 0)?;
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(value),
                (Event::DocumentStart(..), line) => return Err(Fault::at(line, "it has a second document")),
                _ => {}
            }
        }
    }

    /// The next event, and its line.
    fn next(&mut self) -> Result<(Event<'t>, usize), Fault> {
        match self.events.next() {
            Some(Ok((event, span))) => Ok((event, span.start.line())),
            Some(Err(error)) => Err(Fault::at(error.marker().line(), error.info())),
            None => Err(Fault::anywhere("unexpected end of input")),
        }
    }

    /// The value that begins with an event. `depth` is the number of containers around it.
    fn node(&mut self, (event, line): (Event<'t>, usize), depth: usize) -> Result<(Exact, Size), Fault> {
        if depth > DEPTH_MAX {
            return Err(Fault::at(line, format!("it is nested deeper than {DEPTH_MAX} levels")));
        }
        let anchor = event.anchor_id();
        let (value, size) = match event {
            Event::Alias(anchor) => return self.alias(anchor, line, depth),
            Event::Scalar(text, style, _, tag) => {
                let kind = kind(style, tag.as_deref()).map_err(|why| Fault::at(line, why))?;
                let value = core_schema::value(&text, kind).map_err(|why| Fault::at(line, why))?;
                let size = Size::of_text(&text);
                self.count(size, line)?;
                (value, size)
            }
            Event::SequenceStart(_, _, tag) => {
                check_tag(tag.as_deref(), "seq", line)?;
                self.list(depth, line)?
            }
            Event::MappingStart(_, _, tag) => {
                check_tag(tag.as_deref(), "map", line)?;
                self.mapping(depth, line)?
            }
            _ => return Err(unexpected_end(line)),
        };
        if let Some(anchor) = anchor {
            self.count(size, line)?;
            self.anchors.insert(anchor, (value.clone(), size));
        }
        Ok((value, size))
    }

    /// A copy of the value with an anchor.
    fn alias(&mut self, anchor: usize, line: usize, depth: usize) -> Result<(Exact, Size), Fault> {
        let anchored = self.anchors.get(&anchor).cloned();
        let (value, size) = anchored.ok_or_else(|| Fault::at(line, "an alias stands for what it is in"))?;
        if depth + size.depth > DEPTH_MAX {
            let why = format!("with its aliases, it is nested deeper than {DEPTH_MAX} levels");
            return Err(Fault::at(line, why));
        }
        self.count(size, line)?;
        Ok((value, size))
    }

    /// Adds to the size of the file.
    fn count(&mut self, Size { values, bytes, .. }: Size, line: usize) -> Result<(), Fault> {
        self.total.values += values;
        self.total.bytes += bytes;
        if self.total.values > VALUES_MAX {
            return Err(Fault::at(line, format!("with its aliases, it has more than {VALUES_MAX} values")));
        }
        if self.total.bytes > BYTES_MAX {
            return Err(Fault::at(
                line,
                format!("with its aliases, it has more than {} MiB", BYTES_MAX >> 20),
            ));
        }
        Ok(())
    }

    fn list(&mut self, depth: usize, line: usize) -> Result<(Exact, Size), Fault> {
        let mut elements = Vec::new();
        let mut size = Size { values: 1, ..Size::default() };
        self.count(size, line)?;
        loop {
            let next = self.next()?;
            if next.0 == Event::SequenceEnd {
                return Ok((Exact::List(elements), size));
            }
            let index = elements.len().to_string();
            let (value, inner) = self.node(next, depth + 1).map_err(|fault| fault.inside(&index))?;
            size.add(inner);
            elements.push(value);
        }
    }

    fn mapping(&mut self, depth: usize, line: usize) -> Result<(Exact, Size), Fault> {
        let (mut own, mut merged) = (Vec::new(), Vec::new());
        let mut lines: HashMap<String, usize> = HashMap::new();
        let mut size = Size { values: 1, ..Size::default() };
        self.count(size, line)?;
        loop {
            let (event, line) = self.next()?;
            if event == Event::MappingEnd {
                break;
            }
            let is_merge =
                matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == MERGE);
            let name = self.name(event, line)?;
            if let Some(first) = lines.insert(name.clone(), line) {
                return Err(Fault::at(line, format!("{name:?} is there twice, first in line {first}")));
            }
            let next = self.next()?;
            // The owner is a name, so it stays text as the names of queues do.
            let next = if depth == 0 && name == OWNER { as_text(next) } else { next };
            let value_line = next.1;
            let (value, inner) = self.node(next, depth + 1).map_err(|fault| fault.inside(&name))?;
            size.add(inner);
            size.bytes += name.len();
            if is_merge {
                lines.remove(MERGE);
                merged.extend(sources(value).ok_or_else(|| Fault::at(value_line, "<< takes objects"))?);
            } else {
                own.push((name, value));
            }
        }
        for (name, value) in merged.into_iter().flatten() {
            // A member beside the merge key replaces the merged one, and an earlier object a later one.
            if lines.insert(name.clone(), line).is_none() {
                own.push((name, value));
            }
        }
        Ok((Exact::Object(own.into_iter().collect()), size))
    }

    /// The name of a member, which stays text: `no`, `1e5` and `0o17` are names.
    fn name(&mut self, event: Event<'t>, line: usize) -> Result<String, Fault> {
        let wrong = |why: &str| Err(Fault::at(line, why));
        match event {
            Event::Scalar(text, ScalarStyle::Plain, _, None) if core_schema::is_null(&text) => {
                wrong("the name of a member is missing, or null without quotes")
            }
            Event::Scalar(text, style, anchor, tag) => {
                if !matches!(kind(style, tag.as_deref()), Ok(Kind::Plain | Kind::Text)) {
                    return wrong("the name of a member has a tag");
                }
                let (name, size) = (text.into_owned(), Size::default());
                self.count(Size::of_text(&name), line)?;
                if anchor != 0 {
                    self.anchors.insert(anchor, (Exact::Text(name.clone()), size));
                }
                Ok(name)
            }
            Event::Alias(anchor) => match self.alias(anchor, line, 0)? {
                (Exact::Text(name), _) => Ok(name),
                _ => wrong("the name of a member is no text"),
            },
            Event::SequenceStart(..) | Event::MappingStart(..) => wrong("the name of a member is no text"),
            _ => Err(unexpected_end(line)),
        }
    }
}

fn unexpected_end(line: usize) -> Fault {
    Fault::at(line, "unexpected end of input")
}

/// The objects of a merge key; `None` if its value is something else.
fn sources(value: Exact) -> Option<Vec<Members>> {
    match value {
        Exact::Object(members) => Some(vec![members]),
        Exact::List(elements) => {
            let object = |element| match element {
                Exact::Object(members) => Some(members),
                _ => None,
            };
            elements.into_iter().map(object).collect()
        }
        _ => None,
    }
}

/// A plain scalar becomes text, unless it is null.
fn as_text((event, line): (Event<'_>, usize)) -> (Event<'_>, usize) {
    match event {
        Event::Scalar(text, ScalarStyle::Plain, anchor, None) if !core_schema::is_null(&text) => {
            (Event::Scalar(text, ScalarStyle::SingleQuoted, anchor, None), line)
        }
        event => (event, line),
    }
}

/// What the style and the tag of a scalar say about it.
fn kind(style: ScalarStyle, tag: Option<&Tag>) -> Result<Kind, String> {
    let Some(tag) = tag else {
        return Ok(if style == ScalarStyle::Plain { Kind::Plain } else { Kind::Text });
    };
    match tag.core_suffix() {
        Some("str") => Ok(Kind::Text),
        Some("null") => Ok(Kind::Null),
        Some("bool") => Ok(Kind::Bool),
        Some("int") => Ok(Kind::Int),
        Some("float") => Ok(Kind::Float),
        _ if is_plain_tag(tag) => Ok(Kind::Text),
        _ => Err(format!("the tag {} is not known", tag.original())),
    }
}

/// Checks the tag of a list or an object.
fn check_tag(tag: Option<&Tag>, expected: &str, line: usize) -> Result<(), Fault> {
    match tag {
        Some(tag) if tag.core_suffix() != Some(expected) && !is_plain_tag(tag) => {
            Err(Fault::at(line, format!("the tag {} is not known", tag.original())))
        }
        _ => Ok(()),
    }
}

/// Whether this is the tag `!`, which says only that the spelling does not decide.
fn is_plain_tag(tag: &Tag) -> bool {
    tag.original() == "!"
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn read(text: &str) -> String {
        parse(text).unwrap().to_string()
    }

    #[test]
    fn names_stay_text_and_values_follow_the_core_schema() {
        let text = "queues:\n  no: {mode: keys}\n  1e5:\n  0o17: {lease: 1m}\n  72044e0: {rate: 4.90}\n  1_000: 1_000\n  0b11: 0b11\n  012: 012\n  15: 0o17\n  true: no\n";
        let expected = r#"{"queues":{"no":{"mode":"keys"},"1e5":null,"0o17":{"lease":"1m"},"72044e0":{"rate":4.90},"1_000":"1_000","0b11":"0b11","012":12,"15":15,"true":"no"}}"#;
        assert_eq!(read(text), expected);
        assert_eq!(
            read("owner: 72044e0\nqueues: {owner: 1e5}"),
            r#"{"owner":"72044e0","queues":{"owner":1e5}}"#
        );
        assert_eq!(read("owner: ~\n"), r#"{"owner":null}"#);
        assert_eq!(
            read("[no, 'no', \"1\", !!str 5, ! 5, !!int '5', 1e400, 1e5]"),
            r#"["no","no","1","5","5",5,1e400,1e5]"#
        );
        assert_eq!(
            read("a: |\n  1\n  2\nb: >-\n  5\nc: ü # x\nd: [ ]\n"),
            r#"{"a":"1\n2\n","b":"5","c":"ü","d":[]}"#
        );
        assert_eq!(read("---\r\na: 1\r\n...\r\n"), r#"{"a":1}"#);
    }

    #[test]
    fn a_fault_has_its_line_and_its_member() {
        for (text, expected) in [
            ("queues:\n  a: {}\n  b: {}\n  a: {}\n", "line 4: queues: \"a\" is there twice, first in line 2"),
            (
                "queues:\n  a: {lease: 1m,\n    'lease': 2m}\n",
                "line 3: queues.a: \"lease\" is there twice, first in line 2",
            ),
            ("queues:\n  ~: {}\n", "line 2: queues: the name of a member is missing, or null without quotes"),
            ("queues:\n  [a]: {}\n", "line 2: queues: the name of a member is no text"),
            ("", "line 1: unexpected end of input"),
            ("# nothing\n", "line 2: unexpected end of input"),
            ("a: 1\n---\nb: 2\n", "line 2: it has a second document"),
            ("a:\n  b: [1, .inf]\n", "line 2: a.b.1: .inf is no number of JSON"),
            ("a: !secret x\n", "line 1: a: the tag !secret is not known"),
            ("a: !set {x}\n", "line 1: a: the tag !set is not known"),
            ("a: !!int x\n", "line 1: a: \"x\" is not of the type that its tag names"),
            ("a: &a [*a]\n", "line 1: a.0: an alias stands for what it is in"),
            ("a: {<<: 5}\n", "line 1: a: << takes objects"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected, "{text}");
        }
        for (text, part) in [("a: *b\n", "line 1"), ("a:\n  b: {c: 1\n", "line"), ("a: [1\n", "line")] {
            assert!(parse(text).unwrap_err().to_string().contains(part), "{text}");
        }
        let large = format!("queues:\n  a:\n    schema: {{maximum: 0x{}}}\n", "f".repeat(40));
        let why = parse(&large).unwrap_err().to_string();
        assert!(
            why.starts_with("line 3: queues.a.schema.maximum: ffff") && why.contains("128 bits"),
            "{why}"
        );
    }

    #[test]
    fn merges_take_what_is_not_there() {
        let text = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc: {<<: *a, x: 5}\nd: {w: 0, <<: [*b, *a]}\ne: {'<<': 1}\n";
        let expected = r#"{"a":{"x":1,"y":2},"b":{"y":3,"z":4},"c":{"x":5,"y":2},"d":{"w":0,"y":3,"z":4,"x":1},"e":{"<<":1}}"#;
        assert_eq!(read(text), expected);
        assert_eq!(read("&n a: 1\nb: *n\n*n : 2\n".replace("*n : 2\n", "").as_str()), r#"{"a":1,"b":"a"}"#);
    }

    #[test]
    fn what_aliases_expand_to_is_bounded() {
        let usual = (1..1_000).fold(String::new(), |text, number| text + &format!("q{number}: *default\n"));
        let usual = parse(&format!("q0: &default {{lease: 1m}}\n{usual}")).unwrap();
        assert_eq!(usual.get("q999").unwrap().to_string(), r#"{"lease":"1m"}"#);

        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            writeln!(bomb, "a{level}: &a{level} [{aliases}]").expect("a string grows");
        }
        let why = parse(&bomb).unwrap_err().to_string();
        assert!(why.contains("line 7") && why.contains("more than 4000000 values"), "{why}");

        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), vec!["*a"; 300].join(", "));
        let why = parse(&long).unwrap_err().to_string();
        assert!(why.contains("line 2") && why.contains("more than 256 MiB"), "{why}");

        let mut deep = "a0: &a0 []\n".to_owned();
        for level in 1..9 {
            let (open, close) = ("[".repeat(50), "]".repeat(50));
            writeln!(deep, "a{level}: &a{level} {open}*a{}{close}", level - 1).expect("a string grows");
        }
        let why = parse(&deep).unwrap_err().to_string();
        assert!(why.contains("line 5") && why.contains("deeper than 192"), "{why}");
        assert!(parse(&("[".repeat(100_000) + &"]".repeat(100_000))).is_err());
        assert!(parse(&"- ".repeat(100_000)).is_err());
    }
}
