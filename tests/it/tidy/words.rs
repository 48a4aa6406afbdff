//! Private words must not come back: the project uses the standard terms of its field, so that a newcomer can guess.
//!
//! A word of the list counts only as a whole identifier or as a whole word of a text. Ordinary English words that were
//! once private terms (`run`, `turn`, `place`, `line`) are not in the list; review has to find those.

use super::{Source, files};

/// A private word or phrase, and the term to use instead.
const PRIVATE: &[(&str, &str)] = &[
    ("Aftermath", "Effects"),
    ("Books", "CommitQueue"),
    ("Courteous", "error responses of the connection"),
    ("Doorkeeper", "acceptor"),
    ("Deaf", "NoopObserver"),
    ("Desk", "Fixture"),
    ("Fate", "ObjectUse"),
    ("Fired", "DelayElapsed"),
    ("Former", "DeletedQueue"),
    ("Gathering", "GroupedBatch or CommitQueue"),
    ("Gravestone", "tombstone row"),
    ("gravestone", "tombstone row"),
    ("gravestones", "tombstone rows"),
    ("IfItLeaves", "FlushOnDrop"),
    ("IfItPanics", "PanicGuard"),
    ("Landmarks", "Milestones"),
    ("Lanes", "ReadPool"),
    ("Leftover", "body drain"),
    ("Lent", "body drain"),
    ("Liar", "FaultyProxy"),
    ("Litter", "temp_files"),
    ("Spent", "Garbage"),
    ("Stamp", "EventId"),
    ("Standing", "ScheduleState"),
    ("Surroundings", "Context"),
    ("Tally", "Counters"),
    ("Trouble", "Backoff"),
    ("Visit", "RequestContext"),
    ("give_back", "return"),
    ("looked_after", "reloaded"),
    ("make_good", "recover"),
    ("send_home", "fail_all"),
    ("stranger", "unauthenticated caller"),
    ("strangers", "unauthenticated callers"),
    ("take_back", "reclaim"),
    ("tell_apart", "distinguish"),
    ("unreached", "undelivered"),
    ("comes into being", "is created"),
    ("hand out", "deliver"),
    ("handed out", "delivered"),
    ("hands out", "delivers"),
    ("in good order", "cleanly"),
    ("is let in", "is authorized"),
    ("is no setting", "unknown setting"),
    ("passed over", "ignored"),
    ("put aside", "rotated"),
    ("stands still", "stalls"),
    ("what becomes of", "the outcome of"),
    ("who waits", "waiting pops"),
];

/// Files and folders in which no private word is left.
const COVERED: &[&str] = &[
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "Dockerfile",
    "Cargo.toml",
    "clippy.toml",
    "deny.toml",
    "justfile",
    "config/grafana",
    "config/prometheus",
    "config/systemd",
    "docs/api.md",
    "docs/benchmarks.md",
    "docs/deployment.md",
    "docs/monitoring.md",
    "docs/operations.md",
    "docs/runbook.md",
    "docs/worker.md",
    "examples",
    "scripts",
    "tests/it/example.rs",
    "tests/it/harness.rs",
    "tests/it/load.rs",
    "tests/it/main.rs",
    "tests/it/node.rs",
];

/// The private words in a text, each with its line and the term to use.
fn found(source: &Source) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        for (word, instead) in PRIVATE {
            let is_whole = |start: usize| {
                let (before, after) = (&line[..start], &line[start + word.len()..]);
                !before.ends_with(is_part) && !after.starts_with(is_part)
            };
            if line.match_indices(*word).any(|(start, _)| is_whole(start)) {
                found.push(format!("{}:{}: \"{word}\": write {instead}", source.path, number + 1));
            }
        }
    }
    found
}

#[test]
fn private_words_do_not_come_back() {
    let kinds = ["rs", "md", "toml", "yml", "json", "sh", "py", "sql", "service"];
    let found: Vec<_> =
        COVERED.iter().flat_map(|name| files(name, &kinds)).flat_map(|file| found(&file)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_check_of_words_sees_whole_words_only() {
    let source = |text: &str| Source { path: "a.md".to_owned(), text: text.to_owned() };
    assert_eq!(found(&source("a gravestone\nLanes, and a stranger")).len(), 3);
    assert!(found(&source("gravestoned my_Lanes Lanes2 estranger")).is_empty());
}
