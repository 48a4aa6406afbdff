//! The text of a body. GitHub may send its JSON as the field `payload` of a form.

use std::borrow::Cow;

use axum::http::{HeaderMap, header};
use percent_encoding::percent_decode;

/// The beginning of the field with the JSON.
const FIELD: &[u8] = b"payload=";

/// The JSON text of a body.
///
/// # Errors
/// The body is not UTF-8. The error is what can be read of it.
pub fn text_of(headers: &HeaderMap, body: Vec<u8>) -> Result<String, String> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/x-www-form-urlencoded")
        && let Some(field) = body.split(|byte| *byte == b'&').find_map(|field| field.strip_prefix(FIELD))
    {
        let field: Vec<u8> = field.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        return read(Cow::from(percent_decode(&field)).into_owned());
    }
    read(body)
}

fn read(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_its_json_in_the_payload() {
        let text = |kind: &str, body: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            text_of(&headers, body.as_bytes().to_vec())
        };
        let form = "application/x-www-form-urlencoded";
        assert_eq!(text(form, "a=b&payload=%7B%22a%22%3A%22%C3%A9+b%22%7D").unwrap(), r#"{"a":"é b"}"#);
        let json = r#"{"payload=1":1}"#;
        assert_eq!(text(form, json).unwrap(), json, "curl sends JSON with this type");
        assert_eq!(text("application/json", "payload=1").unwrap(), "payload=1");
        assert_eq!(text(form, "payload=%22%FF%22"), Err("\"\u{fffd}\"".to_owned()));
        assert_eq!(text_of(&HeaderMap::new(), vec![b'a', 0xff]), Err("a\u{fffd}".to_owned()));
    }
}
