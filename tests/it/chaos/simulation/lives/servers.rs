//! A process whose database has a standby. The standby lags at times, and then becomes the primary.

use std::path::PathBuf;

use serde_json::json;

use crate::harness::blocking::{Connection, Message};
use crate::harness::server::{Spawned, Store};
use crate::harness::waiting::found;
use crate::system::postgres::proxy::Proxy;
use crate::system::postgres::replica::Pair;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// The servers of the database, and the process.
pub(super) struct Servers {
    pair: Pair,
    /// Leads to the primary, as an address that moves; without it, the process knows both servers.
    proxy: Option<Proxy>,
    /// The secret of a node; `None` is a server alone.
    secret: Option<PathBuf>,
    /// By how many seconds the clocks of the primary, of the standby, and of the next standby are wrong.
    wrong_s: [i64; 3],
    /// The process, while no calls are made.
    process: Option<Spawned>,
    /// Number of calls that have looked whether changes are taken.
    probes: u32,
}

impl Servers {
    pub(super) fn start(is_node: bool, has_proxy: bool) -> Self {
        let pair = Pair::start();
        let proxy = has_proxy.then(|| Proxy::start(pair.primary().socket()));
        let secret = is_node.then(|| pair.primary().folder().join("secret"));
        if let Some(secret) = &secret {
            std::fs::write(secret, SECRET).expect("a file");
        }
        Self { pair, proxy, secret, wrong_s: [0; 3], process: None, probes: 0 }
    }

    /// Sets by how many seconds the clock of the next standby is wrong.
    pub(super) fn set_clock(&mut self, wrong_s: i64) {
        self.wrong_s[2] = wrong_s;
    }

    /// By how many seconds the clock of the primary is wrong.
    pub(super) fn wrong_s(&self) -> i64 {
        self.wrong_s[0]
    }

    pub(super) fn lags(&self) -> bool {
        self.pair.lags()
    }

    /// Lets the standby lag. Returns whether it did not lag before.
    pub(super) fn lag(&mut self) -> bool {
        let begins = !self.pair.lags();
        if begins {
            self.pair.lag();
        }
        begins
    }

    pub(super) fn keep(&mut self, process: Spawned) {
        self.process = Some(process);
    }

    pub(super) fn keeps_numbers(&self) -> bool {
        self.process.is_some() && self.secret.is_some()
    }

    /// The primary is lost, and the standby takes its place. Then there is a new standby.
    pub(super) fn fail_over(&mut self) {
        self.pair.fail_over();
        if let Some(proxy) = &self.proxy {
            proxy.leads_to(self.pair.primary().socket());
        }
        self.wrong_s = [self.wrong_s[1], self.wrong_s[2], self.wrong_s[2]];
        self.pair.renew_standby(self.wrong_s[1]);
    }

    /// The process, once it takes changes: the one that lives on, or a new one.
    pub(super) fn process(&mut self) -> Spawned {
        loop {
            let mut process = self.process.take().unwrap_or_else(|| self.new_process());
            let takes_changes = found(|| {
                if process.process.status().is_some() {
                    return Ok(false);
                }
                self.probes += 1;
                // Only a change shows that the process has found the failover.
                let add = Message::post(
                    "/v1/queues/q/add".to_owned(),
                    &json!({ "key": format!("probe-{}", self.probes) }),
                );
                match Connection::open(process.api).and_then(|mut open| open.call(&add)) {
                    Ok(reply) if reply.status().is_some_and(|status| status == 200 || status == 404) => {
                        Ok(true)
                    }
                    reply => Err(format!("{reply:?}\n{}", process.last_words())),
                }
            });
            if takes_changes {
                return process;
            }
            let log = process.last_words();
            assert!(
                self.secret.is_none() && log.contains("the database has lost acknowledged changes"),
                "{log}"
            );
        }
    }

    fn new_process(&self) -> Spawned {
        let url = self.proxy.as_ref().map_or_else(|| self.pair.url(), Proxy::url);
        Spawned::start_with(&Store::Url(url), |command| {
            if let Some(secret) = &self.secret {
                command.args(["--node-name", "a", "--advertise", "http://127.0.0.1:0"]);
                command.env("DELTAQ_CLUSTER__SECRET_FILE", secret);
            }
            // Queues are created by the history alone, which knows when.
            command.env("DELTAQ_QUEUES__AUTO_CREATE", "false");
            // Live leases would delay the end.
            command.env("DELTAQ_SERVER__SHUTDOWN_TIMEOUT", "1s");
        })
    }
}
