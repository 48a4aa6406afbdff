//! Scans the files of a folder and reads those that have changed.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use deltaq_runtime::causes::with_causes;
use deltaq_runtime::clock;
use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::super::Error;
use super::super::objects::{Shape, utf8};
use crate::json;

/// A younger file may still be being written, and may change again without a new time, because the clocks of file
/// systems are coarse.
const SETTLED_US: i128 = 100_000;
/// Maximum depth of subfolders.
const DEPTH_MAX: usize = 64;
/// Maximum number of files of a source.
const FILES_MAX: usize = 1_000_000;

/// The files to read.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// The suffix of the names of the files.
    pub(super) suffix: Option<String>,
    /// The member that gets the path of the file.
    pub(super) file_key: Option<String>,
    pub(super) shape: Shape,
    pub(super) max_bytes: u64,
    /// The device of each folder in the last scan.
    pub(super) devices: Arc<Mutex<BTreeMap<PathBuf, u64>>>,
}

/// What a scan has found without reading the files.
#[derive(Debug, Default)]
struct Found {
    files: BTreeMap<PathBuf, Signature>,
    /// Links that lead nowhere, each with the error.
    dangling: BTreeMap<PathBuf, Error>,
    devices: BTreeMap<PathBuf, u64>,
}

impl Found {
    /// Whether a link that leads nowhere is this file, or a folder above it.
    fn hides(&self, file: &Path) -> bool {
        file.ancestors().any(|path| self.dangling.contains_key(path))
    }
}

/// A file that has been read.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    signature: Signature,
    pub(super) objects: Vec<Box<RawValue>>,
}

/// The metadata that shows whether a file has changed, without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Signature {
    bytes: u64,
    modified_ns: i128,
    inode: u64,
    /// When the kernel recorded the last change of content, name or mode. Programs can set the time of modification,
    /// but not this time.
    changed_ns: i128,
}

/// The result of a scan.
#[derive(Debug)]
pub(super) struct Scan {
    /// The former entries of the files that have changed, are new (`None`), or were removed.
    pub(super) before: BTreeMap<PathBuf, Option<Entry>>,
    /// The files that can't be read.
    pub(super) broken: BTreeMap<PathBuf, String>,
    /// Whether a file may still be changing.
    pub(super) is_unsettled: bool,
}

impl Scan {
    /// Records a file that may still be being written. Unless its former objects are known, a list would lack its
    /// objects.
    fn unsettled(&mut self, path: PathBuf, is_known: bool) {
        self.is_unsettled = true;
        if !is_known {
            let why = format!("{} is still being written", path.display());
            self.broken.insert(path, why);
        }
    }
}

impl Signature {
    fn new(metadata: &Metadata) -> Self {
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        let modified_ns = ns(metadata.mtime(), metadata.mtime_nsec());
        let changed_ns = ns(metadata.ctime(), metadata.ctime_nsec());
        Self { bytes: metadata.len(), modified_ns, inode: metadata.ino(), changed_ns }
    }

    /// Whether the file may still be being written. A time in the future comes from another clock and says nothing.
    fn is_young(&self) -> bool {
        (0..SETTLED_US).contains(&(i128::from(clock::wall_us()) - self.changed_ns / 1_000))
    }
}

impl Folder {
    /// Scans all files. The entries are those of the previous scan, and are returned in their new state.
    pub(super) fn scan(
        &self,
        mut entries: BTreeMap<PathBuf, Entry>,
    ) -> (Result<Scan, Error>, BTreeMap<PathBuf, Entry>) {
        let found = match self.files() {
            Ok(found) => found,
            Err(error) => return (Err(error), entries),
        };
        let mut scan = Scan { before: BTreeMap::new(), broken: BTreeMap::new(), is_unsettled: false };
        let is_gone = |path: &&PathBuf| !found.files.contains_key(*path) && !found.hides(path);
        let gone: Vec<_> = entries.keys().filter(is_gone).cloned().collect();
        if let Err(error) = self.check_devices(&found, &gone) {
            return (Err(error), entries);
        }
        for (path, error) in &found.dangling {
            // A link to a folder has another suffix than the files in it.
            let has_suffix =
                self.suffix.as_ref().is_none_or(|suffix| path.to_string_lossy().ends_with(suffix));
            if has_suffix || entries.keys().any(|file| file.starts_with(path)) {
                scan.broken.insert(path.clone(), with_causes(error));
            }
        }
        for path in gone {
            let entry = entries.remove(&path);
            scan.before.insert(path, entry);
        }
        for (path, signature) in found.files {
            let known = entries.get(&path);
            if known.is_some_and(|entry| entry.signature == signature) {
                continue;
            }
            if signature.is_young() {
                scan.unsettled(path, known.is_some());
                continue;
            }
            match self.read(&path) {
                Ok(Some(entry)) => {
                    let is_same = known.is_some_and(|known| has_same_objects(known, &entry));
                    let before = entries.insert(path.clone(), entry);
                    if !is_same {
                        scan.before.insert(path, before);
                    }
                }
                // The file was removed in the meantime, or is changing. The next scan finds it.
                Ok(None) => {
                    let is_known = known.is_some();
                    scan.unsettled(path, is_known);
                }
                Err(error) => {
                    scan.broken.insert(path, with_causes(&error));
                }
            }
        }
        (Ok(scan), entries)
    }

    /// Refuses the loss of files in a folder that is on another device than before: a file system was unmounted, and
    /// what is below it appears. `gone` are the files that have disappeared.
    fn check_devices(&self, found: &Found, gone: &[PathBuf]) -> Result<(), Error> {
        let mut known = self.devices.lock();
        let moved = found.devices.iter().find(|(folder, device)| {
            known.get(*folder).is_some_and(|known| known != *device)
                && gone.iter().any(|file| file.starts_with(folder))
        });
        if let Some((folder, _)) = moved {
            let folder = folder.display();
            let why = "is on another file system than before and lacks files; if that is right, start the process again";
            return Err(Error::new(format!("{folder} {why}")));
        }
        known.clone_from(&found.devices);
        Ok(())
    }

    /// The files with their signatures. A folder that can't be read is a failure, not an empty folder.
    fn files(&self) -> Result<Found, Error> {
        let mut found = Found::default();
        let metadata = fs::metadata(&self.path).map_err(|error| unreadable(&self.path, error))?;
        if !metadata.is_dir() {
            found.files.insert(self.path.clone(), Signature::new(&metadata));
            return Ok(found);
        }
        found.devices.insert(self.path.clone(), metadata.dev());
        let mut folders = vec![(self.path.clone(), 0)];
        while let Some((folder, depth)) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(|error| unreadable(&folder, error))? {
                let entry = entry.map_err(|error| unreadable(&folder, error))?;
                let path = entry.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if name.starts_with('.') {
                    continue;
                }
                let metadata = match fs::metadata(&path) {
                    Ok(metadata) => metadata,
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                        // Otherwise, the file was removed or renamed after the folder was read.
                        if fs::symlink_metadata(&path).is_ok() {
                            found.dangling.insert(path.clone(), unreadable(&path, error));
                        }
                        continue;
                    }
                    Err(error) => return Err(unreadable(&path, error)),
                };
                if metadata.is_dir() {
                    let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                    if is_link && self.is_above(&path, &metadata) {
                        continue;
                    }
                    if depth == DEPTH_MAX {
                        let what = format!("{} is deeper than {DEPTH_MAX} folders", path.display());
                        return Err(Error::new(what));
                    }
                    found.devices.insert(path.clone(), metadata.dev());
                    folders.push((path, depth + 1));
                } else if metadata.is_file()
                    && self.suffix.as_ref().is_none_or(|suffix| name.ends_with(suffix))
                {
                    found.files.insert(path, Signature::new(&metadata));
                }
                if found.files.len() > FILES_MAX {
                    let folder = self.path.display();
                    return Err(Error::new(format!("{folder} has more than {FILES_MAX} files")));
                }
            }
        }
        Ok(found)
    }

    /// Whether a link leads to a folder that contains the link. The files of that folder are read already.
    fn is_above(&self, link: &Path, target: &Metadata) -> bool {
        // Several links may form a cycle together, so all folders on the path are checked, not only those of the real
        // path.
        let within = link.ancestors().skip(1).take_while(|folder| folder.starts_with(&self.path));
        let root = self.path.canonicalize().unwrap_or_default();
        within
            .chain(root.ancestors())
            .filter_map(|folder| fs::metadata(folder).ok())
            .any(|folder| (folder.dev(), folder.ino()) == (target.dev(), target.ino()))
    }

    /// Reads a file; `None` if it was removed or has changed while it was read.
    fn read(&self, path: &Path) -> Result<Option<Entry>, Error> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(path, error)),
        };
        let signature = |file: &File| file.metadata().map(|metadata| Signature::new(&metadata));
        let before = signature(&file).map_err(|error| unreadable(path, error))?;
        let mut text = Vec::new();
        let limited = (&mut file).take(self.max_bytes.saturating_add(1)).read_to_end(&mut text);
        limited.map_err(|error| unreadable(path, error))?;
        let shown = path.display();
        if text.len() as u64 > self.max_bytes {
            let max_bytes = self.max_bytes;
            return Err(Error::new(format!("{shown} has more than {max_bytes} bytes (max_bytes)")));
        }
        let after = signature(&file).map_err(|error| unreadable(path, error))?;
        if before != after || text.len() as u64 != after.bytes {
            return Ok(None);
        }
        let of = shown.to_string();
        let mut objects = self.objects(utf8(&text, &of)?, &of)?;
        if let Some(member) = &self.file_key {
            let name = self.name(path);
            let named = objects.iter().map(|object| json::with_member(object, member, &name));
            objects = named.collect::<Result<_, _>>().map_err(|error| Error::because(of, error))?;
        }
        Ok(Some(Entry { signature: after, objects }))
    }

    /// The objects of a file: a single object, or a list.
    fn objects(&self, text: &str, of: &str) -> Result<Vec<Box<RawValue>>, Error> {
        // A file that was just opened for writing is empty at first.
        if text.trim().is_empty() {
            return Err(Error::new(format!("{of} is empty; write [] for a file without objects")));
        }
        let is_plain = self.shape.items.is_empty() && self.shape.map_key.is_none();
        if is_plain
            && let Ok(object) = serde_json::from_str::<Box<RawValue>>(text)
            && json::kind(&object) == "an object"
        {
            return Ok(vec![object]);
        }
        self.shape.of_text(text, true, of)
    }

    /// The path of a file below the folder, without the suffix.
    fn name(&self, path: &Path) -> String {
        let below = path.strip_prefix(&self.path).ok().filter(|below| !below.as_os_str().is_empty());
        let below = below.or_else(|| path.file_name().map(Path::new)).unwrap_or(path);
        let name = below.to_string_lossy();
        let suffix = self.suffix.as_deref().unwrap_or_default();
        name.strip_suffix(suffix).unwrap_or(&name).to_owned()
    }
}

fn has_same_objects(one: &Entry, other: &Entry) -> bool {
    let texts =
        |entry: &Entry| entry.objects.iter().map(|object| object.get().to_owned()).collect::<Vec<_>>();
    texts(one) == texts(other)
}

fn unreadable(path: &Path, error: std::io::Error) -> Error {
    Error::because(format!("can't read {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Format;

    #[test]
    fn files_that_go_with_their_file_system_are_not_gone() {
        let path = std::env::temp_dir().join(format!("deltaq-scan-{}", fastrand::u64(..)));
        fs::create_dir_all(path.join("inner")).unwrap();
        let (file, inner) = (path.join("a"), path.join("inner/b"));
        fs::write(&file, "{\"key\":\"a\"}").unwrap();
        fs::write(&inner, "{\"key\":\"b\"}").unwrap();
        let shape = Shape { items: String::new(), map_key: None, format: Format::Auto };
        let (devices, max_bytes) = (Arc::default(), 1 << 10);
        let (suffix, file_key) = (None, None);
        let folder = Folder { path: path.clone(), suffix, file_key, shape, max_bytes, devices };
        let mut entries = BTreeMap::new();
        let scan = |entries: &mut BTreeMap<PathBuf, Entry>| {
            let (scanned, after) = folder.scan(std::mem::take(entries));
            *entries = after;
            scanned.map(|scan| scan.is_unsettled).map_err(|error| error.to_string())
        };
        while scan(&mut entries).unwrap() {}
        assert_eq!(entries.len(), 2);
        // The inner folder was on another file system, which is gone.
        let unmount = || *folder.devices.lock().get_mut(&path.join("inner")).unwrap() += 1;
        unmount();
        fs::remove_file(&inner).unwrap();
        for _ in 0..2 {
            assert!(scan(&mut entries).unwrap_err().contains("is on another file system than before"));
            assert_eq!(entries.len(), 2);
        }
        // It is mounted again, under another number.
        fs::write(&inner, "{\"key\":\"b\"}").unwrap();
        while scan(&mut entries).unwrap() {}
        fs::remove_file(&inner).unwrap();
        assert_eq!((scan(&mut entries), entries.len()), (Ok(false), 1));
        // A file of another folder may go.
        fs::write(&inner, "{\"key\":\"b\"}").unwrap();
        while scan(&mut entries).unwrap() {}
        unmount();
        fs::remove_file(&file).unwrap();
        assert_eq!((scan(&mut entries), entries.len()), (Ok(false), 1));
        fs::remove_dir_all(path).unwrap();
    }
}
