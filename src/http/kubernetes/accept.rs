//! The form of a reply, from the header `Accept`.

use axum::http::{HeaderMap, header};

use crate::http::status::Status;

/// The form of a reply with objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The objects.
    Objects,
    /// A table, as `kubectl get` shows it.
    Table,
    /// Only the `metadata` of the objects.
    Metadata,
}

/// The media type of the aggregated form of discovery.
pub(super) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

impl Form {
    /// The first form of the header that the server has.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Status> {
        first(headers, Self::Objects, form_of)
    }
}

/// Whether a client of discovery gets the aggregated form.
pub(super) fn wants_aggregated(headers: &HeaderMap) -> Result<bool, Status> {
    first(headers, false, |clause| match clause.form() {
        Some(form) => (form == Form::Objects).then_some(false),
        None => (clause.parameters()
            == (Some("APIGroupDiscoveryList"), Some("v2"), Some("apidiscovery.k8s.io")))
            .then_some(true),
    })
}

/// Whether a client accepts only this media type.
pub(super) fn wants_only(headers: &HeaderMap, media_type: &str) -> bool {
    let mut clauses = clauses(headers).peekable();
    clauses.peek().is_some() && clauses.all(|Clause(clause)| clause == media_type)
}

/// What the first clause asks for that the server has.
fn first<T>(headers: &HeaderMap, default: T, read: impl Fn(Clause<'_>) -> Option<T>) -> Result<T, Status> {
    let mut clauses = clauses(headers).peekable();
    if clauses.peek().is_none() {
        return Ok(default);
    }
    clauses.find_map(read).ok_or_else(Status::not_acceptable)
}

fn form_of(clause: Clause<'_>) -> Option<Form> {
    clause.form()
}

/// A clause of the header, such as `application/json;as=Table;v=v1;g=meta.k8s.io`.
#[derive(Clone, Copy)]
struct Clause<'h>(&'h str);

fn clauses(headers: &HeaderMap) -> impl Iterator<Item = Clause<'_>> {
    let given = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    given.flat_map(|value| value.split(',')).map(|clause| Clause(clause.trim()))
}

impl<'h> Clause<'h> {
    fn parameter(self, name: &str) -> Option<&'h str> {
        let parts = self.0.split(';').skip(1).filter_map(|part| part.split_once('='));
        let mut parts = parts.map(|(other, value)| (other.trim(), value.trim()));
        parts.find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    fn parameters(self) -> (Option<&'h str>, Option<&'h str>, Option<&'h str>) {
        (self.parameter("as"), self.parameter("v"), self.parameter("g"))
    }

    /// The form of objects that it asks for.
    fn form(self) -> Option<Form> {
        let kind = self.0.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_json = matches!(&*kind, "" | "application/json" | "application/*" | "*/*");
        let is_refused = self
            .parameter("q")
            .is_some_and(|weight| weight.trim_end_matches('0').trim_end_matches('.').is_empty());
        if !is_json || is_refused {
            return None;
        }
        match self.parameters() {
            (None, ..) => Some(Form::Objects),
            (Some("Table"), Some("v1"), Some("meta.k8s.io")) => Some(Form::Table),
            (
                Some("PartialObjectMetadata" | "PartialObjectMetadataList"),
                Some("v1"),
                Some("meta.k8s.io"),
            ) => Some(Form::Metadata),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_the_server_has_counts() {
        let form = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            Form::of(&headers).ok()
        };
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        for (accept, expected) in [
            ("application/json, */*", Some(Form::Objects)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Form::Objects)),
            ("application/json;stream=watch", Some(Form::Objects)),
            ("", Some(Form::Objects)),
            (table, Some(Form::Table)),
            (metadata, Some(Form::Metadata)),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", None),
            ("application/json;q=0", None),
            ("application/yaml", None),
            ("application/vnd.kubernetes.protobuf", None),
        ] {
            assert_eq!(form(accept), expected, "{accept}");
        }
        assert_eq!(Form::of(&HeaderMap::new()).ok(), Some(Form::Objects));
    }
}
