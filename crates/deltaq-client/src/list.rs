//! Lists, which come in pages.

use std::collections::VecDeque;
use std::marker::PhantomData;

use deltaq_types::{ItemDocument, Page};
use futures_util::stream::{Stream, try_unfold};
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::request::{Request, Sent, send, setter};

/// A list. Awaiting it returns one [`Page`]; [`List::stream`] yields the entries of all pages. [`List::limit`]
/// and [`List::continue_after`] apply to every list. The server refuses the other parameters for lists that do not
/// support them.
#[derive(Debug)]
#[must_use = "a list is read when it is awaited or streamed"]
pub struct List<T> {
    request: Request,
    entries: PhantomData<fn() -> T>,
}

impl<T> List<T> {
    pub(crate) const fn new(request: Request) -> Self {
        Self { request, entries: PhantomData }
    }

    setter!(number
        /// Maximum number of entries in a page, up to 5,000; 500 by default.
        limit "limit");
    setter!(text
        /// Continues after the page with this `continue`.
        continue_after "continue");
    setter!(text
        /// Only keys, names or values that begin with this text.
        prefix "prefix");
    setter!(text
        /// Only objects that this source owns.
        source "source");
    setter!(text
        /// Only this key.
        key "key");
    setter!(text
        /// Only one part of all keys, such as `0/4`: the keys whose CRC-32C modulo 4 is 0.
        shard "shard");
    setter!(text
        /// Only items in these states, joined by commas, such as `ready,parked`.
        state "state");
    setter!(text
        /// Only items that this worker holds.
        worker "worker");
    setter!(text
        /// Only items whose last error this is; an empty text means those without an error.
        error "error");
    setter!(wait
        /// Maximum wait for an index that is being built.
        wait "wait");

    /// Only objects that have a value in an index.
    pub fn index(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.request = self.request.query("index", name.into()).query("value", value.into());
        self
    }
}

impl List<ItemDocument> {
    /// Adds the difference from the object that was acknowledged last to the newest one to each item.
    pub fn with_diff(mut self) -> Self {
        self.request = self.request.query("with", "diff");
        self
    }
}

impl<T: DeserializeOwned + Send + 'static> List<T> {
    /// All entries, page by page. An entry that changes between two pages may be missing from both, or in both.
    pub fn stream(self) -> impl Stream<Item = Result<T, Error>> + Send {
        let start = Pages { request: Some(self.request), entries: VecDeque::new() };
        try_unfold(start, |mut pages: Pages<T>| async move {
            loop {
                if let Some(entry) = pages.entries.pop_front() {
                    return Ok(Some((entry, pages)));
                }
                let Some(Request { client, call }) = pages.request.take() else { return Ok(None) };
                let call = call?;
                let next = call.try_clone();
                let page: Page<T> = client.request(call).await?;
                pages.entries = page.items.into();
                let next = page.next.and_then(|token| Some(next?.continued(token)));
                pages.request = next.map(|call| Request::new(client, call));
            }
        })
    }
}

impl<T: DeserializeOwned + Send + 'static> IntoFuture for List<T> {
    type Output = Result<Page<T>, Error>;
    type IntoFuture = Sent<Page<T>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(send(self.request))
    }
}

/// The remaining pages of a list.
struct Pages<T> {
    /// The call of the next page.
    request: Option<Request>,
    entries: VecDeque<T>,
}
