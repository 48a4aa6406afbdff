//! Calls with the OpenAPI tag `producing`: add, update, delete, deltas, replace, resync, seed and forget.

mod apply;
mod events;
mod one;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::{Call, DefaultLimit, Replace};
use deltaq_engine::config::Config;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::id::{Rv, Sequence, Source};
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::object_version::ObjectVersion;
use deltaq_engine::refusal::Refusal;
use deltaq_engine::trace::Trace;
use deltaq_service::{DryRun, FirstCall, Name};
use deltaq_types::range::WHOLE_MAX;
use deltaq_types::{DeltaCall, DeltaCallType, ForgetBody, KeysCount, Mode, Produced, Replaced};

use self::apply::{Entry, Request, last_sequence, placed};
pub(in crate::http) use self::one::{Change, apply_one};
use super::consume::read_keys;
use crate::http::blocking::{CHECKS, run_blocking};
use crate::http::gate::limits::DELAY_MAX;
use crate::http::openapi::params::{
    AddQuery, DeleteQuery, DeltasQuery, ExpectedObject, InQueue, InTrace, ReplaceQuery, UpdateQuery,
};
use crate::http::openapi::responses::{
    Always, Conflict, Full, OfBody, OfQueue, PreconditionFailed, Unprocessable,
};
use crate::http::openapi::schemas::{Deltas, Objects, Seeds};
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;
use crate::http::request::admitted::{AdmissionRules, ObjectUse, Reader, key_or_explicit};
use crate::http::request::body::Account;
use crate::http::request::call::QueueCall;
use crate::http::request::conditional::Conditions;
use crate::http::request::context::RequestContext;
use crate::http::request::documents::{Document, documents};
use crate::http::request::invalid::InvalidKey;
use crate::http::request::params::{Params, check_name, read_duration, wrong};
use crate::http::request::received::{BatchLimit, ReceivedObject, empty_body, objects};
use crate::http::request::replace_list::{read_keys_again, read_list};
use crate::http::request::seed::read_seeds;
use crate::http::request::{debounce, order};
use crate::http::wire;

/// Add objects: the object itself, a JSON array, or NDJSON; all or none.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/add", tag = "producing", operation_id = "add",
    params(InQueue, AddQuery, InTrace, ExpectedObject),
    request_body(description = "May be compressed: Content-Encoding gzip, br or zstd.", content((Objects = "application/json"), (Objects = "application/x-ndjson"))),
    responses(
        (status = 200, description = "Accepted.", body = Produced),
        Always, OfQueue, OfBody, Conflict, PreconditionFailed, Unprocessable, Full,
    )
)]
pub(in crate::http) async fn add(
    call: QueueCall,
    conditions: Conditions,
) -> Result<Reply<Produced>, Problem> {
    produce(call, conditions, DeltaKind::Added).await
}

/// Update objects; an unknown key is accepted.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/update", tag = "producing", operation_id = "update",
    params(InQueue, UpdateQuery, InTrace, ExpectedObject),
    request_body(description = "May be compressed: Content-Encoding gzip, br or zstd.", content((Objects = "application/json"), (Objects = "application/x-ndjson"))),
    responses(
        (status = 200, description = "Accepted.", body = Produced),
        Always, OfQueue, OfBody, Conflict, PreconditionFailed, Unprocessable, Full,
    )
)]
pub(in crate::http) async fn update(
    call: QueueCall,
    conditions: Conditions,
) -> Result<Reply<Produced>, Problem> {
    produce(call, conditions, DeltaKind::Updated).await
}

/// Delete objects, or one by its key alone.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/delete", tag = "producing", operation_id = "delete",
    params(InQueue, DeleteQuery, InTrace, ExpectedObject),
    request_body(description = "May be compressed: Content-Encoding gzip, br or zstd.", content((Option<Objects> = "application/json"), (Option<Objects> = "application/x-ndjson"))),
    responses(
        (status = 200, description = "Accepted or ignored.", body = Produced),
        Always, OfQueue, OfBody, Conflict, PreconditionFailed, Unprocessable, Full,
    )
)]
pub(in crate::http) async fn delete(
    call: QueueCall,
    conditions: Conditions,
) -> Result<Reply<Produced>, Problem> {
    produce(call, conditions, DeltaKind::Deleted).await
}

async fn produce(
    call: QueueCall,
    conditions: Conditions,
    kind: DeltaKind,
) -> Result<Reply<Produced>, Problem> {
    let context = call.context.clone();
    let produced = if call.incoming.has_events() {
        events::produced(call, conditions, kind).await?
    } else {
        produced(call, conditions, kind).await?
    };
    Ok(context.reply(produced))
}

async fn produced(call: QueueCall, conditions: Conditions, kind: DeltaKind) -> Result<Produced, Problem> {
    let QueueCall { state, name, params, incoming, context, .. } = call;
    let source = permitted_source(&params, &context, &name)?;
    let sequence = read_sequence(&params, source.as_ref())?;
    let delay = params.duration("delay", Duration::ZERO..=DELAY_MAX)?;
    let (quiet, head_start) = (debounce::of_call(&params)?, order::of_call(&params)?);
    let explicit = params.key("key")?;
    let rate_limited = params.flag("rate_limited")?;
    let must_exist = params.flag("must_exist")?;
    if rate_limited && delay.is_some() {
        return Err(wrong("rate_limited", "the rate limiter gives the delay").hint("leave delay out"));
    }
    if rate_limited && quiet.is_some() {
        return Err(wrong("rate_limited", "the rate limiter gives the delay").hint("leave debounce out"));
    }
    let rules = AdmissionRules::of(&state, &name, &incoming);
    rules.check_exists(must_exist)?;
    let (parsed, many) =
        objects(incoming, &rules.config, BatchLimit::of_batch(&state), explicit.is_some()).await?;
    if explicit.is_some() && (many || parsed.len() > 1) {
        let detail = "the key names a single object, and the body has a list";
        return Err(Problem::new(Code::InvalidKey, detail).with("parameter", "key"));
    }
    if let Some(header) = conditions.header().filter(|_| many || parsed.len() > 1) {
        let detail = format!("{header} applies to a single object, and the body has a list");
        let problem = Problem::new(Code::InvalidRequest, detail).with("header", header);
        return Err(problem.hint("POST .../deltas takes an expected_version for each object"));
    }
    let request = Request { context: &context, name: &name, must_exist, sequence, conditions, ids: None };
    let trace = context.trace();
    let template =
        move |config: &Config, key: Key, object: Option<Object>, version: Option<ObjectVersion>| Call {
            kind,
            key,
            object: object.filter(|_| config.mode != Mode::Keys),
            source: source.clone(),
            delay,
            debounce: quiet,
            head_start,
            final_state_unknown: false,
            rate_limited,
            trace: trace.clone(),
            version,
        };
    if parsed.is_empty() && !many {
        let bare = move |config: &Config| kind == DeltaKind::Deleted || config.mode == Mode::Keys;
        let rules = rules.without_objects();
        let read = move |reader: &mut Reader<'_>, _, explicit: &Option<Key>| match explicit {
            Some(key) if bare(reader.config) => Ok(template(reader.config, key.clone(), None, None)),
            _ if kind == DeltaKind::Deleted => {
                let detail = "the body is empty and the query has no key";
                Err(Problem::new(Code::NoKey, detail).hint("delete takes one of them"))
            }
            _ => Err(empty_body()),
        };
        return request.apply(rules, Arc::new(vec![explicit]), read).await;
    }
    let read_by = rules.config.clone();
    let read = move |reader: &mut Reader<'_>, index, parsed: &ReceivedObject| {
        let again = (reader.config.key != read_by.key).then(|| parsed.read_again(reader.config));
        let parsed = again.as_ref().unwrap_or(parsed);
        let object_use = ObjectUse::of(kind);
        let read = reader.keyed(parsed, explicit.as_ref(), object_use).and_then(|(key, object)| {
            let version = reader.version(&object, object_use)?;
            Ok(template(reader.config, key, Some(object), version))
        });
        read.map_err(|problem| problem.in_item(index, parsed.line))
    };
    request.apply(rules, Arc::new(parsed), read).await
}

/// Apply a mixed batch of Added, Updated and Deleted; all or none.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/deltas", tag = "producing", operation_id = "deltas",
    params(InQueue, DeltasQuery, InTrace),
    request_body(description = "May be compressed: Content-Encoding gzip, br or zstd.", content((Deltas = "application/json"), (Deltas = "application/x-ndjson"))),
    responses(
        (status = 200, description = "Accepted.", body = Produced),
        Always, OfQueue, OfBody, Conflict, PreconditionFailed, Unprocessable, Full,
    )
)]
pub(in crate::http) async fn deltas(
    QueueCall { state, name, params, incoming, context, .. }: QueueCall,
) -> Result<Reply<Produced>, Problem> {
    let source: Option<Source> = params.name("source")?.map(Source::from);
    let permitted = context.sources_on(&name);
    if source.is_some() {
        permitted.check(source.as_ref())?;
    }
    let sequence = read_sequence(&params, source.as_ref())?;
    let (skip_invalid, must_exist) = (params.flag("skip_invalid")?, params.flag("must_exist")?);
    let rules = AdmissionRules::of(&state, &name, &incoming);
    rules.check_exists(must_exist)?;
    let came = documents(incoming, BatchLimit::of_batch(&state), &rules.config, skip_invalid).await?;
    let trace = context.trace();
    let read = move |reader: &mut Reader<'_>, index, document: &Document| {
        let of_source = |(call, expects): (Call, Option<Rv>)| {
            let call = Call { source: call.source.or_else(|| source.clone()), ..call };
            permitted.check(call.source.as_ref()).map_err(|problem| document.problem(index, problem))?;
            Ok(Entry::Call(call, expects))
        };
        let problem = match delta_call(document, reader, trace.clone()) {
            Ok(read) => return of_source(read),
            Err(problem) => problem,
        };
        if !skip_invalid || !is_of_object(&problem) {
            return Err(document.problem(index, problem));
        }
        let (key, expects) = delta_key(document, reader.config);
        // A deletion needs only the key, so an invalid object must not cause it to be left out.
        if let Some(call) = bare_deletion(document, &key, reader, trace.clone()) {
            return of_source((call, expects));
        }
        Ok(Entry::Invalid { key, problem: document.problem(index, problem), expects })
    };
    let conditions = Conditions::default();
    let request = Request { context: &context, name: &name, must_exist, sequence, conditions, ids: None };
    Ok(context.reply(request.apply(rules, Arc::new(came), read).await?))
}

/// Whether a problem concerns an object and not the call.
fn is_of_object(problem: &Problem) -> bool {
    use Code::{InvalidJson, InvalidKey, InvalidObject, NoKey, ObjectTooLarge};
    matches!(problem.code(), InvalidJson | InvalidKey | InvalidObject | NoKey | ObjectTooLarge)
}

/// The deletion of a key, without the object of the document; `None` if the document is not a deletion.
fn bare_deletion(
    document: &Document,
    key: &InvalidKey,
    reader: &mut Reader<'_>,
    trace: Option<Trace>,
) -> Option<Call> {
    let call: DeltaCall<'_> = document.outline()?;
    let InvalidKey::Key(key) = key else { return None };
    let key = Some(key.as_str().to_owned()).filter(|_| call.kind == DeltaCallType::Deleted);
    call_of(&DeltaCall { key: Some(key?), object: None, ..call }, document, reader, trace).ok()
}

/// The key of a delta whose object is not valid, and the version that the delta expects the key to have.
fn delta_key(document: &Document, config: &Config) -> (InvalidKey, Option<Rv>) {
    let Some(call) = document.outline::<DeltaCall<'_>>() else { return (InvalidKey::Unreadable, None) };
    let explicit = call.key.as_deref().map(Key::new);
    let own = || call.object.map(|object| config.key.read(object.get()));
    let key = explicit.or_else(own).map_or(InvalidKey::Unreadable, InvalidKey::from);
    (key, call.expected_version.map(Rv::new))
}

/// The source of the call, if the caller may produce in its name, or without one.
fn permitted_source(
    params: &Params,
    context: &RequestContext,
    queue: &Name,
) -> Result<Option<Source>, Problem> {
    let source = params.name("source")?.map(Source::from);
    context.sources_on(queue).check(source.as_ref())?;
    Ok(source)
}

/// The sequence of a call of `source`.
fn read_sequence(params: &Params, source: Option<&Source>) -> Result<Option<Sequence>, Problem> {
    let Some(number) = params.count("sequence", 0..=WHOLE_MAX)? else { return Ok(None) };
    let source =
        source.ok_or_else(|| wrong("sequence", "it numbers the calls of a source").hint("add source"))?;
    Ok(Some(Sequence { source: source.clone(), number }))
}

/// The call of a delta, and the version that the delta expects its key to have.
fn delta_call(
    document: &Document,
    reader: &mut Reader<'_>,
    trace: Option<Trace>,
) -> Result<(Call, Option<Rv>), Problem> {
    let call: DeltaCall<'_> = document.envelope()?;
    Ok((call_of(&call, document, reader, trace)?, call.expected_version.map(Rv::new)))
}

fn call_of(
    call: &DeltaCall<'_>,
    document: &Document,
    reader: &mut Reader<'_>,
    trace: Option<Trace>,
) -> Result<Call, Problem> {
    let config = reader.config;
    let kind = match call.kind {
        DeltaCallType::Added => DeltaKind::Added,
        DeltaCallType::Updated => DeltaKind::Updated,
        DeltaCallType::Deleted => DeltaKind::Deleted,
    };
    let explicit = call.key.as_deref().map(Key::new).transpose()?;
    let scanned = match call.object {
        Some(raw) => Some(reader.admitted(document.object(raw, &config.key)?, ObjectUse::of(kind))?),
        None => None,
    };
    if let Some(scanned) = scanned.as_ref().filter(|_| config.mode != Mode::Keys) {
        reader.check_length(&scanned.object)?;
    }
    let version = scanned.as_ref().map(|scanned| reader.version(&scanned.object, ObjectUse::of(kind)));
    let bare = kind == DeltaKind::Deleted || config.mode == Mode::Keys;
    let (key, object) = match (scanned, explicit) {
        (Some(scanned), explicit) => (key_or_explicit(scanned.key, explicit.as_ref())?, Some(scanned.object)),
        (None, Some(key)) if bare => (key, None),
        (None, _) => {
            let (code, needs) =
                if bare { (Code::NoKey, "an object or a key") } else { (Code::InvalidObject, "an object") };
            return Err(Problem::new(code, format!("{} needs {needs}", kind.as_str())));
        }
    };
    if let Some(source) = &call.source {
        check_name(source).map_err(|wrong| wrong.field("source"))?;
    }
    if call.final_state_unknown && kind != DeltaKind::Deleted {
        let detail = "final_state_unknown goes with Deleted only";
        return Err(Problem::new(Code::InvalidRequest, detail).with("field", "final_state_unknown"));
    }
    let delay = call.delay.as_deref().map(|text| read_duration(text, Duration::ZERO..=DELAY_MAX));
    Ok(Call {
        kind,
        key,
        object: object.filter(|_| config.mode != Mode::Keys),
        source: call.source.as_deref().map(Source::from),
        delay: delay.transpose().map_err(|wrong| wrong.field("delay"))?,
        head_start: order::of_entry(call.head_start.as_deref())?,
        debounce: debounce::of_entry(call.debounce.as_deref(), call.max_wait.as_deref())?,
        final_state_unknown: call.final_state_unknown,
        rate_limited: false,
        trace,
        version: version.transpose()?.flatten(),
    })
}

/// Send the complete list of a source: changes are queued, and keys that are not in the list are deleted.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/replace", tag = "producing", operation_id = "replace",
    params(InQueue, ReplaceQuery, InTrace),
    request_body(description = "May be compressed: Content-Encoding gzip, br or zstd.", content((Option<Objects> = "application/json"), (Option<Objects> = "application/x-ndjson"))),
    responses(
        (status = 200, description = "Done.", body = Replaced),
        Always, OfQueue, OfBody, Conflict, Unprocessable, Full,
    )
)]
pub(in crate::http) async fn replace(call: QueueCall) -> Result<Reply<Replaced>, Problem> {
    let QueueCall { state, name, params, incoming, context, .. } = call;
    let source = permitted_source(&params, &context, &name)?;
    let sequence = read_sequence(&params, source.as_ref())?.map(|sequence| sequence.number);
    let (only_changed, dry_run) = (params.flag("only_changed")?, params.flag("dry_run")?);
    let percent = params.percent("max_delete_percent")?;
    let max_deletes = params.count("max_deletes", 0..=WHOLE_MAX)?;
    let count = params.count("count", 0..=WHOLE_MAX)?;
    let allow_empty = params.flag("allow_empty")?;
    let (skip_invalid, must_exist) = (params.flag("skip_invalid")?, params.flag("must_exist")?);
    let keeps_last = keeps_last(&params)?;

    let rules = AdmissionRules::of(&state, &name, &incoming);
    rules.check_exists(must_exist)?;
    let read = read_list(incoming, &rules, BatchLimit::of_list(&state), count, skip_invalid).await?;
    let places = read.places;
    let mut left_out = read.invalid.unwrap_or_default();
    let is_empty = read.list.is_empty() && left_out.count == 0;
    let (kept, keeps_all) = (std::mem::take(&mut left_out.keys), left_out.lacks_key);
    let (invalid, invalid_objects) = left_out.reply();
    let default_limit = match (read.is_single, is_empty) {
        (true, _) => DefaultLimit::SingleObject,
        (false, true) => DefaultLimit::EmptyList,
        (false, false) => DefaultLimit::Half,
    };
    // The queue's limits do not apply to an empty list that the call explicitly allows.
    let allows_all = allow_empty && is_empty && max_deletes.is_none();
    let max_delete_percent = percent.or(allows_all.then_some(100.0));
    let account = rules.account();
    let mut config = rules.config;
    let mut replace = Replace {
        list: places.without_duplicates(read.list, keeps_last)?,
        kept,
        keeps_all,
        source,
        sequence,
        only_changed,
        max_delete_percent,
        max_deletes,
        default_limit,
        dry_run,
        trace: context.trace(),
    };
    let permitted = permission(&context, &name, replace.source.as_ref());
    permitted()?;
    let registry = state.partitions.registry(&name)?;
    if dry_run && registry.find(&name).is_none() {
        let dry_run = registry.dry_run(replace)?;
        let replaced = run_dry(dry_run, &context, account, permitted).await?;
        return Ok(context.reply(Replaced { invalid, invalid_objects, ..replaced }));
    }
    let handle = if must_exist {
        registry.get(&name)?
    } else {
        registry.get_or_create(&name, FirstCall::Replace(&replace), &context.creator())?
    };
    let now = handle.config();
    if invalid > 0 && *now != *config {
        // An object that was left out may be valid under the current settings, but its text is no longer available.
        return Err(Refusal::ConfigChanged.into());
    }
    // After a change of the admission rules the objects can't be read again, because their original text is no longer
    // available.
    let reads_otherwise = now.key != config.key || now.version != config.version;
    if now.admission == config.admission && reads_otherwise {
        config = now;
        let list = read_keys_again(replace.list, &config)?;
        replace = Replace { list: places.without_duplicates(list, keeps_last)?, ..replace };
    }
    // The Replace continues if its caller disconnects, and the bytes of its list count until it ends.
    let numbered = replace.sequence().filter(|_| !dry_run);
    let replaced = wire::replaced(handle.replace_if(config, replace, permitted, account).await?);
    let sequence = last_sequence(&handle, numbered, replaced.duplicate).await?;
    let (incarnation, life) = wire::place(&handle, replaced.resource_version);
    Ok(context.reply(Replaced { sequence, incarnation, life, invalid, invalid_objects, ..replaced }))
}

/// Whether the caller may still replace the objects of a source.
fn permission(
    context: &Arc<RequestContext>,
    queue: &Name,
    source: Option<&Source>,
) -> impl Fn() -> Result<(), Problem> + Send + use<> {
    let (context, queue, source) = (context.clone(), queue.clone(), source.cloned());
    move || context.authorize_change(&queue, std::iter::once(source.as_ref()))
}

/// Runs a Replace on a queue that does not exist.
async fn run_dry(
    dry_run: DryRun,
    context: &RequestContext,
    account: Account,
    permitted: impl Fn() -> Result<(), Problem>,
) -> Result<Replaced, Problem> {
    let kept = (account, CHECKS.permit(&context.creator()).await);
    permitted()?;
    Ok(wire::replaced(run_blocking(kept, move || dry_run.run()).await?))
}

/// Whether the last of several objects with the same key is used.
fn keeps_last(params: &Params) -> Result<bool, Problem> {
    match params.text("duplicates") {
        None => Ok(false),
        Some("last") => Ok(true),
        Some(other) => Err(wrong("duplicates", &format!("it takes \"last\", not {}", Excerpt(other)))),
    }
}

/// Deliver known objects again: a `Sync` delta for each known key that has no waiting delta and is neither leased nor parked.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/resync", tag = "producing", operation_id = "resync",
    params(InQueue, InTrace),
    responses(
        (status = 200, description = "Done.", body = Produced),
        Always, OfQueue, OfBody, Conflict, Full,
    )
)]
pub(in crate::http) async fn resync(
    QueueCall { state, name, incoming, context, .. }: QueueCall,
) -> Result<Reply<Produced>, Problem> {
    context.sources_on(&name).check(None)?;
    incoming.nothing().await?;
    context.authorize_change(&name, std::iter::once(None))?;
    let registry = state.partitions.registry(&name)?;
    let handle = registry.get_or_create(&name, FirstCall::Resync, &context.creator())?;
    let resynced = handle.resync(context.trace()).await?;
    Ok(context.reply(placed(&handle, wire::produced(resynced))))
}

/// Make objects known without a delta, to restore or move a queue.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/seed", tag = "producing", operation_id = "seed",
    params(InQueue),
    request_body(description = "May be compressed: Content-Encoding gzip, br or zstd.", content((Seeds = "application/json"), (Seeds = "application/x-ndjson"))),
    responses(
        (status = 200, description = "Done.", body = Produced),
        Always, OfQueue, OfBody, Conflict, Unprocessable, Full,
    )
)]
pub(in crate::http) async fn seed(
    QueueCall { state, name, incoming, context, .. }: QueueCall,
) -> Result<Reply<Produced>, Problem> {
    let rules = AdmissionRules::of(&state, &name, &incoming);
    let account = rules.account();
    let seeds = read_seeds(incoming, &rules, BatchLimit::of_seed(&state)).await?;
    let queued = seeds.len() as u64;
    context.authorize_again()?;
    let registry = state.partitions.registry(&name)?;
    let handle = registry.get_or_create(&name, FirstCall::Seed(&seeds), &context.creator())?;
    let resource_version = handle.seed(rules.config, seeds, account).await?;
    let resource_version = resource_version.get();
    Ok(context.reply(placed(&handle, Produced { resource_version, queued, ..Produced::default() })))
}

/// Set the failures of keys to 0 (client-go's Forget).
#[utoipa::path(
    post, path = "/v1/queues/{queue}/forget", tag = "producing", operation_id = "forget",
    params(InQueue),
    request_body(content = ForgetBody),
    responses(
        (status = 200, description = "The number of keys that had failures.", body = KeysCount),
        Always, OfQueue, OfBody, Unprocessable,
    )
)]
pub(in crate::http) async fn forget(
    QueueCall { state, name, incoming, context, .. }: QueueCall,
) -> Result<Reply<KeysCount>, Problem> {
    let body: ForgetBody = incoming.document().await?;
    let keys = read_keys(&body.keys)?;
    let handle = state.partitions.get(&name)?;
    let unique: HashSet<&str> = keys.iter().map(Key::as_str).collect();
    let keys = handle.forget(unique).await?;
    Ok(context.reply(KeysCount { keys }))
}

impl ReceivedObject {
    /// The object with the key that it has with other settings.
    fn read_again(&self, config: &Config) -> Self {
        Self { key: config.key.read(self.object.as_str()), ..self.clone() }
    }
}
