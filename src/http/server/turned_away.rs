//! Connections past the cap: each is told so and ended, so that its caller does not wait for nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::courtesy::answer;
use crate::clock::Clock;
use crate::http::problem::{Code, Problem};

/// Most connections that are being told at a time; more are just closed.
const TOLD_MAX: usize = 256;
/// Longest time that one is told for.
const TIME_MAX: Duration = Duration::from_secs(1);

/// How often the log says that connections are turned away.
const TOLD_EVERY: Duration = Duration::from_mins(1);

/// Turns connections away.
#[derive(Debug)]
pub(super) struct Doorkeeper {
    telling: Arc<Semaphore>,
    connections_max: usize,
    /// Whether callers expect TLS, and so nothing that could be told without it.
    speaks_tls: bool,
    clock: Clock,
    /// When the log last said so.
    told_us: Option<u64>,
    /// How many were turned away since then.
    untold: u64,
}

impl Doorkeeper {
    pub(super) fn new(connections_max: usize, speaks_tls: bool, clock: Clock) -> Self {
        let telling = Arc::new(Semaphore::new(TOLD_MAX));
        Self { telling, connections_max, speaks_tls, clock, told_us: None, untold: 0 }
    }

    /// What is left to do for a connection that can't be taken; none if it is closed at once.
    pub(super) fn turn_away(&mut self, stream: TcpStream) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.untold += 1;
        if self.told_us.is_none_or(|told_us| self.clock.since(told_us) >= TOLD_EVERY) {
            tracing::warn!(
                connections = self.untold,
                limit = self.connections_max,
                "connections were turned away: server.max_connections are open"
            );
            (self.told_us, self.untold) = (Some(self.clock.monotonic_us()), 0);
        }
        let permit = self.telling.clone().try_acquire_owned().ok().filter(|_| !self.speaks_tls)?;
        let limit = self.connections_max;
        Some(async move {
            let detail = format!("{limit} connections are open (server.max_connections)");
            let problem = Problem::new(Code::TooManyConnections, detail).with("limit", limit);
            let _in_time = tokio::time::timeout(TIME_MAX, tell(stream, &problem)).await;
            drop(permit);
        })
    }
}

/// A connection that is closed with something unread in it takes the answer with it, so the request is read.
async fn tell(mut stream: TcpStream, problem: &Problem) -> std::io::Result<()> {
    stream.write_all(&answer(problem)).await?;
    stream.shutdown().await?;
    let mut unread = [0; 4_096];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}
