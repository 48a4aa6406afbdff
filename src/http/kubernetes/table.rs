//! The forms in which objects are shown: whole, as the rows of a table, or only their `metadata`.

use std::borrow::Cow;
use std::fmt::Write as _;

use deltaq_engine::birth::Birth;
use deltaq_engine::key::Key;
use deltaq_engine::time::Time;
use deltaq_service::ListedState;

use super::accept::Form;
use super::age;
use super::members::{Members, push_metadata, quoted};
use super::resource::Resource;

const COLUMNS: &str = r#"[{"name":"Name","type":"string","format":"name","description":"The name of the object.","priority":0},{"name":"State","type":"string","format":"","description":"The state of the key in the queue: ready, leased, delayed, parked or settled.","priority":0},{"name":"Age","type":"date","format":"","description":"The time since the object was created.","priority":0}]"#;

/// What the rows of a table have of their objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowObject {
    None,
    Metadata,
    Object,
}

/// An object to show.
pub(super) struct Shown<'o> {
    pub(super) key: &'o Key,
    pub(super) version: u64,
    pub(super) birth: Option<Birth>,
    /// The text of the object; `{}` if it is no longer kept.
    pub(super) object: &'o str,
    pub(super) state: Option<ListedState>,
}

/// How objects are shown.
#[derive(Clone, Debug)]
pub(super) struct Show {
    pub(super) resource: Resource,
    pub(super) form: Form,
    pub(super) rows: RowObject,
}

impl Shown<'_> {
    /// The text of the object; its name if it is no longer kept.
    fn text(&self, resource: &Resource) -> Cow<'_, str> {
        if self.object == "{}" { resource.named(self.key).into() } else { self.object.into() }
    }
}

impl Show {
    /// The document of one object.
    pub(super) fn document(&self, shown: &Shown<'_>, now: Time) -> String {
        let mut text = String::new();
        match self.form {
            Form::Table => self.push_table(&mut text, shown, now, true),
            _ => self.push_item(&mut text, shown, now),
        }
        text
    }

    /// Writes an item of a list, or the object of an event.
    pub(super) fn push_item(&self, text: &mut String, shown: &Shown<'_>, now: Time) {
        match self.form {
            Form::Objects => self.push_object(text, shown),
            Form::Metadata => self.push_partial(text, shown),
            Form::Table => self.push_row(text, shown, now),
        }
    }

    fn push_object(&self, text: &mut String, shown: &Shown<'_>) {
        let owned = self.resource.owned(shown.key, shown.version, shown.birth);
        self.resource.push(text, &shown.text(&self.resource), &owned);
    }

    fn push_partial(&self, text: &mut String, shown: &Shown<'_>) {
        let owned = self.resource.owned(shown.key, shown.version, shown.birth);
        text.push_str(r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
        push_metadata(text, &Members::of(&shown.text(&self.resource)).object("metadata"), &owned);
        text.push('}');
    }

    fn push_row(&self, text: &mut String, shown: &Shown<'_>, now: Time) {
        let name = self.resource.name(shown.key).name;
        let age = shown.birth.map(|birth| age::human(now.since(birth.at).as_secs()));
        let age = age.unwrap_or_else(|| "<unknown>".to_owned());
        let cells = [&*name, state_name(shown.state), &*age].map(quoted);
        let [name, state, age] = cells;
        let _never_fails = write!(text, r#"{{"cells":[{name},{state},{age}]"#);
        match self.rows {
            RowObject::None => text.push_str(r#","object":null"#),
            RowObject::Metadata => {
                text.push_str(r#","object":"#);
                self.push_partial(text, shown);
            }
            RowObject::Object => {
                text.push_str(r#","object":"#);
                self.push_object(text, shown);
            }
        }
        text.push('}');
    }

    /// Writes a table of one object. Of the tables of a watch, only the first one has the columns.
    pub(super) fn push_table(&self, text: &mut String, shown: &Shown<'_>, now: Time, has_columns: bool) {
        let columns = if has_columns { COLUMNS } else { "null" };
        let _never_fails = write!(
            text,
            r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{}"}},"columnDefinitions":{columns},"rows":["#,
            shown.version
        );
        self.push_row(text, shown, now);
        text.push_str("]}");
    }

    /// The text before the items of a list.
    pub(super) fn list_begin(&self) -> String {
        match self.form {
            Form::Objects => {
                format!(r#"{{"apiVersion":{},"items":["#, quoted(&self.resource.api_version()))
            }
            Form::Metadata => {
                r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","items":["#.to_owned()
            }
            Form::Table => {
                format!(
                    r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","columnDefinitions":{COLUMNS},"rows":["#
                )
            }
        }
    }
}

/// The name of a state.
fn state_name(state: Option<ListedState>) -> &'static str {
    match state {
        Some(ListedState::Ready) => "ready",
        Some(ListedState::Delayed) => "delayed",
        Some(ListedState::Leased) => "leased",
        Some(ListedState::Parked) => "parked",
        None => "settled",
    }
}

/// A bookmark as the object of an event: everything up to the version was sent.
pub(super) fn bookmark(show: &Show, version: u64, ends_initial: bool, has_columns: bool) -> String {
    let end = if ends_initial { r#""annotations":{"k8s.io/initial-events-end":"true"},"# } else { "" };
    let metadata = format!(r#"{{{end}"resourceVersion":"{version}"}}"#);
    match show.form {
        Form::Objects => format!(
            r#"{{"kind":{},"apiVersion":{},"metadata":{metadata}}}"#,
            quoted(&show.resource.settings.kind),
            quoted(&show.resource.api_version())
        ),
        Form::Metadata => {
            format!(
                r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{metadata}}}"#
            )
        }
        Form::Table => {
            let columns = if has_columns { COLUMNS } else { "null" };
            format!(
                r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{metadata},"columnDefinitions":{columns},"rows":[{{"cells":["","",""],"object":{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{metadata}}}}}]}}"#
            )
        }
    }
}
