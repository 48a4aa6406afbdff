//! What `/metrics` says. That the seven `workqueue_*` are client-go's is held by the recorded traces, see
//! `conformance`, and here over HTTP by a script.

pub(crate) mod page;
mod script;
mod series;
