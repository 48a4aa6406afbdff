//! The file of the audit log. It is opened for appending, and opened again after logrotate has moved it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of bytes that are read of the end of a file. A line has about 350 bytes.
const END_MAX: u64 = 8 << 20;

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

/// The last whole lines of a file. A terminal or a pipe has none.
pub(super) fn end(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Ok(Vec::new());
    }
    let mut file = File::open(path)?;
    let skipped = file.metadata()?.len().saturating_sub(END_MAX);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(END_MAX).read_to_end(&mut bytes)?;
    let partial =
        if skipped > 0 { bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len()) } else { 0 };
    Ok(bytes.split_off(partial))
}
