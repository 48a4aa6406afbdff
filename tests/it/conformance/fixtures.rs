//! Reads recorded documents: the project's own, or those of the folder in `DELTAQ_CONFORMANCE_DIR`.
//!
//! The beginning of a file's name says what it holds, its end how it is packed. A file that has one
//! of our beginnings and an end that we can't read fails the test, so that nothing is ignored.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use serde::de::DeserializeOwned;

/// Beginnings of names: recorded DeltaFIFO traces.
pub(crate) const FIFO: &[&str] = &["delta_fifo", "scenarios"];
/// Beginnings of names: recorded workqueue traces.
pub(crate) const WORKQUEUE: &[&str] = &["workqueue"];
/// Beginnings of names: tables of rate limiters.
pub(crate) const RATE_LIMITERS: &[&str] = &["rate_limiters"];

/// The folder that replaces the project's own files.
const FOLDER_VARIABLE: &str = "DELTAQ_CONFORMANCE_DIR";

/// Recorded documents of one kind.
pub(crate) struct Fixtures<T> {
    /// The documents, in the order of the files' names.
    pub(crate) documents: Vec<T>,
    /// Whether they are the project's own, whose numbers are known.
    pub(crate) own: bool,
}

/// All documents in files whose names begin with one of `beginnings`.
pub(crate) fn load<T: DeserializeOwned>(beginnings: &[&str]) -> Fixtures<T> {
    let other = other_folder();
    let own = other.is_none();
    let folder = other.unwrap_or_else(own_folder);
    let files = files(&folder);
    let any = [FIFO, WORKQUEUE, RATE_LIMITERS].concat();
    assert!(files.iter().any(|file| begins_with(file, &any)), "no recorded file in {}", folder.display());
    let wanted: Vec<_> = files.into_iter().filter(|file| begins_with(file, beginnings)).collect();
    if wanted.is_empty() {
        println!("no file of {beginnings:?} in {}", folder.display());
    }
    let documents = wanted.iter().flat_map(|file| parse(&unpack(file), file)).collect();
    Fixtures { documents, own }
}

#[expect(clippy::disallowed_methods, reason = "a test has no Settings to take")]
fn other_folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from)
}

fn own_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    files.sort();
    files
}

fn begins_with(file: &Path, beginnings: &[&str]) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    beginnings.iter().any(|beginning| name.starts_with(beginning))
}

fn unpack(file: &Path) -> String {
    let packed = File::open(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut text = String::new();
    let read = match file.extension().and_then(|end| end.to_str()) {
        Some("gz") => MultiGzDecoder::new(packed).read_to_string(&mut text),
        Some("xz") => XzReader::new(packed, true).read_to_string(&mut text),
        Some("json" | "jsonl") => { packed }.read_to_string(&mut text),
        _ => panic!("{}: is neither .gz, .xz, .json nor .jsonl", file.display()),
    };
    read.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text
}

/// One JSON array, or documents one after the other.
fn parse<T: DeserializeOwned>(text: &str, file: &Path) -> Vec<T> {
    let parsed = if text.trim_start().starts_with('[') {
        serde_json::from_str(text)
    } else {
        serde_json::Deserializer::from_str(text).into_iter().collect()
    };
    parsed.unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn arrays_and_lines_are_read_alike() {
    let file = Path::new("a.json");
    assert_eq!(parse::<u32>(" [1, 2]\n", file), [1, 2]);
    assert_eq!(parse::<u32>("1\n2\n", file), [1, 2]);
}
