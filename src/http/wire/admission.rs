//! The settings `schema`, `prune` and `follow` of a queue. Only a PUT can set them; the settings file has none of them.

use std::fmt;
use std::sync::Arc;

use deltaq_engine::config::AdmissionText;
use deltaq_engine::key::{KeySpec, Pointer};
use deltaq_service::admission::{Schema, check_prune};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::super::problem::Problem;
use super::follow::{self, FollowPatch};

/// The settings in a PUT.
#[derive(Debug, Default)]
pub struct Patch {
    /// The settings that the settings file also has.
    pub(super) common: Map<String, Value>,
    pub(super) admission: AdmissionPatch,
    pub(super) follow: FollowPatch,
}

impl Patch {
    /// The queue that the queue follows from now on, if the PUT says so.
    #[must_use]
    pub fn followed(&self) -> Option<&str> {
        match &self.follow {
            FollowPatch::Set(follow) => Some(&follow.queue),
            FollowPatch::Keep | FollowPatch::Detach => None,
        }
    }
}

/// The change of the schema by a PUT.
#[derive(Debug, Default)]
enum SchemaPatch {
    /// No change.
    #[default]
    Keep,
    Remove,
    Set(Arc<RawValue>),
}

/// The change of admission by a PUT.
#[derive(Debug, Default)]
pub(super) struct AdmissionPatch {
    schema: SchemaPatch,
    prune: Option<Vec<Pointer>>,
}

/// The members of a PUT as text: the numbers of a schema keep every digit, and no member is parsed before its length is checked.
#[derive(Debug, Default)]
pub struct PatchDocument {
    common: Vec<(String, Box<RawValue>)>,
    schema: Option<Box<RawValue>>,
    prune: Option<Box<RawValue>>,
    follow: Option<Box<RawValue>>,
}

/// Most members that are stored. There are fewer settings, so a longer document has an unknown member.
const MEMBERS_KEPT: usize = 64;
/// Longest text of a setting, in bytes.
const SETTING_BYTES_MAX: usize = 16 << 10;
/// Longest text of `prune`, in bytes.
const PRUNE_BYTES_MAX: usize = 128 << 10;

impl<'de> Deserialize<'de> for PatchDocument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = PatchDocument;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<PatchDocument, A::Error> {
                let mut document = PatchDocument::default();
                while let Some(name) = members.next_key::<String>()? {
                    match name.as_str() {
                        "schema" => document.schema = Some(members.next_value()?),
                        "prune" => document.prune = Some(members.next_value()?),
                        "follow" => document.follow = Some(members.next_value()?),
                        _ if document.common.len() < MEMBERS_KEPT => {
                            document.common.push((name, members.next_value()?));
                        }
                        _ => drop(members.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(document)
            }
        }

        deserializer.deserialize_map(Members)
    }
}

impl PatchDocument {
    /// Whether the PUT has a schema.
    #[must_use]
    pub fn has_schema(&self) -> bool {
        self.schema.is_some()
    }

    /// Compiles the schema, which may take a second. The caller must hold no lock.
    ///
    /// # Errors
    /// [`Code::InvalidConfig`](crate::http::problem::Code::InvalidConfig) for a wrong schema or pointer.
    pub fn compile(self) -> Result<Patch, Problem> {
        let mut common = Map::new();
        for (name, text) in self.common {
            let value = read_setting(&name, &text, SETTING_BYTES_MAX)?;
            common.insert(name, value);
        }
        let schema = match self.schema.as_deref().map(RawValue::get) {
            None => SchemaPatch::Keep,
            Some("null") => SchemaPatch::Remove,
            Some(text) if text.starts_with('{') => {
                SchemaPatch::Set(Schema::compile(text)?.into_text().into())
            }
            Some(_) => {
                return Err(Problem::invalid_setting("schema", "it must be a JSON object, or null for none"));
            }
        };
        let prune = self.prune.map(|text| pointers(&read_setting("prune", &text, PRUNE_BYTES_MAX)?));
        let admission = AdmissionPatch { schema, prune: prune.transpose()? };
        let follow = match self.follow {
            Some(text) => follow::read(read_setting("follow", &text, SETTING_BYTES_MAX)?)?,
            None => FollowPatch::Keep,
        };
        Ok(Patch { common, admission, follow })
    }
}

fn read_setting(name: &str, text: &RawValue, bytes_max: usize) -> Result<Value, Problem> {
    let bytes = text.get().len();
    if bytes > bytes_max {
        return Err(Problem::invalid_setting(
            name,
            &format!("it has {bytes} bytes; at most {bytes_max} are allowed"),
        )
        .with("limit", bytes_max));
    }
    serde_json::from_str(text.get()).map_err(|error| Problem::invalid_setting(name, &error.to_string()))
}

fn pointers(value: &Value) -> Result<Vec<Pointer>, Problem> {
    if value.is_null() {
        return Ok(Vec::new());
    }
    let texts: Option<Vec<&str>> = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    let texts = texts.ok_or_else(|| {
        Problem::invalid_setting("prune", "it must be a list of JSON pointers, or null for none")
    })?;
    let pointers = texts.into_iter().map(|text| Pointer::parse(text, false));
    pointers.collect::<Result<_, _>>().map_err(|why| Problem::invalid_setting("prune", &why))
}

impl AdmissionPatch {
    /// The rules after the change, for a queue with this key and this version. Unchanged rules stay the same value, so they are not
    /// compiled again.
    pub(super) fn applied(
        &self,
        current: Option<&Arc<AdmissionText>>,
        key: &KeySpec,
        version: Option<&Pointer>,
    ) -> Result<Option<Arc<AdmissionText>>, Problem> {
        let schema = match &self.schema {
            SchemaPatch::Keep => current.and_then(|now| now.schema.clone()),
            SchemaPatch::Remove => None,
            SchemaPatch::Set(schema) => Some(schema.clone()),
        };
        let prune = self.prune.clone();
        let prune = prune.unwrap_or_else(|| current.map_or_else(Vec::new, |now| now.prune.clone()));
        check_prune(&prune, key, version)?;
        let next = AdmissionText::new(schema, prune);
        Ok(match current {
            Some(now) if next.as_ref() == Some(&**now) => Some(now.clone()),
            _ => next.map(Arc::new),
        })
    }
}
