//! A file, or the files of a folder with its subfolders. Each file is an object or a list of objects.
//!
//! The folder is watched, and also scanned once per interval, so that no change is missed where the kernel sends no
//! notifications. A file is read again only if its size, its inode or one of its times has changed. A file that can't
//! be read keeps its former objects. A list is sent only if each file has been read at least once.

mod changes;
mod scan;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use deltaq_client::Event;
use deltaq_types::duration::DurationText;
use tokio::task::{JoinHandle, spawn_blocking};

use self::changes::{Changes, shared_key};
use self::scan::{Entry, Folder};
use self::watch::Watch;
use super::objects::Shape;
use super::{Error, NextList, Output, jittered};
use crate::settings;

/// How long to wait after a change before the folder is scanned, so that several changes are read at once.
const SETTLE: Duration = Duration::from_millis(50);
/// How long a file may be incomplete, or may keep changing, before this counts as a failure.
const INCOMPLETE_MAX: Duration = Duration::from_secs(2);

/// The files of a folder.
#[derive(Debug)]
pub(crate) struct Files {
    folder: Folder,
    interval: DurationText,
    /// The files that have been read, by path. Invariant: the objects of a file are those of its last complete content.
    entries: BTreeMap<PathBuf, Entry>,
    /// The JSON pointers of the queue's key.
    key: Vec<String>,
    /// Whether the last of several objects with the same key is kept.
    keeps_last: bool,
    /// A file with a key that another file has, too, and a description of the problem.
    shared: Option<(PathBuf, String)>,
    /// Whether `shared` is up to date with the entries and the key.
    is_compared: bool,
    /// The files that could not be read in the last scan, each with its error.
    broken: BTreeMap<PathBuf, String>,
    /// A running scan. If nobody waits for it any more, it continues and keeps the entries.
    looking: Option<JoinHandle<Looked>>,
    watch: Watch,
}

/// The result of a scan, and the entries after it.
type Looked = (Result<Look, Error>, BTreeMap<PathBuf, Entry>);

impl Files {
    pub(super) fn new(files: &settings::Files, source: &settings::Source) -> Self {
        let shape =
            Shape { items: files.items.clone(), map_key: files.map_key.clone(), format: files.format };
        let folder = Folder {
            path: files.path.clone(),
            suffix: files.suffix.clone(),
            file_key: files.file_key.clone(),
            shape,
            max_bytes: source.max_bytes,
            devices: Arc::default(),
        };
        let watch = Watch::start(&files.path);
        let (entries, broken) = (BTreeMap::new(), BTreeMap::new());
        let (interval, keeps_last) = (source.interval, source.last_duplicate);
        Self {
            folder,
            interval,
            entries,
            key: Vec::new(),
            keeps_last,
            shared: None,
            is_compared: false,
            broken,
            looking: None,
            watch,
        }
    }

    pub(super) fn set_key(&mut self, key: Vec<String>) {
        self.is_compared &= self.key == key;
        self.key = key;
    }

    pub(super) const fn lacks_key(&self) -> bool {
        self.key.is_empty()
    }

    pub(super) async fn list(&mut self, output: &Output) -> Result<(), Error> {
        self.watch.ensure();
        let mut waited = Duration::ZERO;
        loop {
            let look = self.look().await?;
            // A link that leads nowhere may have led to a folder.
            let is_known = |path: &PathBuf| self.entries.keys().any(|file| file.starts_with(path));
            let unread = look.broken.iter().find(|(path, _)| !is_known(path));
            match unread {
                None => break,
                Some((_, why)) if waited >= INCOMPLETE_MAX => return Err(Error::new(why.clone())),
                Some(_) => {}
            }
            tokio::time::sleep(SETTLE).await;
            waited += SETTLE;
        }
        if let Some((_, why)) = &self.shared {
            return Err(Error::new(why.clone()));
        }
        output.send(Event::Init).await?;
        for entry in self.entries.values() {
            output.list(entry.objects.iter().cloned()).await?;
        }
        output.send(Event::InitDone).await
    }

    /// Sends the changes of the folder. Returns when a key may have been deleted, because only a list, with its limit
    /// on deletions, deletes keys.
    pub(super) async fn stream(&mut self, output: &Output) -> Result<NextList, Error> {
        let mut unsettled = Duration::ZERO;
        loop {
            let pause = if unsettled > Duration::ZERO { SETTLE } else { jittered(self.interval.get()) };
            // A folder that was absent when it should have been watched may be there now.
            if !self.watch.ensure() {
                self.watch.changed(pause).await;
                self.watch.ensure();
            }
            tokio::time::sleep(SETTLE).await;
            let look = self.look().await?;
            unsettled = if look.is_unsettled { unsettled + SETTLE } else { Duration::ZERO };
            for object in look.changes.changed {
                output.send(Event::Apply(object)).await?;
            }
            if unsettled >= INCOMPLETE_MAX || !look.is_unsettled {
                self.report(look.broken.into_iter().chain(look.shared).collect(), output);
            }
            if look.changes.has_deletions {
                return Ok(NextList::Now);
            }
            if !look.is_unsettled {
                output.read();
            }
        }
    }

    /// Reports files that can no longer be read, and the time when all files can be read again.
    fn report(&mut self, broken: BTreeMap<PathBuf, String>, output: &Output) {
        for (path, why) in &broken {
            if self.broken.get(path) != Some(why) {
                output.degraded(Error::new(why.clone()));
            }
        }
        if broken.is_empty() && !self.broken.is_empty() {
            output.recovered();
        }
        output.parts_fail(broken.values().map(String::as_str).collect::<Vec<_>>().join("; "));
        self.broken = broken;
    }

    /// Scans all files, reads the changed ones and compares their objects with the former ones.
    async fn look(&mut self) -> Result<Look, Error> {
        if self.looking.is_some() {
            // Nobody waited for the previous scan. The list that follows contains its results.
            self.is_compared = false;
            self.looked().await?.ok();
        }
        let (folder, entries) = (self.folder.clone(), std::mem::take(&mut self.entries));
        let (key, keeps_last, is_compared) = (self.key.clone(), self.keeps_last, self.is_compared);
        let former = self.shared.clone();
        self.looking = Some(spawn_blocking(move || {
            let (scanned, entries) = folder.scan(entries);
            let look = scanned.map(|scan| Look {
                changes: Changes::new(&scan.before, &entries, &key),
                shared: if keeps_last {
                    None
                } else if is_compared && scan.before.is_empty() {
                    former
                } else {
                    shared_key(&entries, &key)
                },
                broken: scan.broken,
                is_unsettled: scan.is_unsettled,
            });
            (look, entries)
        }));
        let look = self.looked().await??;
        (self.shared, self.is_compared) = (look.shared.clone(), true);
        Ok(look)
    }

    /// Waits for the running scan, and takes its entries.
    async fn looked(&mut self) -> Result<Result<Look, Error>, Error> {
        let Some(looking) = &mut self.looking else { return Err(Error::new("no look has begun")) };
        let looked = looking.await;
        self.looking = None;
        let (look, entries) =
            looked.map_err(|error| Error::because("the reader of the files has failed", error))?;
        self.entries = entries;
        Ok(look)
    }
}

/// The result of a scan of the folder.
#[derive(Debug)]
struct Look {
    changes: Changes,
    /// A file with a key that another file has, too, and a description of the problem.
    shared: Option<(PathBuf, String)>,
    broken: BTreeMap<PathBuf, String>,
    /// Whether a file may still be changing.
    is_unsettled: bool,
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::path::Path;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use deltaq_runtime::clock::Clock;
    use futures_util::StreamExt as _;

    use super::*;
    use crate::health::Health;
    use crate::heartbeat::Heartbeat;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn a_folder_that_was_absent_for_a_moment_is_watched() {
        let path = std::env::temp_dir().join(format!("deltaq-files-{}", fastrand::u64(..)));
        let mut files = files(&path);
        files.watch.ensure();
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("a"), "{\"key\":\"a\"}").unwrap();
        // The scan finds the folder, although nothing watches it.
        while files.look().await.unwrap().is_unsettled {}
        let mut metrics = Metrics::new();
        let health = Health::new("s", "q", Heartbeat::of_test(), metrics.add("s", "q"), Clock::system());
        let (output, events) = Output::channel(Arc::new(health), &[]);
        std::fs::write(path.join("b"), "{\"key\":\"b\"}").unwrap();
        let mut events = pin!(events);
        tokio::select! {
            ended = files.stream(&output) => panic!("{ended:?}"),
            event = events.next() => assert!(matches!(event, Some(Ok(Event::Apply(object))) if object.get().contains("\"b\""))),
            () = tokio::time::sleep(Duration::from_mins(1)) => panic!("the folder is not watched"),
        }
        std::fs::remove_dir_all(path).unwrap();
    }

    /// The files of a folder, with an interval that is over after the test.
    fn files(path: &Path) -> Files {
        let text =
            format!("[sources.s]\nqueue = \"q\"\ninterval = \"1d\"\n[sources.s.files]\npath = {path:?}\n");
        let settings: settings::Reflect = toml::from_str(&text).unwrap();
        let source = &settings.sources["s"];
        let Some(settings::Kind::Files(of_files)) = source.kind() else { panic!("files") };
        let mut files = Files::new(of_files, source);
        files.set_key(vec!["/key".to_owned()]);
        files
    }

    #[test]
    fn a_look_that_nobody_waits_for_loses_nothing() {
        // A single thread, which the test occupies while it gives up a look.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        runtime.unwrap().block_on(give_up_a_look());
    }

    async fn give_up_a_look() {
        let path = std::env::temp_dir().join(format!("deltaq-files-{}", fastrand::u64(..)));
        std::fs::create_dir(&path).unwrap();
        for name in ["a", "b"] {
            std::fs::write(path.join(name), format!("{{\"key\":\"{name}\"}}")).unwrap();
        }
        let mut files = files(&path);
        while files.look().await.unwrap().is_unsettled {}
        assert_eq!(files.entries.len(), 2);
        // A file that is broken keeps what it had, although nobody waits for the look that finds that.
        std::fs::write(path.join("a"), "{").unwrap();
        let (goes_on, waits) = std::sync::mpsc::sync_channel::<()>(0);
        let occupied = spawn_blocking(move || waits.recv().is_err());
        {
            let look = pin!(files.look());
            assert!(look.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        drop(goes_on);
        assert!(occupied.await.unwrap());
        let mut look = files.look().await.unwrap();
        while look.is_unsettled {
            look = files.look().await.unwrap();
        }
        assert_eq!((files.entries.len(), look.broken.len()), (2, 1));
        std::fs::remove_dir_all(path).unwrap();
    }
}
