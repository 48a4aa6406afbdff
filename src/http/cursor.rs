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
    let digits = cursor.as_bytes();
    let bytes = digits.chunks(2).map(|pair| {
        let text = std::str::from_utf8(pair).ok().filter(|text| text.len() == 2)?;
        u8::from_str_radix(text, 16).ok()
    });
    let bytes: Vec<u8> = bytes.collect::<Option<_>>().ok_or_else(malformed)?;
    let text = String::from_utf8(bytes).map_err(|_| malformed())?;
    let (queue, position) = text.split_once(':').ok_or_else(malformed)?;
    if queue.len() != 8 || !queue.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(malformed());
    }
    if queue != incarnation.to_string() {
        return Err(Problem::new(Code::Expired, "the queue that the continue token was given for is gone"));
    }
    Ok(position.to_owned())
}
