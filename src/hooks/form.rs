//! The text of a body. GitHub may send its JSON as the field `payload` of a form.

use std::borrow::Cow;

use axum::http::{HeaderMap, header};

/// The name of the field with the JSON.
const FIELD: &str = "payload";

/// The JSON text of a body; `None` if it is not UTF-8.
#[must_use]
pub fn text_of(headers: &HeaderMap, body: Vec<u8>) -> Option<String> {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let mut fields = form_urlencoded::parse(&body);
        if let Some((_, payload)) = fields.find(|(name, _)| name == FIELD) {
            return Some(Cow::into_owned(payload));
        }
    }
    String::from_utf8(body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_its_json_in_the_payload() {
        let text = |kind: &str, body: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            text_of(&headers, body.as_bytes().to_vec()).unwrap()
        };
        let form = "application/x-www-form-urlencoded";
        assert_eq!(text(form, "payload=%7B%22a%22%3A%22%C3%A9+b%22%7D"), r#"{"a":"é b"}"#);
        assert_eq!(text(form, r#"{"payload=1":1}"#), r#"{"payload=1":1}"#, "curl sends JSON with this type");
        assert_eq!(text("application/json", "payload=1"), "payload=1");
        assert_eq!(text_of(&HeaderMap::new(), vec![0xff]), None);
    }
}
