//! Watchers while the server is killed: each keeps a copy of a view, by one of the ways in which changes are sent.
//!
//! Each object has a number that grows, and only one producer writes a key, so the calls and replies alone say which numbers a
//! copy that has everything up to a version may have. No watcher may get 410 `expired`, which would make the watcher list the view again.
//!
//! `CRASH_CYCLES=200 cargo test -p deltaq --test it crash::watchers` is the long run.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::retrying::{Client, objects};
use super::{number, seed};
use crate::harness::blocking::{Connection, Message};
use crate::harness::server::{End, Spawned, Store};

const KILLS: u64 = 5;
const PRODUCERS: u64 = 3;
const KEYS_PER_PRODUCER: u64 = 12;
const VIEWS: [&str; 2] = ["latest", "known"];
/// Number of rows of a watcher that are kept as evidence.
const ROWS_KEPT: usize = 3_000;
pub(crate) const QUEUE: &str = "prices";
/// Stands for the end of the run while it is unknown.
const NO_END: u64 = u64::MAX;

/// The way in which a watcher gets its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A stream of NDJSON, which goes on at the version of the last row.
    Lines,
    /// Server-sent events, which go on at the id of the last event.
    Events,
    /// Long polls.
    Pages,
    /// A stream of NDJSON, which begins with all keys again after each loss of the connection.
    FromStart,
}

const WAYS: [Way; 4] = [Way::Lines, Way::Events, Way::Pages, Way::FromStart];

/// A state that a call gave to a key.
#[derive(Clone, Copy, Debug)]
struct Written {
    number: u64,
    is_deletion: bool,
    /// A view that has everything up to this version has this state or a newer one. `None` without a reply, or before it.
    version: Option<u64>,
}

/// How far a copy of a view reaches.
#[derive(Clone, Copy, Debug)]
struct Reach {
    version: u64,
    /// Whether the copy may lack a change up to the version if the key has changed again later.
    may_lag: bool,
}

/// What the producers and workers did.
#[derive(Debug, Default)]
struct Log {
    /// The states that producers sent, by key.
    sent: BTreeMap<String, Vec<Written>>,
    /// The states that workers acknowledged, by key.
    acknowledged: BTreeMap<String, Vec<Written>>,
}

impl Log {
    /// Why a copy of the view can't have this state of the key.
    fn contradiction(&self, view: &str, reach: Reach, key: &str, held: Option<u64>) -> Option<String> {
        let none = Vec::new();
        let sent = self.sent.get(key).unwrap_or(&none);
        let of_view = if view == "latest" { sent } else { self.acknowledged.get(key).unwrap_or(&none) };
        let is_due = |state: &Written| state.version.is_some_and(|at| at <= reach.version);
        if reach.may_lag && of_view.last().is_some_and(|last| !is_due(last)) {
            return None;
        }
        let due = of_view.iter().filter(|state| is_due(state));
        let due = due.max_by_key(|state| (state.number, state.is_deletion)).copied();
        let is_possible = match (held, due) {
            (None, None) => true,
            (Some(held), due) => {
                let is_sent = sent.iter().any(|state| state.number == held && !state.is_deletion);
                let is_new_enough = due
                    .is_none_or(|due| if due.is_deletion { held > due.number } else { held >= due.number });
                is_sent && is_new_enough
            }
            (None, Some(due)) => {
                due.is_deletion || sent.iter().any(|state| state.is_deletion && state.number > due.number)
            }
        };
        (!is_possible).then(|| format!("{view} {key} at {reach:?}: {held:?} contradicts {due:?}"))
    }
}

/// What the threads of a run share.
#[derive(Debug)]
struct Run {
    server: Mutex<SocketAddr>,
    log: Mutex<Log>,
    numbers: AtomicU64,
    replies: AtomicU64,
    is_produced: AtomicBool,
    is_worked: AtomicBool,
    /// The newest version of the queue after all calls.
    end: AtomicU64,
    faults: Mutex<Vec<String>>,
}

impl Run {
    fn is_over(&self) -> bool {
        !self.faults.lock().is_empty()
    }

    /// Notes states that a call is about to give, and returns their places in the log.
    fn send(&self, states: Vec<(String, u64, bool)>) -> Vec<(String, usize)> {
        let mut log = self.log.lock();
        let mut places = Vec::new();
        for (key, number, is_deletion) in states {
            let of_key = log.sent.entry(key.clone()).or_default();
            places.push((key, of_key.len()));
            of_key.push(Written { number, is_deletion, version: None });
        }
        places
    }

    fn produce(&self, producer: u64, seed: u64) {
        let (mut client, mut rng) = (Client::new(&self.server), Rng::with_seed(seed ^ producer));
        let name = |key: u64| format!("p{producer}-{key}");
        while !self.is_produced.load(Ordering::Relaxed) && !self.is_over() {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let object = |key: u64| json!({ "key": name(key), "n": number });
            let key = rng.u64(..KEYS_PER_PRODUCER);
            let (call, body, states) = match rng.u8(..20) {
                0 => {
                    let is_listed: Vec<bool> = (0..KEYS_PER_PRODUCER).map(|_| rng.u8(..4) > 0).collect();
                    let listed = (0..KEYS_PER_PRODUCER).zip(&is_listed).filter(|(_, is_listed)| **is_listed);
                    let list = listed.map(|(key, _)| object(key)).collect();
                    let states = (0..KEYS_PER_PRODUCER).zip(&is_listed);
                    let states = states.map(|(key, is_listed)| (name(key), number, !is_listed)).collect();
                    ("replace?max_delete_percent=100&", list, states)
                }
                1..6 => ("delete?", object(key), vec![(name(key), number, true)]),
                6..10 => ("add?", object(key), vec![(name(key), number, false)]),
                _ => ("update?", object(key), vec![(name(key), number, false)]),
            };
            let places = self.send(states);
            let path = format!("/v1/queues/{QUEUE}/{call}source=p{producer}");
            let Some(reply) = client.attempt(&Message::post(path, &body)) else { continue };
            self.replies.fetch_add(1, Ordering::Relaxed);
            let mut log = self.log.lock();
            for (key, place) in places {
                let state = log.sent.get_mut(&key).and_then(|states| states.get_mut(place));
                state.expect("it was noted").version = Some(version_of(&reply));
            }
        }
    }

    /// Acknowledges everything until the end.
    fn work(&self) {
        let mut client = Client::new(&self.server);
        let pop = Message::post(format!("/v1/queues/{QUEUE}/pop?max=10&wait=50ms"), &json!({}));
        while !self.is_worked.load(Ordering::Relaxed) && !self.is_over() {
            let Some(popped) = client.attempt(&pop) else { continue };
            let items = popped["items"].as_array().expect("items");
            let settle = |item: &Value| json!({ "lease_id": item["lease"]["id"], "as": "ack" });
            let settles = json!({ "settle": items.iter().map(settle).collect::<Vec<_>>() });
            let settle = Message::post(format!("/v1/queues/{QUEUE}/settle"), &settles);
            let places = self.note_acks(items);
            let Some(settled) = client.attempt(&settle) else { continue };
            // The acks have no version, but everything up to the version of a later list has them.
            let version = version_of(&client.list(QUEUE, "known"));
            let mut log = self.log.lock();
            for ((key, place), result) in places.iter().zip(settled["settled"].as_array().expect("results")) {
                if result["result"] == "ok" {
                    let state = log.acknowledged.get_mut(key).and_then(|states| states.get_mut(*place));
                    state.expect("it was noted").version = Some(version);
                }
            }
        }
    }

    /// Notes the states that a worker is about to acknowledge, and returns their places in the log.
    fn note_acks(&self, items: &[Value]) -> Vec<(String, usize)> {
        let mut log = self.log.lock();
        let note = |item: &Value| {
            let newest = item["deltas"].as_array().and_then(|deltas| deltas.last()).expect("a delta");
            let number = number_of(newest).expect("a number");
            let of_key = log.acknowledged.entry(key_of(item)).or_default();
            of_key.push(Written { number, is_deletion: newest["type"] == "Deleted", version: None });
            (key_of(item), of_key.len() - 1)
        };
        items.iter().map(note).collect()
    }
}

fn version_of(row: &Value) -> u64 {
    row["resource_version"].as_u64().expect("a version")
}

fn key_of(row: &Value) -> String {
    row["key"].as_str().expect("a key").to_owned()
}

fn number_of(row: &Value) -> Option<u64> {
    row["object"]["n"].as_u64()
}

/// A copy of a view.
struct Watcher<'r> {
    run: &'r Run,
    view: &'static str,
    way: Way,
    client: Client<'r>,
    rng: Rng,
    /// The copy has everything up to this version, unless `is_listing`.
    version: u64,
    is_listing: bool,
    /// Whether the last page was full: a key that has changed again since may be missing in the copy.
    lags: bool,
    numbers: BTreeMap<String, u64>,
    last_event_id: Option<String>,
    rows: VecDeque<String>,
    count: u64,
}

impl<'r> Watcher<'r> {
    fn new(run: &'r Run, view: &'static str, way: Way, seed: u64) -> Self {
        Self {
            run,
            view,
            way,
            client: Client::new(&run.server),
            rng: Rng::with_seed(seed),
            version: 0,
            is_listing: true,
            lags: false,
            numbers: BTreeMap::new(),
            last_event_id: None,
            rows: VecDeque::new(),
            count: 0,
        }
    }

    /// Watches until the copy has everything, or there is a fault. Returns the number of rows.
    fn watch(mut self) -> u64 {
        while !self.has_ended() {
            if self.way == Way::FromStart {
                (self.version, self.is_listing) = (0, true);
                self.numbers.clear();
            } else {
                self.compare_with_list();
            }
            // The server may be killed at any moment.
            let _is_cut = if self.way == Way::Pages { self.poll() } else { self.stream() };
        }
        if !self.run.is_over() {
            // Nothing has changed after the end.
            self.check(Reach { version: self.version, may_lag: false }, &self.numbers);
        }
        self.count
    }

    fn has_ended(&self) -> bool {
        self.run.is_over() || (!self.is_listing && self.version >= self.run.end.load(Ordering::Relaxed))
    }

    fn fault(&self, key: &str, text: &str) {
        let (view, way) = (self.view, self.way);
        let log = self.run.log.lock();
        let quoted = format!("\"{key}\"");
        let rows: Vec<&String> = self.rows.iter().filter(|row| row.contains(&quoted)).collect();
        let calls = (log.sent.get(key), log.acknowledged.get(key));
        self.run.faults.lock().push(format!("{view} {way:?}: {text}\nrows: {rows:#?}\ncalls: {calls:?}"));
    }

    /// Compares a copy or a list with the calls that have a reply.
    fn check(&self, reach: Reach, numbers: &BTreeMap<String, u64>) {
        if self.is_listing {
            return;
        }
        let log = self.run.log.lock();
        let contradiction = |key: &String| {
            let why = log.contradiction(self.view, reach, key, numbers.get(key).copied())?;
            Some((key.clone(), why))
        };
        let mut keys = log.sent.keys();
        let found: Option<(String, String)> = keys.find_map(contradiction);
        drop(log);
        if let Some((key, why)) = found {
            self.fault(&key, &why);
        }
    }

    /// Reads the list of the view: nothing that the watcher has seen may be lost. The first list is the copy.
    fn compare_with_list(&mut self) {
        let list = self.client.list(QUEUE, self.view);
        let object_number = |(key, object): (String, Value)| (key, object["n"].as_u64().expect("a number"));
        let listed: BTreeMap<String, u64> = objects(&list).into_iter().map(object_number).collect();
        let version = version_of(&list);
        if self.is_listing {
            (self.version, self.is_listing, self.numbers) = (version, false, listed);
            self.check(Reach { version: self.version, may_lag: false }, &self.numbers);
            return;
        }
        self.check(Reach { version, may_lag: false }, &listed);
        if version < self.version {
            self.fault("", &format!("the list is at {version}, the watcher at {}", self.version));
        }
        for (key, number) in &self.numbers {
            let log = self.run.log.lock();
            let was_deleted =
                || log.sent[key].iter().any(|state| state.is_deletion && state.number > *number);
            let is_kept = listed.get(key).map_or_else(was_deleted, |listed| listed >= number);
            drop(log);
            if !is_kept {
                self.fault(key, &format!("the list at {version} has {:?}, not {number}", listed.get(key)));
            }
        }
    }

    fn request(&self, query: &str, accept: &str) -> String {
        let Self { view, version, .. } = self;
        let id = self.last_event_id.as_ref().map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
        format!(
            "GET /v1/queues/{QUEUE}/watch?view={view}&resource_version={version}&{query} HTTP/1.1\r\n\
             host: localhost\r\naccept: {accept}\r\n{id}\r\n"
        )
    }

    /// Whether the reply has rows. A watcher that is not too old never gets 410 `expired`.
    fn accepts(&self, first: &str) -> bool {
        let is_ok = first.contains(" 200");
        if !is_ok && !first.contains(" 503") && !first.contains(" 429") {
            self.fault("", &format!("at {}: {first}", self.version));
        }
        is_ok
    }

    fn poll(&mut self) -> std::io::Result<()> {
        let mut connection = self.client.connect()?;
        while !self.has_ended() {
            let limit = self.rng.usize(1..50);
            let request = self.request(&format!("wait=100ms&limit={limit}"), "application/json");
            connection.send(request.as_bytes())?;
            let reply = connection.receive()?;
            if !self.accepts(&reply.first) {
                return Ok(());
            }
            let page: Value = serde_json::from_slice(&reply.body)?;
            let rows = page["items"].as_array().expect("items");
            for row in rows {
                self.take(row);
            }
            self.version = version_of(&page);
            self.lags = rows.len() == limit;
            self.check(Reach { version: self.version, may_lag: self.lags }, &self.numbers);
            // A reader that lags.
            std::thread::sleep(Duration::from_millis(self.rng.u64(..60)));
        }
        Ok(())
    }

    fn stream(&mut self) -> std::io::Result<()> {
        let mut connection = self.client.connect()?;
        let accept = if self.way == Way::Events { "text/event-stream" } else { "application/x-ndjson" };
        connection.send(self.request("bookmark=1s", accept).as_bytes())?;
        let (head, length) = connection.receive_head()?;
        // An EventSource gets no 503: a reply with a length only tells it to connect again.
        if !self.accepts(&head.first) || length.is_some() {
            return Ok(());
        }
        self.read_lines(&mut connection)
    }

    fn read_lines(&mut self, connection: &mut Connection) -> std::io::Result<()> {
        let mut unread = Vec::new();
        while !self.has_ended() {
            let chunk = connection.chunk()?;
            if chunk.is_empty() {
                return Ok(());
            }
            unread.extend(chunk);
            while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = unread.drain(..=end).collect();
                self.take_line(String::from_utf8(line).expect("text").trim_end());
            }
        }
        Ok(())
    }

    fn take_line(&mut self, line: &str) {
        if let Some(id) = line.strip_prefix("id:") {
            self.last_event_id = Some(id.trim().to_owned());
        }
        let json = if self.way == Way::Events { line.strip_prefix("data:") } else { Some(line) };
        if let Some(json) = json {
            self.take(&serde_json::from_str(json).expect("a row"));
        }
    }

    fn take(&mut self, row: &Value) {
        self.rows.push_back(row.to_string());
        if self.rows.len() > ROWS_KEPT {
            self.rows.pop_front();
        }
        let kind = row["type"].as_str().expect("a type");
        if kind == "Error" || kind == "Expired" {
            // A refusal for now, which an `EventSource` gets as a row.
            if kind == "Expired" || !matches!(row["problem"]["status"].as_u64(), Some(429 | 503)) {
                self.fault("", &format!("at {}: {row}", self.version));
            }
            return;
        }
        let version = version_of(row);
        if kind == "Bookmark" {
            self.is_listing &= row["initial_events_end"] != true;
            self.version = version;
            self.check(Reach { version: self.version, may_lag: false }, &self.numbers);
            return;
        }
        self.count += 1;
        let (key, number) = (key_of(row), number_of(row));
        let held = self.numbers.get(&key).copied();
        let is_wrong = match kind {
            "Added" => number < held,
            "Updated" => (held.is_none() && !self.lags) || number < held || self.is_listing,
            "Deleted" => number < held && row["final_state_unknown"] != true,
            _ => true,
        };
        if is_wrong || version <= self.version {
            self.fault(&key, &format!("{row} after {held:?} at {}", self.version));
        }
        self.version = version;
        match number.filter(|_| kind != "Deleted") {
            Some(number) => self.numbers.insert(key.clone(), number),
            None => self.numbers.remove(&key),
        };
        self.check(Reach { version, may_lag: true }, &self.numbers);
    }
}

/// Replies that producers had, and rows that watchers had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) replies: u64,
    pub(crate) rows: u64,
}

/// Runs producers, workers and watchers of each view until `disturb` ends. They call the server at the address that `disturb` gets, which
/// may set another one. `disturb` also gets a test of whether there is a fault. At the end each copy must have all changes.
pub(crate) fn watch_during(
    seed: u64,
    server: SocketAddr,
    disturb: impl FnOnce(&Mutex<SocketAddr>, &dyn Fn() -> bool),
) -> Seen {
    let run = Run {
        server: Mutex::new(server),
        log: Mutex::default(),
        numbers: AtomicU64::new(1),
        replies: AtomicU64::new(0),
        is_produced: AtomicBool::new(false),
        is_worked: AtomicBool::new(false),
        end: AtomicU64::new(NO_END),
        faults: Mutex::default(),
    };
    let mut client = Client::new(&run.server);
    let put = Message::put(format!("/v1/queues/{QUEUE}"), &json!({"lease": "1s", "max_failures": 0}));
    assert_eq!(client.exchange(&put).and_then(|reply| reply.status()), Some(201));
    let rows = std::thread::scope(|scope| {
        let run = &run;
        let producers: Vec<_> =
            (0..PRODUCERS).map(|producer| scope.spawn(move || run.produce(producer, seed))).collect();
        let workers = [(); 2].map(|()| scope.spawn(|| run.work()));
        let watchers: Vec<_> = VIEWS
            .into_iter()
            .flat_map(|view| WAYS.map(|way| scope.spawn(move || Watcher::new(run, view, way, seed).watch())))
            .collect();
        disturb(&run.server, &|| run.is_over());
        run.is_produced.store(true, Ordering::Relaxed);
        for producer in producers {
            producer.join().expect("a producer ends");
        }
        run.is_worked.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().expect("a worker ends");
        }
        // Only leases expire from now on, which changes no view.
        run.end.store(version_of(&client.list(QUEUE, "latest")), Ordering::Relaxed);
        watchers.into_iter().map(|watcher| watcher.join().expect("a watcher ends")).sum()
    });
    let faults = run.faults.into_inner();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    Seen { replies: run.replies.into_inner(), rows }
}

#[test]
fn watchers_have_the_objects_of_their_view_after_all_kills() {
    let kills = number("CRASH_CYCLES").unwrap_or(KILLS);
    let seed = seed();
    let store = Store::folder("watchers");
    let first = Spawned::start(&store);
    let address = first.api;
    let mut running = Some(first);
    let found = watch_during(seed, address, |server, is_over| {
        let mut rng = Rng::with_seed(seed);
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(rng.u64(50..500)));
            if is_over() {
                break;
            }
            running.take().map(|killed| killed.end(End::Kill));
            let next = Spawned::start(&store);
            *server.lock() = next.api;
            running = Some(next);
        }
    });
    assert!(found.replies > 5 * kills && found.rows > 20 * kills, "{found:?} is too little");
}
