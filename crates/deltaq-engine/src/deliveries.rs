//! Deliveries of webhooks and CloudEvents: the ids of those that were applied, so that a repeat changes nothing, and those that could
//! not be applied, which are kept until an operator has looked at them.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};

use super::id::Rv;
use super::limits::{DELIVERY_IDS_MAX, DELIVERY_IDS_SECS, KEPT_DELIVERIES_BYTES_MAX, KEPT_DELIVERIES_MAX};
use super::omit::is_default;
use super::time::Time;

/// Approximate size of a remembered id in bytes.
const ID_BYTES: usize = 64;
/// Approximate size of a kept delivery in bytes, excluding its texts.
const KEPT_BYTES: usize = 256;

/// The id of a delivery: a hash of the id that its sender has given it. It has the same size for all senders.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeliveryId(u128);

impl DeliveryId {
    /// The id with this hash.
    #[must_use]
    pub const fn new(hash: u128) -> Self {
        Self(hash)
    }
}

impl fmt::Debug for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl From<DeliveryId> for String {
    fn from(id: DeliveryId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for DeliveryId {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u128::from_str_radix(&text, 16).map(Self)
    }
}

/// A delivery that could not be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnappliedDelivery {
    /// Its id, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<DeliveryId>,
    /// Whether the settings leave it out on purpose. Such a delivery is dropped before others.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_filtered: bool,
    /// Why it could not be applied, as a word.
    pub reason: Arc<str>,
    /// Why it could not be applied, as a sentence.
    pub detail: Arc<str>,
    /// Its headers, without credentials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(Arc<str>, Arc<str>)>,
    /// Its body.
    pub body: Arc<str>,
    /// Whether the body was not UTF-8, so that a part of it is lost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_lossy: bool,
}

/// A delivery that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptDelivery {
    /// The event that kept it. This is its number.
    pub rv: Rv,
    /// When it arrived.
    pub at: Time,
    /// The delivery.
    pub delivery: Arc<UnappliedDelivery>,
}

/// An id that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedDelivery {
    /// When the delivery was applied.
    pub at: Time,
    /// Its id.
    pub id: DeliveryId,
}

/// The deliveries of a queue. What exceeds a limit is dropped, oldest first; one kept delivery always stays.
///
/// Invariant: `ids` has the ids of `received`, and `kept_bytes` is the sum of the sizes of `kept`.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    ids: HashSet<DeliveryId, RandomState>,
    received: VecDeque<ReceivedDelivery>,
    kept: VecDeque<KeptDelivery>,
    kept_bytes: usize,
}

impl Deliveries {
    /// Whether a delivery with this id was applied.
    pub(super) fn has(&self, id: DeliveryId) -> bool {
        self.ids.contains(&id)
    }

    /// Remembers the id of a delivery that was applied. Returns whether it was not remembered before.
    pub(super) fn receive(&mut self, received: ReceivedDelivery) -> bool {
        let is_new = self.ids.insert(received.id);
        if is_new {
            self.received.push_back(received);
        }
        let age = Duration::from_secs(DELIVERY_IDS_SECS);
        while let Some(oldest) = self.received.front()
            && (self.received.len() > DELIVERY_IDS_MAX || oldest.at.plus(age) < received.at)
        {
            self.ids.remove(&oldest.id);
            self.received.pop_front();
        }
        self.discard(|kept| kept.delivery.id == Some(received.id));
        is_new
    }

    /// Keeps a delivery. It replaces one with the same id.
    pub(super) fn keep(&mut self, kept: KeptDelivery) {
        if let Some(id) = kept.delivery.id {
            self.discard(|earlier| earlier.delivery.id == Some(id));
        }
        self.kept_bytes += bytes(&kept);
        self.kept.push_back(kept);
        while self.kept.len() > 1
            && (self.kept.len() > KEPT_DELIVERIES_MAX || self.kept_bytes > KEPT_DELIVERIES_BYTES_MAX)
        {
            let others = self.kept.len() - 1;
            let filtered = self.kept.iter().take(others).position(|kept| kept.delivery.is_filtered);
            if let Some(dropped) = self.kept.remove(filtered.unwrap_or_default()) {
                self.kept_bytes -= bytes(&dropped);
            }
        }
    }

    /// Keeps a delivery no longer.
    pub(super) fn drop_kept(&mut self, number: Rv) {
        self.discard(|kept| kept.rv == number);
    }

    fn discard(&mut self, is_discarded: impl Fn(&KeptDelivery) -> bool) {
        let Self { kept, kept_bytes, .. } = self;
        kept.retain(|kept| {
            let stays = !is_discarded(kept);
            *kept_bytes -= if stays { 0 } else { bytes(kept) };
            stays
        });
    }

    /// The kept deliveries, oldest first.
    pub(super) fn kept(&self) -> impl DoubleEndedIterator<Item = &KeptDelivery> + ExactSizeIterator {
        self.kept.iter()
    }

    /// Approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.received.len() * ID_BYTES + self.kept_bytes
    }

    /// The content for a checkpoint.
    pub(super) fn parts(&self) -> (Vec<ReceivedDelivery>, Vec<KeptDelivery>) {
        (self.received.iter().copied().collect(), self.kept.iter().cloned().collect())
    }

    /// Restores the deliveries from a checkpoint.
    pub(super) fn restore(received: Vec<ReceivedDelivery>, kept: Vec<KeptDelivery>) -> Self {
        let (ids, kept_bytes) =
            (received.iter().map(|received| received.id).collect(), kept.iter().map(bytes).sum());
        Self { ids, received: received.into(), kept: kept.into(), kept_bytes }
    }

    /// Checks the invariants.
    pub(super) fn check(&self) -> Result<(), String> {
        let sum: usize = self.kept.iter().map(bytes).sum();
        let are_known = self.received.iter().all(|received| self.ids.contains(&received.id));
        if sum != self.kept_bytes || self.ids.len() != self.received.len() || !are_known {
            return Err(String::from("the deliveries are counted wrongly"));
        }
        Ok(())
    }
}

impl UnappliedDelivery {
    /// What the delivery takes in memory, in bytes (approximate).
    #[must_use]
    pub fn bytes(&self) -> usize {
        let Self { reason, detail, headers, body, .. } = self;
        let of_headers: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        KEPT_BYTES + reason.len() + detail.len() + of_headers + body.len()
    }
}

fn bytes(kept: &KeptDelivery) -> usize {
    kept.delivery.bytes()
}
