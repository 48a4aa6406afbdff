//! The files of a store: their permissions, their lock, and their identities.
//!
//! SQLite trusts its files: it keeps committing to a database that was moved away, and these commits are lost. So the
//! store checks that its paths still refer to the files that it opened. What the store itself writes later, it finds in
//! the folder that it opened, because the folder's path may lead to another data directory by then.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, renameat, statat};
use rustix::io::Errno;

use super::error;
use crate::store::{Error, Holder};

/// The mode of the files. All objects can be read from them, so only the owner has access.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

const LOCK: &str = "deltaq.lock";
/// The file of the high-water mark.
pub(super) const MARK: &str = "deltaq.mark";

/// The paths of a store's files.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub(super) folder: PathBuf,
    pub(super) database: PathBuf,
    pub(super) wal: PathBuf,
    /// SQLite's rollback journal, which exists only while a database is not yet in WAL mode.
    pub(super) rollback: PathBuf,
    pub(super) lock: PathBuf,
    pub(super) mark: PathBuf,
}

impl Paths {
    /// The paths are absolute, because SQLite treats a name that begins with "file:" as a URI.
    pub(super) fn new(folder: &Path) -> Result<Self, Error> {
        let folder = std::path::absolute(folder).map_err(|error| error::file("find", folder, error))?;
        let within = |name: &str| folder.join(name);
        Ok(Self {
            database: within("deltaq.db"),
            wal: within("deltaq.db-wal"),
            rollback: within("deltaq.db-journal"),
            lock: within(LOCK),
            mark: within(MARK),
            folder,
        })
    }

    /// Refuses paths that refer to anything other than a regular file.
    pub(super) fn expect_regular(&self) -> Result<(), Error> {
        [&self.database, &self.wal, &self.rollback, &self.lock, &self.mark]
            .into_iter()
            .try_for_each(|path| expect_regular(path))
    }

    /// Total size of the database and its WAL in bytes.
    pub(super) fn bytes(&self) -> u64 {
        [&self.database, &self.wal]
            .iter()
            .filter_map(|path| fs::metadata(path).ok())
            .map(|file| file.len())
            .sum()
    }

    /// Creates the folder if it is missing. An existing folder keeps its permissions, because it may be the root of a
    /// volume or shared on purpose. Its files are never accessible to other users.
    pub(super) fn make_folder(&self) -> Result<(), Error> {
        let folder = &self.folder;
        let failed = |error| error::file("make the folder", folder, error);
        match fs::metadata(folder) {
            Ok(found) if found.is_dir() => {
                let mode = found.mode() & 0o777;
                if mode & 0o077 != 0 {
                    tracing::warn!(
                        folder = %folder.display(),
                        mode = format_args!("{mode:03o}"),
                        "other users can read the data directory; `chmod 700` prevents it"
                    );
                }
                Ok(())
            }
            Ok(_) => Err(failed(io::ErrorKind::NotADirectory.into())),
            Err(_) => {
                DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder).map_err(failed)?;
                fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE)).map_err(failed)?;
                folder.parent().map_or(Ok(()), sync_folder)
            }
        }
    }

    /// Removes the permissions of other users from existing files.
    pub(super) fn tighten(&self) -> Result<(), Error> {
        let mut shared = self.database.clone().into_os_string();
        shared.push("-shm");
        for path in [&self.database, &self.wal, &PathBuf::from(shared), &self.lock, &self.mark] {
            let failed = |error| error::file("set the permissions of", path, error);
            match fs::metadata(path) {
                Ok(found) if found.mode() & 0o7777 == FILE_MODE => {}
                Ok(_) => fs::set_permissions(path, Permissions::from_mode(FILE_MODE)).map_err(failed)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}

/// Refuses a path that refers to anything other than a regular file. Opening a pipe could block forever.
pub(super) fn expect_regular(path: &Path) -> Result<(), Error> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(Error::Failed {
            doing: format!("use {}: it is not a regular file", path.display()),
            source: None,
        }),
        _ => Ok(()),
    }
}

/// Whether the path refers to the open file.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let opened = file.metadata().map(|found| FileIdentity { device: found.dev(), inode: found.ino() });
    opened.is_ok_and(|opened| identity(path).is_ok_and(|found| found == opened))
}

/// A folder that was opened. A rename of the folder does not change which folder this is.
#[derive(Debug)]
pub(super) struct Folder {
    folder: File,
    path: PathBuf,
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let folder = File::open(path).map_err(|error| error::file("open the folder", path, error))?;
        Ok(Self { folder, path: path.to_owned() })
    }

    /// The path that a file had when the folder was opened, for messages.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether there is a file of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        statat(&self.folder, name, AtFlags::empty()).is_ok()
    }

    /// Whether the name refers to the open file.
    pub(super) fn has_at(&self, name: &str, file: &File) -> bool {
        let identity = |found: rustix::fs::Stat| (found.st_dev, found.st_ino);
        let found = statat(&self.folder, name, AtFlags::empty()).map(identity);
        found.is_ok_and(|found| fstat(file).map(identity) == Ok(found))
    }

    /// Opens a file for reading and writing. If the file is missing, it is created so that only its owner can read it,
    /// regardless of the umask.
    pub(super) fn open_or_create(&self, name: &str) -> Result<File, Error> {
        let failed = |error| error::file("open", &self.path_of(name), error);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let file = openat(&self.folder, name, flags, Mode::from_raw_mode(FILE_MODE));
        let file = File::from(file.map_err(|errno: Errno| failed(errno.into()))?);
        file.set_permissions(Permissions::from_mode(FILE_MODE)).map_err(failed)?;
        Ok(file)
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        renameat(&self.folder, from, &self.folder, to)
            .map_err(|errno| error::file("write", &self.path_of(to), errno.into()))
    }
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), Error> {
    File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(|error| error::file("sync the folder", folder, error))
}

/// Creates an empty file that only its owner can read, regardless of the umask.
pub(super) fn create(path: &Path) -> Result<(), Error> {
    let failed = |error| error::file("create", path, error);
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path).map_err(failed)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE)).map_err(failed)
}

/// The lock of a store. It excludes other servers until it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    /// Holds the lock; never read.
    _file: File,
}

impl Lock {
    /// Takes the lock, or returns its holder.
    pub(super) fn take(paths: &Paths, folder: &Folder) -> Result<Self, Error> {
        let mut file = folder.open_or_create(LOCK)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = match file.try_lock_shared() {
                    // A reader does not write its process id, so the file still contains the process id of the last
                    // server.
                    Ok(()) => Holder::Reader,
                    Err(_) => holder(&mut file),
                };
                return Err(Error::Locked { at: paths.folder.clone(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(error::file("lock", &paths.lock, error)),
        }
        let failed = |error| error::file("write", &paths.lock, error);
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// The process id in the lock file.
fn holder(file: &mut File) -> Holder {
    let mut text = String::new();
    let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
    pid.map_or(Holder::Unknown, Holder::Process)
}

/// Whether a store is in use, as seen by a command that reads it.
#[derive(Debug)]
pub(super) enum Use {
    /// No server uses the store, and no server can start while this value exists. If there is no lock file, no server
    /// has ever used the store, and nothing is locked.
    Unused(Option<File>),
    /// A server, or another writing process, uses the store.
    Server(Holder),
}

impl Use {
    /// Checks the lock without writing to its file. Several readers can hold it at the same time.
    pub(super) fn look(paths: &Paths) -> Result<Self, Error> {
        let mut file = match File::open(&paths.lock) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Unused(None)),
            Err(error) => return Err(error::file("open", &paths.lock, error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Self::Unused(Some(file))),
            Err(TryLockError::WouldBlock) => Ok(Self::Server(holder(&mut file))),
            Err(TryLockError::Error(error)) => Err(error::file("lock", &paths.lock, error)),
        }
    }
}

/// Identifies a file independently of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

/// The identities of the files that a store was opened with.
#[derive(Debug)]
pub(super) struct FileIdentities {
    /// The path and the identity of each file.
    files: Vec<(PathBuf, FileIdentity)>,
}

impl FileIdentities {
    /// Records the files at their current paths.
    pub(super) fn remember(paths: &Paths) -> Result<Self, Error> {
        Self::of(&[&paths.database, &paths.lock, &paths.wal])
    }

    /// Records only the database.
    pub(super) fn remember_database(paths: &Paths) -> Result<Self, Error> {
        Self::of(&[&paths.database])
    }

    fn of(paths: &[&PathBuf]) -> Result<Self, Error> {
        let remember = |path: &&PathBuf| {
            let identity = identity(path).map_err(|error| error::file("look at", path, error))?;
            Ok(((*path).clone(), identity))
        };
        Ok(Self { files: paths.iter().map(remember).collect::<Result<_, Error>>()? })
    }

    /// Checks that the paths still refer to the same files.
    pub(super) fn check(&self) -> Result<(), Error> {
        for (path, opened) in &self.files {
            let became = match identity(path) {
                Ok(found) if found == *opened => continue,
                Ok(_) => "replaced by another file",
                Err(error) if error.kind() == io::ErrorKind::NotFound => "removed",
                Err(error) => return Err(error::file("look at", path, error)),
            };
            let what = format!(
                "{} was {became} while the server runs: put the file back that it was; or stop the server, \
                 restore the whole data directory, and start it again",
                path.display()
            );
            return Err(Error::Replaced { what });
        }
        Ok(())
    }

    /// Removes the WAL's identity. SQLite deletes the WAL when the last connection closes, and creates a new one with
    /// the next connection.
    pub(super) fn forget_wal(&mut self, paths: &Paths) {
        self.files.retain(|(path, _)| *path != paths.wal);
    }

    /// Records the new WAL. The other files must be those that the store was opened with.
    pub(super) fn remember_wal(&mut self, paths: &Paths) -> Result<(), Error> {
        self.files.extend(Self::of(&[&paths.wal])?.files);
        self.check()
    }
}

fn identity(path: &Path) -> io::Result<FileIdentity> {
    let found = fs::metadata(path)?;
    Ok(FileIdentity { device: found.dev(), inode: found.ino() })
}
