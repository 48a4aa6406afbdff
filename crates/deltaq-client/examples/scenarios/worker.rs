//! A worker whose handlers do what the target says.

use std::time::Duration;

use deltaq_client::types::{HoldScope, duration};
use deltaq_client::{CancellationToken, Job, Notice, Outcome, Queue};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Failure, duration_setting, required, setting};

const TARGET_TIMEOUT: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(10);

/// What the target says about the end of a handler.
#[derive(Deserialize)]
struct Plan {
    #[serde(rename = "as")]
    how: String,
    hold: Option<String>,
    hold_scope: Option<HoldScope>,
    delay: Option<String>,
    #[serde(default)]
    floor: bool,
    error: Option<String>,
    message: Option<String>,
    #[serde(default)]
    before_write: bool,
}

pub(crate) async fn run(queue: Queue, stop: CancellationToken) -> Result<(), Failure> {
    let (target, name) = (required("TARGET_URL")?, required("WORKER_NAME")?);
    let number = |name| setting(name).map_or(Ok(1), |text| text.parse::<usize>());
    let mut worker = queue.worker().name(&name).grace(GRACE);
    worker = worker.concurrency(number("CONCURRENCY")?).batch(number("BATCH")? as u64);
    if let Some(lease) = duration_setting("LEASE")? {
        worker = worker.lease_duration(lease);
    }
    if let Some(breaker) = setting("BREAKER") {
        worker = worker.breaker(breaker.parse()?);
    }
    if let Some(group) = setting("GROUP") {
        worker = worker.group(group);
    }
    let worker = worker.on_notice(|notice| match notice {
        Notice::Paused { .. } => eprintln!("the worker pauses: {notice:?}"),
        Notice::Resumed => eprintln!("the worker goes on"),
        Notice::QueueNotFound { queue } => eprintln!("queue {queue} does not exist yet"),
        notice => eprintln!("{notice:?}"),
    });
    // One connection per request: a target that is restarted never meets a request twice.
    // The client of the target is the program's own, and so is its TLS provider.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().timeout(TARGET_TIMEOUT).pool_max_idle_per_host(0).build()?;
    let report = worker.run(stop, move |job| handle(http.clone(), target.clone(), name.clone(), job)).await?;
    eprintln!("{report:?}");
    Ok(())
}

async fn handle(http: reqwest::Client, target: String, worker: String, job: Job) -> Result<Outcome, Failure> {
    let body = describe(&worker, &job).to_string();
    let post = |path| {
        http.post(format!("{target}/{path}")).header("content-type", "application/json").body(body.clone())
    };
    let plan = post("start").send().await?.error_for_status()?.bytes().await?;
    let plan: Plan = serde_json::from_slice(&plan)?;
    assert!(!plan.before_write, "{}", plan.message.unwrap_or_default());
    if job.is_lost() {
        return Ok(Outcome::Release);
    }
    post("write").send().await?.error_for_status()?;
    let delay = plan.delay.map(|text| duration::parse(&text)).transpose()?;
    let hold = plan.hold.map(|text| duration::parse(&text)).transpose()?;
    Ok(match plan.how.as_str() {
        "ack" => Outcome::Ack,
        "nack" => Outcome::Nack { delay, floor: plan.floor, error: plan.error },
        "release" => Outcome::Hold {
            scope: plan.hold_scope.unwrap_or_default(),
            acks: false,
            length: hold.unwrap_or_default(),
        },
        "reject" => Outcome::Reject { error: plan.error },
        "done" => Outcome::Done { delay },
        _ => panic!("{}", plan.message.unwrap_or_default()),
    })
}

fn describe(worker: &str, job: &Job) -> Value {
    let item = job.item();
    let versions: Vec<_> = item.deltas.iter().map(|delta| delta.resource_version.to_string()).collect();
    json!({
        "worker": worker,
        "key": job.key(),
        "token": job.fencing_token().to_string(),
        "attempt": item.attempt,
        "lease_id": item.lease.id,
        "versions": versions,
        "type": job.newest().map(|newest| newest.kind.as_str()),
        "object": job.newest().map(|newest| &newest.object),
    })
}
