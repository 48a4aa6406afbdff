//! The building blocks of the OpenAPI document, which the handlers refer to: groups of parameters and problems, and
//! shared schemas.

pub(super) mod params;
pub(super) mod responses;
pub(super) mod schemas;

mod kinds;
mod reference;
mod settings;
