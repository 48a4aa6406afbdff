//! Files with secrets: nobody but their owner and their group should read them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The permission bit that lets all users of the machine read a file.
const READABLE_BY_ALL: u32 = 0o004;

/// Reports a file that all users of the machine can read. `setting` names the file.
pub(crate) fn report_readable(setting: &str, path: &Path, metadata: &Metadata) {
    if metadata.is_file() && metadata.mode() & READABLE_BY_ALL != 0 {
        let path = path.display();
        tracing::warn!(
            setting,
            %path,
            "all users of this machine can read this file, which has a secret; remove that permission (chmod o-rwx)"
        );
    }
}
