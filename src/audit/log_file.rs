//! The file of the audit log. It is opened for appending, and opened again after logrotate has moved it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

/// Maximum number of bytes that are read of the end of a file. A line has about 350 bytes.
const END_MAX: u64 = 64 << 20;

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

/// Opens the file for whole lines: what a crash has left of a line gets an end. A named pipe that nobody reads is an error, because
/// its opening would wait for a reader.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let mut file = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::NXIO.raw_os_error() => {
            io::Error::other("it is a named pipe, and no process reads it")
        }
        _ => error,
    })?;
    fcntl_setfl(&file, OFlags::APPEND)?;
    if is_cut(path).unwrap_or_default() {
        let _best_effort = file.write_all(b"\n");
    }
    Ok(file)
}

/// Whether the last line of a file has no end.
fn is_cut(path: &Path) -> io::Result<bool> {
    if !std::fs::metadata(path)?.is_file() {
        return Ok(false);
    }
    let (mut file, mut last) = (File::open(path)?, [b'\n']);
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    Ok(last != *b"\n")
}

/// Passes on the whole lines at the end of the file before the last rotation, and then those of the file. A terminal or a pipe has none.
pub(super) fn lines(path: &Path, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut before = path.as_os_str().to_owned();
    before.push(".1");
    for path in [Path::new(&before), path] {
        if std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
            end(path, &mut take)?;
        }
    }
    Ok(())
}

fn end(path: &Path, take: &mut impl FnMut(&[u8])) -> io::Result<()> {
    let mut file = File::open(path)?;
    let skipped = file.metadata()?.len().saturating_sub(END_MAX);
    file.seek(SeekFrom::Start(skipped))?;
    let lines = BufReader::new(file.take(END_MAX)).split(b'\n');
    // The first line may lack its beginning.
    for line in lines.skip(usize::from(skipped > 0)) {
        take(&line?);
    }
    Ok(())
}
