//! Checks on the text of the repository: which module may import which, circles between modules, the length of files,
//! words that must not appear, and that only the published crates have doctests.

use std::fs;
use std::path::{Path, PathBuf};

mod configuration;
mod console;
mod imports;
pub(crate) mod links;
mod words;

/// Longest file, in lines.
const LINES_MAX: usize = 600;

/// Marks of unfinished work, which no source may contain.
const LEFTOVERS: &[&str] =
    &["TODO", "FIXME", "XXX", "dbg!(", "todo!(", "unimplemented!(", "#[allow(", "#![allow("];

/// Commands that don't read all of their input.
const READERS_THAT_STOP: &[&str] = &["| head", "| grep -q", "| grep -iq", "| grep -m"];

struct Source {
    /// Relative to the repository.
    path: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files of a folder, or the file itself if `name` is one.
fn sources(name: &str) -> Vec<Source> {
    files(name, &["rs"])
}

/// The files of a folder with one of these extensions; or one file.
fn files(name: &str, extensions: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    let mut pending = vec![root().join(name)];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            for entry in fs::read_dir(&path).expect("a folder can be listed") {
                pending.push(entry.expect("a folder can be listed").path());
            }
        } else if path == root().join(name)
            || path.extension().is_some_and(|end| extensions.iter().any(|wanted| end == *wanted))
        {
            let text = fs::read_to_string(&path).expect("sources are text");
            let short = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
            found.push(Source { path: short, text });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "{name} has no files");
    found
}

#[test]
fn comments_of_crates_that_are_not_published_hold_no_doctests() {
    let is_published = |source: &Source| {
        ["crates/deltaq-types/", "crates/deltaq-client/"]
            .iter()
            .any(|published| source.path.starts_with(published))
    };
    for source in ["src", "crates"].into_iter().flat_map(sources).filter(|source| !is_published(source)) {
        let mut is_open = false;
        for line in source.text.lines().filter(|line| line.trim_start().starts_with("//")) {
            if let Some((_, language)) = line.split_once("```") {
                let is_text = is_open || matches!(language, "text" | "json" | "sh" | "toml" | "sql");
                assert!(
                    is_text,
                    "{}: scripts/test.sh runs the doctests of the published crates alone: {line}",
                    source.path
                );
                is_open = !is_open;
            }
        }
    }
}

/// With `pipefail`, a pipe fails when its reader stops before the writer has finished: now and then, by the speed of both.
#[test]
fn scripts_have_no_pipe_whose_reader_stops_early() {
    let mut wrong = Vec::new();
    for source in files("scripts", &["sh"]).into_iter().chain(files(".ci/run", &[])) {
        for (number, line) in source.text.lines().enumerate() {
            if READERS_THAT_STOP.iter().any(|reader| line.contains(reader)) {
                wrong.push(format!("{}:{}: {line}", source.path, number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_are_short_and_finished() {
    let mut wrong = Vec::new();
    for source in ["src", "tests", "crates", "simulator/src"]
        .into_iter()
        .flat_map(sources)
        .chain(["console", "simulator/page"].into_iter().flat_map(|page| files(page, &["js", "css"])))
    {
        let lines = source.text.lines().count();
        if lines > LINES_MAX {
            wrong.push(format!("{}: {lines} lines, at most {LINES_MAX}", source.path));
        }
        let is_this = Path::new(file!()).file_name() == Path::new(&source.path).file_name();
        for (number, line) in source.text.lines().enumerate().filter(|_| !is_this) {
            for word in LEFTOVERS.iter().filter(|word| line.contains(**word)) {
                wrong.push(format!("{}:{}: {word}", source.path, number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
