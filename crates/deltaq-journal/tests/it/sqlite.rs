//! The rules of every store, with SQLite.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use deltaq_journal::sqlite::{Sqlite, Sync};
use deltaq_journal::store::{Opening, Reader};

use crate::store::{Owner, Place, suite};

/// A folder that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("store-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _missing = std::fs::remove_dir_all(&folder);
        Self(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

impl Place for Scratch {
    type Store = Sqlite;

    async fn open(&self) -> (Owner<Sqlite>, Arc<dyn Reader>, Opening) {
        let (store, reader, opening) = Sqlite::open(&self.0, Sync::Full).await.expect("a store");
        (Owner::new(store, &opening), reader, opening)
    }
}

suite!(Scratch::new());
