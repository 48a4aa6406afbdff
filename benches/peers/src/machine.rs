//! The description of the machine, the servers and the method.

use std::fmt::Write as _;
use std::fs;

use crate::servers::{Kind, Programs, Storage};
use crate::subject::Rounds;

/// The block of the document.
pub(crate) fn described(programs: &Programs, rounds: &Rounds, commit: &str) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = value(&cpus, "model name").unwrap_or("unknown");
    let cores = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let host = if cpus.contains(" hypervisor") { "virtual machine" } else { "machine" };
    let memory = read("/proc/meminfo");
    let kib = value(&memory, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let mut text = format!(
        "Measured at {commit}, on a {host} with {cores} cores of {model}, {} GiB of memory, Linux {}. The load generator is one thread \
         on the same machine, for all servers. Figures are medians of {} rounds, with the lowest and highest in \
         parentheses. In each round the compared servers take turns: {} s each, after a warm-up of {} s. Every \
         measurement starts a new server in an empty folder.\n\n| | version | started with | |\n|---|---|---|---|\n",
        kib.unwrap_or_default() >> 20,
        read("/proc/sys/kernel/osrelease").split(['-', '\n']).next().unwrap_or_default(),
        rounds.count,
        rounds.measured.as_secs_f64(),
        rounds.warm_up.as_secs_f64(),
    );
    for (kind, version) in programs.versions() {
        let _ = writeln!(
            text,
            "| {} | {version} | {} | {} |",
            kind.program().0,
            started_with(kind),
            kind.remark()
        );
    }
    text
}

/// The command-line arguments of a server.
fn started_with(kind: Kind) -> String {
    let flags = |storage| {
        let arguments = kind.arguments(storage, "PORT", "DIR");
        let shown = arguments.iter().map(|word| if word.is_empty() { "''" } else { word });
        format!("`{}`", shown.collect::<Vec<_>>().join(" "))
    };
    let (memory, fsync) = (flags(Storage::Memory), flags(Storage::Fsync));
    match kind {
        Kind::Deltaq => {
            let (postgres, node) = (flags(Storage::Postgres), flags(Storage::OwnerNode));
            format!("{memory}, with fsync {fsync}, on PostgreSQL {postgres}, as a node {node}")
        }
        _ if memory == fsync => memory,
        _ => format!("{memory}, with fsync {fsync}"),
    }
}

/// The value of the first `name : value` line.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_their_names() {
        let text = "processor\t: 0\nmodel name\t: A CPU\nmodel name\t: Another\n";
        assert_eq!(value(text, "model name"), Some("A CPU"));
        assert_eq!(value("MemTotal:       24 kB\n", "MemTotal"), Some("24 kB"));
        assert_eq!(value(text, "flags"), None);
    }
}
