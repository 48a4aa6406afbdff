//! The head start of a produce call, and of an entry of a mixed batch.

use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::schedule::HeadStart;
use deltaq_types::SignedDuration;
use deltaq_types::range::HEAD_START_MAX;

use super::params::{Params, Wrong};
use crate::http::problem::Problem;

/// The head start in the parameters of a call.
///
/// # Errors
/// [`Code::InvalidParameter`](crate::http::problem::Code::InvalidParameter).
pub(in crate::http) fn of_call(params: &Params) -> Result<Option<HeadStart>, Problem> {
    let head_start = params.text("head_start").map(read).transpose();
    head_start.map_err(|wrong| wrong.parameter("head_start"))
}

/// The head start of an entry.
///
/// # Errors
/// [`Code::InvalidRequest`](crate::http::problem::Code::InvalidRequest).
pub(in crate::http) fn of_entry(head_start: Option<&str>) -> Result<Option<HeadStart>, Problem> {
    head_start.map(read).transpose().map_err(|wrong| wrong.field("head_start"))
}

fn read(text: &str) -> Result<HeadStart, Wrong> {
    let duration: SignedDuration = text
        .parse()
        .map_err(|error: deltaq_types::duration::Error| Wrong { why: error.to_string(), limit: None })?;
    if duration.as_us().unsigned_abs() > HEAD_START_MAX {
        let limit = Some(("limit_ms", HEAD_START_MAX / 1_000));
        return Err(Wrong { why: format!("{} is not from -7d to 7d", Excerpt(text)), limit });
    }
    Ok(HeadStart::from_micros(duration.as_us()))
}
