//! Private words must not come back: the project uses the standard terms of its field, so that a newcomer can guess.
//!
//! A word of the list counts only as a whole identifier or as a whole word of a text. Ordinary English words that were
//! once private terms (`run`, `turn`, `place`, `line`) are not in the list; review has to find those.

use super::{Source, files};

/// A private word or phrase, and the term to use instead.
const PRIVATE: &[(&str, &str)] = &[
    ("Aftermath", "Effects"),
    ("are at it", "are busy"),
    ("Book", "QueueRecord"),
    ("Books", "CommitQueue"),
    ("comes into being", "is created"),
    ("conclude", "dispatch"),
    ("Counted", "response metrics"),
    ("Courteous", "error responses of the connection"),
    ("Deaf", "NoopObserver"),
    ("Desk", "Fixture"),
    ("Door", "acceptor"),
    ("Doorkeeper", "acceptor"),
    ("everybody", "every client"),
    ("Fate", "ObjectUse"),
    ("Fired", "DelayElapsed"),
    ("Former", "DeletedQueue"),
    ("Gathering", "GroupedBatch or CommitQueue"),
    ("gathering", "collecting"),
    ("gathers", "collects"),
    ("give_back", "return"),
    ("Gone", "Tombstone row"),
    ("Gravestone", "tombstone"),
    ("gravestone", "tombstone"),
    ("gravestones", "tombstones"),
    ("hand out", "deliver"),
    ("handed out", "delivered"),
    ("handed over", "delivered"),
    ("hands out", "delivers"),
    ("Hot", "the operation's row in the table"),
    ("IfItLeaves", "FlushOnDrop"),
    ("IfItPanics", "PanicGuard"),
    ("in good order", "cleanly"),
    ("is let in", "is authorized"),
    ("is no setting", "unknown setting"),
    ("is_let_in", "is_authorized"),
    ("KeyBook", "KeyRecord"),
    ("landmark", "milestone"),
    ("Landmarks", "Milestones"),
    ("landmarks", "milestones"),
    ("Lanes", "ReadPool"),
    ("Leftover", "body drain"),
    ("Lent", "body drain"),
    ("let in", "authorized"),
    ("lets in", "authorizes"),
    ("lets_everybody_in", "is_open"),
    ("Liar", "FaultyProxy"),
    ("Litter", "temp_files"),
    ("looked after", "reloaded"),
    ("looked_after", "reloaded"),
    ("made good", "recovered"),
    ("make good", "recover"),
    ("make_good", "recover"),
    ("Mark", "HighWaterMark"),
    ("Mend the cause", "Fix the cause"),
    ("Naming", "QueueMeta"),
    ("news", "new changes"),
    ("Pace", "Timing or connection timeouts"),
    ("Parsed", "RawObject"),
    ("passed over", "ignored"),
    ("put aside", "rotated"),
    ("Remark", "Finding"),
    ("send_home", "fail_all"),
    ("Spent", "Garbage"),
    ("Stamp", "EventId"),
    ("Standing", "ScheduleState"),
    ("stands still", "stalls"),
    ("stranger", "unauthenticated caller"),
    ("strangers", "unauthenticated callers"),
    ("Stretch", "Segment or StepOutcome"),
    ("stretch", "slice or segment"),
    ("stretches", "slices or segments"),
    ("Surroundings", "Context"),
    ("surroundings", "Context"),
    ("take_back", "reclaim"),
    ("Tally", "Counters"),
    ("tell_apart", "distinguish"),
    ("telling", "reporting"),
    ("told", "notified or reported"),
    ("too_slow", "stalled"),
    ("Trouble", "Backoff"),
    ("unreached", "undelivered"),
    ("Visit", "RequestContext"),
    ("wait for a person", "need attention"),
    ("waits for a person", "needs attention"),
    ("what becomes of", "the outcome of"),
    ("who waits", "waiting pops"),
];

/// Files and folders of the repository that are searched.
const SEARCHED: &[&str] = &[
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "Dockerfile",
    "Cargo.toml",
    "clippy.toml",
    "deny.toml",
    "justfile",
    "benches",
    "clients/go",
    "clients/java",
    "clients/python",
    "config",
    "console",
    "crates",
    "deploy",
    "docs",
    "examples",
    "scripts",
    "simulator",
    "src",
    "tests/clients",
    "tests/it",
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
    let kinds = ["rs", "go", "java", "md", "toml", "yml", "json", "sh", "py", "sql", "service", "js"];
    let is_this = |path: &str| path.ends_with("tidy/words.rs");
    let searched = SEARCHED.iter().flat_map(|name| files(name, &kinds));
    let searched = searched.filter(|file| !is_this(&file.path));
    let found: Vec<_> = searched.flat_map(|file| found(&file)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_check_of_words_sees_whole_words_only() {
    let source = |text: &str| Source { path: "a.md".to_owned(), text: text.to_owned() };
    assert_eq!(found(&source("a gravestone\nLanes, and a stranger")).len(), 3);
    assert!(found(&source("gravestoned my_Lanes Lanes2 estranger")).is_empty());
}
