//! Rule scripts: files of commands, each followed by what it prints.
//!
//! This module reads the commands of a script and runs them at a [`Target`]. It knows neither the engine nor HTTP nor files. The tests run
//! whole folders with it (`folder.rs`), and the simulator of the documents runs single scripts (`simulator/`).

use super::command::Command;
use super::reply::{Places, Reply};

/// The line between a command and what it prints.
pub(crate) const SEPARATOR: &str = "----";

/// Something that has a queue and runs commands.
pub(crate) trait Target {
    /// Runs a command.
    fn run(&mut self, command: &Command) -> Reply;

    /// Where the keys are.
    fn places(&mut self) -> Places;

    /// What is wrong inside the target after a command.
    fn defect(&mut self) -> Option<String>;
}

/// A part of a script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part<'s> {
    /// A comment or an empty line.
    Text(&'s str),
    /// A command, the number of its first line, and what it prints.
    Step { line: usize, command: Vec<&'s str>, expected: Vec<&'s str> },
}

/// The parts of a script, in its order.
pub(crate) fn parts(source: &str) -> Vec<Part<'_>> {
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

/// Runs a command. Returns what it prints.
pub(crate) fn step(target: &mut impl Target, command: &Command, before: &mut Places) -> Vec<String> {
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
