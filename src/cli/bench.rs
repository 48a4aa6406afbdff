//! `deltaq bench`: flags and report of the load generator.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use deltaq_runtime::clock::Clock;
use deltaq_types::duration;
use deltaq_types::range::shown_url;
use serde::Serialize;

use crate::bench::{self, Latencies, Measured, Plan, Progress, Scenario, Timing};

/// `deltaq bench`.
#[derive(Debug, Clone, Args)]
pub struct Bench {
    /// The operation that each connection repeats.
    #[arg(value_enum, default_value = "add-pop")]
    pub scenario: Scenario,
    /// The server's address: plain http, without TLS. Of several addresses, the first one is measured.
    #[arg(long, env = "DELTAQ_URL", default_value = "http://127.0.0.1:7070")]
    pub url: String,
    /// Name of the queue, which is not deleted at the end; with --queues, the prefix of the names [default: temporary queues].
    #[arg(long, value_name = "NAME")]
    pub queue: Option<String>,
    /// Number of queues; the scenario hand-off always has one queue per connection.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub queues: u16,
    /// Number of connections; each sends one request at a time.
    #[arg(long, short, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub connections: u16,
    /// Objects per request, and keys per pop.
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub batch: u32,
    /// Size of an object, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 256)]
    pub object_bytes: u32,
    /// Number of keys to draw from at random [default: each key is new].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: Option<u64>,
    /// Duration of the load before the measurement.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    pub warm_up: Duration,
    /// Duration of the measurement.
    #[arg(long, short, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub duration: Duration,
    /// Pause of a connection after each operation.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub rest: Duration,
    /// File with a bearer token.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Print the results as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    scenario: String,
    connections: u16,
    queues: u16,
    batch: u32,
    object_bytes: u32,
    keys: Option<u64>,
    measured_s: f64,
    requests: u64,
    objects: u64,
    requests_per_s: f64,
    objects_per_s: f64,
    latency_us: Latencies,
    /// Objects by queue, if there are several.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    objects_by_queue: BTreeMap<String, u64>,
}

impl Bench {
    /// Runs the load and prints the report.
    ///
    /// # Errors
    /// The server can't be reached, or a response is not a success.
    pub fn run(&self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let report = runtime.block_on(self.measure())?;
        if io::stderr().is_terminal() {
            eprintln!();
        }
        let mut out = io::stdout().lock();
        if self.json {
            return writeln!(out, "{}", serde_json::to_string(&report)?);
        }
        let Report { requests_per_s, objects_per_s, latency_us: took, .. } = &report;
        writeln!(
            out,
            "{}: {objects_per_s:.0} objects/s, {requests_per_s:.0} requests/s on {} connections, {} objects of {} \
             bytes in a request",
            report.scenario, self.connections, self.batch, self.object_bytes
        )?;
        let Latencies { p50, p90, p99, p99_9, max } = took;
        writeln!(out, "an operation took p50 {p50} µs, p90 {p90}, p99 {p99}, p99.9 {p99_9}, max {max}")?;
        for (queue, objects) in &report.objects_by_queue {
            writeln!(out, "{queue}: {objects} objects")?;
        }
        Ok(())
    }

    async fn measure(&self) -> io::Result<Report> {
        let plan = self.plan()?;
        let clock = Clock::system();
        if self.queue.is_some() {
            return Ok(self.report(&plan, &bench::run(&plan, &clock, show_progress).await?));
        }
        let measured = async {
            for queue in &plan.queues {
                bench::create(&plan, queue).await?;
            }
            bench::run(&plan, &clock, show_progress).await
        };
        let measured = measured.await;
        let mut deleted = Ok(());
        for queue in &plan.queues {
            deleted = deleted.and(bench::delete(&plan, queue).await);
        }
        // The first error is the cause.
        let measured = measured?;
        deleted?;
        Ok(self.report(&plan, &measured))
    }

    fn plan(&self) -> io::Result<Plan> {
        let authority = authority(&self.url)?;
        if self.duration.is_zero() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "--duration 0s measures nothing"));
        }
        // Each waiting pop must get the object of its own connection.
        let queues = if self.scenario == Scenario::HandOff { self.connections } else { self.queues };
        let name = self.queue.clone().unwrap_or_else(|| format!("bench-{:08x}", fastrand::u32(..)));
        let token = self.token_file.as_deref().map(|path| {
            std::fs::read_to_string(path).map_err(|error| {
                let text = format!("can't read the token file {}: {error}", path.display());
                io::Error::new(error.kind(), text)
            })
        });
        let token = token.transpose()?;
        Ok(Plan {
            authority,
            scenario: self.scenario,
            queues: match queues {
                1 => vec![name],
                several => (1..=several).map(|number| format!("{name}-{number}")).collect(),
            },
            connections: self.connections.into(),
            batch: usize::try_from(self.batch).unwrap_or(usize::MAX),
            object_bytes: usize::try_from(self.object_bytes).unwrap_or(usize::MAX),
            keys: self.keys,
            token: token.map(|token| token.trim().to_owned()),
            timing: Timing { warm_up: self.warm_up, measured: self.duration, pause: self.rest },
        })
    }

    fn report(&self, plan: &Plan, measured: &Measured) -> Report {
        let by_queue = plan.queues.iter().cloned().zip(measured.groups.iter().copied());
        let scenario = clap::ValueEnum::to_possible_value(&self.scenario);
        Report {
            scenario: scenario.map(|value| value.get_name().to_owned()).unwrap_or_default(),
            connections: self.connections,
            queues: u16::try_from(plan.queues.len()).unwrap_or(u16::MAX),
            batch: self.batch,
            object_bytes: self.object_bytes,
            keys: self.keys,
            measured_s: measured.lasted.as_secs_f64(),
            requests: measured.requests,
            objects: measured.objects,
            requests_per_s: measured.rate(measured.requests),
            objects_per_s: measured.rate(measured.objects),
            latency_us: measured.latencies(),
            objects_by_queue: if plan.queues.len() > 1 { by_queue.collect() } else { BTreeMap::new() },
        }
    }
}

/// The host and port of an address. The scheme is optional.
fn authority(url: &str) -> io::Result<String> {
    let wrong = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    let url = url.split(',').next().unwrap_or(url).trim();
    let shown = shown_url(url);
    if url.starts_with("https://") {
        return wrong(format!(
            "bench measures plain http and has no TLS, so it can't call {shown}. Start the same server without \
             server.tls_cert on a loopback address, and measure that"
        ));
    }
    let authority = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    let port = authority.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    if authority.contains('/') || !matches!(port, Some(Ok(_))) {
        return wrong(format!(
            "invalid server address {shown:?}; write it with its port, like http://127.0.0.1:7070"
        ));
    }
    Ok(authority.to_owned())
}

/// Progress goes to stderr, results to stdout.
fn show_progress(progress: Progress) {
    let mut out = io::stderr().lock();
    if out.is_terminal() {
        let what = if progress.is_measured { "measured" } else { "warm-up" };
        let (seconds, objects) = (progress.elapsed.as_secs_f64(), progress.objects);
        let _best_effort = write!(out, "\r{what} {seconds:.0} s: {objects} objects/s   ");
    }
}
