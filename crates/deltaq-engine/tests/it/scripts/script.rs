//! Rule scripts: files of commands, each followed by what it prints.
//!
//! This module reads the files, runs the commands at a [`Target`] and compares what they print. It knows neither the engine nor HTTP.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::command::Command;
use super::reply::{Places, Reply};

/// The line between a command and what it prints.
const SEPARATOR: &str = "----";

/// Something that has a queue and runs commands.
pub(crate) trait Target {
    /// Runs a command.
    fn run(&mut self, command: &Command) -> Reply;

    /// Where the keys are.
    fn places(&mut self) -> Places;

    /// What is wrong inside the target after a command.
    fn defect(&mut self) -> Option<String>;
}

/// Runs all scripts of a folder. If `update` is set, writes what they print into the files; otherwise it must be what they say.
///
/// # Panics
/// If a command prints something else, or a script can't be read.
pub(crate) fn run_all<T: Target>(folder: &Path, update: bool, target: impl Fn() -> T) {
    let mut differences = String::new();
    for path in scripts(folder) {
        let source = fs::read_to_string(&path).expect("a script is text");
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let run = run(&source, &mut target());
        if update && run.text != source {
            fs::write(&path, &run.text).expect("the script can be written");
        } else if !update {
            // Most others follow from the first one.
            if let Some(first) = run.differences.first() {
                let others = run.differences.len() - 1;
                let _ = write!(differences, "\n{name}:{first}  and {others} more in this script\n");
            }
        }
        for text in &run.defects {
            let _ = writeln!(differences, "\n{name}:{text}");
        }
    }
    assert!(differences.is_empty(), "these commands print something else:\n{differences}");
}

/// The scripts of a folder by name.
pub(crate) fn scripts(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder of the scripts");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut scripts: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    scripts.sort();
    assert!(!scripts.is_empty(), "{} has scripts", folder.display());
    scripts
}

/// What a script printed.
#[derive(Debug, Default)]
struct Run {
    /// The script with what its commands printed.
    text: String,
    /// The commands that printed something else than the script says.
    differences: Vec<String>,
    /// Broken invariants.
    defects: Vec<String>,
}

/// A part of a script.
#[derive(Debug, PartialEq, Eq)]
enum Part<'s> {
    /// A comment or an empty line.
    Text(&'s str),
    /// A command, the number of its first line, and what it prints.
    Step { line: usize, command: Vec<&'s str>, expected: Vec<&'s str> },
}

fn parts(source: &str) -> Vec<Part<'_>> {
    let mut lines = (1..).zip(source.lines()).peekable();
    let mut parts = Vec::new();
    while let Some((line, text)) = lines.next() {
        if text.is_empty() || text.starts_with('#') {
            parts.push(Part::Text(text));
            continue;
        }
        let mut command = vec![text];
        command.extend(lines.by_ref().map(|(_, text)| text).take_while(|text| *text != SEPARATOR));
        let mut expected = Vec::new();
        while let Some((_, text)) = lines.next_if(|(_, text)| !text.is_empty()) {
            expected.push(text);
        }
        parts.push(Part::Step { line, command, expected });
    }
    parts
}

fn run(source: &str, target: &mut impl Target) -> Run {
    let mut run = Run::default();
    let mut before = Places::default();
    let queue = Command::parse(&["queue"]).expect("a command");
    assert_eq!(step(target, &queue, &mut before), ["ok"], "an empty queue with the default settings");
    if !source.starts_with("# ") {
        run.defects.push("1: the first line is a comment that names the rule".to_owned());
    }
    for part in parts(source) {
        let (line, lines, expected) = match part {
            Part::Text(text) => {
                run.text.push_str(text);
                run.text.push('\n');
                continue;
            }
            Part::Step { line, command, expected } => (line, command, expected),
        };
        let command = match Command::parse(&lines) {
            Ok(command) => command,
            Err(error) => {
                run.defects.push(format!("{line}: {error}"));
                return run;
            }
        };
        let printed = step(target, &command, &mut before);
        let _ = writeln!(run.text, "{}\n{SEPARATOR}\n{}", lines.join("\n"), printed.join("\n"));
        if printed != expected {
            run.differences.push(format!("{line}: {}\n{}", lines[0], difference(&expected, &printed)));
        }
        let defect = target.defect();
        run.defects.extend(defect.map(|defect| format!("{line}: {}\n  {defect}", lines[0])));
    }
    run
}

/// Runs a command. Returns what it prints.
fn step(target: &mut impl Target, command: &Command, before: &mut Places) -> Vec<String> {
    if matches!(command, Command::Queue(_)) {
        *before = Places::default();
    }
    let reply = target.run(command);
    let places = target.places();
    let mut printed = reply.lines();
    printed.extend(places.changes(before));
    if (reply.is_without_effect() || command.is_dry_run()) && places != *before {
        printed.push("this command must not change the queue, and it has an event".to_owned());
    }
    if printed.is_empty() {
        printed.push("ok".to_owned());
    }
    *before = places;
    printed
}

/// The lines that are missing, with a minus, and those that are new, with a plus, between the lines that are the same.
fn difference(expected: &[&str], printed: &[String]) -> String {
    let same = |(a, b): (&&str, &String)| **a == *b.as_str();
    let head = expected.iter().zip(printed).take_while(|pair| same(*pair)).count();
    let pairs = expected[head..].iter().rev().zip(printed[head..].iter().rev());
    let tail = pairs.take_while(|pair| same(*pair)).count();
    let mut text = String::new();
    let mut write = |mark: char, line: &str| {
        let _ = writeln!(text, "  {mark} {line}");
    };
    expected[..head].iter().for_each(|line| write(' ', line));
    expected[head..expected.len() - tail].iter().for_each(|line| write('-', line));
    printed[head..printed.len() - tail].iter().for_each(|line| write('+', line));
    expected[expected.len() - tail..].iter().for_each(|line| write(' ', line));
    text
}

/// The leases of a script, numbered in the order of their delivery.
#[derive(Debug)]
pub(crate) struct Leases<L>(Vec<(u64, L)>);

impl<L: Clone + PartialEq> Leases<L> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// The number of a lease in the script.
    ///
    /// # Panics
    /// If a new lease has not a larger token than all leases before.
    pub(crate) fn number(&mut self, token: u64, lease: &L) -> usize {
        if let Some(index) = self.0.iter().position(|(_, known)| known == lease) {
            return index + 1;
        }
        let last = self.0.last().map_or(0, |(token, _)| *token);
        assert!(token > last, "the token {token} of a new lease is not larger than {last}");
        self.0.push((token, lease.clone()));
        self.0.len()
    }

    /// The lease with a number; `None` for a lease that was never delivered.
    pub(crate) fn get(&self, number: usize) -> Option<&L> {
        self.0.get(number.checked_sub(1)?).map(|(_, lease)| lease)
    }
}

#[test]
fn a_script_has_comments_and_commands_with_their_output() {
    let source = "# A rule.\n\nadd a {}\n----\nqueued 1\nready: a\n\nseed\n  a {}\n----\n";
    let step = |line, command: &[&'static str], expected: &[&'static str]| Part::Step {
        line,
        command: command.to_vec(),
        expected: expected.to_vec(),
    };
    let expected = [
        Part::Text("# A rule."),
        Part::Text(""),
        step(3, &["add a {}"], &["queued 1", "ready: a"]),
        Part::Text(""),
        step(8, &["seed", "  a {}"], &[]),
    ];
    assert_eq!(parts(source), expected);
}

#[test]
fn a_difference_shows_the_lines_around_it() {
    let printed = ["queued 1", "delayed: a 5ms", "parked: none"].map(str::to_owned);
    let text = difference(&["queued 1", "ready: a", "parked: none"], &printed);
    assert_eq!(text, "    queued 1\n  - ready: a\n  + delayed: a 5ms\n    parked: none\n");
}
