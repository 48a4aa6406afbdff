//! Parsing a request: its context, its parameters and headers, and its body including objects.

pub(super) mod accept;
pub(super) mod admitted;
pub(super) mod body;
pub(super) mod body_drain;
pub(super) mod call;
pub(super) mod cloud_events;
pub(super) mod conditional;
pub(super) mod context;
pub(super) mod cursor;
pub(super) mod debounce;
pub(super) mod documents;
pub(super) mod entity_tags;
pub(super) mod invalid;
pub(super) mod order;
pub(super) mod params;
pub(super) mod received;
pub(super) mod replace_list;
pub(super) mod seed;
pub(super) mod series_range;
pub(super) mod watch_form;

mod body_head;
mod kind;
mod ndjson;
mod public_url;
mod trace;
