//! `deltaq backup`: copies a store, which may be in use, and checks every row of the copy.

use std::fs;
use std::path::Path;

use deltaq_runtime::clock::Clock;

use super::check::{self, Depth, Report};
use super::{Error, Location, stores};

/// The file in the data directory whose time is that of the last good backup. Its content is the time as text, for people.
pub const LAST_BACKUP_FILE: &str = "last-backup";

/// Notes in the data directory that a backup has ended well.
///
/// # Errors
/// The file can't be written, for example because the user may only read the directory.
pub fn note(store: &Location, clock: &Clock) -> std::io::Result<()> {
    let Location::Folder(folder) = store else { return Ok(()) };
    let at = deltaq_types::Timestamp::from_micros(clock.wall_us());
    fs::write(folder.join(LAST_BACKUP_FILE), format!("{at}\n"))
}

/// Copies a store of SQLite to the file `to`, then checks every row of the copy and compares the copy with
/// the store's high-water mark. Returns the bytes of the copy and the findings. A damaged copy is kept, because
/// it may be the best one available.
///
/// # Errors
/// [`Error::NeedsDump`] for PostgreSQL; [`Error::Exists`]; an error that describes what is in the folder instead of a
/// store; or any error of the store, after which the copy is removed.
pub async fn backup(
    store: &Location,
    to: &Path,
    clock: &Clock,
    print: &mut dyn FnMut(String),
) -> Result<(u64, Report), Error> {
    let Location::Folder(folder) = store else { return Err(Error::NeedsDump { to: to.to_owned() }) };
    stores::check_folder(folder)?;
    let unwritable = |source| Error::Write { to: to.to_owned(), source };
    if to.try_exists().map_err(unwritable)? {
        return Err(Error::Exists { to: to.to_owned() });
    }
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        fs::read_dir(parent).map_err(unwritable)?;
    }
    let parent = fs::canonicalize(parent.unwrap_or(Path::new("."))).map_err(unwritable)?;
    if fs::canonicalize(folder).is_ok_and(|folder| parent.starts_with(folder)) {
        return Err(Error::Within { to: to.to_owned() });
    }
    let (bytes, copy) = stores::backup(folder, to).await?;
    let report = check::examine(copy.as_ref(), Depth::Rows, clock, print).await;
    copy.close().await;
    Ok((bytes, report))
}
