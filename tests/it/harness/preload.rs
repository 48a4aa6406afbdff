//! Libraries in C that are loaded into a server under test before libc, to change what its system calls do.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use parking_lot::Mutex;

/// The libraries that this process has built, by the paths of their sources.
static BUILT: Mutex<Option<HashMap<&str, PathBuf>>> = Mutex::new(None);

/// Builds a library, once in a process. `source` is a path in this repository.
pub(crate) fn library(source: &'static str) -> PathBuf {
    let mut built = BUILT.lock();
    let library = built.get_or_insert_default().entry(source).or_insert_with(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let name = path.file_stem().expect("the name of a file").display();
        let library =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.so", std::process::id()));
        let mut compiler = Command::new("cc");
        let built =
            compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(path).arg("-ldl").status();
        assert!(built.expect("there is a C compiler").success(), "{source} can't be built");
        library
    });
    library.clone()
}
