//! The files of a store: who may read them, who holds them, and whether they are still those that were
//! opened.
//!
//! SQLite trusts its files: it goes on with a database that was moved away under it, and answers
//! commits that nobody will find again. So paths are held against the files behind them.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::error;
use crate::journal::store::{Error, Holder};

/// Whoever can read the files can read every object.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Where the files of a store are.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub(super) folder: PathBuf,
    pub(super) database: PathBuf,
    pub(super) wal: PathBuf,
    /// What SQLite needs to take back a change that was cut off before the database had its WAL.
    pub(super) rollback: PathBuf,
    pub(super) lock: PathBuf,
    pub(super) mark: PathBuf,
}

impl Paths {
    /// In the folder. Absolute, because SQLite takes a name that begins with "file:" for a URI.
    pub(super) fn new(folder: &Path) -> Result<Self, Error> {
        let folder = std::path::absolute(folder).map_err(|said| error::file("find", folder, said))?;
        let within = |name: &str| folder.join(name);
        Ok(Self {
            database: within("deltaq.db"),
            wal: within("deltaq.db-wal"),
            rollback: within("deltaq.db-journal"),
            lock: within("deltaq.lock"),
            mark: within("deltaq.mark"),
            folder,
        })
    }

    /// Refuses files that are none, such as pipes.
    pub(super) fn expect_regular(&self) -> Result<(), Error> {
        [&self.database, &self.wal, &self.rollback, &self.lock, &self.mark]
            .into_iter()
            .try_for_each(|path| expect_regular(path))
    }

    /// Bytes of all files on disk.
    pub(super) fn bytes(&self) -> u64 {
        [&self.database, &self.wal]
            .iter()
            .filter_map(|path| fs::metadata(path).ok())
            .map(|file| file.len())
            .sum()
    }

    /// Makes the folder, if it isn't there. One that is there keeps its permissions, because it may be
    /// the root of a volume, or shared on purpose; the files in it are closed to others in any case.
    pub(super) fn make_folder(&self) -> Result<(), Error> {
        let folder = &self.folder;
        let failed = |said| error::file("make the folder", folder, said);
        match fs::metadata(folder) {
            Ok(found) if found.is_dir() => {
                let mode = found.mode() & 0o777;
                if mode & 0o077 != 0 {
                    tracing::warn!(
                        folder = %folder.display(),
                        mode = format_args!("{mode:03o}"),
                        "others can look into the data directory: chmod 700 closes it"
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

    /// Takes from others what they may do with the files that are there.
    pub(super) fn tighten(&self) -> Result<(), Error> {
        let mut shared = self.database.clone().into_os_string();
        shared.push("-shm");
        for path in [&self.database, &self.wal, &PathBuf::from(shared), &self.lock, &self.mark] {
            let failed = |said| error::file("set the permissions of", path, said);
            match fs::metadata(path) {
                Ok(found) if found.mode() & 0o7777 == FILE_MODE => {}
                Ok(_) => fs::set_permissions(path, Permissions::from_mode(FILE_MODE)).map_err(failed)?,
                Err(said) if said.kind() == io::ErrorKind::NotFound => {}
                Err(said) => return Err(failed(said)),
            }
        }
        Ok(())
    }
}

/// Refuses what is not an ordinary file: to open a pipe may wait for ever.
pub(super) fn expect_regular(path: &Path) -> Result<(), Error> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(Error::Failed {
            doing: format!("use {}: it is not a regular file", path.display()),
            source: None,
        }),
        _ => Ok(()),
    }
}

/// Whether the path leads to this open file.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let opened = file.metadata().map(|found| Identity { device: found.dev(), inode: found.ino() });
    opened.is_ok_and(|opened| identity(path).is_ok_and(|found| found == opened))
}

/// Makes names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), Error> {
    File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(|said| error::file("sync the folder", folder, said))
}

/// Makes an empty file that only the owner may read, whatever the umask; there must be none.
pub(super) fn create(path: &Path) -> Result<(), Error> {
    let failed = |said| error::file("create", path, said);
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path).map_err(failed)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE)).map_err(failed)
}

/// Opens a file to read and write; makes it like [`create`] if there is none.
pub(super) fn open_or_create(path: &Path) -> Result<File, Error> {
    let failed = |said| error::file("open", path, said);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
    let file = options.open(path).map_err(failed)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE)).map_err(failed)?;
    Ok(file)
}

/// Keeps other servers off the store for as long as it lives, however the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    /// Held for its lock; never read.
    _file: File,
}

impl Lock {
    /// Takes the lock, or tells who has it.
    pub(super) fn take(paths: &Paths) -> Result<Self, Error> {
        let mut file = open_or_create(&paths.lock)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = match file.try_lock_shared() {
                    // Who only looks does not write down who it is: there stands the server of before.
                    Ok(()) => Holder::Onlooker,
                    Err(_) => holder(&mut file),
                };
                return Err(Error::Locked { at: paths.folder.clone(), holder });
            }
            Err(TryLockError::Error(said)) => return Err(error::file("lock", &paths.lock, said)),
        }
        let failed = |said| error::file("write", &paths.lock, said);
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// Who wrote itself into the file of the lock.
fn holder(file: &mut File) -> Holder {
    let mut text = String::new();
    let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
    pid.map_or(Holder::Unknown, Holder::Process)
}

/// Whether a store is in use, as those see it who only look at it.
#[derive(Debug)]
pub(super) enum Use {
    /// It is not, and no server starts for as long as this lives. Without the file of the lock no server
    /// ever ran here, and nothing is held.
    Nobody(Option<File>),
    /// A server has it, or another that writes.
    Server(Holder),
}

impl Use {
    /// Looks at the lock without writing to its file. Others may look at the same time.
    pub(super) fn look(paths: &Paths) -> Result<Self, Error> {
        let mut file = match File::open(&paths.lock) {
            Ok(file) => file,
            Err(said) if said.kind() == io::ErrorKind::NotFound => return Ok(Self::Nobody(None)),
            Err(said) => return Err(error::file("open", &paths.lock, said)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Self::Nobody(Some(file))),
            Err(TryLockError::WouldBlock) => Ok(Self::Server(holder(&mut file))),
            Err(TryLockError::Error(said)) => Err(error::file("lock", &paths.lock, said)),
        }
    }
}

/// Which file it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

/// The files that a store was opened with.
#[derive(Debug)]
pub(super) struct Opened {
    /// The path of each, and which file it was.
    files: Vec<(PathBuf, Identity)>,
}

impl Opened {
    /// Remembers the files as they are now. SQLite must have opened them.
    pub(super) fn remember(paths: &Paths) -> Result<Self, Error> {
        let remember = |path: &PathBuf| {
            let identity = identity(path).map_err(|said| error::file("look at", path, said))?;
            Ok((path.clone(), identity))
        };
        let files = [&paths.database, &paths.lock, &paths.wal].into_iter().map(remember);
        Ok(Self { files: files.collect::<Result<_, Error>>()? })
    }

    /// Whether the paths still lead to the same files.
    pub(super) fn check(&self) -> Result<(), Error> {
        for (path, opened) in &self.files {
            let became = match identity(path) {
                Ok(found) if found == *opened => continue,
                Ok(_) => "replaced by another file",
                Err(said) if said.kind() == io::ErrorKind::NotFound => "removed",
                Err(said) => return Err(error::file("look at", path, said)),
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

    /// From now on the WAL may be another file: SQLite removes it with the last connection and makes a
    /// new one with the next.
    pub(super) fn forget_wal(&mut self, paths: &Paths) {
        self.files.retain(|(path, _)| *path != paths.wal);
    }
}

fn identity(path: &Path) -> io::Result<Identity> {
    let found = fs::metadata(path)?;
    Ok(Identity { device: found.dev(), inode: found.ino() })
}
