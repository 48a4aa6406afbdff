//! The setting `kubernetes` of a queue.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::FollowedView;
use super::range;

/// Maximum length of a group, in bytes: that of a DNS name.
const GROUP_BYTES_MAX: usize = 253;
/// Maximum length of a label of a DNS name, in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// The resource of the Kubernetes API as which clients of Kubernetes read and write the objects of the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Kubernetes {
    /// The API group, a DNS name with a dot.
    #[serde(deserialize_with = "group")]
    #[schema(examples("shop.example"))]
    pub group: String,
    /// The version of the API group.
    #[serde(deserialize_with = "version")]
    #[schema(examples("v1"))]
    pub version: String,
    /// The kind of the objects.
    #[serde(deserialize_with = "kind")]
    #[schema(examples("Price"))]
    pub kind: String,
    /// The plural name in paths.
    #[serde(deserialize_with = "plural")]
    #[schema(examples("prices"))]
    pub plural: String,
    /// The view that clients read: `latest` (the default) has the newest objects, `known` those that consumers acknowledged.
    #[serde(default)]
    #[schema(required = true)]
    pub view: FollowedView,
}

/// Whether the text is a label of a DNS name that begins with a letter.
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= LABEL_BYTES_MAX
        && text.bytes().all(is_inner)
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && !text.ends_with('-')
}

/// Whether the text is a label of a DNS name.
fn is_dns_label(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit()) && is_label(&format!("a{text}")) || is_label(text)
}

fn group<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    range::text(deserializer, r#"a DNS name with a dot, such as "shop.example""#, |text| {
        let is_group =
            text.len() <= GROUP_BYTES_MAX && text.contains('.') && text.split('.').all(is_dns_label);
        is_group.then(|| text.to_owned())
    })
}

fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    range::text(deserializer, r#"a version such as "v1""#, |text| is_label(text).then(|| text.to_owned()))
}

fn kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    range::text(deserializer, r#"a name of letters and digits such as "Price""#, |text| {
        (is_label(&text.to_ascii_lowercase()) && !text.contains('-')).then(|| text.to_owned())
    })
}

fn plural<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    range::text(deserializer, r#"a name in lower case such as "prices""#, |text| {
        is_label(text).then(|| text.to_owned())
    })
}
