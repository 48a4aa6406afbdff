//! A resource: the queue that the path of a request names.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use deltaq_engine::birth::Birth;
use deltaq_engine::config::Config;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::view::View;
use deltaq_service::{Handle, KeyFilter};
use deltaq_types::{FollowedView, Kubernetes, Timestamp};
use uuid::Uuid;

use super::members::{Owned, push_object, quoted};
use crate::http::place::Place;
use crate::http::problem::Problem;
use crate::http::state::AppState;
use crate::http::status::{Refused, Status, not_found};

/// The queue of a request, as a resource.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) handle: Arc<Handle>,
    pub(super) settings: Arc<Kubernetes>,
    pub(super) is_namespaced: bool,
    /// The beginning of every object: `apiVersion` and `kind`.
    head: Arc<str>,
    incarnation: Arc<str>,
}

/// The namespace and the name in a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectName {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

impl Resource {
    /// The resource of a path.
    pub(super) fn of(state: &AppState, queue: &deltaq_service::Name, place: &Place) -> Result<Self, Refused> {
        let handle = state.partitions.get(queue).map_err(Problem::from)?;
        let config = handle.config();
        let settings = config.kubernetes.clone().ok_or_else(not_found)?;
        let is_namespaced = is_namespaced(&config);
        let is_named = settings.group == place.group
            && settings.version == place.version
            && Some(&settings.plural) == place.plural.as_ref();
        // An object of a namespaced resource is named within its namespace, a list may be of all namespaces.
        let fits = match (is_namespaced, &place.namespace, &place.name) {
            (true, Some(_), _) | (true, None, None) | (false, None, _) => true,
            (true, None, Some(_)) | (false, Some(_), _) => false,
        };
        if !is_named || !fits {
            return Err(not_found().into());
        }
        let head = format!(
            "{{\"apiVersion\":{},\"kind\":{}",
            quoted(&format!("{}/{}", settings.group, settings.version)),
            quoted(&settings.kind)
        );
        let incarnation = handle.incarnation().to_string().into();
        Ok(Self { handle, settings, is_namespaced, head: head.into(), incarnation })
    }

    /// Refuses a version from before the queue was this resource: it was that of another view, or of none.
    pub(super) async fn check_version(&self, version: Rv) -> Result<(), Refused> {
        let since = self.handle.read(|queue, _| queue.resource_since()).await?;
        if since.is_some_and(|since| version < since) {
            return Err(Status::expired("too old resource version: the resource has changed since").into());
        }
        Ok(())
    }

    /// A number that another resource, or another queue, does not have.
    pub(super) fn number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.head, &self.incarnation, self.settings.view == FollowedView::Latest).hash(&mut hasher);
        hasher.finish()
    }

    /// Whether the queue still is this resource.
    pub(super) fn is_current(&self) -> bool {
        let config = self.handle.config();
        config.kubernetes.as_ref() == Some(&self.settings) && is_namespaced(&config) == self.is_namespaced
    }

    pub(super) fn view(&self) -> View {
        match self.settings.view {
            FollowedView::Latest => View::Latest,
            FollowedView::Known => View::Known,
        }
    }

    /// The group and the version.
    pub(super) fn api_version(&self) -> String {
        format!("{}/{}", self.settings.group, self.settings.version)
    }

    /// The keys of a list: those of the namespace, if the path names one. With the name of the only object, few others remain.
    pub(super) fn keys(&self, place: &Place, name: Option<&str>) -> KeyFilter {
        let name = name.unwrap_or_default();
        let prefix = match &place.namespace {
            _ if !self.is_namespaced => name.to_owned(),
            Some(namespace) => format!("{}/{}", escaped(namespace), escaped(name)),
            None => String::new(),
        };
        KeyFilter { prefix, shard: None }
    }

    /// The key of an object.
    pub(super) fn key(&self, namespace: Option<&str>, name: &str) -> Result<Key, Problem> {
        let text = match namespace {
            _ if !self.is_namespaced => name.to_owned(),
            Some(namespace) => format!("{}/{}", escaped(namespace), escaped(name)),
            None => escaped(name),
        };
        Ok(Key::new(&text)?)
    }

    /// The namespace and the name in a key.
    pub(super) fn name(&self, key: &Key) -> ObjectName {
        let key = key.as_str();
        if !self.is_namespaced {
            return ObjectName { namespace: None, name: key.to_owned() };
        }
        match key.split_once('/') {
            Some((namespace, name)) => {
                ObjectName { namespace: Some(unescaped(namespace)), name: unescaped(name) }
            }
            None => ObjectName { namespace: None, name: unescaped(key) },
        }
    }

    /// The text of an object of which only the key is known.
    pub(super) fn named(&self, key: &Key) -> String {
        let ObjectName { namespace, name } = self.name(key);
        let namespace = namespace.map(|namespace| format!(",\"namespace\":{}", quoted(&namespace)));
        format!("{{\"metadata\":{{\"name\":{}{}}}}}", quoted(&name), namespace.unwrap_or_default())
    }

    /// The members of an object that the server owns.
    pub(super) fn owned(&self, key: &Key, version: u64, birth: Option<Birth>) -> Owned {
        let Some(birth) = birth else { return Owned { resource_version: version, ..Owned::default() } };
        let name = format!("{}/{}/{}", self.incarnation, birth.rv, key.as_str());
        let uid = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes());
        let created = humantime::format_rfc3339_seconds(Timestamp::from_micros(birth.at.as_micros()).into())
            .to_string();
        Owned { resource_version: version, uid: uid.hyphenated().to_string(), created }
    }

    /// Writes an object as its readers see it.
    pub(super) fn push(&self, text: &mut String, object: &str, owned: &Owned) {
        push_object(text, &self.head, object, owned);
    }
}

/// Whether the key of the objects has a namespace.
pub(super) fn is_namespaced(config: &Config) -> bool {
    config.key.pointers().len() > 1
}

/// A part of a key with several parts.
fn escaped(part: &str) -> String {
    part.replace('%', "%25").replace('/', "%2F")
}

fn unescaped(part: &str) -> String {
    part.replace("%2F", "/").replace("%25", "%")
}
