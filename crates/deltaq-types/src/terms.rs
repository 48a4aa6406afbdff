//! Schemas of strings and numbers that many documents have: keys, names, durations. Each type represents one named schema of
//! the OpenAPI document and has no value.

use std::borrow::Cow;
use std::time::Duration;

use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, SchemaFormat, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::range::WHOLE_MAX;
use super::{RawJson, RawObject};

/// Maximum length of a key, in bytes.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Maximum number of pointers of a key.
pub const KEY_POINTERS_MAX: usize = 8;
/// Maximum length of the name of a source, worker or pop, and of the id of a lease, in bytes.
pub const LABEL_BYTES_MAX: usize = 256;
/// Maximum length of an index's name, in bytes.
pub const INDEX_NAME_BYTES_MAX: usize = 64;
/// Maximum length of the error of a nack or reject, in bytes.
pub const ERROR_BYTES_MAX: usize = 4_096;
/// Maximum priority of an object, and of a low one below 0.
pub const PRIORITY_MAX: i64 = 100;
/// The longest hold of a queue, in seconds. A worker that asks for a longer one gets this one.
pub const HOLD_SECS_MAX: u64 = 60 * 60;
/// Maximum delay of a produce call or a nack.
pub const DELAY_MAX: Duration = Duration::from_hours(366 * 24);

/// Text without control characters.
const PLAIN: &str = r"^[^\u0000-\u001f\u007f-\u009f]+$";

macro_rules! terms {
    ($($(#[doc = $doc:literal])* $name:ident = $schema:expr;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let schema: ObjectBuilder = $schema;
                schema.description(Some(concat!($($doc),*).trim())).build().into()
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }
    )*};
}

terms! {
    /// A key: text without control characters, 1 to 1,024 bytes long in UTF-8.
    Key = text().pattern(Some(PLAIN)).min_length(Some(1)).max_length(Some(KEY_BYTES_MAX)).examples(["sku-1"]);
    /// The name of a source, worker or pop: text without control characters, 1 to 256 bytes long in UTF-8.
    Label = text().pattern(Some(PLAIN)).min_length(Some(1)).max_length(Some(LABEL_BYTES_MAX));
    /// The id of a lease, as a pop returned it; at most 256 bytes long in UTF-8.
    LeaseId = text().max_length(Some(LABEL_BYTES_MAX));
    /// The reason why work failed; at most 4,096 bytes long in UTF-8.
    Failure = text().max_length(Some(ERROR_BYTES_MAX));
    /// A duration: numbers with one of ns, us, ms, s, m, h, d, such as 30s, 1m30s or 1.5s.
    Span = duration("duration-text");
    /// How long a call waits, a duration: numbers with one of ns, us, ms, s, m, h, d, such as 30s, 1m30s or 1.5s. At most server.max_wait, 55s by default.
    Wait = duration("duration-wait");
    /// The length of a lease, a duration: numbers with one of ns, us, ms, s, m, h, d, such as 30s, 1m30s or 1.5s. From 1s to 12h.
    LeaseLength = duration("duration-lease");
    /// How long a key waits, a duration: numbers with one of ns, us, ms, s, m, h, d, such as 30s, 1m30s or 1.5s. At most 366d.
    Delay = duration("duration-delay");
    /// How long nothing is delivered, a duration: numbers with one of ns, us, ms, s, m, h, d, such as 30s, 1m30s or 1.5s. More than 1h counts as 1h.
    HoldLength = duration("duration-hold");
    /// How much earlier than it did a change counts as arrived, a duration with an optional minus sign: 10m or -10m. From -7d to 7d.
    HeadStart = duration("duration-head-start");
    /// The error of a failure.
    ErrorText = text().max_length(Some(ERROR_BYTES_MAX));
    /// A number of keys or objects, or a sequence number.
    Count = ObjectBuilder::new().schema_type(Type::Integer).format(Some(uint64())).minimum(Some(0)).maximum(Some(WHOLE_MAX));
    /// The name of an index.
    IndexName = text().pattern(Some("^[A-Za-z0-9][A-Za-z0-9_-]*$")).min_length(Some(1)).max_length(Some(INDEX_NAME_BYTES_MAX));
    /// A JSON pointer (RFC 6901) that is not empty.
    JsonPointer = text().pattern(Some("^/([^~]|~[01])*$")).examples(["/key"]);
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn duration(format: &str) -> ObjectBuilder {
    let format = SchemaFormat::Custom(format.to_owned());
    text().format(Some(format))
}

fn uint64() -> SchemaFormat {
    SchemaFormat::Custom("uint64".to_owned())
}

impl PartialSchema for RawJson {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::AnyValue)
            .description(Some("Any JSON value, as it was written."))
            .build()
            .into()
    }
}

impl ToSchema for RawJson {
    fn name() -> Cow<'static, str> {
        "RawJson".into()
    }
}

impl PartialSchema for RawObject {
    fn schema() -> RefOr<Schema> {
        let example = serde_json::json!({ "key": "sku-1", "price": 10 });
        ObjectBuilder::new()
            .schema_type(Type::Object)
            .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(true)))
            .description(Some("An object exactly as it was sent: numbers keep every digit."))
            .examples([example])
            .build()
            .into()
    }
}

impl ToSchema for RawObject {
    fn name() -> Cow<'static, str> {
        "RawObject".into()
    }
}
