//! A test of the endpoint to which a queue pushes.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use deltaq_types::{PushFormat, PushTestDocument, Timestamp};
use serde_json::json;
use tokio::time::Instant;

use super::settings::not_permitted;
use crate::http::openapi::params::InQueue;
use crate::http::openapi::responses::{Always, OfBody, OfQueue, Unprocessable};
use crate::http::problem::{Code, Problem};
use crate::http::reply::Json;
use crate::http::request::accept::CLOUD_EVENTS;
use crate::http::request::call::QueueCall;
use crate::http::wire::{self, CloudEvent};
use crate::push::{Answer, Call, Sender};

/// The type of a test request.
const TYPE: &str = "deltaq.test";

/// Send a signed test request to the endpoint. No key, no count and no state of the queue changes.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/push/test", tag = "queues", operation_id = "test_push",
    params(InQueue),
    responses(
        (status = 200, description = "What the endpoint has answered.", body = PushTestDocument),
        Always, OfQueue, OfBody, Unprocessable,
    )
)]
pub(in crate::http) async fn test(call: QueueCall) -> Result<Json<PushTestDocument>, Problem> {
    let QueueCall { state, name, incoming, .. } = call;
    incoming.nothing().await?;
    let handle = state.partitions.get(&name)?;
    let Some(setting) = handle.config().push.clone() else {
        let why = "the queue does not push";
        return Err(Problem::invalid_setting("push", why).hint("set push with PATCH /v1/queues/{queue}"));
    };
    let endpoint = state.push.endpoint(name.as_str(), &setting).map_err(not_permitted)?;
    let now_us = state.clock.wall_us();
    let (time, data) = (Timestamp::from_micros(now_us), json!({ "queue": name.as_str() }));
    let id = format!("{}-test-{now_us}", handle.incarnation());
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if setting.format == PushFormat::Raw {
        headers.insert(HeaderName::from_static("deltaq-type"), HeaderValue::from_static(TYPE));
    }
    let body = if setting.format == PushFormat::Cloudevents {
        let queue = name.as_str();
        let event =
            CloudEvent { kind: TYPE, queue, id: &id, time: Some(time), item: None, traceparent: None };
        if setting.batch == 1 {
            event.write(&mut headers);
            data.to_string()
        } else {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CLOUD_EVENTS));
            format!("[{}]", event.json(None, &data.to_string()))
        }
    } else {
        json!({ "type": TYPE, "timestamp": time, "data": data }).to_string()
    };
    let request = Call { id, timestamp: now_us / 1_000_000, headers, body: body.into(), keys: 1 };
    let sender = Sender::new(state.connector.clone(), endpoint);
    let began = Instant::now();
    let answer = tokio::select! {
        biased;
        answer = sender.send(request, setting.timeout.get()) => answer,
        () = state.shutdown.draining().cancelled() => {
            return Err(Problem::new(Code::Draining, "the server is shutting down"));
        }
    };
    let duration_ms = wire::millis(began.elapsed());
    let (status, answer) = match answer {
        Answer::Status { status, text, .. } => (Some(status), text),
        Answer::None { why } => (None, why),
    };
    Ok(Json(PushTestDocument { status, duration_ms, answer }))
}
