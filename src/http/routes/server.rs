//! Calls about the server itself: health, metrics, limits, problems.

use std::time::Duration;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::limits::{JSON_DEPTH_MAX, KEY_BYTES_MAX};
use deltaq_service::JournalError;
use deltaq_types::{
    GrantVerb, Info, InfoCaller, InfoGrant, InfoLimits, InfoLinks, InfoNode, InfoStore, NodeDetails,
    NodeList, OwnedPartition, Timestamp,
};
use futures_util::future::join_all;
use metrics::{Key, Label};
use metrics_exporter_prometheus::LabelSet;
use metrics_exporter_prometheus::formatting::{write_help_line, write_metric_line, write_type_line};

use crate::access::{Caller, Tokens};
use crate::http::cluster::details::details_of;
use crate::http::gate::limits::{LEASE_MAX, PAGE_MAX, POP_MAX};
use crate::http::openapi::params::OfProblem;
use crate::http::openapi::responses::{Always, NotFound, Unavailable};
use crate::http::problem::{Code, Problem};
use crate::http::reply::Json;
use crate::http::request::call::ReadCall;
use crate::http::state::AppState;
use crate::http::wire::{millis, node};

/// Whether the process runs.
#[utoipa::path(
    get, path = "/livez", tag = "server", operation_id = "livez", security(()),
    responses(
        (status = 200, description = "The process runs.", body = String, content_type = "text/plain"),
        Always,
    )
)]
pub(in crate::http) async fn livez(_: ReadCall) -> &'static str {
    "ok\n"
}

/// Whether the server accepts requests: 503 until all queues are loaded, while it drains, and while a node is cut off from the database or
/// can load no partition.
#[utoipa::path(
    get, path = "/readyz", tag = "server", operation_id = "readyz", security(()),
    responses(
        (status = 200, description = "The server accepts requests.", body = String, content_type = "text/plain"),
        Always, Unavailable,
    )
)]
pub(in crate::http) async fn readyz(ReadCall { state, .. }: ReadCall) -> Result<&'static str, Problem> {
    if state.shutdown.is_draining() {
        return Err(Problem::new(Code::Draining, "the server is shutting down"));
    }
    state.check_store()?;
    if let Some(registry) = state.partitions.loading() {
        return Err(Problem::recovering(registry.progress()));
    }
    if !state.partitions.is_sure(&state.clock) {
        return Err(Problem::new(Code::NotOwner, "the heartbeats of this node do not reach the database"));
    }
    if let Some(refusal) = state.partitions.refusal() {
        return Err(Problem::new(Code::NotOwner, String::clone(&refusal)));
    }
    if state.partitions.is_unfit() {
        return Err(Problem::new(
            Code::NotOwner,
            "this node can load none of the partitions that it should own",
        )
        .hint("the log of the node has the cause"));
    }
    state.partitions.registries().try_for_each(|registry| registry.check_queues()).map_err(not_writing)?;
    Ok("ok\n")
}

/// Why the server is not ready, if its journal takes no changes.
fn not_writing(error: deltaq_service::Error) -> Problem {
    match error {
        deltaq_service::Error::Journal(JournalError::DiskFull) => Problem::new(
            Code::DiskFull,
            "the journal's disk is full: changes are refused, and reads are answered",
        )
        .hint("make room on the disk; the server recovers by itself"),
        deltaq_service::Error::Journal(JournalError::OutcomeUnknown) => Problem::new(
            Code::JournalUnavailable,
            "the journal takes no changes, or queues are loaded again after a failure of it",
        )
        .hint("the log of the server has the cause; the server recovers by itself"),
        error => error.into(),
    }
}

/// The version, durability and limits of the server.
#[utoipa::path(
    get, path = "/v1/info", tag = "server", operation_id = "get_info",
    responses(
        (status = 200, description = "The server.", body = Info),
        Always,
    )
)]
pub(in crate::http) async fn info(ReadCall { state, context, .. }: ReadCall) -> Result<Json<Info>, Problem> {
    let limits = state.partitions.limits();
    let node = state.node.as_ref().map(|node| InfoNode {
        name: node.name().to_owned(),
        partitions: state.partitions.count() as u64,
        owned: state.partitions.owned().into_iter().map(|number| number as u64).collect(),
    });
    Ok(Json(Info {
        name: "deltaq".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        durability: state.store.durability,
        store: InfoStore { kind: state.store.kind, replicated: state.store.is_replicated },
        node,
        uptime_ms: millis(state.clock.since(0)),
        memory_bytes: state.limits.memory_bytes,
        caller: context.caller().map(|caller| caller_document(caller)),
        links: InfoLinks::clone(&state.links),
        limits: InfoLimits {
            key_bytes: KEY_BYTES_MAX as u64,
            json_depth: JSON_DEPTH_MAX as u64,
            pop_max: POP_MAX,
            wait_ms: millis(state.limits.max_wait),
            lease_ms: millis(LEASE_MAX),
            list_page: PAGE_MAX,
            batch: state.limits.max_batch as u64,
            replace_objects: state.limits.max_replace_objects as u64,
            body_bytes: state.limits.max_body_bytes as u64,
            reply_bytes: state.limits.max_reply_bytes as u64,
            body_bytes_in_flight: state.limits.max_body_bytes_in_flight as u64,
            reply_bytes_in_flight: state.limits.max_reply_bytes_in_flight as u64,
            uncommitted_bytes: state.limits.max_uncommitted_bytes as u64,
            held_bytes: state.limits.max_held_bytes as u64,
            queues: limits.max_queues as u64,
            waiters: limits.max_waiters as u64,
        },
    }))
}

/// The nodes that share the database: what they own, their heartbeats and their clocks.
#[utoipa::path(
    get, path = "/v1/nodes", tag = "server", operation_id = "list_nodes",
    responses(
        (status = 200, description = "The nodes; none for a single server.", body = NodeList),
        Always,
    )
)]
pub(in crate::http) async fn nodes(
    ReadCall { state, context, .. }: ReadCall,
) -> Result<Json<NodeList>, Problem> {
    state.check_store()?;
    let nodes = state.partitions.nodes();
    let this = details(&state);
    let asks = state.node.as_ref().filter(|_| !context.is_from_node());
    let described = nodes.nodes.iter().map(async |other| match asks {
        _ if other.is_this => Some(this.clone()),
        Some(node) => details_of(&context, node, &other.peer).await,
        None => None,
    });
    let described = join_all(described).await;
    let since = Duration::from_micros(state.clock.uptime_us().saturating_sub(nodes.read_us));
    Ok(Json(NodeList {
        nodes: nodes
            .nodes
            .iter()
            .zip(described)
            .map(|(state, details)| node(state, since, details))
            .collect(),
        partitions: state.partitions.count() as u64,
        without_owner: nodes.without_owner as u64,
        this,
    }))
}

/// What this process knows of itself.
fn details(state: &AppState) -> NodeDetails {
    let partition = |(number, epoch): (usize, _)| OwnedPartition { partition: number as u64, epoch };
    NodeDetails {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: state.store.kind,
        durability: state.store.durability,
        uptime_ms: millis(state.clock.since(0)),
        queues: state.partitions.queue_count() as u64,
        owned: state.partitions.owned_epochs().into_iter().map(partition).collect(),
        disk_free_bytes: state.partitions.disk_free(),
    }
}

fn caller_document(caller: &Caller) -> InfoCaller {
    let grants = caller.grants().map(|grant| InfoGrant {
        verbs: grant.verbs.into_iter().map(GrantVerb::from).collect(),
        queues: grant.queues,
        sources: grant.sources.unwrap_or_default(),
    });
    InfoCaller {
        name: caller.name().to_owned(),
        expires_at: caller.expires_us().map(Timestamp::from_micros),
        grants: grants.collect(),
    }
}

/// The expiries of the tokens that have one. The tokens may change at a reload, so the recorder does not keep them.
fn token_expiries(tokens: &Tokens) -> String {
    const NAME: &str = "deltaq_token_expiry_timestamp_seconds";
    let mut text = String::new();
    for (name, expires_us) in tokens.expiries() {
        if text.is_empty() {
            write_help_line(&mut text, NAME, None, None, "Expiry of the token, in seconds since 1970.");
            write_type_line(&mut text, NAME, None, None, "gauge");
        }
        let key = Key::from_parts("", vec![Label::new("token", name.to_owned())]);
        let labels = LabelSet::from_key_and_global(&key, &<_>::default());
        let seconds = Duration::from_micros(expires_us).as_secs_f64();
        write_metric_line(&mut text, NAME, None, &labels, None::<(&str, &str)>, seconds, None);
    }
    text
}

/// All metrics in Prometheus' text format; by default on a listener of its own.
pub(in crate::http) async fn metrics(ReadCall { state, .. }: ReadCall) -> Result<Response, Problem> {
    // With thousands of queues this takes a while, and it must not delay the requests of a thread.
    let partitions = state.partitions.clone();
    let text = tokio::task::spawn_blocking(move || partitions.render_metrics()).await;
    let mut text = text.map_err(|_| Problem::new(Code::Internal, "the metrics could not be rendered"))?;
    text.push_str(&token_expiries(&state.gate.access.tokens()));
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// The meaning of a problem and what to do.
#[utoipa::path(
    get, path = "/problems/{name}", tag = "server", operation_id = "get_problem", security(()),
    params(OfProblem),
    responses(
        (status = 200, description = "The explanation.", body = String, content_type = "text/plain"),
        Always, NotFound,
    )
)]
pub(in crate::http) async fn problem(ReadCall { uri, .. }: ReadCall) -> Result<String, Problem> {
    let name = uri.path().strip_prefix("/problems/").unwrap_or_default();
    let code = Code::ALL.iter().find(|code| code.name() == name);
    let Some(code) = code else {
        let names: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
        let detail = format!("no problem has the name {}", Excerpt(name));
        return Err(
            Problem::new(Code::NotFound, detail).hint(format!("the problems are {}", names.join(", ")))
        );
    };
    let retry = if code.is_retryable() { "may succeed later" } else { "will fail again" };
    Ok(format!(
        "{} ({})\n\n{}\n\n{}\n\nThe same request {retry}.\n",
        code.name(),
        code.status(),
        code.title(),
        code.help()
    ))
}
