//! The handlers, one file per part of the API.

pub(super) mod activity;
pub(super) mod console;
pub(super) mod consume;
pub(super) mod everywhere;
pub(super) mod groups;
pub(super) mod history;
pub(super) mod hooks;
pub(super) mod indexes;
pub(super) mod items;
pub(super) mod overview;
pub(super) mod parked;
pub(super) mod produce;
pub(super) mod push;
pub(super) mod queues;
pub(super) mod series;
pub(super) mod server;
pub(super) mod settings;
pub(super) mod sources;
pub(super) mod views;
pub(super) mod watch;

mod pages;
