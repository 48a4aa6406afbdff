//! The setting `groups`: which keys take turns, and how large the share of each group is.

use std::collections::BTreeMap;
use std::sync::Arc;

use deltaq_types as document;

use super::key::Key;
use super::limits::GROUP_BYTES_MAX;
use super::object::Object;
use super::pointer::{Cursor, Pointer, Value, find};
use super::rate::Rate;

/// What names the groups by the sources of changes.
const SOURCE: &str = "source";

/// The groups of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRules {
    /// What names the group of a key.
    pub by: GroupBy,
    /// Maximum number of keys of a group that workers hold at once; `None` for no limit.
    pub max_leased: Option<u64>,
    /// How many keys of a group are delivered per second; `None` for no limit.
    pub rate: Option<Rate>,
    /// Settings of single groups, by name. The empty name is that of the group without a name.
    pub overrides: BTreeMap<Arc<str>, GroupOverride>,
}

/// What names the group of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// The string or whole number at this pointer in the newest object.
    Pointer(Pointer),
    /// The source of the newest change that names one.
    Source,
    /// The text of the key before the first occurrence of this text.
    KeyPrefix(Arc<str>),
}

/// The group of a key after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupAfter {
    /// The group before the change, because the change names none.
    Same,
    /// This one; `None` for the group without a name.
    Is(Option<Arc<str>>),
}

/// The settings of one group. Those that are not set are as for all groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupOverride {
    /// The share of the group in relation to those of the others.
    pub weight: Option<u32>,
    /// Maximum number of keys of the group that workers hold at once.
    pub max_leased: Option<u64>,
    /// How many keys of the group are delivered per second.
    pub rate: Option<Rate>,
}

impl GroupRules {
    /// The group of a key after a change with this object of this source.
    #[must_use]
    pub fn group(&self, key: &Key, object: Option<&Object>, source: Option<&str>) -> GroupAfter {
        let named = match &self.by {
            GroupBy::Pointer(pointer) => object.map(|object| of_object(pointer, object)),
            GroupBy::Source => source.map(name),
            GroupBy::KeyPrefix(end) => {
                let prefix = key.as_str().split_once(&**end);
                Some(prefix.and_then(|(prefix, _)| name(prefix)))
            }
        };
        named.map_or(GroupAfter::Same, GroupAfter::Is)
    }

    /// The weight of a group.
    #[must_use]
    pub fn weight(&self, group: Option<&str>) -> u32 {
        self.of(group).and_then(|own| own.weight).unwrap_or(1)
    }

    /// The limit of a group.
    #[must_use]
    pub fn max_leased(&self, group: Option<&str>) -> Option<u64> {
        self.of(group).and_then(|own| own.max_leased).or(self.max_leased)
    }

    /// The rate of a group.
    #[must_use]
    pub fn rate(&self, group: Option<&str>) -> Option<Rate> {
        self.of(group).and_then(|own| own.rate).or(self.rate)
    }

    /// Compiles the document of the setting.
    ///
    /// # Errors
    /// The wrong setting, and what is wrong with it.
    pub(super) fn compile(document: &document::Groups) -> Result<Arc<Self>, (&'static str, String)> {
        let by = match &document.by {
            document::GroupBy::Value(source) if source == SOURCE => GroupBy::Source,
            document::GroupBy::Value(pointer) => {
                GroupBy::Pointer(Pointer::parse(pointer, false).map_err(|why| ("groups.by", why))?)
            }
            document::GroupBy::KeyPrefix(end) => GroupBy::KeyPrefix(end.key_prefix.as_str().into()),
        };
        let rate = document.rate.map(Rate::try_from).transpose();
        let rate = rate.map_err(|why| ("groups.rate.per_second", why))?;
        let own = |(name, own): (&String, &document::GroupOverride)| {
            let document::GroupOverride { weight, max_leased, rate } = *own;
            let rate = rate.map(Rate::try_from).transpose();
            let rate = rate.map_err(|why| ("groups.overrides", format!("{name}.rate.per_second: {why}")))?;
            Ok((Arc::from(name.as_str()), GroupOverride { weight, max_leased, rate }))
        };
        let overrides = document.overrides.iter().map(own).collect::<Result<_, _>>()?;
        Ok(Arc::new(Self { by, max_leased: document.max_leased, rate, overrides }))
    }

    /// The setting as a document.
    pub(super) fn document(&self) -> document::Groups {
        let by = match &self.by {
            GroupBy::Source => document::GroupBy::Value(SOURCE.to_owned()),
            GroupBy::Pointer(pointer) => document::GroupBy::Value(pointer.text.to_string()),
            GroupBy::KeyPrefix(end) => {
                document::GroupBy::KeyPrefix(document::KeyPrefix { key_prefix: end.to_string() })
            }
        };
        let own = |(name, own): (&Arc<str>, &GroupOverride)| {
            let GroupOverride { weight, max_leased, rate } = *own;
            (
                name.to_string(),
                document::GroupOverride { weight, max_leased, rate: rate.map(document::DeliveryRate::from) },
            )
        };
        document::Groups {
            by,
            max_leased: self.max_leased,
            rate: self.rate.map(document::DeliveryRate::from),
            overrides: self.overrides.iter().map(own).collect(),
        }
    }

    fn of(&self, group: Option<&str>) -> Option<&GroupOverride> {
        self.overrides.get(group.unwrap_or_default())
    }
}

fn of_object(pointer: &Pointer, object: &Object) -> Option<Arc<str>> {
    let found = find(object.as_str(), std::slice::from_ref(pointer)).into_iter().next().flatten();
    match found.and_then(Cursor::value)? {
        Value::Text(text) => name(&text),
        Value::Number(text) if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') => name(text),
        _ => None,
    }
}

/// The name of a group; `None` if the text is none.
fn name(text: &str) -> Option<Arc<str>> {
    (1..=GROUP_BYTES_MAX).contains(&text.len()).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(by: GroupBy, object: &str) -> GroupAfter {
        let rules = GroupRules { by, max_leased: None, rate: None, overrides: BTreeMap::new() };
        let key = Key::new("eu/west/1").expect("a key");
        rules.group(&key, Some(&Object::from_valid(object)), Some("erp"))
    }

    #[test]
    fn a_group_is_named_by_a_string_or_a_whole_number() {
        let by = || GroupBy::Pointer(Pointer::parse("/t", false).expect("a pointer"));
        let long = format!(r#"{{"t":"{}"}}"#, "x".repeat(GROUP_BYTES_MAX + 1));
        for (object, name) in [
            (r#"{"t":"acme"}"#, Some("acme")),
            (r#"{"t":7}"#, Some("7")),
            (r#"{"t":"7"}"#, Some("7")),
            (r#"{"t":-7}"#, Some("-7")),
            ("{}", None),
            (r#"{"t":null}"#, None),
            (r#"{"t":""}"#, None),
            (r#"{"t":7.0}"#, None),
            (r#"{"t":true}"#, None),
            (r#"{"t":["a"]}"#, None),
            (&long, None),
        ] {
            assert_eq!(group(by(), object), GroupAfter::Is(name.map(Arc::from)), "{object}");
        }
        assert_eq!(group(GroupBy::Source, "{}"), GroupAfter::Is(Some("erp".into())));
        assert_eq!(group(GroupBy::KeyPrefix("/".into()), "{}"), GroupAfter::Is(Some("eu".into())));
        assert_eq!(group(GroupBy::KeyPrefix(":".into()), "{}"), GroupAfter::Is(None));
    }
}
