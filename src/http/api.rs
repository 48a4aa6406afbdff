//! The API as a whole: the table of its operations with their handlers, and the OpenAPI document.

pub(super) mod operations;
pub(super) mod table;

pub(super) mod document;
