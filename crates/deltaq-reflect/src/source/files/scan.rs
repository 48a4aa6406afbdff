//! Scans the files of a folder and reads those that have changed.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use deltaq_runtime::causes::with_causes;
use deltaq_runtime::clock;
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
        let files = match self.files() {
            Ok(files) => files,
            Err(error) => return (Err(error), entries),
        };
        let mut scan = Scan { before: BTreeMap::new(), broken: BTreeMap::new(), is_unsettled: false };
        let gone: Vec<_> = entries.keys().filter(|path| !files.contains_key(*path)).cloned().collect();
        for path in gone {
            let entry = entries.remove(&path);
            scan.before.insert(path, entry);
        }
        for (path, signature) in files {
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

    /// The files with their signatures. A folder that can't be read is a failure, not an empty folder.
    fn files(&self) -> Result<BTreeMap<PathBuf, Signature>, Error> {
        let mut found = BTreeMap::new();
        let metadata = fs::metadata(&self.path).map_err(|error| unreadable(&self.path, error))?;
        if !metadata.is_dir() {
            found.insert(self.path.clone(), Signature::new(&metadata));
            return Ok(found);
        }
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
                    // The file was removed or renamed after the folder was read.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
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
                    folders.push((path, depth + 1));
                } else if metadata.is_file()
                    && self.suffix.as_ref().is_none_or(|suffix| name.ends_with(suffix))
                {
                    found.insert(path, Signature::new(&metadata));
                }
                if found.len() > FILES_MAX {
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
