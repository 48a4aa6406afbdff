//! The `continue` tokens of lists. A token is opaque to clients and valid only for its list and queue.

use deltaq_engine::id::Rv;
use deltaq_engine::lives::{LifeId, Lives};
use deltaq_engine::view::View;

use super::params::wrong;
use super::problem::{Code, Problem};

/// A list with pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List<'a> {
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

/// Writes a cursor: the list, the life and the version of the queue when the page was read, and a position in the list.
pub(super) fn encode(list: List<'_>, lives: &Lives, rv: Rv, position: &str) -> String {
    hex(&format!("{}:{}-{rv}:{position}", name(list), lives.id_of(rv)))
}

/// Reads a cursor that [`encode`] wrote for the same list of the same queue.
pub(super) fn decode(list: List<'_>, lives: &Lives, cursor: &str) -> Result<String, Problem> {
    let text = text(cursor)?;
    let read = || {
        let (issued, position) = text.strip_prefix(&name(list))?.strip_prefix(':')?.split_once(':')?;
        let (life, rv) = issued.split_once('-')?;
        lives.has(LifeId::parse(life)?, rv.parse().ok()?).then(|| position.to_owned())
    };
    read().ok_or_else(expired)
}

/// Writes a cursor of the list of queues, whose position is the name of a queue.
pub(super) fn encode_queues(position: &str) -> String {
    hex(&format!("queues:{position}"))
}

/// Reads a cursor that [`encode_queues`] wrote.
pub(super) fn decode_queues(cursor: &str) -> Result<String, Problem> {
    text(cursor)?.strip_prefix("queues:").map(str::to_owned).ok_or_else(expired)
}

fn name(list: List<'_>) -> String {
    match list {
        List::Items => "items".to_owned(),
        List::Objects(view) => view.as_str().to_owned(),
        // A value may contain the separator.
        List::WithValue { index, value } => format!("value:{index}:{}:{value}", value.len()),
        List::IndexValues { index } => format!("index:{index}"),
        List::Sources => "sources".to_owned(),
        List::Workers => "workers".to_owned(),
        List::History => "history".to_owned(),
        List::Watch(view) => format!("watch:{}", view.as_str()),
    }
}

fn hex(text: &str) -> String {
    text.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

fn text(cursor: &str) -> Result<String, Problem> {
    let malformed = || wrong("continue", "it is not a token of this server");
    let is_ours = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if cursor.is_empty() || !cursor.len().is_multiple_of(2) || !cursor.as_bytes().iter().all(is_ours) {
        return Err(malformed());
    }
    let pairs = cursor.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or_default());
    let bytes = pairs.map(|pair| u8::from_str_radix(pair, 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().map_err(|_| malformed())?;
    String::from_utf8(bytes).map_err(|_| expired())
}

/// The problem of a cursor of another list, of another queue, or of a lost life.
pub(super) fn expired() -> Problem {
    let detail = "the continue token belongs to a deleted queue or to another list; start the list again";
    Problem::new(Code::Expired, detail).with("parameter", "continue")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lives(id: u32) -> Lives {
        Lives::begin(LifeId::new(id), Rv::new(10))
    }

    #[test]
    fn a_cursor_leads_nowhere_in_another_list_or_queue() {
        let with = |index, value| List::WithValue { index, value };
        let lists = [
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
            let cursor = encode(given, &lives(7), Rv::new(12), "5:x");
            for asked in lists {
                for life in [7, 70] {
                    let position = decode(asked, &lives(life), &cursor).ok();
                    let is_its_own = asked == given && life == 7;
                    assert_eq!(position.as_deref(), is_its_own.then_some("5:x"), "{given:?} in {asked:?}");
                }
            }
            assert!(decode_queues(&cursor).is_err());
            assert!(decode(given, &lives(7), &encode_queues("5:x")).is_err());
        }
        assert_eq!(decode_queues(&encode_queues("5:x")).unwrap(), "5:x");
    }
}
