//! The names that public APIs use for pages, and what their values say.

use serde_json::value::RawValue;

use crate::json;

/// Parts of a reply that are about pages.
const PARTS: &str = "additionaldata context cursors hits info link links meta metadata page pageinfo pager pages \
    pagination paginginfo paging response responsemetadata resultinfo search searchinformation \
    searchmetadata view";
/// The cursor or link to the next page.
const NEXT: &str = "next continue continuation continuationtoken lastevaluatedkey";
/// What such a name may have behind `next`.
const OF_NEXT: &str = "continuation cursor href items key link marker offset page range records results start token \
    uri url";
/// What may follow on that.
const OF_NEXT_PAGE: &str = "at id index info num number params path query str string";
/// The members of a cursor or link that is an object.
const IN_NEXT: &str = "after cursor href link number offset page start startingafter token uri url";
/// Whether more follows.
const MORE: &str = "istruncated more moreavailable moredata moreitems moreitemsincollection morepages morerecords \
    moreresults";
/// Whether nothing follows.
const LAST: &str = "endofdata endoflist endofrecords endofresults islast islastpage last lastpage";
/// Whether the list is not whole. That it is says nothing of other pages.
const PARTIAL: &str = "exceededtransferlimit incompleteresults ispartial partial timedout truncated";
/// The number of objects of all pages. A number of rows may be that of the table.
const TOTAL: &str = "count itemcount itemstotal matched nbhits nhits numberofresults numbermatched numfound \
    numresults recordcount recordsfiltered resultcount resultstotal total";
/// What such a name may have behind `total`.
const OF_TOTAL: &str = "available count elements entries entrycount found hits itemcount items matched matches \
    objectcount objects recordcount records resultcount results";
/// The number of pages.
const PAGES: &str = "lastpage maxpage nbpages numberofpages numpages pages pagestotal pagetotal totalpagecount \
    totalpages";
/// Values that mean that there is no cursor, besides an empty one.
const NOTHING: &str = "-1 0 false nil none null undefined";

/// What a name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The cursor or link to the next page, if it has a value.
    Next,
    /// Another page follows.
    More,
    /// This is the last page.
    Last,
    /// The list is not whole.
    Partial,
    Total(u64),
    Pages(u64),
}

/// Where the cursor or link is, and whether it looks like a URL; `None` if there is none.
pub(super) fn next_at(value: &RawValue, pointer: &str) -> Option<(String, bool)> {
    match json::kind(value) {
        "an object" => {
            let members = json::members(value).unwrap_or_default();
            let is_known = |(name, _): &&(String, &RawValue)| is_in(IN_NEXT, &plain(name));
            let known: Vec<_> = members.iter().filter(is_known).collect();
            if known.is_empty() {
                return (!members.is_empty()).then(|| (pointer.to_owned(), false));
            }
            let found =
                known.into_iter().filter_map(|(name, value)| next_at(value, &format!("{pointer}/{name}")));
            found.max_by_key(|(_, is_url)| *is_url)
        }
        "a string" | "a number" | "a boolean" => {
            let text = json::scalar(value)?.trim().to_ascii_lowercase();
            let is_url = text.contains("://") || text.starts_with(['/', '?']);
            let is_something = !text.is_empty() && !is_in(NOTHING, &text);
            is_something.then(|| (pointer.to_owned(), is_url))
        }
        _ => None,
    }
}

/// A name without its prefix, its case and its separators, as in `@odata.nextLink` and `hydra:totalItems`.
pub(super) fn plain(name: &str) -> String {
    let name = name.rsplit([':', '.', '$']).next().unwrap_or_default();
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// What a member or a header says.
pub(super) fn meaning(plain: &str, value: &RawValue) -> Option<Meaning> {
    let is_in = |names| is_in(names, plain);
    let starts = |starts: &[&str]| starts.iter().any(|start| plain.starts_with(start));
    let text = json::scalar(value).unwrap_or_default().trim().to_ascii_lowercase();
    let is_more = is_in(MORE) || starts(&["hasmore", "hasnext"]);
    let flag = match (json::kind(value), text.as_str()) {
        ("a boolean" | "a string", "true") => Some(true),
        ("a boolean" | "a string", "false") => Some(false),
        ("a number", number) if is_more => Some(number != "0"),
        _ => None,
    };
    if let Some(is_set) = flag {
        return match is_set {
            true if is_more || plain == "next" => Some(Meaning::More),
            true if is_in(PARTIAL) => Some(Meaning::Partial),
            true if is_in(LAST) => Some(Meaning::Last),
            false if is_more => Some(Meaning::Last),
            false if is_in(LAST) => Some(Meaning::More),
            false if is_in("complete iscomplete") => Some(Meaning::Partial),
            _ => None,
        };
    }
    let is_of_next = |rest: &str| {
        let mut rests = OF_NEXT.split(' ').filter_map(|word| rest.strip_prefix(word));
        rests.any(|rest| {
            rest.is_empty() || [OF_NEXT, OF_NEXT_PAGE].iter().any(|names| self::is_in(names, rest))
        })
    };
    let is_next = is_in(NEXT)
        || plain.strip_prefix("next").is_some_and(is_of_next)
        || plain.starts_with("more") && plain.ends_with("url")
        // Airtable's cursor. Others have the number of the first object there.
        || plain == "offset" && json::kind(value) == "a string" && text.parse::<f64>().is_err();
    if is_next {
        return Some(Meaning::Next);
    }
    // Elasticsearch gives the number with its exactness.
    let inner = json::find(value, "/value").ok().flatten().and_then(json::scalar);
    let number = inner.unwrap_or(text).parse().ok()?;
    let is_total =
        is_in(TOTAL) || plain.strip_prefix("total").is_some_and(|rest| self::is_in(OF_TOTAL, rest));
    if is_total { Some(Meaning::Total(number)) } else { is_in(PAGES).then_some(Meaning::Pages(number)) }
}

/// Whether a member is a part of a reply that is about pages.
pub(super) fn is_part(plain: &str) -> bool {
    is_in(PARTS, plain)
}

/// Whether a word is among words.
fn is_in(words: &str, word: &str) -> bool {
    words.split(' ').any(|known| known == word)
}
