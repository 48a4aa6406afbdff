//! The trace of a producer's call, in the form of W3C Trace Context.
//!
//! A trace is only stored and displayed. No rule of a queue depends on it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The position of a call in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: [u8; 16],
    parent_id: [u8; 8],
    flags: u8,
}

/// The trace of a call, shared by all deltas of the call. Most producers send no trace, so each delta holds only a
/// pointer. The trace is dropped with the ack. Known objects, and keys in mode keys, have no trace.
pub type Trace = Arc<TraceContext>;

impl TraceContext {
    /// The context of a span.
    #[must_use]
    pub fn of_span(trace_id: [u8; 16], span_id: [u8; 8], is_sampled: bool) -> Self {
        Self { trace_id, parent_id: span_id, flags: is_sampled.into() }
    }

    /// Parses the value of a header `traceparent`; `None` if it is not valid. The beginning of a newer version is read as
    /// version 00.
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

    /// The id of the trace.
    #[must_use]
    pub const fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// The id of the caller's span.
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

/// The bytes of a text of lower-case hexadecimal digits.
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

/// Writes a header of version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace_id, parent_id) = (u128::from_be_bytes(self.trace_id), u64::from_be_bytes(self.parent_id));
        write!(f, "00-{trace_id:032x}-{parent_id:016x}-{:02x}", self.flags)
    }
}

/// Writes the text of [`Display`](fmt::Display).
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
    fn a_header_is_written_as_it_was_read() {
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
    fn the_known_part_of_newer_versions_is_read() {
        for text in [GOOD.replacen("00", "01", 1), format!("{}-more", GOOD.replacen("00", "fe", 1))] {
            assert_eq!(TraceContext::parse(&text), TraceContext::parse(GOOD), "{text}");
        }
    }

    #[test]
    fn a_delta_pays_only_for_a_pointer() {
        assert_eq!(size_of::<Option<Trace>>(), size_of::<usize>());
    }

    #[test]
    fn invalid_headers_are_ignored() {
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
