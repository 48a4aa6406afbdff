//! The headers that determine how a body is read: its format and its encoding.

use axum::http::HeaderValue;
use deltaq_engine::excerpt::Excerpt;

use crate::http::head::{Head, Header};
use crate::http::operation::BodyKind;
use crate::http::problem::{ACCEPT_ENCODING, Code, Problem};

/// The encodings of bodies that the server inflates, in the form of the header `Accept-Encoding`.
const ENCODINGS: &str = "gzip, br, zstd";

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Format {
    /// One document: an object, or an array of objects.
    Json,
    /// One object per line.
    Ndjson,
    /// A CloudEvent as one document.
    CloudEvent,
    /// An array of CloudEvents.
    CloudEvents,
    /// A CloudEvent whose attributes are headers, and whose body is its data.
    CloudEventData,
}

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Encoding {
    Gzip,
    Brotli,
    Zstd,
}

impl Encoding {
    /// The encoding of this name. Names are case-insensitive.
    pub(in crate::http) fn named(name: &[u8]) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match () {
            () if is("gzip") || is("x-gzip") => Some(Self::Gzip),
            () if is("br") => Some(Self::Brotli),
            () if is("zstd") => Some(Self::Zstd),
            () => None,
        }
    }

    pub(in crate::http) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }

    /// Maximum memory of a decoder in bytes: its window, rounded up for its tables and buffers.
    pub(in crate::http) const fn decoder_bytes(self) -> usize {
        match self {
            Self::Gzip => 64 << 10,
            Self::Brotli => 17 << 20,
            Self::Zstd => 9 << 20,
        }
    }
}

/// The headers that determine how a body is read.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct BodyHead {
    pub(in crate::http) format: Format,
    pub(in crate::http) encoding: Option<Encoding>,
}

impl BodyHead {
    pub(in crate::http) fn of(head: &Head<'_>, kind: BodyKind) -> Result<Self, Problem> {
        Ok(Self { format: format_of(head, kind)?, encoding: encoding_of(head, kind)? })
    }
}

/// The format of a body. A missing type and the form type that curl sends by default mean JSON.
fn format_of(head: &Head<'_>, kind: BodyKind) -> Result<Format, Problem> {
    let is_event = kind == BodyKind::Changes && head.ce_specversion.first.is_some();
    let plain = if is_event { Format::CloudEventData } else { Format::Json };
    let Some(value) = only_one("content-type", head.content_type)? else { return Ok(plain) };
    if value == "application/json" {
        return Ok(plain);
    }
    if matches!(kind, BodyKind::Delivery | BodyKind::Kubernetes) {
        return Ok(Format::Json);
    }
    let text = value.to_str().unwrap_or_default();
    let mut parts = text.split(';').map(|part| part.trim().to_ascii_lowercase());
    let format = match parts.next().as_deref() {
        Some("application/json") => Some(plain),
        Some("application/cloudevents+json") if kind == BodyKind::Changes => Some(Format::CloudEvent),
        Some("application/cloudevents-batch+json") if kind == BodyKind::Changes => Some(Format::CloudEvents),
        Some(data) if is_event && data.ends_with("+json") => Some(plain),
        Some("application/x-www-form-urlencoded") => Some(plain),
        Some("application/x-ndjson") => Some(Format::Ndjson),
        Some("application/merge-patch+json") if kind == BodyKind::Patch => Some(Format::Json),
        _ => None,
    };
    let charset_is_fine = parts
        .all(|part| part.strip_prefix("charset=").is_none_or(|charset| charset.trim_matches('"') == "utf-8"));
    format.filter(|_| charset_is_fine).ok_or_else(|| {
        let detail = format!("content-type {} is not supported", Excerpt(text));
        Problem::new(Code::UnsupportedMediaType, detail)
            .hint("send application/json or application/x-ndjson in UTF-8")
    })
}

/// The encoding of a compressed body. Only bodies with objects may be compressed, because other bodies are short.
fn encoding_of(head: &Head<'_>, kind: BodyKind) -> Result<Option<Encoding>, Problem> {
    if let Some(encoding) = only_one("transfer-encoding", head.transfer_encoding)?
        && !encoding.as_bytes().eq_ignore_ascii_case(b"chunked")
    {
        let text = encoding.to_str().unwrap_or_default();
        let detail = format!("transfer-encoding {} is not supported", Excerpt(text));
        return Err(Problem::new(Code::UnsupportedMediaType, detail).hint("send chunked"));
    }
    let Some(encoding) = only_one("content-encoding", head.content_encoding)? else { return Ok(None) };
    if encoding.as_bytes().eq_ignore_ascii_case(b"identity") {
        return Ok(None);
    }
    let takes_objects = matches!(kind, BodyKind::Objects | BodyKind::Changes);
    let accepted = if takes_objects { ENCODINGS } else { "identity" };
    match Encoding::named(encoding.as_bytes()) {
        Some(encoding) if takes_objects => Ok(Some(encoding)),
        _ => {
            let text = Excerpt(encoding.to_str().unwrap_or_default());
            let problem = Problem::new(
                Code::UnsupportedMediaType,
                format!("content-encoding {text} is not supported here"),
            );
            Err(problem.hint(format!("this call accepts {accepted}")).with(ACCEPT_ENCODING, accepted))
        }
    }
}

/// The value of a header that determines how the body is read. A header with two values is refused, because a proxy
/// may have used the other value.
fn only_one<'h>(name: &str, header: Header<'h>) -> Result<Option<&'h HeaderValue>, Problem> {
    if header.is_repeated {
        return Err(Problem::new(Code::InvalidRequest, format!("the header {name} occurs twice")));
    }
    Ok(header.first)
}
