//! The list of commands in `deltaq --help`, in groups.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _, FromArgMatches as _};

use super::{Cli, arguments};

/// Titles with the commands of each group.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Run and keep a server",
        &["serve", "config", "token", "kubeconfig", "health", "check", "backup", "export", "import", "bench"],
    ),
    ("Watch", &["status", "nodes", "queues", "series", "top", "activity", "tail", "watch", "wait"]),
    (
        "Manage a queue",
        &["queue", "apply", "push", "hook", "parked", "promote", "redrive", "discard", "forget"],
    ),
    ("Produce", &["add", "update", "delete", "replace", "deltas", "resync", "seed", "reflect"]),
    ("Work", &["work", "pop", "ack", "done", "nack", "release", "reject", "extend"]),
    (
        "Read",
        &[
            "items",
            "explain",
            "latest",
            "known",
            "indexes",
            "history",
            "find",
            "sources",
            "reflectors",
            "workers",
            "groups",
            "synced",
        ],
    ),
    ("Shell", &["completion", "man", "help"]),
];

/// Parses the command line of the process. Wrong usage and requests for help end the process.
#[must_use]
pub fn parse() -> Cli {
    let mut command = grouped(Cli::command());
    let arguments = arguments::ordered(&command, std::env::args_os());
    let matches = command.try_get_matches_from_mut(arguments);
    let matches = matches.unwrap_or_else(|error| arguments::with_known_word(error).exit());
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The command with its subcommands listed in groups.
fn grouped(mut command: Command) -> Command {
    // Adds the command `help`, so that the list is complete.
    command.build();
    let mut list = String::new();
    for (title, names) in GROUPS {
        let _infallible = writeln!(list, "{title}:");
        for name in *names {
            if let Some(about) = command.find_subcommand(name).and_then(Command::get_about) {
                let _infallible = writeln!(list, "  {name:<10}  {about}");
            }
        }
        list.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut command = grouped(Cli::command());
        let help = command.render_help().to_string();
        for name in command.get_subcommands().map(Command::get_name) {
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&name)).count();
            assert_eq!(groups, 1, "{name}");
            assert!(help.contains(&format!("\n  {name} ")), "{name} is not in\n{help}");
        }
        assert!(help.contains("Exit codes:") && help.contains("--version"), "{help}");
    }
}
