//! Runs the rule scripts of a folder, and compares what they print with what they say.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::command::Command;
use super::reply::Places;
use super::script::{Part, SEPARATOR, Target, parts, step};

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

#[test]
fn a_difference_shows_the_lines_around_it() {
    let printed = ["queued 1", "delayed: a 5ms", "parked: none"].map(str::to_owned);
    let text = difference(&["queued 1", "ready: a", "parked: none"], &printed);
    assert_eq!(text, "    queued 1\n  - ready: a\n  + delayed: a 5ms\n    parked: none\n");
}
