//! The token of the calls.

use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use reqwest::header::HeaderValue;

use crate::error::Error;

/// A token, or the token in a file, which may be replaced while the client runs.
#[derive(Debug)]
pub(crate) struct Token {
    file: Option<PathBuf>,
    header: Mutex<Option<HeaderValue>>,
}

impl Token {
    /// The token with this text; `None` if the server needs no token.
    pub(crate) fn of_text(text: Option<String>) -> Result<Self, Error> {
        let header = text.map(|text| header(&text)).transpose()?;
        Ok(Self { file: None, header: Mutex::new(header) })
    }

    /// The token in a file.
    pub(crate) fn of_file(path: PathBuf) -> Result<Self, Error> {
        let header = Mutex::new(Some(read(&path)?));
        Ok(Self { file: Some(path), header })
    }

    /// The header of a request.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        self.header.lock().clone()
    }

    /// Whether the token may be replaced.
    pub(crate) const fn is_in_file(&self) -> bool {
        self.file.is_some()
    }

    /// Reads the file again, because the server has refused a header with 401. Returns whether there is another header
    /// now. A file may be absent or empty for a moment while it is replaced.
    pub(crate) fn is_replaced(&self, refused: Option<&HeaderValue>) -> bool {
        let mut header = self.header.lock();
        if let Some(Ok(found)) = self.file.as_deref().map(read) {
            *header = Some(found);
        }
        header.as_ref() != refused
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
