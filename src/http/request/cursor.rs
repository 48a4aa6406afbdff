//! The `continue` tokens of lists. A token is opaque to clients and valid only for its list and queue.

use std::borrow::Cow;

use deltaq_engine::id::Rv;
use deltaq_engine::lives::{LifeId, Lives, Stray};
use deltaq_engine::view::View;
use deltaq_types::ExpiredReason;

use super::params::wrong;
use crate::http::problem::Problem;

/// A list with pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum List<'a> {
    Items,
    Objects(View),
    /// The known objects with a value in an index.
    WithValue {
        index: &'a str,
        value: &'a str,
    },
    Indexes,
    IndexValues {
        index: &'a str,
    },
    ParkedErrors,
    Sources,
    Workers,
    History,
    Watch(View),
    /// The objects of a Kubernetes resource.
    Kubernetes(View),
}

/// Writes a cursor: the list, the life and the version of the queue when the page was read, and a position in the list.
pub(in crate::http) fn encode(list: List<'_>, lives: &Lives, rv: Rv, position: &str) -> String {
    hex(&format!("{}:{}-{rv}:{position}", name(list), lives.id_of(rv)))
}

/// Reads a cursor that [`encode`] wrote for the same list of the same queue.
pub(in crate::http) fn decode(list: List<'_>, lives: &Lives, cursor: &str) -> Result<String, Problem> {
    let text = text(cursor)?;
    let read = || {
        let (issued, position) = text.strip_prefix(&*name(list))?.strip_prefix(':')?.split_once(':')?;
        let (life, rv) = issued.split_once('-')?;
        Some((LifeId::parse(life)?, rv.parse().ok()?, position))
    };
    let (life, rv, position) = read().ok_or_else(of_another_list)?;
    match lives.check(rv, Rv::MAX) {
        Ok(()) if lives.id_of(rv) == life => Ok(position.to_owned()),
        Err(Stray::TooOld) => {
            Err(expired(ExpiredReason::TooOld, "the continue token is older than the queue remembers"))
        }
        _ => {
            let detail =
                "the continue token belongs to a deleted queue of this name, or to changes that it has lost";
            Err(expired(ExpiredReason::Lost, detail))
        }
    }
}

/// Writes a cursor of the list of queues, whose position is the name of a queue.
pub(in crate::http) fn encode_queues(position: &str) -> String {
    hex(&format!("queues:{position}"))
}

/// Reads a cursor that [`encode_queues`] wrote.
pub(in crate::http) fn decode_queues(cursor: &str) -> Result<String, Problem> {
    text(cursor)?.strip_prefix("queues:").map(str::to_owned).ok_or_else(of_another_list)
}

/// Writes a cursor of a list over all queues: the name of the list, a queue, and a name in the queue.
pub(in crate::http) fn encode_across(list: &str, (queue, name): (&str, &str)) -> String {
    hex(&format!("all {list}:{queue}:{name}"))
}

/// Reads a cursor that [`encode_across`] wrote for the same list.
pub(in crate::http) fn decode_across(list: &str, cursor: &str) -> Result<(String, String), Problem> {
    let text = text(cursor)?;
    let position = text.strip_prefix("all ").and_then(|rest| rest.strip_prefix(list)?.strip_prefix(':'));
    let position = position.and_then(|position| position.split_once(':')).ok_or_else(of_another_list)?;
    Ok((position.0.to_owned(), position.1.to_owned()))
}

fn name(list: List<'_>) -> Cow<'static, str> {
    match list {
        List::Items => "items".into(),
        List::Objects(view) => view.as_str().into(),
        // A value may contain the separator.
        List::WithValue { index, value } => format!("value:{index}:{}:{value}", value.len()).into(),
        List::Indexes => "indexes".into(),
        List::IndexValues { index } => format!("index:{index}").into(),
        List::ParkedErrors => "parked_errors".into(),
        List::Sources => "sources".into(),
        List::Workers => "workers".into(),
        List::History => "history".into(),
        List::Watch(view) => format!("watch:{}", view.as_str()).into(),
        List::Kubernetes(view) => format!("kubernetes:{}", view.as_str()).into(),
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
    String::from_utf8(bytes).map_err(|_| of_another_list())
}

/// The problem of a cursor of another list.
pub(in crate::http) fn of_another_list() -> Problem {
    expired(ExpiredReason::WrongList, "the continue token belongs to another list")
}

fn expired(reason: ExpiredReason, detail: &'static str) -> Problem {
    Problem::expired(reason, detail).hint("start the list again").with("parameter", "continue")
}

#[cfg(test)]
mod tests {
    use deltaq_engine::lives::Life;

    use super::*;

    /// The lives of a queue that no longer remembers the lives of its first numbers.
    fn forgetful() -> Lives {
        let life = |n: u32| Life { id: LifeId::new(n), first: Rv::new(n.into()), last: Rv::new(n.into()) };
        Lives::restore((100..356).map(life).collect()).expect("a life")
    }

    fn reason(decoded: Result<String, Problem>) -> String {
        let problem = decoded.expect_err("it is refused");
        problem.field("reason").expect("a reason").to_owned()
    }

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
            List::Indexes,
            List::Sources,
            List::Workers,
            List::ParkedErrors,
            List::History,
            List::Watch(View::Latest),
            List::Watch(View::Known),
        ];
        for given in lists {
            let cursor = encode(given, &lives(7), Rv::new(12), "5:x");
            for asked in lists {
                for life in [7, 70] {
                    let decoded = decode(asked, &lives(life), &cursor)
                        .map_err(|problem| problem.field("reason").map(str::to_owned));
                    let expected = match (asked == given, life == 7) {
                        (true, true) => Ok("5:x".to_owned()),
                        (true, false) => Err(Some("lost".to_owned())),
                        (false, _) => Err(Some("wrong_list".to_owned())),
                    };
                    assert_eq!(decoded, expected, "{given:?} in {asked:?}");
                }
            }
            assert_eq!(reason(decode(given, &forgetful(), &cursor)), "too_old", "{given:?}");
            assert!(decode_queues(&cursor).is_err());
            assert!(decode(given, &lives(7), &encode_queues("5:x")).is_err());
        }
        assert_eq!(decode_queues(&encode_queues("5:x")).unwrap(), "5:x");
    }
}
