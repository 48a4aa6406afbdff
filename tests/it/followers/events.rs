//! A judge of followers in mode `events`: between two positions, a follower takes exactly the events of the followed queue.

use std::collections::BTreeMap;

use deltaq_engine::delta::DeltaKind;
use deltaq_engine::event::{Appended, Event, EventKind, Origin};
use deltaq_engine::follow::{FollowPhase, FollowPosition};
use deltaq_engine::followed::{FollowedChange, FollowedEvent};
use deltaq_journal::store::QueueId;

/// What followers in mode `events` have taken, by the journals of all queues.
#[derive(Debug, Default)]
pub(crate) struct TakenEvents {
    /// The events of each queue, by its incarnation.
    followed: BTreeMap<u32, Vec<FollowedEvent>>,
    followers: BTreeMap<QueueId, Taken>,
    /// How many events followers have taken.
    pub(crate) count: usize,
}

#[derive(Debug, Default)]
struct Taken {
    /// The last position.
    position: Option<FollowPosition>,
    /// What the follower has taken since.
    deltas: Vec<Appended>,
}

impl TakenEvents {
    /// Notes an event of any queue.
    pub(crate) fn note_followed(&mut self, incarnation: u32, event: &Event) {
        self.followed.entry(incarnation).or_default().extend(FollowedEvent::of(event));
    }

    /// Notes an event of a follower. The events of the followed queue are noted already.
    pub(crate) fn note_follower(
        &mut self,
        follower: QueueId,
        prefix: &str,
        event: &Event,
    ) -> Result<(), String> {
        let taken = self.followers.entry(follower).or_default();
        match &event.kind {
            EventKind::Appended(appended) if appended.origin != Origin::Resync => {
                taken.deltas.push(appended.clone());
            }
            EventKind::Configured { .. } => *taken = Taken::default(),
            EventKind::Followed { position } => {
                let deltas = std::mem::take(&mut taken.deltas);
                let before = taken.position.replace(*position);
                let goes_on = |before: &FollowPosition| {
                    before.incarnation == position.incarnation
                        && [before.phase, position.phase] == [FollowPhase::Changes; 2]
                };
                if let Some(FollowPosition { phase: FollowPhase::List { since }, .. }) = before
                    && position.phase == FollowPhase::Changes
                    && position.after != since
                {
                    return Err(format!("{follower:?}: a list since {since:?} ends at {:?}", position.after));
                }
                if let Some(before) = before.filter(goes_on) {
                    let all = self.followed.get(&position.incarnation).map_or(&[][..], Vec::as_slice);
                    let is_between = |event: &&FollowedEvent| {
                        event.rv > before.after
                            && event.rv <= position.after
                            && event.key.as_str().starts_with(prefix)
                    };
                    let sent: Vec<_> = all.iter().filter(is_between).collect();
                    self.count += deltas.len();
                    compare(&sent, &deltas).map_err(|found| format!("{follower:?}: {found}"))?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Compares what was sent with what was taken.
fn compare(sent: &[&FollowedEvent], taken: &[Appended]) -> Result<(), String> {
    let mut taken = taken.iter().peekable();
    for (index, event) in sent.iter().enumerate() {
        let is_this = |delta: &&Appended, event: &FollowedEvent| {
            delta.key == event.key
                && match &event.change {
                    FollowedChange::Queued(sent) => {
                        (delta.delta, &delta.object, delta.final_state_unknown)
                            == (sent.kind, &sent.object, sent.final_state_unknown)
                    }
                    FollowedChange::Left => delta.delta == DeltaKind::Deleted,
                    FollowedChange::Dropped => delta.delta == DeltaKind::Updated,
                }
        };
        let is_later = |delta: &&Appended| sent.get(index + 1).is_some_and(|next| is_this(delta, next));
        let is_optional = match &event.change {
            FollowedChange::Queued(_) => false,
            // The follower may not have the key. After a drop, the key may have no earlier object, or a newer one.
            FollowedChange::Left | FollowedChange::Dropped => true,
        };
        let found = taken.next_if(|delta| {
            is_this(delta, event) && !(matches!(event.change, FollowedChange::Dropped) && is_later(delta))
        });
        if found.is_none() && !is_optional {
            return Err(format!("{event:?} is missing before {:?}", taken.peek()));
        }
    }
    taken.next().map_or(Ok(()), |delta| Err(format!("{delta:?} was not sent, or not then")))
}
