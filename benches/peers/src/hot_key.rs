//! A check that all updates of one key are delivered, each once and in order.

use std::collections::BTreeMap;
use std::io;

use deltaq::bench::HttpClient;
use deltaq_runtime::clock::Clock;
use serde_json::Value;

use crate::figures::{Figure, Target};
use crate::rows::Line;
use crate::servers::{Kind, Programs, Storage};
use crate::subject::{GRACE, path, within};

const SENDERS: u64 = 4;
const UPDATES: u64 = 500;

/// The received updates of all senders.
#[derive(Debug, Default)]
struct Seen {
    /// Deltas, including merged ones.
    count: u64,
    /// The newest resource version.
    resource_version: u64,
    /// The number of the newest update of each sender.
    newest: BTreeMap<u64, u64>,
}

/// Sends updates on several connections while another one pops. Fails if an update arrives out of order.
pub(crate) async fn check(programs: &Programs, clock: &Clock) -> io::Result<Line> {
    let server = programs.start(Kind::Deltaq, Storage::Memory, clock).await?;
    let address = server.address.as_str();
    HttpClient::open(address, None).await?.call("PUT", &path(""), "{}").await?;
    let all = async {
        tokio::try_join!(pop(address), send(address, 0), send(address, 1), send(address, 2), send(address, 3))
    };
    let (seen, ..) = within(GRACE, all).await?;
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let figure = |count: u64| Figure { median: count as f64, least: count as f64, most: count as f64 };
    Ok(Line {
        unit: "deltas".into(),
        ours: ("delivered once, in order".into(), figure(seen.count)),
        baseline: Some(("sent".into(), figure(SENDERS * UPDATES))),
        target: Target::AtLeast(1.0),
    })
}

async fn send(address: &str, sender: u64) -> io::Result<()> {
    let mut caller = HttpClient::open(address, None).await?;
    for number in 1..=UPDATES {
        let object = format!("{{\"key\":\"hot\",\"sender\":{sender},\"number\":{number}}}");
        caller.call("POST", &path("/update"), &object).await?;
    }
    Ok(())
}

/// Pops until all updates have arrived, or a pop is empty.
async fn pop(address: &str) -> io::Result<Seen> {
    let mut caller = HttpClient::open(address, None).await?;
    let (mut seen, mut body) = (Seen::default(), String::from("{}"));
    while seen.count < SENDERS * UPDATES {
        let reply = caller.call("POST", &path("/pop?wait=5s"), &body).await?;
        let popped: Value = serde_json::from_slice(reply)?;
        let Some(lease) = popped.pointer("/items/0/lease/id").and_then(Value::as_str) else { break };
        body = format!("{{\"settle\":[{{\"lease_id\":\"{lease}\",\"as\":\"ack\"}}]}}");
        let deltas = popped.pointer("/items/0/deltas").and_then(Value::as_array);
        for delta in deltas.into_iter().flatten() {
            seen.add(delta)
                .ok_or_else(|| io::Error::other(format!("out of order after {seen:?}: {delta}")))?;
        }
    }
    Ok(seen)
}

impl Seen {
    /// Counts a delta. `None` if it is out of order.
    fn add(&mut self, delta: &Value) -> Option<()> {
        let number = |pointer: &str| delta.pointer(pointer).and_then(Value::as_u64);
        let merged = number("/coalesced").unwrap_or_default();
        let resource_version = number("/resource_version")?;
        let newest = self.newest.entry(number("/object/sender")?).or_default();
        let number = number("/object/number")?;
        // The merged deltas may be of any sender.
        let is_next = if merged == 0 { number == *newest + 1 } else { number > *newest };
        if !is_next || resource_version <= self.resource_version {
            return None;
        }
        *newest = number;
        self.resource_version = resource_version;
        self.count += 1 + merged;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn deltas_out_of_order_are_found() {
        let delta = |version: u64, sender: u64, number: u64, coalesced: u64| {
            let object = json!({"key": "hot", "sender": sender, "number": number});
            json!({"resource_version": version, "object": object, "coalesced": coalesced})
        };
        let mut seen = Seen::default();
        assert!(seen.add(&delta(1, 0, 1, 0)).is_some());
        assert!(seen.add(&delta(2, 1, 1, 0)).is_some());
        assert!(seen.add(&delta(3, 0, 1, 0)).is_none());
        assert!(seen.add(&delta(3, 0, 3, 0)).is_none());
        assert!(seen.add(&delta(2, 0, 2, 0)).is_none());
        assert!(seen.add(&delta(5, 0, 3, 1)).is_some());
        assert_eq!(seen.count, 4);
    }
}
