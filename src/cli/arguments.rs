//! The arguments of the process. This module also accepts options before the command, and suggests a command for words
//! that other programs use.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// Words that other programs use, with the corresponding commands of this program.
const FOREIGN_WORDS: &[(&str, &[&str])] = &[
    ("consume", &["work", "pop"]),
    ("dlq", &["parked"]),
    ("enqueue", &["add"]),
    ("info", &["status"]),
    ("list", &["queues", "items"]),
    ("ls", &["queues", "items"]),
    ("monitor", &["top"]),
    ("peek", &["items"]),
    ("publish", &["add"]),
    ("put", &["add"]),
    ("receive", &["pop", "work"]),
    ("retry", &["promote", "redrive"]),
    ("run", &["serve", "work"]),
    ("send", &["add"]),
    ("server", &["serve"]),
    ("show", &["queue get"]),
    ("start", &["serve"]),
    ("stats", &["status", "top"]),
    ("worker", &["work"]),
];

/// Options that other programs use for the address of a server.
const FOREIGN_ADDRESSES: &[&str] = &["--addr", "--address", "--bind", "--host", "--port"];

/// A command without options of its own: it has only those that all client commands share.
const WITHOUT_OWN_OPTIONS: &str = "status";

/// Moves the options of the client, such as `--url`, after the command.
pub(super) fn ordered(command: &Command, arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter().peekable();
    let (mut ordered, mut options) = (Vec::from_iter(arguments.next()), Vec::new());
    let mut current = command;
    while let Some(next) = arguments.peek() {
        if let Some(takes_next) = takes_next(command, next) {
            options.extend(arguments.by_ref().take(if takes_next { 2 } else { 1 }));
        } else if let Some(group) = current.find_subcommand(next).filter(|group| group.has_subcommands()) {
            current = group;
            ordered.extend(arguments.next());
        } else {
            break;
        }
    }
    let mut rest: Vec<_> = arguments.collect();
    if rest.is_empty() {
        return ordered;
    }
    let end = rest.iter().position(|argument| argument == "--").unwrap_or(rest.len());
    rest.splice(end..end, options);
    ordered.extend(rest);
    ordered
}

/// Whether the value of this client option is in the next argument. `None` if the argument is not a client option.
fn takes_next(command: &Command, argument: &OsStr) -> Option<bool> {
    let text = argument.to_str()?;
    let options = command.find_subcommand(WITHOUT_OWN_OPTIONS)?.get_arguments();
    let mut options = options.filter(|option| option.get_action().takes_values());
    options.find_map(|option| {
        let long = option.get_long().and_then(|long| text.strip_prefix("--")?.strip_prefix(long));
        let short = option.get_short().and_then(|short| text.strip_prefix('-')?.strip_prefix(short));
        match (long, short) {
            (Some(""), _) | (_, Some("")) => Some(true),
            (Some(rest), _) => rest.starts_with('=').then_some(false),
            (None, Some(_)) => Some(false),
            (None, None) => None,
        }
    })
}

/// Adds a suggestion to the error if a word is one that another program uses for a command or option.
pub(super) fn with_known_word(mut error: Error) -> Error {
    if let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::UnknownArgument
        && FOREIGN_ADDRESSES.contains(&option.as_str())
    {
        let is_server = error.render().to_string().contains("Usage: deltaq serve");
        let known = if is_server { "--listen" } else { "--url" };
        error.insert(ContextKind::SuggestedArg, ContextValue::String(known.to_owned()));
        return error;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let known = FOREIGN_WORDS.iter().find(|(foreign, _)| foreign == word);
    if let Some((_, commands)) = known.filter(|_| error.kind() == ErrorKind::InvalidSubcommand) {
        let commands = commands.iter().map(|command| (*command).to_owned()).collect();
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(commands));
    }
    error
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn ordered_line(line: &str) -> String {
        let arguments = ordered(&Cli::command(), line.split(' ').map(OsString::from));
        let texts: Vec<_> = arguments.iter().map(|argument| argument.to_str().unwrap()).collect();
        texts.join(" ")
    }

    #[test]
    fn options_of_the_client_may_stand_before_the_command() {
        for (given, expected) in [
            ("deltaq queues --url a", "deltaq queues --url a"),
            ("deltaq --url a queues", "deltaq queues --url a"),
            ("deltaq -o json --url=a queues --prefix b", "deltaq queues --prefix b -o json --url=a"),
            ("deltaq -ojson queue get a", "deltaq queue get a -ojson"),
            ("deltaq queue --url a get b", "deltaq queue get b --url a"),
            ("deltaq --url a work q -- sh --url b", "deltaq work q --url a -- sh --url b"),
            ("deltaq --url a", "deltaq"),
            ("deltaq --urls a queues", "deltaq --urls a queues"),
            ("deltaq --version", "deltaq --version"),
            ("deltaq add --key queue queue", "deltaq add --key queue queue"),
        ] {
            assert_eq!(ordered_line(given), expected, "{given}");
        }
    }

    #[test]
    fn options_of_other_programs_lead_to_options() {
        for (line, known) in [
            (["deltaq", "serve", "--port", "1"], "'--listen'"),
            (["deltaq", "queues", "--host", "a"], "'--url'"),
        ] {
            let error = Cli::command().try_get_matches_from(line).unwrap_err();
            let text = with_known_word(error).to_string();
            assert!(text.contains(known), "{text}");
        }
    }

    #[test]
    fn words_of_other_programs_lead_to_commands() {
        for (word, commands) in FOREIGN_WORDS {
            let error = Cli::command().try_get_matches_from(["deltaq", word]).unwrap_err();
            let text = with_known_word(error).to_string();
            for known in *commands {
                assert!(text.contains(&format!("'{known}'")), "{text}");
                let line = ["deltaq"].into_iter().chain(known.split(' ')).chain(["--help"]);
                let help = Cli::command().try_get_matches_from(line).unwrap_err();
                assert_eq!(help.kind(), ErrorKind::DisplayHelp, "{known}");
            }
        }
    }
}
