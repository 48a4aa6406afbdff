//! The token of the calls.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use reqwest::header::HeaderValue;

use crate::error::{BoxError, Error};

/// A question for the token. The mutex, which is never locked, makes the futures of calls `Sync`, which the future of an
/// application need not be.
struct Asked(Mutex<BoxFuture<'static, Result<String, BoxError>>>);

impl Future for Asked {
    type Output = Result<String, BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.get_mut().as_mut().poll(context)
    }
}

/// A function that returns the token of each attempt. An error ends a call; workers and informers ask again after a pause.
#[derive(Clone)]
pub struct TokenSource(Arc<dyn Fn() -> Asked + Send + Sync>);

impl TokenSource {
    /// A source that calls this function.
    pub fn new<F, E>(ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self(Arc::new(move || {
            let asked = ask();
            Asked(Mutex::new(Box::pin(async move { asked.await.map_err(Into::into) })))
        }))
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSource").finish_non_exhaustive()
    }
}

/// A token, the token in a file, or that of a function. It may be replaced while the client runs.
#[derive(Debug)]
pub(crate) struct Token {
    source: Option<TokenSource>,
    file: Option<PathBuf>,
    header: Mutex<Option<HeaderValue>>,
}

impl Token {
    /// The token with this text; `None` if the server needs no token.
    pub(crate) fn of_text(text: Option<String>) -> Result<Self, Error> {
        let header = text.map(|text| header(&text)).transpose()?;
        Ok(Self { source: None, file: None, header: Mutex::new(header) })
    }

    /// The token in a file.
    pub(crate) fn of_file(path: PathBuf) -> Result<Self, Error> {
        let header = Mutex::new(Some(read(&path)?));
        Ok(Self { source: None, file: Some(path), header })
    }

    /// The token of a function.
    pub(crate) const fn of_source(source: TokenSource) -> Self {
        Self { source: Some(source), file: None, header: Mutex::new(None) }
    }

    /// The header of a request.
    pub(crate) async fn header(&self) -> Result<Option<HeaderValue>, Error> {
        let Some(TokenSource(ask)) = &self.source else { return Ok(self.header.lock().clone()) };
        let token = ask().await.map_err(|source| Error::TokenSource { source })?;
        header(&token).map(Some)
    }

    /// Whether the token may be replaced.
    pub(crate) const fn may_change(&self) -> bool {
        self.file.is_some() || self.source.is_some()
    }

    /// Reads the file again, because the server has refused a header with 401. A file may be absent or empty for a moment while
    /// it is replaced.
    pub(crate) fn refresh(&self) {
        if let Some(Ok(found)) = self.file.as_deref().map(read) {
            *self.header.lock() = Some(found);
        }
    }
}

fn read(path: &Path) -> Result<HeaderValue, Error> {
    let failed = |source| Error::TokenFile { path: path.to_owned(), source };
    let text = String::from_utf8_lossy(&std::fs::read(path).map_err(failed)?).into_owned();
    if text.trim().is_empty() {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, "the file is empty")));
    }
    header(&text)
}

fn header(token: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| Error::Token)?;
    value.set_sensitive(true);
    Ok(value)
}
