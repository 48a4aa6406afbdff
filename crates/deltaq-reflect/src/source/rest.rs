//! Reads a list behind a URL, in one reply or in pages. If a page fails, the list ends and changes nothing.

mod headers;
mod link;
mod page;
mod signs;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use deltaq_client::Event;
use deltaq_types::duration::DurationText;
use reqwest::header::{DATE, ETAG, HeaderMap, IF_NONE_MATCH, LAST_MODIFIED};
use reqwest::{StatusCode, Url};
use serde_json::value::RawValue;

use self::page::{Form, Page, Pages, Repeats, Seen};
use self::signs::{Read, Signs};
use super::objects::{Shape, document, utf8};
use super::{Error, Output, http};
use crate::json;
use crate::settings;

/// Maximum number of pages of a list. A list with more pages is considered endless.
const PAGES_MAX: u32 = 100_000;

/// Cursors that end a list, written as numbers or texts.
const NO_CURSOR: [&str; 3] = ["", "0", "-1"];
/// Statuses that mean that there is no page with such a number.
const NO_PAGE: [StatusCode; 5] = [
    StatusCode::BAD_REQUEST,
    StatusCode::NOT_FOUND,
    StatusCode::GONE,
    StatusCode::RANGE_NOT_SATISFIABLE,
    StatusCode::UNPROCESSABLE_ENTITY,
];
/// A list that is younger may be written again in the same second, which is the resolution of `Last-Modified`.
const SETTLED: Duration = Duration::from_secs(1);

/// A list behind a URL.
#[derive(Debug)]
pub(crate) struct Rest {
    /// `None` before the first list and after a failure, because the certificates of authorities may have been
    /// replaced.
    http: Option<http::Client>,
    ca_file: Option<PathBuf>,
    timeout: DurationText,
    max_bytes: u64,
    url: Url,
    shape: Shape,
    header_file: Option<PathBuf>,
    pages: Pages,
    /// Whether a list ends where the settings say, regardless of signs in a reply.
    trusts_end: bool,
    /// The validator (`ETag`) of the list that the queue has accepted.
    validators: Option<HeaderMap>,
    /// The validator of the list that was read last. It replaces `validators` once the queue has accepted that list.
    next: Option<HeaderMap>,
    /// Whether the last list took several requests, between which the source may have changed.
    is_paged: bool,
    /// Whether the number of objects has changed between the pages of the last list.
    is_torn: bool,
    /// Whether the next list also requests the page behind the end, because the queue has keys that the list before
    /// lacks.
    checks_end: bool,
}

impl Rest {
    pub(super) fn new(rest: &settings::Rest, source: &settings::Source) -> Result<Self, Error> {
        let shape = Shape { items: rest.items.clone(), map_key: rest.map_key.clone(), format: rest.format };
        let url = Url::parse(&rest.list)
            .map_err(|error| Error::because("the URL of the list is not valid", error))?;
        Ok(Self {
            http: None,
            ca_file: rest.ca_file.clone(),
            timeout: source.timeout,
            max_bytes: source.max_bytes,
            url,
            shape,
            header_file: rest.header_file.clone(),
            pages: Pages::new(rest),
            trusts_end: rest.trust_end,
            validators: None,
            next: None,
            is_paged: false,
            is_torn: false,
            checks_end: false,
        })
    }

    pub(super) fn accepted(&mut self) {
        self.validators = self.next.take();
    }

    pub(super) fn forget(&mut self) {
        (self.http, self.validators, self.next) = (None, None, None);
    }

    pub(super) const fn is_paged(&self) -> bool {
        self.is_paged
    }

    pub(super) const fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Lets the next list request the page behind the end of numbered pages, too: keys may be deleted after it.
    pub(super) const fn checks_end(&mut self) {
        self.checks_end = true;
    }

    pub(super) async fn list(&mut self, output: &Output) -> Result<(), Error> {
        (self.next, self.is_paged, self.is_torn) = (None, false, false);
        let http = match self.http.take() {
            Some(http) => http,
            None => http::Client::new(self.ca_file.as_deref(), self.timeout, self.max_bytes)?,
        };
        self.http = Some(http.clone());
        let mut patience = http::Patience::new(output);
        let mut next = Some(self.pages.first(&self.url));
        let (mut seen, mut signs) = (Seen::default(), Signs::default());
        let (mut pages, mut filled, mut objects) = (0, 0_u64, 0);
        let (mut before, mut last) = (None, None);
        while let Some(url) = next.take() {
            if pages == PAGES_MAX {
                return Err(Error::new(format!("the list has more than {PAGES_MAX} pages")));
            }
            let reply = if let Some(before) = &before {
                self.is_paged = true;
                match http.page(&url, || self.headers(), &mut patience).await {
                    Err(error) if self.pages.is_end(&error) => {
                        // During an outage, every page may have this status.
                        let again = http.page(before, || self.headers(), &mut patience).await?;
                        self.page(before, &again, seen.first())?;
                        last = Some((url, Some(error)));
                        break;
                    }
                    reply => reply.map_err(|error| self.pages.advised(error))?,
                }
            } else {
                let Some(reply) = self.first(&http, &url).await? else {
                    self.next.clone_from(&self.validators);
                    return Ok(());
                };
                output.send(Event::Init).await?;
                reply
            };
            if before.is_some() {
                self.pages.check_redirect(&url, &reply.url)?;
            }
            seen.arrived(&url, &reply.url)?;
            let page = self.page(&url, &reply, seen.first())?;
            last = Some((url.clone(), None));
            let repeats = seen.note(&page);
            if repeats != Repeats::Nothing {
                self.pages.check_repeated(&url, pages, repeats)?;
                break;
            }
            pages += 1;
            filled += u64::from(!page.objects.is_empty());
            next = self.pages.next(&self.url, &url, &reply.url, &page)?;
            seen.check(&url, next.as_ref())?;
            objects += page.objects.len() as u64;
            signs = page.signs.after(signs);
            if pages == 1 && next.is_none() && !may_be_full(page.objects.len(), &url) {
                self.next = Some(page.validators);
            }
            output.list(page.objects).await?;
            before = Some(url);
        }
        if let Some((last, refusal)) = last.filter(|_| std::mem::take(&mut self.checks_end)) {
            self.check_end(&http, &last, refusal, &mut seen, &mut patience).await?;
        }
        self.is_torn = signs.is_torn();
        if !self.trusts_end {
            let is_numbered = matches!(self.pages, Pages::Number { .. });
            // Some servers say that a list without objects has one page.
            let pages = if is_numbered { filled.max(1) } else { pages.into() };
            let is_alone = pages == 1 && matches!(self.pages, Pages::Link);
            signs.check(&http::shown(&self.url), Read { objects, pages, is_numbered, is_alone })?;
        }
        output.send(Event::InitDone).await
    }

    /// Refuses the end of numbered pages if the page behind it is no end. `last` is the page that has ended the list, and
    /// `refusal` its failure if its status has.
    async fn check_end(
        &self,
        http: &http::Client,
        last: &Url,
        refusal: Option<Error>,
        seen: &mut Seen,
        patience: &mut http::Patience<'_>,
    ) -> Result<(), Error> {
        let Some(behind) = self.pages.behind(&self.url, last) else { return Ok(()) };
        let has = match http.page(&behind, || self.headers(), patience).await {
            Err(error) => {
                let (is_end, status) = (self.pages.is_end(&error), error.status());
                match &refusal {
                    // A program in front of the API refuses pages in its own way.
                    Some(refusal) if is_end && refusal.kind != error.kind => "is refused in another way",
                    Some(_) if is_end => return Ok(()),
                    None if status.is_some_and(|status| NO_PAGE.contains(&status)) => return Ok(()),
                    _ => return Err(error),
                }
            }
            Ok(_) if refusal.is_some() => "is not refused",
            Ok(reply) => {
                let page = self.page(&behind, &reply, seen.first())?;
                if page.objects.is_empty() || seen.note(&page) != Repeats::Nothing {
                    return Ok(());
                }
                "has objects"
            }
        };
        let shown = http::shown(last);
        Err(Error::new(format!("a page of {shown} ends the list, but the page behind it {has}")))
    }

    /// The headers of a request, as they are in their file now.
    fn headers(&self) -> Result<HeaderMap, Error> {
        Ok(self.header_file.as_deref().map(headers::read).transpose()?.unwrap_or_default())
    }

    /// The reply with the first page; `None` if the server says that nothing has changed.
    async fn first(&self, http: &http::Client, url: &Url) -> Result<Option<http::Reply>, Error> {
        let mut headers = self.headers()?;
        let is_conditional = self.validators.as_ref().is_some_and(|validators| !validators.is_empty());
        headers.extend(self.validators.clone().unwrap_or_default());
        let reply = http.get(url, headers).await?;
        if !is_conditional || reply.status != StatusCode::NOT_MODIFIED {
            return Ok(Some(reply));
        }
        // The tag may describe only the objects. Then the header of a list that has got a second page is the only
        // sign of it.
        let leads_on = matches!(self.pages, Pages::Link) && link::next(&reply.headers) != Ok(None);
        if leads_on { http.get(url, self.headers()?).await.map(Some) } else { Ok(None) }
    }

    /// The page of a reply. `first` is the form of the first page; `None` for this page.
    fn page(&self, asked: &Url, reply: &http::Reply, first: Option<&Form>) -> Result<Page, Error> {
        let of = &http::shown(asked);
        if reply.status == StatusCode::NO_CONTENT {
            let is_end = first.is_some() && matches!(self.pages, Pages::Number { .. });
            let why = || Error::new(format!("{of} answered with status {}, without a list", reply.status));
            return is_end.then(Page::default).ok_or_else(why);
        }
        if reply.status == StatusCode::NOT_MODIFIED {
            let why = "without being asked whether the list has changed";
            return Err(Error::new(format!("{of} answered with status {}, {why}", reply.status)));
        }
        let clue = |error| Error::because(format!("{of} answered with {}", reply.clue(asked)), error);
        let text = utf8(&reply.body, "it").map_err(clue)?;
        let is_lines = self.shape.is_lines(text, reply.has_lines());
        let document = if is_lines { None } else { Some(document(text, "it").map_err(clue)?) };
        let names = document.and_then(|document| json::members(document).ok()).unwrap_or_default();
        let form = Form { members: names.into_iter().map(|(name, _)| name).collect(), kind: reply.kind() };
        let (objects, cursor) = match document {
            None if !reply.has_length => {
                let why = "lines without a length: a list that is cut off would look complete";
                return Err(Error::new(format!("{of} answered with {why}")));
            }
            // The reply may come from a program in front of the API.
            None if text.trim().is_empty() && first.is_some_and(|first| first.kind != form.kind) => {
                return Err(Error::new(format!("{of} answered with {}", reply.clue(asked))));
            }
            None => (Shape::of_lines(text, of)?, None),
            Some(document) if first.is_some_and(|first| self.is_empty(document, &form, first)) => {
                (Vec::new(), self.cursor(document, of)?)
            }
            Some(document) => (self.shape.of_document(document, of)?, self.cursor(document, of)?),
        };
        let link = match link::next(&reply.headers) {
            // Another way to find the next page was set.
            _ if !matches!(self.pages, Pages::Link) => None,
            Err(why) if !self.trusts_end => {
                let remedy = "--next or --page-parameter finds the pages in another way, and --trust-end takes the list as it is";
                return Err(Error::because(format!("{of} may have another page: {remedy}"), why));
            }
            link => link.ok().flatten(),
        };
        let signs = Signs::new(&reply.headers, document, &self.shape.items, asked);
        let validators = validators_of(&reply.headers);
        Ok(Page { objects, cursor, link, signs, validators, form })
    }

    /// Whether a page after the first one has no objects because its list is null or absent. A reply with members that
    /// the first page did not have, or with another content type, may be the message of a failure.
    fn is_empty(&self, document: &RawValue, form: &Form, first: &Form) -> bool {
        let is_known = || form.members.is_subset(&first.members);
        form.kind == first.kind
            && match json::find(document, &self.shape.items) {
                Ok(Some(list)) => json::kind(list) == "null",
                Ok(None) => json::kind(document) == "an object" && is_known(),
                Err(_) => false,
            }
    }

    /// The cursor or the URL of the next page.
    fn cursor(&self, document: &RawValue, of: &str) -> Result<Option<String>, Error> {
        let Some(pointer) = self.pages.pointer() else { return Ok(None) };
        let found = json::find(document, pointer).map_err(|error| Error::because(of, error))?;
        match found.map(|value| (json::kind(value), json::scalar(value))) {
            None | Some(("null", _)) => Ok(None),
            Some(("a boolean", Some(cursor))) if cursor == "false" => Ok(None),
            Some((_, Some(cursor))) if NO_CURSOR.contains(&cursor.trim()) => Ok(None),
            Some((_, Some(cursor))) => Ok(Some(cursor)),
            Some((found, None)) => Err(Error::new(format!(
                "{of} has {found} at the pointer {pointer:?} (next); expected a cursor"
            ))),
        }
    }
}

/// Whether a list in one page has as many objects as a page may have: a round number, or a number in the URL. If the
/// list got a second page, the tag of the first one could stay the same.
fn may_be_full(objects: usize, url: &Url) -> bool {
    let is_round = [5, 12].iter().any(|part| objects.is_multiple_of(*part));
    let is_power = objects > 4 && objects.is_power_of_two();
    let is_asked = || url.query_pairs().any(|(_, value)| value.parse() == Ok(objects));
    objects > 0 && (is_round || is_power || is_asked())
}

/// The header with which the next request asks whether the list has changed. A list that was written in the second
/// of the reply, or later, may be written again with the same time. Then an entity tag, which many servers derive from
/// the time, would not show the change. The time alone is no validator, because an older file may take the place of
/// the list.
fn validators_of(reply: &HeaderMap) -> HeaderMap {
    let date = |name| httpdate::parse_http_date(reply.get(name)?.to_str().ok()?).ok();
    let is_settled = |modified: SystemTime| {
        date(DATE).and_then(|date| date.duration_since(modified).ok()).is_some_and(|age| age > SETTLED)
    };
    if reply.contains_key(LAST_MODIFIED) && !date(LAST_MODIFIED).is_some_and(is_settled) {
        return HeaderMap::new();
    }
    reply.get(ETAG).map(|tag| (IF_NONE_MATCH, tag.clone())).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn a_list_that_has_just_been_written_has_no_validator() {
        let validators = |headers: &[(HeaderName, &'static str)]| {
            let pairs = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
            let found = validators_of(&pairs.collect());
            found.keys().map(|name| name.as_str().to_owned()).collect::<Vec<_>>()
        };
        let date = (DATE, "Fri, 27 Nov 2026 10:00:10 GMT");
        let modified = |text| (LAST_MODIFIED, text);
        let tag = (ETAG, "\"6a1f-10\"");
        let old = modified("Fri, 27 Nov 2026 10:00:08 GMT");
        assert!(validators(&[date.clone(), old.clone()]).is_empty());
        assert_eq!(validators(&[date.clone(), tag.clone(), old.clone()]), ["if-none-match"]);
        assert_eq!(validators(std::slice::from_ref(&tag)), ["if-none-match"]);
        for young in [
            "Fri, 27 Nov 2026 10:00:09 GMT",
            "Fri, 27 Nov 2026 10:00:10 GMT",
            // The clock of another machine.
            "Fri, 27 Nov 2026 10:00:40 GMT",
            "yesterday",
        ] {
            assert!(validators(&[date.clone(), modified(young), tag.clone()]).is_empty(), "{young}");
        }
        // The age of the list is not known.
        assert!(validators(&[old, tag]).is_empty());
    }

    #[test]
    fn a_list_that_may_be_a_full_page_is_known_by_its_number_of_objects() {
        let full = |objects, url: &str| may_be_full(objects, &Url::parse(url).unwrap());
        for objects in [5, 10, 20, 24, 25, 30, 32, 48, 50, 64, 100, 250, 256, 1_000, 1_024, 5_000] {
            assert!(full(objects, "http://a/"), "{objects}");
        }
        for objects in [0, 1, 2, 3, 4, 7, 9, 11, 13, 26, 99, 101] {
            assert!(!full(objects, "http://a/?limit=8"), "{objects}");
        }
        assert!(full(7, "http://a/?per_page=7") && full(99, "http://a/?q=x&size=99"));
    }
}
