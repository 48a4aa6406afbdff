//! Imports: which crate and which module may use which, and circles between modules.
//!
//! Cargo holds the arrows between the crates. Here are those inside the product, and that no crate has a circle of modules at
//! any level.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{Source, root, sources};

/// The folders of the crates' sources.
const CRATES: &[&str] = &[
    "src",
    "crates/deltaq-client/src",
    "crates/deltaq-engine/src",
    "crates/deltaq-journal/src",
    "crates/deltaq-reflect/src",
    "crates/deltaq-runtime/src",
    "crates/deltaq-service/src",
    "crates/deltaq-types/src",
];

/// Most crates that the engine depends on.
const ENGINE_CRATES_MAX: usize = 15;

/// For each module of the product, the modules that it may import besides itself. Imports go from cli and server to http.
const MAY_USE: &[(&str, &[&str])] = &[
    ("access", &["config::access"]),
    ("audit", &["config", "suppression"]),
    ("bench", &[]),
    ("cli", &["access", "bench", "config", "hooks", "http", "secrets", "server", "supervisor", "telemetry"]),
    ("config", &[]),
    (
        "http",
        &[
            "access",
            "audit",
            "config",
            "hooks",
            "instant",
            "private_file",
            "push",
            "secrets",
            "spans",
            "suppression",
        ],
    ),
    ("hooks", &["secrets"]),
    ("instant", &[]),
    ("lib", &[]),
    ("main", &["cli", "config", "server", "supervisor", "telemetry"]),
    ("private_file", &[]),
    ("push", &["access", "config", "secrets"]),
    ("secrets", &["access", "config", "private_file"]),
    (
        "server",
        &[
            "access",
            "audit",
            "config",
            "http",
            "push",
            "secrets",
            "spans",
            "supervisor",
            "suppression",
            "telemetry",
        ],
    ),
    ("spans", &["config"]),
    ("supervisor", &["config"]),
    ("suppression", &[]),
    ("telemetry", &["config", "instant"]),
];

/// The module of a source file in its crate, as in `["http", "routes", "consume"]`.
fn module_path(path: &str) -> Vec<String> {
    let inside = CRATES.iter().find_map(|folder| path.strip_prefix(folder)?.strip_prefix('/'));
    let inside = inside.unwrap_or(path).trim_end_matches(".rs");
    inside.split('/').map(str::to_owned).collect()
}

/// The sources of a crate, without its tests.
fn sources_of(folder: &str) -> Vec<Source> {
    let is_test = |source: &Source| module_path(&source.path).iter().any(|module| module == "tests");
    sources(folder).into_iter().filter(|source| !is_test(source)).collect()
}

/// The source without comment lines and without its test module.
fn code(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The paths of its own crate that a source names, such as `http::Reply`; a group counts as several paths.
fn uses(code: &str) -> Vec<String> {
    paths_after(code, &["crate::", "deltaq::"])
}

/// The paths that follow one of these names.
fn paths_after(code: &str, names: &[&str]) -> Vec<String> {
    let mut paths = Vec::new();
    for name in names {
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
    for source in sources_of("src") {
        let own = module_path(&source.path)[0].clone();
        let Some((_, allowed)) = MAY_USE.iter().find(|(module, _)| *module == own) else {
            wrong.push(format!("{}: {own} is not in the table", source.path));
            continue;
        };
        for path in uses(&code(&source.text)) {
            let is_in = |module: &str| path == *module || path.starts_with(&format!("{module}::"));
            if !is_in(&own) && !allowed.iter().any(|module| is_in(module)) {
                wrong.push(format!("{}: {own} must not use {path}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_queue_of_the_engine_is_behind_the_service() {
    for source in sources_of("src") {
        let uses = paths_after(&code(&source.text), &["deltaq_engine::"]);
        let uses_queue = uses.iter().any(|path| path == "Queue" || path.starts_with("queue"));
        assert!(!uses_queue, "{}: call a typed method of the service instead", source.path);
    }
}

#[test]
fn engine_and_admission_have_no_clock_no_io_and_no_async() {
    let absent =
        ["tokio", "async ", ".await", "std::fs", "std::io", "std::net", "Instant", "SystemTime", "fastrand"];
    let admission = sources_of("crates/deltaq-service/src").into_iter();
    let admission = admission.filter(|source| module_path(&source.path)[0] == "admission");
    for source in sources_of("crates/deltaq-engine/src").into_iter().chain(admission) {
        for word in absent {
            assert!(!code(&source.text).contains(word), "{}: {word}", source.path);
        }
    }
}

#[test]
fn the_engine_depends_on_few_crates() {
    let manifest = fs::read_to_string(root().join("crates/deltaq-engine/Cargo.toml")).expect("a manifest");
    let (_, rest) = manifest.split_once("\n[dependencies]\n").expect("it has dependencies");
    let names: Vec<&str> =
        rest.lines().map_while(|line| line.split_once(" = ").map(|(name, _)| name)).collect();
    assert!((1..=ENGINE_CRATES_MAX).contains(&names.len()), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("deltaq") && *name != "deltaq-types"), "{names:?}");
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

/// For each module that has children, the imports between these: from the module `a` inside `parent` to its sibling `b`.
fn imports_between_siblings(folder: &str) -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
    let sources = sources_of(folder);
    let modules: BTreeSet<Vec<String>> =
        sources.iter().map(|source| module_path(&source.path)).filter(|path| !is_root(path)).collect();
    let mut parents: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for source in &sources {
        let (own, code) = (module_path(&source.path), code(&source.text));
        if is_root(&own) {
            continue;
        }
        for path in uses(&code).into_iter().chain(relative_uses(&code, &own)) {
            let used: Vec<String> = path.split("::").map(str::to_owned).collect();
            let common = own.iter().zip(&used).take_while(|(own, used)| own == used).count();
            // A path to the module itself, its parents or its children is no import between siblings.
            if common < own.len() && common < used.len() && modules.contains(&used[..=common]) {
                let siblings = parents.entry(own[..common].join("::")).or_default();
                siblings.entry(own[common].clone()).or_default().insert(used[common].clone());
                siblings.entry(used[common].clone()).or_default();
            }
        }
    }
    parents
}

/// Whether this is the root of a crate, whose imports are those of all its modules.
fn is_root(path: &[String]) -> bool {
    matches!(path, [name] if name == "lib" || name == "main")
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
    let mut wrong = Vec::new();
    for folder in CRATES {
        for (parent, imports) in imports_between_siblings(folder) {
            let found = in_circles(&imports);
            let circle = imports.iter().filter(|(module, _)| found.contains(*module));
            for (module, others) in circle {
                let others: Vec<_> = others.intersection(&found).collect();
                wrong.push(format!("{folder}, in {parent:?}: {module} imports {others:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Modules whose children must not import from them: a folder of a crate, and the module in it.
const NO_PARENTS: &[(&str, &[&str])] = &[
    ("crates/deltaq-journal/src", &[]),
    ("crates/deltaq-journal/src", &["record"]),
    ("crates/deltaq-journal/src", &["sqlite"]),
];

#[test]
fn modules_do_not_import_from_their_parent() {
    let mut wrong = Vec::new();
    for (folder, parent) in NO_PARENTS {
        let inside = sources_of(folder).into_iter().filter(|source| {
            let path = module_path(&source.path);
            !is_root(&path)
                && path.len() > parent.len()
                && path.iter().zip(*parent).all(|(own, parent)| own == parent)
        });
        let inside: Vec<Source> = inside.collect();
        let children: BTreeSet<String> =
            inside.iter().map(|source| module_path(&source.path)[parent.len()].clone()).collect();
        for source in inside {
            let (own, code) = (module_path(&source.path), code(&source.text));
            for path in uses(&code).into_iter().chain(relative_uses(&code, &own)) {
                let used: Vec<&str> = path.split("::").collect();
                let name = used.strip_prefix(*parent).and_then(|rest| rest.first());
                if name.is_some_and(|name| !children.contains(*name)) {
                    wrong.push(format!("{}: {path}", source.path));
                }
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
