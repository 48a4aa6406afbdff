//! Applies the calls of a request: all or none.

use std::sync::Arc;

use deltaq_engine::command::{self, Call, Delivered, Expected, FailureState};
use deltaq_engine::deliveries::DeliveryId;
use deltaq_engine::id::{Rv, Sequence};
use deltaq_engine::refusal::Refusal;
use deltaq_service::{self, FirstCall, Handle, Name};
use deltaq_types::Produced;

use crate::http::problem::Problem;
use crate::http::request::admitted::{AdmissionRules, Reader};
use crate::http::request::conditional::Conditions;
use crate::http::request::context::RequestContext;
use crate::http::request::invalid::{Invalid, InvalidKey};
use crate::http::wire;

/// How often a produce call reads its keys if the settings of the queue change during the call.
const READINGS_MAX: usize = 3;

/// A produce call, apart from its objects.
pub(super) struct Request<'r> {
    pub(super) context: &'r RequestContext,
    pub(super) name: &'r Name,
    pub(super) must_exist: bool,
    pub(super) sequence: Option<Sequence>,
    /// The conditions of a call with a single object.
    pub(super) conditions: Conditions,
    /// The ids of the entries, each of which is applied once; `None` for calls without ids.
    pub(super) ids: Option<Vec<Option<DeliveryId>>>,
}

/// How an entry of a produce call was read.
pub(super) enum Entry {
    /// A call, and the version that it expects its key to have.
    Call(Call, Option<Rv>),
    /// The entry is left out. What it expects of its key holds for the whole call nevertheless.
    Invalid { key: InvalidKey, problem: Problem, expects: Option<Rv> },
}

impl From<Call> for Entry {
    fn from(call: Call) -> Self {
        Self::Call(call, None)
    }
}

/// The entries of a request after they were read.
#[derive(Default)]
struct Entries {
    calls: Vec<Call>,
    expected: Vec<Expected>,
    left_out: Invalid,
    /// The indexes of the entries that are left out, in the request and in their order.
    gaps: Vec<usize>,
}

impl Entries {
    fn push(&mut self, index: usize, entry: Entry) {
        match entry {
            Entry::Call(call, expects) => {
                self.expected
                    .extend(expects.map(|version| Expected::version(index, call.key.clone(), version)));
                self.calls.push(call);
            }
            Entry::Invalid { key, problem, expects } => {
                if let (InvalidKey::Key(key), Some(version)) = (&key, expects) {
                    self.expected.push(Expected::version(index, key.clone(), version));
                }
                self.left_out.note(index, key, problem);
                self.gaps.push(index);
            }
        }
    }

    /// Adds what the conditions expect of the key of the only call.
    fn expect(&mut self, conditions: &Conditions, handle: Option<&Handle>) {
        if let (Some(call), Some(_)) = (self.calls.first(), conditions.header()) {
            let lives = handle.map(Handle::lives);
            self.expected.push(conditions.of_object(&call.key, lives.as_deref()));
        }
    }
}

impl Request<'_> {
    /// Applies the calls that `read` creates from the received objects, using the settings of the queue. If the
    /// settings change during the call, the objects are read again. A refused call does not create a queue.
    pub(super) async fn apply<C: Send + Sync + 'static, E: Into<Entry> + Send + 'static>(
        self,
        mut rules: AdmissionRules,
        came: Arc<Vec<C>>,
        read: impl Fn(&mut Reader<'_>, usize, &C) -> Result<E, Problem> + Clone + Send + 'static,
    ) -> Result<Produced, Problem> {
        let Self { context, name, must_exist, sequence, conditions, ids } = self;
        let state = &context.state;
        for _ in 0..READINGS_MAX {
            let mut entries = Entries { calls: Vec::with_capacity(came.len()), ..Entries::default() };
            for (index, entry) in rules.each(came.clone(), read.clone()).await?.into_iter().enumerate() {
                entries.push(index, entry.into());
            }
            entries.expect(&conditions, rules.handle.as_deref());
            let Entries { calls, expected, left_out, gaps } = entries;
            rules.check_exists(must_exist)?;
            context.authorize_change(name, calls.iter().map(|call| call.source.as_ref()))?;
            let there = rules.handle.clone();
            let was_there = there.is_some();
            let handle = if let Some(handle) = there {
                handle
            } else {
                let first = FirstCall::Produce(&calls, &expected);
                let created = state.partitions.registry(name)?.get_or_create(name, first, &context.creator());
                created.map_err(|error| in_request(error, &gaps))?
            };
            let produced = match &ids {
                None => handle.produce_and_read(&rules.config, &calls, sequence.as_ref(), &expected).await,
                Some(ids) => handle.deliver(&rules.config, &calls, ids, &expected).await.map(delivered),
            };
            match produced {
                Err(deltaq_service::Error::Refused(Refusal::ConfigChanged)) => rules = rules.now(handle),
                // The queue was deleted since the call arrived, and the call creates it again.
                Err(deltaq_service::Error::QueueDeleted) if was_there => rules = rules.found(state, name),
                produced => {
                    let produced = produced.map_err(|error| in_request(error, &gaps))?;
                    let document = produced_document(&handle, &calls, produced);
                    let sequence = last_sequence(&handle, sequence, document.duplicate).await?;
                    let (invalid, invalid_objects) = left_out.reply();
                    return Ok(Produced { sequence, invalid, invalid_objects, ..document });
                }
            }
        }
        Err(Refusal::ConfigChanged.into())
    }
}

/// Events whose ids were applied count as ignored.
fn delivered(delivered: Delivered) -> (command::Produced, Vec<FailureState>) {
    let Delivered { produced, repeated } = delivered;
    (command::Produced { ignored: produced.ignored + repeated, ..produced }, Vec::new())
}

/// Names an object by its index in the request: the queue counts the calls, which lack the entries that are left out.
fn in_request(mut error: deltaq_service::Error, gaps: &[usize]) -> deltaq_service::Error {
    use Refusal::{KeyFull, ObjectTooLarge};
    if let deltaq_service::Error::Refused(KeyFull { index, .. } | ObjectTooLarge { index, .. }) = &mut error {
        for gap in gaps {
            *index += usize::from(*gap <= *index);
        }
    }
    error
}

/// The reply to a produce call; with the failures of the keys if it was rate-limited.
fn produced_document(
    handle: &Handle,
    calls: &[Call],
    (produced, failures): (command::Produced, Vec<FailureState>),
) -> Produced {
    let moment = handle.moment();
    let limited = calls.iter().filter(|call| call.rate_limited).zip(failures);
    let keys: Vec<_> = limited.map(|(call, state)| wire::failed_key(&call.key, state, moment)).collect();
    placed(handle, Produced { keys: (!keys.is_empty()).then_some(keys), ..wire::produced(produced) })
}

/// Adds the queue's incarnation and the life of the version to the reply. From these, a producer learns that the
/// queue lacks what it has sent before.
pub(super) fn placed(handle: &Handle, produced: Produced) -> Produced {
    let (incarnation, life) = wire::place(handle, produced.resource_version);
    Produced { incarnation, life, ..produced }
}

/// The sequence number of the source's last call: that of this call, unless the queue had already applied this call.
pub(super) async fn last_sequence(
    handle: &Arc<Handle>,
    sequence: Option<Sequence>,
    is_duplicate: bool,
) -> Result<Option<u64>, Problem> {
    match sequence {
        Some(Sequence { source, .. }) if is_duplicate => Ok(handle.last_sequence(&source).await?),
        sequence => Ok(sequence.map(|sequence| sequence.number)),
    }
}
