//! Known objects that are put in place without a delta.

use std::sync::Arc;

use super::Error;
use super::handle::Handle;
use crate::engine::Seed;
use crate::engine::command::Progress;
use crate::engine::config::Config;
use crate::engine::delta::Rv;

impl Handle {
    /// Puts objects in place that were read by `config`, up to `at_a_time` of them while other calls wait;
    /// answers the last event. What is put in place at a time is one commit. `kept` is kept until all are.
    ///
    /// # Errors
    /// As [`sliced`](Self::sliced); what the engine refuses has changed nothing.
    pub async fn seed(
        self: &Arc<Self>,
        config: Arc<Config>,
        seeds: Vec<Seed>,
        at_a_time: usize,
        kept: impl Send + 'static,
    ) -> Result<Rv, Error> {
        let mut seeds = seeds.into_iter();
        let mut is_checked = false;
        self.sliced(move |queue, now| {
            let _kept = &kept;
            if !is_checked {
                queue.advance(now);
                queue.check_config(&config)?;
                queue.check_seed(seeds.as_slice())?;
                queue.begin_seed(seeds.as_slice());
                is_checked = true;
            }
            queue.seed_step(now, seeds.by_ref().take(at_a_time));
            if seeds.len() > 0 {
                return Ok(Progress::More);
            }
            queue.end_seed();
            Ok(Progress::Done(queue.resource_version()))
        })
        .await
    }
}
