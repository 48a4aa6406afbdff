//! The kind of an object, which must be that of the resource that its queue is.

use deltaq_engine::excerpt::cut;
use deltaq_engine::object::Object;
use deltaq_types::Kubernetes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http::problem::{Code, Problem};

/// What an object says of its kind.
#[derive(Deserialize)]
struct Said<'o> {
    #[serde(rename = "apiVersion", borrow)]
    api_version: Option<&'o RawValue>,
    #[serde(borrow)]
    kind: Option<&'o RawValue>,
}

/// Refuses an object that says to be of another kind than the resource has.
pub(super) fn check_kind(resource: &Kubernetes, object: &Object) -> Result<(), Problem> {
    let Ok(said) = serde_json::from_str::<Said<'_>>(object.as_str()) else { return Ok(()) };
    let version = format!("{}/{}", resource.group, resource.version);
    for (name, said, expected) in
        [("apiVersion", said.api_version, &version), ("kind", said.kind, &resource.kind)]
    {
        let is_it = |said: &&RawValue| {
            serde_json::from_str::<String>(said.get()).is_ok_and(|said| said == **expected)
        };
        if let Some(said) = said.filter(|said| !is_it(said)) {
            let said = cut(said.get());
            let detail =
                format!("the object has the {name} {said}, and the queue is a resource of {expected:?}");
            return Err(Problem::new(Code::InvalidObject, detail)
                .hint(format!("leave {name} out, or send {expected:?}"))
                .with("pointer", format!("/{name}")));
        }
    }
    Ok(())
}
