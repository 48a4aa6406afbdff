//! Reads recorded documents: the project's own, or those of the folder in `DELTAQ_CONFORMANCE_DIR`.
//!
//! The prefix of a file's name selects the kind of recording, and its extension the compression. A file with a known prefix
//! and an unknown extension fails the test, so that no file is ignored by mistake.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use serde::de::DeserializeOwned;

/// Prefixes of files with recorded DeltaFIFO traces.
pub(crate) const FIFO: &[&str] = &["delta_fifo", "scenarios"];
/// Prefixes of files with recorded workqueue traces.
pub(crate) const WORKQUEUE: &[&str] = &["workqueue"];
/// Prefixes of files with recorded RealFIFO traces.
pub(crate) const REAL_FIFO: &[&str] = &["real_fifo"];
/// Prefixes of files with tables of rate limiters.
pub(crate) const RATE_LIMITERS: &[&str] = &["rate_limiters"];

/// The variable that names a folder to read instead of the project's own.
const FOLDER_VARIABLE: &str = "DELTAQ_CONFORMANCE_DIR";

/// Recorded documents of one kind.
pub(crate) struct Fixtures<T> {
    /// The documents, in the order of the files' names.
    pub(crate) documents: Vec<T>,
    /// Whether the documents are the project's own, whose counts are pinned.
    pub(crate) own: bool,
}

/// All documents in files whose names begin with one of `prefixes`.
pub(crate) fn load<T: DeserializeOwned>(prefixes: &[&str]) -> Fixtures<T> {
    let other = other_folder();
    let own = other.is_none();
    let folder = other.unwrap_or_else(own_folder);
    let files = files(&folder);
    let any = [FIFO, WORKQUEUE, REAL_FIFO, RATE_LIMITERS].concat();
    assert!(files.iter().any(|file| begins_with(file, &any)), "no recorded file in {}", folder.display());
    let wanted: Vec<_> = files.into_iter().filter(|file| begins_with(file, prefixes)).collect();
    if wanted.is_empty() {
        println!("no file with a prefix of {prefixes:?} in {}", folder.display());
    }
    let documents = wanted.iter().flat_map(|file| parse(&unpack(file), file)).collect();
    Fixtures { documents, own }
}

#[expect(clippy::disallowed_methods, reason = "a test has no Settings to take")]
fn other_folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from)
}

/// Two crates replay these files, so the folder is searched from the crate upwards.
fn own_folder() -> PathBuf {
    let folders =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("tests/conformance"));
    { folders }.find(|folder| folder.is_dir()).expect("the repository has recorded files")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    files.sort();
    files
}

fn begins_with(file: &Path, prefixes: &[&str]) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn unpack(file: &Path) -> String {
    let packed = File::open(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut text = String::new();
    let read = match file.extension().and_then(|end| end.to_str()) {
        Some("gz") => MultiGzDecoder::new(packed).read_to_string(&mut text),
        Some("xz") => XzReader::new(packed, true).read_to_string(&mut text),
        Some("json" | "jsonl") => { packed }.read_to_string(&mut text),
        _ => panic!("{}: the extension must be .gz, .xz, .json or .jsonl", file.display()),
    };
    read.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text
}

/// Parses one JSON array or a sequence of documents.
fn parse<T: DeserializeOwned>(text: &str, file: &Path) -> Vec<T> {
    let parsed = if text.trim_start().starts_with('[') {
        serde_json::from_str(text)
    } else {
        serde_json::Deserializer::from_str(text).into_iter().collect()
    };
    parsed.unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn arrays_and_lines_are_parsed() {
    let file = Path::new("a.json");
    assert_eq!(parse::<u32>(" [1, 2]\n", file), [1, 2]);
    assert_eq!(parse::<u32>("1\n2\n", file), [1, 2]);
}
