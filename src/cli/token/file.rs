//! A file that is read, and exchanged for one that has more in it, while no other run does the same.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Why the file can't be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It can't be read.
    #[error("can't read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is a folder, a pipe or a device.
    #[error("{} is no regular file", path.display())]
    NoFile {
        /// What is there.
        path: PathBuf,
    },
    /// The folder that it is in can't be locked, so two runs at once could undo one another.
    #[error("can't lock the folder {}", path.display())]
    Lock {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The new one can't be written, or not take the place of the old one.
    #[error("can't write {}", path.display())]
    Write {
        /// The new one, which is removed again.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A file that no other run exchanges until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    /// Where it is, behind all links.
    path: PathBuf,
    text: String,
    /// None if there was none.
    metadata: Option<fs::Metadata>,
    /// The folder, which is locked: the file itself is another one after each exchange.
    folder: File,
}

impl Held {
    /// Waits until no other run has it, and reads it. One that is not there is empty.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let path = behind_links(path);
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let lock = || {
            let folder = File::open(folder)?;
            folder.lock()?;
            Ok(folder)
        };
        let folder = lock().map_err(|source| Error::Lock { path: folder.to_owned(), source })?;
        let failed = |source| Error::Read { path: path.clone(), source };
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        if metadata.as_ref().is_some_and(|metadata| !metadata.is_file()) {
            return Err(Error::NoFile { path });
        }
        let text = match &metadata {
            Some(_) => fs::read_to_string(&path).map_err(failed)?,
            None => String::new(),
        };
        Ok(Self { path, text, metadata, folder })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Puts a file with this text in its place, with the same mode and owner; a new one is for its owner alone.
    pub(super) fn exchange(self, text: &str) -> Result<(), Error> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let draft = self.path.with_file_name(format!(".{name}.{}", std::process::id()));
        let written = self.write(&draft, text).and_then(|()| fs::rename(&draft, &self.path));
        written.map_err(|source| {
            let _as_well_as_it_can_be = fs::remove_file(&draft);
            Error::Write { path: draft.clone(), source }
        })?;
        // What is not on the disk yet is there after the next sync; the old file is whole.
        let _as_well_as_it_can_be = self.folder.sync_all();
        Ok(())
    }

    fn write(&self, draft: &Path, text: &str) -> io::Result<()> {
        // One that a run with this id has left behind.
        let _absent = fs::remove_file(draft);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
        if let Some(former) = &self.metadata {
            // Only root can give a file away. The group is what lets a service read it, so it must stay.
            if fchown(&file, Some(former.uid()), Some(former.gid())).is_err() {
                fchown(&file, None, Some(former.gid()))?;
            }
            file.set_permissions(Permissions::from_mode(former.mode() & 0o7777))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }
}

/// The file that a path leads to, also if that is not there yet.
fn behind_links(path: &Path) -> PathBuf {
    match (fs::canonicalize(path), fs::read_link(path)) {
        (Ok(path), _) => path,
        (Err(_), Ok(target)) => path.with_file_name("").join(target),
        (Err(_), Err(_)) => path.to_owned(),
    }
}
