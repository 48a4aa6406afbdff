//! A list behind a URL, in one reply or in pages. A page that fails ends the list, which then changes nothing.

mod headers;
mod page;

use std::path::PathBuf;

use deltaq_client::Event;
use reqwest::header::{ETAG, HeaderMap, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, LINK};
use reqwest::{StatusCode, Url};
use serde_json::value::RawValue;

use self::page::{Page, Pages, Seen};
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
        let mut seen = Seen::default();
        let mut number = 0;
        while let Some(url) = next.take() {
            number += 1;
            if number > PAGES_MAX {
                return Err(Error::new(format!("the list has more than {PAGES_MAX} pages")));
            }
            let reply = if number == 1 {
                let Some(reply) = self.first(&url).await? else {
                    self.next.clone_from(&self.validators);
                    return Ok(());
                };
                output.send(Event::Init).await?;
                reply
            } else {
                self.http.page(&url, || self.headers(), &mut patience).await?
            };
            let page = self.page(&reply, &http::shown(&url))?;
            next = self.pages.next(&self.url, &url, &page)?;
            seen.check(&url, &page, next.as_ref())?;
            if number == 1 && next.is_none() {
                self.next = Some(page.validators);
            }
            output.list(page.objects).await?;
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

    fn page(&self, reply: &http::Reply, of: &str) -> Result<Page, Error> {
        if reply.status == StatusCode::NOT_MODIFIED {
            let why = "without being asked whether the list has changed";
            return Err(Error::new(format!("{of} answered with status {}, {why}", reply.status)));
        }
        let text = utf8(&reply.body, of)?;
        let (objects, cursor) = if self.shape.is_lines(text, reply.has_lines()) {
            (Shape::of_lines(text, of)?, None)
        } else {
            let document = document(text, of)?;
            (self.shape.of_document(document, of)?, self.cursor(document, of)?)
        };
        let mut links = reply.headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok());
        let link = links.find_map(headers::next_link);
        Ok(Page { objects, cursor, link, validators: validators_of(&reply.headers) })
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
