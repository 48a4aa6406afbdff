//! The tasks of the audit log: one writes its lines, if it has a file, and one tells each second how many were left out.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::audit::{Audit, Writer};
use crate::clock::Clock;
use crate::engine::time::Time;
use crate::http::wire;
use crate::lifecycle::Shutdown;

/// How often it is told how many lines were too many.
const TELL_PERIOD: Duration = Duration::from_secs(1);

/// The tasks that run until the end.
#[derive(Debug)]
pub(super) struct Auditing {
    telling: JoinHandle<()>,
    writing: Option<JoinHandle<()>>,
    /// No more calls come: what was left out is told.
    ending: CancellationToken,
    /// No more lines come: those that are left are written.
    closing: CancellationToken,
    shutdown: Shutdown,
}

impl Auditing {
    pub(super) fn start(audit: &Audit, writer: Option<Writer>, clock: &Clock, shutdown: &Shutdown) -> Self {
        let (ending, closing) = (CancellationToken::new(), CancellationToken::new());
        let run = |writer: Writer| shutdown.spawn_last("audit writer", writer.run(closing.clone()));
        let writing = writer.map(run);
        let telling = tell(audit.clone(), clock.clone(), ending.clone());
        let telling = shutdown.spawn_last("audit floods", telling);
        Self { telling, writing, ending, closing, shutdown: shutdown.clone() }
    }

    /// Writes what is left; a disk that stands still is given up with all else.
    pub(super) async fn end(self) {
        self.ending.cancel();
        // A panic of a task is in the log already.
        let _ended = self.telling.await;
        self.closing.cancel();
        let Some(writing) = self.writing else { return };
        tokio::select! {
            biased;
            _ended = writing => {}
            () = self.shutdown.cut_and_grace() => {
                tracing::error!("the disk of the audit log stands still, and its last lines are lost");
            }
        }
    }
}

async fn tell(audit: Audit, clock: Clock, ending: CancellationToken) {
    while !ending.is_cancelled() {
        tokio::select! {
            () = tokio::time::sleep(TELL_PERIOD) => {}
            () = ending.cancelled() => {}
        }
        audit.tell_suppressed(&wire::instant(Time::from_micros(clock.wall_us())));
    }
}
