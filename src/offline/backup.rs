//! `deltaq backup`: a copy of a store, also of one in use, that is checked row by row.

use std::fs;
use std::io;
use std::path::Path;

use super::check::{self, Depth, Report};
use super::{Error, survey};
use crate::clock::Clock;
use crate::journal::sqlite;

/// Copies the store in `folder` to the file `to`, then looks at every row of the copy, and whether less is
/// there than the store had acknowledged; tells its bytes and what was found. A copy with damage is kept: it is the best there is.
///
/// # Errors
/// [`Error::Exists`]; what [`survey`] says; and whatever the store fails with, which leaves no file.
pub async fn backup(
    folder: &Path,
    to: &Path,
    clock: &Clock,
    tell: &mut dyn FnMut(String),
) -> Result<(u64, Report), Error> {
    survey(folder)?;
    let unwritable = |source| Error::Write { to: to.to_owned(), source };
    if to.try_exists().map_err(unwritable)? {
        return Err(Error::Exists { to: to.to_owned() });
    }
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    if !parent.is_none_or(Path::is_dir) {
        return Err(unwritable(io::ErrorKind::NotFound.into()));
    }
    let parent = fs::canonicalize(parent.unwrap_or(Path::new("."))).map_err(unwritable)?;
    if fs::canonicalize(folder).is_ok_and(|folder| parent.starts_with(folder)) {
        return Err(Error::Within { to: to.to_owned() });
    }
    let (bytes, copy) = sqlite::backup(folder, to).await?;
    let report = check::examine(&copy, Depth::Rows, clock, tell).await;
    copy.close().await;
    Ok((bytes, report))
}
