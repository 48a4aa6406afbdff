//! Links between the documents lead to a file, and to a heading in it.

use std::path::Path;

use super::{Source, files, root};

/// The targets of Markdown links in a text, as in `[text](target)`.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets
        .map(|(target, _)| target)
        .filter(|target| !target.contains("://") && !target.contains(' '))
        .collect()
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

fn documents() -> Vec<Source> {
    let names = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "examples"];
    names.iter().flat_map(|name| files(name, &["md"])).collect()
}

/// The text without blocks and pieces of code, in which brackets and parentheses are no links.
fn prose(text: &str) -> String {
    let blocks = text.split("\n```").step_by(2);
    blocks.flat_map(|block| block.split('`').step_by(2)).collect::<Vec<_>>().join(" ")
}

/// The links of a page that lead nowhere.
pub(crate) fn dead_links(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).expect("a page");
    let text = prose(&text);
    let leads_nowhere = |link: &&str| {
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let path =
            if file.is_empty() { page.to_owned() } else { page.parent().expect("a folder").join(file) };
        let has_heading = |text: String| anchors(&text).iter().any(|anchor| anchor == heading);
        !path.exists() || !(heading.is_empty() || std::fs::read_to_string(&path).is_ok_and(has_heading))
    };
    links(&text).into_iter().filter(leads_nowhere).map(|link| format!("{}: {link}", page.display())).collect()
}

#[test]
fn links_lead_somewhere() {
    let wrong: Vec<String> =
        documents().iter().flat_map(|document| dead_links(&root().join(&document.path))).collect();
    assert!(wrong.is_empty(), "these links lead nowhere:\n{}", wrong.join("\n"));
}

/// The paths of this repository that a text names in backticks.
fn named_paths(text: &str) -> Vec<&str> {
    let folders =
        ["src/", "crates/", "tests/", "docs/", "config/", "scripts/", "simulator/", "benches/", "examples/"];
    let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.');
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter(|path| folders.iter().any(|folder| path.starts_with(folder)) && path.chars().all(is_path))
        .collect()
}

#[test]
fn documents_name_only_files_that_exist() {
    let mut wrong = Vec::new();
    for document in documents() {
        for path in named_paths(&document.text).into_iter().filter(|path| !root().join(path).exists()) {
            wrong.push(format!("{}: {path}", document.path));
        }
    }
    assert!(wrong.is_empty(), "these files do not exist:\n{}", wrong.join("\n"));
}

#[test]
fn named_paths_are_whole_paths_in_backticks() {
    let text = "`src/a.rs`, src/b.rs, `cargo src/c.rs`, `docs/` and\n    `x` `tests/it/*.rs`";
    assert_eq!(named_paths(text), ["src/a.rs", "docs/"]);
}

#[test]
fn anchors_are_those_of_the_headings() {
    assert_eq!(
        anchors("# A page\n## When the disk fails or is full\ntext\n"),
        ["a-page", "when-the-disk-fails-or-is-full"]
    );
    assert_eq!(links("see [a](b.md#c) and [d](https://e) or f(g)"), ["b.md#c"]);
}
