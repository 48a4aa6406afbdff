//! `deltaq add`, `update`, `delete`, `deltas`, `resync` and `forget`.

use clap::Args;
use deltaq_client::{Body, Call};
use deltaq_types::name::Name;
use deltaq_types::{DeltaCall, DeltaCallType, ForgetBody, KeysCount, Produced};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::failure::{Failure, at_object};
use super::input::{Input, Piece, Pieces};
use super::left_out::tell_invalid;
use super::output::counted;
use super::progress::Progress;
use super::replace::{Replace, Seed};
use super::reply::parse;
use super::session::{Execute, Session};

/// Maximum number of objects in one call. This is also the server's default limit.
const BATCH_OBJECTS_MAX: u64 = 10_000;
/// Maximum number of bytes in one call.
const BATCH_BYTES_MAX: usize = 16 << 20;

const OBJECTS: &str = "\
OBJECTS is JSON text, a file (FILE or @FILE), or - for stdin, which is the default: one object, an array of objects, or objects
one after the other (NDJSON). Up to 10,000 objects (16 MiB) of an argument or a file are one call, which changes all or nothing.
Longer inputs take several calls; an error says how many objects were done before. Objects from a pipe are sent as they come.";

const ONE_CALL: &str = "--sequence is the number of one call, and this input takes several: at most 10,000 objects (16 MiB), or one --key";

super::commands! {
    /// Commands of producers.
    Commands {
        /// Add objects to a queue.
        #[command(after_help = "Example:\n  deltaq add prices '{\"key\":\"sku-1\",\"price\":10}'")]
        Add(Add),
        /// Send changed objects to a queue.
        #[command(after_help = "Example:\n  deltaq update prices @changes.ndjson --source erp")]
        Update(Update),
        /// Delete objects from a queue; workers get a Deleted delta.
        #[command(after_help = "Example:\n  deltaq delete prices --key sku-1")]
        Delete(Delete),
        /// Send the complete list of a source: changes are queued, and keys that are not in the list are deleted.
        #[command(after_help = "Example:\n  deltaq replace prices @all.json --source erp --only-changed --dry-run")]
        Replace(Replace),
        /// Send a mixed batch of additions, updates and deletions.
        #[command(after_help = "Example:\n  deltaq deltas prices '[{\"type\":\"Deleted\",\"key\":\"sku-1\"},{\"type\":\"Added\",\"object\":{\"key\":\"sku-2\"}}]'")]
        Deltas(Deltas),
        /// Deliver all known objects again, as Sync deltas.
        #[command(after_help = "Example:\n  deltaq resync prices")]
        Resync(Resync),
        /// Make objects known without queueing deltas.
        #[command(after_help = "Example:\n  deltaq known prices -o ndjson | deltaq seed prices-copy")]
        Seed(Seed),
    }
}

/// `deltaq add`.
#[derive(Debug, Clone, Args)]
pub struct Add {
    /// The queue; it is created if the server allows that.
    pub queue: Name,
    /// The objects: JSON text, a file, or - for stdin.
    #[arg(long_help = OBJECTS)]
    pub objects: Option<String>,
    /// The key of a single object that does not contain it. In mode keys: a key without an object; may be repeated.
    #[arg(long)]
    pub key: Vec<String>,
    /// The producer, which becomes the owner of the keys.
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// Sequence number of the call. The server applies each number of a source only once, in increasing order.
    #[arg(long, value_name = "N", requires = "source")]
    pub sequence: Option<u64>,
    /// Time until the objects become ready, such as 30s [default: at once].
    #[arg(long, value_name = "DURATION", conflicts_with = "rate_limited")]
    pub delay: Option<String>,
    /// The time that the keys must be quiet before they are delivered; 0s for none [default: the setting].
    #[arg(long, value_name = "DURATION", conflicts_with = "rate_limited")]
    pub debounce: Option<String>,
    /// The longest wait of a debounced change [default: 10 times --debounce].
    #[arg(long, value_name = "DURATION", requires = "debounce")]
    pub max_wait: Option<String>,
    /// How much earlier the keys count as arrived, such as 10m, or -10m for later [default: the setting].
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub head_start: Option<String>,
    /// Mode keys: the keys wait as after a failure, and this call counts as one (AddRateLimited).
    #[arg(long, conflicts_with_all = ["if_version", "if_absent"])]
    pub rate_limited: bool,
    /// What the call expects of the key.
    #[command(flatten)]
    pub expected: Expectation,
}

/// `deltaq update`.
#[derive(Debug, Clone, Args)]
pub struct Update {
    /// The queue; it is created if the server allows that.
    pub queue: Name,
    /// The objects: JSON text, a file, or - for stdin.
    #[arg(long_help = OBJECTS)]
    pub objects: Option<String>,
    /// The key of a single object that does not contain it.
    #[arg(long)]
    pub key: Option<String>,
    /// The producer, which becomes the owner of the keys.
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// Sequence number of the call. The server applies each number of a source only once, in increasing order.
    #[arg(long, value_name = "N", requires = "source")]
    pub sequence: Option<u64>,
    /// Time until the objects become ready, such as 30s [default: at once].
    #[arg(long, value_name = "DURATION")]
    pub delay: Option<String>,
    /// The time that the keys must be quiet before they are delivered; 0s for none [default: the setting].
    #[arg(long, value_name = "DURATION")]
    pub debounce: Option<String>,
    /// The longest wait of a debounced change [default: 10 times --debounce].
    #[arg(long, value_name = "DURATION", requires = "debounce")]
    pub max_wait: Option<String>,
    /// How much earlier the keys count as arrived, such as 10m, or -10m for later [default: the setting].
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub head_start: Option<String>,
    /// What the call expects of the key.
    #[command(flatten)]
    pub expected: Expectation,
}

/// `deltaq delete`.
#[derive(Debug, Clone, Args)]
pub struct Delete {
    /// The queue.
    pub queue: Name,
    /// The objects: JSON text, a file, or - for stdin.
    #[arg(long_help = OBJECTS)]
    pub objects: Option<String>,
    /// A key to delete, or the key of a single object; may be repeated.
    #[arg(long)]
    pub key: Vec<String>,
    /// The producer, which becomes the owner of the keys.
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// Sequence number of the call. The server applies each number of a source only once, in increasing order.
    #[arg(long, value_name = "N", requires = "source")]
    pub sequence: Option<u64>,
    /// The time that the keys must be quiet before they are delivered; 0s for none [default: the setting].
    #[arg(long, value_name = "DURATION")]
    pub debounce: Option<String>,
    /// The longest wait of a debounced change [default: 10 times --debounce].
    #[arg(long, value_name = "DURATION", requires = "debounce")]
    pub max_wait: Option<String>,
    /// How much earlier the keys count as arrived, such as 10m, or -10m for later [default: the setting].
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub head_start: Option<String>,
    /// What the call expects of the key.
    #[command(flatten)]
    pub expected: Expectation,
}

/// The object that the key of a change must have.
#[derive(Debug, Clone, Args)]
pub struct Expectation {
    /// Change a single object only if the newest object of its key has this resource version, which `deltaq latest` shows.
    #[arg(long, value_name = "VERSION", value_parser = clap::value_parser!(u64).range(1..))]
    pub if_version: Option<u64>,
    /// Change a single object only if the queue has no object of its key.
    #[arg(long, conflicts_with = "if_version")]
    pub if_absent: bool,
}

/// `deltaq deltas`.
#[derive(Debug, Clone, Args)]
pub struct Deltas {
    /// The queue; it is created if the server allows that.
    pub queue: Name,
    /// The deltas {"type","key","object","delay","expected_version",...}: JSON text, a file, or - for stdin.
    #[arg(value_name = "DELTAS")]
    pub input: Option<String>,
    /// The producer of the deltas without a source.
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// Leave out deltas with an invalid object, however many they are, instead of refusing the call. They are reported on stderr.
    #[arg(long)]
    pub skip_invalid: bool,
    /// Sequence number of the call. The server applies each number of a source only once, in increasing order.
    #[arg(long, value_name = "N", requires = "source")]
    pub sequence: Option<u64>,
}

/// `deltaq resync`.
#[derive(Debug, Clone, Args)]
pub struct Resync {
    /// The queue.
    pub queue: Name,
}

/// `deltaq forget`.
#[derive(Debug, Clone, Args)]
pub struct Forget {
    /// The queue.
    pub queue: Name,
    /// The keys.
    #[arg(required = true)]
    pub keys: Vec<String>,
}

/// A produce call that accepts batches.
struct Batches<'a> {
    session: &'a Session,
    operation: &'static str,
    queue: &'a Name,
    parameters: Vec<(&'static str, Option<String>)>,
    /// The sequence number. If set, the input must fit into one call.
    sequence: Option<u64>,
}

impl Execute for Add {
    const OPERATIONS: &'static [&'static str] = &["add", "deltas"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let rate_limited = self.rate_limited.then(|| "true".to_owned());
        let parameters = vec![
            ("source", self.source.clone()),
            ("delay", self.delay.clone()),
            ("debounce", self.debounce.clone()),
            ("max_wait", self.max_wait.clone()),
            ("head_start", self.head_start.clone()),
            ("rate_limited", rate_limited),
        ];
        let calls =
            Batches { session, operation: "add", queue: &self.queue, parameters, sequence: self.sequence };
        let objects = self.objects.as_deref();
        match self.expected.version() {
            Some(version) => calls.expecting(version, DeltaCallType::Added, &self.key, objects).await,
            None => calls.run(&self.key, objects).await,
        }
    }
}

impl Execute for Update {
    const OPERATIONS: &'static [&'static str] = &["update", "deltas"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let parameters = vec![
            ("source", self.source.clone()),
            ("delay", self.delay.clone()),
            ("debounce", self.debounce.clone()),
            ("max_wait", self.max_wait.clone()),
            ("head_start", self.head_start.clone()),
        ];
        let calls =
            Batches { session, operation: "update", queue: &self.queue, parameters, sequence: self.sequence };
        let (keys, objects) = (self.key.as_slice(), self.objects.as_deref());
        match self.expected.version() {
            Some(version) => calls.expecting(version, DeltaCallType::Updated, keys, objects).await,
            None => calls.run(keys, objects).await,
        }
    }
}

impl Execute for Delete {
    const OPERATIONS: &'static [&'static str] = &["delete", "deltas"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let parameters = vec![
            ("source", self.source.clone()),
            ("debounce", self.debounce.clone()),
            ("max_wait", self.max_wait.clone()),
            ("head_start", self.head_start.clone()),
        ];
        let calls =
            Batches { session, operation: "delete", queue: &self.queue, parameters, sequence: self.sequence };
        let objects = self.objects.as_deref();
        match self.expected.version() {
            Some(version) => calls.expecting(version, DeltaCallType::Deleted, &self.key, objects).await,
            None => calls.run(&self.key, objects).await,
        }
    }
}

impl Execute for Deltas {
    const OPERATIONS: &'static [&'static str] = &["deltas"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let parameters = vec![
            ("source", self.source.clone()),
            ("skip_invalid", self.skip_invalid.then(|| "true".to_owned())),
        ];
        let calls =
            Batches { session, operation: "deltas", queue: &self.queue, parameters, sequence: self.sequence };
        calls.input(self.input.as_deref()).await
    }
}

impl Execute for Resync {
    const OPERATIONS: &'static [&'static str] = &["resync"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let call = session.on_queue("resync", &self.queue)?;
        let mut total = Total::default();
        total.add(session.client.fetch(call).await?)?;
        total.report(session, &self.queue)
    }
}

impl Execute for Forget {
    const OPERATIONS: &'static [&'static str] = &["forget"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let call = session.on_queue("forget", &self.queue)?.json(&ForgetBody { keys: self.keys.clone() });
        let (count, text) = session.fetch::<KeysCount>(call).await?;
        let sentence = format!("forgot the failures of {}", counted(count.keys, "key"));
        session.output.change(&text, self.queue.as_str(), &sentence)
    }
}

impl Expectation {
    /// The version that the key must have: 0 for no object. `None` if the call does not depend on it.
    fn version(&self) -> Option<u64> {
        self.if_version.or_else(|| self.if_absent.then_some(0))
    }
}

impl Batches<'_> {
    /// Sends keys without objects, one object with its key, or an input.
    async fn run(&self, keys: &[String], objects: Option<&str>) -> Result<(), Failure> {
        match (keys, objects) {
            ([], objects) => self.input(objects).await,
            ([key], objects) => self.single(Some(key), objects).await,
            (_, Some(_)) => Err(Failure::Usage("several keys take no objects".to_owned())),
            (keys, None) => self.keys(keys).await,
        }
    }

    fn call(&self) -> Result<Call, Failure> {
        let call = self.session.on_queue(self.operation, self.queue)?.query("sequence", self.sequence);
        Ok(self.parameters.iter().fold(call, |call, (name, value)| call.query(name, value.as_deref())))
    }

    /// Sends one object, or none, with its key.
    async fn single(&self, key: Option<&str>, object: Option<&str>) -> Result<(), Failure> {
        let body = match object {
            None => Body::Empty,
            Some(object) => Body::Json(Input::open(Some(object))?.text()?.into_bytes().into()),
        };
        let call = self.call()?.query("key", key).body(body);
        let mut total = Total::default();
        total.add(self.session.client.fetch(call).await?)?;
        total.report(self.session, self.queue)
    }

    /// Sends one object, or one key, if the key has the version. Entries of a batch can expect a version.
    async fn expecting(
        &self,
        version: u64,
        kind: DeltaCallType,
        keys: &[String],
        object: Option<&str>,
    ) -> Result<(), Failure> {
        let refused =
            |why: &str| Failure::Usage(format!("--if-version and --if-absent take a single object{why}"));
        let text = match (keys, object) {
            ([], object) | ([_], object @ Some(_)) => Some(Input::open(object)?.text()?),
            ([_], None) => None,
            _ => return Err(refused("")),
        };
        let object: Option<&RawValue> = text
            .as_deref()
            .map(serde_json::from_str)
            .transpose()
            .map_err(|error: serde_json::Error| refused(&format!(": {error}")))?;
        if object.is_some_and(|object| object.get().starts_with('[')) {
            return Err(refused(""));
        }
        let option = |name| self.parameters.iter().find(|(own, _)| *own == name)?.1.clone();
        let delta = DeltaCall {
            kind,
            key: keys.first().cloned(),
            object,
            source: None,
            delay: option("delay"),
            debounce: option("debounce"),
            max_wait: option("max_wait"),
            head_start: option("head_start"),
            final_state_unknown: false,
            expected_version: Some(version),
        };
        let call = self.session.on_queue("deltas", self.queue)?.query("sequence", self.sequence);
        let call = call.query("source", option("source")).json(&[delta]);
        let mut total = Total::default();
        total.add(self.session.client.fetch(call).await?)?;
        total.report(self.session, self.queue)
    }

    /// Sends keys without objects.
    async fn keys(&self, keys: &[String]) -> Result<(), Failure> {
        if self.sequence.is_some() {
            return Err(Failure::Usage(ONE_CALL.to_owned()));
        }
        let mut total = Total::default();
        for (done, key) in (0..).zip(keys) {
            let call = self.call()?.query("key", Some(key));
            let reply = self.session.client.fetch(call).await;
            total.add(reply.map_err(|error| at_object(done, error))?)?;
        }
        total.report(self.session, self.queue)
    }

    /// Sends the objects of an input in batches.
    async fn input(&self, objects: Option<&str>) -> Result<(), Failure> {
        let input = Input::open(objects)?;
        let mut progress = Progress::new(&self.session.clock, input.length);
        // A sequence number applies to one call, so the whole input must be read first.
        let may_pause = input.may_pause() && self.sequence.is_none();
        let mut bodies = Bodies { may_pause, pieces: input.pieces(), left: None, failed: None };
        let (mut total, mut done) = (Total::default(), 0);
        while let Some(batch) = bodies.next().await.map_err(|failure| failure.after_objects(done))? {
            if self.sequence.is_some() && bodies.left.is_some() {
                return Err(Failure::Usage(ONE_CALL.to_owned()));
            }
            let call = self.call()?.body(Body::Ndjson(batch.lines.into()));
            let reply = self.session.client.fetch(call).await;
            total.add(reply.map_err(|error| at_object(done, error))?)?;
            done += batch.objects;
            progress.show(done, batch.read);
        }
        if total.calls == 0 {
            // An empty list is valid; the server may refuse the queue or the parameters.
            total.add(self.session.client.fetch(self.call()?.body(Body::Json("[]".into()))).await?)?;
        }
        drop(progress);
        total.report(self.session, self.queue)
    }
}

/// The pieces of an input, joined into the bodies of calls.
struct Bodies {
    pieces: Pieces,
    may_pause: bool,
    /// A piece that did not fit into the last body.
    left: Option<Piece>,
    /// An error that ended the input. The objects before it are sent first.
    failed: Option<Failure>,
}

impl Bodies {
    /// The objects of the next call. A call waits for more pieces only if the input can't pause.
    async fn next(&mut self) -> Result<Option<Piece>, Failure> {
        if let Some(failure) = self.failed.take() {
            return Err(failure);
        }
        let first = match self.left.take() {
            Some(piece) => piece,
            None => match self.pieces.recv().await {
                Some(piece) => piece?,
                None => return Ok(None),
            },
        };
        let mut body = first;
        while let Some(piece) = self.further().await {
            let piece = match piece {
                Ok(piece) => piece,
                Err(failure) if self.may_pause => {
                    self.failed = Some(failure);
                    break;
                }
                Err(failure) => return Err(failure),
            };
            let objects = body.objects + piece.objects;
            if objects > BATCH_OBJECTS_MAX || body.lines.len() + piece.lines.len() > BATCH_BYTES_MAX {
                self.left = Some(piece);
                break;
            }
            body.lines.extend(piece.lines);
            (body.objects, body.read) = (objects, piece.read);
        }
        Ok(Some(body))
    }

    async fn further(&mut self) -> Option<Result<Piece, Failure>> {
        if self.may_pause { self.pieces.try_recv().ok() } else { self.pieces.recv().await }
    }
}

/// The sum of the replies to several calls.
#[derive(Default, Serialize)]
struct Total {
    resource_version: u64,
    queued: u64,
    merged: u64,
    ignored: u64,
    stale: u64,
    #[serde(skip)]
    duplicate: bool,
    #[serde(skip)]
    calls: u64,
    /// The text of the last reply.
    #[serde(skip)]
    last: Option<Box<RawValue>>,
}

impl Total {
    fn add(&mut self, text: Box<RawValue>) -> Result<(), Failure> {
        let produced: Produced = parse(&text)?;
        tell_invalid(produced.invalid, &produced.invalid_objects);
        self.resource_version = produced.resource_version;
        self.queued += produced.queued;
        self.merged += produced.merged;
        self.ignored += produced.ignored;
        self.stale += produced.stale;
        self.duplicate |= produced.duplicate;
        self.calls += 1;
        self.last = Some(text);
        Ok(())
    }

    /// Prints the reply to a single call, or the sum of several replies.
    fn report(self, session: &Session, queue: &Name) -> Result<(), Failure> {
        let sum = || to_raw_value(&self).map_err(|error| Failure::Other(error.to_string()));
        let text = match (self.calls, &self.last) {
            (1, Some(text)) => text,
            _ => &sum()?,
        };
        let Self { resource_version, queued, merged, ignored, stale, duplicate, .. } = self;
        if duplicate {
            let sentence = "the sequence number had been applied; nothing was changed";
            return session.output.change(text, queue.as_str(), sentence);
        }
        let merged = if merged == 0 { String::new() } else { format!(", {merged} merged") };
        let ignored = if ignored == 0 { String::new() } else { format!(", {ignored} ignored") };
        let stale = if stale == 0 { String::new() } else { format!(", {stale} stale") };
        let sentence =
            format!("queued {queued}{merged}{ignored}{stale} (resource version {resource_version})");
        session.output.change(text, queue.as_str(), &sentence)
    }
}
