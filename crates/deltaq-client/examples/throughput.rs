//! Measures a worker: how many keys a second go through empty handlers, with leases, batches of settles and fencing tokens.
//!
//!     cargo run --release -p deltaq-client --example throughput -- http://127.0.0.1:7070 200000 1000 1000
//!
//! The arguments are the address, the number of keys, the keys of one pop, and the handlers at once. `deltaq bench` measures the same calls without
//! this crate. The queue `throughput` must not exist; it is deleted at the end.

use std::process::ExitCode;

use deltaq_client::{CancellationToken, Client, Job, Outcome};
use serde_json::json;
use tokio::time::Instant;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Objects of one add.
const ADDED: usize = 1_000;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("usage: throughput URL [KEYS [BATCH [CONCURRENCY]]]")?;
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse::<usize>());
    let (keys, batch, concurrency) = (number(200_000)?, number(1_000)?, number(1_000)?);
    let queue = Client::at(url)?.queue("throughput");
    queue.put_settings(&json!({})).await?;
    for first in (0..keys).step_by(ADDED) {
        let objects =
            (first..keys.min(first + ADDED)).map(|number| json!({"key": format!("k{number}"), "n": number}));
        queue.add(&objects.collect::<Vec<_>>()).await?;
    }
    // A closed queue ends its workers when it is empty.
    queue.close().await?;
    let worker = queue.worker().batch(batch as u64).concurrency(concurrency);
    let started = Instant::now();
    let report = worker.run(CancellationToken::new(), handle).await?;
    let (acknowledged, took) = (report.acknowledged, started.elapsed());
    let per_second = u128::from(acknowledged) * 1_000 / took.as_millis().max(1);
    println!("{acknowledged} keys in {took:.2?}: {per_second} keys/s");
    queue.delete_queue().await?;
    Ok(())
}

async fn handle(job: Job) -> Outcome {
    match job.object::<serde_json::Value>() {
        Ok(Some(_)) if job.fencing_token() > 0 => Outcome::Ack,
        _ => Outcome::reject("the object is missing"),
    }
}
