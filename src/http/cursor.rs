//! Where a list goes on: opaque to clients, bound to the queue that it was given for.

use super::params::wrong;
use super::problem::{Code, Problem};
use crate::service::Incarnation;

/// Writes a cursor: which queue, and a text that says where in the list.
pub(super) fn encode(incarnation: Incarnation, position: &str) -> String {
    let text = format!("{incarnation}:{position}");
    text.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// Reads a cursor that [`encode`] wrote for the same queue.
pub(super) fn decode(incarnation: Incarnation, cursor: &str) -> Result<String, Problem> {
    let malformed = || wrong("continue", "it is not a token that this server gave");
    let is_ours = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if cursor.is_empty() || !cursor.len().is_multiple_of(2) || !cursor.as_bytes().iter().all(is_ours) {
        return Err(malformed());
    }
    let pairs = cursor.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or_default());
    let bytes = pairs.map(|pair| u8::from_str_radix(pair, 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().map_err(|_| malformed())?;
    let text = String::from_utf8(bytes).map_err(|_| expired())?;
    let (queue, position) = text.split_once(':').ok_or_else(expired)?;
    if queue != incarnation.to_string() {
        return Err(expired());
    }
    Ok(position.to_owned())
}

/// A cursor that leads nowhere, or nowhere any more.
pub(super) fn expired() -> Problem {
    let detail = "the continue token is of a queue that is gone, or of another list; start the list again";
    Problem::new(Code::Expired, detail).with("parameter", "continue")
}
