//! Overload: four times the load that the server sustains, and thousands of connections that are slow on purpose.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::spawned::{Spawned, percentile_ms};

/// The content of requests.
#[derive(Clone, Copy)]
struct Load {
    /// Objects in a request.
    batch: u64,
    /// Approximate bytes of each object.
    object_bytes: usize,
}

/// Small requests: much of the work is done by the client, which shares the processors with the server.
const SMALL: Load = Load { batch: 20, object_bytes: 200 };
/// Large requests: most of the work is done by the server.
const LARGE: Load = Load { batch: 100, object_bytes: 1_000 };
/// Concurrent requests while the sustained load is measured.
const SUSTAINED_CONNECTIONS: usize = 64;
const SUSTAINED: Duration = Duration::from_secs(10);
/// The flood as a multiple of the sustained load, and its length.
const FLOOD_TIMES: f64 = 4.0;
const FLOOD: Duration = Duration::from_mins(1);
/// Seconds of measurement after the flood.
const AFTER_SECONDS: usize = 5;
/// Connections of the flood. A request that finds all of them busy is not sent but counted.
const CONNECTIONS_MAX: usize = 6_000;
/// Connections that send a request head byte by byte.
const SLOW_CONNECTIONS: usize = 5_000;
const SLOW_PAUSE: Duration = Duration::from_secs(1);

/// Raises the limit of open files and runs a scenario.
pub(crate) fn run(scenario: impl Future<Output = ()>) {
    let files = rlimit::increase_nofile_limit(20_000).expect("a limit of open files");
    let wanted = CONNECTIONS_MAX.max(SLOW_CONNECTIONS) as u64 + 100;
    assert!(files > wanted, "ulimit -Hn is {files}; the benchmark opens {wanted} files");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(scenario);
}

/// A data directory that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("overload-{}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _absent = std::fs::remove_dir_all(&path);
        Self(path)
    }

    /// A server whose queue keeps only the newest object of each key, so its size is bounded.
    fn server(&self) -> Spawned {
        let server = Spawned::start(&["--data-dir", self.0.to_str().expect("a path in UTF-8")]);
        let mut connection = server.connect();
        connection.call("PUT", "/v1/queues/flood", r#"{"mode":"latest"}"#);
        server
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

/// The parts of a reply that are measured.
struct Reply {
    status: u16,
    retries_after: bool,
    took_us: u64,
}

/// A persistent connection.
struct Caller {
    stream: TcpStream,
    clock: Clock,
}

impl Caller {
    async fn connect(address: &str, clock: &Clock) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        Self { stream, clock: clock.clone() }
    }

    /// Sends a request and reads the reply. `None` if the server closed the connection instead.
    async fn call(&mut self, request: &[u8]) -> Option<Reply> {
        let begun_us = self.clock.monotonic_us();
        // A server that refuses the request need not read all of it. The reply can be read all the same.
        let _refused = self.stream.write_all(request).await;
        let mut text = Vec::new();
        loop {
            let read = self.stream.read_buf(&mut text).await.unwrap_or_default();
            let took_us = self.clock.monotonic_us() - begun_us;
            let head = text.windows(4).position(|window| window == b"\r\n\r\n");
            if let Some(head) = head {
                let head = String::from_utf8_lossy(text.get(..head).unwrap_or_default()).to_ascii_lowercase();
                self.rest(&head, text.len()).await?;
                let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
                let retries_after = head.contains("\r\nretry-after: ");
                return Some(Reply { status: status.expect("a status"), retries_after, took_us });
            }
            if read == 0 {
                return None;
            }
        }
    }

    /// Reads the rest of a reply whose head and first bytes were read.
    async fn rest(&mut self, head: &str, have: usize) -> Option<()> {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|length| length.trim().parse().ok()).expect("a length");
        let mut missing = (head.len() + 4 + length).saturating_sub(have);
        let mut buffer = vec![0; 4_096];
        while missing > 0 {
            let read = self.stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
            missing = missing.saturating_sub(read);
        }
        (!head.contains("\r\nconnection: close")).then_some(())
    }
}

/// A batch of adds.
fn batch(load: Load, number: u64) -> Vec<u8> {
    let Load { batch, object_bytes } = load;
    let padding = "x".repeat(object_bytes);
    let objects = (0..batch)
        .map(|object| format!("{{\"key\":\"{}\",\"text\":\"{padding}\"}}", number * batch + object));
    let body = format!("[{}]", objects.collect::<Vec<_>>().join(","));
    let head = "POST /v1/queues/flood/add HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Number of prepared batches, each with its own keys.
const BATCHES: u64 = 100;

fn batches(load: Load) -> Arc<Vec<Vec<u8>>> {
    Arc::new((0..BATCHES).map(|number| batch(load, number)).collect())
}

fn of(batches: &[Vec<u8>], number: u64) -> &[u8] {
    let index = usize::try_from(number % BATCHES).unwrap_or_default();
    batches.get(index).expect("a batch for each number")
}

/// Sends requests on connections that each wait for their reply, which must be a 200. Returns the requests per second and their
/// sorted durations in microseconds.
async fn closed_loop(
    address: &str,
    load: Load,
    clock: &Clock,
    connections: usize,
    time: Duration,
) -> (f64, Vec<u64>) {
    let (batches, next) = (batches(load), Arc::new(AtomicU64::new(0)));
    let until_us = clock.monotonic_us() + u64::try_from(time.as_micros()).expect("a short time");
    let mut callers = JoinSet::new();
    for _ in 0..connections {
        let (batches, next, clock) = (batches.clone(), next.clone(), clock.clone());
        let mut caller = Caller::connect(address, &clock).await;
        callers.spawn(async move {
            let mut times = Vec::new();
            while clock.monotonic_us() < until_us {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let reply = caller.call(of(&batches, number)).await.expect("a reply");
                assert_eq!(reply.status, 200, "the server sustains this load");
                times.push(reply.took_us);
            }
            times
        });
    }
    let mut times: Vec<u64> = callers.join_all().await.into_iter().flatten().collect();
    times.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let rate = times.len() as f64 / time.as_secs_f64();
    (rate, times)
}

/// The outcomes of the requests of a flood.
#[derive(Default)]
struct Outcome {
    accepted: Vec<u64>,
    refused: Vec<u64>,
    other_statuses: Vec<u16>,
    without_retry_after: usize,
    disconnected: usize,
    not_sent: usize,
}

/// Four times the load that the server sustains, of small requests and of large ones.
pub(crate) async fn flood() {
    for load in [SMALL, LARGE] {
        flood_of(load).await;
    }
}

async fn flood_of(load: Load) {
    let Load { batch, object_bytes } = load;
    let (folder, clock) = (Folder::new(), Clock::system());
    let server = folder.server();
    let (sustained, times) =
        closed_loop(&server.address, load, &clock, SUSTAINED_CONNECTIONS, SUSTAINED).await;
    println!(
        "sustained: {sustained:.0} requests/s of {batch} objects of {object_bytes} bytes on {SUSTAINED_CONNECTIONS} connections, p50 {:.1} ms, p99 {:.1} ms, {} MiB",
        percentile_ms(&times, 0.5),
        percentile_ms(&times, 0.99),
        server.memory("VmRSS:") >> 20
    );
    let mut outcome = open_loop(&server.address, load, &clock, sustained * FLOOD_TIMES).await;
    outcome.accepted.sort_unstable();
    outcome.refused.sort_unstable();
    let offered = outcome.accepted.len() + outcome.refused.len() + outcome.not_sent + outcome.disconnected;
    println!(
        "flood: {offered} requests offered in {} s, {} accepted (p50 {:.0} ms, p99 {:.0} ms), {} refused (p50 {:.1} ms, p99 {:.1} ms, longest {:.0} ms), {} of them without Retry-After",
        FLOOD.as_secs(),
        outcome.accepted.len(),
        percentile_ms(&outcome.accepted, 0.5),
        percentile_ms(&outcome.accepted, 0.99),
        outcome.refused.len(),
        percentile_ms(&outcome.refused, 0.5),
        percentile_ms(&outcome.refused, 0.99),
        percentile_ms(&outcome.refused, 1.0),
        outcome.without_retry_after,
    );
    println!(
        "       {} replies with other statuses, {} disconnects, {} requests not sent for lack of a connection; peak {} MiB",
        outcome.other_statuses.len(),
        outcome.disconnected,
        outcome.not_sent,
        server.memory("VmHWM:") >> 20
    );
    for second in 1..=AFTER_SECONDS {
        let (rate, times) =
            closed_loop(&server.address, load, &clock, SUSTAINED_CONNECTIONS, Duration::from_secs(1)).await;
        println!(
            "second {second} after: {rate:.0} requests/s, p50 {:.1} ms, p99 {:.1} ms",
            percentile_ms(&times, 0.5),
            percentile_ms(&times, 0.99)
        );
    }
}

/// Sends each request at its planned time, even while earlier requests are unanswered.
async fn open_loop(address: &str, load: Load, clock: &Clock, rate: f64) -> Outcome {
    let (batches, idle) = (batches(load), Arc::new(Mutex::new(Vec::<Caller>::new())));
    let (mut outcome, mut running, mut open) = (Outcome::default(), JoinSet::<Option<Reply>>::new(), 0);
    let begun = tokio::time::Instant::now();
    let mut number = 0;
    while begun.elapsed() < FLOOD {
        number += 1;
        #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
        let due = begun + Duration::from_secs_f64(number as f64 / rate);
        tokio::time::sleep_until(due).await;
        while let Some(done) = running.try_join_next() {
            open -= note(&mut outcome, done.expect("no panic").as_ref());
        }
        let caller = match idle.lock().await.pop() {
            Some(caller) => caller,
            None if open < CONNECTIONS_MAX => {
                open += 1;
                Caller::connect(address, clock).await
            }
            None => {
                outcome.not_sent += 1;
                continue;
            }
        };
        let (batches, idle) = (batches.clone(), idle.clone());
        running.spawn(async move {
            let mut caller = caller;
            let reply = caller.call(of(&batches, number)).await;
            if reply.is_some() {
                idle.lock().await.push(caller);
            }
            reply
        });
    }
    while let Some(done) = running.join_next().await {
        note(&mut outcome, done.expect("no panic").as_ref());
    }
    outcome
}

/// Counts a reply. Returns the number of connections that ended with it.
fn note(outcome: &mut Outcome, reply: Option<&Reply>) -> usize {
    match reply {
        Some(Reply { status: 200, took_us, .. }) => outcome.accepted.push(*took_us),
        Some(Reply { status: 429 | 503, retries_after, took_us }) => {
            outcome.refused.push(*took_us);
            outcome.without_retry_after += usize::from(!retries_after);
        }
        Some(Reply { status, .. }) => outcome.other_statuses.push(*status),
        None => {
            outcome.disconnected += 1;
            return 1;
        }
    }
    0
}

/// Normal callers, without and with connections that never complete the head of a request.
pub(crate) async fn slow() {
    let (folder, clock) = (Folder::new(), Clock::system());
    let server = folder.server();
    let measured = Duration::from_secs(10);
    let show = |name: &str, (rate, times): (f64, Vec<u64>)| {
        let (p50, p99) = (percentile_ms(&times, 0.5), percentile_ms(&times, 0.99));
        println!("{name}: {rate:.0} requests/s, p50 {p50:.1} ms, p99 {p99:.1} ms");
    };
    show("alone", closed_loop(&server.address, SMALL, &clock, 8, measured).await);
    let stop = Arc::new(AtomicBool::new(false));
    let mut dripping = JoinSet::new();
    for _ in 0..SLOW_CONNECTIONS {
        let (address, stop) = (server.address.clone(), stop.clone());
        dripping.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                // A client that is disconnected connects again at once.
                let Ok(mut stream) = TcpStream::connect(&address).await else { continue };
                for byte in b"GET /v1/info HTTP/1.1\r\nx-slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" {
                    tokio::time::sleep(SLOW_PAUSE).await;
                    if stop.load(Ordering::Relaxed) || stream.write_all(&[*byte]).await.is_err() {
                        break;
                    }
                }
            }
        });
    }
    let with = closed_loop(&server.address, SMALL, &clock, 8, measured).await;
    show(&format!("with {SLOW_CONNECTIONS} slow connections"), with);
    println!("peak {} MiB", server.memory("VmHWM:") >> 20);
    stop.store(true, Ordering::Relaxed);
    dripping.abort_all();
}
