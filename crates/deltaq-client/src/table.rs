//! Compares docs/clients.md, which has the names and defaults of all clients, with this client.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use deltaq_types::{RawObject, duration};
use serde_json::json;

use crate::queue::{Add, GetObject, Pop, PutSettings};
use crate::request::Request;
use crate::worker::LAST_CALLS;
use crate::{
    Body, Client, ClientOptions, Deleted, Handler, HandlerMiddleware, Informer, List, Object, Outcome, Queue,
    ReflectorOptions, ReplaceOptions, RetryOptions, Selection, Store, View, Worker, pauses_without_queue,
    wait_for_cache_sync,
};

/// The names of methods. The compiler refuses one that does not exist.
macro_rules! methods {
    ($($type:ident::$name:ident($($argument:expr),*);)*) => {
        vec![$({
            let _exists = |it: $type| drop(it.$name($($argument),*));
            concat!(stringify!($type), "::", stringify!($name))
        }),*]
    };
}

type Objects = Informer<RawObject>;
type Stored = Store<RawObject>;
type Entries = List<RawObject>;

/// The cells of the rows with this number of columns, without headings.
fn rows(columns: usize) -> Vec<Vec<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/clients.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let cells = page.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    let rows = cells.map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>());
    rows.filter(|row| row.len() == columns && !row[0].is_empty() && !row[0].starts_with("---")).collect()
}

fn queue() -> Queue {
    Client::at("http://localhost:7070").unwrap().queue("q")
}

fn calls() -> Vec<&'static str> {
    methods! {
        Queue::put_settings(&json!({})); Queue::patch_settings(&json!({})); Queue::plan_settings(&json!({})); Queue::settings();
        Queue::get(); Queue::status(); Queue::delete_queue(); Queue::pause(); Queue::resume(); Queue::pause_group("g"); Queue::resume_group("g"); Queue::close();
        Queue::reopen(); Queue::test_push(); Queue::purge();
        Queue::add(&json!({})); Queue::add_key("k"); Queue::update(&json!({})); Queue::delete(&json!({}));
        Queue::delete_key("k"); Queue::replace(None, &ReplaceOptions::default(), Body::Empty); Queue::deltas(&[]);
        Queue::resync(); Queue::seed(Body::Empty); Queue::report_source("s", None); Queue::seen_source("s");
        Queue::set_stale_after("s", None); Queue::renumber_source("s", None);
        Queue::forget(&[]); Queue::pop(); Queue::settle(Vec::new()); Queue::ack(&[]); Queue::done(&[], None);
        Queue::nack(&[], None, false, None); Queue::release(&[]); Queue::reject(&[], None); Queue::extend(&[], None);
        Queue::parked_errors(); Queue::promote(Selection::All, None); Queue::redrive(Selection::All, None);
        Queue::discard(Selection::All, None); Queue::items(); Queue::item("k"); Queue::explain("k"); Queue::latest();
        Queue::known(); Queue::latest_object("k"); Queue::known_object("k"); Queue::history("k"); Queue::sources();
        Queue::workers(); Queue::groups(); Queue::indexes(); Queue::index_values("i"); Queue::synced();
        Client::queue("q"); Client::queues(); Client::info(); Client::nodes();
    }
}

fn builders() -> Vec<&'static str> {
    let second = Duration::from_secs(1);
    let mut names = methods! {
        Add::source("s"); Add::sequence(1); Add::delay(second); Add::debounce(second); Add::max_wait(second);
        Add::head_start("1m"); Add::traceparent("t"); Add::must_exist(); Add::if_match("e"); Add::if_absent(); Pop::wait(second); Pop::max(1); Pop::lease_duration(second);
        Pop::worker("w"); Pop::group("g"); Pop::with_known(); Pop::with_diff(); GetObject::min_resource_version(1);
        Worker::name("w"); Worker::concurrency(1); Worker::batch(1); Worker::lease_duration(second); Worker::wait(second);
        Worker::grace(second); Worker::breaker(1); Worker::group("g"); Worker::middleware(HandlerMiddleware::new(|job, next| next.run(job))); Worker::with_known(); Worker::with_diff();
    };
    let settings = methods! { PutSettings::if_match("e"); PutSettings::if_absent(); PutSettings::force(); };
    let generic = methods! {
        Entries::limit(1); Entries::error("e"); Objects::view(View::Known); Objects::prefix("p"); Objects::shard("0/2");
        Objects::index("i", |_| Vec::new()); Objects::resync(second); Objects::bookmark(second);
        Objects::add_handler(Nobody); Stored::get("k"); Stored::list(); Stored::keys(); Stored::by_index("i", "v");
        Stored::index_values("i");
    };
    names.extend(settings);
    names.extend(generic);
    drop(wait_for_cache_sync([], second));
    names.push(stringify!(wait_for_cache_sync));
    #[cfg(feature = "otel")]
    drop((crate::otel::trace_calls(), crate::otel::trace_handler()));
    names.extend(["otel::trace_calls", "otel::trace_handler"]);
    names
}

struct Nobody;

impl Handler<RawObject> for Nobody {
    async fn on_add(&mut self, _: Arc<Object<RawObject>>, _: bool) {}
    async fn on_update(&mut self, _: Arc<Object<RawObject>>, _: Arc<Object<RawObject>>) {}
    async fn on_delete(&mut self, _: Deleted<RawObject>) {}
}

/// What the debug text of options says of a member; `None` if there is no such member.
fn member(debugged: &str, name: &str) -> Option<String> {
    let (_, rest) = debugged.split_once(&format!("{name}: "))?;
    let end = rest.find([',', '}']).unwrap_or(rest.len());
    Some(rest[..end].trim().to_owned())
}

/// Whether a member has the default of the page.
fn is_default(value: &str, wanted: &str) -> bool {
    let length = |text: &str| duration::parse(text).ok();
    match wanted {
        "none" => value == "None" || value == "[]" || value == u32::MAX.to_string(),
        "no" | "yes" => value == if wanted == "yes" { "true" } else { "false" },
        _ if length(wanted).is_some() => length(value) == length(wanted),
        _ => value.eq_ignore_ascii_case(wanted),
    }
}

/// Whether a new call has no such parameter, and none at all of a condition.
fn is_unset(request: Request, name: &str) -> bool {
    let call = request.call.unwrap();
    call.headers.is_empty() && call.query.iter().all(|(other, _)| *other != name && *other != "with")
}

#[test]
fn this_client_has_the_names_and_defaults_of_the_page() {
    let real_name = |name: &&str| {
        name.replace("Objects::", "Informer::").replace("Stored::", "Store::").replace("Entries::", "List::")
    };
    let methods: BTreeSet<String> = [calls(), builders()].iter().flatten().map(real_name).collect();
    let (worker, other) = (queue().worker(), queue().worker().concurrency(7));
    let options = BTreeMap::from([
        ("ClientOptions", format!("{:?}", ClientOptions::new("url"))),
        ("RetryOptions", format!("{:?}", RetryOptions::default())),
        ("ReplaceOptions", format!("{:?}", ReplaceOptions::default())),
        ("ReflectorOptions", format!("{:?}", ReflectorOptions::new("q", "s"))),
        (
            "Worker",
            format!("{worker:?}")
                .split_once("concurrency")
                .map(|(_, rest)| format!("concurrency{rest}"))
                .unwrap(),
        ),
        ("Informer", format!("{:?}", queue().informer::<RawObject>())),
    ]);
    let (mut seen, mut compared) = (BTreeSet::new(), 0);
    for row in [rows(6), rows(7)].concat() {
        let (label, wanted) = (&row[0], row.get(1).filter(|_| row.len() == 7));
        let name = row[row.len() - 5].trim_matches('`').to_owned();
        if name == "-" {
            continue;
        }
        compared += 1;
        let (owner, option) = name.split_once("::").unwrap_or((&name, ""));
        let is_member = options.get(owner).is_some_and(|debugged| member(debugged, option).is_some());
        assert!(methods.contains(&name) || is_member, "{label}: there is no {name}");
        seen.insert(name.clone());
        let Some(wanted) = wanted else { continue };
        let request = match owner {
            "PutSettings" => Some(queue().put_settings(&json!({})).request),
            "Add" => Some(queue().add(&json!({})).request),
            "Pop" => Some(queue().pop().request),
            "GetObject" => Some(queue().latest_object("k").request),
            _ => None,
        };
        let is_default = match (request, wanted.as_str()) {
            (Some(request), _) => is_unset(request, option),
            (None, "unique") => format!("{worker:?}") != format!("{:?}", queue().worker()),
            (None, "concurrency") => {
                [&worker, &other].map(|worker| member(&format!("{worker:?}"), option).unwrap()) == ["1", "7"]
            }
            (None, _) if name == "Informer::index" || owner == "List" => true,
            (None, _) => is_default(&member(&options[owner], option).expect("a member"), wanted),
        };
        assert!(is_default, "{label}: the default of {name} is not {wanted}");
    }
    assert_eq!(
        methods.difference(&seen).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "the page lacks methods"
    );
    assert!(compared > 90, "{compared}");
}

#[test]
fn what_has_no_option_has_the_value_of_the_page() {
    let longest = Outcome::nack("x".repeat(9_999)).settle("lease".to_owned()).error.expect("an error");
    let pauses: Vec<String> = pauses_without_queue().take(20).map(duration::format).collect();
    let values = [
        ("longest error of a failed key, of which the end is kept", format!("{} bytes", longest.len())),
        ("first pause while the queue of a worker does not exist", pauses[0].clone()),
        ("longest pause while the queue of a worker does not exist", pauses[19].clone()),
        ("time for the last calls of a worker that stops", duration::format(LAST_CALLS)),
    ];
    let values: Vec<Vec<String>> = values.map(|(label, value)| vec![label.to_owned(), value]).into();
    assert_eq!(rows(2), values);
}
