//! Notifications of the kernel about a folder. They only say when to scan; the scan finds what has changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tracing::warn;

/// A watched folder. If the kernel can't watch it, it is scanned only once per interval.
#[derive(Debug)]
pub(super) struct Watch {
    path: PathBuf,
    changed: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    /// Whether something has happened to the folder itself. A folder that was removed or renamed is no longer watched.
    is_lost: Arc<AtomicBool>,
    has_failed: bool,
}

impl Watch {
    /// Starts to watch a folder.
    pub(super) fn start(path: &Path) -> Self {
        // A replaced file has a new inode, so the folder of a file is watched.
        let folder = if path.is_file() {
            path.parent().filter(|folder| !folder.as_os_str().is_empty())
        } else {
            Some(path)
        };
        let path = folder.unwrap_or(Path::new(".")).to_owned();
        let (changed, is_lost) = (Arc::default(), Arc::default());
        let mut watch = Self { path, changed, watcher: None, is_lost, has_failed: false };
        watch.ensure();
        watch
    }

    /// Starts to watch the folder, unless it is watched already. Returns whether the watch has just begun: only a scan
    /// finds what has changed before.
    pub(super) fn ensure(&mut self) -> bool {
        if self.is_lost.swap(false, Ordering::Relaxed) {
            self.watcher = None;
        }
        if self.watcher.is_some() {
            return false;
        }
        let (changed, is_lost) = (Arc::clone(&self.changed), Arc::clone(&self.is_lost));
        let folder = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Opening a file for reading is not a change, and this process does so itself.
            if event.as_ref().is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
                return;
            }
            if event.is_ok_and(|event| event.paths.contains(&folder)) {
                is_lost.store(true, Ordering::Relaxed);
            }
            changed.notify_one();
        });
        let started = watcher.and_then(|mut watcher| {
            watcher.watch(&self.path, RecursiveMode::Recursive)?;
            Ok(watcher)
        });
        match started {
            Ok(watcher) => self.watcher = Some(watcher),
            // If the folder does not exist, the scan reports the failure.
            Err(error) if !self.has_failed && self.path.exists() => {
                self.has_failed = true;
                let folder = &self.path;
                warn!(?folder, %error, "the kernel can't watch the folder; it is read once per interval");
            }
            Err(_) => {}
        }
        self.watcher.is_some()
    }

    /// Waits for a change, for at most this time.
    pub(super) async fn changed(&self, at_most: Duration) {
        let _time_is_over = tokio::time::timeout(at_most, self.changed.notified()).await;
    }
}
