//! Names of producers and workers, and the traces of calls: few texts that stand in many records.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::RandomState;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::json::Text;
use crate::engine::delta::{Provenance, Source};
use crate::engine::trace::{Trace, TraceContext};

/// Most names that are remembered at a time.
const NAMES_MAX: usize = 4_096;

/// Gives equal texts the same memory, so that a million keys of one owner hold its name once.
#[derive(Debug, Default)]
pub(super) struct Names {
    texts: HashSet<Arc<str>, RandomState>,
    /// The one that was read last: what one call queued stands together.
    trace: Option<Trace>,
    /// As with the trace.
    provenance: Provenance,
}

impl Names {
    /// The text, shared with whoever asked for the same text before. The set begins anew when it is
    /// full: names that are in use come back at once, names that were used once do not stay.
    pub(super) fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(name) = self.texts.get(text) {
            return name.clone();
        }
        if self.texts.len() >= NAMES_MAX {
            self.texts.clear();
        }
        let name: Arc<str> = text.into();
        self.texts.insert(name.clone());
        name
    }

    /// As [`share`](Self::share), for a member that may be absent.
    pub(super) fn share_some(&mut self, text: Option<&Text<'_>>) -> Option<Arc<str>> {
        text.map(|text| self.share(text.as_str()))
    }

    /// What a delta has of these, shared with the one before if that has the same.
    pub(super) fn share_provenance(
        &mut self,
        source: Option<&Source>,
        owner: Option<&Source>,
        trace: Option<&Trace>,
    ) -> Provenance {
        self.provenance.same_or_next(source, owner, trace)
    }

    fn share_trace(&mut self, context: TraceContext) -> Trace {
        let same = self.trace.take().filter(|trace| **trace == context);
        let trace = same.unwrap_or_else(|| Trace::new(context));
        self.trace = Some(trace.clone());
        trace
    }
}

/// Who owns a key, written only where it is not the one who sent the object.
#[derive(Debug, Default, Serialize)]
#[serde(untagged)]
pub(super) enum Owner<'a> {
    /// The member is left out: whoever is the `source`, or nobody if there is none.
    #[default]
    Source,
    /// Null: nobody, though there is a `source`.
    Nobody,
    /// Another one.
    Named(Text<'a>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Owner<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Nobody, Self::Named))
    }
}

impl<'a> Owner<'a> {
    /// The owner of what `source` sent.
    pub(super) fn of(owner: Option<&'a Source>, source: Option<&Source>) -> Self {
        match owner {
            _ if owner == source => Self::Source,
            Some(owner) => Self::Named(Text::of(owner)),
            None => Self::Nobody,
        }
    }

    /// Whether the member is left out.
    pub(super) const fn is_source(&self) -> bool {
        matches!(self, Self::Source)
    }

    /// The owner of what `source` sent.
    pub(super) fn read(&self, source: Option<&Source>, names: &mut Names) -> Option<Source> {
        match self {
            Self::Source => source.cloned(),
            Self::Nobody => None,
            Self::Named(owner) => Some(names.share(owner.as_str())),
        }
    }
}

/// The trace of a call, as its header said it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traceparent(TraceContext);

impl Traceparent {
    /// The trace, to be written.
    pub(super) const fn of(context: &TraceContext) -> Self {
        Self(*context)
    }

    /// The trace that was read.
    pub(super) fn read(self, names: &mut Names) -> Trace {
        names.share_trace(self.0)
    }
}

impl Serialize for Traceparent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Traceparent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        let wrong = || de::Error::custom(format_args!("{:?} is no traceparent", text.as_str()));
        TraceContext::parse(text.as_str()).map(Self).ok_or_else(wrong)
    }
}
