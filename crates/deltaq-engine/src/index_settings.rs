//! The setting `indexes` of a queue.

use std::sync::Arc;

use crate::excerpt::Excerpt;
use crate::limits::{INDEX_NAME_BYTES_MAX, INDEXES_MAX};
use crate::pointer::Pointer;

/// The name of an index, and the pointer to its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSetting {
    /// The name.
    pub name: Arc<str>,
    /// The pointer to the value or the array of values in an object.
    pub pointer: Pointer,
}

/// The indexes of a queue, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexSettings(Vec<IndexSetting>);

impl IndexSettings {
    /// Indexes with these names and pointers.
    ///
    /// # Errors
    /// The text names the rule that is broken.
    pub fn new<'t>(indexes: impl IntoIterator<Item = (&'t str, &'t str)>) -> Result<Self, String> {
        let setting = |(name, pointer): (&str, &str)| {
            check_name(name)?;
            let pointer =
                Pointer::parse(pointer, false).map_err(|why| format!("{}: {why}", Excerpt(name)))?;
            Ok(IndexSetting { name: name.into(), pointer })
        };
        let mut settings = indexes.into_iter().map(setting).collect::<Result<Vec<_>, String>>()?;
        if settings.len() > INDEXES_MAX {
            return Err(format!("a queue has at most {INDEXES_MAX} indexes, not {}", settings.len()));
        }
        settings.sort_by(|a, b| a.name.cmp(&b.name));
        match settings.array_windows().find(|[a, b]| a.name == b.name) {
            Some([twice, _]) => Err(format!("{} is the name of two indexes", Excerpt(&twice.name))),
            None => Ok(Self(settings)),
        }
    }

    /// The indexes, in the order of their names.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &IndexSetting> {
        self.0.iter()
    }

    /// Whether there are no indexes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let is_name = name.bytes().all(is_allowed)
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.len() <= INDEX_NAME_BYTES_MAX;
    if is_name {
        return Ok(());
    }
    Err(format!(
        "{} is not the name of an index, which has 1 to {INDEX_NAME_BYTES_MAX} letters, digits, '_' and '-', and begins with a letter or digit",
        Excerpt(name)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(indexes: &[(&str, &str)]) -> String {
        IndexSettings::new(indexes.iter().copied()).unwrap_err()
    }

    #[test]
    fn names_and_pointers_are_checked() {
        let longest = "x".repeat(INDEX_NAME_BYTES_MAX);
        let settings =
            IndexSettings::new([("b", "/b"), (longest.as_str(), "/x~1y/0"), ("A1_-", "/")]).unwrap();
        let names: Vec<&str> = settings.iter().map(|setting| &*setting.name).collect();
        assert_eq!(names, ["A1_-", "b", &longest]);
        for name in ["", "_a", "a b", "a/b", "a.b", "ä", &format!("{longest}x")] {
            assert!(error(&[(name, "/a")]).contains("is not the name of an index"), "{name}");
        }
        for pointer in ["", "a", "/~2"] {
            assert!(error(&[("a", pointer)]).contains("is not a JSON pointer"), "{pointer}");
        }
        assert_eq!(error(&[("a", "/a"), ("b", "/b"), ("a", "/c")]), "\"a\" is the name of two indexes");
        let many: Vec<String> = (0..=INDEXES_MAX).map(|number| number.to_string()).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "/a")).collect();
        assert_eq!(error(&many), "a queue has at most 16 indexes, not 17");
        assert!(IndexSettings::new(many[1..].iter().copied()).is_ok());
    }
}
