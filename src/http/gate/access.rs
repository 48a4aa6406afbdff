//! Authorization. Every operation declares the permission that its caller needs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::http::{HeaderMap, header};
use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::id::Source;
use deltaq_runtime::clock::Clock;
use deltaq_types::name::Name;

use super::Gate;
use crate::access::{Access, Caller, Denied, TOKEN_BYTES_MAX};
use crate::config::access::Verb;
use crate::http::node;
use crate::http::operation::{Permission, Target};
use crate::http::problem::{Code, Problem};

/// Whether the caller of a request has the permission that the operation needs, and who the caller is.
#[derive(Debug, Default)]
pub(in crate::http) struct Authorization {
    /// Whether another node has sent the request. That node has checked the permission of the client.
    pub(in crate::http) is_from_node: bool,
    /// The verb of the operation, once known.
    pub(in crate::http) verb: OnceLock<Verb>,
    /// The token, once known.
    pub(in crate::http) caller: OnceLock<Arc<Caller>>,
    /// The name of an expired token. It gives no permission.
    pub(in crate::http) expired: OnceLock<Arc<str>>,
    /// Whether the caller has the permission of the operation.
    pub(in crate::http) is_granted: AtomicBool,
    /// Whether a part of the request needs `admin` although the operation does not.
    pub(in crate::http) needs_admin: AtomicBool,
    /// Whether the request sets thresholds of sources. That needs only `produce`, and is in the activity.
    pub(in crate::http) sets_thresholds: AtomicBool,
}

impl Authorization {
    /// Refuses a caller without the permission of the operation.
    pub(in crate::http) fn check(
        &self,
        gate: &Gate,
        clock: &Clock,
        target: &Target,
        headers: &HeaderMap,
        has_certificate: bool,
    ) -> Result<(), Problem> {
        let need = need(target);
        if let Permission::OnQueue(verb) | Permission::Everywhere(verb) = need {
            let _known = self.verb.set(verb);
        }
        if !need.is_anonymous() && self.is_from_node {
            self.find_client(&gate.access, clock, headers)?;
        } else if !need.is_anonymous() {
            self.check_client(gate, clock, target, headers, has_certificate)?;
        }
        self.is_granted.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn check_client(
        &self,
        gate: &Gate,
        clock: &Clock,
        target: &Target,
        headers: &HeaderMap,
        has_certificate: bool,
    ) -> Result<(), Problem> {
        if gate.demands_certificates && !has_certificate {
            let detail =
                "the connection has shown no client certificate, and server.tls_client_ca asks for one";
            return Err(Problem::new(Code::Unauthorized, detail));
        }
        if gate.access.is_open() {
            return Ok(());
        }
        let caller = gate.access.tokens().caller(bearer(headers)?, clock.wall_us());
        let caller = caller.map_err(|denied| self.refusal(denied))?;
        let caller = self.caller.get_or_init(|| caller);
        // A refused request also counts toward the rate, because it costs as much as any other request.
        caller.count(clock.monotonic_us()).map_err(|wait| {
            let rate = caller.rate().map_or(0, |rate| rate.each_second);
            let detail = format!("the token {:?} may send {rate} requests a second", caller.name());
            Problem::new(Code::TooManyRequests, detail).with("limit", rate).retry_after(wait)
        })?;
        allow(caller, need(target), target.queue_name())
    }

    /// Finds the token of the client whose call another node has forwarded. That node has already checked the token
    /// and counted the call toward the token's rate.
    fn find_client(&self, access: &Access, clock: &Clock, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(name) = headers.get(&node::CALLER).filter(|_| !access.is_open()) else { return Ok(()) };
        let name = name.to_str().unwrap_or_default();
        let caller = access.tokens().by_name(name, clock.wall_us());
        let caller = caller.map_err(|denied| match denied {
            Denied::Unknown => {
                let detail = format!(
                    "the owner of the queue does not have the token {name:?} of the node that forwarded the request"
                );
                Problem::new(Code::Unauthorized, detail).hint("all nodes need the same tokens")
            }
            Denied::Expired { .. } => self.refusal(denied),
        })?;
        let _set_once = self.caller.set(caller);
        Ok(())
    }

    /// Whether the request had a valid token, or was permitted on a server without tokens.
    pub(in crate::http) fn knows_client(&self, target: &Target) -> bool {
        let is_granted = self.is_granted.load(Ordering::Relaxed);
        self.caller.get().is_some() || (is_granted && !need(target).is_anonymous())
    }

    /// Refuses a caller that has no grant of `verb` now on a queue that is not the one in the path.
    pub(in crate::http) fn check_on(
        &self,
        access: &Access,
        clock: &Clock,
        target: &Target,
        verb: Verb,
        queue: &str,
    ) -> Result<(), Problem> {
        match self.caller_now(access, clock, target)? {
            Some(caller) => allow(&caller, Permission::OnQueue(verb), Some(queue)),
            None => Ok(()),
        }
    }

    /// The sources in whose name the caller may produce to a queue.
    pub(in crate::http) fn sources_on(&self, queue: &Name) -> PermittedSources {
        PermittedSources { caller: self.caller.get().cloned(), queue: queue.clone() }
    }

    /// Whether the caller may read a queue that is not the one in the path.
    pub(in crate::http) fn may_read(&self, queue: &str) -> bool {
        self.caller.get().is_none_or(|caller| caller.may(Verb::Read, queue))
    }

    /// Checks the token again after a slow body or a wait. If the token has expired, was revoked or has lost its grant in
    /// the meantime, the request is refused, and so is a request without a token if there are tokens now.
    pub(in crate::http) fn check_again(
        &self,
        access: &Access,
        clock: &Clock,
        target: &Target,
    ) -> Result<(), Problem> {
        self.caller_now(access, clock, target).map(|_| ())
    }

    /// Checks the token again right before a produce call changes the queue: its objects may have waited for the check
    /// of others. `sources` are those in whose name the call produces.
    pub(in crate::http) fn check_sources_again<'s>(
        &self,
        access: &Access,
        clock: &Clock,
        target: &Target,
        queue: &Name,
        mut sources: impl Iterator<Item = Option<&'s Source>>,
    ) -> Result<(), Problem> {
        let now = self.caller_now(access, clock, target)?;
        let is_same = match (&now, self.caller.get()) {
            (Some(now), Some(former)) => Arc::ptr_eq(now, former),
            _ => true,
        };
        if is_same {
            return Ok(());
        }
        let permitted = PermittedSources { caller: now, queue: queue.clone() };
        sources.try_for_each(|source| permitted.check(source))
    }

    /// The caller with the grants that its token has now, if the request still has its permission.
    fn caller_now(
        &self,
        access: &Access,
        clock: &Clock,
        target: &Target,
    ) -> Result<Option<Arc<Caller>>, Problem> {
        let Some(former) = self.caller.get() else {
            let needs_token = !self.is_from_node && !need(target).is_anonymous();
            return if needs_token && !access.is_open() {
                Err(Problem::new(Code::Unauthorized, "a token is needed"))
            } else {
                Ok(None)
            };
        };
        let caller = access.tokens().recheck(former, clock.wall_us());
        let caller = caller.map_err(|denied| self.refusal(denied))?;
        allow(&caller, need(target), target.queue_name())?;
        Ok(Some(caller))
    }

    fn refusal(&self, denied: Denied) -> Problem {
        match denied {
            Denied::Unknown => Problem::new(Code::Unauthorized, "the token is unknown"),
            Denied::Expired { at_us, name } => {
                let _known = self.expired.set(name);
                let at = deltaq_types::Timestamp::from_micros(at_us);
                Problem::new(Code::Unauthorized, format!("the token expired at {at}"))
            }
        }
    }
}

/// The sources in whose name a caller may produce to a queue.
#[derive(Clone, Debug)]
pub(in crate::http) struct PermittedSources {
    /// `None` on a server without tokens.
    caller: Option<Arc<Caller>>,
    queue: Name,
}

impl PermittedSources {
    /// Refuses a produce call in the name of a source, or without one, that no grant permits.
    pub(in crate::http) fn check(&self, source: Option<&Source>) -> Result<(), Problem> {
        let source = source.map(Source::as_str);
        let Some(caller) =
            self.caller.as_ref().filter(|caller| !caller.may_produce(self.queue.as_str(), source))
        else {
            return Ok(());
        };
        let named = source
            .map_or("without a source".to_owned(), |source| format!("for the source {}", Excerpt(source)));
        let (name, queue) = (caller.name(), self.queue.as_str());
        let detail = format!("the token {name:?} has no grant of produce on the queue {queue:?} {named}");
        Err(Problem::new(Code::Forbidden, detail))
    }
}

/// The permission that a request needs. A request that matches no operation needs any valid token to get its 404 or
/// 405.
fn need(target: &Target) -> Permission {
    target.operation.map_or(Permission::Token, |operation| operation.permission)
}

fn allow(caller: &Caller, need: Permission, queue: Option<&str>) -> Result<(), Problem> {
    let (verb, queue) = match need {
        Permission::Nothing | Permission::Token | Permission::Signature => return Ok(()),
        Permission::Somewhere(verb) if caller.may_somewhere(verb) => return Ok(()),
        Permission::Somewhere(verb) => {
            let (name, verb) = (caller.name(), verb.as_str());
            let detail = format!("the token {name:?} has no grant of {verb} on any queue");
            return Err(Problem::new(Code::Forbidden, detail));
        }
        Permission::OnQueue(verb) => (verb, Some(queue.unwrap_or_default())),
        Permission::Everywhere(verb) => (verb, None),
    };
    if queue.map_or_else(|| caller.may_everywhere(verb), |queue| caller.may(verb, queue)) {
        return Ok(());
    }
    let (name, verb) = (caller.name(), verb.as_str());
    let place = queue.map_or("all queues (\"*\")".to_owned(), |queue| format!("the queue {queue:?}"));
    Err(Problem::new(Code::Forbidden, format!("the token {name:?} has no grant of {verb} on {place}")))
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let missing = |detail| Problem::new(Code::Unauthorized, detail);
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = given.next() else {
        return Err(missing("a token is needed").hint("send the header \"authorization: Bearer TOKEN\""));
    };
    if given.next().is_some() {
        return Err(missing("the header authorization occurs twice"));
    }
    let token = value.to_str().ok().and_then(|text| text.split_once(' '));
    let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let token = token.map(|(_, token)| token.trim()).filter(|token| !token.is_empty());
    token
        .filter(|token| token.len() <= TOKEN_BYTES_MAX)
        .ok_or_else(|| missing("the header authorization is not \"Bearer TOKEN\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_bearer_token_is_read() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            bearer(&headers).map(str::to_owned).ok()
        };
        assert_eq!(read(&["Bearer abc"]), Some("abc".to_owned()));
        assert_eq!(read(&["bearer  abc "]), Some("abc".to_owned()));
        let long = format!("Bearer {}", "a".repeat(TOKEN_BYTES_MAX + 1));
        for values in [
            &[][..],
            &["abc"],
            &["Basic abc"],
            &["Bearer"],
            &["Bearer "],
            &["Bearer a", "Bearer a"],
            &[&long],
        ] {
            assert_eq!(read(values), None, "{values:?}");
        }
    }
}
