//! The header `Link` of replies (RFC 8288). It is parsed strictly, because a link that can't be read may lead to the
//! next page.

use reqwest::header::{HeaderMap, LINK};

/// What is expected where a header can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
// The text itself may have a secret.
#[error("the header Link can't be read: at byte {at} {expected} is expected")]
pub(super) struct Unreadable {
    /// The byte of the header, from 0.
    at: usize,
    expected: &'static str,
}

/// The target of the link `rel="next"` of all headers `Link`, if there is one.
pub(super) fn next(headers: &HeaderMap) -> Result<Option<String>, Unreadable> {
    let mut next = None;
    for value in headers.get_all(LINK) {
        let bytes = value.as_bytes();
        // A text that is not UTF-8 is Latin-1, the former encoding of headers.
        let text = str::from_utf8(bytes)
            .map_or_else(|_| bytes.iter().map(|byte| char::from(*byte)).collect(), ToOwned::to_owned);
        let found = Reader { text: &text, at: 0 }.next_page()?;
        next = next.or(found);
    }
    Ok(next)
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn next_page(mut self) -> Result<Option<String>, Unreadable> {
        let mut next = None;
        loop {
            self.skip(&[' ', '\t', ',']);
            if self.rest().is_empty() {
                return Ok(next);
            }
            let link = self.link()?;
            next = next.or(link);
        }
    }

    /// Reads a link. Returns its target if it leads to the next page.
    fn link(&mut self) -> Result<Option<String>, Unreadable> {
        if !self.take('<') {
            return Err(self.expected("\"<\" before a URL"));
        }
        let target = self.until('>', "\">\" behind a URL")?.trim();
        let (mut relation, mut is_last) = (None, false);
        loop {
            self.skip(&[' ', '\t']);
            if self.rest().is_empty() || self.rest().starts_with(',') {
                break;
            }
            if !self.take(';') {
                return Err(self.expected("\";\" or \",\" behind a link"));
            }
            self.skip(&[' ', '\t']);
            let name = self.token(&['=', ';', ',', ' ', '\t']);
            self.skip(&[' ', '\t']);
            let Some(value) = self.take('=').then(|| self.value()).transpose()? else { continue };
            match name.to_ascii_lowercase().as_str() {
                "rel" => relation = relation.or(Some(value)),
                // An API that always sends the link says in this parameter that nothing follows.
                "results" => is_last |= value.eq_ignore_ascii_case("false"),
                _ => {}
            }
        }
        let Some(relation) = relation.filter(|relation| !relation.trim().is_empty()) else {
            return Err(self.expected("a parameter rel"));
        };
        let is_next = relation.split_whitespace().any(is_next);
        Ok((is_next && !is_last).then(|| target.to_owned()))
    }

    /// The value of a parameter: in double or single quotes, or up to the next separator.
    fn value(&mut self) -> Result<&'t str, Unreadable> {
        self.skip(&[' ', '\t']);
        for quote in ['"', '\''] {
            if self.take(quote) {
                let value = self.until(quote, "the end of a text in quotes")?;
                return Ok(value);
            }
        }
        let value = self.token(&[';', ',', ' ', '\t']);
        if value.is_empty() {
            return Err(self.expected("the value of a parameter"));
        }
        Ok(value)
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip(&mut self, characters: &[char]) {
        self.at += self.rest().len() - self.rest().trim_start_matches(characters).len();
    }

    fn take(&mut self, character: char) -> bool {
        let is_there = self.rest().starts_with(character);
        self.at += if is_there { character.len_utf8() } else { 0 };
        is_there
    }

    fn token(&mut self, ends: &[char]) -> &'t str {
        let rest = self.rest();
        let token = rest.get(..rest.find(ends).unwrap_or(rest.len())).unwrap_or_default();
        self.at += token.len();
        token
    }

    /// The text up to a character, which is skipped. In quotes, a backslash escapes a character.
    fn until(&mut self, end: char, expected: &'static str) -> Result<&'t str, Unreadable> {
        let mut is_hidden = false;
        let found = self.rest().char_indices().find(|(_, c)| {
            let ends = *c == end && !is_hidden;
            is_hidden = *c == '\\' && !is_hidden && end != '>';
            ends
        });
        let Some((length, _)) = found else {
            self.at = self.text.len();
            return Err(self.expected(expected));
        };
        let text = self.rest().get(..length).unwrap_or_default();
        self.at += length + end.len_utf8();
        Ok(text)
    }

    const fn expected(&self, expected: &'static str) -> Unreadable {
        Unreadable { at: self.at, expected }
    }
}

/// Whether a word of a relation means the next page: the name `next`, the URI of that name, or the name in quotes
/// that HTTP does not allow.
pub(super) fn is_next(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
    word.rsplit(['/', '#', ':']).next().is_some_and(|name| name.eq_ignore_ascii_case("next"))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn next_of(values: &[&[u8]]) -> Result<Option<String>, Unreadable> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(LINK, HeaderValue::from_bytes(value).unwrap());
        }
        next(&headers)
    }

    #[test]
    fn the_next_page_is_found_among_links() {
        for (header, expected) in [
            ("<https://a/b?page=2>; rel=\"next\"", Some("https://a/b?page=2")),
            ("<https://a/b?page=2>; rel='next', <c>; rel='last'", Some("https://a/b?page=2")),
            ("<p1>; rel=prev, </p3>;REL=next", Some("/p3")),
            ("<a,b>; title=\"x, <y>; rel=next\"; rel=\"last\", <c>; rel=\"up next\"", Some("c")),
            ("<a>; title=\"q\\\"; rel=next\"; rel=first", None),
            ("<?q=Zürich&page=2> ; rel = \"next\" ; title*=UTF-8''n%C3%A4chste", Some("?q=Zürich&page=2")),
            ("<a>; rel=\u{201c}next\u{201d}", Some("a")),
            ("<a>; rel=\"http://www.iana.org/assignments/relation/next\"", Some("a")),
            (", <a>; rel=preload; as=style; crossorigin, , <b>; rel=next;", Some("b")),
            ("<a>; rel=\"next\"; results=\"false\"; cursor=\"0:100:0\"", None),
            ("<a>; rel=\"next\"; results=\"true\"", Some("a")),
            ("<https://api.w.org/>; rel=\"https://api.w.org/\"", None),
            ("<a>; rel=nextcloud, <b>; rel=\"last\"", None),
            ("", None),
        ] {
            assert_eq!(next_of(&[header.as_bytes()]), Ok(expected.map(str::to_owned)), "{header}");
        }
        let two: [&[u8]; 2] = [b"<a>; rel=first", b"<caf\xe9>; rel=next"];
        assert_eq!(next_of(&two), Ok(Some("caf\u{e9}".to_owned())));
    }

    #[test]
    fn a_link_that_can_not_be_read_is_an_error() {
        for (header, at) in [
            ("https://a/b?page=2; rel=\"next\"", 0),
            ("<https://a/b?pa", 15),
            ("<https://a/b?page=2>", 20),
            ("<https://a/b?page=2>; rel", 25),
            ("<https://a/b?page=2>; rel=", 26),
            ("<https://a/b?page=2>; rel=\"ne", 29),
            ("<https://a/b?page=2>; rel='next", 31),
            ("<https://a/b?page=2>; rel=\"\"", 28),
            ("<https://a/b?page=2> rel=\"next\"", 21),
            ("<a>; rel=\"last\" <b>; rel=\"next\"", 16),
            ("&lt;https://a/b?page=2&gt;; rel=&quot;next&quot;", 0),
            ("{\"next\":\"https://a/b?page=2\"}", 0),
        ] {
            let error = next_of(&[b"<a>; rel=first", header.as_bytes()]).unwrap_err();
            assert_eq!(error.at, at, "{header}: {error}");
        }
    }
}
