//! Keeps the source in order: who may use whom, how long a file may be, what must not stay in it.

use std::fs;
use std::path::{Path, PathBuf};

/// Most lines of a file.
const LINES_MAX: usize = 600;

/// Words that must not stay in the source.
const LEFTOVERS: &[&str] =
    &["TODO", "FIXME", "XXX", "dbg!(", "todo!(", "unimplemented!(", "#[allow(", "#![allow("];

/// Which modules of the crate a module may name, beside itself. Data flows from http to the engine:
/// nothing that is further in knows what is further out.
const MAY_USE: &[(&str, &[&str])] = &[
    ("engine", &[]),
    ("name", &["engine"]),
    ("journal", &["engine", "name", "clock", "causes"]),
    ("service", &["engine", "journal", "name", "clock", "lifecycle", "causes"]),
    ("causes", &[]),
    (
        "http",
        &[
            "service",
            "engine",
            "name",
            "clock",
            "lifecycle",
            "duration",
            "instant",
            "json",
            "config",
            "access",
            "audit",
            "spans",
        ],
    ),
    ("spans", &["config", "engine"]),
    ("access", &["config::access"]),
    ("audit", &["config"]),
    ("clock", &[]),
    ("duration", &[]),
    ("lifecycle", &["duration"]),
    ("config", &["duration", "engine::limits"]),
    ("supervisor", &["config"]),
    ("instant", &[]),
    ("json", &[]),
    ("telemetry", &["clock", "config", "instant", "json"]),
    (
        "server",
        &[
            "http",
            "service",
            "engine",
            "journal",
            "clock",
            "config",
            "lifecycle",
            "access",
            "audit",
            "causes",
            "supervisor",
            "spans",
            "telemetry",
        ],
    ),
    ("offline", &["service", "journal", "engine", "name", "clock", "lifecycle", "causes"]),
    (
        "cli",
        &[
            "access",
            "bench",
            "http",
            "offline",
            "name",
            "clock",
            "config",
            "duration",
            "server",
            "lifecycle",
            "telemetry",
        ],
    ),
    ("main", &["cli", "config", "server", "lifecycle", "supervisor", "telemetry", "causes"]),
    ("lib", &[]),
    ("bench", &["clock"]),
];

struct Source {
    /// From the project's folder.
    path: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder can be listed") {
            let path = entry.expect("a folder can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(&path).expect("sources are text");
                let short = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
                found.push(Source { path: short, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty());
    found
}

/// The module of the crate's root that a file belongs to.
fn module(path: &str) -> &str {
    let inside = path.trim_start_matches("src/");
    inside.split('/').next().unwrap_or_default().trim_end_matches(".rs")
}

/// The source without comments and without what is only compiled for tests.
fn code(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The paths into the crate that a source names, as in `service::Name`; groups are taken apart.
fn uses(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for name in ["crate::", "deltaq::"] {
        for (start, _) in code.match_indices(name) {
            let before = code[..start].chars().next_back();
            if before.is_none_or(|before| !before.is_alphanumeric() && before != '_') {
                expand("", &code[start + name.len()..], &mut paths);
            }
        }
    }
    paths
}

/// Reads a path, or a group of paths, into `paths`; returns how much of `rest` it was.
fn expand(prefix: &str, rest: &str, paths: &mut Vec<String>) -> usize {
    if !rest.starts_with('{') {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(rest.len());
        let path = rest[..end].trim_end_matches(':');
        if rest[end..].starts_with('{') {
            return end + expand(&format!("{prefix}{}", &rest[..end]), &rest[end..], paths);
        }
        paths.push(format!("{prefix}{path}"));
        return end;
    }
    let mut at = 1;
    while !rest[at..].starts_with('}') {
        let blank = rest[at..].find(|c: char| c != ',' && !c.is_whitespace()).expect("a group ends");
        at += blank;
        if !rest[at..].starts_with('}') {
            at += expand(prefix, &rest[at..], paths).max(1);
        }
    }
    at + 1
}

#[test]
fn imports_go_one_way() {
    let mut wrong = Vec::new();
    for source in sources("src").iter().filter(|source| !source.path.ends_with("/tests.rs")) {
        let own = module(&source.path);
        let Some((_, allowed)) = MAY_USE.iter().find(|(module, _)| *module == own) else {
            wrong.push(format!("{}: {own} is not in the table", source.path));
            continue;
        };
        for path in uses(&code(&source.text)) {
            let is_in = |module: &&str| path == **module || path.starts_with(&format!("{module}::"));
            if !is_in(&own) && !allowed.iter().any(is_in) {
                wrong.push(format!("{}: {own} must not use {path}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_engine_has_no_clock_no_io_and_nothing_async() {
    let absent =
        ["tokio", "async ", ".await", "std::fs", "std::io", "std::net", "Instant", "SystemTime", "fastrand"];
    for source in sources("src/engine").iter().filter(|source| !source.path.ends_with("/tests.rs")) {
        for word in absent {
            assert!(!code(&source.text).contains(word), "{}: {word}", source.path);
        }
    }
}

#[test]
fn files_are_short_and_finished() {
    let mut wrong = Vec::new();
    for source in sources("src").into_iter().chain(sources("tests")) {
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

#[test]
fn the_check_of_imports_sees_every_way_to_write_one() {
    let text = "use crate::{a::b, c::{d, e::F}};\nlet x = crate::g::h();\nuse mycrate::no;\nuse crate::i::*;";
    let mut seen = uses(text);
    seen.sort();
    assert_eq!(seen, ["a::b", "c::d", "c::e::F", "g::h", "i"]);
    assert_eq!(uses("pub(in crate::http) fn x()"), ["http"]);
    assert_eq!(code("// crate::no\na\n\n#[cfg(test)]\nmod tests {\ncrate::no").trim(), "a");
}
