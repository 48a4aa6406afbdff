//! The headers of requests, from a file.

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

#[cfg(test)]
mod tests {
    use super::*;

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
