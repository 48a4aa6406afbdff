//! Rows that deltaq's own benchmarks measure. Each benchmark is run with `cargo bench`, and its output is parsed.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use deltaq_runtime::clock::Clock;

use crate::figures::{Figure, Target};
use crate::process::output_within;
use crate::rows::Line;
use crate::setup::TOOLCHAIN;

/// Timeout of a benchmark, including its build.
const RUN_TIMEOUT: Duration = Duration::from_mins(45);

/// A benchmark of deltaq's own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    Checkpoint,
    Engine,
}

/// The figures of the engine's benchmark: printed name, name in the table, unit, target.
const ENGINE: [(&str, &str, &str, Target); 4] = [
    ("cycle_ns", "add, pop, ack of a key", "ns", Target::AtMost(450.0)),
    ("fill_drain_ns", "fill and drain, per key", "ns", Target::AtMost(1_000.0)),
    ("waiting_key_bytes", "a waiting key, besides its object", "bytes", Target::AtMost(150.0)),
    ("drained_key_bytes", "a drained key", "bytes", Target::Below(20.0)),
];

impl Program {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Checkpoint => &["bench", "--locked", "--bench", "journal", "--", "checkpoint"],
            Self::Engine => &["bench", "--locked", "--bench", "engine"],
        }
    }

    /// Whether the checked-out version of the project has this benchmark.
    pub(crate) fn exists(self, root: &Path) -> bool {
        match self {
            Self::Checkpoint => root.join("benches/journal.rs").is_file(),
            Self::Engine => {
                root.join("benches/engine.rs").is_file() || root.join("benches/engine/main.rs").is_file()
            }
        }
    }

    /// Runs the benchmark once per round.
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
            let text = output_within(&mut command, RUN_TIMEOUT, scratch, clock).await?;
            texts.push(self.parse(&text).ok_or_else(|| {
                io::Error::other(format!(
                    "cargo {}: figures are missing in the output:\n{text}",
                    self.arguments().join(" ")
                ))
            })?);
        }
        Ok(self.lines(&texts))
    }

    /// The figures in the output. `None` if one is missing.
    fn parse(self, text: &str) -> Option<Vec<f64>> {
        match self {
            Self::Checkpoint => {
                let line = text.lines().find_map(|line| line.trim().strip_prefix("without "))?;
                let (without, rest) = line.split_once(" events/s, during the first one ")?;
                let (with, _) = rest.split_once(':')?;
                let number = |text: &str| text.replace(',', "").parse().ok();
                // The rate is 0 if the first checkpoint began at once.
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
                    baseline: Some(("without".into(), without)),
                    target: Target::AtLeast(0.7),
                }]
            }
            Self::Engine => {
                let line = |(index, (_, name, unit, target)): (usize, &(_, &str, &str, Target))| {
                    let ours = ((*name).to_owned(), figure(index)?);
                    Some(Line { unit: (*unit).to_owned(), ours, baseline: None, target: *target })
                };
                ENGINE.iter().enumerate().filter_map(line).collect()
            }
        }
    }
}

/// The number after a name at the start of a line.
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
    fn the_checkpoint_figures_are_parsed() {
        let text =
            "Update, pop and ack of keys\n  without 121239 events/s, during the first one 106907: 0.88\n";
        let read = Program::Checkpoint.parse(text).unwrap();
        let lines = Program::Checkpoint.lines(&[read]);
        assert_eq!(format!("{:.2}", lines[0].ratio()), "0.88");
        assert!(Program::Checkpoint.parse("without figures").is_none());
        let no_time = "without 0 events/s, during the first one 15091: inf";
        assert!(Program::Checkpoint.parse(no_time).is_none());
    }

    #[test]
    fn the_engine_figures_are_parsed() {
        let text = "cycle_ns 431.5\nfill_drain_ns 900\nwaiting_key_bytes 140\ndrained_key_bytes 12\n";
        let lines = Program::Engine.lines(&[Program::Engine.parse(text).unwrap()]);
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| line.target.is_reached(line.ratio()) == Some(true)));
        assert!(Program::Engine.parse("cycle_ns 431.5\n").is_none());
    }
}
