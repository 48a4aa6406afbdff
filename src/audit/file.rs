//! A file that is put aside when it is large enough: `NAME` is written, `NAME.1` is the one before, and so on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// After a failure to put the file aside it is tried again when this part of the largest size has come on top.
const RETRY_PART: u64 = 10;

/// The file that is written, and those that were put aside.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    bytes_max: u64,
    asides_max: usize,
    /// None after a failure: it is opened anew for the next lines.
    current: Option<Current>,
    /// How large the file may become although it is too large, because it could not be put aside.
    bytes_tolerated: Option<u64>,
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
        Ok(Self { path, bytes_max, asides_max, current, bytes_tolerated: None })
    }

    /// The next lines go to the file of the name, which may be another one by now.
    pub(super) fn reopen(&mut self) {
        self.current = None;
        self.bytes_tolerated = None;
    }

    /// Writes whole lines.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut current = match self.current.take() {
            Some(current) => current,
            None => Current::open(&self.path)?,
        };
        let bytes_max = self.bytes_tolerated.unwrap_or(self.bytes_max);
        if current.bytes > 0 && current.bytes.saturating_add(lines.len() as u64) > bytes_max {
            current = self.next_after(current);
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

    /// The file to go on with: a new one, or the one that is too large if that can't be put aside. Lines in a large
    /// file are better than no lines.
    fn next_after(&mut self, current: Current) -> Current {
        match self.put_aside().and_then(|()| Current::open(&self.path)) {
            Ok(next) => {
                if self.bytes_tolerated.take().is_some() {
                    tracing::info!(path = %self.path.display(), "the audit log is put aside again");
                }
                next
            }
            Err(error) => {
                if self.bytes_tolerated.is_none() {
                    let path = self.path.display();
                    tracing::error!(%path, %error, "the audit log can't be put aside and grows beyond audit.max_file_bytes");
                }
                let more = (self.bytes_max / RETRY_PART).max(1);
                self.bytes_tolerated = Some(current.bytes.max(self.bytes_max).saturating_add(more));
                current
            }
        }
    }

    /// Only those up to the first gap move, so that a try that failed half-way and is repeated pushes nothing out.
    fn put_aside(&self) -> io::Result<()> {
        let is_free = |number: &usize| fs::symlink_metadata(self.aside(*number)).is_err();
        let free = (1..self.asides_max).find(is_free).unwrap_or(self.asides_max);
        for number in (1..free).rev() {
            rename_if_there(&self.aside(number), &self.aside(number + 1))?;
        }
        rename_if_there(&self.path, &self.aside(1))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_put_aside_is_written_on() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (folder.path().join("audit.jsonl"), folder.path().join("audit.jsonl.1"));
        let line = "x".repeat(39) + "\n";
        // No file can take the place of a folder.
        fs::create_dir(&aside).unwrap();
        let mut files = Files::open(path.clone(), 100, 1).unwrap();
        for _ in 0..10 {
            files.append(line.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), line.repeat(10));
        fs::remove_dir(&aside).unwrap();
        files.append(line.as_bytes()).unwrap();
        files.append(line.as_bytes()).unwrap();
        assert!(aside.is_file(), "it is tried again");
        let whole = fs::read_to_string(&aside).unwrap() + &fs::read_to_string(&path).unwrap();
        assert_eq!(whole, line.repeat(12), "no line is lost or twice");
        files.append(line.as_bytes()).unwrap();
        files.append(line.as_bytes()).unwrap();
        assert!(fs::metadata(&path).unwrap().len() <= 100, "the bound is what it was");
    }

    #[test]
    fn those_put_aside_move_up_to_the_first_gap() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut files = Files::open(path.clone(), 1, 4).unwrap();
        fs::write(files.aside(1), "former").unwrap();
        fs::write(files.aside(3), "oldest").unwrap();
        files.append(b"a\n").unwrap();
        files.append(b"b\n").unwrap();
        let read = |path| fs::read_to_string(path).unwrap();
        let found = [path, files.aside(1), files.aside(2), files.aside(3)].map(read);
        assert_eq!(found, ["b\n", "a\n", "former", "oldest"]);
        assert!(!files.aside(4).exists());
    }
}
