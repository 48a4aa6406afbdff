//! The change of one object whose version is known, as the Kubernetes API makes it.

use std::sync::Arc;

use deltaq_engine::command::Call;
use deltaq_engine::config::Config;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::object_version::ObjectVersion;
use deltaq_engine::trace::Trace;
use deltaq_engine::view::View;
use deltaq_service::Name;

use super::apply::{Entry, Request};
use crate::http::problem::{Code, Problem};
use crate::http::request::admitted::{AdmissionRules, ObjectUse, Reader};
use crate::http::request::body::Account;
use crate::http::request::conditional::Conditions;
use crate::http::request::context::RequestContext;
use crate::http::request::received::ReceivedObject;

/// The change of one object.
#[derive(Clone, Debug)]
pub(in crate::http) struct Change {
    pub(in crate::http) kind: DeltaKind,
    pub(in crate::http) key: Key,
    /// The new object; `None` for a deletion.
    pub(in crate::http) object: Option<Object>,
    /// The version that the newest object must have; 0 if there must be none.
    pub(in crate::http) expects: Rv,
}

/// Applies a change, or only finds out whether it would be applied.
pub(in crate::http) async fn apply_one(
    context: &RequestContext,
    name: &Name,
    account: Account,
    change: Change,
    is_dry_run: bool,
) -> Result<(), Problem> {
    context.sources_on(name).check(None)?;
    let rules = AdmissionRules::for_queue(&context.state, name, account);
    rules.check_exists(true)?;
    let rules = if change.object.is_some() { rules } else { rules.without_objects() };
    let trace = context.trace();
    let read = move |reader: &mut Reader<'_>, _, change: &Change| read(reader, change, trace.clone());
    if is_dry_run {
        rules.each(Arc::new(vec![change.clone()]), read).await?;
        let handle = context.state.partitions.get(name)?;
        let (present, _) = handle.view_object(View::Latest, &change.key).await?;
        if present.map_or(Rv::ZERO, |present| present.rv) != change.expects {
            return Err(Problem::new(Code::PreconditionFailed, "the object has changed"));
        }
        return Ok(());
    }
    let conditions = Conditions::default();
    let request = Request { context, name, must_exist: true, sequence: None, conditions, ids: None };
    request.apply(rules, Arc::new(vec![change]), read).await.map(|_| ())
}

fn read(reader: &mut Reader<'_>, change: &Change, trace: Option<Trace>) -> Result<Entry, Problem> {
    let config = reader.config;
    let Some(object) = &change.object else {
        return Ok(Entry::Call(call(change, None, None, trace), Some(change.expects)));
    };
    let received = ReceivedObject { object: object.clone(), key: key_of(config, object), line: None };
    let object_use = ObjectUse::of(change.kind);
    let (_, object) = reader.keyed(&received, Some(&change.key), object_use)?;
    let version = reader.version(&object, object_use)?;
    Ok(Entry::Call(call(change, Some(object), version, trace), Some(change.expects)))
}

fn key_of(config: &Config, object: &Object) -> Result<Key, deltaq_engine::key::KeyError> {
    config.key.read(object.as_str())
}

fn call(
    change: &Change,
    object: Option<Object>,
    version: Option<ObjectVersion>,
    trace: Option<Trace>,
) -> Call {
    Call { kind: change.kind, object, trace, version, ..Call::of_key(change.key.clone(), None) }
}
