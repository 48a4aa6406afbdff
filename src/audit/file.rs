//! A file that is put aside when it is large enough: `NAME` is written, `NAME.1` is the one before, and so on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The file that is written, and those that were put aside.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    bytes_max: u64,
    asides_max: usize,
    /// None after a failure: it is opened anew for the next lines.
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    file: File,
    bytes: u64,
}

impl Files {
    /// Opens the file, behind what is in it.
    pub(super) fn open(path: PathBuf, bytes_max: u64, asides_max: usize) -> io::Result<Self> {
        let current = Some(Current::open(&path)?);
        Ok(Self { path, bytes_max, asides_max, current })
    }

    /// The next lines go to the file of the name, which may be another one by now.
    pub(super) fn reopen(&mut self) {
        self.current = None;
    }

    /// Writes whole lines.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut current = match self.current.take() {
            Some(current) => current,
            None => Current::open(&self.path)?,
        };
        if current.bytes > 0 && current.bytes.saturating_add(lines.len() as u64) > self.bytes_max {
            self.put_aside()?;
            current = Current::open(&self.path)?;
        }
        if let Err(error) = current.file.write_all(lines) {
            // A piece of a line would spoil the next one.
            let _as_well_as_it_can_be = current.file.set_len(current.bytes);
            return Err(error);
        }
        current.bytes += lines.len() as u64;
        self.current = Some(current);
        Ok(())
    }

    fn put_aside(&self) -> io::Result<()> {
        for number in (1..self.asides_max).rev() {
            rename_if_there(&self.aside(number), &self.aside(number + 1))?;
        }
        fs::rename(&self.path, self.aside(1))
    }

    fn aside(&self, number: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

impl Current {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes })
    }
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
