//! Checks of individual settings of a source.

use std::path::PathBuf;

use deltaq_types::name::Name;
use deltaq_types::range;
use serde::Deserialize;
use serde::de::{self, Deserializer};

use super::PageEnd;

pub(super) fn queue_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

pub(super) fn optional_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    range::path::<D, PathBuf>(deserializer).map(Some)
}

/// A JSON pointer; empty for the whole document.
pub(super) fn pointer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    range::text(deserializer, "a JSON pointer, such as \"/data/items\", or \"\"", |text| {
        let is_escaped = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        ((text.is_empty() || text.starts_with('/')) && is_escaped).then(|| text.to_owned())
    })
}

pub(super) fn optional_pointer<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    pointer(deserializer).map(Some)
}

pub(super) fn optional_word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    range::text(deserializer, "a name", |text| (!text.is_empty()).then(|| Some(text.to_owned())))
}

/// The end of a list of numbered pages: a status, which may be a number, or a word.
pub(super) fn page_end<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PageEnd>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Status(u16),
        Text(String),
    }

    let text = match Written::deserialize(deserializer) {
        Ok(Written::Status(status)) => status.to_string(),
        Ok(Written::Text(text)) => text,
        Err(_) => String::new(),
    };
    match text.as_str() {
        "400" => Ok(Some(PageEnd::BadRequest)),
        "404" => Ok(Some(PageEnd::NotFound)),
        "repeat" => Ok(Some(PageEnd::Repeat)),
        _ => Err(de::Error::custom("invalid value, expected 404, 400 or \"repeat\"")),
    }
}

pub(super) fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let words = Vec::<String>::deserialize(deserializer)?;
    let is_command = words.first().is_some_and(|program| !program.is_empty());
    is_command.then_some(words).ok_or_else(|| {
        de::Error::custom(
            "invalid value, expected a program and its arguments, such as [\"./dump\", \"--all\"]",
        )
    })
}

/// The URL of a list. An error does not repeat the text, which may contain a password.
pub(super) fn list_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let form = "invalid value, expected a URL such as \"https://shop.example/prices\"";
    let text = String::deserialize(deserializer).map_err(|_| de::Error::custom(form))?;
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    let authority = authority
        .filter(|authority| !authority.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()));
    let authority = authority.ok_or_else(|| de::Error::custom(form))?;
    if authority.contains('@') {
        return Err(de::Error::custom(
            "invalid value, expected a URL without a user, because arguments and settings are shown: put the header Authorization into a header file",
        ));
    }
    Ok(text)
}

/// A non-empty text.
pub(super) fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    range::text(deserializer, "a text", |text| (!text.trim().is_empty()).then(|| text.to_owned()))
}

/// A database: a file of SQLite, or a URL of PostgreSQL. No error repeats a password.
pub(super) fn database<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let form = "invalid value, expected sqlite:PATH or a URL such as \"postgres://reader@db.example/shop\"";
    let text = String::deserialize(deserializer).map_err(|_| de::Error::custom(form))?;
    if text.strip_prefix("sqlite:").is_some_and(|path| !path.is_empty()) {
        return Ok(text);
    }
    if !text.starts_with("postgres") {
        return Err(de::Error::custom(form));
    }
    let url = range::database_url(serde::de::value::StringDeserializer::<D::Error>::new(text))?;
    url.ok_or_else(|| de::Error::custom(form))
}

/// The URL of a database of PostgreSQL. No error repeats a password.
pub(super) fn postgres<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let url = range::database_url(deserializer)?;
    url.ok_or_else(|| {
        de::Error::custom("invalid value, expected a URL such as \"postgres://reader@db.example/shop\"")
    })
}

/// The name of a slot of replication, by PostgreSQL's rule.
pub(super) fn optional_slot<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    range::text(deserializer, "a name of 1 to 63 lower-case letters, digits and underscores", |text| {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        ((1..=63).contains(&text.len()) && text.bytes().all(is_plain)).then(|| Some(text.to_owned()))
    })
}

/// The path of a resource of Kubernetes.
pub(super) fn resource<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    range::text(
        deserializer,
        "the path of a resource, such as \"/api/v1/pods\" or \"/apis/apps/v1/deployments\"",
        |text| {
            let is_path = text.starts_with("/api/") || text.starts_with("/apis/");
            let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte));
            (is_path && is_plain).then(|| text.trim_end_matches('/').to_owned())
        },
    )
}
