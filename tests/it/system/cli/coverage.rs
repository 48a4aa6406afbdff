//! Every command and every option is in a test that runs the binary, or in a page whose commands a test runs.

use std::path::Path;

use clap::{Arg, Command, CommandFactory as _};
use deltaq::cli::Cli;

/// Options that no test runs, each with the reason.
const NOT_RUN: &[(&str, &str)] = &[
    ("serve --insecure", "it is for other addresses than loopback; config check reads the same flag"),
    ("health --config", "the unit tests of health cover the address of the settings"),
    ("import --config", "a settings file with the defaults of queues, which the unit tests of import cover"),
];

/// Pages whose commands a test runs.
const PAGES: [&str; 2] = ["README.md", "docs/tutorial.md"];

/// A function of a test or a line of a page, with the arguments of a command line separated by single spaces.
fn texts() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = Vec::new();
    let mut folders = vec![root.join("tests/it")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("mistakes") {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("mistakes.rs") {
                let text = std::fs::read_to_string(path).expect("text");
                texts.extend(text.split("\n}\n").map(words));
            }
        }
    }
    for page in PAGES {
        let text = std::fs::read_to_string(root.join(page)).expect("text");
        texts.extend(text.split('\n').map(words));
    }
    texts
}

fn words(text: &str) -> String {
    let is_separator =
        |char: char| char.is_whitespace() || matches!(char, '"' | ',' | '[' | ']' | '(' | ')' | '&');
    let words: Vec<_> = text.split(is_separator).filter(|word| !word.is_empty()).collect();
    let mut text = format!(" {} ", words.join(" "));
    for (function, command) in
        [("Work::start", "work"), ("Reflecting::start", "reflect"), ("Spawned::start_with", "serve")]
    {
        text = text.replace(function, command);
    }
    text
}

/// The commands without subcommands, each with the words of its path.
fn commands(command: &Command, path: &str) -> Vec<(String, Vec<Arg>)> {
    let mut all: Vec<_> = command
        .get_subcommands()
        .filter(|inner| inner.get_name() != "help")
        .flat_map(|inner| commands(inner, &format!("{path}{} ", inner.get_name())))
        .collect();
    if all.is_empty() {
        all.push((path.to_owned(), command.get_arguments().cloned().collect()));
    }
    all
}

#[test]
fn every_command_and_option_is_run_by_a_test() {
    let texts = texts();
    let common: Vec<String> = commands(&Cli::command(), " ")
        .into_iter()
        .find(|(path, _)| path == " status ")
        .map(|(_, options)| options.iter().map(|option| option.get_id().to_string()).collect())
        .expect("a command without own options");
    let mut missing = Vec::new();
    for (path, options) in commands(&Cli::command(), " ") {
        let runs: Vec<&String> = texts.iter().filter(|text_of| text_of.contains(&path)).collect();
        if runs.is_empty() {
            missing.push(path.clone());
        }
        for option in options.iter().filter(|option| !common.contains(&option.get_id().to_string())) {
            let long = option.get_long().map(|long| format!("--{long}"));
            let short = option.get_short().map(|short| format!(" -{short} "));
            let names: Vec<String> = long.into_iter().chain(short).collect();
            let is_run = names.iter().any(|name| runs.iter().any(|run| run.contains(name)));
            let text = format!("{}{}", path.trim_start(), names.first().cloned().unwrap_or_default());
            if !names.is_empty() && !is_run && !NOT_RUN.iter().any(|(excused, _)| *excused == text) {
                missing.push(text);
            }
        }
    }
    assert!(missing.is_empty(), "no test runs {missing:#?}");
}
