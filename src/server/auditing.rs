//! The tasks of the audit log. One writes the lines to the file, if there is one. The other reports the number of
//! suppressed lines each second.

use std::time::Duration;

use deltaq_engine::time::Time;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::audit::{Audit, Writer};
use crate::http::wire;

/// How often the number of suppressed lines is reported.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// The tasks of the audit log. They end after all requests.
#[derive(Debug)]
pub(super) struct Auditing {
    reporting: JoinHandle<()>,
    writing: Option<JoinHandle<()>>,
    /// Cancelled after the last request. The last suppressed lines are then reported.
    ending: CancellationToken,
    /// Cancelled after the last line. The buffered lines are then written.
    closing: CancellationToken,
    shutdown: Shutdown,
}

impl Auditing {
    pub(super) fn start(audit: &Audit, writer: Option<Writer>, clock: &Clock, shutdown: &Shutdown) -> Self {
        let (ending, closing) = (CancellationToken::new(), CancellationToken::new());
        let run = |writer: Writer| shutdown.spawn_last("audit writer", writer.run(closing.clone()));
        let writing = writer.map(run);
        let reporting = report(audit.clone(), clock.clone(), ending.clone());
        let reporting = shutdown.spawn_last("audit suppression", reporting);
        Self { reporting, writing, ending, closing, shutdown: shutdown.clone() }
    }

    /// Writes the remaining lines. A stalled disk is abandoned at the end of the shutdown.
    pub(super) async fn end(self) {
        self.ending.cancel();
        // A panic of the task is already in the log.
        let _ended = self.reporting.await;
        self.closing.cancel();
        let Some(writing) = self.writing else { return };
        tokio::select! {
            biased;
            _ended = writing => {}
            () = self.shutdown.cut_and_grace() => {
                tracing::error!("the disk of the audit log is stalled, and the last lines of the audit log are lost");
            }
        }
    }
}

async fn report(audit: Audit, clock: Clock, ending: CancellationToken) {
    while !ending.is_cancelled() {
        tokio::select! {
            () = tokio::time::sleep(REPORT_PERIOD) => {}
            () = ending.cancelled() => {}
        }
        audit.record_suppressed(&wire::timestamp(Time::from_micros(clock.wall_us())).to_string());
    }
}
