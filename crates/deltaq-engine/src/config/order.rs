//! The setting `order`: how much earlier than it did a change counts as arrived.

use std::sync::Arc;
use std::time::Duration;

use deltaq_types::SignedDuration;
use deltaq_types::range::HEAD_START_MAX;
use deltaq_types::terms::PRIORITY_MAX;

use crate::object::Object;
use crate::pointer::{Cursor, Pointer, Value, find};
use crate::schedule::HeadStart;

/// How ready keys are ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The value in an object that gives its head start.
    pub value: Option<OrderValue>,
    /// The head start of the initial list, in place of those of its objects.
    pub initial_list: Option<HeadStart>,
    /// The head start of a Resync, in place of those of its objects.
    pub resync: Option<HeadStart>,
}

/// The value in an object that gives its head start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderValue {
    /// A duration.
    HeadStart {
        /// Where it is.
        pointer: Pointer,
        /// The head start of an object without one.
        default: HeadStart,
    },
    /// A whole number.
    Priority {
        /// Where it is.
        pointer: Pointer,
        /// The head start for each unit of the number; `None` if each number is a class of its own.
        step: Option<Duration>,
    },
}

/// Why an object has no usable head start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The value is not a duration.
    #[error("the head start at {pointer:?} is not a duration of at most 7d, such as \"10m\" or \"-10m\"")]
    NotADuration {
        /// The RFC 6901 pointer.
        pointer: Arc<str>,
    },
    /// The value is not a whole number in the range.
    #[error("the priority at {pointer:?} is not a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}")]
    NotAPriority {
        /// The RFC 6901 pointer.
        pointer: Arc<str>,
    },
}

impl OrderError {
    /// Where the value is.
    #[must_use]
    pub fn pointer(&self) -> &str {
        match self {
            Self::NotADuration { pointer } | Self::NotAPriority { pointer } => pointer,
        }
    }
}

impl Order {
    /// The head start of an object, as its value says.
    ///
    /// # Errors
    /// [`OrderError`] if the value has a wrong type or is out of range.
    pub fn read(&self, object: &Object) -> Result<HeadStart, OrderError> {
        let Some(value) = &self.value else { return Ok(HeadStart::NONE) };
        let pointer = value.pointer();
        let found = find(object.as_str(), std::slice::from_ref(pointer)).into_iter().next().flatten();
        let found = match found.and_then(Cursor::value) {
            None | Some(Value::Null) => return Ok(value.default_head_start()),
            Some(found) => found,
        };
        match value {
            OrderValue::HeadStart { .. } => {
                head_start(&found).ok_or_else(|| OrderError::NotADuration { pointer: pointer.text.clone() })
            }
            OrderValue::Priority { step, .. } => {
                let priority = priority(&found);
                let priority =
                    priority.ok_or_else(|| OrderError::NotAPriority { pointer: pointer.text.clone() })?;
                Ok(of_priority(priority, *step))
            }
        }
    }

    /// The head start of an object; the default if its value has a wrong type, as a row of a followed queue may have.
    #[must_use]
    pub fn head_start(&self, object: Option<&Object>) -> HeadStart {
        let read = object.and_then(|object| self.read(object).ok());
        read.or_else(|| self.value.as_ref().map(OrderValue::default_head_start)).unwrap_or_default()
    }
}

impl OrderValue {
    const fn pointer(&self) -> &Pointer {
        match self {
            Self::HeadStart { pointer, .. } | Self::Priority { pointer, .. } => pointer,
        }
    }

    const fn default_head_start(&self) -> HeadStart {
        match self {
            Self::HeadStart { default, .. } => *default,
            Self::Priority { .. } => HeadStart::NONE,
        }
    }
}

fn head_start(value: &Value<'_>) -> Option<HeadStart> {
    let Value::Text(text) = value else { return None };
    let duration: SignedDuration = text.parse().ok()?;
    let is_allowed = duration.as_us().unsigned_abs() <= HEAD_START_MAX;
    is_allowed.then(|| HeadStart::from_micros(duration.as_us()))
}

fn priority(value: &Value<'_>) -> Option<i64> {
    let Value::Number(text) = value else { return None };
    text.parse().ok().filter(|priority| (-PRIORITY_MAX..=PRIORITY_MAX).contains(priority))
}

fn of_priority(priority: i64, step: Option<Duration>) -> HeadStart {
    let Some(step) = step else { return HeadStart::class(priority) };
    HeadStart::from_micros(HeadStart::of(step).micros().saturating_mul(priority))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(step: Option<Duration>) -> Order {
        let pointer = Pointer::parse("/p", false).expect("valid");
        Order { value: Some(OrderValue::Priority { pointer, step }), initial_list: None, resync: None }
    }

    fn object(text: &str) -> Object {
        Object::from_valid(text)
    }

    #[test]
    fn a_priority_is_a_whole_number_from_minus_100_to_100() {
        let order = order(Some(Duration::from_mins(1)));
        for (text, micros) in
            [("{}", 0), (r#"{"p":null}"#, 0), (r#"{"p":100}"#, 6_000_000_000), (r#"{"p":-1}"#, -60_000_000)]
        {
            assert_eq!(order.read(&object(text)), Ok(HeadStart::from_micros(micros)), "{text}");
        }
        for text in [
            r#"{"p":101}"#,
            r#"{"p":-101}"#,
            r#"{"p":1.0}"#,
            r#"{"p":1e1}"#,
            r#"{"p":"1"}"#,
            r#"{"p":true}"#,
            r#"{"p":[]}"#,
        ] {
            assert!(order.read(&object(text)).is_err(), "{text}");
            assert_eq!(order.head_start(Some(&object(text))), HeadStart::NONE, "{text}");
        }
    }

    #[test]
    fn a_head_start_is_a_duration_of_at_most_a_week() {
        let value = OrderValue::HeadStart {
            pointer: Pointer::parse("/p", false).expect("valid"),
            default: HeadStart::from_micros(5),
        };
        let order = Order { value: Some(value), initial_list: None, resync: None };
        for (text, micros) in
            [("{}", 5), (r#"{"p":"-7d"}"#, -604_800_000_000), (r#"{"p":"1m30s"}"#, 90_000_000)]
        {
            assert_eq!(order.read(&object(text)), Ok(HeadStart::from_micros(micros)), "{text}");
        }
        for text in
            [r#"{"p":"8d"}"#, r#"{"p":"-604800000001us"}"#, r#"{"p":60}"#, r#"{"p":""}"#, r#"{"p":"+1s"}"#]
        {
            assert!(order.read(&object(text)).is_err(), "{text}");
        }
    }
}
