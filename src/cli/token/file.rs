//! Reads a file and replaces it, under a lock against concurrent runs.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Why the file can't be replaced.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file can't be read.
    #[error("can't read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The path is a directory, a pipe or a device.
    #[error("{} is not a regular file", path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// The directory of the file can't be locked, so concurrent runs could undo each other.
    #[error("can't lock the directory {}", path.display())]
    Lock {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The new file can't be written or renamed.
    #[error("can't write {}", path.display())]
    Write {
        /// The new file, which is removed after the error.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// A locked file: other runs of `deltaq token` can't replace it until this value is dropped.
#[derive(Debug)]
pub(super) struct LockedFile {
    /// The path with all links resolved.
    path: PathBuf,
    text: String,
    /// `None` if the file does not exist.
    metadata: Option<fs::Metadata>,
    /// The locked directory. The file itself can't be locked, because each run replaces it.
    folder: File,
}

impl LockedFile {
    /// Waits for other runs to end and reads the file. A missing file is empty.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let path = resolve_links(path);
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

    /// Like [`open`](Self::open), but a missing file is an error.
    pub(super) fn open_existing(path: &Path) -> Result<Self, Error> {
        fs::metadata(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Self::open(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Replaces the file with one that has this text and the same mode and owner.
    pub(super) fn replace(self, text: &str) -> Result<(), Error> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let draft = self.path.with_file_name(format!(".{name}.{}", std::process::id()));
        let written = self.write(&draft, text).and_then(|()| fs::rename(&draft, &self.path));
        written.map_err(|source| {
            let _best_effort = fs::remove_file(&draft);
            Error::Write { path: draft.clone(), source }
        })?;
        // Without this sync, a power loss may restore the old file, which is complete.
        let _best_effort = self.folder.sync_all();
        Ok(())
    }

    fn write(&self, draft: &Path, text: &str) -> io::Result<()> {
        // An interrupted run with the same process id may have left this file.
        let _absent = fs::remove_file(draft);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
        if let Some(previous) = &self.metadata {
            // Only root can change the owner. The group must be kept, because it lets a service read the file.
            if fchown(&file, Some(previous.uid()), Some(previous.gid())).is_err() {
                fchown(&file, None, Some(previous.gid()))?;
            }
            file.set_permissions(Permissions::from_mode(previous.mode() & 0o7777))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }
}

/// The path with its links resolved, even if its target does not exist yet.
fn resolve_links(path: &Path) -> PathBuf {
    match (fs::canonicalize(path), fs::read_link(path)) {
        (Ok(path), _) => path,
        (Err(_), Ok(target)) => path.with_file_name("").join(target),
        (Err(_), Err(_)) => path.to_owned(),
    }
}
