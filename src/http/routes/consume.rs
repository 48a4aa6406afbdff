//! Calls of workers: pop, and settle in all its ways.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use deltaq_engine::command::{HoldScope, How, Item, Part, Pop, Settle, Settled};
use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::id::{Rv, Token, Worker};
use deltaq_engine::key::Key;
use deltaq_engine::limits::{GROUP_BYTES_MAX, NAME_BYTES_MAX};
use deltaq_engine::refusal::Refusal;
use deltaq_service::{Handle, Moment, PopCall};
use deltaq_types::{
    LeasesBody, Mode, PopBody, Popped, SettleAs, SettleBody, SettleCall, SettledDocument, SettledList,
};
use foldhash::fast::RandomState;

use crate::http::blocking::{RENDERINGS, run_blocking};
use crate::http::gate::in_flight::CountedReply;
use crate::http::gate::limits::{DELAY_MAX, LEASE_MAX, LEASE_MIN, POP_MAX};
use crate::http::node;
use crate::http::openapi::params::{ExtendQuery, InQueue, PopQuery};
use crate::http::openapi::responses::{
    Always, Conflict, Full, OfBody, OfQueue, OtherListener, Unprocessable,
};
use crate::http::problem::{Code, Problem};
use crate::http::reply::RequestCounts;
use crate::http::reply::delivery::{DeliveryBody, Leases};
use crate::http::reply::{Reply, json};
use crate::http::request::accept::CLOUD_EVENTS;
use crate::http::request::body::blank_hinted;
use crate::http::request::call::QueueCall;
use crate::http::request::context::RequestContext;
use crate::http::request::params::{Params, check_error, read_duration, wrong};
use crate::http::state::AppState;
use crate::http::wire::{self, QueueIdentity, With, popped, popped_bytes, popped_events};

/// Maximum number of keys in one forget, promote, redrive or discard.
const KEYS_MAX: usize = 10_000;
/// Maximum number of leases in an extension that waits for a newer change.
const WAITING_LEASES_MAX: usize = 100;
/// A reply of at least this size in bytes is rendered on a blocking thread, because it would delay the other
/// connections of the thread.
const LARGE_REPLY_BYTES: usize = 256 << 10;
/// A pop or settle of more keys than this runs on the main runtime, for the same reason.
const LARGE_CALL_KEYS: usize = 100;
/// Maximum number of leases in one settle.
const SETTLES_MAX: usize = 10_000;

/// A lease that a request settles.
#[derive(Debug)]
struct NamedSettle {
    lease_id: String,
    how: SettleAs,
    /// The index of the lease in a list of leases, or of its entry in a list of settles.
    index: usize,
}

/// Settle earlier leases, then pop keys, and wait for keys if none is ready.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/pop", tag = "consuming", operation_id = "pop",
    params(InQueue, PopQuery),
    request_body(content = Option<PopBody>),
    responses(
        (status = 200, description = "The delivered keys; none if the wait has passed.", content((Popped = "application/json"), (Vec<Value> = "application/cloudevents-batch+json"))),
        Always, OfQueue, OfBody, Full, OtherListener,
    )
)]
pub(in crate::http) async fn pop(call: QueueCall) -> Result<Response, Problem> {
    let QueueCall { state, name, params, incoming, context, .. } = call;
    let wait = params.duration("wait", Duration::ZERO..=state.limits.max_wait)?.unwrap_or_default();
    let (with_known, with_diff) = read_with(params.text("with"))?;
    let pop = read_pop(&params, state.limits.max_reply_bytes, with_known || with_diff)?;
    let body: PopBody = incoming.document().await?;
    let (leases, hows) = read_settles(body.settle)?;
    let handle = state.partitions.get(&name)?;
    check_hows(&handle, &hows)?;
    check_wanted_group(&handle, pop.group.as_deref())?;
    check_events(&context, &handle, with_known || with_diff, !hows.is_empty())?;
    let with = With { known: with_known, diff: with_diff.then(|| handle.config().array_keys.clone()) };
    let is_large = pop.max > LARGE_CALL_KEYS || hows.len() > LARGE_CALL_KEYS;
    let settles = settles_of(&handle, &leases, hows);
    let popping = {
        let (handle, context) = (handle.clone(), context.clone());
        async move { handle.pop_until(PopCall { pop, settles, wait }, context.ended()).await }
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
    let bytes = popped_bytes(&delivered.items, &settled, &with);
    let reserved = match context.reserve_reply(bytes) {
        Ok(reserved) => reserved,
        Err(problem) => return Err(problem.with_default("settled", settled)),
    };
    let pops_events = context.pops_events;
    let render = move || {
        let text = if pops_events {
            events_of(&handle, &delivered.items)
        } else {
            popped(&handle.lives(), &delivered.items, &settled, &with, switches, handle.moment())
        };
        (text, delivered)
    };
    let permit = async { RENDERINGS.permit(&context.creator()).await };
    let is_large = bytes >= LARGE_REPLY_BYTES;
    let (text, delivered) = if is_large { run_blocking(permit.await, render).await } else { render() };
    let outbox = context.connection.as_ref().map(|connection| connection.outbox.clone());
    let is_counted = reserved.is_some();
    let has_leases = context.is_from_node() && delivered.holds_leases();
    let mut response = json(Body::new(DeliveryBody::new(text, Leases::Own(delivered), outbox, reserved)));
    if pops_events {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CLOUD_EVENTS));
    }
    if has_leases {
        response.headers_mut().insert(&node::LEASES, HeaderValue::from_static("true"));
    }
    if is_counted {
        response.extensions_mut().insert(CountedReply);
    }
    Ok(response)
}

/// Reads the parameters of a pop.
fn read_pop(params: &Params, max_bytes: usize, with_known: bool) -> Result<Pop, Problem> {
    let max = params.count("max", 1..=POP_MAX)?.unwrap_or(1);
    Ok(Pop {
        max: usize::try_from(max).unwrap_or(usize::MAX),
        max_bytes,
        lease: params.duration("lease_duration", LEASE_MIN..=LEASE_MAX)?,
        worker: params.name("worker")?.map(Worker::from),
        id: params.name("id")?.map(Arc::from),
        with_known,
        group: params.text_or_empty("group").map(check_group).transpose()?,
    })
}

/// The keys as a list of CloudEvents.
fn events_of(handle: &Handle, items: &[Item]) -> String {
    let (lives, incarnation) = (handle.lives(), handle.incarnation().to_string());
    let identity = QueueIdentity { queue: handle.name().as_str(), incarnation: &incarnation, lives: &lives };
    popped_events(identity, items, handle.moment())
}

/// Refuses what a list of CloudEvents has no place for, if the caller wants one.
fn check_events(
    context: &RequestContext,
    handle: &Handle,
    has_with: bool,
    has_settles: bool,
) -> Result<(), Problem> {
    if !context.pops_events {
        return Ok(());
    }
    let mode = handle.config().mode;
    if mode == Mode::Keys {
        let reason = "an event has an object, and mode keys has none";
        return Err(Refusal::WrongMode { call: "pop as CloudEvents", reason, mode }.into());
    }
    if has_with {
        return Err(wrong("with", "a list of CloudEvents has only the newest object of a key"));
    }
    if has_settles {
        let detail = "a list of CloudEvents has no results of settles";
        return Err(Problem::new(Code::InvalidRequest, detail)
            .with("field", "settle")
            .hint("settle with POST /v1/queues/{queue}/settle"));
    }
    Ok(())
}

/// Reads the parameter `with`: whether items have their known objects, and whether they have differences.
fn read_with(text: Option<&str>) -> Result<(bool, bool), Problem> {
    let (mut known, mut diff) = (false, false);
    for name in text.iter().flat_map(|text| text.split(',')) {
        match name {
            "known" => known = true,
            "diff" => diff = true,
            other => {
                let why = format!("it takes \"known\", \"diff\" or \"known,diff\", not {}", Excerpt(other));
                return Err(wrong("with", &why));
            }
        }
    }
    Ok((known, diff))
}

/// Settle leases, each in its own way.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/settle", tag = "consuming", operation_id = "settle",
    params(InQueue),
    request_body(content = SettleBody),
    responses(
        (status = 200, description = "The result for each lease.", body = SettledList),
        Always, OfQueue, OfBody, Conflict, Unprocessable,
    )
)]
pub(in crate::http) async fn settle(
    QueueCall { state, name, incoming, context, .. }: QueueCall,
) -> Result<Reply<SettledList>, Problem> {
    let body: SettleBody = incoming.document().await?;
    let (leases, hows) = read_settles(body.settle)?;
    let handle = state.partitions.get(&name)?;
    settle_all(&state, &handle, leases, hows).await.map(|list| context.reply(list))
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
                Always, OfQueue, OfBody, Conflict, Unprocessable,
            )
        )]
        pub(in crate::http) async fn $name(call: QueueCall) -> Result<Reply<SettledList>, Problem> {
            settle_one_way(call, SettleAs::$how, None).await
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
    /// Park keys at once. A key with a newer change is delivered again instead.
    reject "/v1/queues/{queue}/reject" "reject" Reject;
}

/// Set the deadline of leases to now plus a length, which may shorten them, or wait for a newer change besides.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/extend", tag = "consuming", operation_id = "extend",
    params(InQueue, ExtendQuery),
    request_body(content = LeasesBody),
    responses(
        (status = 200, description = "The result for each lease.", body = SettledList),
        Always, OfQueue, OfBody, Conflict, Unprocessable,
    )
)]
pub(in crate::http) async fn extend(call: QueueCall) -> Result<Reply<SettledList>, Problem> {
    let wait = call.params.duration("wait", Duration::ZERO..=call.state.limits.max_wait)?;
    let until_changed = call.params.flag("until_changed")?;
    if wait.is_some() && !until_changed {
        return Err(wrong("wait", "it is allowed only with until_changed=true"));
    }
    settle_one_way(call, SettleAs::Extend, wait).await
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

/// With `until_changed`, the reply comes at the first change behind one of the leases, or when one ends or this time has passed.
async fn settle_one_way(
    call: QueueCall,
    how: SettleAs,
    until_changed: Option<Duration>,
) -> Result<Reply<SettledList>, Problem> {
    let QueueCall { state, name, incoming, context, .. } = call;
    let (body, is_blank): (LeasesBody, _) = incoming.document_or_blank().await?;
    let mut leases = Vec::new();
    let how = read_settle(body.settled_as(how), &mut leases, |place| place);
    let how = how.map_err(|problem| if is_blank { blank_hinted(problem) } else { problem })?;
    check_leases(&leases)?;
    let handle = state.partitions.get(&name)?;
    if context.is_undelivered {
        handle.reclaim(leases.iter().map(|lease| handle.token(&lease.lease_id)));
        return Ok(context.reply(SettledList { settled: Vec::new(), stale: 0 }));
    }
    if until_changed.is_some() && leases.len() > WAITING_LEASES_MAX {
        let detail = format!("a call waits for changes of at most {WAITING_LEASES_MAX} leases");
        let problem = Problem::new(Code::InvalidRequest, detail).with("field", "lease_ids");
        return Err(problem.with("limit", WAITING_LEASES_MAX));
    }
    let hows = vec![how; leases.len()];
    let list = settle_all(&state, &handle, leases, hows).await?;
    match until_changed {
        Some(wait) if list.stale == 0 => until_changed_in(&handle, list, wait, &context).await,
        _ => Ok(list),
    }
    .map(|list| context.reply(list))
}

/// Waits for a change behind extended leases. Returns their states afterwards.
async fn until_changed_in(
    handle: &Arc<Handle>,
    list: SettledList,
    wait: Duration,
    context: &RequestContext,
) -> Result<SettledList, Problem> {
    let ids: Vec<String> = list.settled.into_iter().map(|extended| extended.lease_id).collect();
    let tokens: Vec<Token> = ids.iter().map(|id| handle.token(id)).collect();
    let states = handle.until_changed(&tokens, wait, context.ended()).await?;
    let stale = states.iter().filter(|state| matches!(state, Settled::Stale { .. })).count() as u64;
    let moment = handle.moment();
    let documents = ids.into_iter().zip(states);
    let settled = documents.map(|(id, state)| wire::settled(id, SettleAs::Extend, state, moment)).collect();
    Ok(SettledList { settled, stale })
}

async fn settle_all(
    state: &AppState,
    handle: &Arc<Handle>,
    leases: Vec<NamedSettle>,
    hows: Vec<How>,
) -> Result<SettledList, Problem> {
    check_hows(handle, &hows)?;
    let settles = settles_of(handle, &leases, hows);
    let is_large = settles.len() > LARGE_CALL_KEYS;
    let settling = {
        let handle = handle.clone();
        async move { handle.settle(&settles).await }
    };
    let results = if is_large { state.on_main_runtime(settling).await } else { settling.await }?;
    let settled = settled_documents(leases, &results, handle.moment());
    let lost = results.iter().filter(|settled| matches!(settled, Settled::Stale { .. })).count();
    let not_leased = results.iter().filter(|settled| matches!(settled, Settled::NotLeased)).count();
    if not_leased > 0 && are_all_lost(lost + not_leased, settled.len()) {
        return Err(none_leased(lost).with_default("settled", settled));
    }
    if are_all_lost(lost, settled.len()) {
        return Err(lease_lost(lost).with_default("settled", settled));
    }
    Ok(SettledList { settled, stale: lost as u64 })
}

/// Whether a call changed nothing, because all its leases had ended.
const fn are_all_lost(lost: usize, leases: usize) -> bool {
    lost > 0 && lost == leases
}

/// The refusal has the same fields as the reply to a call that changed something.
fn lease_lost(lost: usize) -> Problem {
    let hint = "outcome says how each ended: drop the result of the work, or make the work safe to repeat";
    Problem::new(Code::LeaseLost, "none of the leases could be settled").hint(hint).with("stale", lost)
}

fn none_leased(lost: usize) -> Problem {
    let hint = "through takes the resource_version of a delta that the lease has";
    Problem::new(Code::NotLeased, "no lease has the delta up to which it is to be acknowledged")
        .hint(hint)
        .with("stale", lost)
}

/// Checks the settles of a request before any of them takes effect. All leases of an entry share one copy of the
/// entry's error, which may be long.
fn read_settles(calls: Vec<SettleCall>) -> Result<(Vec<NamedSettle>, Vec<How>), Problem> {
    let (mut leases, mut hows) = (Vec::with_capacity(calls.len()), Vec::with_capacity(calls.len()));
    for (index, call) in calls.into_iter().enumerate() {
        let how = read_settle(call, &mut leases, |_| index);
        let how = how.map_err(|problem: Problem| problem.in_item(index, None))?;
        hows.resize(leases.len(), how);
    }
    check_leases(&leases)?;
    Ok((leases, hows))
}

/// Reads one settle of one or several leases, and adds them to `leases`. `index` converts the position of a lease in
/// this settle to its position in the request.
fn read_settle(
    call: SettleCall,
    leases: &mut Vec<NamedSettle>,
    index: impl Fn(usize) -> usize,
) -> Result<How, Problem> {
    let wrong = |field: &str, detail: String| Problem::new(Code::InvalidRequest, detail).with("field", field);
    if let Some((option, ways)) = call.misplaced_option() {
        let ways: Vec<&str> = ways.iter().map(|how| how.as_str()).collect();
        return Err(wrong(option, format!("{option} goes with {} only", ways.join(" and "))));
    }
    let how = call.how;
    let ids = match (call.lease_id, call.lease_ids) {
        (Some(id), None) => vec![id],
        // A typed client writes null for a list that it does not set.
        (Some(id), Some(ids)) if ids.is_empty() => vec![id],
        (Some(_), Some(_)) => {
            return Err(wrong(
                "lease_ids",
                "fields \"lease_id\" and \"lease_ids\": give one of them".to_owned(),
            ));
        }
        (None, Some(ids)) => ids,
        (None, None) => {
            return Err(wrong("lease_id", "missing field `lease_id` or `lease_ids`".to_owned()));
        }
    };
    let length = |field: &str, text: Option<Box<str>>, range| {
        let read = text.map(|text| read_duration(&text, range)).transpose();
        read.map_err(|wrong| wrong.field(field))
    };
    let delay = length("delay", call.delay, Duration::ZERO..=DELAY_MAX)?;
    // A hold that is too long is cut, because targets ask for any time.
    let scope = call.hold.as_ref().map(|hold| hold.scope).unwrap_or_default();
    let hold = length("hold.for", call.hold.map(|hold| hold.length), Duration::ZERO..=Duration::MAX)?;
    let hold = hold.filter(|length| !length.is_zero());
    let or_hold = |acks, otherwise| hold.map_or(otherwise, |length| How::Hold { scope, acks, length });
    let lease = length("lease_duration", call.lease_duration, LEASE_MIN..=LEASE_MAX)?;
    call.error.as_deref().map(check_error).transpose().map_err(|wrong| wrong.field("error"))?;
    let error = call.error.map(Arc::from);
    let through = call.through.map(|through| Rv::new(*through));
    if through.is_some() && ids.len() != 1 {
        return Err(wrong("through", "through goes with one lease only".to_owned()));
    }
    let keeps = call.keep == Some(true);
    if keeps && (through.is_none() || hold.is_some()) {
        return Err(wrong("keep", "keep goes with through and without hold only".to_owned()));
    }
    let places = ids.into_iter().enumerate();
    leases.extend(places.map(|(place, lease_id)| NamedSettle { lease_id, how, index: index(place) }));
    let how = match how {
        SettleAs::Ack => or_hold(true, How::Ack),
        SettleAs::Done => How::Done { delay },
        SettleAs::Nack => How::Nack { delay, floor: call.floor == Some(true), error },
        SettleAs::Release => or_hold(false, How::Release),
        SettleAs::Reject => How::Reject { error },
        SettleAs::Extend => How::Extend { lease },
    };
    Ok(match through {
        None => how,
        Some(through) => How::Part(Box::new(Part { through, rest: (!keeps).then_some(how) })),
    })
}

fn check_leases(leases: &[NamedSettle]) -> Result<(), Problem> {
    let refused = |detail: String| Problem::new(Code::InvalidRequest, detail);
    if leases.len() > SETTLES_MAX {
        let detail = format!("the request names more than {SETTLES_MAX} leases");
        return Err(refused(detail).with("limit", SETTLES_MAX));
    }
    let mut seen: HashSet<_, RandomState> = HashSet::default();
    let is_alone = leases.len() == 1;
    for NamedSettle { lease_id, index, .. } in leases {
        if lease_id.len() > NAME_BYTES_MAX {
            let detail = format!("the lease id {} has more than {NAME_BYTES_MAX} bytes", Excerpt(lease_id));
            return Err(refused(detail).with("index", *index).with("limit", NAME_BYTES_MAX));
        }
        if !is_alone && !seen.insert(lease_id) {
            let detail = format!("the lease {} is named twice", Excerpt(lease_id));
            return Err(refused(detail).with("index", *index));
        }
    }
    Ok(())
}

fn settles_of(handle: &Handle, leases: &[NamedSettle], hows: Vec<How>) -> Vec<Settle> {
    let pairs = leases.iter().zip(hows);
    pairs.map(|(lease, how)| Settle { token: handle.token(&lease.lease_id), how }).collect()
}

fn settled_documents(leases: Vec<NamedSettle>, results: &[Settled], moment: Moment) -> Vec<SettledDocument> {
    let pairs = leases.into_iter().zip(results);
    pairs.map(|(lease, settled)| wire::settled(lease.lease_id, lease.how, *settled, moment)).collect()
}

/// The name of a group, which may be empty.
fn check_group(name: &str) -> Result<Arc<str>, Problem> {
    if name.len() > GROUP_BYTES_MAX {
        return Err(wrong("group", &format!("the name of a group has at most {GROUP_BYTES_MAX} bytes")));
    }
    Ok(name.into())
}

/// Refuses a pop that asks for a group of a queue without groups.
fn check_wanted_group(handle: &Handle, group: Option<&str>) -> Result<(), Problem> {
    if group.is_some() && handle.config().groups.is_none() {
        return Err(wrong("group", "the queue has no setting groups"));
    }
    Ok(())
}

/// Refuses a hold of a group in a queue without groups, a hold of a key that is acknowledged, `done` in all modes except keys, where it would drop the deltas of the lease, and `through` in all
/// modes except delta, where a lease has at most one delta. A queue with keys can't change its mode, so the mode can't change before a live lease is settled.
fn check_hows(handle: &Handle, hows: &[How]) -> Result<(), Problem> {
    let holds_group = |how: &How| {
        let how = if let How::Part(part) = how { part.rest.as_ref() } else { Some(how) };
        matches!(how, Some(How::Hold { scope: HoldScope::Group, .. }))
    };
    let refused = |detail| Err(Problem::new(Code::InvalidRequest, detail).with("field", "hold.scope"));
    if hows.iter().any(holds_group) && handle.config().groups.is_none() {
        return refused("the queue has no setting groups, so there is no group to hold");
    }
    if hows.iter().any(|how| matches!(how, How::Hold { scope: HoldScope::Key, acks: true, .. })) {
        return refused("an acknowledged key has nothing to hold: a hold of the key comes with release");
    }
    let of = |how: &How| match how {
        How::Done { .. } => Some(("done", Mode::Keys, "only mode keys has Done without Forget")),
        How::Part(_) => Some(("through", Mode::Delta, "only in mode delta a lease has several deltas")),
        _ => None,
    };
    if !hows.iter().any(|how| of(how).is_some()) {
        return Ok(());
    }
    let mode = handle.config().mode;
    match hows.iter().filter_map(of).find(|(_, needed, _)| *needed != mode) {
        Some((call, _, reason)) => Err(Refusal::WrongMode { call, reason, mode }.into()),
        None => Ok(()),
    }
}
