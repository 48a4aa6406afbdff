//! Calls of workers: pop, settle and extend.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::response::Response;
use deltaq_engine::command::{Extended, How, Pop, Settle, Settled};
use deltaq_engine::config::Mode;
use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::id::{Token, Worker};
use deltaq_engine::key::Key;
use deltaq_engine::limits::NAME_BYTES_MAX;
use deltaq_engine::refusal::Refusal;
use deltaq_service::{FirstCommand, Handle, Moment, Name, PopCall};
use deltaq_types::{
    ExtendBody, ExtendedList, LeasesBody, PopBody, Popped, SettleAs, SettleBody, SettleCall, SettledDocument,
    SettledList,
};
use foldhash::fast::RandomState;

use super::former;
use crate::http::blocking::run_blocking;
use crate::http::body::blank_hinted;
use crate::http::call::QueueCall;
use crate::http::context::RequestCounts;
use crate::http::delivery::{DeliveryBody, Leases};
use crate::http::in_flight::CountedReply;
use crate::http::limits::{DELAY_MAX, LEASE_MAX, LEASE_MIN, POP_MAX};
use crate::http::node;
use crate::http::openapi::params::{InQueue, PopQuery};
use crate::http::openapi::responses::{Always, Conflict, Full, OfBody, OfQueue};
use crate::http::params::{check_error, read_duration, wrong};
use crate::http::problem::{Code, Problem};
use crate::http::reply::{Reply, json};
use crate::http::state::AppState;
use crate::http::wire::{self, LeaseRef, popped, popped_bytes};

/// Most keys in one forget, promote, redrive or discard.
const KEYS_MAX: usize = 10_000;
/// From this size on, in bytes, a reply is rendered on a blocking thread, because it would delay the other connections of the
/// thread.
const LARGE_REPLY_BYTES: usize = 256 << 10;
/// A pop or settle of more keys runs on the main runtime, for the same reason.
const LARGE_CALL_KEYS: usize = 100;
/// Most leases in one settle or extend.
const SETTLES_MAX: usize = 10_000;

/// A lease as a request names it, and how it is settled.
type NamedSettle = (LeaseRef, SettleAs);

/// Settle earlier leases, then pop keys, and wait for keys if none is ready.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/pop", tag = "consuming", operation_id = "pop",
    params(InQueue, PopQuery),
    request_body(content = Option<PopBody>),
    responses(
        (status = 200, description = "The delivered keys; none if the wait has passed.", body = Popped),
        Always, OfQueue, OfBody, Full,
    )
)]
pub(in crate::http) async fn pop(call: QueueCall) -> Result<Response, Problem> {
    let QueueCall { state, name, params, incoming, context } = call;
    let wait = params.duration("wait", Duration::ZERO..=state.limits.max_wait)?.unwrap_or_default();
    let max = params.count("max", 1..=POP_MAX)?.unwrap_or(1);
    let pop = Pop {
        max: usize::try_from(max).unwrap_or(usize::MAX),
        max_bytes: state.limits.max_reply_bytes,
        lease: params.duration(params.current_name("lease_duration", "lease")?, LEASE_MIN..=LEASE_MAX)?,
        worker: params.name("worker")?.map(Worker::from),
        id: params.name("id")?.map(Arc::from),
        with_known: match params.text("with") {
            None => false,
            Some("known") => true,
            Some(other) => return Err(wrong("with", &format!("it takes \"known\", not {}", Excerpt(other)))),
        },
    };
    let body: PopBody = incoming.document().await?;
    let (leases, hows) = read_settles(body.settle)?;
    check_done(&state, &name, &hows)?;

    let handle = state.partitions.registry(&name)?.get_or_create(&name, FirstCommand::Pop)?;
    let is_large = max > LARGE_CALL_KEYS as u64 || hows.len() > LARGE_CALL_KEYS;
    let settles = settles_of(&handle, &leases, hows);
    let popping = {
        let handle = handle.clone();
        async move { handle.pop(PopCall { pop, settles, wait }).await }
    };
    let answer = if is_large { state.on_main_runtime(popping).await } else { popping.await };
    let settled = settled_documents(leases, &answer.settled, handle.moment());
    let switches = answer.switches;
    let delivered = match answer.items {
        Ok(delivered) => delivered,
        Err(error) => {
            return Err(Problem::from(error).with_default("settled", settled));
        }
    };
    if state.spans.are_sent() {
        let deltas = delivered.items.iter().flat_map(|item| item.deltas.iter());
        let traces = deltas.filter_map(|delta| delta.provenance.trace().map(|trace| **trace));
        let _set_once = context.links.set(traces.collect());
    }
    context.count(RequestCounts {
        items: Some(delivered.items.len() as u64),
        leases: Some(settled.len() as u64),
        ..RequestCounts::default()
    });
    let bytes = popped_bytes(&delivered.items, &settled);
    let reserved = match context.reserve_reply(bytes) {
        Ok(reserved) => reserved,
        Err(problem) => return Err(problem.with_default("settled", settled)),
    };
    let render = move || {
        let text = popped(&handle.lives(), &delivered.items, &settled, switches, handle.moment());
        (text, delivered)
    };
    let (text, delivered) = if bytes < LARGE_REPLY_BYTES { render() } else { run_blocking((), render).await };
    let outbox = context.connection.as_ref().map(|connection| connection.outbox.clone());
    let is_counted = reserved.is_some();
    let has_new_leases = context.is_from_node && delivered.holds_leases();
    let mut response = json(Body::new(DeliveryBody::new(text, Leases::Own(delivered), outbox, reserved)));
    if has_new_leases {
        response.headers_mut().insert(&node::LEASES, HeaderValue::from_static("new"));
    }
    if is_counted {
        response.extensions_mut().insert(CountedReply);
    }
    Ok(response)
}

/// Settle leases, each on its own.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/settle", tag = "consuming", operation_id = "settle",
    params(InQueue),
    request_body(content = SettleBody),
    responses(
        (status = 200, description = "The result for each lease.", body = SettledList),
        Always, OfQueue, OfBody, Conflict,
    )
)]
pub(in crate::http) async fn settle(
    QueueCall { state, name, incoming, context, .. }: QueueCall,
) -> Result<Reply<SettledList>, Problem> {
    let body: SettleBody = incoming.document().await?;
    let (leases, hows) = read_settles(body.settle)?;
    settle_all(&state, &name, leases, hows).await.map(|list| Reply::of(&context, list))
}

/// Calls that settle all their leases in one way.
macro_rules! settle_in_one_way {
    ($($(#[$($doc:tt)*])* $name:ident $path:tt $id:tt $how:ident;)*) => {$(
        $(#[$($doc)*])*
        #[utoipa::path(
            post, path = $path, tag = "consuming", operation_id = $id,
            params(InQueue),
            request_body(content = LeasesBody),
            responses(
                (status = 200, description = "The result for each lease.", body = SettledList),
                Always, OfQueue, OfBody, Conflict,
            )
        )]
        pub(in crate::http) async fn $name(call: QueueCall) -> Result<Reply<SettledList>, Problem> {
            settle_one_way(call, SettleAs::$how).await
        }
    )*};
}

settle_in_one_way! {
    /// Acknowledge leases: their deltas are applied to the known objects.
    ack "/v1/queues/{queue}/ack" "ack" Ack;
    /// Mode keys: end the work on keys without forgetting their failures (client-go's Done).
    done "/v1/queues/{queue}/done" "done" Done;
    /// Report failed work: the keys are delivered again later.
    nack "/v1/queues/{queue}/nack" "nack" Nack;
    /// Return keys to the tail of the ready queue, without a failure.
    release "/v1/queues/{queue}/release" "release" Release;
    /// Park keys at once.
    reject "/v1/queues/{queue}/reject" "reject" Reject;
}

/// Set the deadline of leases to now plus a length, which may shorten them.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/extend", tag = "consuming", operation_id = "extend",
    params(InQueue),
    request_body(content = ExtendBody),
    responses(
        (status = 200, description = "The result for each lease.", body = ExtendedList),
        Always, OfQueue, OfBody, Conflict,
    )
)]
pub(in crate::http) async fn extend(
    QueueCall { state, name, incoming, context, .. }: QueueCall,
) -> Result<Reply<ExtendedList>, Problem> {
    let (body, is_blank): (ExtendBody, _) = incoming.document_or_blank().await?;
    let leases = read_leases(body.lease_ids, body.leases, is_blank)?;
    check_leases(leases.iter())?;
    let length = former::either(("lease_duration", body.lease_duration), ("lease", body.lease))?;
    let length = length
        .map(|(field, text)| read_duration(&text, LEASE_MIN..=LEASE_MAX).map_err(|wrong| wrong.field(field)));
    let length = length.transpose()?;
    let handle = state.partitions.get(&name)?;
    let tokens: Vec<Token> = leases.iter().map(|lease| handle.token(lease.id())).collect();
    let extended = handle.extend(&tokens, length).await?;
    let moment = handle.moment();
    let pairs = leases.into_iter().zip(&extended);
    let leases: Vec<_> = pairs.map(|(lease, extended)| wire::extended(lease, *extended, moment)).collect();
    let lost = extended.iter().filter(|extended| matches!(extended, Extended::Stale { .. })).count();
    if are_all_lost(lost, leases.len()) {
        return Err(lease_lost("extended", lost).with_default("leases", leases));
    }
    Ok(Reply::of(&context, ExtendedList { leases, stale: lost as u64 }))
}

/// The keys of a request.
pub(super) fn read_keys(keys: &[String]) -> Result<Vec<Key>, Problem> {
    if keys.len() > KEYS_MAX {
        let detail = format!("the request names more than {KEYS_MAX} keys");
        return Err(Problem::new(Code::InvalidRequest, detail).with("limit", KEYS_MAX));
    }
    let keys = keys.iter().enumerate();
    keys.map(|(index, key)| Key::new(key).map_err(|error| Problem::from(error).in_item(index, None)))
        .collect()
}

fn read_leases(
    lease_ids: Option<Vec<String>>,
    leases: Option<Vec<String>>,
    is_blank: bool,
) -> Result<Vec<LeaseRef>, Problem> {
    let leases = former::leases(lease_ids, leases);
    leases.map_err(|problem| if is_blank { blank_hinted(problem) } else { problem })
}

async fn settle_one_way(call: QueueCall, how: SettleAs) -> Result<Reply<SettledList>, Problem> {
    let QueueCall { state, name, incoming, context, .. } = call;
    let (body, is_blank): (LeasesBody, _) = incoming.document_or_blank().await?;
    // All leases share one copy of the error, which may be long.
    let how_all = read_how(how, body.delay.as_deref(), body.error.as_deref())?;
    let leases = read_leases(body.lease_ids, body.leases, is_blank)?;
    check_leases(leases.iter())?;
    if context.is_undelivered {
        let handle = state.partitions.get(&name)?;
        handle.reclaim(leases.iter().map(|lease| handle.token(lease.id())).collect());
        return Ok(Reply::of(&context, SettledList { settled: Vec::new(), stale: 0 }));
    }
    let hows = vec![how_all; leases.len()];
    let leases = leases.into_iter().map(|lease| (lease, how)).collect();
    settle_all(&state, &name, leases, hows).await.map(|list| Reply::of(&context, list))
}

async fn settle_all(
    state: &AppState,
    name: &Name,
    leases: Vec<NamedSettle>,
    hows: Vec<How>,
) -> Result<SettledList, Problem> {
    let handle = state.partitions.get(name)?;
    check_done(state, name, &hows)?;
    let settles = settles_of(&handle, &leases, hows);
    let is_large = settles.len() > LARGE_CALL_KEYS;
    let settling = {
        let handle = handle.clone();
        async move { handle.settle(&settles).await }
    };
    let results = if is_large { state.on_main_runtime(settling).await } else { settling.await }?;
    let settled = settled_documents(leases, &results, handle.moment());
    let lost = results.iter().filter(|settled| matches!(settled, Settled::Stale { .. })).count();
    if are_all_lost(lost, settled.len()) {
        return Err(lease_lost("settled", lost).with_default("settled", settled));
    }
    Ok(SettledList { settled, stale: lost as u64 })
}

/// Whether a call changed nothing, because all its leases had ended.
const fn are_all_lost(lost: usize, leases: usize) -> bool {
    lost > 0 && lost == leases
}

/// The refusal has the same fields as the reply to a call that changed something.
fn lease_lost(done: &str, lost: usize) -> Problem {
    let detail = format!("none of the leases could be {done}");
    let hint = "outcome says how each ended: drop the result of the work, or make the work safe to repeat";
    Problem::new(Code::LeaseLost, detail).hint(hint).with("stale", lost)
}

/// Checks the settles of a request before any of them takes effect.
fn read_settles(calls: Vec<SettleCall>) -> Result<(Vec<NamedSettle>, Vec<How>), Problem> {
    let (mut leases, mut hows) = (Vec::with_capacity(calls.len()), Vec::with_capacity(calls.len()));
    for (index, call) in calls.into_iter().enumerate() {
        let in_item = |problem: Problem| problem.in_item(index, None);
        let lease = former::lease(call.lease_id, call.lease).map_err(in_item)?;
        hows.push(read_how(call.how, call.delay.as_deref(), call.error.as_deref()).map_err(in_item)?);
        leases.push((lease, call.how));
    }
    check_leases(leases.iter().map(|(lease, _)| lease))?;
    Ok((leases, hows))
}

fn read_how(how: SettleAs, delay: Option<&str>, error: Option<&str>) -> Result<How, Problem> {
    let wrong = |field: &str, detail: &'static str| {
        Err(Problem::new(Code::InvalidRequest, detail).with("field", field))
    };
    if delay.is_some() && !matches!(how, SettleAs::Nack | SettleAs::Done) {
        return wrong("delay", "delay goes with nack and done only");
    }
    if error.is_some() && !matches!(how, SettleAs::Nack | SettleAs::Reject) {
        return wrong("error", "error goes with nack and reject only");
    }
    let delay = delay.map(|text| read_duration(text, Duration::ZERO..=DELAY_MAX)).transpose();
    let delay = delay.map_err(|wrong| wrong.field("delay"))?;
    error.map(check_error).transpose().map_err(|wrong| wrong.field("error"))?;
    let error = error.map(Arc::from);
    Ok(match how {
        SettleAs::Ack => How::Ack,
        SettleAs::Done => How::Done { delay },
        SettleAs::Nack => How::Nack { delay, error },
        SettleAs::Release => How::Release,
        SettleAs::Reject => How::Reject { error },
    })
}

fn check_leases<'a>(leases: impl ExactSizeIterator<Item = &'a LeaseRef>) -> Result<(), Problem> {
    let ids = leases.map(LeaseRef::id);
    if ids.len() > SETTLES_MAX {
        let detail = format!("the request names more than {SETTLES_MAX} leases");
        return Err(Problem::new(Code::InvalidRequest, detail).with("limit", SETTLES_MAX));
    }
    let mut seen: HashSet<_, RandomState> = HashSet::default();
    let is_alone = ids.len() == 1;
    for (index, id) in ids.enumerate() {
        if id.len() > NAME_BYTES_MAX {
            let detail = format!("the lease id {} has more than {NAME_BYTES_MAX} bytes", Excerpt(id));
            let problem = Problem::new(Code::InvalidRequest, detail).with("index", index);
            return Err(problem.with("limit", NAME_BYTES_MAX));
        }
        if !is_alone && !seen.insert(id) {
            let detail = format!("the lease {} is named twice", Excerpt(id));
            return Err(Problem::new(Code::InvalidRequest, detail).with("index", index));
        }
    }
    Ok(())
}

fn settles_of(handle: &Handle, leases: &[NamedSettle], hows: Vec<How>) -> Vec<Settle> {
    let pairs = leases.iter().zip(hows);
    pairs.map(|((lease, _), how)| Settle { token: handle.token(lease.id()), how }).collect()
}

fn settled_documents(leases: Vec<NamedSettle>, results: &[Settled], moment: Moment) -> Vec<SettledDocument> {
    let pairs = leases.into_iter().zip(results);
    pairs.map(|((lease, how), settled)| wire::settled(lease, how, *settled, moment)).collect()
}

/// Refuses `done` in the other modes: it would drop the deltas of the lease. A queue with keys keeps its mode, so the mode
/// cannot change before the settle of a live lease.
fn check_done(state: &AppState, name: &Name, hows: &[How]) -> Result<(), Problem> {
    if !hows.iter().any(|how| matches!(how, How::Done { .. })) {
        return Ok(());
    }
    let handle = state.partitions.find(name);
    let mode = handle.map_or(state.partitions.defaults().mode, |handle| handle.config().mode);
    if mode == Mode::Keys {
        return Ok(());
    }
    let reason = "only mode keys has Done without Forget";
    Err(Refusal::WrongMode { call: "done", reason, mode }.into())
}
