//! Compares deltaq with other queues under the same load, and measures how its cost grows.
//!
//! The program starts every server itself, loads one at a time from one thread, prints the results, and writes them into
//! docs/benchmarks.md. It never fails because of a measured figure.

mod cargo_bench;
mod document;
mod drivers;
mod figures;
mod growth;
mod hot_key;
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

use crate::growth::Series;
use crate::rows::{CHARTED, Line, Row, Work, rows};
use crate::servers::{Kind, Programs};
use crate::subject::{Rounds, Subject, in_turn};

/// The name of all series in `--rows`.
const GROWTH: &str = "growth";

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
    /// Measure only these rows (add, cycle, ..., growth); the document is then written only with --out.
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    rows: Vec<String>,
    /// The document to update [default: docs/benchmarks.md].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Skip the series of growing loads.
    #[arg(long)]
    no_growth: bool,
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
    scratch: PathBuf,
    rounds: Rounds,
    programs: Programs,
    /// The document to update, if any.
    out: Option<PathBuf>,
    date: String,
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
    let names: Vec<&str> = chosen.iter().map(|row| row.name).chain([GROWTH]).collect();
    if let Some(unknown) = options.rows.iter().find(|name| !names.contains(&name.as_str())) {
        let message = format!("unknown row {unknown:?}; the rows are {}", names.join(", "));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let is_requested = |name: &str| options.rows.is_empty() || options.rows.iter().any(|row| row == name);
    let series = if is_requested(GROWTH) && !options.no_growth { growth::series() } else { Vec::new() };
    chosen.retain(|row| is_requested(row.name));
    let run = Run::prepare(options, &chosen, &series).await?;
    let mut has_failed = false;
    for row in &chosen {
        println!("\n{}: {}\n  {}", row.name, row.about, document::command(row.name));
        match run.row(row).await {
            Ok(lines) => run.report(row, &lines)?,
            // The remaining rows are still measured.
            Err(error) => {
                has_failed = true;
                println!("  failed: {error}");
            }
        }
    }
    if !series.is_empty() {
        println!("\n{GROWTH}: how cost grows\n  {}", document::command(GROWTH));
        run.grow(&series).await?;
    }
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Run {
    async fn prepare(options: &Options, rows: &[Row], series: &[Series]) -> io::Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.join("../..").canonicalize()?;
        let scratch = options.scratch.clone().unwrap_or_else(|| root.join("target/peers"));
        fs::create_dir_all(&scratch)?;
        let scratch = scratch.canonicalize()?;
        let (kinds, clock) = (kinds(rows, series), Clock::system());
        setup::install(&kinds)?;
        let mut built = Vec::new();
        for kind in &kinds {
            match (kind, &options.deltaq) {
                (Kind::Deltaq, Some(path)) => built.push((Kind::Deltaq, path.clone())),
                (Kind::Deltaq, None) => {
                    built.push((Kind::Deltaq, setup::build(&root, "dist", "deltaq", &scratch, &clock).await?));
                }
                (Kind::Noop, _) => {
                    built.push((Kind::Noop, setup::build(here, "release", "noop", &scratch, &clock).await?));
                }
                _ => {}
            }
        }
        let document = || options.rows.is_empty().then(|| root.join("docs/benchmarks.md"));
        let out = options.out.clone().or_else(document);
        if let Some(out) = &out {
            // A missing marker must fail before the measurements, not after them.
            let text = fs::read_to_string(out)?;
            for name in ["machine", "table", GROWTH] {
                document::block(&text, name)?;
            }
        }
        Ok(Self {
            rounds: Rounds {
                count: options.rounds.into(),
                warm_up: options.warm_up,
                measured: Duration::from_secs(options.seconds.into()),
            },
            programs: Programs::find(&kinds, &built, scratch.clone())?,
            date: process::output(Command::new("date").args(["-u", "+%F"]))?.trim().to_owned(),
            clock,
            root,
            scratch,
            out,
        })
    }

    /// Measures a row. Returns no lines if the checked-out version of the project has no such benchmark.
    async fn row(&self, row: &Row) -> io::Result<Vec<Line>> {
        match &row.work {
            Work::Program(program) if !program.exists(&self.root) => {
                println!("  skipped: this version has no such benchmark");
                Ok(Vec::new())
            }
            Work::Program(program) => {
                program.measure(self.rounds.count, &self.root, &self.scratch, &self.clock).await
            }
            Work::TwoNodes => nodes::two_and_one(&self.programs, &self.rounds, &self.clock).await,
            Work::Takeover => nodes::takeovers(&self.programs, &self.rounds, &self.clock).await,
            Work::Loads { subjects, claims } | Work::HotKey { subjects, claims } => {
                let results = in_turn(subjects, &self.rounds, &self.programs, &self.clock).await?;
                let mut lines: Vec<Line> =
                    claims.iter().filter_map(|claim| claim.line(subjects, &results)).collect();
                if matches!(row.work, Work::HotKey { .. }) {
                    lines.push(hot_key::check(&self.programs, &self.clock).await?);
                }
                Ok(lines)
            }
        }
    }

    /// Prints the lines of a row and writes them into the document.
    fn report(&self, row: &Row, lines: &[Line]) -> io::Result<()> {
        for line in lines {
            let baseline = line.baseline.as_ref();
            let baseline = baseline.map(|(name, figure)| format!("; {name} {figure}")).unwrap_or_default();
            let ((name, figure), unit) = (&line.ours, &line.unit);
            let ratio = figures::short(line.ratio());
            let (target, reached) = (line.target, document::reached(line));
            println!("  {name} {figure}{baseline} {unit}: {ratio} {target} {reached}");
        }
        if lines.is_empty() {
            return Ok(());
        }
        if CHARTED.contains(&row.name) {
            self.plot(row.name, &document::chart(lines))?;
        }
        let all = rows();
        self.write("table", |old| {
            let table = document::table(old, &all, row.name, lines, &self.date);
            format!("{table}\n{}", document::legend(&all))
        })
    }

    async fn grow(&self, series: &[Series]) -> io::Result<()> {
        let mut text = String::new();
        for series in series {
            let results = in_turn(&series.subjects(), &self.rounds, &self.programs, &self.clock).await?;
            let (table, svg) = series.rendered(&results);
            println!("\n{table}");
            text.push_str(&table);
            text.push('\n');
            self.plot(series.name, &svg)?;
        }
        self.write(GROWTH, |_| text)
    }

    /// Writes a chart beside the document.
    fn plot(&self, name: &str, svg: &str) -> io::Result<()> {
        let Some(out) = &self.out else { return Ok(()) };
        let folder = out.parent().unwrap_or(Path::new("")).join("plots");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("{name}.svg")), svg)
    }

    /// Replaces a block of the document and the description of the machine.
    fn write(&self, name: &str, block: impl FnOnce(&str) -> String) -> io::Result<()> {
        let Some(out) = &self.out else { return Ok(()) };
        let text = fs::read_to_string(out)?;
        let block = block(document::block(&text, name)?);
        let text = document::with_block(&text, name, &block)?;
        let old = document::block(&text, "machine")?;
        let machine = machine::described(old, &self.programs, &self.rounds, &self.date);
        fs::write(out, document::with_block(&text, "machine", &machine)?)
    }
}

/// The servers that the rows and series need.
fn kinds(rows: &[Row], series: &[Series]) -> Vec<Kind> {
    let mut subjects: Vec<_> = series.iter().flat_map(Series::subjects).collect();
    for row in rows {
        if let Work::Loads { subjects: of_row, .. } | Work::HotKey { subjects: of_row, .. } = &row.work {
            subjects.extend(of_row.iter().cloned());
        }
        if matches!(row.work, Work::TwoNodes | Work::Takeover) {
            subjects.push(nodes::subject());
        }
    }
    let is_needed = |kind: &Kind| {
        let needs = |subject: &Subject| {
            subject.kind == *kind || (*kind == Kind::Postgres && subject.storage.is_on_postgres())
        };
        subjects.iter().any(needs)
    };
    Kind::ALL.into_iter().filter(is_needed).collect()
}
