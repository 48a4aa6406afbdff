//! The commands of a rule script.
//!
//! A command is a line with a name, words, an object and options, such as `add sku-1 {"price":10} delay=5s`. Some commands have
//! more lines, which are indented. Names and options are those of the HTTP API.

use std::time::Duration;

use super::duration;

/// The waits after failures that a queue has by default, without jitter.
const BACKOFF: (&str, &str) = ("backoff", "5ms..1000s");

/// The names and values of options, in the order of the script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options(Vec<(String, String)>);

impl Options {
    /// The value of an option.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// The value of an option that is a duration.
    pub(crate) fn duration(&self, name: &str) -> Option<Duration> {
        self.get(name).map(|text| duration::parse(text).unwrap_or_else(|| panic!("{name}={text}")))
    }

    /// The value of an option that is a number.
    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.get(name).map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
    }

    /// Whether an option is `true`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }

    /// These options and one more.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    /// All options.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// A key with an object and options: a change, or an object of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keyed {
    /// The key.
    pub(crate) key: String,
    /// The object with its key; `None` for a key alone.
    pub(crate) object: Option<String>,
    /// The options of the line.
    pub(crate) options: Options,
}

/// The kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Updated,
    Deleted,
}

/// The keys that an operator selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    All,
    Keys(Vec<String>),
    Error(String),
}

/// A lease by its number in the script, the way to settle it, and the options of the settle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settle {
    pub(crate) lease: usize,
    pub(crate) how: String,
    pub(crate) options: Options,
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Starts over with an empty queue of these settings.
    Queue(Options),
    /// Changes settings of the queue.
    Set(Options),
    /// Moves the clock.
    Tick(Duration),
    /// Add, update or delete of one key.
    Produce(Change, Keyed),
    /// A mixed batch, all or none.
    Deltas(Vec<(Change, Keyed)>, Options),
    Replace(Vec<Keyed>, Options),
    Resync,
    Seed(Vec<Keyed>),
    Forget(Vec<String>),
    Pop(Options),
    /// Settles of one call.
    Settle(Vec<Settle>),
    Purge,
    Promote(Selection, Options),
    Redrive(Selection, Options),
    Discard(Selection, Options),
    Pause(Options),
    Resume(Options),
    Close(Options),
    Reopen,
    /// One key.
    Item(String),
    /// The objects of the view `known`.
    Known,
    /// The objects of the view `latest`.
    Latest,
    Status,
    Synced(Options),
    Sources,
    /// The errors of parked keys.
    Parked,
}

impl Command {
    /// Reads the lines of a command.
    ///
    /// # Errors
    /// What is wrong with the lines.
    pub(crate) fn parse(lines: &[&str]) -> Result<Self, String> {
        let (head, rest) = lines.split_first().ok_or("a command is empty")?;
        let head = Line::parse(head)?;
        let rest = rest.iter().map(|line| Line::parse(line)).collect::<Result<Vec<_>, _>>()?;
        let (name, head) = head.shift().ok_or("a command begins with its name")?;
        let takes_lines = ["deltas", "replace", "seed", "settle"].contains(&name.as_str());
        if !takes_lines && !rest.is_empty() {
            return Err(format!("{name} has one line"));
        }
        Self::of(&name, head, rest)
    }

    /// Whether the command only says what it would do.
    pub(crate) fn is_dry_run(&self) -> bool {
        matches!(self, Self::Replace(_, options) if options.flag("dry_run"))
    }

    fn of(name: &str, head: Line, rest: Vec<Line>) -> Result<Self, String> {
        let keyed = |lines: Vec<Line>| lines.into_iter().map(Line::keyed).collect::<Result<Vec<_>, _>>();
        Ok(match name {
            "queue" => Self::Queue(head.options.with_default(BACKOFF)),
            "set" => Self::Set(head.options),
            "tick" => Self::Tick(duration::parse(&head.word()?).ok_or("tick takes a duration")?),
            "add" | "update" | "delete" => Self::Produce(change(name)?, head.keyed()?),
            "deltas" => {
                Self::Deltas(rest.into_iter().map(Line::change).collect::<Result<Vec<_>, _>>()?, head.options)
            }
            "replace" => Self::Replace(keyed(rest)?, head.options),
            "resync" => Self::Resync,
            "seed" => Self::Seed(keyed(rest)?),
            "forget" => Self::Forget(head.words),
            "pop" => Self::Pop(head.options),
            "ack" | "nack" | "release" | "reject" | "done" | "extend" => Self::Settle(head.settles(name)?),
            "settle" => {
                let settles = rest.into_iter().map(|line| {
                    let (how, line) = line.shift().ok_or("a settle is empty")?;
                    line.settles(&how)
                });
                Self::Settle(settles.collect::<Result<Vec<_>, String>>()?.concat())
            }
            "purge" => Self::Purge,
            "promote" => Self::Promote(head.clone().selection(), head.options),
            "redrive" => Self::Redrive(head.clone().selection(), head.options),
            "discard" => Self::Discard(head.clone().selection(), head.options),
            "pause" => Self::Pause(head.options),
            "resume" => Self::Resume(head.options),
            "close" => Self::Close(head.options),
            "reopen" => Self::Reopen,
            "item" => Self::Item(head.word()?),
            "known" => Self::Known,
            "latest" => Self::Latest,
            "status" => Self::Status,
            "synced" => Self::Synced(head.options),
            "sources" => Self::Sources,
            "parked" => Self::Parked,
            other => return Err(format!("no command is called {other:?}")),
        })
    }
}

/// The parts of one line.
#[derive(Clone, Debug, Default)]
struct Line {
    words: Vec<String>,
    object: Option<String>,
    options: Options,
}

impl Line {
    fn parse(text: &str) -> Result<Self, String> {
        let mut line = Self::default();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let end;
            if rest.starts_with('{') {
                end = json_length(rest).ok_or_else(|| format!("{rest} is not JSON"))?;
                line.object = Some(rest[..end].to_owned());
            } else {
                end = word_length(rest);
                let word = &rest[..end];
                match word.split_once('=') {
                    Some((name, value)) => line.options.0.push((name.to_owned(), unquoted(value))),
                    None => line.words.push(unquoted(word)),
                }
            }
            rest = rest[end..].trim_start();
        }
        Ok(line)
    }

    /// The first word, and the line without it.
    fn shift(mut self) -> Option<(String, Self)> {
        let first = (!self.words.is_empty()).then(|| self.words.remove(0))?;
        Some((first, self))
    }

    fn word(self) -> Result<String, String> {
        let words: [String; 1] = self.words.try_into().map_err(|words| format!("one word, not {words:?}"))?;
        let [word] = words;
        Ok(word)
    }

    fn keyed(self) -> Result<Keyed, String> {
        let (object, options) = (self.object.clone(), self.options.clone());
        let key = self.word()?;
        let object = object.map(|object| with_key(&key, &object));
        Ok(Keyed { key, object, options })
    }

    fn change(self) -> Result<(Change, Keyed), String> {
        let (name, line) = self.shift().ok_or("a change is empty")?;
        Ok((change(&name)?, line.keyed()?))
    }

    fn leases(&self) -> Result<Vec<usize>, String> {
        let number =
            |word: &String| word.parse().map_err(|_| format!("{word:?} is not the number of a lease"));
        self.words.iter().map(number).collect()
    }

    fn settles(&self, how: &str) -> Result<Vec<Settle>, String> {
        let settle = |lease| Settle { lease, how: how.to_owned(), options: self.options.clone() };
        Ok(self.leases()?.into_iter().map(settle).collect())
    }

    fn selection(self) -> Selection {
        match self.options.get("error") {
            Some(error) => Selection::Error(error.to_owned()),
            None if self.words.is_empty() => Selection::All,
            None => Selection::Keys(self.words),
        }
    }
}

impl Options {
    fn with_default(self, (name, value): (&str, &str)) -> Self {
        if self.get(name).is_some() { self } else { self.with(name, value) }
    }
}

fn change(name: &str) -> Result<Change, String> {
    match name {
        "add" => Ok(Change::Added),
        "update" => Ok(Change::Updated),
        "delete" => Ok(Change::Deleted),
        other => Err(format!("{other:?} is not a change")),
    }
}

/// The length of the JSON value at the start of a text.
fn json_length(text: &str) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

/// The length of the word at the start of a text. Spaces between quotation marks belong to the word.
fn word_length(text: &str) -> usize {
    let mut is_quoted = false;
    let end = text.find(|c: char| {
        is_quoted ^= c == '"';
        c == ' ' && !is_quoted
    });
    end.unwrap_or(text.len())
}

fn unquoted(text: &str) -> String {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text).to_owned()
}

/// The object with its key as the first member.
fn with_key(key: &str, object: &str) -> String {
    let members = object.trim_start_matches('{');
    let comma = if members.trim() == "}" { "" } else { "," };
    format!(r#"{{"key":"{key}"{comma}{members}"#)
}

/// The object without its key, as scripts show it.
pub(crate) fn without_key(key: &str, object: &str) -> String {
    let members = object.strip_prefix(&format!(r#"{{"key":"{key}""#));
    members.map_or_else(|| object.to_owned(), |members| format!("{{{}", members.trim_start_matches(',')))
}

#[test]
fn a_line_has_words_an_object_and_options() {
    let parsed = Command::parse(&[r#"add a {"x": "a b", "y":[1]} delay=5s source="the erp""#]);
    let Ok(Command::Produce(Change::Added, keyed)) = parsed else { panic!("{parsed:?}") };
    assert_eq!(keyed.key, "a");
    assert_eq!(keyed.object.as_deref(), Some(r#"{"key":"a","x": "a b", "y":[1]}"#));
    assert_eq!(keyed.options.duration("delay"), Some(Duration::from_secs(5)));
    assert_eq!(keyed.options.get("source"), Some("the erp"));
    assert_eq!(without_key("a", r#"{"key":"a","x":1}"#), r#"{"x":1}"#);
    assert_eq!(without_key("a", &with_key("a", "{}")), "{}");
    assert!(Command::parse(&["ad a"]).is_err());
    assert!(Command::parse(&["pop", "  a"]).is_err());
}
