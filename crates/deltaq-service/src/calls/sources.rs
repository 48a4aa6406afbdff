//! The sources of a queue: what it knows of them, and what their readers say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::config::Config;
use deltaq_engine::id::Source;
use deltaq_engine::refusal::Refusal;
use deltaq_engine::sources::SourceState;
use deltaq_engine::time::Time;
use deltaq_types::ReflectorReport;

use crate::author::author;
use crate::queue::reflectors::ReflectorStatus;
use crate::queue::source_reports::SourceReport;
use crate::queue::{Handle, Locked};
use crate::{Error, ListPage, Moment};

/// A source as of one moment.
#[derive(Clone, Debug)]
pub struct SourceStatus {
    /// Its name, its keys and its history.
    pub state: SourceState,
    /// When the source was last in contact; `None` if the queue does not remember it.
    pub contact: Option<Time>,
    /// Whether the source is silent for longer than its threshold; `None` without a threshold.
    pub is_stale: Option<bool>,
    /// The problem that was reported last.
    pub report: Option<SourceReport>,
}

/// What a call changes of a source.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceSettings {
    /// The last sequence number, or `None` to forget it.
    pub sequence: Option<Option<u64>>,
    /// How long the source may be silent, or `None` for no threshold.
    pub stale_after: Option<Option<Duration>>,
    /// Whether this threshold replaces only one that was proposed too.
    pub is_proposed: bool,
}

impl Handle {
    fn status_of(&self, locked: &Locked, state: SourceState, now: Time) -> SourceStatus {
        let contact = locked.contact(&state.source);
        let is_stale = state.history.as_ref().and_then(|history| history.is_stale(contact, now));
        let report = self.source_reports.of(&state.source, now);
        SourceStatus { state, contact, is_stale, report }
    }

    /// The sources after the name `after`, in the order of names.
    ///
    /// # Errors
    /// Same as [`items`](Self::items).
    pub async fn sources(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<ListPage<SourceStatus, Source>, Error> {
        self.read_state(|locked, moment| {
            let (queue, after, asked) = (&locked.queue, after.as_deref(), limit.saturating_add(1));
            let known = queue.sources_after(after, asked).into_iter();
            let mut states: BTreeMap<Source, SourceState> =
                known.map(|state| (state.source.clone(), state)).collect();
            for source in self.source_reports.sources_after(after, asked, moment.now) {
                let new = || SourceState { source: source.clone(), keys: 0, history: None };
                states.entry(source.clone()).or_insert_with(new);
            }
            let has_more = states.len() > limit;
            let listed = states.into_values().take(limit);
            let entries: Vec<_> = listed.map(|state| self.status_of(locked, state, moment.now)).collect();
            let next = entries.last().filter(|_| has_more).map(|last| last.state.source.clone());
            ListPage { entries, next, resource_version: queue.resource_version(), moment }
        })
        .await
    }

    /// Changes what the queue remembers of a source. Returns the source, or `None` if the queue does not remember it; a
    /// threshold makes the queue remember it.
    ///
    /// # Errors
    /// A refusal of the engine; [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn change_source(
        self: &Arc<Self>,
        source: &Source,
        settings: SourceSettings,
    ) -> Result<Option<(SourceStatus, Moment)>, Error> {
        let SourceSettings { sequence, stale_after, is_proposed } = settings;
        let (changed, commit) = self.change(|locked, now| {
            let mut state = None;
            if let Some(sequence) = sequence {
                state = locked.queue.renumber(now, source, sequence)?;
                // Both changes are made, or none.
                if state.is_none() {
                    return Ok(None);
                }
            }
            if let Some(stale_after) = stale_after {
                state = locked.queue.configure_source(now, source, stale_after, is_proposed);
            }
            let moment = self.moment();
            Ok(state.map(|state| (self.status_of(locked, state, moment.now), moment)))
        })?;
        commit.wait().await?;
        changed
    }

    /// Sets how long several sources may be silent, after a check of the settings of the queue. Returns false, and changes nothing, if
    /// the queue can't remember all of them.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`]; the inner error is that of the check.
    pub async fn configure_sources<E>(
        self: &Arc<Self>,
        thresholds: &[(Source, Option<Duration>)],
        check: impl Fn(&Config) -> Result<(), E>,
    ) -> Result<Result<bool, E>, Error> {
        let (changed, commit) = self.change(|locked, now| {
            check(locked.queue.config())?;
            Ok(locked.queue.configure_sources(now, thresholds))
        })?;
        commit.wait().await?;
        Ok(changed)
    }

    /// Records that a source was reached and has no change.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn reach_source(self: &Arc<Self>, source: &Source) -> Result<(), Error> {
        let ((), commit) = self.change(|locked, now| self.note_contact(locked, source, now))?;
        commit.wait().await?;
        Ok(())
    }

    /// Notes a heartbeat of a reflector.
    ///
    /// # Errors
    /// [`Refusal::MemoryFull`]; or the errors of [`items`](Self::items).
    pub async fn note_reflector(&self, report: ReflectorReport) -> Result<(), Error> {
        let noted = self.read_state(|state, moment| {
            self.memory().check(self.reflectors.added_by(&report))?;
            self.reflectors.beat(report, author().token, moment.now);
            self.note_held(state);
            Ok::<_, Refusal>(())
        });
        Ok(noted.await??)
    }

    /// The reflectors behind a source and an instance, at most `limit`, and the moment of the read.
    ///
    /// # Errors
    /// Same as [`items`](Self::items).
    pub async fn reflectors(
        &self,
        after: Option<(String, String)>,
        limit: usize,
    ) -> Result<(Vec<ReflectorStatus>, Moment), Error> {
        self.read(|_, moment| (self.reflectors.after(after, limit, moment.now), moment)).await
    }

    /// Replaces the problem of a source, which the list of the sources shows.
    ///
    /// # Errors
    /// [`Refusal::MemoryFull`]; or the errors of [`items`](Self::items).
    pub async fn report_source(&self, source: Source, problem: Option<String>) -> Result<(), Error> {
        let noted = self.read_state(|state, moment| {
            let added = problem.as_ref().map_or(0, |problem| self.source_reports.added_by(&source, problem));
            self.memory().check(added)?;
            let report = problem.map(|problem| SourceReport { problem, at: moment.now, by: author().token });
            self.source_reports.set(source, report);
            self.note_held(state);
            Ok::<_, Refusal>(())
        });
        Ok(noted.await??)
    }
}
