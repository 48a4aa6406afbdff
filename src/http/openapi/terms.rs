//! The words of the API that are more than a string or a number: how a key, a name or a duration is
//! written. Each is one named schema of the document, as narrow as what the server takes.

use std::borrow::Cow;
use std::time::Duration;

use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use super::pattern;
use crate::engine::limits::{ERROR_BYTES_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX};
use crate::http::routes::{DELAY_MAX, LEASE_MAX, LEASE_MIN, PAGE_MAX, POP_MAX, STATES};
use crate::http::wire::{
    DeltaCall, ItemDocument, KnownDocument, Page, RawObject, SeedCall, config::MAX_WAIT_DEFAULT,
};
use crate::service;

macro_rules! terms {
    ($($(#[doc = $doc:literal])* $name:ident = $schema:expr;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Debug)]
        pub struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                described($schema, concat!($($doc, "\n"),*))
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }
    )*};
}

/// Text without control characters.
const PLAIN: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$";

terms! {
    /// The name of a queue.
    QueueName = text().pattern(Some("^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$")).max_length(Some(service::name::NAME_BYTES_MAX));
    /// A key: text without control characters, 1 to 1,024 bytes long in UTF-8.
    Key = text().pattern(Some(PLAIN)).min_length(Some(1)).max_length(Some(KEY_BYTES_MAX));
    /// Who produces, works or asks: text without control characters, 1 to 256 bytes long in UTF-8.
    Label = text().pattern(Some(PLAIN)).min_length(Some(1)).max_length(Some(NAME_BYTES_MAX));
    /// Why work failed; at most 4,096 bytes long in UTF-8.
    Failure = text().max_length(Some(ERROR_BYTES_MAX));
    /// How long a call waits: a whole number and one of us, ms, s, m, h, d; at most server.max_wait.
    Wait = span(Duration::ZERO, MAX_WAIT_DEFAULT, "20s");
    /// How long a lease lasts: a whole number and one of us, ms, s, m, h, d; from 1s to 12h.
    LeaseLength = span(LEASE_MIN, LEASE_MAX, "30s");
    /// How long a key waits: a whole number and one of us, ms, s, m, h, d; at most 366d.
    Delay = span(Duration::ZERO, DELAY_MAX, "5m");
    /// A switch.
    Flag = ObjectBuilder::new().schema_type(SchemaType::new(Type::Boolean));
    /// Most keys in one pop.
    PopMax = whole(1, POP_MAX);
    /// Most entries of a page.
    PageLimit = whole(1, PAGE_MAX);
    /// A number of keys or objects.
    Count = whole(0, u64::MAX);
    /// A percentage.
    Percent = ObjectBuilder::new().schema_type(SchemaType::new(Type::Number)).minimum(Some(0)).maximum(Some(100));
    /// Where a page before ended; opaque.
    Continue = text().pattern(Some("^([0-9a-f]{2})+$"));
    /// States of an item, joined by commas.
    States = text().pattern(Some(format!("^({0})(,({0}))*$", STATES.join("|"))));
    /// What a pop adds to each item.
    With = text().enum_values(Some(["known"]));
    /// An object, or a list of objects; as NDJSON one object a line.
    Objects = one_or_many::<RawObject>();
    /// A delta, or a list of deltas; as NDJSON one delta a line.
    Deltas = one_or_many::<DeltaCall<'static>>();
    /// A known object, or a list of them; as NDJSON one a line.
    Seeds = one_or_many::<SeedCall<'static>>();
    /// A page of items, or with `key` one item.
    ItemsAnswer = one_of::<Page<ItemDocument>, ItemDocument>();
    /// A page of known objects, or with `key` one of them.
    KnownAnswer = one_of::<Page<KnownDocument>, KnownDocument>();
}

fn described(schema: impl Into<Schema>, text: &str) -> RefOr<Schema> {
    let mut schema = schema.into();
    let description = Some(text.trim().replace("\n ", "\n"));
    match &mut schema {
        Schema::Object(object) => object.description = description,
        Schema::OneOf(one_of) => one_of.description = description,
        _ => {}
    }
    RefOr::T(schema)
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::new(Type::String))
}

/// A duration within a range.
pub(super) fn span(min: Duration, max: Duration, example: &str) -> ObjectBuilder {
    text().pattern(Some(pattern::durations(min, max))).examples([example])
}

fn whole(min: u64, max: u64) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(SchemaType::new(Type::Integer))
        .minimum(Some(min))
        .maximum(Some(max))
}

fn one_or_many<T: ToSchema>() -> OneOfBuilder {
    let one = || Ref::from_schema_name(T::name());
    OneOfBuilder::new().item(one()).item(ArrayBuilder::new().items(one()))
}

fn one_of<A: ToSchema, B: ToSchema>() -> OneOfBuilder {
    OneOfBuilder::new().item(Ref::from_schema_name(A::name())).item(Ref::from_schema_name(B::name()))
}
