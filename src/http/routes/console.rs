//! The files of the console, which is a client of the API like any other. They hold no data, so they need no token.

use std::borrow::Cow;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rust_embed::RustEmbed;

use crate::http::request::accept::Accept;
use crate::http::request::call::ReadCall;
use crate::http::request::conditional::Conditions;
use crate::http::telemetry;

/// The folder `console` of the repository. It is part of the binary in release builds, and read from disk in debug
/// builds.
#[derive(RustEmbed)]
#[folder = "console/"]
struct Files;

/// The page that the other files belong to.
const INDEX: &str = "index.html";

/// The pages may load files from this server and call it, and nothing else. No script or style is inline.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Headers of every file, in addition to its own. A browser checks each time whether its copy is current, so that the
/// pages always match the server.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CACHE_CONTROL, "no-cache"),
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Redirects a browser to the console. Other clients get the usual 404 of an unknown path.
pub(in crate::http) async fn root(call: ReadCall) -> Response {
    let wants_page = Accept::of(&call.headers).weight("text/html").is_some();
    if wants_page { redirect("console/") } else { telemetry::not_found("/", None).into_response() }
}

/// Redirects to the folder, because the page refers to its files relative to it.
pub(in crate::http) async fn folder(_: ReadCall) -> Response {
    redirect("console/")
}

/// A file of the console.
pub(in crate::http) async fn file(call: ReadCall) -> Response {
    let path = call.uri.path();
    let name = path.strip_prefix("/console/").filter(|name| !name.is_empty()).unwrap_or(INDEX);
    match Files::get(name).zip(media_type(name)) {
        Some((file, kind)) => content(&call.headers, file.data, &file.metadata.sha256_hash(), kind),
        None => telemetry::not_found(path, None).into_response(),
    }
}

/// The target is relative, because a proxy may serve the API under a path prefix.
fn redirect(target: &'static str) -> Response {
    (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, target)]).into_response()
}

fn content(headers: &HeaderMap, data: Cow<'static, [u8]>, digest: &[u8], kind: &'static str) -> Response {
    // The tag is weak because it also applies to the compressed forms of the file.
    let tag = format!("\"{}\"", crate::access::hex(digest));
    // A browser sends what it likes, and the whole file is always right.
    let conditions = Conditions::of(headers).unwrap_or_default();
    let mut response = if conditions.has_copy(&tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, kind)], data).into_response()
    };
    if let Ok(tag) = HeaderValue::from_str(&format!("W/{tag}")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response.headers_mut().extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

/// The media type of a file of the console, by its name.
fn media_type(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    Some(match extension {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    })
}
