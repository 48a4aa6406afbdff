//! Files that only their owner may read, such as those of secrets.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Writes a file that only this user may read.
pub(crate) fn private_file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, text).expect("a file");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("its owner is this user");
    file
}
