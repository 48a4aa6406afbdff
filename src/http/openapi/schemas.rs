//! The named schemas of parameters and bodies.

use std::borrow::Cow;

use deltaq_engine::limits::{GROUP_BYTES_MAX, INDEX_VALUE_BYTES_MAX};
use deltaq_engine::view::View;
use deltaq_types::{ItemDocument, ObjectDocument, QueueDocument};

pub(in crate::http) use deltaq_types::terms::{
    Count, Delay, ErrorText, HeadStart, IndexName, Key, Label, LeaseLength, Wait,
};
use serde_json::{Map, Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use super::reference::reference;
use super::{kinds, settings};
use crate::http::gate::limits::{PAGE_MAX, POP_MAX};
use crate::http::problem::Code;
use crate::http::wire::{STATES, Selectable};

/// Declares marker types that stand for named schemas, and the function that adds the schemas to the document.
macro_rules! terms {
    ($schemas:ident; $($(#[doc = $doc:literal])* $name:ident = $schema:expr;)*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Debug)]
            pub(in crate::http) struct $name;

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

        /// Adds the schemas to those of the document.
        pub(in crate::http) fn insert_all($schemas: &mut Map<String, Value>) {
            $(
                let mut schema: Value = $schema;
                if let Some(members) = schema.as_object_mut() {
                    members.insert("description".to_owned(), concat!($($doc),*).trim().into());
                }
                $schemas.insert(stringify!($name).to_owned(), schema);
            )*
            kinds::split_all($schemas);
            name_entries($schemas);
            name_codes($schemas);
            make_selectable($schemas);
        }
    };
}

terms! { schemas;
    /// The name of a queue.
    QueueName = json!({
        "type": "string",
        "pattern": "^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$",
        "minLength": 1,
        "maxLength": deltaq_types::name::NAME_BYTES_MAX,
        "examples": ["prices"],
    });
    /// The number of a kept delivery.
    DeliveryNumber = json!({ "type": "integer", "minimum": 1, "maximum": 9_007_199_254_740_991_i64 });
    /// The body of a delivery, as the vendor sends it.
    Delivered = json!({ "type": "object" });
    /// An instant in RFC 3339, or a duration: so long ago.
    Since = json!({ "type": "string", "format": "instant-or-duration", "examples": ["1h", "2026-09-01T12:00:00Z"] });
    /// A duration of whole minutes.
    Step = json!({ "type": "string", "format": "duration-minutes", "examples": ["5m"] });
    /// True or false.
    Flag = json!({ "type": "boolean" });
    /// Maximum number of keys in one pop.
    PopMax = json!({ "type": "integer", "minimum": 1, "maximum": POP_MAX });
    /// Maximum number of entries in a page.
    PageLimit = json!({ "type": "integer", "minimum": 1, "maximum": PAGE_MAX });
    /// A percentage.
    Percent = json!({ "type": "number", "minimum": 0, "maximum": 100 });
    /// A prefix of names, keys or values.
    Prefix = json!({ "type": "string" });
    /// The code of a problem.
    ProblemName = json!({ "type": "string", "enum": Code::ALL.iter().map(|code| code.name()).collect::<Vec<_>>() });
    /// The `continue` of the previous page; opaque.
    Continue = json!({ "type": "string", "pattern": "^([0-9a-f]{2})+$" });
    /// States of an item, joined by commas.
    States = json!({ "type": "string", "pattern": format!("^({0})(,({0}))*$", STATES.join("|")) });
    /// Fields of an item, joined by commas.
    Fields = json!({ "type": "string", "pattern": selection(ItemDocument::FIELDS) });
    /// Fields of a queue, joined by commas.
    QueueFields = json!({ "type": "string", "pattern": selection(QueueDocument::FIELDS) });
    /// Fields of an object of a view, joined by commas.
    ObjectFields = json!({ "type": "string", "pattern": selection(ObjectDocument::FIELDS) });
    /// A view of a queue.
    ViewName = json!({ "type": "string", "enum": View::ALL.map(View::as_str) });
    /// The order of a list of groups.
    GroupSortName = json!({ "type": "string", "enum": ["wait", "ready", "leased"] });
    /// The name of a group, at most 256 bytes long in UTF-8.
    GroupName = json!({ "type": "string", "maxLength": GROUP_BYTES_MAX });
    /// A version, `now`, or 0 for all keys first.
    Version = json!({ "type": "string", "pattern": "^(now|[0-9]{1,19}|[0-9a-f]{8}-[0-9]{1,19}(-[0-9]{1,19})?)$" });
    /// A version, or `now`.
    VersionOrNow = json!({ "type": "string", "pattern": "^(now|[0-9]{1,19})$" });
    /// A value in an index, at most 256 bytes long in UTF-8.
    IndexText = json!({ "type": "string", "maxLength": INDEX_VALUE_BYTES_MAX });
    /// One part of all keys.
    ShardName = json!({ "type": "string", "pattern": "^[0-9]{1,9}/[0-9]{1,9}$" });
    /// An addition to each item.
    With = json!({ "type": "string", "pattern": "^(known|diff)(,(known|diff))*$" });
    /// An addition to a single item.
    WithDiff = json!({ "type": "string", "enum": ["diff"] });
    /// When pops of a closed queue end.
    WaitFor = json!({ "type": "string", "enum": ["leases", "none"] });
    /// Which of several objects with the same key a list keeps.
    Duplicates = json!({ "type": "string", "enum": ["last"] });
    /// One or more entity tags, separated by commas, or `*`.
    EntityTags = json!({ "type": "string" });
    /// The id of a server-sent event.
    LastEventId = json!({ "type": "string", "examples": ["6f2c01ab-1042"] });
    /// The trace context of the call: version, trace id, parent id and flags in lower-case hexadecimal digits.
    Traceparent = json!({
        "type": "string",
        "examples": ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
    });
    /// Settings of a queue; null means the default of a setting.
    GivenSettings = settings::given(schemas);
    /// An object, or a list of objects; as NDJSON one object per line.
    Objects = one_or_many("RawObject");
    /// A delta, or a list of deltas; as NDJSON one delta per line.
    Deltas = one_or_many("DeltaCall");
    /// A known object, or a list of them; as NDJSON one per line.
    Seeds = one_or_many("SeedCall");
}

/// The pattern of some of these names, joined by commas.
fn selection(names: &[&str]) -> String {
    format!("^({0})(,({0}))*$", names.join("|"))
}

/// Replaces the schema of a page's entries, which utoipa inlines, with a reference to the named schema.
fn name_entries(schemas: &mut Map<String, Value>) {
    let entry_of = |name: &str| {
        let page = ["Page_", "PageOfQueues_"].into_iter().find_map(|page| name.strip_prefix(page));
        page.map(|entry| (name.to_owned(), entry.to_owned()))
    };
    let pages: Vec<_> = schemas.keys().filter_map(|name| entry_of(name)).collect();
    for (page, entry) in pages {
        if let Some(page) = schemas.get_mut(&page)
            && let Some(items) = page.pointer_mut("/properties/items/items")
        {
            *items = reference(&entry);
        }
    }
}

/// Lists the known codes of problems in their schema.
fn name_codes(schemas: &mut Map<String, Value>) {
    for document in ["ProblemDocument", "UnavailableQueue"] {
        if let Some(code) =
            schemas.get_mut(document).and_then(|schema| schema.pointer_mut("/properties/code"))
        {
            *code = reference("ProblemName");
        }
    }
}

/// Makes all members optional, because with the parameter `fields` a document may have any of them.
fn make_selectable(schemas: &mut Map<String, Value>) {
    for document in ["ItemDocument", "ObjectDocument", "QueueDocument"] {
        if let Some(schema) = schemas.get_mut(document).and_then(Value::as_object_mut) {
            schema.remove("required");
        }
    }
}

fn one_or_many(name: &str) -> Value {
    json!({ "oneOf": [reference(name), { "type": "array", "items": reference(name) }] })
}
