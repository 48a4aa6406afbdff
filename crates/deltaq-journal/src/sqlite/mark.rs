//! The high-water mark: the last row and version that were acknowledged, in a file next to the database.
//!
//! A truncated or missing WAL, or a database that was restored to an older state, opens without an error. The mark
//! reveals such a loss, because everything up to the mark was acknowledged. The mark is not synced with each commit.
//! After a power loss it may be behind the store, which is harmless; it is never ahead.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::error;
use super::files::{self, Folder, MARK};
use super::sync::Sync;
use crate::store::Error;

/// The last row and version of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    /// The id of the last journal row.
    pub(super) row: u64,
    /// The largest version of a queue.
    pub(super) version: u64,
}

impl Reached {
    /// Describes what a store at `here` is missing compared with `self`. `None` if nothing is missing.
    pub(super) fn missing_at(self, here: Self) -> Option<String> {
        let rows = self.row.saturating_sub(here.row);
        let versions = self.version.saturating_sub(here.version);
        match (rows, versions) {
            (0, 0) => None,
            (0, versions) => Some(format!("{versions} changes to the list of queues")),
            (rows, _) => Some(format!("{rows} journal rows")),
        }
    }
}

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) reached: Reached,
    /// How the last commit was made durable.
    pub(super) sync: Sync,
    /// The boot id of the machine at the last commit; empty if it is unknown.
    pub(super) boot: String,
}

/// The name under which the file is created.
const DRAFT: &str = "deltaq.mark-new";
/// Length of a boot id in bytes.
const BOOT_BYTES: usize = 36;

impl Record {
    /// Formats the record as a line of text. Its length is constant, so that one line overwrites another completely.
    fn to_line(&self) -> String {
        let Self { reached: Reached { row, version }, sync, boot } = self;
        let sync = sync.name();
        let text = format!(
            "deltaq-mark 1 row={row:020} version={version:020} sync={sync:6} boot={boot:BOOT_BYTES$} "
        );
        let sum = crc32c::crc32c(text.as_bytes());
        format!("{text}check={sum:08x}\n")
    }

    /// Parses a line. `None` if it is invalid.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("deltaq-mark 1 ")?.split_whitespace();
        let mut value = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
        let row = value("row")?.parse().ok()?;
        let version = value("version")?.parse().ok()?;
        let sync = value("sync")?;
        let sync = [Sync::Full, Sync::Normal].into_iter().find(|known| known.name() == sync)?;
        let boot = value("boot")?.to_owned();
        let record = Self { reached: Reached { row, version }, sync, boot };
        (record.to_line() == line).then_some(record)
    }

    /// Whether a power loss since the last commit can explain missing commits.
    fn may_have_lost_power(&self, boot: &str) -> bool {
        self.sync == Sync::Normal && (self.boot.is_empty() || self.boot != boot)
    }
}

/// Reads the mark. `None` if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Record>, Error> {
    files::expect_regular(path)?;
    let line = match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error::file("read", path, error)),
    };
    Record::parse(&line).map(Some).ok_or_else(|| Error::Damaged {
        found: format!(
            "{} is damaged, so it is unknown whether acknowledged rows are missing. Restore \
             the data directory from a backup, or remove this file to take the database as it is",
            path.display()
        ),
    })
}

/// Like [`read`], but with a second attempt, because a server may be writing the line.
pub(super) fn read_beside_server(path: &Path) -> Result<Option<Record>, Error> {
    read(path).or_else(|_| read(path))
}

/// Refuses a store at `here` if more was acknowledged.
pub(super) fn refuse_loss(path: &Path, mark: &Record, here: Reached, boot: &str) -> Result<(), Error> {
    let Some(missing) = mark.reached.missing_at(here) else { return Ok(()) };
    if mark.may_have_lost_power(boot) {
        tracing::warn!(
            missing,
            "the machine went down and took the newest commits with it, as sync = \"normal\" allows"
        );
        return Ok(());
    }
    Err(Error::Damaged {
        found: format!(
            "{missing} that were acknowledged are missing: the database or its WAL was truncated, restored to \
             an older state, or lost. Put the missing files back into {}, or remove {} to accept the loss",
            path.parent().unwrap_or(path).display(),
            path.display()
        ),
    })
}

/// The mark of an open store.
#[derive(Debug)]
pub(super) struct HighWaterMark {
    folder: Folder,
    file: File,
    record: Record,
}

impl HighWaterMark {
    /// Opens the file, or creates it, and syncs it once. Later writes overwrite a single block. After a power loss,
    /// the block has either the old or the new content.
    pub(super) fn start(folder: Folder, reached: Reached, sync: Sync, boot: String) -> Result<Self, Error> {
        let record = Record { reached, sync, boot };
        let file =
            if folder.has(MARK) { write_whole(&folder, MARK, &record) } else { create(&folder, &record) }?;
        Ok(Self { folder, file, record })
    }

    /// The last row and version that the mark records.
    pub(super) fn reached(&self) -> Reached {
        self.record.reached
    }

    /// Records the last row and version of the store. If the file was removed or replaced, it is created again,
    /// because the writer knows its content.
    pub(super) fn set(&mut self, reached: Reached) -> Result<(), Error> {
        self.record.reached = reached;
        let path = self.folder.path_of(MARK);
        if self.folder.has_at(MARK, &self.file) {
            let line = self.record.to_line();
            let written = self.file.write_all_at(line.as_bytes(), 0);
            return written.map_err(|error| error::file("write", &path, error));
        }
        tracing::error!(path = %path.display(), "the mark was removed or replaced while the server runs; it is written again");
        self.file = create(&self.folder, &self.record)?;
        Ok(())
    }
}

/// Creates the file under another name and renames it, so that it is never incomplete.
fn create(folder: &Folder, record: &Record) -> Result<File, Error> {
    let file = write_whole(folder, DRAFT, record)?;
    folder.rename(DRAFT, MARK)?;
    Ok(file)
}

fn write_whole(folder: &Folder, name: &str, record: &Record) -> Result<File, Error> {
    let (file, line) = (folder.open_or_create(name)?, record.to_line());
    let written = file.write_all_at(line.as_bytes(), 0).and_then(|()| file.set_len(line.len() as u64));
    let synced = written.and_then(|()| file.sync_all());
    synced.map_err(|error| error::file("write", &folder.path_of(name), error))?;
    Ok(file)
}

/// The boot id of the machine; empty if the system has none.
pub(super) fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let id = text.trim();
    if id.len() == BOOT_BYTES && !id.contains(char::is_whitespace) { id.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written_and_refused_with_any_byte_changed() {
        for boot in [boot_id(), String::new(), "b".repeat(BOOT_BYTES)] {
            for sync in [Sync::Full, Sync::Normal] {
                let reached = Reached { row: u64::MAX, version: 7 };
                let record = Record { reached, sync, boot: boot.clone() };
                let line = record.to_line();
                assert_eq!(
                    line.len(),
                    Record { reached: Reached::default(), ..record.clone() }.to_line().len()
                );
                assert_eq!(Record::parse(&line), Some(record), "{line}");
                for at in 0..line.len() {
                    let mut bytes = line.clone().into_bytes();
                    bytes[at] ^= 1;
                    assert_eq!(Record::parse(&String::from_utf8(bytes).unwrap()), None, "{line} at {at}");
                }
                assert_eq!(Record::parse(&line[1..]), None);
                assert_eq!(Record::parse(""), None);
            }
        }
    }

    #[test]
    fn only_normal_sync_and_another_start_of_the_machine_explain_a_loss() {
        let path = Path::new("/data/deltaq.mark");
        let mark =
            |row, version, sync| Record { reached: Reached { row, version }, sync, boot: "then".into() };
        let here = Reached { row: 5, version: 5 };
        for (row, version, sync, boot, refused) in [
            (5, 5, Sync::Full, "then", None),
            (4, 4, Sync::Full, "now", None),
            (8, 5, Sync::Full, "now", Some("3 journal rows")),
            (8, 5, Sync::Normal, "then", Some("3 journal rows")),
            (8, 9, Sync::Normal, "now", None),
            (5, 9, Sync::Full, "now", Some("4 changes to the list of queues")),
        ] {
            let answer = refuse_loss(path, &mark(row, version, sync), here, boot);
            let error = answer.err().map(|error| error.to_string());
            assert_eq!(error.is_some(), refused.is_some(), "{error:?}");
            assert!(error.unwrap_or_default().contains(refused.unwrap_or_default()), "{row} {version}");
        }
    }
}
