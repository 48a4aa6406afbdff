//! Reads a list behind a URL, in one reply or in pages. If a page fails, the list ends and changes nothing.

mod headers;
mod link;
mod page;
mod signs;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use deltaq_client::Event;
use deltaq_types::duration::DurationText;
use reqwest::header::{DATE, ETAG, HeaderMap, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use reqwest::{StatusCode, Url};
use serde_json::value::RawValue;

use self::page::{Page, Pages, Seen};
use self::signs::{Read, Signs};
use super::objects::{Shape, document, utf8};
use super::{Error, Output, http};
use crate::json;
use crate::settings;

/// Maximum number of pages of a list. A list with more pages is considered endless.
const PAGES_MAX: u32 = 100_000;

/// Cursors that end a list, written as numbers or texts.
const NO_CURSOR: [&str; 3] = ["", "0", "-1"];
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
    /// The validators (`ETag`, `Last-Modified`) of the list that the queue has accepted.
    validators: Option<HeaderMap>,
    /// The validators of the list that was read last. They replace `validators` once the queue has accepted that list.
    next: Option<HeaderMap>,
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
        })
    }

    pub(super) fn accepted(&mut self) {
        self.validators = self.next.take();
    }

    pub(super) fn forget(&mut self) {
        (self.http, self.validators, self.next) = (None, None, None);
    }

    pub(super) async fn list(&mut self, output: &Output) -> Result<(), Error> {
        self.next = None;
        let http = match self.http.take() {
            Some(http) => http,
            None => http::Client::new(self.ca_file.as_deref(), self.timeout, self.max_bytes)?,
        };
        self.http = Some(http.clone());
        let mut patience = http::Patience::new(output);
        let mut next = Some(self.pages.first(&self.url));
        let (mut seen, mut signs) = (Seen::default(), Signs::default());
        let (mut pages, mut objects) = (0, 0);
        while let Some(url) = next.take() {
            if pages == PAGES_MAX {
                return Err(Error::new(format!("the list has more than {PAGES_MAX} pages")));
            }
            let reply = if pages == 0 {
                let Some(reply) = self.first(&http, &url).await? else {
                    self.next.clone_from(&self.validators);
                    return Ok(());
                };
                output.send(Event::Init).await?;
                reply
            } else {
                match http.page(&url, || self.headers(), &mut patience).await {
                    Err(error) if self.pages.is_end(&error) => break,
                    reply => reply.map_err(|error| self.pages.advised(error))?,
                }
            };
            let page = self.page(&url, &reply)?;
            if seen.is_repeated(&page) {
                self.pages.check_repeated(&url, pages)?;
                break;
            }
            pages += 1;
            next = self.pages.next(&self.url, &url, &reply.url, &page)?;
            seen.check(&url, next.as_ref())?;
            objects += page.objects.len() as u64;
            signs = page.signs.after(signs);
            if pages == 1 && next.is_none() {
                self.next = Some(page.validators);
            }
            output.list(page.objects).await?;
        }
        if !self.trusts_end {
            let is_numbered = matches!(self.pages, Pages::Number { .. });
            signs.check(&http::shown(&self.url), Read { objects, pages: pages.into(), is_numbered })?;
        }
        output.send(Event::InitDone).await
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
        let is_unchanged = is_conditional && reply.status == StatusCode::NOT_MODIFIED;
        Ok((!is_unchanged).then_some(reply))
    }

    fn page(&self, asked: &Url, reply: &http::Reply) -> Result<Page, Error> {
        let of = &http::shown(asked);
        if reply.status == StatusCode::NOT_MODIFIED {
            let why = "without being asked whether the list has changed";
            return Err(Error::new(format!("{of} answered with status {}, {why}", reply.status)));
        }
        let clue = |error| Error::because(format!("{of} answered with {}", reply.clue(asked)), error);
        let text = utf8(&reply.body, "it").map_err(clue)?;
        let is_lines = self.shape.is_lines(text, reply.has_lines());
        let document = if is_lines { None } else { Some(document(text, "it").map_err(clue)?) };
        let (objects, cursor) = match document {
            None => (Shape::of_lines(text, of)?, None),
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
        Ok(Page { objects, cursor, link, signs, validators: validators_of(&reply.headers) })
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

/// The headers with which the next request asks whether the list has changed. A list that was written in the second
/// of the reply, or later, may be written again with the same time. Then neither the time nor an entity tag, which
/// many servers derive from the time, would show the change.
fn validators_of(reply: &HeaderMap) -> HeaderMap {
    let date = |name| httpdate::parse_http_date(reply.get(name)?.to_str().ok()?).ok();
    let is_settled = |modified: SystemTime| {
        date(DATE).and_then(|date| date.duration_since(modified).ok()).is_some_and(|age| age > SETTLED)
    };
    if reply.contains_key(LAST_MODIFIED) && !date(LAST_MODIFIED).is_some_and(is_settled) {
        return HeaderMap::new();
    }
    let pairs = [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)];
    let found = pairs.into_iter().filter_map(|(said, asked)| Some((asked, reply.get(said)?.clone())));
    found.collect::<HeaderMap<HeaderValue>>()
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderName;

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
        assert_eq!(validators(&[date.clone(), old.clone()]), ["if-modified-since"]);
        assert_eq!(
            validators(&[date.clone(), tag.clone(), old.clone()]),
            ["if-none-match", "if-modified-since"]
        );
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
}
