//! The file system of the data directory: its free space, which is a metric and may stop changes before the file system does, and the
//! time of the last backup.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use deltaq_journal::Journal;
use deltaq_journal::offline::backup::LAST_BACKUP_FILE;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::DiskMetrics;
use deltaq_types::Timestamp;

/// How often the file system is looked at.
const PERIOD: Duration = Duration::from_secs(5);

/// What the file system and the folder say.
struct Look {
    free_bytes: u64,
    size_bytes: u64,
    /// When the last backup ended, since the Unix epoch.
    backed_up: Option<Duration>,
}

impl Look {
    fn at(folder: &Path) -> std::io::Result<Self> {
        let system = rustix::fs::statvfs(folder)?;
        // The time is in the file: a copy of the folder has newer files, but no newer backup.
        let backup = fs::read_to_string(folder.join(LAST_BACKUP_FILE)).ok();
        let backed_up = backup.and_then(|text| text.trim().parse::<Timestamp>().ok());
        Ok(Self {
            free_bytes: system.f_bavail.saturating_mul(system.f_frsize),
            size_bytes: system.f_blocks.saturating_mul(system.f_frsize),
            backed_up: backed_up.map(|at| Duration::from_micros(at.as_micros())),
        })
    }
}

/// Looks at the file system until the shutdown begins, and refuses changes while it has less than `min_free_bytes` free.
pub(super) async fn watch(
    folder: PathBuf,
    min_free_bytes: u64,
    journal: Journal,
    metrics: DiskMetrics,
    shutdown: Shutdown,
) {
    let mut is_low = false;
    loop {
        let looked = folder.clone();
        // A network file system that hangs must not block a thread of the requests.
        let look = tokio::task::spawn_blocking(move || Look::at(&looked)).await;
        if let Ok(Ok(Look { free_bytes, size_bytes, backed_up })) = look {
            metrics.has(free_bytes, size_bytes);
            if let Some(at) = backed_up {
                metrics.backed_up(at);
            }
            let was_low = std::mem::replace(&mut is_low, free_bytes < min_free_bytes);
            journal.set_disk_free(free_bytes, min_free_bytes);
            match (was_low, is_low) {
                (false, true) => tracing::error!(
                    free_bytes,
                    min_free_bytes,
                    "the disk is nearly full; changes are refused with 507, and reads are answered"
                ),
                (true, false) => tracing::info!(free_bytes, "the disk has room again"),
                _ => {}
            }
        }
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            () = shutdown.draining().cancelled() => return,
        }
    }
}
