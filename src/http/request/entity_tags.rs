//! Lists of entity tags (RFC 9110, 8.8.3): the values of `If-Match` and `If-None-Match`.
//!
//! A list that is not understood is refused. To ignore the list, or a part of it, would drop the condition of a caller
//! who relies on it.

use axum::http::{HeaderMap, HeaderName};
use deltaq_engine::excerpt::Excerpt;

use crate::http::problem::{Code, Problem};

/// What a proxy puts between a tag and the encoding of its reply.
const SEPARATORS: [&str; 3] = ["--", "-", ";"];
/// The encodings that proxies add to tags.
const ENCODINGS: [&str; 4] = ["gzip", "br", "zstd", "deflate"];
/// The white space of header values.
const SPACE: [char; 2] = [' ', '\t'];
/// What may be between two tags: a list may have empty elements.
const BETWEEN: [char; 3] = [',', ' ', '\t'];

/// The value of `If-Match` or `If-None-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::http) enum EntityTags {
    /// `*`: every tag.
    Any,
    /// These tags, without quotes and without the mark of weak tags. There is at least one.
    Of(Vec<String>),
}

impl EntityTags {
    /// Reads a header, whose lines together are one list. `None` if the request does not have the header.
    pub(in crate::http) fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, Problem> {
        let lines = headers.get_all(name).iter();
        let lines: Vec<_> = lines.map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
        if lines.is_empty() {
            return Ok(None);
        }
        let read = Self::parse(&lines).map_err(|why| {
            let detail = format!("the header {name} can't be {}: {why}", Excerpt(&lines.join(", ")));
            Problem::new(Code::InvalidRequest, detail).with("header", name.as_str()).hint(
                "send * alone, or entity tags with their quotes, such as \"6f2c01ab-42\", \"6f2c01ab-57\"",
            )
        })?;
        Ok(Some(read))
    }

    fn parse(lines: &[impl AsRef<str>]) -> Result<Self, &'static str> {
        if let [only] = lines
            && only.as_ref().trim_matches(SPACE) == "*"
        {
            return Ok(Self::Any);
        }
        let mut tags = Vec::new();
        for line in lines {
            let mut rest = line.as_ref().trim_start_matches(BETWEEN);
            while !rest.is_empty() {
                let (tag, behind) = first_tag(rest)?;
                tags.push(tag.to_owned());
                rest = behind.trim_start_matches(BETWEEN);
            }
        }
        if tags.is_empty() { Err("it names no tag") } else { Ok(Self::Of(tags)) }
    }

    /// Whether the list names this tag of ours, which has quotes.
    pub(in crate::http) fn names(&self, own: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Of(tags) => tags.iter().any(|tag| is_own(tag, own.trim_matches('"'))),
        }
    }
}

/// The first tag of a list, and the rest of the list.
fn first_tag(list: &str) -> Result<(&str, &str), &'static str> {
    let quoted = list.strip_prefix("W/").unwrap_or(list);
    let opened = quoted.strip_prefix('"').ok_or("a tag begins with a quote, and * stands alone")?;
    let (tag, behind) = opened.split_once('"').ok_or("a tag ends with a quote")?;
    if !tag.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a tag has only visible ASCII characters");
    }
    let behind = behind.trim_start_matches(SPACE);
    if behind.is_empty() || behind.starts_with(',') { Ok((tag, behind)) } else { Err("a comma ends a tag") }
}

/// Whether a tag is ours, or ours with what a proxy adds for the encoding of its reply, such as `-gzip`. Our tags change
/// with the content and not with its encoding. For the same reason weak tags are accepted: a proxy that compresses a reply
/// marks its tag as weak.
pub(in crate::http) fn is_own(tag: &str, own: &str) -> bool {
    let is_of_proxy = |suffix: &str| {
        let encodings = SEPARATORS.iter().filter_map(|separator| suffix.strip_prefix(separator));
        encodings.into_iter().any(|encoding| ENCODINGS.contains(&encoding))
    };
    tag.strip_prefix(own).is_some_and(|suffix| suffix.is_empty() || is_of_proxy(suffix))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use axum::http::header::IF_NONE_MATCH;

    use super::*;

    fn read(lines: &[&[u8]]) -> Result<Option<EntityTags>, Problem> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(IF_NONE_MATCH, HeaderValue::from_bytes(line).expect("a value of a header"));
        }
        EntityTags::read(&headers, &IF_NONE_MATCH)
    }

    #[test]
    fn a_list_of_tags_is_read() {
        assert_eq!(read(&[]).expect("no header"), None);
        for any in ["*", " * ", "\t*"] {
            assert_eq!(read(&[any.as_bytes()]).expect(any), Some(EntityTags::Any), "{any:?}");
        }
        let lists: &[(&[&str], &[&str])] = &[
            (&["\"x\""], &["x"]),
            (&["W/\"x\""], &["x"]),
            (&["W/\"x-gzip\""], &["x-gzip"]),
            (&["\"x\",\"y\""], &["x", "y"]),
            (&["\"x\" \t,  W/\"y\" "], &["x", "y"]),
            (&["\"x\"", "\"y\", \"z\""], &["x", "y", "z"]),
            (&[", \"x\",, \"y\" ,"], &["x", "y"]),
            (&["", "\"x\""], &["x"]),
            // These are tags like any other.
            (&["\"*\""], &["*"]),
            (&["\"\""], &[""]),
            (&["\"a,b\""], &["a,b"]),
            (&["\"W/\""], &["W/"]),
            (&["\"a\\\""], &["a\\"]),
        ];
        for (lines, tags) in lists {
            let bytes: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
            let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
            assert_eq!(read(&bytes).expect("a list"), Some(EntityTags::Of(tags)), "{lines:?}");
        }
    }

    #[test]
    fn what_is_no_list_of_tags_is_refused() {
        let wrong: &[&[&[u8]]] = &[
            &[b""],
            &[b"", b""],
            &[b" \t "],
            &[b","],
            &[b"\"x\", *"],
            &[b"*, \"x\""],
            &[b"\"x\"", b"*"],
            &[b"*", b"\"x\""],
            &[b"*", b"*"],
            &[b"*, *"],
            &[b"*,"],
            &[b"**"],
            &[b"*;q=1"],
            &[b"\"x\";q=1"],
            &[b"W/*"],
            &[b"W/"],
            &[b"W/x"],
            &[b"w/\"x\""],
            &[b"W/ \"x\""],
            &[b"W\"x\""],
            &[b"W/W/\"x\""],
            &[b"x"],
            &[b"'x'"],
            &[b"\"x"],
            &[b"x\""],
            &[b"\""],
            &[b"\"x\"\""],
            &[b"\"x\"\"y\""],
            &[b"\"x\" \"y\""],
            &[b"\"x\" y"],
            &[b"\"x y\""],
            &[b"\"x\ty\""],
            // An open quote does not reach into the next line.
            &[b"\"x", b"y\""],
            &[b"garbage"],
            &[b"\xfc"],
            &[b"\"\xfc\""],
            &["\"\u{fc}\"".as_bytes()],
            &[b"\"x\", \xfc"],
            &[b"*\xa0"],
        ];
        for lines in wrong {
            let problem = read(lines).expect_err("it is no list");
            assert_eq!(problem.code(), Code::InvalidRequest, "{lines:?}");
            assert_eq!(problem.field("header"), Some("if-none-match"), "{lines:?}");
            assert!(problem.detail().contains("if-none-match"), "{lines:?}");
        }
    }

    #[test]
    fn a_proxy_may_mark_a_tag() {
        let names = |list: &str, own: &str| EntityTags::parse(&[list]).expect(list).names(own);
        for list in [
            "*",
            "\"x\"",
            "W/\"x\"",
            "\"x-gzip\"",
            "W/\"x-gzip\"",
            "\"x-br\"",
            "\"x-zstd\"",
            "\"x--gzip\"",
            "\"x;gzip\"",
            "\"x-deflate\"",
            "\"y\", \"x\"",
        ] {
            assert!(names(list, "\"x\""), "{list}");
        }
        for list in [
            "\"*\"",
            "\"y\"",
            "\"\"",
            "\"x0\"",
            "\"x-\"",
            "\"x-0\"",
            "\"xgzip\"",
            "\"x-gzip-gzip\"",
            "\"x---gzip\"",
            "\"x-GZIP\"",
            "\"gzip\"",
            "\"X\"",
            "\"x-2\"",
        ] {
            assert!(!names(list, "\"x\""), "{list}");
        }
    }
}
