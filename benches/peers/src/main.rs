//! Compares deltaq with other queues under the same load.
//!
//! The program starts every server itself, loads one at a time from one thread, and prints the results. If it measures all rows, it
//! writes them into docs/benchmarks.md. It never fails because of a measured figure.

mod document;
mod drivers;
mod figures;
mod machine;
mod nodes;
mod plot;
mod process;
mod rows;
mod servers;
mod setup;
mod subject;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use deltaq_runtime::clock::Clock;
use deltaq_types::duration;
use tokio::signal::unix::{SignalKind, signal};

use crate::rows::{Line, Row, rows};
use crate::servers::{Kind, Programs};
use crate::subject::{Rounds, in_turn};

/// Compares deltaq with other queues.
#[derive(Debug, Parser)]
#[command(name = "peers")]
struct Options {
    /// Number of measurements of each figure; the result is their median.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rounds: u16,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=3_600))]
    seconds: u16,
    /// Length of the load before each measurement.
    #[arg(long, default_value = "1s", value_parser = duration::parse)]
    warm_up: Duration,
    /// Measure and print only these rows (add, cycle, ...).
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    rows: Vec<String>,
    /// Measure this deltaq binary instead of building one.
    #[arg(long, value_name = "FILE")]
    deltaq: Option<PathBuf>,
    /// The folder for the data of the servers [default: target/peers].
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

/// The context of a run.
struct Run {
    root: PathBuf,
    rounds: Rounds,
    programs: Programs,
    clock: Clock,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = Options::parse();
    // Dropping `measure` ends all processes that it has started.
    let result = tokio::select! {
        result = measure(&options) => result,
        result = interrupted() => result.and(Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"))),
    };
    result.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

async fn interrupted() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        result = tokio::signal::ctrl_c() => result,
    }
}

async fn measure(options: &Options) -> io::Result<ExitCode> {
    let mut chosen = rows();
    let names: Vec<&str> = chosen.iter().map(|row| row.name).collect();
    if let Some(unknown) = options.rows.iter().find(|name| !names.contains(&name.as_str())) {
        let message = format!("unknown row {unknown:?}; the rows are {}", names.join(", "));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    chosen.retain(|row| options.rows.is_empty() || options.rows.iter().any(|name| name == row.name));
    let run = Run::prepare(options, &chosen).await?;
    let (mut lines, mut has_failed) = (Vec::new(), false);
    for row in &chosen {
        println!("\n{}: {}", row.name, row.about);
        match run.row(row).await {
            Ok(of_row) => lines.extend(of_row.into_iter().map(|line| (row.name, line))),
            // The remaining rows are still measured.
            Err(error) => {
                has_failed = true;
                println!("  failed: {error}");
            }
        }
    }
    if has_failed {
        return Ok(ExitCode::FAILURE);
    }
    if options.rows.is_empty() {
        run.write(&lines)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Run {
    async fn prepare(options: &Options, rows: &[Row]) -> io::Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.join("../..").canonicalize()?;
        let scratch = options.scratch.clone().unwrap_or_else(|| root.join("target/peers"));
        fs::create_dir_all(&scratch)?;
        let scratch = scratch.canonicalize()?;
        let (kinds, clock) = (kinds(rows), Clock::system());
        setup::install(&kinds)?;
        let mut built = Vec::new();
        for kind in &kinds {
            match (kind, &options.deltaq) {
                (Kind::Deltaq, Some(path)) => built.push((Kind::Deltaq, path.clone())),
                (Kind::Deltaq, None) => {
                    built
                        .push((Kind::Deltaq, setup::build(&root, "dist", "deltaq", &scratch, &clock).await?));
                }
                (Kind::Noop, _) => {
                    built.push((Kind::Noop, setup::build(here, "release", "noop", &scratch, &clock).await?));
                }
                _ => {}
            }
        }
        Ok(Self {
            rounds: Rounds {
                count: options.rounds.into(),
                warm_up: options.warm_up,
                measured: Duration::from_secs(options.seconds.into()),
            },
            programs: Programs::find(&kinds, &built, scratch)?,
            clock,
            root,
        })
    }

    /// Measures a row, and prints its lines.
    async fn row(&self, row: &Row) -> io::Result<Vec<Line>> {
        let results = in_turn(&row.subjects, &self.rounds, &self.programs, &self.clock).await?;
        let lines: Vec<Line> =
            row.claims.iter().filter_map(|claim| claim.line(&row.subjects, &results)).collect();
        for line in &lines {
            let ((name, figure), (other, compared), unit) = (&line.ours, &line.baseline, line.unit);
            let (ratio, target, reached) =
                (figures::short(line.ratio()), line.target, document::reached(line));
            println!("  {name} {figure}; {other} {compared} {unit}: {ratio} {target} {reached}");
        }
        Ok(lines)
    }

    /// Writes the chart, and the measured parts of the document.
    fn write(&self, lines: &[(&str, Line)]) -> io::Result<()> {
        let docs = self.root.join("docs");
        fs::create_dir_all(docs.join("plots"))?;
        fs::write(docs.join("plots/ratios.svg"), document::chart(lines))?;
        let git = ["log", "-1", "--format=%h (%cs)"];
        let commit = process::output(Command::new("git").args(git).current_dir(&self.root))?;
        let page = docs.join("benchmarks.md");
        let text = fs::read_to_string(&page)?;
        let table = format!("{}\n{}", document::table(lines), document::legend(&rows()));
        let text = document::with_block(&text, "table", &table)?;
        let machine = machine::described(&self.programs, &self.rounds, commit.trim());
        fs::write(page, document::with_block(&text, "machine", &machine)?)
    }
}

/// The servers that the rows need.
fn kinds(rows: &[Row]) -> Vec<Kind> {
    let is_needed = |kind: &Kind| {
        rows.iter().flat_map(|row| &row.subjects).any(|subject| {
            subject.kind == *kind || (*kind == Kind::Postgres && subject.storage.is_on_postgres())
        })
    };
    Kind::ALL.into_iter().filter(is_needed).collect()
}
