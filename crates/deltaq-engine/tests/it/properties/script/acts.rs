//! How leases are settled, and which groups are paused.

use deltaq_engine::command::HoldScope;
use deltaq_types::Mode;

use super::{Act, Change, Command, GROUPS, Generator, Rest};

impl Generator {
    /// A walk that moves keys to other groups, which another change of the setting may interrupt.
    pub(super) fn interrupt_walk(&mut self) {
        self.next.push_back(Command::Regroup { budget: self.limits.usize(1..4) });
        if self.limits.bool() {
            self.next.push_back(Command::Configure(Change::Groups(self.limits.u8(..GROUPS))));
        }
        for _ in 0..self.limits.usize(1..4) {
            self.next.push_back(Command::Regroup { budget: self.limits.usize(1..12) });
        }
    }

    pub(super) fn act(&mut self) -> Act {
        let act = self.plain_act();
        if self.mode == Mode::Delta && self.parts.u8(..8) == 0 {
            let rest = [Rest::Keep, Rest::Keep, Rest::Ack, Rest::Nack, Rest::Release];
            return Act::Part { n: self.parts.usize(..4), rest: rest[self.parts.usize(..rest.len())] };
        }
        let acks = matches!(act, Act::Ack);
        // Most holds come alone, and only holds of the same call and scope meet often enough.
        let last = self.last_held.take();
        let one_of = if last.is_some() { 2 } else { 7 };
        if !(acks || matches!(act, Act::Release)) || self.limits.u8(..one_of) > 0 {
            return act;
        }
        let length = match self.limits.u8(..8) {
            0 => 0,
            1 => 2 * 3_600_000_000,
            _ => self.limits.u64(1..1_500),
        };
        let scope = last.unwrap_or_else(|| match self.limits.u8(..8) {
            0 => HoldScope::Key,
            1..4 => HoldScope::Group,
            _ => HoldScope::Queue,
        });
        self.last_held = Some(scope);
        Act::Hold { scope, acks, length }
    }

    /// A pause of a group, or every other time the resume of the group that was paused last.
    pub(super) fn pause_group(&mut self, group: &'static str) -> Command {
        if let Some(group) = self.paused_group.take() {
            Command::PauseGroup { group, paused: false }
        } else {
            self.paused_group = Some(group);
            Command::PauseGroup { group, paused: true }
        }
    }

    fn plain_act(&mut self) -> Act {
        match self.rng.u8(..20) {
            0 | 1 if self.mode == Mode::Keys => {
                Act::Done { delay: self.traces.bool().then(|| self.traces.u64(..2_500)) }
            }
            11..=15 => Act::Nack {
                delay: self.maybe(3, Self::span),
                floor: self.traces.u8(..4) == 0,
                error: self.error(),
            },
            16 => Act::Reject { error: self.error() },
            17 | 18 => Act::Release,
            _ => Act::Ack,
        }
    }
}
