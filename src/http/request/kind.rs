//! The kind and the metadata of an object in a queue that is a resource: one object that clients can't read would stop every reader.

use std::collections::BTreeMap;

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
    #[serde(borrow)]
    metadata: Option<&'o RawValue>,
}

/// The members of `metadata` whose types all clients expect.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "of most members, only the types are of interest")]
struct Metadata {
    name: String,
    namespace: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<Owner>>,
}

impl Metadata {
    /// Whether a path can't name the object.
    fn has_slash(&self) -> bool {
        self.name.contains('/') || self.namespace.as_ref().is_some_and(|namespace| namespace.contains('/'))
    }
}

/// A reference to an owner, which is an object.
#[derive(Deserialize)]
struct Owner {}

/// Refuses an object that says to be of another kind than the resource has, or whose metadata clients can't read.
pub(super) fn check_kind(resource: &Kubernetes, object: &Object) -> Result<(), Problem> {
    let Ok(said) = serde_json::from_str::<Said<'_>>(object.as_str()) else { return Ok(()) };
    let metadata = said.metadata.map(|metadata| serde_json::from_str::<Metadata>(metadata.get()));
    let why = match metadata {
        Some(Err(error)) => error.to_string().split(" at line ").next().unwrap_or_default().to_owned(),
        Some(Ok(metadata)) if metadata.has_slash() => "a name or a namespace has a slash".to_owned(),
        _ => String::new(),
    };
    if !why.is_empty() {
        let detail = format!("clients of Kubernetes can't read the metadata of the object: {}", cut(&why));
        return Err(Problem::new(Code::InvalidObject, detail)
            .hint("name and namespace are strings without a slash, labels and annotations have strings")
            .with("pointer", "/metadata"));
    }
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
