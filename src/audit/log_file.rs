//! The file of the audit log. It is opened for appending, and opened again after logrotate has moved it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The file at a path.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    /// `None` after a failure or a reload: the next append opens the file.
    file: Option<File>,
}

impl LogFile {
    /// Opens the file, and creates it with mode 0600 if there is none.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = Some(open(&path)?);
        Ok(Self { path, file })
    }

    /// Makes the next append open the path again: the file may have been moved.
    pub(super) fn reopen(&mut self) {
        self.file = None;
    }

    /// Appends whole lines, or nothing.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => open(&self.path)?,
        };
        let bytes = file.metadata()?.len();
        if let Err(error) = file.write_all(lines) {
            // A partial line would corrupt the next line.
            let _best_effort = file.set_len(bytes);
            return Err(error);
        }
        self.file = Some(file);
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}
