//! Query parameters. Each parameter is checked, and an error names the parameter. Unknown parameters are refused.

use std::borrow::Cow;
use std::str::FromStr;
use std::time::Duration;

use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::id::Source;
use deltaq_engine::key::Key;
use deltaq_engine::limits::{ERROR_BYTES_MAX, NAME_BYTES_MAX};
use deltaq_service::Name;
use deltaq_types::duration;
use percent_encoding::percent_decode_str;

use crate::http::problem::{Code, Problem};

const PERCENT_MAX: u8 = 100;

/// The query parameters of a request, by name.
#[derive(Debug)]
pub(in crate::http) struct Params {
    given: Vec<(String, String)>,
}

/// The query parameters of a request, or the problem that one of them has.
pub(in crate::http) type Query = Result<Params, Problem>;

impl Params {
    /// The parameters of a query.
    pub(in crate::http) fn of(query: Option<&str>) -> Result<Self, Problem> {
        let query = query.unwrap_or_default();
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name, name)?;
            let value = decode(&name, value)?;
            Ok((name, value))
        });
        Ok(Self { given: pairs.collect::<Result<_, Problem>>()? })
    }

    /// Refuses unknown and duplicate parameters.
    pub(in crate::http) fn among(self, known: &[&str]) -> Result<Self, Problem> {
        for (index, (name, _)) in self.given.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                return Err(unknown(name, known));
            }
            if self.given.iter().skip(index + 1).any(|(other, _)| other == name) {
                return Err(wrong(name, "it occurs twice in the query"));
            }
        }
        Ok(self)
    }

    /// The value of a parameter. An empty value counts as absent, because typed clients send it for a parameter that
    /// is not set.
    pub(in crate::http) fn text(&self, name: &str) -> Option<&str> {
        self.text_or_empty(name).filter(|value| !value.is_empty())
    }

    /// A value that may be an empty text.
    pub(in crate::http) fn text_or_empty(&self, name: &str) -> Option<&str> {
        self.given.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The name of the queue that a list over all queues is asked for.
    pub(in crate::http) fn queue(&self) -> Result<Option<&str>, Problem> {
        let value = self.text("queue");
        value.map(named).transpose()?;
        Ok(value)
    }

    /// The name of a source, worker or pop: 1 to 256 bytes without control characters.
    pub(in crate::http) fn name(&self, name: &str) -> Result<Option<&str>, Problem> {
        let value = self.text(name);
        value.map(check_name).transpose().map_err(|wrong| wrong.parameter(name))?;
        Ok(value)
    }

    pub(in crate::http) fn key(&self, name: &str) -> Result<Option<Key>, Problem> {
        self.text(name)
            .map(Key::new)
            .transpose()
            .map_err(|error| Problem::from(error).with("parameter", name))
    }

    /// The key of a call that needs one.
    pub(in crate::http) fn required_key(&self) -> Result<Key, Problem> {
        self.key("key")?.ok_or_else(|| wrong("key", "it is required"))
    }

    /// The key of a list that contains only this key and therefore has one page.
    pub(in crate::http) fn key_alone(&self) -> Result<Option<Key>, Problem> {
        let key = self.key("key")?;
        if key.is_some() && self.text("continue").is_some() {
            return Err(wrong("continue", "a list of one key has one page").hint("give key or continue"));
        }
        Ok(key)
    }

    /// A flag. `?dry_run` without a value is refused, because it probably does not mean false.
    pub(in crate::http) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.text_or_empty(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(wrong(name, &format!("{} is neither true nor false", Excerpt(other)))),
        }
    }

    pub(in crate::http) fn count(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        digits(text).filter(|number| range.contains(number)).map(Some).ok_or_else(|| {
            let (least, most) = range.into_inner();
            wrong(name, &format!("{} is not a whole number from {least} to {most}", Excerpt(text)))
                .with("limit", most)
        })
    }

    pub(in crate::http) fn percent(&self, name: &str) -> Result<Option<f64>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        // Only JSON's number format is accepted. Rust's parser would also accept "inf" and "nan".
        let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b".-+eE".contains(&byte));
        let number =
            text.parse().ok().filter(|number| plain && (0.0..=f64::from(PERCENT_MAX)).contains(number));
        number.map(Some).ok_or_else(|| {
            wrong(name, &format!("{} is not a number from 0 to 100", Excerpt(text)))
                .with("limit", PERCENT_MAX)
        })
    }

    pub(in crate::http) fn duration(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<Duration>,
    ) -> Result<Option<Duration>, Problem> {
        let read = self.text(name).map(|text| read_duration(text, range)).transpose();
        read.map_err(|wrong| wrong.parameter(name))
    }
}

/// A wrong value. The reader of the value adds its position.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) why: String,
    /// The exceeded limit: the name and the value of a field of the problem.
    pub(super) limit: Option<(&'static str, u64)>,
}

impl Wrong {
    /// The problem of a value in the path or the query.
    pub(in crate::http) fn parameter(self, name: &str) -> Problem {
        self.limited(wrong(name, &self.why))
    }

    /// The problem of a value in the body.
    pub(in crate::http) fn field(self, name: &str) -> Problem {
        let detail = format!("field {name:?}: {}", self.why);
        self.limited(Problem::new(Code::InvalidRequest, detail).with("field", name))
    }

    fn limited(&self, problem: Problem) -> Problem {
        match self.limit {
            Some((name, limit)) => problem.with(name, limit),
            None => problem,
        }
    }
}

/// The whole number in a text of digits alone.
pub(in crate::http) fn digits<N: FromStr>(text: &str) -> Option<N> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

/// A duration within `range`.
pub(in crate::http) fn read_duration(
    text: &str,
    range: std::ops::RangeInclusive<Duration>,
) -> Result<Duration, Wrong> {
    let parsed = duration::parse(text).map_err(|error| Wrong { why: error.to_string(), limit: None })?;
    if range.contains(&parsed) {
        return Ok(parsed);
    }
    let (least, most) = (duration::format(*range.start()), duration::format(*range.end()));
    let limit = Some(("limit_ms", duration::whole_ms(*range.end())));
    Err(Wrong { why: format!("{} is not from {least} to {most}", Excerpt(text)), limit })
}

/// Checks the name of a source, worker or pop.
pub(crate) fn check_name(text: &str) -> Result<(), Wrong> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) {
        let why = format!("it takes 1 to {NAME_BYTES_MAX} bytes of text without control characters");
        return Err(Wrong { why, limit: Some(("limit", NAME_BYTES_MAX as u64)) });
    }
    Ok(())
}

/// Checks the error of a failure.
pub(in crate::http) fn check_error(text: &str) -> Result<(), Wrong> {
    if text.len() > ERROR_BYTES_MAX {
        let why = format!("it has more than {ERROR_BYTES_MAX} bytes");
        return Err(Wrong { why, limit: Some(("limit", ERROR_BYTES_MAX as u64)) });
    }
    Ok(())
}

/// The problem of a wrong parameter.
pub(in crate::http) fn wrong(name: &str, why: &str) -> Problem {
    Problem::new(Code::InvalidParameter, format!("parameter {}: {why}", Excerpt(name)))
        .with("parameter", name)
}

fn unknown(name: &str, known: &[&str]) -> Problem {
    let problem = wrong(name, "unknown parameter of this call");
    match did_you_mean(name, known) {
        None if known.is_empty() => problem.hint("the call has no parameters"),
        None => problem.hint(format!("the call has {}", known.join(", "))),
        hint => problem.hint_some(hint),
    }
}

/// The hint for an unknown name, if a known one is similar.
pub(in crate::http) fn did_you_mean(name: &str, known: &[&str]) -> Option<Cow<'static, str>> {
    nearest(name, known).map(|near| format!("did you mean {near:?}?").into())
}

/// The known name that is most similar to `name`, if one is similar.
pub(in crate::http) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let scored = known.iter().map(|known| (strsim::jaro_winkler(name, known), *known));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.75).then_some(best.1)
}

/// Decodes the value of the parameter `name`, or the name itself.
fn decode(name: &str, text: &str) -> Result<String, Problem> {
    if !text.contains(['+', '%']) {
        return Ok(text.to_owned());
    }
    let spaced = text.replace('+', " ");
    percent_decoded(name, &spaced)
}

/// Decodes the part of the URI that is the value of `name`.
fn percent_decoded(name: &str, text: &str) -> Result<String, Problem> {
    let is_escape = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !text.split('%').skip(1).all(is_escape) {
        return Err(wrong(name, "a '%' must be followed by two hexadecimal digits"));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded.map_err(|_| wrong(name, "its percent-encoding is not UTF-8"))?.into_owned())
}

/// The name of the queue in the path, or why the name is invalid.
pub(in crate::http) fn queue_name(found: Option<&Name>, path: &str) -> Result<Name, Problem> {
    if let Some(name) = found {
        return Ok(name.clone());
    }
    let encoded = path.strip_prefix("/v1/queues/").unwrap_or_default();
    let encoded = encoded.split('/').next().unwrap_or_default();
    named(&percent_decode_str(encoded).decode_utf8_lossy())
}

/// A name of a queue.
fn named(text: &str) -> Result<Name, Problem> {
    Name::new(text).map_err(|error| {
        let problem = wrong("queue", &format!("{}: {error}", Excerpt(text)));
        match error.limit() {
            Some(limit) => problem.with("limit", limit),
            None => problem,
        }
    })
}

/// The name of the index at the end of the path.
pub(in crate::http) fn path_index(path: &str) -> Result<String, Problem> {
    percent_decoded("name", path_end(path))
}

/// The name of the source at the end of the path.
pub(in crate::http) fn path_source(path: &str) -> Result<Source, Problem> {
    let text = percent_decoded("source", path_end(path))?;
    check_name(&text).map_err(|wrong| wrong.parameter("source"))?;
    Ok(Source::from(&*text))
}

/// The key at the end of the path, after `/items/`, `/explain/`, `/latest/`, `/known/` or `/history/`.
pub(in crate::http) fn path_key(path: &str) -> Result<Key, Problem> {
    let text = percent_decoded("key", path_end(path))?;
    Key::new(&text).map_err(|error| Problem::from(error).with("parameter", "key"))
}

/// The path after the queue and the word that follows the queue, such as `sku-1` in `/v1/queues/prices/items/sku-1`.
fn path_end(path: &str) -> &str {
    let behind_queue = path.strip_prefix("/v1/queues/").unwrap_or_default();
    behind_queue.splitn(3, '/').nth(2).unwrap_or_default()
}
