//! A server on a database whose primary is lost under load, again and again. Patroni makes the synchronous standby the primary.

use std::sync::Arc;
use std::time::Duration;

use deltaq_runtime::clock::Clock;

use super::alarm::Alarm;
use super::client::Client;
use super::cycles::Report;
use super::database::until_changes_are_taken;
use super::history::Crash;
use super::judge::Judge;
use super::load::Clients;
use super::queues::QUEUES;
use super::snapshot::{create, drain, snapshot};
use crate::harness::server::{Spawned, Store};
use crate::system::postgres::patroni::{Loss, Patroni};

/// Duration of the load before and after a failover, in milliseconds.
const LOAD_MS: std::ops::Range<u64> = 100..1_000;
/// The whole machine of the primary is lost in one of so many rounds, which takes longer.
const MACHINES_ONE_IN: usize = 4;

/// Runs that many rounds, or until the first fault.
pub(super) fn run(seed: u64, rounds: usize) -> Report {
    let clock = Clock::system();
    let mut rng = fastrand::Rng::with_seed(seed);
    let alarm = Arc::new(Alarm::new());
    let mut clients = Clients::new(&clock, &mut rng, &alarm);
    let mut watcher = Client::new(clock.clone(), 0, alarm);
    let mut judge = Judge::new(QUEUES.iter().map(|spec| (spec.name, spec.mode)));
    let mut report = Report::default();
    let mut patroni = Patroni::start();
    let server = Spawned::start(&Store::Url(patroni.url()));
    create(server.api);
    watcher.connect_to(server.api);
    let first = snapshot(&mut watcher);
    report.read(&mut judge, std::mem::take(&mut watcher.calls), None, first);
    for round in 0..rounds {
        let loss =
            if round % MACHINES_ONE_IN == MACHINES_ONE_IN - 1 { Loss::Machine } else { Loss::Postgres };
        let [before, after] = [(); 2].map(|()| Duration::from_millis(rng.u64(LOAD_MS)));
        clients.run(server.api, || {
            std::thread::sleep(before);
            patroni.lose_primary(loss);
            until_changes_are_taken(&server);
            std::thread::sleep(after);
        });
        patroni.until_protected();
        until_changes_are_taken(&server);
        let crash = Crash { gone: clock.monotonic_us(), restart: None };
        let snapshots = snapshot(&mut watcher);
        let mut calls = clients.take_calls();
        calls.append(&mut watcher.calls);
        report.read(&mut judge, calls, Some(crash), snapshots);
        report.cycles += 1;
        if !report.faults.is_empty() {
            report.last_words = server.last_words();
            return report;
        }
    }
    let drained = drain(&mut watcher).and_then(|()| snapshot(&mut watcher));
    report.read(&mut judge, std::mem::take(&mut watcher.calls), None, drained);
    report
}
