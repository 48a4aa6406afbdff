//! A list behind a URL, in one reply or in pages. A page that fails ends the list, which then changes nothing.

mod headers;
mod link;
mod page;
mod signs;

use std::path::PathBuf;

use deltaq_client::Event;
use reqwest::header::{ETAG, HeaderMap, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use reqwest::{StatusCode, Url};
use serde_json::value::RawValue;

use self::page::{Page, Pages, Seen};
use self::signs::{Read, Signs};
use super::objects::{Shape, document, utf8};
use super::{Error, Output, http};
use crate::json;
use crate::settings;

/// Most pages of a list. A list that has more is taken for a circle.
const PAGES_MAX: u32 = 100_000;

/// A list behind a URL.
#[derive(Debug)]
pub(crate) struct Rest {
    http: http::Client,
    url: Url,
    shape: Shape,
    header_file: Option<PathBuf>,
    pages: Pages,
    /// Whether a list ends where the settings say, whatever a reply says.
    trusts_end: bool,
    /// What the server said about the list that the queue has taken.
    validators: Option<HeaderMap>,
    /// What takes their place once the queue has taken the list that was read last.
    next: Option<HeaderMap>,
}

impl Rest {
    pub(super) fn new(rest: &settings::Rest, source: &settings::Source) -> Result<Self, Error> {
        let shape = Shape { items: rest.items.clone(), map_key: rest.map_key.clone(), format: rest.format };
        let url = Url::parse(&rest.list)
            .map_err(|error| Error::because("the URL of the list is not valid", error))?;
        let http = http::Client::new(rest.ca_file.as_deref(), source.timeout, source.max_bytes)?;
        Ok(Self {
            http,
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
        (self.validators, self.next) = (None, None);
    }

    pub(super) async fn list(&mut self, output: &Output) -> Result<(), Error> {
        self.next = None;
        let mut patience = http::Patience::new(output);
        let mut next = Some(self.pages.first(&self.url));
        let (mut seen, mut signs) = (Seen::default(), Signs::default());
        let (mut pages, mut objects) = (0, 0);
        while let Some(url) = next.take() {
            if pages == PAGES_MAX {
                return Err(Error::new(format!("the list has more than {PAGES_MAX} pages")));
            }
            let reply = if pages == 0 {
                let Some(reply) = self.first(&url).await? else {
                    self.next.clone_from(&self.validators);
                    return Ok(());
                };
                output.send(Event::Init).await?;
                reply
            } else {
                match self.http.page(&url, || self.headers(), &mut patience).await {
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

    /// The headers of a request, as their file has them now.
    fn headers(&self) -> Result<HeaderMap, Error> {
        Ok(self.header_file.as_deref().map(headers::read).transpose()?.unwrap_or_default())
    }

    /// The reply with the first page; `None` if the server says that nothing has changed.
    async fn first(&self, url: &Url) -> Result<Option<http::Reply>, Error> {
        let mut headers = self.headers()?;
        let is_conditional = self.validators.as_ref().is_some_and(|validators| !validators.is_empty());
        headers.extend(self.validators.clone().unwrap_or_default());
        let reply = self.http.get(url, headers).await?;
        let is_unchanged = is_conditional && reply.status == StatusCode::NOT_MODIFIED;
        Ok((!is_unchanged).then_some(reply))
    }

    fn page(&self, asked: &Url, reply: &http::Reply) -> Result<Page, Error> {
        let of = &http::shown(asked);
        if reply.status == StatusCode::NOT_MODIFIED {
            let why = "without being asked whether the list has changed";
            return Err(Error::new(format!("{of} answered with status {}, {why}", reply.status)));
        }
        let text = utf8(&reply.body, of)?;
        let is_lines = self.shape.is_lines(text, reply.has_lines());
        let document = if is_lines { None } else { Some(document(text, of)?) };
        let (objects, cursor) = match document {
            None => (Shape::of_lines(text, of)?, None),
            Some(document) => (self.shape.of_document(document, of)?, self.cursor(document, of)?),
        };
        let link = match link::next(&reply.headers) {
            // Another way to the next page was set.
            _ if !matches!(self.pages, Pages::Link) => None,
            Err(why) if !self.trusts_end => {
                let remedy = "--next or --page-parameter finds the pages in another way, and --trust-end takes the list as it is";
                return Err(Error::because(format!("{of} may have another page: {remedy}"), why));
            }
            link => link.ok().flatten(),
        };
        let signs = Signs::new(&reply.headers, document, &self.shape.items);
        Ok(Page { objects, cursor, link, signs, validators: validators_of(&reply.headers) })
    }

    /// The cursor or the URL of the next page.
    fn cursor(&self, document: &RawValue, of: &str) -> Result<Option<String>, Error> {
        let Some(pointer) = self.pages.pointer() else { return Ok(None) };
        let found = json::find(document, pointer).map_err(|error| Error::because(of, error))?;
        match found.map(|value| (json::kind(value), json::scalar(value))) {
            None | Some(("null", _)) => Ok(None),
            Some(("a boolean", Some(cursor))) if cursor == "false" => Ok(None),
            Some((_, Some(cursor))) if cursor.is_empty() => Ok(None),
            Some((_, Some(cursor))) => Ok(Some(cursor)),
            Some((found, None)) => Err(Error::new(format!(
                "{of} has {found} at the pointer {pointer:?} (next); expected a cursor"
            ))),
        }
    }
}

/// The headers with which the next request asks whether the list has changed.
fn validators_of(reply: &HeaderMap) -> HeaderMap {
    let pairs = [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)];
    let found = pairs.into_iter().filter_map(|(said, asked)| Some((asked, reply.get(said)?.clone())));
    found.collect::<HeaderMap<HeaderValue>>()
}
