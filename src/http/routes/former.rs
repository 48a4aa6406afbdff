//! Fields of requests that have a former name. A request may use either name, but not both.

use crate::http::problem::{Code, Problem};
use crate::http::wire::LeaseRef;

/// A field: its name, and its value if the request has it.
pub(super) type Field<T> = (&'static str, Option<T>);

/// The name that the request uses, and the value. None if the request has neither name.
pub(super) fn either<T>(current: Field<T>, former: Field<T>) -> Result<Option<(&'static str, T)>, Problem> {
    match (current, former) {
        ((name, Some(_)), (former, Some(_))) => {
            let detail = format!("field {former:?}: it is the former name of {name:?}");
            Err(Problem::new(Code::InvalidRequest, detail).hint("give one of them").with("field", former))
        }
        ((name, Some(value)), _) | (_, (name, Some(value))) => Ok(Some((name, value))),
        _ => Ok(None),
    }
}

/// The lease of a settle.
pub(super) fn lease(current: Option<String>, former: Option<String>) -> Result<LeaseRef, Problem> {
    const NAME: &str = "lease_id";
    let (name, id) = required(NAME, either((NAME, current), ("lease", former))?)?;
    Ok(if name == NAME { LeaseRef::LeaseId(id) } else { LeaseRef::Lease(id) })
}

/// The leases of a call that treats all of them in the same way.
pub(super) fn leases(
    current: Option<Vec<String>>,
    former: Option<Vec<String>>,
) -> Result<Vec<LeaseRef>, Problem> {
    const NAME: &str = "lease_ids";
    let (name, ids) = required(NAME, either((NAME, current), ("leases", former))?)?;
    let lease = if name == NAME { LeaseRef::LeaseId } else { LeaseRef::Lease };
    Ok(ids.into_iter().map(lease).collect())
}

fn required<T>(name: &str, value: Option<T>) -> Result<T, Problem> {
    value.ok_or_else(|| {
        Problem::new(Code::InvalidRequest, format!("missing field `{name}`")).with("field", name)
    })
}
