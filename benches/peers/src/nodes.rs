//! Two nodes of deltaq on one database.

use std::io;
use std::time::Duration;

use deltaq::bench::{self, HttpClient, Timing, Wire};
use deltaq_runtime::clock::Clock;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

use crate::figures::{Figure, Target};
use crate::process::POLL_INTERVAL;
use crate::rows::{LOAD, Line};
use crate::servers::{Kind, Programs, Running, Storage};
use crate::subject::{GRACE, KNOWN_BYTES, Load, QUEUE, Rounds, Subject, path, within};

/// The secret that the nodes share.
pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// The end of the head of a reply.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// Queues that are created until one of them belongs to the other node. Each belongs to either node with the same probability.
const QUEUES_MAX: u32 = 64;
/// The load of each of two queues. Batches of 10 leave most of the machine to the servers.
const HALF: Load = Load { connections: 16, batch: 10, ..LOAD };
/// Known keys of the queue that is taken over.
const TAKEN_KEYS: u64 = 100_000;
/// The share of the machine that the load generator may use.
const GENERATOR_SHARE: f64 = 0.33;
const NO_LOAD: Timing = Timing { warm_up: Duration::ZERO, measured: Duration::ZERO, pause: Duration::ZERO };
/// Longest wait after a kill: the TTL of a node, 10 s, and 2 s.
const KILL_MS_MAX: f64 = 12_000.0;
/// Longest wait during a clean stop.
const STOP_MS_MAX: f64 = 1_000.0;

/// Two nodes with the queue of a takeover. Its load is not measured.
pub(crate) fn subject() -> Subject {
    let load = Load { known: TAKEN_KEYS, object_bytes: KNOWN_BYTES, ..LOAD };
    Subject { name: "two nodes".into(), kind: Kind::Deltaq, storage: Storage::OwnerNode, load }
}

/// Measures two nodes, each with a queue of its own, and one node with both queues, in turns.
pub(crate) async fn two_and_one(
    programs: &Programs,
    rounds: &Rounds,
    clock: &Clock,
) -> io::Result<Vec<Line>> {
    let (mut two, mut one, mut generator) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds.count {
        for (storage, rates) in [(Storage::OwnerNode, &mut two), (Storage::Postgres, &mut one)] {
            let server = programs.start(Kind::Deltaq, storage, clock).await?;
            let (other, queue) = match storage {
                Storage::OwnerNode => {
                    let other = other_node(&server)?;
                    (other, owned_queue(other).await?)
                }
                _ => (server.address.as_str(), format!("{QUEUE}-1")),
            };
            let (rate, share) =
                load(&server.address, &format!("{QUEUE}-0"), other, &queue, rounds, clock).await?;
            eprintln!("  {storage:?}: {rate:.0} objects/s, load generator {share:.2} of the machine");
            rates.push(rate);
            generator.push(share);
        }
    }
    Ok(vec![
        Line {
            unit: "objects/s".into(),
            ours: ("two nodes".into(), figure(two)?),
            baseline: Some(("one node".into(), figure(one)?)),
            target: Target::AtLeast(1.0),
        },
        Line {
            unit: "of the machine".into(),
            ours: ("load generator".into(), figure(generator)?),
            baseline: None,
            target: Target::AtMost(GENERATOR_SHARE),
        },
    ])
}

/// The throughput of two queues together, and the share of the machine that this process used.
async fn load(
    one: &str,
    queue_of_one: &str,
    other: &str,
    queue_of_other: &str,
    rounds: &Rounds,
    clock: &Clock,
) -> io::Result<(f64, f64)> {
    let timing = Timing { warm_up: rounds.warm_up, measured: rounds.measured, pause: Duration::ZERO };
    let plan = |authority: &str, queue: &str| bench::Plan {
        authority: authority.to_owned(),
        scenario: HALF.scenario,
        queues: vec![queue.to_owned()],
        connections: HALF.connections,
        batch: HALF.batch,
        object_bytes: HALF.object_bytes,
        keys: HALF.keys,
        token: None,
        timing,
    };
    let (first, second) = (plan(one, queue_of_one), plan(other, queue_of_other));
    bench::create(&first, queue_of_one).await?;
    bench::create(&second, queue_of_other).await?;
    let (begun_us, used) = (clock.monotonic_us(), processor_seconds());
    let both =
        async { tokio::try_join!(bench::run(&first, clock, |_| {}), bench::run(&second, clock, |_| {})) };
    let (first, second) = within(timing.warm_up + timing.measured + GRACE, both).await?;
    let cores = std::thread::available_parallelism()?.get();
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let available = clock.since(begun_us).as_secs_f64() * cores as f64;
    let share = (processor_seconds() - used) / available;
    Ok((first.rate(first.objects) + second.rate(second.objects), share))
}

/// Measures how long a queue has no owner after its owner is killed, and while its owner stops.
pub(crate) async fn takeovers(programs: &Programs, rounds: &Rounds, clock: &Clock) -> io::Result<Vec<Line>> {
    let (mut killed, mut stopped) = (Vec::new(), Vec::new());
    for _ in 0..rounds.count {
        for (signal, waits) in [(Signal::KILL, &mut killed), (Signal::TERM, &mut stopped)] {
            let owner = programs.start(Kind::Deltaq, Storage::OwnerNode, clock).await?;
            subject().prepare(&owner.address, NO_LOAD).await?;
            let wait = within(GRACE, longest_wait(&owner, signal, clock)).await?;
            eprintln!("  {signal:?}: {wait:.0} ms");
            waits.push(wait);
        }
    }
    let line = |name: &str, waits, target| Line {
        unit: "ms".into(),
        ours: (name.to_owned(), waits),
        baseline: None,
        target,
    };
    Ok(vec![
        line("owner killed", figure(killed)?, Target::AtMost(KILL_MS_MAX)),
        line("owner stopped", figure(stopped)?, Target::Below(STOP_MS_MAX)),
    ])
}

/// Ends the owner of the first queue, and makes calls at the other node until that node owns the queue. The longest time until a call
/// succeeded, in milliseconds.
async fn longest_wait(owner: &Running, signal: Signal, clock: &Clock) -> io::Result<f64> {
    let address = other_node(owner)?;
    let mut client = HttpClient::open(address, None).await?;
    let mut longest = Duration::ZERO;
    owner.process.signal(signal)?;
    while is_forwarded(address, &path("")).await? {
        let begun_us = clock.monotonic_us();
        while client.call("POST", &path("/update"), "{\"key\":\"k\"}").await.is_err() {
            tokio::time::sleep(POLL_INTERVAL).await;
            client = HttpClient::open(address, None).await?;
        }
        longest = longest.max(clock.since(begun_us));
    }
    Ok(longest.as_secs_f64() * 1e3)
}

/// The two nodes once each owns half of the partitions: first the node that owns the first queue, which is created.
pub(crate) async fn owner_first(
    one: Running,
    other: Running,
    clock: &Clock,
) -> io::Result<(Running, Running)> {
    let begun_us = clock.monotonic_us();
    loop {
        let (owned, of_other) = (partitions(&one.address).await?, partitions(&other.address).await?);
        if owned > 0 && owned == of_other {
            break;
        }
        if clock.since(begun_us) > GRACE {
            return Err(io::Error::other(format!("the nodes own {owned} and {of_other} partitions")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    HttpClient::open(&one.address, None).await?.call("PUT", &path(""), "{}").await?;
    if is_forwarded(&one.address, &path("")).await? { Ok((other, one)) } else { Ok((one, other)) }
}

/// The address of the other node.
fn other_node(owner: &Running) -> io::Result<&str> {
    let other = owner.beside.first().ok_or_else(|| io::Error::other("there is no other node"))?;
    Ok(&other.address)
}

/// A new queue that this node owns.
async fn owned_queue(address: &str) -> io::Result<String> {
    for number in 1..QUEUES_MAX {
        let queue = format!("{QUEUE}-{number}");
        let path = format!("/v1/queues/{queue}");
        HttpClient::open(address, None).await?.call("PUT", &path, "{}").await?;
        if !is_forwarded(address, &path).await? {
            return Ok(queue);
        }
    }
    Err(io::Error::other(format!("{address} owns none of {QUEUES_MAX} queues")))
}

/// The number of partitions that a node owns.
async fn partitions(address: &str) -> io::Result<u32> {
    const NAME: &str = "deltaq_owned_partitions ";
    let mut client = HttpClient::open(address, None).await?;
    let metrics = String::from_utf8_lossy(client.call("GET", "/metrics", "").await?).into_owned();
    let value = metrics.lines().find_map(|line| line.strip_prefix(NAME)?.trim().parse().ok());
    value.ok_or_else(|| io::Error::other(format!("there is no {NAME}")))
}

/// Whether a node does not answer a GET of this path itself: only replies to forwarded calls name the owner.
async fn is_forwarded(address: &str, path: &str) -> io::Result<bool> {
    let mut wire = Wire::open(address).await?;
    wire.send(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).await?;
    let end =
        |received: &[u8]| Ok(memchr::memmem::find(received, HEAD_END).map(|start| start + HEAD_END.len()));
    let head = String::from_utf8_lossy(wire.receive(end).await?).to_ascii_lowercase();
    Ok(!head.starts_with("http/1.1 200") || head.contains("\r\ndeltaq-owner:"))
}

fn figure(values: Vec<f64>) -> io::Result<Figure> {
    Figure::of(values).ok_or_else(|| io::Error::other("nothing was measured"))
}

/// The processor time that this process has used.
#[expect(clippy::cast_precision_loss, reason = "for people")]
fn processor_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}
