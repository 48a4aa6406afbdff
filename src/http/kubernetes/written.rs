//! An object that a client has written.

use deltaq_engine::object;

use super::members::Members;
use super::resource::Resource;
use super::selector::{check_label, labels_of};
use crate::http::place::Place;
use crate::http::problem::Problem;
use crate::http::status::{Fault, Refused, Status};

/// Maximum length of a name, in bytes.
const NAME_BYTES_MAX: usize = 253;
/// Maximum length of the name of a namespace, in bytes.
const LABEL_BYTES_MAX: usize = 63;
/// Characters of a generated ending: without vowels, so that it is no word, and without those that look alike.
const ENDING: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const ENDING_LEN: usize = 5;
const NO_NAMESPACE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and at most 63 of them";
const NO_NAME: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// An object that a client has written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) text: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) generate_name: Option<String>,
    /// Whether the server has made the name.
    pub(super) is_name_generated: bool,
    pub(super) version: Option<String>,
    pub(super) uid: Option<String>,
    kind: String,
}

impl Written {
    /// Reads the text of an object of a resource.
    pub(super) fn read(resource: &Resource, place: &Place, text: String) -> Result<Self, Refused> {
        let kind = &resource.settings.kind;
        let unread = |why: &str| {
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): {why}"
            ))
        };
        object::check(&text).map_err(|error| unread(&Problem::from(error).to_string()))?;
        let members = Members::of(&text);
        let given = members.string("kind").filter(|given| !given.is_empty());
        let given = given.ok_or_else(|| unread("Object 'Kind' is missing"))?;
        let version = members.string("apiVersion").unwrap_or_default();
        if version != resource.api_version() {
            let message = format!(
                "the API version in the data ({version}) does not match the expected API version ({})",
                resource.api_version()
            );
            return Err(Status::bad_request(message).into());
        }
        let metadata = members.object("metadata");
        for name in ["name", "namespace", "generateName", "resourceVersion", "uid"] {
            if metadata.get(name).is_some_and(|value| !value.starts_with('"') && value != "null") {
                let message = format!("{kind} cannot be handled: metadata.{name} must be a string");
                return Err(Status::bad_request(message).into());
            }
        }
        let labels = metadata.object("labels");
        if labels.values().any(|value| !value.starts_with('"')) {
            let message = format!("{kind} cannot be handled: the values of metadata.labels must be strings");
            return Err(Status::bad_request(message).into());
        }
        let text_of = |name: &str| metadata.string(name).filter(|text| !text.is_empty());
        let name = text_of("name").unwrap_or_default();
        if given != *kind {
            let (quoted, why) = (format!("{given:?}"), format!("must be {kind}"));
            let fault = Fault::Invalid(&quoted, &why);
            return Err(Status::invalid(place, &given, &name, "kind", fault).into());
        }
        let namespace = text_of("namespace").filter(|_| resource.is_namespaced);
        if let (Some(given), Some(expected)) = (&namespace, &place.namespace)
            && given != expected
        {
            let message =
                "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(message).into());
        }
        Ok(Self {
            namespace: place.namespace.clone(),
            name,
            generate_name: text_of("generateName"),
            is_name_generated: false,
            version: text_of("resourceVersion"),
            uid: text_of("uid"),
            kind: given,
            text,
        })
    }

    /// The members of `metadata` that the server sets.
    pub(super) fn edits(&self) -> Vec<(&str, &str)> {
        let name = self.is_name_generated.then_some(("name", &*self.name));
        let namespace = self.namespace.as_deref().map(|namespace| ("namespace", namespace));
        namespace.into_iter().chain(name).collect()
    }

    /// Refuses a new object without a valid name.
    pub(super) fn check_name(&self, place: &Place) -> Result<(), Status> {
        let refuse = |fault| Err(Status::invalid(place, &self.kind, &self.name, "metadata.name", fault));
        if self.name.is_empty() {
            return refuse(Fault::Required("name or generateName is required"));
        }
        if let Some(namespace) = self.namespace.as_deref().filter(|namespace| !is_label(namespace)) {
            let fault = Fault::Invalid(&format!("{namespace:?}"), NO_NAMESPACE);
            return Err(Status::invalid(place, &self.kind, &self.name, "metadata.namespace", fault));
        }
        if !is_name(&self.name) {
            return refuse(Fault::Invalid(&format!("{:?}", self.name), NO_NAME));
        }
        Ok(())
    }

    /// Refuses labels that no selector could name.
    pub(super) fn check_labels(&self, place: &Place) -> Result<(), Status> {
        labels_of(&self.text).iter().try_for_each(|(key, value)| {
            check_label(key, value).map_err(|why| {
                let fault = Fault::Invalid(&format!("{value:?}"), &why);
                Status::invalid(place, &self.kind, &self.name, "metadata.labels", fault)
            })
        })
    }

    /// Refuses an object of another name than that in the path.
    pub(super) fn check_named(&self, place: &Place) -> Result<(), Status> {
        let expected = place.name.as_deref().unwrap_or_default();
        if self.name.is_empty() {
            let message = format!(
                "the name of the object ({expected} based on URL) was undeterminable: name must be provided"
            );
            return Err(Status::bad_request(message));
        }
        if self.name != expected {
            let message = format!(
                "the name of the object ({}) does not match the name on the URL ({expected})",
                self.name
            );
            return Err(Status::bad_request(message));
        }
        Ok(())
    }
}

/// A name with a random ending.
pub(super) fn generated_name(prefix: &str) -> String {
    let end = prefix.floor_char_boundary(NAME_BYTES_MAX - ENDING_LEN);
    let ending = (0..ENDING_LEN).map(|_| fastrand::choice(ENDING).map_or('x', |byte| char::from(*byte)));
    prefix.get(..end).unwrap_or_default().chars().chain(ending).collect()
}

/// Whether the text is a DNS name in lower case.
fn is_name(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX && text.split('.').all(is_part)
}

/// Whether the text is the name of a namespace.
fn is_label(text: &str) -> bool {
    text.len() <= LABEL_BYTES_MAX && is_part(text)
}

fn is_part(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let (first, last) = (text.bytes().next(), text.bytes().last());
    first.is_some_and(is_inner)
        && last.is_some_and(is_inner)
        && text.bytes().all(|byte| is_inner(byte) || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_names() {
        for name in ["a", "a-b.c", "0", "apple.1"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "A", "a b", "a/b", "..", "a.", "-a", "a-", "\u{fc}", "under_score", &"x".repeat(254)]
        {
            assert!(!is_name(name), "{name}");
        }
        let (one, other) = (generated_name("gen-"), generated_name("gen-"));
        assert!(is_name(&one) && one.len() == 9 && one != other, "{one} {other}");
        assert_eq!(generated_name(&"x".repeat(300)).len(), NAME_BYTES_MAX);
    }
}
