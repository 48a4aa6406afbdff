//! Finds the next page of a list: by a cursor in the reply, by a number, or by the header `Link`.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use reqwest::Url;
use reqwest::header::HeaderMap;
use serde_json::value::RawValue;

use super::super::{Error, http};
use super::signs::Signs;
use crate::settings::{self, PageEnd};

/// A page of a list.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) objects: Vec<Box<RawValue>>,
    /// The cursor or the URL of the next page, at the pointer of the settings.
    pub(super) cursor: Option<String>,
    /// The target of the link to the next page.
    pub(super) link: Option<String>,
    /// The signs of other pages in this page.
    pub(super) signs: Signs,
    /// The headers that the next list sends to ask whether the list has changed.
    pub(super) validators: HeaderMap,
    pub(super) form: Form,
}

/// The form of a reply.
#[derive(Debug, Clone, Default)]
pub(super) struct Form {
    /// The names of the members of the document.
    pub(super) members: HashSet<String>,
    /// The content type, without its parameters.
    pub(super) kind: String,
}

/// Whether a page has the same objects as a page before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeats {
    Nothing,
    /// The page directly before.
    Last,
    Earlier,
}

/// How the next page of a list is found.
#[derive(Debug, Clone)]
pub(super) enum Pages {
    /// By the cursor at this pointer of the reply, which is sent in this query parameter. Without a parameter, the
    /// cursor is a URL.
    Cursor { pointer: String, parameter: Option<String> },
    /// By the next number in this query parameter, until a page is empty or ends the list in another way.
    Number { parameter: String, first: u32, end: Option<PageEnd> },
    /// By the header `Link`, if the reply has one.
    Link,
}

impl Pages {
    pub(super) fn new(rest: &settings::Rest) -> Self {
        match (&rest.next, &rest.page_parameter) {
            (Some(pointer), _) => {
                Self::Cursor { pointer: pointer.clone(), parameter: rest.next_parameter.clone() }
            }
            (None, Some(parameter)) => {
                Self::Number { parameter: parameter.clone(), first: rest.first_page, end: rest.page_end }
            }
            (None, None) => Self::Link,
        }
    }

    /// The pointer to the cursor.
    pub(super) fn pointer(&self) -> Option<&str> {
        match self {
            Self::Cursor { pointer, .. } => Some(pointer),
            Self::Number { .. } | Self::Link => None,
        }
    }

    /// The URL of the first page.
    pub(super) fn first(&self, list: &Url) -> Url {
        match self {
            Self::Number { parameter, first, .. } => with_parameter(list, parameter, &first.to_string()),
            Self::Cursor { .. } | Self::Link => list.clone(),
        }
    }

    /// The URL of the page with the next number.
    pub(super) fn behind(&self, list: &Url, url: &Url) -> Option<Url> {
        let Self::Number { parameter, first, .. } = self else { return None };
        let number = of_parameter(url, parameter).and_then(|number| number.parse::<u32>().ok());
        let next = number.unwrap_or(*first).saturating_add(1);
        Some(with_parameter(list, parameter, &next.to_string()))
    }

    /// Refuses the reply to the request for a page after the first one if a redirect has led to another page.
    pub(super) fn check_redirect(&self, asked: &Url, from: &Url) -> Result<(), Error> {
        let (Self::Number { parameter, .. } | Self::Cursor { parameter: Some(parameter), .. }) = self else {
            return Ok(());
        };
        if of_parameter(asked, parameter) == of_parameter(from, parameter) {
            return Ok(());
        }
        let (asked, from) = (http::shown(asked), http::shown(from));
        Err(Error::new(format!("a page of {asked} was redirected to {from}, without its {parameter}")))
    }

    /// Whether the failure of a page after the first one means that there is no such page.
    pub(super) fn is_end(&self, error: &Error) -> bool {
        let end = match self {
            Self::Number { end, .. } => end.and_then(PageEnd::status),
            Self::Cursor { .. } | Self::Link => None,
        };
        end.is_some() && end == error.status().map(|status| status.as_u16())
    }

    /// The failure of a page after the first one, with the setting that would treat it as the end of the list.
    pub(super) fn advised(&self, error: Error) -> Error {
        let status = error.status().map(|status| status.as_u16());
        match (self, status) {
            (Self::Number { .. }, Some(status @ (400 | 404))) => Error {
                what: format!("{}; if the list ends so, --page-end {status} says that", error.what),
                ..error
            },
            _ => error,
        }
    }

    /// Refuses a page with the same objects as a page before it, unless this ends the list. `pages` is the number of
    /// previous pages.
    pub(super) fn check_repeated(&self, url: &Url, pages: u32, repeats: Repeats) -> Result<(), Error> {
        let shown = http::shown(url);
        if repeats == Repeats::Earlier {
            return Err(Error::new(format!("two pages of {shown} have the same objects")));
        }
        let ends = matches!(self, Self::Number { end: Some(PageEnd::Repeat), .. });
        // A server that does not know the parameter sends the first page again.
        if ends && pages > 1 {
            return Ok(());
        }
        let advice = match self {
            Self::Number { .. } if pages > 1 => "; if the list ends so, --page-end repeat says that",
            _ => "; does the server know the parameter of the page?",
        };
        Err(Error::new(format!("two pages of {shown} in a row have the same objects{advice}")))
    }

    /// The URL of the page after `page`; `None` after the last page. `page` was requested at `url`, and redirects led
    /// to `base`.
    pub(super) fn next(&self, list: &Url, url: &Url, base: &Url, page: &Page) -> Result<Option<Url>, Error> {
        Ok(Some(match self {
            Self::Cursor { parameter, .. } => {
                let Some(cursor) = &page.cursor else { return Ok(None) };
                match parameter {
                    Some(parameter) => with_parameter(list, parameter, cursor),
                    None => joined(list, base, cursor)?,
                }
            }
            Self::Number { .. } if page.objects.is_empty() => return Ok(None),
            Self::Number { .. } => return Ok(self.behind(list, url)),
            Self::Link => match &page.link {
                Some(link) => joined(list, base, link)?,
                None => return Ok(None),
            },
        }))
    }
}

/// The pages of a list that were read, to detect a list without an end.
#[derive(Debug, Default)]
pub(super) struct Seen {
    urls: HashSet<Url>,
    /// Hashes of the objects of each page.
    pages: HashSet<u64>,
    /// The hash of the last page.
    last: Option<u64>,
    first: Option<Form>,
}

impl Seen {
    /// Records the objects of a page. Returns whether they are the same as those of a page before.
    pub(super) fn note(&mut self, page: &Page) -> Repeats {
        let mut hasher = DefaultHasher::new();
        page.objects.iter().for_each(|object| object.get().hash(&mut hasher));
        self.first.get_or_insert_with(|| page.form.clone());
        let hash = hasher.finish();
        let (last, is_new) = (self.last.replace(hash), self.pages.insert(hash));
        match last {
            _ if is_new || page.objects.is_empty() => Repeats::Nothing,
            Some(last) if last == hash => Repeats::Last,
            _ => Repeats::Earlier,
        }
    }

    /// The form of the first page; `None` before it was read.
    pub(super) const fn first(&self) -> Option<&Form> {
        self.first.as_ref()
    }

    /// Records the URL of a page, to which redirects may have led. The page must not be one that was already read.
    pub(super) fn arrived(&mut self, url: &Url, from: &Url) -> Result<(), Error> {
        if url != from && self.urls.contains(from) {
            let (url, from) = (http::shown(url), http::shown(from));
            return Err(Error::new(format!(
                "the page {url} was redirected to {from}, which was read before"
            )));
        }
        self.urls.extend([url.clone(), from.clone()]);
        Ok(())
    }

    /// Refuses a next page that was already read.
    pub(super) fn check(&self, url: &Url, next: Option<&Url>) -> Result<(), Error> {
        if next.is_some_and(|next| self.urls.contains(next)) {
            let shown = http::shown(url);
            return Err(Error::new(format!(
                "the page {shown} names a page that was read before as the next one"
            )));
        }
        Ok(())
    }
}

/// The URL that a page names. It must have the origin of the list, because the headers of the requests are only for
/// that origin.
fn joined(list: &Url, url: &Url, text: &str) -> Result<Url, Error> {
    let next = url.join(text).map_err(|error| {
        let page = http::shown(url);
        Error::because(
            format!("the page {page} names a next page that is not a URL; a cursor needs next_parameter"),
            error,
        )
    })?;
    if next.origin() == list.origin() {
        return Ok(next);
    }
    let (page, origin) = (http::shown(url), next.origin().ascii_serialization());
    Err(Error::new(format!("the page {page} names a next page of another server, {origin}")))
}

/// The value of a query parameter.
fn of_parameter(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().filter(|(known, _)| known == name).last().map(|(_, value)| value.into_owned())
}

/// The URL with this value of a query parameter.
fn with_parameter(url: &Url, name: &str, value: &str) -> Url {
    let mut changed = url.clone();
    let others = url.query_pairs().filter(|(other, _)| other != name);
    changed.query_pairs_mut().clear().extend_pairs(others).append_pair(name, value);
    changed
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::super::super::Refusal;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn page(cursor: Option<&str>, link: Option<&str>, objects: usize) -> Page {
        let objects = (0..objects).map(|_| RawValue::from_string("{}".to_owned()).unwrap()).collect();
        Page { objects, cursor: cursor.map(str::to_owned), link: link.map(str::to_owned), ..Page::default() }
    }

    #[test]
    fn a_cursor_takes_the_place_of_the_one_before() {
        let pages = Pages::Cursor { pointer: "/next".to_owned(), parameter: Some("after".to_owned()) };
        let list = url("http://a/b?limit=2");
        let second = pages.next(&list, &list, &list, &page(Some("x y&"), None, 2)).unwrap().unwrap();
        assert_eq!(second.as_str(), "http://a/b?limit=2&after=x+y%26");
        let third = pages.next(&list, &second, &second, &page(Some("z"), None, 2)).unwrap().unwrap();
        assert_eq!(third.as_str(), "http://a/b?limit=2&after=z");
        assert!(pages.next(&list, &third, &third, &page(None, None, 2)).unwrap().is_none());
    }

    #[test]
    fn a_list_that_goes_in_a_circle_ends() {
        let (one, two) = (url("http://a/b?page=1"), url("http://a/b?page=2"));
        let mut seen = Seen::default();
        seen.arrived(&one, &one).unwrap();
        assert!(seen.check(&one, Some(&one)).is_err());
        seen.check(&one, Some(&two)).unwrap();
        assert!(seen.arrived(&two, &one).unwrap_err().to_string().contains("which was read before"));
        seen.arrived(&two, &two).unwrap();
        let back = seen.check(&two, Some(&one)).unwrap_err().to_string();
        assert_eq!(back, "the page http://a/b names a page that was read before as the next one");
        let mut seen = Seen::default();
        let repeats = [2, 2, 1, 0, 0, 2].map(|objects| seen.note(&page(None, None, objects)));
        let (nothing, last, earlier) = (Repeats::Nothing, Repeats::Last, Repeats::Earlier);
        assert_eq!(repeats, [nothing, last, nothing, nothing, nothing, earlier]);
    }

    #[test]
    fn a_redirect_to_another_page_is_no_page() {
        let number = Pages::Number { parameter: "page".to_owned(), first: 1, end: None };
        let cursor = |parameter| Pages::Cursor { pointer: String::new(), parameter };
        let asked = url("http://a/b?page=3");
        for (from, is_same) in
            [("http://a/c?size=2&page=3", true), ("http://a/b", false), ("http://a/b?page=1", false)]
        {
            for pages in [&number, &cursor(Some("page".to_owned()))] {
                assert_eq!(pages.check_redirect(&asked, &url(from)).is_ok(), is_same, "{from}");
            }
            assert!(cursor(None).check_redirect(&asked, &url(from)).is_ok());
        }
    }

    #[test]
    fn a_list_of_numbers_ends_as_the_settings_say() {
        let number = |end| Pages::Number { parameter: "page".to_owned(), first: 1, end };
        let status = |status| StatusCode::from_u16(status).ok().map(Refusal::Status);
        let failure = |number: u16| Error { refusal: status(number), ..Error::new("no") };
        let ends = |end| [400, 404, 410, 500].map(|status| number(end).is_end(&failure(status)));
        assert_eq!(ends(None), [false; 4]);
        assert_eq!(ends(Some(PageEnd::Repeat)), [false; 4]);
        assert_eq!(ends(Some(PageEnd::BadRequest)), [true, false, false, false]);
        assert_eq!(ends(Some(PageEnd::NotFound)), [false, true, false, false]);
        let advised = number(None).advised(failure(404)).to_string();
        assert_eq!(advised, "no; if the list ends so, --page-end 404 says that");
        let (url, repeat) = (url("http://a/b"), Some(PageEnd::Repeat));
        assert!(number(repeat).check_repeated(&url, 2, Repeats::Last).is_ok());
        assert!(number(repeat).check_repeated(&url, 2, Repeats::Earlier).is_err());
        for (pages, before, expected) in [
            (
                number(repeat),
                1,
                "in a row have the same objects; does the server know the parameter of the page?",
            ),
            (number(None), 2, "; if the list ends so, --page-end repeat says that"),
            (Pages::Link, 2, "; does the server know the parameter of the page?"),
        ] {
            let refused = pages.check_repeated(&url, before, Repeats::Last).unwrap_err().to_string();
            assert!(refused.ends_with(expected), "{refused}");
        }
    }

    #[test]
    fn numbers_go_on_until_a_page_is_empty() {
        let pages = Pages::Number { parameter: "page".to_owned(), first: 0, end: None };
        let list = url("http://a/b?page=9&size=2");
        let first = pages.first(&list);
        assert_eq!(first.as_str(), "http://a/b?size=2&page=0");
        let second = pages.next(&list, &first, &first, &page(None, None, 1)).unwrap().unwrap();
        assert_eq!(second.as_str(), "http://a/b?size=2&page=1");
        assert!(pages.next(&list, &second, &second, &page(None, None, 0)).unwrap().is_none());
    }

    #[test]
    fn the_next_page_is_of_the_same_server() {
        let (pages, list) = (Pages::Link, url("https://a/b"));
        let next = |link| pages.next(&list, &list, &url("https://a/v2/b"), &page(None, Some(link), 1));
        assert_eq!(next("?page=2").unwrap().unwrap().as_str(), "https://a/v2/b?page=2");
        for other in ["https://b/b", "http://a/b", "//c/b"] {
            assert!(next(other).unwrap_err().to_string().contains("of another server"), "{other}");
        }
        let pages = Pages::Cursor { pointer: "/next".to_owned(), parameter: None };
        let error =
            pages.next(&list, &list, &list, &page(Some("https://["), None, 1)).unwrap_err().to_string();
        assert!(error.contains("needs next_parameter"), "{error}");
    }
}
