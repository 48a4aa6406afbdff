//! The ready file: the addresses of a server that is ready, as JSON. Readers see either the complete file or none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::{Error, Server};

/// A file that can be written.
#[derive(Debug)]
pub struct ReadyFile {
    path: PathBuf,
}

impl ReadyFile {
    /// Checks that the file can be written, and removes that of an earlier run, which would report readiness too early.
    ///
    /// # Errors
    /// [`Error::ReadyFile`]. Nothing was changed.
    pub fn prepare(path: &Path) -> Result<Self, Error> {
        let file = Self { path: path.to_owned() };
        file.clear().map_err(|source| file.failed(source))?;
        Ok(file)
    }

    /// Writes the addresses of a server.
    ///
    /// # Errors
    /// [`Error::ReadyFile`].
    pub fn write(&self, server: &Server) -> Result<(), Error> {
        let (api, metrics) = (server.api, server.metrics);
        let addresses = match server.http2 {
            None => serde_json::json!({ "api": api, "metrics": metrics }),
            Some(http2) => serde_json::json!({ "api": api, "metrics": metrics, "http2": http2 }),
        };
        self.write_whole(&(addresses.to_string() + "\n")).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::ReadyFile { path: self.path.clone(), source }
    }

    fn clear(&self) -> io::Result<()> {
        let is_folder = self.path.file_name().is_none() || self.path.as_os_str().as_bytes().ends_with(b"/");
        match fs::metadata(&self.path) {
            _ if is_folder => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if !found.is_file() => return Err(io::Error::other("it is not a regular file")),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        drop(self.create_draft()?);
        fs::remove_file(self.draft())?;
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Does not follow symbolic links, because in a folder that others can write to, a link could point to any file of this
    /// user.
    fn write_whole(&self, text: &str) -> io::Result<()> {
        let mut draft = self.create_draft()?;
        let written = draft.write_all(text.as_bytes()).and_then(|()| fs::rename(self.draft(), &self.path));
        written.inspect_err(|_| {
            // The first error matters more.
            let _left = fs::remove_file(self.draft());
        })
    }

    fn draft(&self) -> PathBuf {
        let mut draft = self.path.as_os_str().to_owned();
        draft.push(".new");
        draft.into()
    }

    fn create_draft(&self) -> io::Result<File> {
        let create = || OpenOptions::new().write(true).create_new(true).open(self.draft());
        match create() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(self.draft())?;
                create()
            }
            created => created,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The names in a folder.
    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.to_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_ready_file_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, ready) = (folder.path().join("victim"), folder.path().join("ready"));
        fs::write(&victim, "untouched").unwrap();
        symlink(&victim, folder.path().join("ready.new")).unwrap();
        symlink(&victim, &ready).unwrap();
        let file = ReadyFile::prepare(&ready).unwrap();
        assert_eq!(names(folder.path()), ["victim"], "that of an earlier run is gone");
        symlink(&victim, folder.path().join("ready.new")).unwrap();
        symlink(&victim, &ready).unwrap();
        for text in ["new", "newer"] {
            file.write_whole(text).unwrap();
            assert_eq!(fs::read_to_string(&ready).unwrap(), text);
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(names(folder.path()), ["ready", "victim"]);
    }

    #[test]
    fn a_path_that_can_be_no_ready_file_is_refused_and_nothing_changes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("folder")).unwrap();
        fs::create_dir(at("draft.new")).unwrap();
        fs::write(at("draft"), "of an earlier run").unwrap();
        fs::write(at("file"), "").unwrap();
        symlink(at("folder"), at("link")).unwrap();
        symlink(at("circle"), at("circle")).unwrap();
        symlink("/dev/null", at("null")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        let before = names(folder.path());
        for name in [
            "folder",
            "folder/",
            "folder/.",
            "folder/..",
            "none/",
            "none/ready",
            "file/ready",
            "file/",
            "link",
            "circle",
            "null",
            "pipe",
            "draft",
            ".",
            "/dev/null",
            "/",
            "",
        ] {
            let path = if name.is_empty() { PathBuf::new() } else { at(name) };
            let refused = ReadyFile::prepare(&path);
            assert!(matches!(refused, Err(Error::ReadyFile { .. })), "{name:?}: {refused:?}");
            assert_eq!(names(folder.path()), before, "{name:?}");
            assert_eq!(names(&at("folder")), [""; 0], "{name:?}");
        }
        assert_eq!(fs::read_to_string(at("draft")).unwrap(), "of an earlier run");
    }

    #[test]
    fn a_file_that_can_no_longer_be_written_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let file = ReadyFile::prepare(&ready).unwrap();
        fs::create_dir(&ready).unwrap();
        assert!(file.write_whole("text").is_err());
        assert_eq!(names(folder.path()), ["ready"]);
    }
}
