//! The headers of requests, from a file, and the header `Link` of replies.

use std::path::Path;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::super::Error;

/// Reads a file of headers, one per line, as in `Authorization: Bearer TOKEN`. No error repeats a value.
pub(super) fn read(path: &Path) -> Result<HeaderMap, Error> {
    let file = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::because(format!("can't read the header file {file}"), error))?;
    parse(&text).map_err(|line| {
        Error::new(format!("{file}, line {line}: expected a header, such as \"Authorization: Bearer TOKEN\""))
    })
}

/// The headers of a text, or the number of the wrong line.
fn parse(text: &str) -> Result<HeaderMap, usize> {
    let mut headers = HeaderMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let header = line.split_once(':').and_then(|(name, value)| {
            let mut value = HeaderValue::from_str(value.trim()).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::try_from(name.trim()).ok()?, value))
        });
        let (name, value) = header.ok_or(number + 1)?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// The target of the link `rel="next"` of a header `Link` (RFC 8288).
pub(super) fn next_link(header: &str) -> Option<String> {
    let mut rest = header;
    while let Some((_, after)) = rest.split_once('<') {
        let (target, after) = after.split_once('>')?;
        let (parameters, following) = split_unquoted(after, ',');
        if is_next(parameters) {
            return Some(target.trim().to_owned());
        }
        rest = following;
    }
    None
}

/// The text before and after the first separator outside quotes.
fn split_unquoted(text: &str, separator: char) -> (&str, &str) {
    let mut is_quoted = false;
    let mut is_escaped = false;
    let at = text.find(|c| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ => return c == separator && !is_quoted,
        }
        false
    });
    at.and_then(|at| Some((text.get(..at)?, text.get(at + separator.len_utf8()..)?))).unwrap_or((text, ""))
}

/// Whether the first parameter `rel` has the relation `next`.
fn is_next(parameters: &str) -> bool {
    let mut rest = parameters;
    while !rest.is_empty() {
        let (parameter, after) = split_unquoted(rest, ';');
        rest = after;
        if let Some((name, value)) = parameter.split_once('=')
            && name.trim().eq_ignore_ascii_case("rel")
        {
            let mut words = value.trim().trim_matches('"').split_whitespace();
            return words.any(|word| word.eq_ignore_ascii_case("next"));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_found_among_links() {
        for (header, expected) in [
            ("<https://a/b?page=2>; rel=\"next\"", Some("https://a/b?page=2")),
            ("<p1>; rel=prev, </p3>;REL=next", Some("/p3")),
            ("<a,b>; title=\"x, <y>; rel=next\"; rel=\"last\", <c>; rel=\"up next\"", Some("c")),
            ("<a>; title=\"q\\\"; rel=next\"; rel=first", None),
            ("<a>; rel=\"last\"", None),
            ("", None),
            ("<a", None),
        ] {
            assert_eq!(next_link(header).as_deref(), expected, "{header}");
        }
    }

    #[test]
    fn headers_are_read_by_line_and_never_shown() {
        let headers = parse("Authorization: Bearer a:b\n\nx-tenant:7\n").unwrap();
        assert_eq!(headers["authorization"], "Bearer a:b");
        assert_eq!((headers.len(), &headers["x-tenant"]), (2, &HeaderValue::from_static("7")));
        assert!(!format!("{headers:?}").contains("Bearer"));
        assert_eq!(parse("a: b\nsecret\n"), Err(2));
        assert_eq!(parse("na me: b"), Err(1));
    }
}
