//! What producers send: add, update, delete, mixed deltas, replace, resync, seed, forget.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;

use super::reading::{Listing, Parsed, documents, key_or_explicit, keys_of, objects, read_keys_again};
use crate::engine::command::{self, Call, Progress, Replace};
use crate::engine::config::{Config, Mode};
use crate::engine::delta::{DeltaKind, Source};
use crate::engine::key::Key;
use crate::engine::object::{self, Object};
use crate::engine::refusal::Refusal;
use crate::engine::time::Time;
use crate::engine::{Queue, Sweep};
use crate::http::body::{Incoming, read_document};
use crate::http::params::{Params, QueueName, check_duration, check_name, wrong};
use crate::http::problem::{Code, Problem};
use crate::http::state::AppState;
use crate::http::wire::{
    DeltaCall, DeltaCallKind, KeysBody, KeysCount, ProblemDocument, Produced, Replaced, SeedCall,
};
use crate::service::{self, Name, SLICE_KEYS};

/// Longest delay of a produce call or a nack.
pub(super) const DELAY_MAX: Duration = Duration::from_hours(366 * 24);

/// How often a produce call reads its keys anew because the queue's settings changed meanwhile.
const READINGS_MAX: usize = 3;

/// Add objects: the object itself, a JSON array, or NDJSON; all or none.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/add", tag = "producing",
    params(
        ("queue" = String, Path, description = "The queue's name."),
        ("source" = Option<String>, Query, description = "Who produces."),
        ("delay" = Option<String>, Query, description = "How long the objects wait before they are handed out; a duration."),
        ("key" = Option<String>, Query, description = "The key of a single object that does not carry it."),
        ("rate_limited" = Option<bool>, Query, description = "Mode keys: AddRateLimited."),
    ),
    request_body(content((crate::http::wire::RawObject = "application/json"), (String = "application/x-ndjson"))),
    responses(
        (status = 200, description = "Accepted.", body = Produced),
        (status = "4XX", description = "A problem; nothing was applied.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(in crate::http) async fn add(
    State(state): State<AppState>,
    QueueName(name): QueueName,
    params: Params,
    incoming: Incoming,
) -> Result<Json<Produced>, Problem> {
    let params = params.only(&["source", "delay", "key", "rate_limited"])?;
    produce(&state, &name, &params, incoming, DeltaKind::Added).await
}

/// Update objects; an unknown key is accepted.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/update", tag = "producing",
    params(
        ("queue" = String, Path, description = "The queue's name."),
        ("source" = Option<String>, Query, description = "Who produces."),
        ("delay" = Option<String>, Query, description = "How long the objects wait before they are handed out; a duration."),
        ("key" = Option<String>, Query, description = "The key of a single object that does not carry it."),
    ),
    request_body(content((crate::http::wire::RawObject = "application/json"), (String = "application/x-ndjson"))),
    responses(
        (status = 200, description = "Accepted.", body = Produced),
        (status = "4XX", description = "A problem; nothing was applied.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(in crate::http) async fn update(
    State(state): State<AppState>,
    QueueName(name): QueueName,
    params: Params,
    incoming: Incoming,
) -> Result<Json<Produced>, Problem> {
    let params = params.only(&["source", "delay", "key"])?;
    produce(&state, &name, &params, incoming, DeltaKind::Updated).await
}

/// Delete objects, or one by its key alone.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/delete", tag = "producing",
    params(
        ("queue" = String, Path, description = "The queue's name."),
        ("source" = Option<String>, Query, description = "Who produces."),
        ("key" = Option<String>, Query, description = "The key; the body may then be empty."),
    ),
    request_body(content((crate::http::wire::RawObject = "application/json"), (String = "application/x-ndjson"))),
    responses(
        (status = 200, description = "Accepted, or ignored.", body = Produced),
        (status = "4XX", description = "A problem; nothing was applied.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(in crate::http) async fn delete(
    State(state): State<AppState>,
    QueueName(name): QueueName,
    params: Params,
    incoming: Incoming,
) -> Result<Json<Produced>, Problem> {
    let params = params.only(&["source", "key"])?;
    produce(&state, &name, &params, incoming, DeltaKind::Deleted).await
}

async fn produce(
    state: &AppState,
    name: &Name,
    params: &Params,
    incoming: Incoming,
    kind: DeltaKind,
) -> Result<Json<Produced>, Problem> {
    let source: Option<Source> = params.name("source")?.map(Source::from);
    let delay = params.duration("delay", Duration::ZERO..=DELAY_MAX)?;
    let explicit = params.key("key")?;
    let rate_limited = params.flag("rate_limited")?;
    if rate_limited && delay.is_some() {
        return Err(wrong("rate_limited", "the rate limiter gives the delay; leave delay out"));
    }
    let mut config = config_of(state, name);
    let most = state.limits.max_batch;
    let (mut parsed, many) = objects(incoming, &config, most, explicit.is_some()).await?;
    if explicit.is_some() && (many || parsed.len() > 1) {
        return Err(wrong("key", "it names a single object, and the body has a list"));
    }
    for _ in 0..READINGS_MAX {
        let bare = kind == DeltaKind::Deleted || config.mode == Mode::Keys;
        let template = |key: Key, object: Option<Object>| Call {
            kind,
            key,
            object: object.filter(|_| config.mode != Mode::Keys),
            source: source.clone(),
            delay,
            final_state_unknown: false,
            rate_limited,
        };
        let calls = match (&explicit, parsed.is_empty()) {
            (Some(key), true) if bare => vec![template(key.clone(), None)],
            (_, true) if !many => return Err(empty_body(bare)),
            _ => {
                let keyed = keys_of(&parsed, explicit.as_ref())?;
                keyed.into_iter().map(|(key, object)| template(key, Some(object))).collect()
            }
        };
        state.registry.rehearse(name, |queue| queue.check_calls(&calls))?;
        let handle = state.registry.get_or_create(name)?;
        match handle.produce(&config, &calls).await {
            Err(service::Error::ConfigChanged) => {
                config = handle.config();
                for parsed in &mut parsed {
                    parsed.read_again(&config);
                }
            }
            produced => return Ok(Json(produced?.into())),
        }
    }
    Err(service::Error::ConfigChanged.into())
}

fn empty_body(key_would_do: bool) -> Problem {
    let hint = if key_would_do { ", or a key in the query" } else { "" };
    Problem::new(Code::InvalidJson, format!("the body is empty; this call takes an object or a list{hint}"))
        .with("line", 1)
        .with("column", 1)
}

/// Apply a mixed batch of Added, Updated and Deleted; all or none.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/deltas", tag = "producing",
    params(("queue" = String, Path, description = "The queue's name.")),
    request_body(content((Vec<DeltaCall> = "application/json"), (String = "application/x-ndjson"))),
    responses(
        (status = 200, description = "Accepted.", body = Produced),
        (status = "4XX", description = "A problem; nothing was applied.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(in crate::http) async fn deltas(
    State(state): State<AppState>,
    QueueName(name): QueueName,
    params: Params,
    incoming: Incoming,
) -> Result<Json<Produced>, Problem> {
    params.only(&[])?;
    let mut config = config_of(&state, &name);
    let texts = documents(incoming, state.limits.max_batch, config.max_object_bytes).await?;
    for _ in 0..READINGS_MAX {
        let calls = texts.iter().enumerate().map(|(index, (text, line))| {
            delta_call(text, &config).map_err(|problem| problem.in_item(index, *line))
        });
        let calls: Vec<Call> = calls.collect::<Result<_, _>>()?;
        state.registry.rehearse(&name, |queue| queue.check_calls(&calls))?;
        let handle = state.registry.get_or_create(&name)?;
        match handle.produce(&config, &calls).await {
            Err(service::Error::ConfigChanged) => config = handle.config(),
            produced => return Ok(Json(produced?.into())),
        }
    }
    Err(service::Error::ConfigChanged.into())
}

fn delta_call(text: &str, config: &Config) -> Result<Call, Problem> {
    let call: DeltaCall<'_> = read_document(text)?;
    let kind = match call.kind {
        DeltaCallKind::Added => DeltaKind::Added,
        DeltaCallKind::Updated => DeltaKind::Updated,
        DeltaCallKind::Deleted => DeltaKind::Deleted,
    };
    let explicit = call.key.as_deref().map(Key::new).transpose()?;
    let scanned = call.object.map(|raw| object::scan(raw.get(), &config.key)).transpose()?;
    let bare = kind == DeltaKind::Deleted || config.mode == Mode::Keys;
    let (key, object) = match (scanned, explicit) {
        (Some(scanned), explicit) => (key_or_explicit(scanned.key, explicit.as_ref())?, Some(scanned.object)),
        (None, Some(key)) if bare => (key, None),
        (None, _) => {
            let needs = if bare { "an object or a key" } else { "an object" };
            let detail = format!("{} needs {needs}", kind.as_str());
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
    };
    if let Some(source) = &call.source {
        check_name("source", source)?;
    }
    if call.final_state_unknown && kind != DeltaKind::Deleted {
        let detail = "final_state_unknown goes with Deleted only";
        return Err(Problem::new(Code::InvalidRequest, detail));
    }
    let delay = call.delay.as_deref();
    Ok(Call {
        kind,
        key,
        object: object.filter(|_| config.mode != Mode::Keys),
        source: call.source.as_deref().map(Source::from),
        delay: delay.map(|text| check_duration("delay", text, Duration::ZERO..=DELAY_MAX)).transpose()?,
        final_state_unknown: call.final_state_unknown,
        rate_limited: false,
    })
}

/// Replace a source's whole set: what is not in the list is deleted.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/replace", tag = "producing",
    params(
        ("queue" = String, Path, description = "The queue's name."),
        ("source" = Option<String>, Query, description = "Whose set it is."),
        ("only_changed" = Option<bool>, Query, description = "Queue nothing for objects that have not changed."),
        ("max_delete_percent" = Option<f64>, Query, description = "Refuse to delete more than this percentage of the source's keys.", minimum = 0, maximum = 100),
        ("max_deletes" = Option<u64>, Query, description = "Refuse to delete more than this many keys."),
        ("dry_run" = Option<bool>, Query, description = "Only tell what would happen."),
        ("count" = Option<u64>, Query, description = "How many objects the list has; NDJSON needs it, or a last line {\"$end\":N}."),
    ),
    request_body(content((Vec<crate::http::wire::RawObject> = "application/json"), (String = "application/x-ndjson"))),
    responses(
        (status = 200, description = "Done.", body = Replaced),
        (status = "4XX", description = "A problem; nothing was applied.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(in crate::http) async fn replace(
    State(state): State<AppState>,
    QueueName(name): QueueName,
    params: Params,
    incoming: Incoming,
) -> Result<Json<Replaced>, Problem> {
    const KNOWN: &[&str] =
        &["source", "only_changed", "max_delete_percent", "max_deletes", "dry_run", "count"];
    let params = params.only(KNOWN)?;
    let source: Option<Source> = params.name("source")?.map(Source::from);
    let (only_changed, dry_run) = (params.flag("only_changed")?, params.flag("dry_run")?);
    let max_delete_percent = params.percent("max_delete_percent")?;
    let max_deletes = params.count("max_deletes", 0..=u64::MAX)?;
    let count = params.count("count", 0..=u64::MAX)?;

    let config = config_of(&state, &name);
    let most = state.limits.max_replace_objects;
    let listing = Listing::read(incoming, &config, most, count).await?;
    let mut replace = Replace {
        items: listing.items,
        keys: Arc::new(listing.keys),
        source,
        only_changed,
        max_delete_percent,
        max_deletes,
        dry_run,
    };
    let first = state.registry.rehearse(&name, |queue| queue.check_replace(&replace))?;
    if dry_run && let Some(mut queue) = first {
        return Ok(Json(whole_replace(&mut queue, replace)?.into()));
    }
    let handle = state.registry.get_or_create(&name)?;
    let now = handle.config();
    if now.key != config.key {
        let items = read_keys_again(replace.items, &now)?;
        let keys = Arc::new(items.iter().map(|(key, _)| key.clone()).collect());
        replace = Replace { items, keys, ..replace };
    }
    // The queue's lock must not be held while a large set is dropped, so a second owner outlives it.
    let keep = replace.keys.clone();
    let mut accepting = Some(replace);
    let mut id = None;
    let replaced = handle
        .sliced(move |queue, now| {
            if let Some(replace) = accepting.take() {
                id = Some(queue.accept_replace(now, replace)?);
            }
            match id {
                Some(id) => queue.replace_step(now, id, SLICE_KEYS),
                None => Ok(Progress::NotYet),
            }
        })
        .await;
    drop(keep);
    Ok(Json(replaced?.into()))
}

/// Runs a Replace on a queue that nobody else uses.
fn whole_replace(queue: &mut Queue, replace: Replace) -> Result<command::Replaced, Refusal> {
    let now = Time::default();
    let id = queue.accept_replace(now, replace)?;
    loop {
        if let Progress::Done(replaced) = queue.replace_step(now, id, SLICE_KEYS)? {
            return Ok(replaced);
        }
    }
}

/// Hand out every known object again whose key has nothing waiting.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/resync", tag = "producing",
    params(("queue" = String, Path, description = "The queue's name.")),
    responses(
        (status = 200, description = "Done.", body = Produced),
        (status = "4XX", description = "A problem.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(in crate::http) async fn resync(
    State(state): State<AppState>,
    QueueName(name): QueueName,
    params: Params,
    incoming: Incoming,
) -> Result<Json<Produced>, Problem> {
    params.only(&[])?;
    incoming.nothing().await?;
    let handle = state.registry.get_or_create(&name)?;
    let mut sweep = Sweep::default();
    let resynced = handle.sliced(move |queue, now| queue.resync_step(now, &mut sweep, SLICE_KEYS)).await?;
    Ok(Json(resynced.into()))
}

/// Put known objects in place without a delta: restoring, moving in.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/seed", tag = "producing",
    params(("queue" = String, Path, description = "The queue's name.")),
    request_body(content((Vec<SeedCall> = "application/json"), (String = "application/x-ndjson"))),
    responses(
        (status = 200, description = "Done.", body = Produced),
        (status = "4XX", description = "A problem; nothing was applied.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(in crate::http) async fn seed(
    State(state): State<AppState>,
    QueueName(name): QueueName,
    params: Params,
    incoming: Incoming,
) -> Result<Json<Produced>, Problem> {
    params.only(&[])?;
    let config = config_of(&state, &name);
    let texts = documents(incoming, state.limits.max_replace_objects, config.max_object_bytes).await?;
    let seeds = texts.iter().enumerate().map(|(index, (text, line))| {
        seed_call(text, &config).map_err(|problem| problem.in_item(index, *line))
    });
    let seeds: Vec<_> = seeds.collect::<Result<_, _>>()?;
    drop(texts);
    let queued = seeds.len() as u64;
    state.registry.rehearse(&name, |queue| queue.check_seed(&seeds))?;
    let handle = state.registry.get_or_create(&name)?;
    if handle.config().key != config.key {
        return Err(service::Error::ConfigChanged.into());
    }
    let mut unchecked = Some(seeds);
    let mut checked = Vec::new().into_iter();
    let resource_version = handle
        .sliced(move |queue, now| {
            if let Some(seeds) = unchecked.take() {
                queue.advance(now);
                queue.check_seed(&seeds)?;
                checked = seeds.into_iter();
            }
            queue.seed_step(now, checked.by_ref().take(SLICE_KEYS));
            let rest = checked.len();
            Ok(if rest > 0 { Progress::More } else { Progress::Done(queue.resource_version()) })
        })
        .await?;
    Ok(Json(Produced { resource_version, queued, ignored: 0 }))
}

fn seed_call(text: &str, config: &Config) -> Result<(Key, Object, Option<Source>), Problem> {
    let call: SeedCall<'_> = read_document(text)?;
    let explicit = call.key.as_deref().map(Key::new).transpose()?;
    let scanned = object::scan(call.object.get(), &config.key)?;
    if let Some(source) = &call.source {
        check_name("source", source)?;
    }
    let key = key_or_explicit(scanned.key, explicit.as_ref())?;
    Ok((key, scanned.object, call.source.as_deref().map(Source::from)))
}

/// Drop the failures of keys (client-go's Forget).
#[utoipa::path(
    post, path = "/v1/queues/{queue}/forget", tag = "producing",
    params(("queue" = String, Path, description = "The queue's name.")),
    request_body(content = KeysBody),
    responses(
        (status = 200, description = "How many keys had failures.", body = KeysCount),
        (status = "4XX", description = "A problem.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(in crate::http) async fn forget(
    State(state): State<AppState>,
    QueueName(name): QueueName,
    params: Params,
    incoming: Incoming,
) -> Result<Json<KeysCount>, Problem> {
    params.only(&[])?;
    let body: KeysBody = incoming.document().await?;
    let Some(keys) = body.keys else {
        return Err(Problem::new(Code::InvalidRequest, "missing field `keys`"));
    };
    let handle = state.registry.get(&name)?;
    let unique: HashSet<&str> = keys.iter().map(String::as_str).collect();
    let keys = handle.write(|queue, now| queue.forget(now, unique)).await?;
    Ok(Json(KeysCount { keys }))
}

/// The settings by which the objects of a call are read: the queue's, or those that it would get.
fn config_of(state: &AppState, name: &Name) -> Arc<Config> {
    let existing = state.registry.find(name);
    existing.map_or_else(|| state.registry.defaults().clone(), |handle| handle.config())
}

impl Parsed {
    /// Reads the key by other settings than before.
    fn read_again(&mut self, config: &Config) {
        if let Ok(scanned) = object::scan(self.object.as_str(), &config.key) {
            self.key = scanned.key;
        }
    }
}
