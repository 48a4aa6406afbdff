//! A slot of a worker: pop, run, settle, again.

use std::cell::Cell;
use std::time::Duration;

use deltaq_client::{Call, Error, pauses_without_queue};
use deltaq_types::duration;
use deltaq_types::{PopBody, SettleAs, SettleBody, SettleCall, SettleResult, SettledDocument, SettledList};
use tokio::time::{Instant, sleep, timeout};

use super::child::{Ended, Running};
use super::lease::Lost;
use super::worker::{Item, Worker, is_absent, pause_of, pauses, report_absence};
use super::{Stop, Work};
use crate::cli::client::failure::{Failure, text_of};
use crate::cli::client::output::{clean, duration_text};
use crate::cli::client::reply::{PoppedTexts, parse};
use crate::cli::client::session::Session;

/// The exit status of a command whose data is wrong (EX_DATAERR).
const STATUS_REJECT: i32 = 65;
/// How long the calls at the end may take.
const END: Duration = Duration::from_secs(5);
/// Longest error of a settle, in bytes.
const ERROR_BYTES_MAX: usize = deltaq_types::terms::ERROR_BYTES_MAX;

/// How the run of a command ended.
enum Outcome {
    /// The command ended by itself.
    Ended(Ended),
    /// The lease was lost, and the command was stopped.
    Lost(Lost),
    /// The worker ends, and the command was stopped.
    Interrupted,
}

impl<'a> Worker<'a> {
    pub(super) fn new(work: &'a Work, session: &'a Session, stop: Stop) -> Self {
        let name = work.worker.clone().unwrap_or_else(|| {
            let host = rustix::system::uname();
            format!("{}:{}", host.nodename().to_string_lossy(), std::process::id())
        });
        let lease = work.lease.map(|lease| lease.to_string());
        let (said_absent, acknowledged, failed) = (Cell::new(false), Cell::new(0), Cell::new(0));
        Self { work, session, stop, name, lease, said_absent, acknowledged, failed }
    }

    /// Works until the worker stops.
    pub(super) async fn run(&self) -> Result<(), Failure> {
        let ended = self.work_off().await;
        if ended.is_err() {
            // The other slots finish their keys.
            self.stop.soft.cancel();
        }
        ended
    }

    async fn work_off(&self) -> Result<(), Failure> {
        while !self.stop.soft.is_cancelled() {
            let Some(popped) = self.pop().await? else { return Ok(()) };
            match popped {
                Some(item) => self.process(item).await?,
                None if self.work.until_empty => return Ok(()),
                None => {}
            }
        }
        Ok(())
    }

    /// Pops a key. The outer `None` means that the worker ends.
    async fn pop(&self) -> Result<Option<Option<Item>>, Failure> {
        let id = random_id()?;
        let (mut backoff, mut absence) = (pauses(), pauses_without_queue());
        loop {
            let reply = tokio::select! {
                reply = self.try_pop(&id) => reply,
                () = self.stop.soft.cancelled() => {
                    self.release_unread(&id).await?;
                    return Ok(None);
                }
            };
            let error = match reply {
                Ok(popped) => {
                    self.said_absent.set(false);
                    return Ok(Some(item(popped)?));
                }
                Err(Failure::Client(error)) => error,
                Err(failure) => return Err(failure),
            };
            if error.code() == Some("queue-closed") {
                report(&format!("queue {} is closed, and no key is ready", self.work.queue));
                return Ok(None);
            }
            let awaits_queue = is_absent(&error) && !self.work.until_empty;
            let pause = if awaits_queue { absence.next() } else { pause_of(&error, &mut backoff) };
            let Some(pause) = pause else { return Err(error.into()) };
            if awaits_queue && !self.said_absent.replace(true) {
                report_absence(&self.work.queue);
            } else if !awaits_queue && backoff.failures() == 1 {
                report(&format!("{}; trying again", text_of(&error)));
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = self.stop.soft.cancelled() => {
                    self.release_unread(&id).await?;
                    return Ok(None);
                }
            }
        }
    }

    async fn try_pop(&self, id: &str) -> Result<PoppedTexts, Failure> {
        let until_empty = self.work.until_empty;
        let wait = if until_empty { Duration::ZERO } else { self.session.longest_wait().await? };
        let call = self.pop_call(id, &duration::format(wait))?.wait(wait);
        Ok(self.session.client.fetch(call).await?)
    }

    fn pop_call(&self, id: &str, wait: &str) -> Result<Call, Failure> {
        Ok(self
            .call("pop")?
            .query("wait", Some(wait))
            .query("worker", Some(&self.name))
            .query("id", Some(id))
            .query("lease_duration", self.lease.as_deref())
            .query("with", self.work.with_known.then_some("known"))
            .json(&PopBody::default()))
    }

    /// Releases the key of a pop whose reply was not awaited: a repeat with the same id returns the same key.
    async fn release_unread(&self, id: &str) -> Result<(), Failure> {
        let call = self.pop_call(id, "0s")?;
        let reply = timeout(END, self.session.client.fetch::<PoppedTexts>(call)).await;
        if let Ok(Ok(popped)) = reply
            && let Some(item) = item(popped)?
        {
            let _in_time = timeout(END, self.settle(&item, SettleAs::Release, None)).await;
        }
        Ok(())
    }

    /// Runs the command and settles the lease.
    async fn process(&self, item: Item) -> Result<(), Failure> {
        let running =
            Running::start(&self.work.command, &self.variables(&item), format!("{}\n", item.text.get()));
        let running = match running {
            Ok(running) => running,
            Err(error) => {
                let program =
                    self.work.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
                let failure = Failure::Other(format!("can't run {program}: {error}; its key was released"));
                let _in_time = timeout(END, self.settle(&item, SettleAs::Release, None)).await;
                return Err(failure);
            }
        };
        let key = &item.popped.key;
        let outcome = self.supervise(&item, running).await;
        match outcome.map_err(|error| Failure::Other(format!("can't wait for the command: {error}")))? {
            Outcome::Ended(ended) if ended.status.success() => {
                self.settle(&item, SettleAs::Ack, None).await?;
                self.acknowledged.set(self.acknowledged.get() + 1);
                if self.work.verbose {
                    report(&format!("{key}: acknowledged"));
                }
            }
            Outcome::Ended(ended) => {
                let is_reject = ended.status.code() == Some(STATUS_REJECT);
                let (how, done) =
                    if is_reject { (SettleAs::Reject, "rejected") } else { (SettleAs::Nack, "failed") };
                let error = ended.error();
                let words = first_words(&error);
                let settled = self.settle(&item, how, Some(error)).await?;
                self.failed.set(self.failed.get() + 1);
                let next = settled.map_or(String::new(), |settled| self.next_delivery(&settled));
                report(&format!("{key}: {done} at attempt {}{next}: {words}", item.popped.attempt));
            }
            Outcome::Lost(Lost::Ended(why)) => {
                report(&format!("{key}: {why}; the command was stopped"));
            }
            Outcome::Lost(Lost::NoContact(_)) => {
                report(&format!("{key}: the lease could not be extended; the command was stopped"));
                // A lease that outlived the loss of contact would keep the key from other workers.
                self.settle(&item, SettleAs::Release, None).await?;
            }
            Outcome::Interrupted => {
                let settled = timeout(END, self.settle(&item, SettleAs::Release, None)).await;
                let how = match settled {
                    Ok(Ok(Some(_))) => "released",
                    _ => "the server has not confirmed its release",
                };
                report(&format!("{key}: {how}; the command was stopped"));
            }
        }
        Ok(())
    }

    async fn supervise(&self, item: &Item, mut running: Running) -> std::io::Result<Outcome> {
        let lost = tokio::select! {
            () = running.ended() => return Ok(Outcome::Ended(running.finish().await?)),
            lost = self.keep(item) => Some(lost),
            () = self.stop.hard.cancelled() => None,
        };
        let kill_after = Duration::from(self.work.kill_after);
        let patience = match &lost {
            Some(Lost::NoContact(end)) => kill_after.min(end.saturating_duration_since(Instant::now())),
            _ => kill_after,
        };
        running.stop(patience).await?;
        Ok(lost.map_or(Outcome::Interrupted, Outcome::Lost))
    }

    /// Settles the lease of an item. The call is repeated until the server has answered, or until the worker has to end.
    /// Returns the result, if the server has one.
    async fn settle(
        &self,
        item: &Item,
        how: SettleAs,
        error: Option<String>,
    ) -> Result<Option<SettledDocument>, Failure> {
        let error = error.map(|error| bounded(&error));
        let settle =
            SettleCall { error: error.map(Into::into), ..SettleCall::new(item.popped.lease.id.clone(), how) };
        let body = SettleBody { settle: vec![settle] };
        let mut backoff = pauses();
        loop {
            let reply: Result<SettledList, Error> =
                self.session.client.fetch_results(self.call("settle")?.json(&body)).await;
            let settled = match reply {
                Ok(settled) => settled.settled,
                Err(error) if matches!(error.code(), Some("queue-not-found" | "queue-deleted")) => {
                    report(&format!("{}: its queue was deleted", item.popped.key));
                    return Ok(None);
                }
                Err(error) => {
                    let Some(pause) = pause_of(&error, &mut backoff) else { return Err(error.into()) };
                    if backoff.failures() == 1 {
                        report(&format!("{}; trying again", text_of(&error)));
                    }
                    tokio::select! {
                        () = sleep(pause) => continue,
                        () = self.stop.hard.cancelled() => {}
                    }
                    report(&format!("{}: not settled; its lease will expire", item.popped.key));
                    return Ok(None);
                }
            };
            let settled = settled.into_iter().next();
            let stale = settled.as_ref().filter(|settled| settled.result == SettleResult::Stale);
            if let Some(outcome) = stale.and_then(|settled| settled.outcome) {
                let (key, how, outcome) = (&item.popped.key, how.as_str(), outcome.as_str());
                report(&format!("{key}: the lease had ended ({outcome}) before its {how}"));
            }
            return Ok(settled);
        }
    }

    /// When a failed key is delivered again.
    fn next_delivery(&self, settled: &SettledDocument) -> String {
        if settled.parked == Some(true) {
            return ", parked".to_owned();
        }
        let now_us = self.session.clock.wall_us();
        let wait_ms = settled.due_at.map(|due_at| due_at.as_micros().saturating_sub(now_us) / 1_000);
        wait_ms.map_or(String::new(), |wait_ms| format!(", again in {}", duration_text(wait_ms)))
    }

    /// Reports the numbers of keys, if there were any.
    pub(super) fn report_sums(&self) {
        let (acknowledged, failed) = (self.acknowledged.get(), self.failed.get());
        if acknowledged + failed > 0 {
            report(&format!("deliveries: {acknowledged} acknowledged, {failed} failed"));
        }
    }

    pub(super) fn call(&self, operation: &str) -> Result<Call, Failure> {
        self.session.on_queue(operation, &self.work.queue)
    }

    fn variables(&self, item: &Item) -> [(&'static str, String); 8] {
        let popped = &item.popped;
        [
            ("DELTAQ_QUEUE", self.work.queue.to_string()),
            ("DELTAQ_KEY", popped.key.clone()),
            ("DELTAQ_ATTEMPT", popped.attempt.to_string()),
            ("DELTAQ_FAILURES", popped.failures.to_string()),
            ("DELTAQ_LEASE", popped.lease.id.clone()),
            ("DELTAQ_FENCING_TOKEN", popped.lease.token.to_string()),
            ("DELTAQ_WORKER", self.name.clone()),
            ("DELTAQ_URL", self.session.client.address()),
        ]
    }
}

fn report(text: &str) {
    eprintln!("deltaq: {}", clean(text));
}

fn item(popped: PoppedTexts) -> Result<Option<Item>, Failure> {
    let received_at = Instant::now();
    let Some(text) = popped.items.into_iter().next() else { return Ok(None) };
    Ok(Some(Item { popped: parse(&text)?, text, received_at }))
}

/// The name of a pop. Its bits can't be guessed: the name is all that is needed to get the same lease.
fn random_id() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|error| {
        Failure::Other(format!("can't get random bytes from the operating system: {error}"))
    })?;
    Ok(format!("work-{:032x}", u128::from_be_bytes(bytes)))
}

/// The text, cut to the longest error that the server takes.
fn bounded(error: &str) -> String {
    error.get(..error.floor_char_boundary(ERROR_BYTES_MAX)).unwrap_or_default().to_owned()
}

/// The beginning of an error, for one line.
fn first_words(error: &str) -> String {
    error.chars().take(120).collect()
}
