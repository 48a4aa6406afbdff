//! The trace that a producer's call belongs to, as W3C Trace Context writes it.
//!
//! It is carried and shown, and nothing else: no rule of a queue goes by it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Where in a trace a call was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: [u8; 16],
    parent_id: [u8; 8],
    flags: u8,
}

/// The context of a call, shared by all that it queues: most deltas have none, so it takes no more of
/// them than a pointer.
pub type Trace = Arc<TraceContext>;

impl TraceContext {
    /// Reads the value of a header `traceparent`. Of a version that is not known yet, what stands in front is
    /// read as version 00. `None` if it is not valid, which is then ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        const LENGTH: usize = 55;
        let (head, rest) = text.split_at_checked(LENGTH)?;
        let mut parts = head.split('-');
        let [version] = octets(parts.next()?)?;
        let context = Self {
            trace_id: octets(parts.next()?)?,
            parent_id: octets(parts.next()?)?,
            flags: u8::from_be_bytes(octets(parts.next()?)?),
        };
        let goes_on = version > 0 && rest.starts_with('-');
        let is_whole = parts.next().is_none() && (rest.is_empty() || goes_on);
        let is_valid = version != 0xff && context.trace_id != [0; 16] && context.parent_id != [0; 8];
        (is_whole && is_valid).then_some(context)
    }

    /// Names the trace.
    #[must_use]
    pub const fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// Names the caller's part of the trace.
    #[must_use]
    pub const fn parent_id(&self) -> [u8; 8] {
        self.parent_id
    }

    /// Whether the caller may have recorded the trace.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }
}

/// Bytes in lower-case hexadecimal digits, all of `text`.
fn octets<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.as_bytes().iter().all(is_hex) {
        return None;
    }
    let mut octets = [0; N];
    for (octet, digits) in octets.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *octet = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(octets)
}

/// As a header of version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace_id, parent_id) = (u128::from_be_bytes(self.trace_id), u64::from_be_bytes(self.parent_id));
        write!(f, "00-{trace_id:032x}-{parent_id:016x}-{:02x}", self.flags)
    }
}

/// As [`Display`](fmt::Display) writes it.
impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&str>::deserialize(deserializer)?;
        Self::parse(text).ok_or_else(|| de::Error::custom(format_args!("{text:?} is no traceparent")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_is_read_is_written() {
        for text in [GOOD, "00-00000000000000000000000000000001-0000000000000001-ff"] {
            let context = TraceContext::parse(text).expect("it is valid");
            assert_eq!(context.to_string(), text);
            assert!(context.is_sampled());
        }
        let context = TraceContext::parse(GOOD).expect("it is valid");
        assert_eq!((context.trace_id()[0], context.parent_id()[7]), (0x0a, 0x31));
        assert!(!TraceContext::parse(&GOOD.replace("-01", "-02")).expect("valid").is_sampled());
    }

    #[test]
    fn newer_versions_are_read_as_far_as_they_are_known() {
        for text in [GOOD.replacen("00", "01", 1), format!("{}-more", GOOD.replacen("00", "fe", 1))] {
            assert_eq!(TraceContext::parse(&text), TraceContext::parse(GOOD), "{text}");
        }
    }

    #[test]
    fn a_delta_pays_a_pointer_for_it() {
        assert_eq!(size_of::<Option<Trace>>(), size_of::<usize>());
    }

    #[test]
    fn what_is_not_valid_is_none() {
        let changed = [
            String::new(),
            GOOD[..54].to_owned(),
            format!("{GOOD}-more"),
            format!("{GOOD}0"),
            format!("{}0", GOOD.replacen("00", "01", 1)),
            GOOD.replacen("00", "ff", 1),
            GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            GOOD.replace("b7ad6b7169203331", &"0".repeat(16)),
            GOOD.to_uppercase(),
            GOOD.replace("0af7", "+af7"),
            GOOD.replace("319c-b7", "319-cb7"),
            GOOD.replace('-', "_"),
            GOOD.replace("0af", "ü0"),
        ];
        for text in changed {
            assert_eq!(TraceContext::parse(&text), None, "{text:?}");
        }
    }
}
