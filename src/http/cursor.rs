//! The `continue` tokens of lists. A token is opaque to clients and valid only for its list and queue.

use deltaq_engine::view::View;
use deltaq_service::Incarnation;

use super::params::wrong;
use super::problem::{Code, Problem};

/// A list with pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List<'a> {
    Queues,
    Items,
    Objects(View),
    /// The known objects with a value in an index.
    WithValue {
        index: &'a str,
        value: &'a str,
    },
    IndexValues {
        index: &'a str,
    },
    Sources,
    Workers,
    History,
    Watch(View),
}

/// Writes a cursor: the list, the queue, and a position in the list.
pub(super) fn encode(list: List<'_>, incarnation: Incarnation, position: &str) -> String {
    let text = format!("{}:{position}", head(list, incarnation));
    text.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

fn head(list: List<'_>, incarnation: Incarnation) -> String {
    let list = match list {
        List::Queues => "queues",
        List::Items => "items",
        List::Objects(view) => view.as_str(),
        // A value may contain the separator.
        List::WithValue { index, value } => &format!("value:{index}:{}:{value}", value.len()),
        List::IndexValues { index } => &format!("index:{index}"),
        List::Sources => "sources",
        List::Workers => "workers",
        List::History => "history",
        List::Watch(view) => &format!("watch:{}", view.as_str()),
    };
    format!("{list}:{incarnation}")
}

/// Reads a cursor that [`encode`] wrote for the same list.
pub(super) fn decode(list: List<'_>, incarnation: Incarnation, cursor: &str) -> Result<String, Problem> {
    let malformed = || wrong("continue", "it is not a token of this server");
    let is_ours = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if cursor.is_empty() || !cursor.len().is_multiple_of(2) || !cursor.as_bytes().iter().all(is_ours) {
        return Err(malformed());
    }
    let pairs = cursor.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or_default());
    let bytes = pairs.map(|pair| u8::from_str_radix(pair, 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().map_err(|_| malformed())?;
    let text = String::from_utf8(bytes).map_err(|_| expired())?;
    let position = text.strip_prefix(&head(list, incarnation)).and_then(|rest| rest.strip_prefix(':'));
    position.map(str::to_owned).ok_or_else(expired)
}

/// The problem of a cursor of another list, or of a deleted queue.
pub(super) fn expired() -> Problem {
    let detail = "the continue token belongs to a deleted queue or to another list; start the list again";
    Problem::new(Code::Expired, detail).with("parameter", "continue")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_nowhere_in_another_list_or_queue() {
        let with = |index, value| List::WithValue { index, value };
        let lists = [
            List::Queues,
            List::Items,
            List::Objects(View::Latest),
            List::Objects(View::Known),
            with("city", "Rome"),
            with("city", "Ro"),
            with("town", "Rome"),
            List::IndexValues { index: "city" },
            List::IndexValues { index: "town" },
            List::Sources,
            List::Workers,
            List::History,
            List::Watch(View::Latest),
            List::Watch(View::Known),
        ];
        for given in lists {
            let cursor = encode(given, Incarnation(7), "5:x");
            for asked in lists {
                for incarnation in [Incarnation(7), Incarnation(70)] {
                    let position = decode(asked, incarnation, &cursor).ok();
                    let is_its_own = asked == given && incarnation == Incarnation(7);
                    assert_eq!(position.as_deref(), is_its_own.then_some("5:x"), "{given:?} in {asked:?}");
                }
            }
        }
    }
}
