//! What is written down of who did what: the section `[audit]`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The section `[audit]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// Which calls are written down.
    pub calls: AuditCalls,
    /// The file that they are written to; `None` is the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Bytes after which the file is put aside and a new one begun.
    pub max_file_bytes: u64,
    /// Most files that were put aside; the oldest goes.
    pub max_files: usize,
}

/// Which calls are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditCalls {
    /// Those of the verb admin, and those that were refused.
    Admin,
    /// All but the health checks.
    All,
}

impl Default for Audit {
    fn default() -> Self {
        Self { calls: AuditCalls::Admin, file: None, max_file_bytes: 64 << 20, max_files: 8 }
    }
}
