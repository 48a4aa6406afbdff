//! Changes of objects: create, replace, patch and delete.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use deltaq_engine::birth::Birth;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::object::{Change, Object};
use deltaq_engine::view::View;
use deltaq_service::{ListedObject, Name};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::accept::Form;
use super::list::{rows_of, shown};
use super::members::{Members, stored};
use super::options::is_dry_run;
use super::patch::{self, PatchError};
use super::resource::Resource;
use super::table::Show;
use super::written::{Written, generated_name};
use crate::config::access::Verb;
use crate::http::blocking::{PATCHES, run_blocking};
use crate::http::place::Place;
use crate::http::problem::{Code, Problem};
use crate::http::reply::json as json_reply;
use crate::http::request::body::Account;
use crate::http::request::call::QueueCall;
use crate::http::request::context::RequestContext;
use crate::http::routes::produce::{Change as Produce, apply_one};
use crate::http::status::{Fault, Refused, Status};

/// How often a patch without a version is applied again because the object has changed in the meantime.
const PATCHES_MAX: usize = 5;
/// Bytes that a patch may add to the largest object, for the members that the server owns.
const OWNED_BYTES_MAX: usize = 4 << 10;
/// The media types of patches.
const PATCH_TYPES: &str = "application/json-patch+json, application/merge-patch+json";
const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// A change in progress.
struct Writing {
    show: Show,
    place: Place,
    is_dry_run: bool,
    context: Arc<RequestContext>,
    queue: Name,
    /// Counts the bytes of the body.
    account: Account,
}

impl Writing {
    /// The change of a call, and the body of the call.
    async fn of(call: QueueCall, headers: &HeaderMap, options: &str) -> Result<(Self, String), Refused> {
        let QueueCall { state, name, params, incoming, context, .. } = call;
        let place = context.place();
        let resource = Resource::of(&state, &name, &place)?;
        let show = Show { resource, form: Form::of(headers)?, rows: rows_of(&params)? };
        let is_dry_run = is_dry_run(&params, options)?;
        // A change that turns out to be none is a produce call, too.
        context.sources_on(&name).check(None)?;
        let account = incoming.account();
        let body = incoming.text().await?;
        Ok((Self { show, place, is_dry_run, context, queue: name, account }, body))
    }

    fn written(&self, text: String) -> Result<Written, Refused> {
        Written::read(&self.show.resource, &self.place, text)
    }

    /// The object in the view.
    async fn present(&self, key: &Key) -> Result<Option<ListedObject>, Refused> {
        let resource = &self.show.resource;
        Ok(resource.handle.listed_object(resource.view(), key).await?.0)
    }

    /// The object in the view, which the path names.
    async fn named(&self) -> Result<(Key, ListedObject), Refused> {
        let name = self.place.name.as_deref().unwrap_or_default();
        let key = self.show.resource.key(self.place.namespace.as_deref(), name)?;
        let present = self.present(&key).await?.ok_or_else(|| Status::no_object(&self.place, name))?;
        Ok((key, present))
    }

    /// The version of the newest object, which a change expects while the view has `present`.
    async fn expected(&self, key: &Key, present: &ListedObject) -> Result<Rv, Refused> {
        let resource = &self.show.resource;
        if resource.view() == View::Latest {
            return Ok(present.object.rv);
        }
        let (newest, _) = resource.handle.view_object(View::Latest, key).await?;
        // A change that no consumer has acknowledged yet must not be overwritten unseen.
        let ignored = &resource.handle.config().ignored;
        let newest = newest
            .filter(|newest| newest.object.change_to(&present.object.object, ignored) == Change::None)
            .ok_or_else(|| {
                let name = self.place.name.as_deref().unwrap_or_default();
                Status::conflict(&self.place, name, "a change of the object waits for its consumer")
            })?;
        Ok(newest.rv)
    }

    /// Applies a change, unless it is only tried.
    async fn apply(
        &self,
        kind: DeltaKind,
        key: &Key,
        text: Option<&str>,
        expects: Rv,
    ) -> Result<(), Problem> {
        let change = Produce { kind, key: key.clone(), object: text.map(Object::from_valid), expects };
        apply_one(&self.context, &self.queue, self.account.clone(), change, self.is_dry_run).await
    }

    /// The reply with the object as it is now.
    async fn reply(&self, status: StatusCode, key: &Key, text: &str) -> Result<Response, Refused> {
        let resource = &self.show.resource;
        let now = resource.handle.now();
        let present = self.present(key).await?.filter(|_| !self.is_dry_run);
        let document = if let Some(present) = present {
            self.show.document(&shown(&present), now)
        } else {
            // The view does not have it: it was only tried, or deleted in the meantime, or no consumer has acknowledged it yet.
            let mut unseen = ListedObject::unseen(key.clone(), Object::from_valid(text));
            if self.is_dry_run {
                // The object keeps its identity, or would be born now.
                let there = self.present(key).await?.map(|there| there.object);
                unseen.object.rv = there.as_ref().map_or(Rv::ZERO, |there| there.rv);
                unseen.object.birth =
                    there.and_then(|there| there.birth).or(Some(Birth { rv: Rv::ZERO, at: now }));
            }
            self.show.document(&shown(&unseen), now)
        };
        Ok((status, json_reply((document + "\n").into())).into_response())
    }

    /// Stores a new state of an object.
    async fn update(
        &self,
        key: &Key,
        present: &ListedObject,
        written: &Written,
    ) -> Result<Response, Refused> {
        written.check_labels(&self.place)?;
        let (place, name) = (&self.place, self.place.name.as_deref().unwrap_or_default());
        let before = &present.object.object;
        let text = stored(&written.text, Some(before.as_str()), &written.edits());
        let config = self.show.resource.handle.config();
        if before.change_to(&Object::from_valid(&text), &config.ignored) == Change::None {
            return self.reply(StatusCode::OK, key, &text).await;
        }
        let expects = self.expected(key, present).await?;
        let applied = self.apply(DeltaKind::Updated, key, Some(&text), expects).await;
        match applied {
            Err(problem) if problem.code() == Code::PreconditionFailed => {
                Err(Status::conflict(place, name, MODIFIED).into())
            }
            applied => {
                applied?;
                self.reply(StatusCode::OK, key, &text).await
            }
        }
    }

    /// Refuses a change of an object that is not the one that the client expects.
    fn check_identity(
        &self,
        present: &ListedObject,
        uid: Option<&str>,
        version: Option<Rv>,
    ) -> Result<(), Status> {
        let name = self.place.name.as_deref().unwrap_or_default();
        let ListedObject { object, .. } = present;
        let owned = self.show.resource.owned(&object.key, object.rv.get(), object.birth);
        if let Some(uid) = uid.filter(|uid| *uid != owned.uid) {
            let why =
                format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", owned.uid);
            return Err(Status::conflict(&self.place, name, &why));
        }
        if version.is_some_and(|version| version != object.rv) {
            return Err(Status::conflict(&self.place, name, MODIFIED));
        }
        Ok(())
    }
}

/// Create an object.
pub(in crate::http) async fn create(call: QueueCall, headers: HeaderMap) -> Result<Response, Refused> {
    check_json(&headers)?;
    let (writing, text) = Writing::of(call, &headers, "CreateOptions").await?;
    let mut written = writing.written(text)?;
    if written.version.as_deref().is_some_and(|version| !matches!(version, "" | "0")) {
        return Err(Status::bad_request("resourceVersion should not be set on objects to be created").into());
    }
    if written.name.is_empty()
        && let Some(prefix) = &written.generate_name
    {
        written.name = generated_name(prefix);
        written.is_name_generated = true;
    }
    written.check_name(&writing.place)?;
    written.check_labels(&writing.place)?;
    let key = writing.show.resource.key(written.namespace.as_deref(), &written.name)?;
    let text = stored(&written.text, None, &written.edits());
    let applied = writing.apply(DeltaKind::Added, &key, Some(&text), Rv::ZERO).await;
    match applied {
        Err(problem) if problem.code() == Code::PreconditionFailed => {
            Err(Status::already_exists(&writing.place, &written.name).into())
        }
        applied => {
            applied?;
            writing.reply(StatusCode::CREATED, &key, &text).await
        }
    }
}

/// Replace an object.
pub(in crate::http) async fn replace(call: QueueCall, headers: HeaderMap) -> Result<Response, Refused> {
    check_json(&headers)?;
    let (writing, text) = Writing::of(call, &headers, "UpdateOptions").await?;
    let written = writing.written(text)?;
    written.check_named(&writing.place)?;
    let (key, present) = writing.named().await?;
    let version = written.version.as_deref().filter(|version| !matches!(*version, "" | "0"));
    let Some(version) = version else {
        let fault = Fault::Invalid("0", "must be specified for an update");
        let (place, name) = (&writing.place, &written.name);
        let plural = place.plural.clone().unwrap_or_default();
        return Err(Status::invalid(place, &plural, name, "metadata.resourceVersion", fault).into());
    };
    let version = super::options::version(version)?;
    writing.check_identity(&present, written.uid.as_deref(), Some(version))?;
    writing.update(&key, &present, &written).await
}

/// Change an object by a JSON Merge Patch or a JSON Patch.
pub(in crate::http) async fn patch(call: QueueCall, headers: HeaderMap) -> Result<Response, Refused> {
    let is_merge = match media_type(&headers).as_deref() {
        Some("application/merge-patch+json") => true,
        Some("application/json-patch+json") => false,
        _ => return Err(Status::unsupported(PATCH_TYPES).into()),
    };
    if call.params.text("force").is_some() {
        let fault = Fault::Forbidden("may not be specified for non-apply patch");
        return Err(Status::invalid_options("PatchOptions", &[("force", fault)]).into());
    }
    // The reply has members that the patch does not name.
    call.context.authorize_on(Verb::Read, call.name.as_str())?;
    let (writing, change) = Writing::of(call, &headers, "PatchOptions").await?;
    let max_bytes = writing.show.resource.handle.config().max_object_bytes + OWNED_BYTES_MAX;
    if change.len() > 2 * max_bytes {
        let message = format!("Request entity too large: a patch may have {} bytes", 2 * max_bytes);
        return Err(Status::too_large(message).into());
    }
    let change: Arc<str> = change.into();
    let mut left = PATCHES_MAX;
    loop {
        let (key, present) = writing.named().await?;
        let before = Show { form: Form::Objects, ..writing.show.clone() };
        let before = before.document(&shown(&present), writing.show.resource.handle.now());
        let turn = PATCHES.permit(&writing.context.creator()).await;
        let (of, by) = (before.clone(), change.clone());
        let patched =
            move || if is_merge { patch::merge(&of, &by) } else { patch::json_patch(&of, &by, max_bytes) };
        let after = run_blocking(turn, patched).await;
        let written = writing.written(after.map_err(refused_patch)?)?;
        written.check_named(&writing.place)?;
        let owned = Members::of(&before).object("metadata");
        if written.uid != owned.string("uid") {
            let fault = Fault::Invalid("\"\"", "field is immutable");
            let kind = &writing.show.resource.settings.kind;
            return Err(Status::invalid(&writing.place, kind, &written.name, "metadata.uid", fault).into());
        }
        let has_version = written.version != owned.string("resourceVersion");
        if has_version && written.version.as_deref().is_some_and(|version| !version.is_empty()) {
            let name = writing.place.name.as_deref().unwrap_or_default();
            return Err(Status::conflict(&writing.place, name, MODIFIED).into());
        }
        left -= 1;
        match writing.update(&key, &present, &written).await {
            Err(Refused::Status(status)) if status.outcome() == Code::PreconditionFailed && left > 0 => {}
            replied => return replied,
        }
    }
}

/// The options of a deletion.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeleteOptions {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    preconditions: Option<Preconditions>,
    #[serde(default)]
    dry_run: Vec<String>,
    #[serde(default)]
    propagation_policy: Option<String>,
    #[serde(default)]
    orphan_dependents: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Preconditions {
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    resource_version: Option<String>,
}

/// Delete an object.
pub(in crate::http) async fn delete(call: QueueCall, headers: HeaderMap) -> Result<Response, Refused> {
    let policy = call.params.text("propagationPolicy").map(str::to_owned);
    let orphans = call.params.text("orphanDependents").is_some();
    let (mut writing, body) = Writing::of(call, &headers, "DeleteOptions").await?;
    let options: DeleteOptions = if body.trim().is_empty() {
        DeleteOptions::default()
    } else {
        check_json(&headers)?;
        // serde would take a list of the members as well.
        let options = serde_json::from_str::<&RawValue>(&body).ok();
        let options = options.filter(|options| options.get().starts_with('{'));
        let options =
            options.ok_or_else(|| Status::bad_request("the body of a deletion is a JSON object"))?;
        serde_json::from_str(options.get())
            .map_err(|error| Status::bad_request(format!("the options are no DeleteOptions: {error}")))?
    };
    if !matches!(&*options.kind, "" | "DeleteOptions") {
        let message = format!("the body of a deletion is DeleteOptions, not {:?}", options.kind);
        return Err(Status::bad_request(message).into());
    }
    let policy = policy.or(options.propagation_policy.clone());
    check_policy(policy.as_deref(), orphans || options.orphan_dependents.is_some())?;
    match &*options.dry_run {
        [] => {}
        [all] if all == "All" => writing.is_dry_run = true,
        _ => {
            let fault = Fault::Unsupported("dryRun", "\"All\"");
            return Err(Status::invalid_options("DeleteOptions", &[("dryRun", fault)]).into());
        }
    }
    let (key, present) = writing.named().await?;
    let Preconditions { uid, resource_version } = options.preconditions.unwrap_or_default();
    let version = resource_version.as_deref().map(super::options::version).transpose()?;
    let checked = writing.check_identity(&present, uid.as_deref(), version);
    checked.map_err(|status| status.of_kind(&writing.show.resource.settings.kind))?;
    let name = writing.place.name.clone().unwrap_or_default();
    let expects = writing.expected(&key, &present).await?;
    let applied = writing.apply(DeltaKind::Deleted, &key, None, expects).await;
    if let Err(problem) = applied {
        if problem.code() != Code::PreconditionFailed {
            return Err(problem.into());
        }
        return Err(Status::conflict(&writing.place, &name, MODIFIED).into());
    }
    let ListedObject { object, .. } = &present;
    let owned = writing.show.resource.owned(&key, object.rv.get(), object.birth);
    let document = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {
            "name": name,
            "group": writing.place.group,
            "kind": writing.place.plural,
            "uid": owned.uid,
        },
    });
    Ok(json_reply(format!("{document}\n").into()))
}

/// Refuses options about dependents that no API server has. Those that it has change nothing, because an object has no dependents here.
fn check_policy(policy: Option<&str>, has_orphans: bool) -> Result<(), Status> {
    let Some(policy) = policy else { return Ok(()) };
    let given = format!("{policy:?}");
    let fault = match policy {
        _ if has_orphans => {
            Fault::Invalid(&given, "orphanDependents and deletionPropagation cannot be both set")
        }
        "Orphan" | "Background" | "Foreground" => return Ok(()),
        _ => Fault::Unsupported(&given, "\"Background\", \"Foreground\", \"Orphan\""),
    };
    Err(Status::invalid_options("DeleteOptions", &[("propagationPolicy", fault)]))
}

fn refused_patch(error: PatchError) -> Status {
    match error {
        PatchError::Malformed(message) => Status::bad_request(message),
        PatchError::TooLarge(message) => Status::too_large(message),
        PatchError::Refused(_) => Status::invalid_patch(),
    }
}

/// The media type of the body, without its parameters.
fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// Refuses a body that is not JSON.
fn check_json(headers: &HeaderMap) -> Result<(), Status> {
    match media_type(headers).as_deref() {
        None | Some("application/json") => Ok(()),
        Some(_) => Err(Status::unsupported("application/json")),
    }
}
