//! The baseline for HTTP: an axum server that reads a body as JSON, stores nothing, and replies with 30 bytes.

use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use serde_json::value::RawValue;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const REPLY: &str = r#"{"resource_version":123456789}"#;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    assert_eq!(REPLY.len(), 30);
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7072".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("{}", listener.local_addr()?);
    let router = Router::new().route("/v1/queues/{queue}/add", post(add));
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await
}

async fn add(Path(_queue): Path<String>, body: Bytes) -> Response {
    match serde_json::from_slice::<&RawValue>(&body) {
        Ok(_) => ([(header::CONTENT_TYPE, "application/json")], REPLY).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}
