//! The settings in a PUT, which replace those of a queue, and in a PATCH, which are merged into them (RFC 7396).
//!
//! Both change the document that `GET .../settings` shows, and the result is read as one document. So the rules for
//! settings do not depend on the kind of request.

use std::fmt;
use std::sync::Arc;

use deltaq_engine::config::Config;
use deltaq_engine::excerpt::{Excerpt, shortened};
use deltaq_service::admission::{Schema, check_prune};
use deltaq_types::{FollowedView, GroupBy, Groups, Mode, PushFormat, PushPayload, QueueSettings, RawObject};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::config::{self, Fault, nearest_queue_setting, queue};
use crate::http::problem::{Code, Problem};

/// The settings in a request.
#[derive(Debug, Default)]
pub struct Given {
    /// All settings except the schema. Null stands for the default.
    members: Map<String, Value>,
    schema: GivenSchema,
}

/// The schema in a request.
#[derive(Debug, Default)]
enum GivenSchema {
    #[default]
    Absent,
    Null,
    Set(RawObject),
}

/// The members of a request as text, so that the numbers of a schema keep every digit, and so that no member is
/// parsed before its length is checked.
#[derive(Debug, Default)]
pub struct GivenDocument {
    members: Vec<(String, Box<RawValue>)>,
    schema: Option<Box<RawValue>>,
}

/// Maximum number of members that are stored. There are fewer settings than this, so a longer document has an unknown
/// member.
const MEMBERS_KEPT: usize = 64;
/// Maximum length of a setting's text, in bytes.
const SETTING_BYTES_MAX: usize = 16 << 10;
/// Maximum length of the text of `prune` or `ignore`, in bytes.
const POINTERS_BYTES_MAX: usize = 128 << 10;

impl<'de> Deserialize<'de> for GivenDocument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = GivenDocument;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<GivenDocument, A::Error> {
                let mut document = GivenDocument::default();
                while let Some(name) = members.next_key::<String>()? {
                    match name.as_str() {
                        "schema" => document.schema = Some(members.next_value()?),
                        _ if document.members.len() < MEMBERS_KEPT => {
                            document.members.push((name, members.next_value()?));
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

impl GivenDocument {
    /// Whether there is a schema.
    #[must_use]
    pub fn has_schema(&self) -> bool {
        self.schema.is_some()
    }

    /// Checks the names and compiles the schema, which may take a second. The caller must hold no lock.
    ///
    /// # Errors
    /// [`Code::InvalidRequest`] for an unknown name, [`Code::InvalidConfig`] for a wrong schema.
    pub fn compile(self) -> Result<Given, Problem> {
        let mut members = Map::new();
        for (name, text) in self.members {
            let value = parsed(&name, &text)?;
            members.insert(name, value);
        }
        if let Some(name) = QueueSettings::unknown_name(&members) {
            return Err(unknown(&name));
        }
        let schema = match self.schema.as_deref().map(RawValue::get) {
            None => GivenSchema::Absent,
            Some("null") => GivenSchema::Null,
            Some(text) if text.starts_with('{') => GivenSchema::Set(Schema::compile(text)?.into_text()),
            Some(_) => {
                return Err(Problem::invalid_setting("schema", "it must be a JSON object, or null for none"));
            }
        };
        Ok(Given { members, schema })
    }
}

fn parsed(name: &str, text: &RawValue) -> Result<Value, Problem> {
    let bytes = text.get().len();
    let bytes_max = if matches!(name, "prune" | "ignore") { POINTERS_BYTES_MAX } else { SETTING_BYTES_MAX };
    if bytes > bytes_max {
        let why = format!("it has {bytes} bytes; at most {bytes_max} are allowed");
        return Err(Problem::invalid_setting(name, &why).with("limit", bytes_max));
    }
    serde_json::from_str(text.get()).map_err(|error| Problem::invalid_setting(name, &error.to_string()))
}

fn unknown(name: &str) -> Problem {
    let hint = match nearest_queue_setting(name) {
        Some(nearest) => format!("did you mean {nearest:?}?"),
        None => "GET /v1/queues/{queue}/settings shows all settings".to_owned(),
    };
    Problem::new(Code::InvalidRequest, format!("unknown field {}", Excerpt(name)))
        .hint(hint)
        .with("field", name)
}

impl Given {
    /// Whether there is a value for this setting.
    fn names(&self, setting: &str) -> bool {
        self.members.get(setting).is_some_and(|value| !value.is_null())
    }

    /// The settings of a new queue: those that are not named have their defaults.
    ///
    /// # Errors
    /// [`Code::InvalidConfig`].
    pub fn created(&self, defaults: &Config) -> Result<Config, Problem> {
        let mut document = members(defaults);
        for (name, value) in self.members.iter().filter(|(_, value)| !value.is_null()) {
            document.insert(name.clone(), merged(None, value.clone()));
        }
        let schema = match &self.schema {
            GivenSchema::Set(schema) => Some(schema.clone()),
            GivenSchema::Absent | GivenSchema::Null => None,
        };
        self.read(document, schema, defaults)
    }

    /// The new settings of an existing queue. Settings that are not named get their defaults. If the queue has
    /// `follow`, `push`, `hook`, `kubernetes` or a mode other than the default, the PUT must name it. Otherwise, a PUT that is meant to change
    /// another setting would remove it by accident.
    ///
    /// # Errors
    /// [`Code::WouldRemove`] or [`Code::InvalidConfig`].
    pub fn put_over(&self, current: &Config, defaults: &Config) -> Result<Config, Problem> {
        let is_set = [
            ("follow", current.follow.is_some()),
            ("push", current.push.is_some()),
            ("hook", current.hook.is_some()),
            ("kubernetes", current.kubernetes.is_some()),
            ("mode", current.mode != defaults.mode),
        ];
        let removed = is_set.into_iter().filter(|(name, is_set)| *is_set && !self.names(name));
        let removed: Vec<&str> = removed.map(|(name, _)| name).collect();
        if !removed.is_empty() {
            let detail = format!(
                "PUT replaces all settings, and this PUT would remove {} of the queue; nothing was changed",
                removed.join(" and ")
            );
            return Err(Problem::new(Code::WouldRemove, detail)
                .hint("name them, or PATCH the settings that are to change; a PATCH with null removes one")
                .with("fields", removed));
        }
        self.planned_over(current, defaults)
    }

    /// Like [`put_over`](Self::put_over), but the PUT may remove settings. A queue keeps its `owner`, because programs that set the settings
    /// of their queue when they start do not know it.
    ///
    /// # Errors
    /// [`Code::InvalidConfig`].
    pub fn planned_over(&self, current: &Config, defaults: &Config) -> Result<Config, Problem> {
        let mut next = keeping_rules(self.created(defaults)?, current);
        if !self.members.contains_key("owner") {
            next.owner.clone_from(&current.owner);
        }
        Ok(next)
    }

    /// The settings of a queue with those that are named: objects are merged, null restores a default. A schema is replaced as a whole,
    /// because null has a meaning in a schema.
    ///
    /// # Errors
    /// [`Code::WouldRemove`] or [`Code::InvalidConfig`].
    pub fn patched_onto(&self, current: &Config, defaults: &Config) -> Result<Config, Problem> {
        let (mut document, defaults_document) = (members(current), members(defaults));
        for (name, value) in &self.members {
            let before = document.remove(name);
            let value = match value {
                Value::Null => defaults_document.get(name).cloned().unwrap_or_default(),
                value => merged(before, value.clone()),
            };
            document.insert(name.clone(), value);
        }
        let schema = match &self.schema {
            GivenSchema::Absent => current.admission.as_ref().and_then(|admission| admission.schema.clone()),
            GivenSchema::Null => None,
            GivenSchema::Set(schema) => Some(schema.clone()),
        };
        let next = keeping_rules(self.read(document, schema, defaults)?, current);
        self.check_stays(&next, current, defaults)?;
        Ok(next)
    }

    /// Refuses a change of the mode that would remove the debounce or the groups of the queue.
    fn check_stays(&self, next: &Config, current: &Config, defaults: &Config) -> Result<(), Problem> {
        let has_own_debounce = current.debounce.is_some() && current.debounce != defaults.debounce;
        let has_own_groups = current.groups.is_some() && current.groups != defaults.groups;
        for (name, is_lost, why) in [
            (
                "debounce",
                has_own_debounce && next.debounce.is_none(),
                "a queue of mode events has no debounce",
            ),
            (
                "groups",
                has_own_groups && next.groups.is_none(),
                "a queue of mode keys has groups by key_prefix only",
            ),
        ] {
            if is_lost && !self.members.contains_key(name) {
                let detail = format!(
                    "{why}, and this PATCH would remove that setting of the queue; nothing was changed"
                );
                return Err(Problem::new(Code::WouldRemove, detail)
                    .hint(format!("PATCH {name} to null as well to remove it"))
                    .with("fields", vec![name]));
            }
        }
        Ok(())
    }

    /// The settings in a complete document.
    fn read(
        &self,
        document: Map<String, Value>,
        schema: Option<RawObject>,
        defaults: &Config,
    ) -> Result<Config, Problem> {
        let mut settings: QueueSettings = config::from_document(document.into()).map_err(invalid)?;
        if settings.mode == Mode::Keys {
            for (name, why) in [
                ("resync_period", "a queue of mode keys has no known objects"),
                ("version", "a queue of mode keys has no objects"),
            ] {
                if self.names(name) {
                    return Err(Problem::invalid_setting(name, why));
                }
            }
        }
        let is_by_object = |groups: &Groups| !matches!(groups.by, GroupBy::KeyPrefix(_));
        if settings.mode == Mode::Keys
            && self.names("groups")
            && settings.groups.as_ref().is_some_and(is_by_object)
        {
            let why = r#"a queue of mode keys has neither objects nor sources; name its groups by {"key_prefix":"/"}"#;
            return Err(Problem::invalid_setting("groups.by", why));
        }
        if settings.mode == Mode::Events && self.names("debounce") {
            let why = "a queue of mode events delivers every delta by itself";
            return Err(Problem::invalid_setting("debounce", why));
        }
        // A follower has no versions, so the default for all queues does not apply to it.
        let default_version = defaults.version.as_ref().map(|pointer| &*pointer.text);
        if settings.follow.is_some()
            && !self.names("version")
            && settings.version.as_deref() == default_version
        {
            settings.version = None;
        }
        let config = queue::compile(&QueueSettings { schema, ..settings }).map_err(invalid)?;
        check(&config)?;
        Ok(config)
    }
}

/// A value after a merge patch (RFC 7396).
fn merged(before: Option<Value>, patch: Value) -> Value {
    let Value::Object(patch) = patch else { return patch };
    let mut members = match before {
        Some(Value::Object(members)) => members,
        _ => Map::new(),
    };
    for (name, value) in patch {
        let before = members.remove(&name);
        if !value.is_null() {
            members.insert(name, merged(before, value));
        }
    }
    members.into()
}

/// The settings as JSON, without the schema.
fn members(config: &Config) -> Map<String, Value> {
    let document = QueueSettings { schema: None, ..config.document() };
    match serde_json::to_value(document) {
        Ok(Value::Object(members)) => members,
        _ => Map::new(),
    }
}

/// Keeps the current value of unchanged rules for objects, so that they are not compiled again.
fn keeping_rules(next: Config, current: &Config) -> Config {
    match (&next.admission, &current.admission) {
        (Some(rules), Some(former)) if rules == former => {
            Config { admission: Some(Arc::clone(former)), ..next }
        }
        _ => next,
    }
}

fn invalid(Fault { setting, why, .. }: Fault) -> Problem {
    let problem = Problem::invalid_setting(&setting, &shortened(&why));
    match setting.as_str() {
        "follow" => problem.hint("it is like {\"queue\":\"prices\"}, or null to detach the queue"),
        "hook" => problem.hint("it is like {\"scheme\":\"github\",\"secrets\":[\"github\"]}, or null to take no webhooks"),
        "kubernetes" => problem.hint("it is like {\"group\":\"shop.example\",\"version\":\"v1\",\"kind\":\"Price\",\"plural\":\"prices\"}, or null for no resource of Kubernetes"),
        "push" => problem.hint("it is like {\"url\":\"https://shop.example/hooks\",\"secrets\":[\"shop\"]}, or null to push no more"),
        _ => problem,
    }
}

/// The rules between settings.
fn check(config: &Config) -> Result<(), Problem> {
    let has_known_objects = config.known_objects && config.rules().has_objects;
    if !config.indexes.is_empty() && !has_known_objects {
        let why =
            "indexes cover known objects, and this queue stores none (mode keys, or known_objects false)";
        return Err(Problem::invalid_setting("indexes", why));
    }
    if !config.ignored.is_empty() && !config.rules().has_objects {
        return Err(Problem::invalid_setting("ignore", "a queue of mode keys has no objects"));
    }
    let prune = config.admission.as_ref().map_or(&[][..], |admission| &admission.prune);
    check_prune(prune, &config.key, config.version.as_ref())?;
    check_push(config)?;
    check_hook(config)?;
    check_kubernetes(config)?;
    check_follow(config)
}

/// Refuses settings that a queue that pushes can't have.
fn check_push(config: &Config) -> Result<(), Problem> {
    let Some(push) = &config.push else { return Ok(()) };
    if !config.rules().has_objects {
        let why = "a queue of mode keys has no objects, so it has nothing to push";
        return Err(Problem::invalid_setting("push", why).hint("use mode latest"));
    }
    if push.format == PushFormat::Raw && push.batch > 1 {
        let why = "the body of the format raw is one object, so a request has one key";
        return Err(
            Problem::invalid_setting("push.batch", why).hint("use 1, or the format standard or cloudevents")
        );
    }
    match push.format {
        PushFormat::Standard if push.secrets.is_empty() => {
            let why = "the format standard needs a secret, because its receivers verify the signature";
            let problem = Problem::invalid_setting("push.secrets", why);
            Err(problem.hint(
                "name a secret of the server's setting push.secrets, or use the format raw or cloudevents",
            ))
        }
        PushFormat::Raw | PushFormat::Cloudevents if push.payload == PushPayload::Known => {
            let why = "the body of the formats raw and cloudevents is the object";
            Err(Problem::invalid_setting("push.payload", why)
                .hint("use the payload full, or the format standard"))
        }
        PushFormat::Raw if push.payload == PushPayload::Thin => {
            let why = "the body of the format raw is the object";
            Err(Problem::invalid_setting("push.payload", why).hint("use the payload full, or another format"))
        }
        PushFormat::Standard | PushFormat::Raw | PushFormat::Cloudevents => Ok(()),
    }
}

/// Refuses settings that a queue with a hook can't have.
fn check_hook(config: &Config) -> Result<(), Problem> {
    let Some(hook) = &config.hook else { return Ok(()) };
    if !config.rules().has_objects {
        let why = "a queue of mode keys has no objects, so it can't take webhooks";
        return Err(Problem::invalid_setting("hook", why).hint("use mode latest"));
    }
    if config.follow.is_some() {
        return Err(Problem::invalid_setting("hook", "a follower has no producers")
            .hint("set hook of the queue that it follows"));
    }
    match hook.fault() {
        Some((member, why)) => Err(Problem::invalid_setting(&format!("hook.{member}"), why)),
        None => Ok(()),
    }
}

/// Refuses settings that a resource of Kubernetes can't have.
fn check_kubernetes(config: &Config) -> Result<(), Problem> {
    let Some(kubernetes) = &config.kubernetes else { return Ok(()) };
    if !config.rules().has_objects {
        let why = "a queue of mode keys has no objects, so it is no resource of Kubernetes";
        return Err(Problem::invalid_setting("kubernetes", why).hint("use mode latest"));
    }
    if config.key.has_kubernetes_namespace().is_none() {
        let why = "the key of the queue is not that of Kubernetes' objects";
        return Err(Problem::invalid_setting("kubernetes", why).hint(
            r#"set key to ["/metadata/name"], or with namespaces to [{"pointer":"/metadata/namespace","optional":true},"/metadata/name"]"#,
        ));
    }
    if kubernetes.view == FollowedView::Known && !config.known_objects {
        let why = "the view known needs known_objects, and the queue stores none";
        return Err(Problem::invalid_setting("kubernetes.view", why)
            .hint("use the view latest, or set known_objects to true"));
    }
    Ok(())
}

/// Refuses settings that a follower can't have.
fn check_follow(config: &Config) -> Result<(), Problem> {
    let Some(follow) = &config.follow else { return Ok(()) };
    if !config.rules().has_objects {
        let why = "a queue of mode keys has no objects, so it can't follow";
        return Err(Problem::invalid_setting("follow", why).hint("use mode latest"));
    }
    if !config.known_objects {
        let why = "a follower needs known_objects, because they tell which keys were deleted";
        return Err(Problem::invalid_setting("follow", why));
    }
    if config.admission.is_some() || config.version.is_some() {
        let queue = &follow.queue;
        let why = format!("a follower takes objects as {queue:?} has accepted them");
        let problem = Problem::invalid_setting("follow", &why);
        return Err(problem.hint(format!("set schema, prune and version of {queue:?}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_and_the_settings_have_the_same_defaults() {
        let defaults = crate::config::Settings::default().queue_defaults;
        assert_eq!(queue::compile(&defaults).expect("the defaults are allowed"), Config::default());
        assert_eq!(Config::default().document(), defaults);
    }
}
