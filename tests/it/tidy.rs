//! Checks on the text of the repository: which module may import which, circles between modules, the length of files,
//! words that must not appear, and that only the client crates have doctests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

mod configuration;
mod console;
mod links;
mod words;

/// Longest file, in lines.
const LINES_MAX: usize = 600;

/// Marks of unfinished work, which no source may contain.
const LEFTOVERS: &[&str] =
    &["TODO", "FIXME", "XXX", "dbg!(", "todo!(", "unimplemented!(", "#[allow(", "#![allow("];

/// Folders whose modules must not import each other in a circle.
const NO_CIRCLES: &[&str] = &[
    "access",
    "admission",
    "audit",
    "bench",
    "cli",
    "config",
    "engine",
    "http",
    "journal",
    "offline",
    "reflect",
    "server",
    "service",
];

/// For each module of the crate, the modules that it may import besides itself. Imports go from http to the engine: no
/// inner module knows an outer one.
const MAY_USE: &[(&str, &[&str])] = &[
    // The settings of a queue carry its compiled admission. The engine only compares it.
    ("engine", &["admission::Admission"]),
    ("admission", &["engine"]),
    ("name", &["engine"]),
    ("journal", &["engine", "admission", "name", "clock", "causes", "retry"]),
    ("service", &["engine", "admission", "journal", "name", "clock", "lifecycle", "causes", "retry"]),
    ("causes", &[]),
    (
        "http",
        &[
            "service",
            "engine",
            "admission",
            "name",
            "clock",
            "lifecycle",
            "duration",
            "instant",
            "config",
            "access",
            "audit",
            "spans",
            "causes",
        ],
    ),
    ("spans", &["config", "engine"]),
    ("access", &["config::access"]),
    ("audit", &["config"]),
    ("clock", &[]),
    ("lifecycle", &["duration"]),
    ("config", &["duration", "engine::limits", "name"]),
    ("supervisor", &["config"]),
    ("instant", &[]),
    ("retry", &[]),
    ("telemetry", &["clock", "config", "instant"]),
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
    ("reflect", &["causes", "clock", "config", "duration", "lifecycle", "retry"]),
    (
        "cli",
        &[
            "access",
            "bench",
            "http",
            "offline",
            "reflect",
            "name",
            "clock",
            "config",
            "duration",
            "server",
            "lifecycle",
            "supervisor",
            "telemetry",
            "causes",
        ],
    ),
    ("main", &["cli", "config", "server", "lifecycle", "supervisor", "telemetry", "causes"]),
    ("lib", &[]),
    ("bench", &["clock"]),
];

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

/// The top-level module of the crate that contains a file.
fn module(path: &str) -> &str {
    let inside = path.trim_start_matches("src/");
    inside.split('/').next().unwrap_or_default().trim_end_matches(".rs")
}

/// The source without comment lines and without its test module.
fn code(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The crate paths that a source names, such as `service::Name`; a group counts as several paths.
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

/// Reads a path, or a group of paths, into `paths`; returns the length that was read.
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
fn the_queue_of_the_engine_is_behind_the_service() {
    let may_use = ["engine", "journal", "offline", "service"];
    let sources = sources("src");
    let others = sources.iter().filter(|source| !may_use.contains(&module(&source.path)));
    for source in others.filter(|source| !source.path.ends_with("/tests.rs")) {
        let mut uses = uses(&code(&source.text)).into_iter();
        let uses_queue = uses.any(|path| path == "engine::Queue" || path.starts_with("engine::queue"));
        assert!(!uses_queue, "{}: call a typed method of the service instead", source.path);
    }
}

#[test]
fn engine_and_admission_have_no_clock_no_io_and_no_async() {
    let absent =
        ["tokio", "async ", ".await", "std::fs", "std::io", "std::net", "Instant", "SystemTime", "fastrand"];
    let is_pure = |source: &&Source| ["engine", "admission"].contains(&module(&source.path));
    let pure = sources("src");
    for source in pure.iter().filter(is_pure).filter(|source| !source.path.ends_with("/tests.rs")) {
        for word in absent {
            assert!(!code(&source.text).contains(word), "{}: {word}", source.path);
        }
    }
}

/// The module path of a source file, as in `["http", "routes", "consume"]`.
fn module_path(path: &str) -> Vec<String> {
    let path = path.trim_start_matches("src/").trim_end_matches(".rs");
    path.split('/').map(str::to_owned).collect()
}

/// The paths that a source names relative to its parents, as in `super::super::body::read`, made absolute.
fn relative_uses(code: &str, own: &[String]) -> Vec<String> {
    let mut paths = Vec::new();
    let mut end = 0;
    for (start, _) in code.match_indices("super::") {
        let before = code[..start].chars().next_back();
        if start < end || before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let mut rest = &code[start..];
        let mut levels = 0;
        while let Some(inner) = rest.strip_prefix("super::") {
            (rest, levels) = (inner, levels + 1);
        }
        end = code.len() - rest.len();
        let Some(parent) = own.len().checked_sub(levels) else { continue };
        let prefix: String = own[..parent].iter().flat_map(|module| [module, "::"]).collect();
        expand(&prefix, rest, &mut paths);
    }
    paths
}

/// For each module directly inside `folder`, the sibling modules that it imports.
fn imports_inside(folder: &str) -> BTreeMap<String, BTreeSet<String>> {
    let sources = sources(&format!("src/{folder}"));
    let sources: Vec<_> = sources.iter().filter(|source| !source.path.contains("/tests")).collect();
    let sibling = |path: &str| {
        let mut parts = path.split("::");
        (parts.next() == Some(folder)).then(|| parts.next().unwrap_or_default().to_owned())
    };
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in &sources {
        imports.entry(module_path(&source.path)[1].clone()).or_default();
    }
    for source in &sources {
        let (own, code) = (module_path(&source.path), code(&source.text));
        for path in uses(&code).into_iter().chain(relative_uses(&code, &own)) {
            if let Some(other) =
                sibling(&path).filter(|other| imports.contains_key(other) && *other != own[1])
            {
                imports.entry(own[1].clone()).or_default().insert(other);
            }
        }
    }
    imports
}

/// The modules that reach themselves through imports.
fn in_circles(imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let reaches_itself = |module: &String| {
        let mut seen = BTreeSet::new();
        let mut pending = vec![module];
        while let Some(next) = pending.pop() {
            for other in imports.get(next).into_iter().flatten() {
                if seen.insert(other.clone()) {
                    pending.push(other);
                }
            }
        }
        seen.contains(module)
    };
    imports.keys().filter(|module| reaches_itself(module)).cloned().collect()
}

#[test]
fn modules_do_not_import_each_other_in_a_circle() {
    for folder in NO_CIRCLES {
        let imports = imports_inside(folder);
        let found = in_circles(&imports);
        let inside: BTreeMap<_, Vec<_>> = imports
            .iter()
            .filter(|(module, _)| found.contains(*module))
            .map(|(module, others)| (module, others.intersection(&found).collect()))
            .collect();
        assert!(found.is_empty(), "src/{folder} has a circle of imports: {inside:#?}");
    }
}

/// Folders whose modules must not import from the module that contains them.
const NO_PARENTS: &[&str] = &["journal", "journal/record", "journal/sqlite"];

#[test]
fn modules_do_not_import_from_their_parent() {
    let mut wrong = Vec::new();
    for folder in NO_PARENTS {
        let parent = folder.replace('/', "::");
        let inside = sources(&format!("src/{folder}"));
        let inside: Vec<_> = inside.iter().filter(|source| !source.path.contains("/tests")).collect();
        let children: BTreeSet<_> = inside
            .iter()
            .map(|source| module_path(&source.path)[parent.split("::").count()].clone())
            .collect();
        for source in inside {
            let (own, code) = (module_path(&source.path), code(&source.text));
            for path in uses(&code).into_iter().chain(relative_uses(&code, &own)) {
                let name = path.strip_prefix(&parent).and_then(|rest| rest.strip_prefix("::"));
                let name = name.map(|rest| rest.split("::").next().unwrap_or_default());
                if name.is_some_and(|name| !children.contains(name)) {
                    wrong.push(format!("{}: {path}", source.path));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn comments_of_the_service_hold_no_doctests() {
    for source in sources("src") {
        let mut is_open = false;
        for line in source.text.lines().filter(|line| line.trim_start().starts_with("//")) {
            if let Some((_, language)) = line.split_once("```") {
                let is_text = is_open || matches!(language, "text" | "json" | "sh" | "toml" | "sql");
                assert!(
                    is_text,
                    "{}: scripts/rust-client.sh runs doctests of the client crates alone: {line}",
                    source.path
                );
                is_open = !is_open;
            }
        }
    }
}

#[test]
fn files_are_short_and_finished() {
    let mut wrong = Vec::new();
    for source in
        ["src", "tests", "crates"].into_iter().flat_map(sources).chain(files("console", &["js", "css"]))
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

#[test]
fn the_check_of_imports_reads_every_form_of_use() {
    let text = "use crate::{a::b, c::{d, e::F}};\nlet x = crate::g::h();\nuse mycrate::no;\nuse crate::i::*;";
    let mut seen = uses(text);
    seen.sort();
    assert_eq!(seen, ["a::b", "c::d", "c::e::F", "g::h", "i"]);
    assert_eq!(uses("pub(in crate::http) fn x()"), ["http"]);
    assert_eq!(code("// crate::no\na\n\n#[cfg(test)]\nmod tests {\ncrate::no").trim(), "a");
}

#[test]
fn the_check_of_circles_finds_one() {
    let imports = |pairs: &[(&str, &str)]| {
        let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in pairs {
            imports.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            imports.entry((*to).to_owned()).or_default();
        }
        imports
    };
    assert!(in_circles(&imports(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    let found = in_circles(&imports(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]));
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["b", "c"]);

    let own: Vec<String> = ["http", "routes", "consume"].map(str::to_owned).into();
    let text = "use super::look::X;\nuse super::super::body::{read, chunk::Y};\nfn f(_: super::super::Z) {}";
    let mut seen = relative_uses(text, &own);
    seen.sort();
    assert_eq!(seen, ["http::Z", "http::body::chunk::Y", "http::body::read", "http::routes::look::X"]);
}
