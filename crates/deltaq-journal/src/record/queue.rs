//! The state of a queue without its keys, as JSON.

use std::sync::Arc;

use deltaq_engine::command::Outcome;
use deltaq_engine::config::Config;
use deltaq_engine::event::ReplaceCounts;
use deltaq_engine::follow::FollowPosition;
use deltaq_engine::id::{Rv, Source, Token};
use deltaq_engine::initial::InitialList;
use deltaq_engine::json::{Float, Text};
use deltaq_engine::key::Key;
use deltaq_engine::lives::Life;
use deltaq_engine::object_version::ObjectVersion;
use deltaq_engine::omit::is_default;
use deltaq_engine::rate_limit::BucketLevel;
use deltaq_engine::snapshot::{LastReplace, QueueState, RememberedVersion, SourceHistory};
use deltaq_engine::time::Time;
use serde::{Deserialize, Serialize};

use super::names::Names;

/// Mirrors [`QueueState`] without `rv`, which has a column of its own.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireState<'a> {
    lives: Vec<Life>,
    last_at: u64,
    auto_created: bool,
    paused: bool,
    closed: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    closes_at_once: bool,
    initial: InitialList,
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket: Option<WireLevel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_resync: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    last_replace: Option<WireLastReplace<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    followed: Option<FollowPosition>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    sources: Vec<WireSource<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    versions: Vec<WireVersion<'a>>,
    config: Arc<Config>,
    settled: Vec<WireSettled>,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireLevel {
    tokens: Float,
    at: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireLastReplace<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    source: Option<Text<'a>>,
    started: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    aborted: bool,
    counts: ReplaceCounts,
}

/// Mirrors [`SourceHistory`].
#[derive(Debug, Serialize, Deserialize)]
struct WireSource<'a> {
    #[serde(borrow)]
    source: Text<'a>,
    last_call: u64,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    last_replace: Option<WireLastReplace<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_replaced: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
}

/// Mirrors [`RememberedVersion`].
#[derive(Debug, Serialize, Deserialize)]
struct WireVersion<'a> {
    rv: Rv,
    at: u64,
    #[serde(borrow)]
    key: Text<'a>,
    version: ObjectVersion,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<ObjectVersion>,
}

/// Consecutive leases with the same outcome; usually all of them.
#[derive(Debug, Serialize, Deserialize)]
struct WireSettled {
    #[serde(with = "OutcomeWord")]
    outcome: Outcome,
    tokens: Vec<Token>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Outcome", rename_all = "snake_case")]
enum OutcomeWord {
    Acked,
    Done,
    Nacked,
    Released,
    Rejected,
    Expired,
    Unknown,
}

impl<'a> WireState<'a> {
    /// The mirror of `state`, for writing.
    pub(super) fn of(state: &'a QueueState) -> Self {
        let level = |level: BucketLevel| WireLevel { tokens: Float(level.tokens), at: level.at.as_micros() };
        let alike = state.settled.chunk_by(|(_, a), (_, b)| a == b);
        Self {
            lives: state.lives.clone(),
            last_at: state.last_at.as_micros(),
            auto_created: state.auto_created,
            paused: state.paused,
            closed: state.closed,
            closes_at_once: state.closes_at_once,
            initial: state.initial,
            bucket: state.bucket.map(level),
            next_resync: state.next_resync.map(Time::as_micros),
            last_replace: state.last_replace.as_ref().map(WireLastReplace::of),
            followed: state.followed,
            sources: state.sources.iter().map(WireSource::of).collect(),
            versions: state.versions.iter().map(WireVersion::of).collect(),
            config: state.config.clone(),
            settled: alike.filter_map(WireSettled::of).collect(),
        }
    }

    /// The state at the event `rv`.
    pub(super) fn read(&self, rv: Rv, names: &mut Names) -> Result<QueueState, String> {
        let level =
            |level: &WireLevel| BucketLevel { tokens: level.tokens.0, at: Time::from_micros(level.at) };
        Ok(QueueState {
            rv,
            lives: self.lives.clone(),
            last_at: Time::from_micros(self.last_at),
            config: self.config.clone(),
            auto_created: self.auto_created,
            paused: self.paused,
            closed: self.closed,
            closes_at_once: self.closes_at_once,
            initial: self.initial,
            settled: self.settled.iter().flat_map(WireSettled::leases).collect(),
            bucket: self.bucket.as_ref().map(level),
            next_resync: self.next_resync.map(Time::from_micros),
            last_replace: self.last_replace.as_ref().map(|last| last.read(names)),
            followed: self.followed,
            sources: self.sources.iter().map(|source| source.read(names)).collect(),
            versions: self.versions.iter().map(WireVersion::read).collect::<Result<_, _>>()?,
        })
    }
}

impl WireSettled {
    fn of(alike: &[(Token, Outcome)]) -> Option<Self> {
        let (_, outcome) = *alike.first()?;
        Some(Self { outcome, tokens: alike.iter().map(|(token, _)| *token).collect() })
    }

    fn leases(&self) -> impl Iterator<Item = (Token, Outcome)> {
        self.tokens.iter().map(|token| (*token, self.outcome))
    }
}

impl<'a> WireSource<'a> {
    fn of((source, history): &'a (Source, SourceHistory)) -> Self {
        Self {
            source: Text::of(source),
            last_call: history.last_call.as_micros(),
            last_replace: history.last_replace.as_ref().map(WireLastReplace::of),
            last_replaced: history.last_replaced.map(Time::as_micros),
            sequence: history.sequence,
        }
    }

    fn read(&self, names: &mut Names) -> (Source, SourceHistory) {
        let mut source: Source = self.source.as_str().into();
        names.share(source.as_mut());
        let history = SourceHistory {
            last_call: Time::from_micros(self.last_call),
            last_replace: self.last_replace.as_ref().map(|last| last.read(names)),
            last_replaced: self.last_replaced.map(Time::from_micros),
            sequence: self.sequence,
        };
        (source, history)
    }
}

impl<'a> WireVersion<'a> {
    fn of(remembered: &'a RememberedVersion) -> Self {
        let RememberedVersion { key, version, before, rv, at } = remembered;
        Self {
            rv: *rv,
            at: at.as_micros(),
            key: Text::of(key.as_str()),
            version: version.clone(),
            before: before.clone(),
        }
    }

    fn read(&self) -> Result<RememberedVersion, String> {
        let key = Key::new(self.key.as_str()).map_err(|error| error.to_string())?;
        Ok(RememberedVersion {
            key,
            version: self.version.clone(),
            before: self.before.clone(),
            rv: self.rv,
            at: Time::from_micros(self.at),
        })
    }
}

impl<'a> WireLastReplace<'a> {
    fn of(last: &'a LastReplace) -> Self {
        Self {
            source: last.source.as_deref().map(Text::of),
            started: last.started.as_micros(),
            ended: last.ended.map(Time::as_micros),
            aborted: last.aborted,
            counts: last.counts,
        }
    }

    fn read(&self, names: &mut Names) -> LastReplace {
        LastReplace {
            source: names.shared(self.source.as_ref()).map(Source::from),
            counts: self.counts,
            started: Time::from_micros(self.started),
            ended: self.ended.map(Time::from_micros),
            aborted: self.aborted,
        }
    }
}
