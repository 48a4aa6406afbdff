//! Parses replies into the types of the history. A reply that can't be parsed is an error text, which the judge treats like
//! a refusal: a fault.

use std::collections::BTreeMap;

use serde_json::Value;

use super::history::{
    Delta, Item, Key, Kind, KnownValue, Lease, Operation, Outcome, Reply, Rv, Settled, object,
};

/// Parses the reply to a call.
pub(crate) fn reply(operation: &Operation, body: &Value) -> Result<Reply, String> {
    let rv = body["resource_version"].as_u64().or_else(|| body["status"]["resource_version"].as_u64());
    let mut reply = Reply { rv, ..Reply::default() };
    match operation {
        Operation::Produce { .. } | Operation::Resync | Operation::Items if reply.rv.is_none() => {
            return Err(wrong("no number", body));
        }
        Operation::Pop { with_known, .. } => {
            let items = list(body, "items")?;
            reply.leases = items.iter().map(|item| lease(item, *with_known)).collect::<Result<_, _>>()?;
            reply.settled = settled(operation, list(body, "settled")?)?;
        }
        Operation::Settle { .. } => reply.settled = settled(operation, list(body, "settled")?)?,
        Operation::Extend { .. } => {
            reply.settled = list(body, "settled")?.iter().map(result).collect::<Result<_, _>>()?;
        }
        Operation::Items => reply.items = items(body)?,
        _ => {}
    }
    Ok(reply)
}

/// Parses a page of a list of items.
pub(crate) fn items(page: &Value) -> Result<BTreeMap<Key, Item>, String> {
    let read = |item: &Value| {
        let key = text(item, "key")?;
        let mut all = deltas(key, &item["leased_deltas"])?;
        all.extend(deltas(key, &item["deltas"])?);
        Ok((Key::from(key), Item { deltas: all, token: item["lease"]["token"].as_u64() }))
    };
    list(page, "items")?.iter().map(read).collect()
}

/// Parses a page of a list of known objects.
pub(crate) fn known(page: &Value) -> Result<BTreeMap<Key, (u64, Rv)>, String> {
    let read = |known: &Value| {
        let key = text(known, "key")?;
        Ok((Key::from(key), (value_of(key, &known["object"]), number(known, "resource_version")?)))
    };
    list(page, "items")?.iter().map(read).collect()
}

/// A member that must be a list.
pub(crate) fn list<'a>(document: &'a Value, name: &str) -> Result<&'a Vec<Value>, String> {
    document[name].as_array().ok_or_else(|| wrong(name, document))
}

/// A member that must be a number.
pub(crate) fn number(document: &Value, name: &str) -> Result<u64, String> {
    document[name].as_u64().ok_or_else(|| wrong(name, document))
}

fn lease(item: &Value, with_known: bool) -> Result<Lease, String> {
    let key = text(item, "key")?;
    let known = item.get("known").map(|known| value_of(key, known));
    Ok(Lease {
        id: text(&item["lease"], "id")?.to_owned(),
        key: key.into(),
        token: number(&item["lease"], "token")?,
        attempt: number(item, "attempt")?,
        deltas: deltas(key, &item["deltas"])?,
        known: with_known.then_some(KnownValue(known)),
    })
}

fn deltas(key: &str, deltas: &Value) -> Result<Vec<Delta>, String> {
    let read = |delta: &Value| {
        let kind = Kind::read(text(delta, "type")?).ok_or_else(|| wrong("type", delta))?;
        if delta["coalesced"].as_u64().is_some_and(|merged| merged > 0) {
            return Err(wrong("deltas were merged below the limit", delta));
        }
        let tombstone = delta["final_state_unknown"].as_bool().unwrap_or_default();
        let rv = number(delta, "resource_version")?;
        Ok(Delta { kind, rv, value: value_of(key, &delta["object"]), tombstone })
    };
    deltas.as_array().ok_or_else(|| wrong("deltas", deltas))?.iter().map(read).collect()
}

/// The number in an object that equals the sent object; 0 for any other object.
pub(crate) fn value_of(key: &str, sent: &Value) -> u64 {
    sent["v"].as_u64().filter(|value| object(key, *value) == *sent).unwrap_or_default()
}

/// Parses the results of settles, which name the settles in order.
fn settled(operation: &Operation, results: &[Value]) -> Result<Vec<Settled>, String> {
    let settles = operation.settles();
    let names = |result: &Value| (result["lease_id"].clone(), result["as"].clone());
    let wanted = settles.iter().map(|settle| (settle.lease.clone().into(), settle.way.as_str().into()));
    if !results.iter().map(names).eq(wanted) {
        return Err(format!("the results {results:?} do not fit {settles:?}"));
    }
    results.iter().map(result).collect()
}

fn result(result: &Value) -> Result<Settled, String> {
    match text(result, "result")? {
        "ok" => Ok(Settled::Ok),
        "repeated" => Ok(Settled::Repeated),
        "stale" => Outcome::read(text(result, "outcome")?)
            .map(Settled::Stale)
            .ok_or_else(|| wrong("outcome", result)),
        _ => Err(wrong("result", result)),
    }
}

fn text<'a>(document: &'a Value, name: &str) -> Result<&'a str, String> {
    document[name].as_str().ok_or_else(|| wrong(name, document))
}

fn wrong(part: &str, document: &Value) -> String {
    format!("{part} in {document}")
}
