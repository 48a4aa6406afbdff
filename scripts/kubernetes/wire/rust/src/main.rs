//! Readers and callers of a resource of a Kubernetes API with the crates `kube` and `kube-runtime`, for the judge of the Kubernetes wire.
//!
//!     kubernetes-wire read list|stream|controller     each line "dump" on stdin prints the store as a line of JSON
//!     kubernetes-wire calls                           makes calls with all outcomes that matter, and prints the faults
//!
//! `KUBECONFIG` names the server, `WIRE_RESOURCE` the resource (prices).

use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::discovery::ApiResource;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{Controller, WatchStreamExt, controller, watcher as watch};
use kube::{Api, Client, Error, ResourceExt};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let plural = std::env::var("WIRE_RESOURCE").unwrap_or_else(|_| "prices".to_owned());
    let kind = if plural == "prices" { "Price" } else { "Rate" }.to_owned();
    let resource = ApiResource {
        group: "shop.example".to_owned(),
        version: "v1".to_owned(),
        api_version: "shop.example/v1".to_owned(),
        kind,
        plural,
    };
    let client = Client::try_default().await?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["read", "list"] => read(client, resource, watcher::Config::default().page_size(100)).await,
        ["read", "stream"] => read(client, resource, watcher::Config::default().streaming_lists()).await,
        ["read", "controller"] => control(client, resource).await,
        ["calls"] => calls(client, resource).await,
        _ => Err("read list|stream|controller, or calls".into()),
    }
}

fn key(object: &DynamicObject) -> String {
    let name = object.name_any();
    object.namespace().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
}

/// What the reader was notified beside its store.
#[derive(Default)]
struct Notified {
    events: BTreeMap<&'static str, u64>,
    faults: Vec<String>,
    /// The keys that the events name.
    keys: BTreeMap<String, String>,
    initial: BTreeMap<String, String>,
}

impl Notified {
    fn hears(&mut self, event: &Event<DynamicObject>) {
        let version = |object: &DynamicObject| object.resource_version().unwrap_or_default();
        let name = match event {
            Event::Init => {
                self.initial.clear();
                "init"
            }
            Event::InitApply(object) => {
                self.initial.insert(key(object), version(object));
                "init apply"
            }
            Event::InitDone => {
                self.keys = std::mem::take(&mut self.initial);
                "init done"
            }
            Event::Apply(object) => {
                self.keys.insert(key(object), version(object));
                "apply"
            }
            Event::Delete(object) => {
                if self.keys.remove(&key(object)).is_none() && self.faults.len() < 20 {
                    self.faults.push(format!("delete of {} at {}, which the reader does not have", key(object), version(object)));
                }
                "delete"
            }
        };
        *self.events.entry(name).or_default() += 1;
    }
}

async fn read(client: Client, resource: ApiResource, config: watcher::Config) -> Result<()> {
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let writer = reflector::store::Writer::new(resource);
    let store = writer.as_reader();
    let notified = Arc::new(Mutex::new(Notified::default()));
    let heard = Arc::clone(&notified);
    let stream = watch(api, config).default_backoff().inspect(move |event| match event {
        Ok(event) => heard.lock().unwrap().hears(event),
        Err(error) => eprintln!("{error}: {error:?}"),
    });
    serve(store, notified);
    run(reflector::reflector(writer, stream)).await
}

async fn run<T>(stream: impl Stream<Item = T>) -> Result<()> {
    let mut stream = Box::pin(stream);
    while stream.next().await.is_some() {}
    Err("the stream has ended".into())
}

/// Answers stdin.
fn serve(store: Store<DynamicObject>, notified: Arc<Mutex<Notified>>) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if line == "dump" {
                let notified = notified.lock().unwrap();
                let objects: BTreeMap<String, Value> =
                    store.state().iter().map(|object| (key(object), serde_json::to_value(&**object).unwrap())).collect();
                let behind = u64::from(objects.len() != notified.keys.len());
                let mut counts: BTreeMap<&str, u64> = notified.events.clone();
                counts.insert("behind", behind);
                let synced = counts.contains_key("init done");
                println!("{}", json!({"synced": synced, "store": objects, "faults": notified.faults, "counts": counts}));
            }
        }
        std::process::exit(0);
    });
}

/// A controller reconciles every key. Its cache is the store.
async fn control(client: Client, resource: ApiResource) -> Result<()> {
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let controller = Controller::new_with(api, watcher::Config::default(), resource);
    let store = controller.store();
    let seen: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
    let (cache, versions) = (store.clone(), Arc::clone(&seen));
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if line == "dump" {
                let objects: BTreeMap<String, Value> =
                    cache.state().iter().map(|object| (key(object), serde_json::to_value(&**object).unwrap())).collect();
                let seen = versions.lock().unwrap();
                // After a new list, the library reconciles some keys before their objects are in the store, with every server.
                let behind =
                    objects.iter().filter(|(key, object)| seen.get(*key).map(String::as_str) != object["metadata"]["resourceVersion"].as_str());
                let counts = json!({"not reconciled": behind.count(), "reconciled": seen.len()});
                println!("{}", json!({"synced": !objects.is_empty(), "store": objects, "faults": [], "counts": counts}));
            }
        }
        std::process::exit(0);
    });
    let stream = controller.run(
        |object: Arc<DynamicObject>, seen: Arc<Mutex<BTreeMap<String, String>>>| async move {
            seen.lock().unwrap().insert(key(&object), object.resource_version().unwrap_or_default());
            Ok::<_, std::convert::Infallible>(controller::Action::await_change())
        },
        |_, _, _| controller::Action::requeue(Duration::from_secs(1)),
        seen,
    );
    run(stream.inspect(|result| {
        if let Err(error) = result {
            eprintln!("{error}: {error:?}");
        }
    }))
    .await
}

/// The calls, and what was not as expected.
struct Faults(u32);

impl Faults {
    fn expect(&mut self, holds: bool, what: impl std::fmt::Display) {
        if !holds {
            self.0 += 1;
            println!("kube calls: {what}");
        }
    }

    fn refused<T: std::fmt::Debug>(&mut self, code: u16, reason: &str, what: &str, result: std::result::Result<T, Error>) {
        let fine = match &result {
            Err(Error::Api(status)) => status.code == code && (reason.is_empty() || status.reason == reason),
            _ => false,
        };
        self.expect(fine, format!("{what}: got {result:?} instead of {code} {reason}"));
    }
}

async fn calls(client: Client, resource: ApiResource) -> Result<()> {
    let namespaced = resource.plural == "prices";
    let api: Api<DynamicObject> =
        if namespaced { Api::namespaced_with(client.clone(), "shop", &resource) } else { Api::all_with(client.clone(), &resource) };
    let mut faults = Faults(0);
    let name = "calls-kube";
    let post = PostParams::default();
    let mut object = DynamicObject::new(name, &resource).data(json!({"spec": {"eur": 1, "tags": ["x"]}}));
    object.labels_mut().insert("judge".to_owned(), "calls".to_owned());
    if namespaced {
        object = object.within("shop");
    }

    let version = client.apiserver_version().await?;
    faults.expect(version.major == "1" && !version.git_version.is_empty(), format!("version: {version:?}"));
    let found = kube::discovery::pinned_kind(
        &client,
        &kube::core::GroupVersionKind { group: "shop.example".into(), version: "v1".into(), kind: resource.kind.clone() },
    )
    .await;
    faults.expect(found.as_ref().is_ok_and(|(found, _)| *found == resource), format!("discovery of the kind: {found:?}"));
    let all = kube::Discovery::new(client.clone()).run().await;
    faults.expect(all.as_ref().is_ok_and(|all| all.has_group("shop.example")), format!("discovery of all groups: {:?}", all.err()));
    let all = kube::Discovery::new(client.clone()).run_aggregated().await;
    faults.expect(all.as_ref().is_ok_and(|all| all.has_group("shop.example")), format!("aggregated discovery: {:?}", all.err()));

    let made = api.create(&post, &object).await?;
    faults.expect(made.uid().is_some() && made.creation_timestamp().is_some() && made.data == object.data, format!("create gives {made:?}"));
    faults.refused(409, "AlreadyExists", "create of an existing object", api.create(&post, &object).await);
    faults.refused(404, "NotFound", "get of an absent object", api.get("absent").await);
    let optional = api.get_opt("absent").await?;
    faults.expect(optional.is_none(), "get_opt of an absent object");
    let mut got = api.get(name).await?;
    faults.expect(got == made, format!("get gives {got:?}"));
    got.data["spec"]["eur"] = json!(2);
    let changed = api.replace(name, &post, &got).await?;
    faults.expect(changed.resource_version() != made.resource_version() && changed.uid() == made.uid(), "versions of a replace");
    faults.refused(409, "Conflict", "replace with a stale version", api.replace(name, &post, &got).await);
    let params = PatchParams::default();
    let merged = api.patch(name, &params, &Patch::Merge(json!({"spec": {"eur": 3, "tags": null}}))).await?;
    faults.expect(merged.data == json!({"spec": {"eur": 3}}), format!("merge patch gives {:?}", merged.data));
    let operations: json_patch::Patch = serde_json::from_value(json!([{"op": "replace", "path": "/spec/eur", "value": 4}]))?;
    let patched = api.patch(name, &params, &Patch::<()>::Json(operations)).await?;
    faults.expect(patched.data == json!({"spec": {"eur": 4}}), format!("JSON patch gives {:?}", patched.data));
    faults.refused(415, "", "strategic merge patch", api.patch(name, &params, &Patch::Strategic(json!({}))).await);
    let metadata = api.get_metadata(name).await;
    let same = metadata.as_ref().is_ok_and(|metadata| metadata.metadata.resource_version == patched.metadata.resource_version);
    faults.expect(same, format!("metadata alone: {metadata:?}"));
    let listed = api.list(&ListParams::default().labels("judge=calls").fields(&format!("metadata.name={name}")).limit(1)).await?;
    faults.expect(listed.items.len() == 1 && listed.metadata.resource_version.is_some(), format!("list with selectors: {:?}", listed.metadata));
    let conditions = |uid: Option<String>| DeleteParams {
        preconditions: Some(Preconditions { uid, ..Preconditions::default() }),
        ..DeleteParams::default()
    };
    faults.refused(409, "Conflict", "delete with another uid", api.delete(name, &conditions(Some("00000000".to_owned()))).await.map(drop));
    let gone = api.delete(name, &conditions(made.uid())).await?;
    let notified = gone.right().is_some_and(|status| status.is_success());
    faults.expect(notified, "delete gives no Status");
    faults.refused(404, "NotFound", "delete of an absent object", api.delete(name, &DeleteParams::default()).await.map(drop));
    println!("{} faults", faults.0);
    if faults.0 > 0 { Err("see above".into()) } else { Ok(()) }
}
