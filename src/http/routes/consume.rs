//! Calls of workers: pop, settle and extend; and the calls that redrive or discard parked keys.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use deltaq_types::{
    ExtendBody, ExtendedList, KeysBody, KeysCount, LeasesBody, PopBody, Popped, SettleAs, SettleBody,
    SettleCall, SettledDocument, SettledList,
};
use foldhash::fast::RandomState;

use crate::engine::command::{Extended, How, Pop, Settle, Settled};
use crate::engine::config::Mode;
use crate::engine::excerpt::Excerpt;
use crate::engine::id::{Token, Worker};
use crate::engine::key::Key;
use crate::engine::limits::{ERROR_BYTES_MAX, NAME_BYTES_MAX};
use crate::engine::refusal::Refusal;
use crate::http::blocking::run_blocking;
use crate::http::call::QueueCall;
use crate::http::context::{RequestContext, RequestCounts};
use crate::http::delivery::DeliveryBody;
use crate::http::in_flight::CountedReply;
use crate::http::limits::{DELAY_MAX, LEASE_MAX, LEASE_MIN, POP_MAX};
use crate::http::openapi::params::{InQueue, PopQuery};
use crate::http::openapi::responses::{Always, Conflict, Full, OfBody, OfQueue, Unprocessable};
use crate::http::params::{read_duration, wrong};
use crate::http::problem::{Code, Problem};
use crate::http::reply::{Reply, json};
use crate::http::state::AppState;
use crate::http::wire::{self, popped, popped_bytes};
use crate::service::{FirstCommand, Handle, Moment, Name, PopCall};

/// Most keys in one forget, redrive or discard.
const KEYS_MAX: usize = 10_000;
/// From this size on, in bytes, a reply is rendered on a blocking thread, because it would delay the other connections of the
/// thread.
const LARGE_REPLY_BYTES: usize = 256 << 10;
/// A pop or settle of more keys runs on the main runtime, for the same reason.
const LARGE_CALL_KEYS: usize = 100;
/// Most leases in one settle or extend.
const SETTLES_MAX: usize = 10_000;

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
        lease: params.duration("lease", LEASE_MIN..=LEASE_MAX)?,
        worker: params.name("worker")?.map(Worker::from),
        id: params.name("id")?.map(Arc::from),
        with_known: match params.text("with") {
            None => false,
            Some("known") => true,
            Some(other) => return Err(wrong("with", &format!("it takes \"known\", not {}", Excerpt(other)))),
        },
    };
    let body: PopBody = incoming.document().await?;
    let hows = read_settles(&body.settle)?;
    check_done(&state, &name, &hows)?;

    let handle = state.registry.get_or_create(&name, FirstCommand::Pop)?;
    let is_large = max > LARGE_CALL_KEYS as u64 || hows.len() > LARGE_CALL_KEYS;
    let settles = settles_of(&handle, &body.settle, hows);
    let popping = {
        let handle = handle.clone();
        async move { handle.pop(PopCall { pop, settles, wait }).await }
    };
    let answer = if is_large { state.on_main_runtime(popping).await } else { popping.await };
    let settled = settled_documents(body.settle, &answer.settled, handle.moment());
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
        let text = popped(handle.incarnation(), &delivered.items, &settled, switches, handle.moment());
        (text, delivered)
    };
    let (text, delivered) = if bytes < LARGE_REPLY_BYTES { render() } else { run_blocking((), render).await };
    let outbox = context.connection.as_ref().map(|connection| connection.outbox.clone());
    let is_counted = reserved.is_some();
    let mut response = json(Body::new(DeliveryBody::new(text, delivered, outbox, reserved)));
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
    let hows = read_settles(&body.settle)?;
    settle_all(&state, &name, body.settle, hows).await.map(|list| Reply::of(&context, list))
}

/// Acknowledge leases: their deltas are applied to the known objects.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/ack", tag = "consuming", operation_id = "ack",
    params(InQueue),
    request_body(content = LeasesBody),
    responses(
        (status = 200, description = "The result for each lease.", body = SettledList),
        Always, OfQueue, OfBody, Conflict,
    )
)]
pub(in crate::http) async fn ack(call: QueueCall) -> Result<Reply<SettledList>, Problem> {
    settle_one_way(call, SettleAs::Ack).await
}

/// Mode keys: end the work on keys without forgetting their failures (client-go's Done).
#[utoipa::path(
    post, path = "/v1/queues/{queue}/done", tag = "consuming", operation_id = "done",
    params(InQueue),
    request_body(content = LeasesBody),
    responses(
        (status = 200, description = "The result for each lease.", body = SettledList),
        Always, OfQueue, OfBody, Conflict,
    )
)]
pub(in crate::http) async fn done(call: QueueCall) -> Result<Reply<SettledList>, Problem> {
    settle_one_way(call, SettleAs::Done).await
}

/// Report failed work: the keys are delivered again later.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/nack", tag = "consuming", operation_id = "nack",
    params(InQueue),
    request_body(content = LeasesBody),
    responses(
        (status = 200, description = "The result for each lease.", body = SettledList),
        Always, OfQueue, OfBody, Conflict,
    )
)]
pub(in crate::http) async fn nack(call: QueueCall) -> Result<Reply<SettledList>, Problem> {
    settle_one_way(call, SettleAs::Nack).await
}

/// Return keys to the tail of the ready queue, without a failure.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/release", tag = "consuming", operation_id = "release",
    params(InQueue),
    request_body(content = LeasesBody),
    responses(
        (status = 200, description = "The result for each lease.", body = SettledList),
        Always, OfQueue, OfBody, Conflict,
    )
)]
pub(in crate::http) async fn release(call: QueueCall) -> Result<Reply<SettledList>, Problem> {
    settle_one_way(call, SettleAs::Release).await
}

/// Park keys at once.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/reject", tag = "consuming", operation_id = "reject",
    params(InQueue),
    request_body(content = LeasesBody),
    responses(
        (status = 200, description = "The result for each lease.", body = SettledList),
        Always, OfQueue, OfBody, Conflict,
    )
)]
pub(in crate::http) async fn reject(call: QueueCall) -> Result<Reply<SettledList>, Problem> {
    settle_one_way(call, SettleAs::Reject).await
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
    let body: ExtendBody = incoming.document().await?;
    check_leases(body.leases.iter())?;
    let lease = body.lease.as_deref();
    let lease = lease.map(|text| read_duration(text, LEASE_MIN..=LEASE_MAX)).transpose();
    let lease = lease.map_err(|wrong| wrong.field("lease"))?;
    let handle = state.registry.get(&name)?;
    let tokens: Vec<Token> = body.leases.iter().map(|id| handle.token(id)).collect();
    let extended = handle.extend(&tokens, lease).await?;
    let moment = handle.moment();
    let pairs = body.leases.iter().zip(&extended);
    let leases: Vec<_> = pairs.map(|(id, extended)| wire::extended(id, *extended, moment)).collect();
    if all_lost(extended.iter().map(|extended| matches!(extended, Extended::Stale { .. }))) {
        let list = serde_json::to_value(&leases).unwrap_or_default();
        return Err(lease_lost("extended").with("leases", list));
    }
    Ok(Reply::of(&context, ExtendedList { leases }))
}

/// Make parked keys ready.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/parked/redrive", tag = "consuming", operation_id = "redrive_parked",
    params(InQueue),
    request_body(content = Option<KeysBody>),
    responses(
        (status = 200, description = "The number of keys.", body = KeysCount),
        Always, OfQueue, OfBody, Unprocessable,
    )
)]
pub(in crate::http) async fn redrive(call: QueueCall) -> Result<Reply<KeysCount>, Problem> {
    let (handle, keys, context) = parked_keys(call).await?;
    Ok(Reply::of(&context, KeysCount { keys: handle.redrive(keys).await? }))
}

/// Drop parked keys with their waiting deltas.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/parked/discard", tag = "consuming", operation_id = "discard_parked",
    params(InQueue),
    request_body(content = Option<KeysBody>),
    responses(
        (status = 200, description = "The number of keys.", body = KeysCount),
        Always, OfQueue, OfBody, Unprocessable,
    )
)]
pub(in crate::http) async fn discard(call: QueueCall) -> Result<Reply<KeysCount>, Problem> {
    let (handle, keys, context) = parked_keys(call).await?;
    Ok(Reply::of(&context, KeysCount { keys: handle.discard_parked(keys).await? }))
}

async fn parked_keys(
    call: QueueCall,
) -> Result<(Arc<Handle>, Option<Vec<Key>>, Arc<RequestContext>), Problem> {
    let QueueCall { state, name, incoming, context, .. } = call;
    let body: KeysBody = incoming.document().await?;
    let keys = body.keys.as_deref().map(read_keys).transpose()?;
    Ok((state.registry.get(&name)?, keys, context))
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

async fn settle_one_way(call: QueueCall, how: SettleAs) -> Result<Reply<SettledList>, Problem> {
    let QueueCall { state, name, incoming, context, .. } = call;
    let body: LeasesBody = incoming.document().await?;
    // All leases share one copy of the error, which may be long.
    let how_all = read_how(how, body.delay.as_deref(), body.error.as_deref())?;
    check_leases(body.leases.iter())?;
    let hows = vec![how_all; body.leases.len()];
    let call = |lease: String| SettleCall { lease, how, delay: None, error: None };
    let calls: Vec<SettleCall> = body.leases.into_iter().map(call).collect();
    settle_all(&state, &name, calls, hows).await.map(|list| Reply::of(&context, list))
}

async fn settle_all(
    state: &AppState,
    name: &Name,
    calls: Vec<SettleCall>,
    hows: Vec<How>,
) -> Result<SettledList, Problem> {
    let handle = state.registry.get(name)?;
    check_done(state, name, &hows)?;
    let settles = settles_of(&handle, &calls, hows);
    let is_large = settles.len() > LARGE_CALL_KEYS;
    let settling = {
        let handle = handle.clone();
        async move { handle.settle(&settles).await }
    };
    let results = if is_large { state.on_main_runtime(settling).await } else { settling.await }?;
    let settled = settled_documents(calls, &results, handle.moment());
    if all_lost(results.iter().map(|settled| matches!(settled, Settled::Stale { .. }))) {
        let list = serde_json::to_value(&settled).unwrap_or_default();
        return Err(lease_lost("settled").with("settled", list));
    }
    Ok(SettledList { settled })
}

fn all_lost(mut stale: impl ExactSizeIterator<Item = bool>) -> bool {
    stale.len() > 0 && stale.all(|stale| stale)
}

fn lease_lost(done: &str) -> Problem {
    Problem::new(Code::LeaseLost, format!("none of the leases could be {done}; outcome says how each ended"))
}

/// Checks the settles of a request before any of them takes effect.
fn read_settles(calls: &[SettleCall]) -> Result<Vec<How>, Problem> {
    check_leases(calls.iter().map(|call| &call.lease))?;
    let hows = calls.iter().enumerate().map(|(index, call)| {
        let how = read_how(call.how, call.delay.as_deref(), call.error.as_deref());
        how.map_err(|problem| problem.in_item(index, None))
    });
    hows.collect()
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
    if error.is_some_and(|error| error.len() > ERROR_BYTES_MAX) {
        let detail = format!("field \"error\": it has more than {ERROR_BYTES_MAX} bytes");
        let problem = Problem::new(Code::InvalidRequest, detail).with("field", "error");
        return Err(problem.with("limit", ERROR_BYTES_MAX));
    }
    let error = error.map(Arc::from);
    Ok(match how {
        SettleAs::Ack => How::Ack,
        SettleAs::Done => How::Done { delay },
        SettleAs::Nack => How::Nack { delay, error },
        SettleAs::Release => How::Release,
        SettleAs::Reject => How::Reject { error },
    })
}

fn check_leases<'a>(ids: impl ExactSizeIterator<Item = &'a String>) -> Result<(), Problem> {
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

fn settles_of(handle: &Handle, calls: &[SettleCall], hows: Vec<How>) -> Vec<Settle> {
    let pairs = calls.iter().zip(hows);
    pairs.map(|(call, how)| Settle { token: handle.token(&call.lease), how }).collect()
}

fn settled_documents(calls: Vec<SettleCall>, results: &[Settled], moment: Moment) -> Vec<SettledDocument> {
    let pairs = calls.into_iter().zip(results);
    pairs.map(|(call, settled)| wire::settled(call.lease, call.how, *settled, moment)).collect()
}

/// Refuses `done` in the other modes: it would drop the deltas of the lease. A queue with keys keeps its mode, so the mode
/// cannot change before the settle of a live lease.
fn check_done(state: &AppState, name: &Name, hows: &[How]) -> Result<(), Problem> {
    if !hows.iter().any(|how| matches!(how, How::Done { .. })) {
        return Ok(());
    }
    let handle = state.registry.find(name);
    let mode = handle.map_or(state.registry.defaults().mode, |handle| handle.config().mode);
    if mode == Mode::Keys {
        return Ok(());
    }
    let reason = "only mode keys has Done without Forget; settle with ack, which applies the deltas";
    Err(Refusal::WrongMode { call: "done", reason, mode }.into())
}
