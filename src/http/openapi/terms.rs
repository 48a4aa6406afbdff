//! The words of the API that are more than a string or a number: how a key, a name or a duration is
//! written. Each is one named schema of the document, exactly as wide as what the server takes.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Map, Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use super::{pattern, settings};
use crate::duration::format;
use crate::engine::limits::{ERROR_BYTES_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX};
use crate::http::problem::Code;
use crate::http::routes::consume::{LEASE_MAX, LEASE_MIN, POP_MAX};
use crate::http::routes::look::{PAGE_MAX, STATES};
use crate::http::routes::produce::DELAY_MAX;
use crate::http::state::HttpLimits;

/// Names of schemas, for the handlers' descriptions; what they stand for is in [`insert_all`].
macro_rules! terms {
    ($schemas:ident, $limits:ident; $($(#[doc = $doc:literal])* $name:ident = $schema:expr;)*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Debug)]
            pub struct $name;

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    RefOr::T(Schema::default())
                }
            }

            impl ToSchema for $name {
                fn name() -> Cow<'static, str> {
                    stringify!($name).into()
                }
            }
        )*

        /// Puts every term among the schemas.
        pub(super) fn insert_all($schemas: &mut Map<String, Value>, $limits: &HttpLimits) {
            $(
                let mut schema: Value = $schema;
                if let Some(members) = schema.as_object_mut() {
                    members.insert("description".to_owned(), concat!($($doc),*).trim().into());
                }
                $schemas.insert(stringify!($name).to_owned(), schema);
            )*
        }
    };
}

/// Text without control characters.
const PLAIN: &str = r"^[^\u0000-\u001f\u007f-\u009f]+$";

terms! { schemas, limits;
    /// The name of a queue.
    QueueName = json!({
        "type": "string",
        "pattern": "^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$",
        "minLength": 1,
        "maxLength": crate::name::NAME_BYTES_MAX,
        "examples": ["prices"],
    });
    /// A key: text without control characters, 1 to 1,024 bytes long in UTF-8.
    Key = json!({
        "type": "string",
        "pattern": PLAIN,
        "minLength": 1,
        "maxLength": KEY_BYTES_MAX,
        "examples": ["sku-1"],
    });
    /// Who produces, works or asks: text without control characters, 1 to 256 bytes long in UTF-8.
    Label = json!({ "type": "string", "pattern": PLAIN, "minLength": 1, "maxLength": NAME_BYTES_MAX });
    /// Why work failed; at most 4,096 bytes long in UTF-8.
    Failure = json!({ "type": "string", "maxLength": ERROR_BYTES_MAX });
    /// How long a call waits: a whole number and one of us, ms, s, m, h, d; at most server.max_wait.
    Wait = duration(Duration::ZERO, limits.max_wait);
    /// How long a lease lasts: a whole number and one of us, ms, s, m, h, d; from 1s to 12h.
    LeaseLength = duration(LEASE_MIN, LEASE_MAX);
    /// How long a key waits: a whole number and one of us, ms, s, m, h, d; at most 366d.
    Delay = duration(Duration::ZERO, DELAY_MAX);
    /// A switch.
    Flag = json!({ "type": "boolean" });
    /// Most keys in one pop.
    PopMax = json!({ "type": "integer", "minimum": 1, "maximum": POP_MAX });
    /// Most entries of a page.
    PageLimit = json!({ "type": "integer", "minimum": 1, "maximum": PAGE_MAX });
    /// A number of keys or objects.
    Count = json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX });
    /// A percentage.
    Percent = json!({ "type": "number", "minimum": 0, "maximum": 100 });
    /// What the names or keys begin with.
    Prefix = json!({ "type": "string" });
    /// The code of a problem.
    ProblemName = json!({ "type": "string", "enum": Code::ALL.iter().map(|code| code.name()).collect::<Vec<_>>() });
    /// Where a page before ended; opaque.
    Continue = json!({ "type": "string", "pattern": "^([0-9a-f]{2})+$" });
    /// States of an item, joined by commas.
    States = json!({ "type": "string", "pattern": format!("^({0})(,({0}))*$", STATES.join("|")) });
    /// What a pop adds to each item.
    With = json!({ "type": "string", "enum": ["known"] });
    /// An entity tag, or several; answers with one of them are left out (304).
    EntityTags = json!({ "type": "string" });
    /// Where in a trace a call was made: version, trace id, parent id and flags in lower-case hexadecimal digits.
    Traceparent = json!({
        "type": "string",
        "examples": ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
    });
    /// Settings to change, or to create a queue with.
    QueuePatch = settings::patch(schemas);
    /// An object exactly as it was sent: numbers keep every digit.
    RawObject = json!({
        "type": "object",
        "additionalProperties": true,
        "examples": [{ "key": "sku-1", "price": 10 }],
    });
    /// An object, or a list of objects; as NDJSON one object a line.
    Objects = one_or_many("RawObject");
    /// A delta, or a list of deltas; as NDJSON one delta a line.
    Deltas = one_or_many("DeltaCall");
    /// A known object, or a list of them; as NDJSON one a line.
    Seeds = one_or_many("SeedCall");
    /// A page of items, or with `key` one item.
    ItemsAnswer = json!({ "oneOf": [reference("Page_ItemDocument"), reference("ItemDocument")] });
    /// A page of known objects, or with `key` one of them.
    KnownAnswer = json!({ "oneOf": [reference("Page_KnownDocument"), reference("KnownDocument")] });
}

/// A duration from `min` to `max`: a whole number and one of us, ms, s, m, h, d.
pub(super) fn duration(min: Duration, max: Duration) -> Value {
    let range = format!("A duration from {} to {}.", format(min), format(max));
    json!({ "type": "string", "description": range, "pattern": pattern::durations(min, max) })
}

pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn one_or_many(name: &str) -> Value {
    json!({ "oneOf": [reference(name), { "type": "array", "items": reference(name) }] })
}
