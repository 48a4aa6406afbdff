//! Webhooks of vendors: their deliveries, and those that are kept because they could not be applied.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use deltaq_engine::command::Call;
use deltaq_engine::config::Config;
use deltaq_engine::deliveries::{DeliveryId, KeptDelivery, UnappliedDelivery};
use deltaq_engine::id::{Rv, Source};
use deltaq_engine::limits::KEPT_DELIVERIES_BYTES_MAX;
use deltaq_engine::object;
use deltaq_engine::refusal::Refusal;
use deltaq_service::{self, Handle, HookResult, Moment, Name, Rejected};
use deltaq_types::{
    DeliveriesBody, DeliveriesCount, DeliveryDocument, DeliveryList, DeliveryReason, Hook, HookAnswer,
    HookScheme, Redelivered,
};
use serde_json::json;

use crate::config::access::Verb;
use crate::hooks::{Change, Reading, Unapplied, id_of, kept_headers, read, text_of, verify};
use crate::http::openapi::params::{InQueue, OfDelivery};
use crate::http::openapi::responses::{Always, Conflict, Full, NotFound, OfBody, OfQueue, Unprocessable};
use crate::http::openapi::schemas::Delivered;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Json;
use crate::http::request::admitted::{AdmissionRules, ObjectUse, Reader};
use crate::http::request::body::Account;
use crate::http::request::call::{QueueCall, ReadCall};
use crate::http::request::context::RequestContext;
use crate::http::request::received::ReceivedObject;
use crate::http::state::AppState;
use crate::http::wire::timestamp;

/// How often a delivery is read if the settings of the queue change during the call.
const READINGS_MAX: usize = 3;
/// Maximum size of the body of a kept delivery, in bytes: half of what a queue keeps.
const KEPT_BYTES_MAX: usize = KEPT_DELIVERIES_BYTES_MAX / 2;
/// Maximum number of deliveries that a call names.
const NUMBERS_MAX: usize = 1_000;

/// A delivery whose sender is known.
struct Delivery {
    headers: HeaderMap,
    /// The JSON text, or what can be read of a body that is not UTF-8.
    text: Result<String, String>,
    /// The id of a kept delivery.
    id: Option<DeliveryId>,
}

impl Delivery {
    fn json(&self) -> Option<&str> {
        self.text.as_deref().ok()
    }

    fn body(&self) -> &str {
        let (Ok(body) | Err(body)) = &self.text;
        body
    }

    fn id(&self, hook: &Hook) -> Option<DeliveryId> {
        self.id.or_else(|| id_of(hook, &self.headers, self.json()))
    }
}

/// What became of a delivery.
enum Outcome {
    Applied { is_duplicate: bool, is_stale: bool, version: Rv },
    Challenged(String),
    Unapplied(Unapplied),
}

/// A queue with a hook.
struct Target {
    handle: Arc<Handle>,
    hook: Arc<Hook>,
}

impl Target {
    fn of(state: &AppState, name: &Name) -> Option<Self> {
        let handle = state.partitions.find(name)?;
        let hook = handle.config().hook.clone()?;
        Some(Self { handle, hook })
    }
}

/// Take a webhook of a vendor as a change, if the queue has the setting `hook`. The signature of the delivery is its credential; no token is needed.
#[utoipa::path(
    post, path = "/v1/hooks/{queue}", tag = "producing", operation_id = "receive_hook", security(()),
    params(InQueue),
    request_body(content((Delivered = "application/json"))),
    responses(
        (status = 200, description = "The answer to a challenge of the vendor."),
        (status = 202, description = "Applied, or kept because it could not be applied.", body = HookAnswer),
        Always, OfQueue, OfBody, Conflict, Unprocessable, Full,
    )
)]
pub(in crate::http) async fn receive(call: QueueCall, headers: HeaderMap) -> Result<Response, Problem> {
    let QueueCall { state, name, incoming, context, .. } = call;
    let account = incoming.account();
    let body = incoming.bytes().await?;
    let Some(target) = Target::of(&state, &name) else { return Err(unsigned()) };
    check_signature(&state, &name, &target, &headers, &body)?;
    context.note_signed();
    let text = text_of(&headers, body);
    let delivery = Delivery { headers, text, id: None };
    let outcome = apply(&context, &name, &target.hook, account, &delivery).await?;
    answer(&state, &target, delivery, outcome).await
}

/// The same for a queue that does not exist, has no hook, or has not got this signature.
fn unsigned() -> Problem {
    Problem::new(Code::Unauthorized, "there is no such hook, or the signature of the delivery is wrong")
        .hint("deltaq hook verify says what is wrong with a signature")
}

fn check_signature(
    state: &AppState,
    name: &Name,
    Target { handle, hook }: &Target,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(), Problem> {
    let secret = |secret: &String| state.hook_secrets.of(name.as_str(), secret);
    let secrets: Vec<_> = hook.secrets.iter().filter_map(secret).collect();
    let now_us = state.clock.wall_us();
    verify(hook, &secrets, headers, body, now_us / 1_000_000).map_err(|why| {
        let detail = if secrets.is_empty() {
            "this server has none of the secrets of the hook".into()
        } else {
            why.to_string().into()
        };
        handle.hook_log().reject(Rejected { at_us: now_us, reason: DeliveryReason::Signature, detail });
        unsigned()
    })
}

/// Applies a delivery by the hook that has verified it. The error is a problem of the server or of the queue: the vendor should send the delivery
/// again.
async fn apply(
    context: &Arc<RequestContext>,
    name: &Name,
    hook: &Arc<Hook>,
    account: Account,
    delivery: &Delivery,
) -> Result<Outcome, Problem> {
    let state = &context.state;
    let mut rules = AdmissionRules::for_queue(state, name, account);
    for _ in 0..READINGS_MAX {
        let Some(handle) = rules.handle.clone() else { return Err(unsigned()) };
        if rules.config.hook.as_ref() != Some(hook) {
            return Err(Refusal::ConfigChanged.into());
        }
        let change = match read(hook, &delivery.headers, delivery.json()) {
            Reading::Change(change) => change,
            Reading::Challenge(challenge) => return Ok(Outcome::Challenged(challenge)),
            Reading::Unapplied(unapplied) => return Ok(Outcome::Unapplied(unapplied)),
        };
        let call = match call_of(context, &rules, hook, &change).await {
            Ok(call) => call,
            Err(problem) => return unapplied(problem),
        };
        match handle.deliver(&rules.config, &[call], &[delivery.id(hook)], &[]).await {
            Err(deltaq_service::Error::Refused(Refusal::ConfigChanged)) => rules = rules.now(handle),
            Err(error) => return unapplied(error.into()),
            Ok(delivered) => {
                return Ok(Outcome::Applied {
                    is_duplicate: delivered.repeated > 0,
                    is_stale: delivered.produced.stale > 0,
                    version: delivered.produced.resource_version,
                });
            }
        }
    }
    Err(Refusal::ConfigChanged.into())
}

/// The outcome of a delivery whose object is refused. Other problems end the call.
fn unapplied(problem: Problem) -> Result<Outcome, Problem> {
    let reason = match problem.code() {
        Code::InvalidJson => DeliveryReason::InvalidJson,
        Code::NoKey => DeliveryReason::NoKey,
        Code::InvalidKey => DeliveryReason::InvalidKey,
        Code::InvalidObject => DeliveryReason::InvalidObject,
        Code::ObjectTooLarge => DeliveryReason::ObjectTooLarge,
        _ => return Err(problem),
    };
    Ok(Outcome::Unapplied(Unapplied { reason, detail: problem.detail().to_owned() }))
}

/// The call of a change, after admission.
async fn call_of(
    context: &RequestContext,
    rules: &AdmissionRules,
    hook: &Hook,
    change: &Change,
) -> Result<Call, Problem> {
    let kind = change.kind;
    let scanned = object::scan(&change.object, &rules.config.key)?;
    let received = ReceivedObject { object: scanned.object, key: scanned.key, line: None };
    let (source, trace) = (hook.source.as_deref().map(Source::from), context.trace());
    let read = move |reader: &mut Reader<'_>, _, received: &ReceivedObject| {
        let object_use = ObjectUse::of(kind);
        let (key, object) = reader.keyed(received, None, object_use)?;
        let version = reader.version(&object, object_use)?;
        Ok(Call {
            kind,
            key,
            object: Some(object),
            source: source.clone(),
            delay: None,
            debounce: None,
            head_start: None,
            final_state_unknown: false,
            rate_limited: false,
            trace: trace.clone(),
            version,
        })
    };
    let mut calls = rules.each(Arc::new(vec![received]), read).await?;
    calls.pop().ok_or_else(|| Problem::new(Code::Internal, "the delivery could not be read"))
}

/// The answer to a delivery.
async fn answer(
    state: &AppState,
    target: &Target,
    delivery: Delivery,
    outcome: Outcome,
) -> Result<Response, Problem> {
    let (log, now_us) = (target.handle.hook_log(), state.clock.wall_us());
    let answer = match outcome {
        Outcome::Challenged(challenge) => {
            return Ok(Json(json!({ "challenge": challenge })).into_response());
        }
        Outcome::Applied { is_duplicate, is_stale, version } => {
            log.count(result(is_duplicate, is_stale), now_us);
            applied(is_duplicate, is_stale, version)
        }
        Outcome::Unapplied(unapplied) => {
            let aside = put_aside(target, &delivery, &unapplied).await?;
            if let Aside::Repeated(version) = aside {
                log.count(HookResult::Duplicate, now_us);
                applied(true, false, version)
            } else {
                let Unapplied { reason, detail } = unapplied;
                log.reject(Rejected { at_us: now_us, reason, detail: detail.as_str().into() });
                let number = match aside {
                    Aside::Refused(problem) => return Err(problem),
                    Aside::Kept(number) => number,
                    Aside::Repeated(_) | Aside::Dropped => Rv::ZERO,
                };
                report(state, target, reason, number);
                let (reason, detail) = (Some(reason), Some(detail));
                HookAnswer { accepted: false, reason, detail, ..applied(false, false, number) }
            }
        }
    };
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

fn applied(is_duplicate: bool, is_stale: bool, version: Rv) -> HookAnswer {
    HookAnswer {
        accepted: true,
        duplicate: is_duplicate,
        stale: is_stale,
        reason: None,
        detail: None,
        resource_version: version.get(),
    }
}

/// Where a delivery goes that can't be applied.
enum Aside {
    /// Its id was applied before; this is the version of the queue.
    Repeated(Rv),
    /// The queue keeps it with this number.
    Kept(Rv),
    /// It is left out on purpose, and there is no room for it.
    Dropped,
    /// It is not kept.
    Refused(Problem),
}

async fn put_aside(
    Target { handle, hook }: &Target,
    delivery: &Delivery,
    unapplied: &Unapplied,
) -> Result<Aside, Problem> {
    if let Some(id) = delivery.id(hook)
        && let Some(version) = handle.delivered_by(id).await?
    {
        return Ok(Aside::Repeated(version));
    }
    let Unapplied { reason, detail } = unapplied;
    let is_filtered = *reason == DeliveryReason::Filtered;
    let is_large = delivery.body().len() > KEPT_BYTES_MAX;
    if hook.refuse && !is_filtered {
        let problem = Problem::new(Code::InvalidObject, detail.clone()).with("reason", reason.as_str());
        let hint = "the setting hook.refuse of the queue is true; otherwise it keeps the delivery";
        return Ok(Aside::Refused(problem.hint(hint)));
    }
    if is_large && !is_filtered {
        let detail = format!("the delivery can't be applied ({detail}), and it is too large to be kept");
        let problem = Problem::new(Code::ObjectTooLarge, detail).with("reason", reason.as_str());
        return Ok(Aside::Refused(problem.with("limit", KEPT_BYTES_MAX)));
    }
    if is_large {
        return Ok(Aside::Dropped);
    }
    match handle.keep_delivery(kept(hook, delivery, unapplied)).await {
        Ok((true, number)) => Ok(Aside::Kept(number)),
        Ok((false, version)) => Ok(Aside::Repeated(version)),
        Err(deltaq_service::Error::Refused(Refusal::MemoryFull { .. })) if is_filtered => Ok(Aside::Dropped),
        Err(error) => Err(error.into()),
    }
}

/// Writes a line about a delivery that a person has to look at.
fn report(state: &AppState, Target { handle, .. }: &Target, reason: DeliveryReason, number: Rv) {
    let queue = handle.name().as_str();
    if reason != DeliveryReason::Filtered && state.refused_lines.admits(Some(queue)) {
        let (reason, number) = (reason.as_str(), number.get());
        tracing::warn!(queue, reason, number, "a delivery of the hook can't be applied; the queue keeps it");
    }
}

const fn result(is_duplicate: bool, is_stale: bool) -> HookResult {
    match (is_duplicate, is_stale) {
        (true, _) => HookResult::Duplicate,
        (false, true) => HookResult::Stale,
        (false, false) => HookResult::Applied,
    }
}

fn kept(
    hook: &Hook,
    delivery: &Delivery,
    Unapplied { reason, detail }: &Unapplied,
) -> Arc<UnappliedDelivery> {
    let of_header = |(name, value): (String, String)| (name.into(), value.into());
    Arc::new(UnappliedDelivery {
        id: delivery.id(hook),
        is_filtered: *reason == DeliveryReason::Filtered,
        reason: reason.as_str().into(),
        detail: detail.as_str().into(),
        headers: kept_headers(hook, &delivery.headers).into_iter().map(of_header).collect(),
        body: delivery.body().into(),
        is_lossy: delivery.text.is_err(),
    })
}

/// List the deliveries of the hook that are kept because they could not be applied, the newest first, without their bodies.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/hook/deliveries", tag = "reading", operation_id = "list_deliveries",
    params(InQueue),
    responses(
        (status = 200, description = "The deliveries.", body = DeliveryList),
        Always, OfQueue,
    )
)]
pub(in crate::http) async fn list(call: ReadCall) -> Result<Json<DeliveryList>, Problem> {
    let handle = call.state.partitions.get(&call.name()?)?;
    let (kept, moment) = (handle.kept_deliveries().await?, handle.moment());
    Ok(Json(DeliveryList { deliveries: kept.iter().map(|kept| document(kept, moment)).collect() }))
}

/// A kept delivery with its headers and its body.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/hook/deliveries/{number}", tag = "reading", operation_id = "get_delivery",
    params(InQueue, OfDelivery),
    responses(
        (status = 200, description = "The delivery.", body = DeliveryDocument),
        Always, OfQueue, NotFound,
    )
)]
pub(in crate::http) async fn get(call: ReadCall) -> Result<Json<DeliveryDocument>, Problem> {
    let handle = call.state.partitions.get(&call.name()?)?;
    let number = call.uri.path().rsplit('/').next().and_then(|text| text.parse::<Rv>().ok());
    let all = handle.kept_deliveries().await?;
    let kept = all.into_iter().find(|kept| Some(kept.rv) == number).ok_or_else(|| {
        let detail = "the queue keeps no delivery with this number";
        Problem::new(Code::NotFound, detail).hint("GET .../hook/deliveries lists those that it keeps")
    })?;
    let delivery = &kept.delivery;
    let headers = delivery.headers.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    Ok(Json(DeliveryDocument {
        headers: Some(headers.collect()),
        body: Some(delivery.body.to_string()),
        ..document(&kept, handle.moment())
    }))
}

fn document(kept: &KeptDelivery, moment: Moment) -> DeliveryDocument {
    let delivery = &kept.delivery;
    let reason = DeliveryReason::ALL.iter().find(|reason| reason.as_str() == &*delivery.reason);
    DeliveryDocument {
        number: kept.rv.get(),
        received_at: timestamp(moment.wall(kept.at)),
        reason: reason.copied().unwrap_or(DeliveryReason::Unrecognized),
        detail: delivery.detail.to_string(),
        bytes: delivery.body.len() as u64,
        headers: None,
        body: None,
    }
}

/// Apply kept deliveries with the present settings: some, or all. Those that can be applied are not kept any longer.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/hook/deliveries/redeliver", tag = "producing", operation_id = "redeliver_deliveries",
    params(InQueue),
    request_body(content = DeliveriesBody),
    responses(
        (status = 200, description = "What became of the deliveries.", body = Redelivered),
        Always, OfQueue, OfBody, Conflict, Unprocessable, Full,
    )
)]
pub(in crate::http) async fn redeliver(call: QueueCall) -> Result<Json<Redelivered>, Problem> {
    let QueueCall { state, name, incoming, context, .. } = call;
    let account = incoming.account();
    let body: DeliveriesBody = incoming.document().await?;
    let Some(Target { handle, hook }) = Target::of(&state, &name) else {
        state.partitions.get(&name)?;
        let problem = Problem::invalid_setting("hook", "the queue takes no webhooks");
        return Err(problem.hint("set hook with PATCH /v1/queues/{queue}"));
    };
    check_producer(&context, &name, &hook)?;
    let (mut done, mut problem) = (Redelivered::default(), None);
    for kept in selected(&handle, body).await? {
        context.authorize_again()?;
        let body = kept.delivery.body.to_string();
        let delivery = Delivery {
            headers: headers_of(&kept),
            text: if kept.delivery.is_lossy { Err(body) } else { Ok(body) },
            id: kept.delivery.id,
        };
        match apply(&context, &name, &hook, account.clone(), &delivery).await {
            Ok(Outcome::Applied { is_duplicate, is_stale, .. }) => {
                let dropped = handle.drop_deliveries(&[kept.rv]).await?;
                // Another call may have applied it in the meantime.
                if !is_duplicate || dropped > 0 {
                    handle.hook_log().count(result(is_duplicate, is_stale), state.clock.wall_us());
                    done.applied += 1;
                }
            }
            Ok(Outcome::Challenged(_)) => done.kept += 1,
            Ok(Outcome::Unapplied(unapplied)) => {
                // What `only` leaves out stays kept, and is no failure.
                if unapplied.reason != DeliveryReason::Filtered {
                    done.kept += 1;
                    done.detail = Some(unapplied.detail);
                }
            }
            Err(refused) => {
                done.kept += 1;
                done.detail = Some(refused.detail().to_owned());
                problem.get_or_insert(refused);
            }
        }
    }
    match problem {
        Some(problem) if done.applied == 0 => Err(problem),
        _ => Ok(Json(done)),
    }
}

/// Discard kept deliveries: some, or all.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/hook/deliveries/discard", tag = "producing", operation_id = "discard_deliveries",
    params(InQueue),
    request_body(content = DeliveriesBody),
    responses(
        (status = 200, description = "The number of deliveries.", body = DeliveriesCount),
        Always, OfQueue, OfBody, Unprocessable,
    )
)]
pub(in crate::http) async fn discard(call: QueueCall) -> Result<Json<DeliveriesCount>, Problem> {
    let QueueCall { state, name, incoming, .. } = call;
    let body: DeliveriesBody = incoming.document().await?;
    let handle = state.partitions.get(&name)?;
    let numbers: Vec<Rv> = selected(&handle, body).await?.iter().map(|kept| kept.rv).collect();
    Ok(Json(DeliveriesCount { deliveries: handle.drop_deliveries(&numbers).await? }))
}

/// The kept deliveries that a call selects, the oldest first.
async fn selected(handle: &Handle, body: DeliveriesBody) -> Result<Vec<KeptDelivery>, Problem> {
    let wrong = |detail: &str| Problem::new(Code::InvalidRequest, detail.to_owned()).with("field", "numbers");
    let mut kept = handle.kept_deliveries().await?;
    kept.reverse();
    match (body.numbers, body.all) {
        (Some(numbers), false) if numbers.len() > NUMBERS_MAX => {
            Err(wrong("numbers: at most 1000").with("limit", NUMBERS_MAX))
        }
        (Some(numbers), false) => {
            kept.retain(|kept| numbers.contains(&kept.rv.get()));
            Ok(kept)
        }
        (None, true) => Ok(kept),
        (None, false) => Err(wrong("the call selects no deliveries: give \"numbers\" or \"all\":true")),
        (Some(_), true) => Err(wrong("fields \"numbers\" and \"all\": give one of them")),
    }
}

fn headers_of(kept: &KeptDelivery) -> HeaderMap {
    let header = |(name, value): &(Arc<str>, Arc<str>)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_str(value).ok()?))
    };
    kept.delivery.headers.iter().filter_map(header).collect()
}

/// Refuses a caller that may not produce what a hook produces.
fn check_producer(context: &RequestContext, name: &Name, hook: &Hook) -> Result<(), Problem> {
    context.authorize_on(Verb::Produce, name.as_str())?;
    context.sources_on(name).check(hook.source.as_deref().map(Source::from).as_ref())
}

/// Refuses a hook that the caller may not set, or whose secrets the queue may not use.
pub(super) fn check_hook(
    context: &RequestContext,
    name: &Name,
    current: Option<&Config>,
    next: &Config,
) -> Result<(), Problem> {
    let Some(hook) = &next.hook else { return Ok(()) };
    if current.and_then(|current| current.hook.as_ref()) == Some(hook) {
        return Ok(());
    }
    check_producer(context, name, hook)?;
    for secret in &hook.secrets {
        let Some(found) = context.state.hook_secrets.of(name.as_str(), secret) else {
            let why = format!("this server has no secret {secret:?} that the queue may use");
            return Err(Problem::invalid_setting("hook.secrets", &why).hint(
                "the operator adds it as [hooks.secrets.NAME], with file and queues, and restarts the server",
            ));
        };
        if found.is_public() && hook.scheme != HookScheme::Standard {
            let why = format!(
                "the secret {secret:?} is a public key, which only the scheme standard verifies with"
            );
            return Err(Problem::invalid_setting("hook.secrets", &why).hint("use a shared secret"));
        }
    }
    Ok(())
}
