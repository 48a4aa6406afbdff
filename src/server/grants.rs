//! The grants of tokens, as running queues use them.

use std::fmt;
use std::sync::Arc;

use deltaq_runtime::clock::Clock;
use deltaq_service::Grants;

use crate::config::access::Verb;
use crate::http::Gate;

/// The current tokens of the server.
pub(super) struct CurrentGrants {
    pub(super) gate: Arc<Gate>,
    pub(super) clock: Clock,
}

impl Grants for CurrentGrants {
    /// Without tokens, every caller may read every queue.
    fn may_read(&self, token: &str, queue: &str) -> bool {
        let access = &self.gate.access;
        let caller = || access.tokens().by_name(token, self.clock.wall_us());
        access.is_open() || caller().is_ok_and(|caller| caller.may(Verb::Read, queue))
    }

    fn are_several(&self) -> bool {
        self.gate.access.tokens().len() > 1
    }
}

impl fmt::Debug for CurrentGrants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentGrants")
    }
}
