//! The heartbeats of a source: the server knows that the process lives, and an alert needs no scrape of it.

use std::time::Duration;

use deltaq_client::Client;
use deltaq_client::types::{HEARTBEAT_SECS, ReflectorReport, Timestamp};
use deltaq_runtime::clock::Clock;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tracing::debug;

/// How often a heartbeat is sent.
const BEAT_EVERY: Duration = Duration::from_secs(HEARTBEAT_SECS);
/// Timeout of a call.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Timeout of the last call, which delays the end of the process.
const LAST_CALL_MAX: Duration = Duration::from_secs(2);
/// Maximum length of an error in bytes.
const ERROR_BYTES_MAX: usize = 2_000;
/// The name of the machine.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// What the next heartbeat says.
#[derive(Debug)]
pub(super) struct Heartbeat {
    report: Mutex<ReflectorReport>,
    clock: Clock,
}

impl Heartbeat {
    pub(super) fn new(source: &str, kind: &str, interval: Duration, clock: Clock) -> Self {
        let report = ReflectorReport {
            source: source.to_owned(),
            instance: instance(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kind: kind.to_owned(),
            interval: interval.into(),
            last_success_at: None,
            failing: false,
            last_error: None,
            last_error_at: None,
            next_list_at: None,
            sent_at: None,
            stopped: false,
        };
        Self { report: Mutex::new(report), clock }
    }

    /// The heartbeat of any source.
    #[cfg(test)]
    pub(super) fn of_test() -> Self {
        Self::new("s", "files", Duration::from_mins(1), Clock::system())
    }

    /// Notes that the queue is in step.
    pub(super) fn succeeded(&self) {
        let mut report = self.report.lock();
        report.last_success_at = Some(Timestamp::from_micros(self.clock.wall_us()));
        report.failing = false;
    }

    /// Notes a failed attempt.
    pub(super) fn failed(&self, error: &str) {
        let mut error = error.to_owned();
        error.truncate(error.floor_char_boundary(ERROR_BYTES_MAX));
        let mut report = self.report.lock();
        report.last_error = Some(error);
        report.last_error_at = Some(Timestamp::from_micros(self.clock.wall_us()));
        report.failing = true;
    }

    /// Notes when the next list begins; `None` while a list or a watch runs.
    pub(super) fn next_list(&self, pause: Option<Duration>) {
        let now_us = self.clock.wall_us();
        let at = |pause: Duration| {
            let pause_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
            Timestamp::from_micros(now_us.saturating_add(pause_us))
        };
        self.report.lock().next_list_at = pause.map(at);
    }

    /// Sends heartbeats. A queue that does not exist yet takes none.
    pub(super) async fn beat(&self, client: &Client, queue: &str) {
        loop {
            let report = self.now();
            send(client, queue, &report, CALL_MAX).await;
            sleep(BEAT_EVERY).await;
        }
    }

    fn now(&self) -> ReflectorReport {
        let sent_at = Some(Timestamp::from_micros(self.clock.wall_us()));
        ReflectorReport { sent_at, ..self.report.lock().clone() }
    }

    /// Sends the last heartbeat of a process that stops on purpose.
    pub(super) async fn stop(&self, client: &Client, queue: &str) {
        let report = ReflectorReport { stopped: true, ..self.now() };
        send(client, queue, &report, LAST_CALL_MAX).await;
    }
}

async fn send(client: &Client, queue: &str, report: &ReflectorReport, most: Duration) {
    match timeout(most, client.queue(queue).report_reflector(report)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(source = report.source, %error, "the queue takes no heartbeat"),
        Err(_) => debug!(source = report.source, "a heartbeat has timed out"),
    }
}

/// The name of this process. A restarted process has another one.
fn instance() -> String {
    let host = std::fs::read_to_string(HOST_NAME).unwrap_or_default();
    let host: String = host.trim().chars().filter(|char| !char.is_control()).take(64).collect();
    let host = if host.is_empty() { "host" } else { host.as_str() };
    format!("{host}:{}", std::process::id())
}
