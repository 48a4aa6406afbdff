//! The wall clock of a process, which jumps while the process runs. Its monotonic clock stays right.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::preload;

/// The wall clock of the processes that were started with it. It stays where it is when they restart.
#[derive(Debug)]
pub(crate) struct WallClock {
    library: PathBuf,
    path: PathBuf,
    file: File,
}

impl WallClock {
    /// A clock that is right, in a file of this name.
    pub(crate) fn new(path: PathBuf) -> Self {
        let library = preload::library("tests/it/harness/wall_clock.c");
        let file = File::create_new(&path).expect("a new file");
        let clock = Self { library, path, file };
        clock.set(0);
        clock
    }

    /// The library that moves the clock.
    pub(crate) fn library(&self) -> &Path {
        &self.library
    }

    /// Gives a process this clock.
    pub(crate) fn give(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("WALL_CLOCK", &self.path);
    }

    /// Sets how many seconds the clock is ahead.
    pub(crate) fn set(&self, seconds: i64) {
        self.file.write_all_at(&seconds.to_ne_bytes(), 0).expect("the file can be written");
    }
}
