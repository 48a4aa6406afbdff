//! The debounce of a produce call, and of an entry of a mixed batch.

use std::time::Duration;

use deltaq_engine::config::Quiet;

use super::params::{Params, read_duration, wrong};
use crate::http::gate::limits::DELAY_MAX;
use crate::http::problem::{Code, Problem};

/// The debounce in the parameters of a call.
///
/// # Errors
/// [`Code::InvalidParameter`].
pub(in crate::http) fn of_call(params: &Params) -> Result<Option<Quiet>, Problem> {
    let duration = |name| params.duration(name, Duration::ZERO..=DELAY_MAX);
    quiet(duration("debounce")?, duration("max_wait")?).map_err(|why| wrong("max_wait", why))
}

/// The debounce of an entry.
///
/// # Errors
/// [`Code::InvalidRequest`].
pub(in crate::http) fn of_entry(
    debounce: Option<&str>,
    max_wait: Option<&str>,
) -> Result<Option<Quiet>, Problem> {
    let duration = |name, text: Option<&str>| {
        let duration = text.map(|text| read_duration(text, Duration::ZERO..=DELAY_MAX)).transpose();
        duration.map_err(|wrong| wrong.field(name))
    };
    quiet(duration("debounce", debounce)?, duration("max_wait", max_wait)?).map_err(|why| {
        Problem::new(Code::InvalidRequest, format!("max_wait: {why}")).with("field", "max_wait")
    })
}

/// The times of a debounce, or what is wrong with `max_wait`.
fn quiet(debounce: Option<Duration>, max_wait: Option<Duration>) -> Result<Option<Quiet>, &'static str> {
    match (debounce, max_wait) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err("it requires debounce"),
        (Some(debounce), max_wait) => {
            Quiet::new(debounce, max_wait).map(Some).ok_or("it is shorter than debounce")
        }
    }
}
