//! Settles of leases.

use std::time::Duration;

use deltaq_engine::command::{How, Part, Settle, Settled};
use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;

use super::{Difference, World, label, same, time, token_of};
use crate::model;
use crate::properties::script::{Act, LeaseRef, Rest};

impl World {
    pub(super) fn settle(&mut self, settles: &[(LeaseRef, Act)]) -> Result<(), Difference> {
        let how = |token: u64, act: Act| match act {
            Act::Part { n, rest } => {
                let key = self.model.leased_key(token);
                let leased = key.map_or(&[][..], |key| &self.model.items[key].leased);
                // Without such a delta: one that is acknowledged already, or one that was never leased.
                let absent = if n == 3 { u64::MAX >> 11 } else { 1 };
                let through = Rv::new(leased.get(n).map_or(absent, |delta| delta.rv));
                let rest = match rest {
                    Rest::Keep => None,
                    Rest::Ack => Some(How::Ack),
                    Rest::Nack => Some(How::Nack { delay: None, floor: false, error: label(Some("rest")) }),
                    Rest::Release => Some(How::Release),
                };
                How::Part(Box::new(Part { through, rest }))
            }
            Act::Ack => How::Ack,
            Act::Done { delay } => How::Done { delay: delay.map(Duration::from_micros) },
            Act::Nack { delay, floor, error } => {
                How::Nack { delay: delay.map(Duration::from_micros), floor, error: label(error) }
            }
            Act::Release => How::Release,
            Act::Hold { scope, acks, length } => {
                How::Hold { scope, acks, length: Duration::from_micros(length) }
            }
            Act::Reject { error } => How::Reject { error: label(error) },
            Act::Extend { lease } => How::Extend { lease: lease.map(Duration::from_micros) },
        };
        let settles: Vec<(u64, How)> =
            settles.iter().map(|(lease, act)| (self.token(*lease), how(self.token(*lease), *act))).collect();
        let converted: Vec<Settle> =
            settles.iter().map(|(token, how)| Settle { token: token_of(*token), how: how.clone() }).collect();
        let engine = self.engine.settle(time(self.now), &converted);
        let engine: Vec<model::ModelSettled> = engine
            .into_iter()
            .map(|settled| match settled {
                Settled::Ok { worked, failed } => model::ModelSettled::Ok {
                    worked: model::micros(worked),
                    failed: failed
                        .map(|failed| (failed.failures, failed.due.map(Time::as_micros), failed.is_parked)),
                },
                Settled::Held { worked, until } => {
                    model::ModelSettled::Held { worked: model::micros(worked), until: until.as_micros() }
                }
                Settled::Extended { deadline, pending_deltas, deleted } => {
                    let deadline = deadline.as_micros();
                    model::ModelSettled::Extended { deadline, pending: pending_deltas, deleted }
                }
                Settled::Repeated => model::ModelSettled::Repeated,
                Settled::NotLeased => model::ModelSettled::NotLeased,
                Settled::Stale { outcome } => model::ModelSettled::Stale(outcome),
            })
            .collect();
        same("settled", engine, self.model.settle(self.now, &settles))
    }
}
