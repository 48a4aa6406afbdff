//! `deltaq push ...`.

use clap::Args;
use deltaq_types::PushTestDocument;
use deltaq_types::name::Name;

use super::failure::Failure;
use super::session::{Execute, Session};

super::commands! {
    /// Commands on what queues push.
    PushCommands {
        /// Send a test request to the endpoint of a queue; exit code 1 if it answers with no status from 200 to 299.
        #[command(after_help = "Example:\n  deltaq push test prices")]
        Test(Test),
    }
}

/// `deltaq push test`.
#[derive(Debug, Clone, Args)]
pub struct Test {
    /// The name of the queue.
    pub name: Name,
}

impl Execute for Test {
    const OPERATIONS: &'static [&'static str] = &["test_push"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let call = session.on_queue("test_push", &self.name)?;
        let (result, text) = session.fetch::<PushTestDocument>(call).await?;
        let PushTestDocument { status, duration_ms, answer } = result;
        session.output.change(&text, self.name.as_str(), &format!("{answer} ({duration_ms} ms)"))?;
        if status.is_some_and(|status| (200..300).contains(&status)) {
            return Ok(());
        }
        Err(Failure::Other(format!("the endpoint of queue {} does not take requests", self.name)))
    }
}
