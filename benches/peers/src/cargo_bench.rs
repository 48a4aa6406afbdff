//! Rows that deltaq's own benchmarks measure: they are run as a person would, and what they print is read.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use deltaq::clock::Clock;

use crate::figures::{Figure, Target};
use crate::process::printed;
use crate::rows::Line;
use crate::setup::TOOLCHAIN;

/// How long one may take, the time to build it included.
const PATIENCE: Duration = Duration::from_mins(45);

/// Which benchmark.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    Checkpoint,
    Engine,
}

/// What the engine's benchmark prints, as what it is called here, and its target.
const ENGINE: [(&str, &str, &str, Target); 4] = [
    ("cycle_ns", "add, pop, ack of a key", "ns", Target::AtMost(450.0)),
    ("fill_drain_ns", "fill and drain, a key", "ns", Target::AtMost(1_000.0)),
    ("waiting_key_bytes", "a waiting key, beside its object", "bytes", Target::AtMost(150.0)),
    ("drained_key_bytes", "a drained key", "bytes", Target::Below(20.0)),
];

impl Program {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Checkpoint => &["bench", "--locked", "--bench", "journal", "--", "checkpoint"],
            Self::Engine => &["bench", "--locked", "--bench", "engine"],
        }
    }

    /// Whether this state of the project has it.
    pub(crate) fn is_there(self, root: &Path) -> bool {
        match self {
            Self::Checkpoint => root.join("benches/journal.rs").is_file(),
            Self::Engine => {
                root.join("benches/engine.rs").is_file() || root.join("benches/engine/main.rs").is_file()
            }
        }
    }

    /// Runs it as often as there are rounds.
    pub(crate) async fn measure(
        self,
        rounds: usize,
        root: &Path,
        scratch: &Path,
        clock: &Clock,
    ) -> io::Result<Vec<Line>> {
        let mut texts = Vec::new();
        for _ in 0..rounds {
            let mut command = Command::new("cargo");
            command.args(self.arguments()).current_dir(root).env_remove(TOOLCHAIN);
            let text = printed(&mut command, PATIENCE, scratch, clock).await?;
            texts.push(self.read(&text).ok_or_else(|| {
                io::Error::other(format!(
                    "cargo {}: figures are missing in\n{text}",
                    self.arguments().join(" ")
                ))
            })?);
        }
        Ok(self.lines(&texts))
    }

    /// The figures in what it prints; nothing without all of them.
    fn read(self, text: &str) -> Option<Vec<f64>> {
        match self {
            Self::Checkpoint => {
                let line = text.lines().find_map(|line| line.trim().strip_prefix("without "))?;
                let (without, rest) = line.split_once(" events/s, with the first one beside ")?;
                let (with, _) = rest.split_once(':')?;
                let number = |text: &str| text.replace(',', "").parse().ok();
                // There was no time without one, if the first began at once.
                let without = number(without).filter(|rate| *rate > 0.0)?;
                Some(vec![number(with)?, without])
            }
            Self::Engine => ENGINE.iter().map(|(name, ..)| named(text, name)).collect(),
        }
    }

    fn lines(self, texts: &[Vec<f64>]) -> Vec<Line> {
        let figure = |index: usize| Figure::of(texts.iter().filter_map(|text| text.get(index).copied()));
        match self {
            Self::Checkpoint => {
                let (Some(with), Some(without)) = (figure(0), figure(1)) else { return Vec::new() };
                vec![Line {
                    unit: "events/s".into(),
                    ours: ("with a checkpoint".into(), with),
                    beside: Some(("without".into(), without)),
                    target: Target::AtLeast(0.7),
                }]
            }
            Self::Engine => {
                let line = |(index, (_, name, unit, target)): (usize, &(_, &str, &str, Target))| {
                    let ours = ((*name).to_owned(), figure(index)?);
                    Some(Line { unit: (*unit).to_owned(), ours, beside: None, target: *target })
                };
                ENGINE.iter().enumerate().filter_map(line).collect()
            }
        }
    }
}

/// The number behind a name at the beginning of a line.
fn named(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        if words.next()? == name { words.next()?.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_a_checkpoint_are_read() {
        let text = "Update, pop and ack of keys\n  without 121239 events/s, with the first one beside 106907: 0.88\n";
        let read = Program::Checkpoint.read(text).unwrap();
        let lines = Program::Checkpoint.lines(&[read]);
        assert_eq!(format!("{:.2}", lines[0].ratio()), "0.88");
        assert!(Program::Checkpoint.read("without a word").is_none());
        let no_time = "without 0 events/s, with the first one beside 15091: inf";
        assert!(Program::Checkpoint.read(no_time).is_none());
    }

    #[test]
    fn the_figures_of_the_engine_are_read() {
        let text = "cycle_ns 431.5\nfill_drain_ns 900\nwaiting_key_bytes 140\ndrained_key_bytes 12\n";
        let lines = Program::Engine.lines(&[Program::Engine.read(text).unwrap()]);
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| line.target.is_reached(line.ratio()) == Some(true)));
        assert!(Program::Engine.read("cycle_ns 431.5\n").is_none());
    }
}
