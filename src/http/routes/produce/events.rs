//! CloudEvents as changes: add, update and delete.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::Call;
use deltaq_engine::config::Config;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::id::{Rv, Source};
use deltaq_engine::key::Key;
use deltaq_engine::object;
use deltaq_engine::refusal::Refusal;
use deltaq_types::{Mode, Produced};

use super::apply::{Entry, Request};
use crate::http::gate::limits::DELAY_MAX;
use crate::http::problem::{Code, Problem};
use crate::http::request::admitted::{AdmissionRules, ObjectUse, Reader};
use crate::http::request::call::QueueCall;
use crate::http::request::cloud_events::{ReceivedEvent, events};
use crate::http::request::conditional::Conditions;
use crate::http::request::params::wrong;
use crate::http::request::received::BatchLimit;
use crate::http::request::{debounce, order};

/// The parameters that an event has itself.
const OF_EVENT: [&str; 4] = ["source", "sequence", "key", "rate_limited"];

/// Applies the events of a body.
pub(super) async fn produced(
    call: QueueCall,
    conditions: Conditions,
    kind: DeltaKind,
) -> Result<Produced, Problem> {
    let QueueCall { state, name, params, incoming, context, .. } = call;
    if let Some(given) = OF_EVENT.into_iter().find(|name| params.text(name).is_some()) {
        return Err(wrong(given, "a CloudEvent says this itself").hint("leave it out"));
    }
    let delay = params.duration("delay", Duration::ZERO..=DELAY_MAX)?;
    let (quiet, head_start) = (debounce::of_call(&params)?, order::of_call(&params)?);
    let must_exist = params.flag("must_exist")?;
    let rules = AdmissionRules::of(&state, &name, &incoming);
    rules.check_exists(must_exist)?;
    let setting = rules.config.cloudevents.as_deref().cloned().unwrap_or_default();
    let (came, many) = events(incoming, &setting, BatchLimit::of_batch(&state)).await?;
    if let Some(header) = conditions.header().filter(|_| many) {
        let detail = format!("{header} applies to a single object, and the body has a list");
        return Err(Problem::new(Code::InvalidRequest, detail).with("header", header));
    }
    let permitted = context.sources_on(&name);
    for event in &came {
        permitted.check(Some(&Source::from(event.source.as_str())))?;
    }
    let ids = came.iter().map(|event| Some(event.id)).collect();
    let request =
        Request { context: &context, name: &name, must_exist, sequence: None, conditions, ids: Some(ids) };
    let trace = context.trace();
    let read = move |reader: &mut Reader<'_>, index, event: &ReceivedEvent| {
        if reader.config.cloudevents.as_deref().cloned().unwrap_or_default() != setting {
            return Err(Refusal::ConfigChanged.into());
        }
        let deletes = event.deletes || kind == DeltaKind::Deleted;
        let kind = if deletes { DeltaKind::Deleted } else { kind };
        let (key, object, version) =
            keyed(reader, event, kind).map_err(|problem| problem.in_item(index, None))?;
        let call = Call {
            kind,
            key,
            object: object.filter(|_| reader.config.mode != Mode::Keys),
            source: Some(event.source.as_str().into()),
            delay,
            debounce: quiet,
            head_start,
            final_state_unknown: false,
            rate_limited: false,
            trace: event.trace.clone().or_else(|| trace.clone()),
            version,
        };
        Ok(Entry::Call(call, None::<Rv>))
    };
    request.apply(rules, Arc::new(came), read).await
}

type Keyed =
    (Key, Option<deltaq_engine::object::Object>, Option<deltaq_engine::object_version::ObjectVersion>);

/// The key of an event, its object after admission, and its version. The key is that of the object, else the subject.
fn keyed(reader: &mut Reader<'_>, event: &ReceivedEvent, kind: DeltaKind) -> Result<Keyed, Problem> {
    let config: &Config = reader.config;
    let subject = || event.subject.as_deref().map(Key::new).transpose();
    let Some(text) = &event.object else {
        if kind != DeltaKind::Deleted && config.mode != Mode::Keys {
            let problem = Problem::new(Code::InvalidObject, "the CloudEvent has no data");
            return Err(problem.with("pointer", "/data").hint("only a deletion needs none"));
        }
        let missing = || Problem::new(Code::NoKey, "the CloudEvent has neither data nor a subject");
        return Ok((subject()?.ok_or_else(missing)?, None, None));
    };
    let object_use = ObjectUse::of(kind);
    let admitted = reader.admitted(object::scan(text, &config.key)?, object_use)?;
    let key = match (admitted.key, subject()?) {
        (Err(error), Some(subject)) if error.is_missing() => subject,
        (own, _) => own?,
    };
    let version = reader.version(&admitted.object, object_use)?;
    Ok((key, Some(admitted.object), version))
}
