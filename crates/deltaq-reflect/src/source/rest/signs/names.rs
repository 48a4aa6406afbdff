//! The names that public APIs use for pages, and the meaning of their values.

use serde_json::value::RawValue;

use crate::json;

/// Names of the parts of a reply that describe pages.
const PARTS: &str = "additionaldata attr context cursor hits info link links pages properties response \
    responseheader resultinfo search searchinformation view";
/// Prefixes and suffixes of the names of such parts.
const PART_STARTS: [&str; 7] = ["cursors", "listinfo", "listmeta", "meta", "page", "pagin", "resultset"];
const PART_ENDS: [&str; 8] =
    ["cursors", "links", "meta", "metadata", "pageinfo", "pager", "pagination", "paging"];
/// Names of the cursor or link to the next page.
const NEXT: &str = "next continue";
/// Prefixes of such names.
const NEXT_STARTS: [&str; 2] = ["continuation", "lastevaluated"];
/// Words that may follow `next` in such a name.
const OF_NEXT: &str = "batch continuation cursor from href index items iterator key link marker maxid offset page position \
    range records results start token uri url";
/// Words that may follow those.
const OF_NEXT_PAGE: &str = "at id index info mark no num number params path query str string";
/// Words that may precede `next` in such a name.
const BEFORE_NEXT: &str = "cursor href link offset page pagination paging results token uri url";
/// The members of a cursor or link that is an object.
const IN_NEXT: &str = "after cursor href link number offset page start startingafter token uri url";
/// Names of a position in the list. It is the position of the next page, unless another member says where the next
/// page is.
const CURSOR: &str =
    "after afterid bookmark iterator marker pagestate scrollid scrollparam searchafter startingafter";
/// Suffixes of the names of such a position, and prefixes that exclude it.
const CURSOR_ENDS: [&str; 11] = [
    "continuetoken",
    "cursor",
    "pagekey",
    "pagetoken",
    "paginationkey",
    "paginationtoken",
    "pagingtoken",
    "resumetoken",
    "resumptiontoken",
    "scrolltoken",
    "skiptoken",
];
const NO_CURSOR: [&str; 10] =
    ["back", "before", "current", "delta", "first", "left", "prev", "self", "start", "sync"];
/// Names that say whether more objects follow.
const MORE: &str = "istruncated more moreavailable moredata moreitems moreitemsincollection morepages morerecords \
    moreresults moreresultsavailable";
const MORE_STARTS: [&str; 7] =
    ["hasadditional", "hasmore", "hasnext", "havemore", "ismore", "therearemore", "thereismore"];
/// Names of the number of objects that follow.
const REMAINING: &str = "remaining remainingcount remainingitemcount remainingitems remainingobjects remainingpages \
    remainingrecords remainingresults";
/// Names that say whether nothing follows.
const LAST: &str = "atend end endofdata endoflist endofrecords endofresults endreached eof exhausted isend isendofdata \
    isfinal islast islastpage last lastpage nomore nomoredata nomoreitems nomorepages nomoreresults";
/// Names that say, if false, that not all pages were read. If true, they may describe only the request.
const DONE: &str = "alldone complete done finished iscomplete isdone isfinished";
/// Suffixes of such names.
const DONE_ENDS: [&str; 3] = ["complete", "completed", "finished"];
/// Names that say whether the list is incomplete. A complete list says nothing about other pages.
const PARTIAL: &str = "incomplete ispartial partial timedout truncated";
/// Parts of such names.
const PARTIAL_PARTS: [&str; 6] =
    ["exceeded", "incomplete", "limitreached", "partial", "terminatedearly", "truncated"];
/// Names that say, if false, that the request has failed.
const SUCCESS: &str = "issuccess issuccessful ok success successful succeeded";
/// Names of what has failed, or was left out, beside the results.
const FAILURES: &str = "error errordescription errormessage errormessages errors exception exceptions failedshards failures \
    fault faults missingregions missingshards missingzones unreachable unreachables";
/// Names of a status, and the texts and the numbers with which it says that the request has failed.
const STATUS: &str = "code errcode errno errorcode resultcode retcode status statuscode";
const FAILED: &str = "error fail failure incomplete partial partialsuccess timeout";
/// Names of remarks about the result.
const REMARKS: &str = "message messages notices remarks warning warnings";
/// Parts of a remark that say that objects were left out.
const PARTIAL_TEXTS: [&str; 4] = ["incomplete", "partial re", "timed out", "truncated"];
/// Names of the number of objects on all pages. A number of rows may be that of the table.
const TOTAL: &str = "itemcount itemstotal matched nbhits nhits numberofresults numbermatched numfound numresults \
    recordcount recordsfiltered resultcount resultstotal total";
/// Words that may follow `total` in such a name.
const OF_TOTAL: &str = "available count elements entries entrycount found hits itemcount items matched matches \
    objectcount objects recordcount records resultcount results";
/// Prefixes of a name of the objects that make it their number.
const NUMBER_OF: [&str; 5] = ["count", "nb", "num", "numberof", "total"];
/// Suffixes of names that count something other than objects.
const NOT_COUNTED: &str = "ac amount balance bytes capacity characters cost dis discount due duration error errors failed \
    failure failures fee fees follower followers hours like likes memory millis minutes ms paid points price request \
    requests retries retry revenue row rows scanned score seconds shards tax time value view views warning warnings weight \
    word words";
/// Pointers to the numbers in an object of numbers.
const IN_TOTAL: [&str; 6] = ["/value", "/total", "/count", "/items", "/records", "/results"];
/// Names of the number of pages.
const PAGES: &str = "lastpage lastpagenumber maxpage nbpages numberofpages numpages pagecount pages pagescount \
    pagestotal pagetotal totalpage totalpagecount totalpages";
/// Values that mean that there is no cursor, in addition to an empty value.
const NOTHING: &str = "-1 0 false nil none null undefined";
/// Names with another meaning in an object of the source's own data, such as the sum of an invoice or the pages of a
/// book.
const BARE: &str =
    "bookmark complete count done end finished isend iterator last marker pages position remaining total";
/// Names of members that only the source's own data has. A page may have an id or a name, such as those of a project.
const OWN: &str = "amount assignee author currency customer due grandtotal isbn price priority publisher shipping sku \
    subtotal tax vat";
/// Names of members that a page has besides its list, some of any type and some with numbers.
const OF_PAGE: &str = "cursor hasmore link next nextpage prev previous previouspage resourcetype";
const NUMBERS_OF_PAGE: &str = "currentpage itemsperpage limit maxresults offset page pagenumber pagesize perpage skip \
    start startat startindex take";

/// The meaning of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The cursor or link to the next page, if the member has a value.
    Next,
    /// A position in the list, if the member has a value.
    Cursor,
    /// Another page follows.
    More,
    /// This is the last page.
    Last,
    /// The list is incomplete.
    Partial,
    /// The value can't be read, but it says whether another page follows.
    Unclear,
    Total(u64),
    /// There are more objects than this number.
    MoreThan(u64),
    /// A number that may be that of all objects, if no other member has that number.
    Count(u64),
    Pages(u64),
}

/// The place of the cursor or link, and whether it looks like a URL; `None` if there is none.
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
        "an array" => {
            let elements: Vec<&RawValue> = serde_json::from_str(value.get()).unwrap_or_default();
            let mut elements = elements.into_iter().enumerate();
            elements.find_map(|(index, element)| next_at(element, &format!("{pointer}/{index}")))
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

/// A name without its prefix, case and separators, for names such as `@odata.nextLink` and `hydra:totalItems`.
pub(super) fn plain(name: &str) -> String {
    let name = name.rsplit([':', '.', '$']).next().unwrap_or_default();
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// The meaning of a member or a header. `list` is the plain name of the list.
pub(super) fn meaning(plain: &str, value: &RawValue, list: &str) -> Option<Meaning> {
    let is_in = |names| is_in(names, plain);
    let (kind, text) =
        (json::kind(value), json::scalar(value).unwrap_or_default().trim().to_ascii_lowercase());
    if is_in(REMAINING) {
        return number(&text).is_some_and(|number| number > 0).then_some(Meaning::More);
    }
    let is_any_more = kind == "a boolean" && text == "true" && is_about_more(plain);
    if is_in(MORE) || is_any_more || MORE_STARTS.iter().any(|start| plain.starts_with(start)) {
        return match flag(kind, &text) {
            Some(true) => Some(Meaning::More),
            Some(false) => Some(Meaning::Last),
            None if kind == "a string" || kind != "null" && !is_in(MORE) => Some(Meaning::Unclear),
            None => None,
        };
    }
    // A number may be the number of the last page, or a part of a whole.
    let is_flag = text.parse::<f64>().is_err() || plain.starts_with("is") || is_in(PARTIAL);
    if let Some(is_set) = flag(kind, &text).filter(|_| is_flag) {
        let is_partial = is_in(PARTIAL) || PARTIAL_PARTS.iter().any(|part| plain.contains(part));
        let is_done = is_in(DONE) || DONE_ENDS.iter().any(|end| plain.ends_with(end));
        let said = match is_set {
            true if plain == "next" => Some(Meaning::More),
            true if is_partial && !plain.starts_with("allow") => Some(Meaning::Partial),
            true if is_in(LAST) => Some(Meaning::Last),
            false if is_in(LAST) && !text.is_empty() => Some(Meaning::More),
            false if (is_done && !plain.contains("incomplete") || is_in(SUCCESS)) && !text.is_empty() => {
                Some(Meaning::Partial)
            }
            _ => None,
        };
        if said.is_some() || kind == "a boolean" {
            return said;
        }
    }
    if is_next(plain, kind, &text) {
        return Some(Meaning::Next);
    }
    if is_cursor(plain) && kind != "an object" {
        return Some(Meaning::Cursor);
    }
    let counted = counted(plain, list)?;
    // Elasticsearch reports whether the number is exact.
    let of_list = format!("/{list}");
    let mut numbers = IN_TOTAL.into_iter().chain([of_list.as_str()]);
    let inner = numbers.find_map(|pointer| json::find(value, pointer).ok().flatten().and_then(json::scalar));
    let text = inner.unwrap_or(text);
    if let Some(number) = number(&text) {
        let relation = json::find(value, "/relation").ok().flatten().and_then(json::scalar);
        let is_open = text.trim().ends_with('+') || relation.is_some_and(|relation| relation != "eq");
        return Some(if is_open { Meaning::MoreThan(number) } else { counted(number) });
    }
    // A link to the last page is not a number, and neither is -1.
    let is_number =
        text.contains(|c: char| c.is_ascii_digit()) && !text.contains(['/', '?']) && !text.starts_with('-');
    let is_clear = is_bare(plain) || kind != "a string" || matches!(counted(0), Meaning::Count(_));
    (is_number && !is_clear).then_some(Meaning::Unclear)
}

/// Whether a name contains the word `more` at its beginning or its end, such as `moreComing` and `canLoadMore`.
fn is_about_more(plain: &str) -> bool {
    (plain.starts_with("more") || plain.ends_with("more")) && !plain.starts_with("no")
}

/// Whether a member says that something has failed, or is missing, beside the results.
pub(super) fn is_failure(plain: &str, value: &RawValue) -> bool {
    let (kind, text) =
        (json::kind(value), json::scalar(value).unwrap_or_default().trim().to_ascii_lowercase());
    if is_in(FAILURES, plain) {
        return match kind {
            "an array" => {
                let failures: Vec<&RawValue> = serde_json::from_str(value.get()).unwrap_or_default();
                failures.into_iter().any(is_described)
            }
            "an object" => is_described(value),
            "a string" => !is_in(NOTHING, &text) && !["", "ok", "success"].contains(&text.as_str()),
            _ => flag(kind, &text) == Some(true),
        };
    }
    if is_in(STATUS, plain) {
        let is_status = text.parse::<u16>().is_ok_and(|number| (400..600).contains(&number));
        return is_status || is_in(FAILED, &self::plain(&text));
    }
    if is_in(REMARKS, plain) {
        let text = value.get().to_ascii_lowercase();
        return PARTIAL_TEXTS.iter().any(|part| text.contains(part));
    }
    match plain {
        // Elasticsearch. Shards that are skipped have no results.
        "shards" | "clusters" => {
            ["/failed", "/partial", if plain == "clusters" { "/skipped" } else { "/failed" }]
                .iter()
                .filter_map(|pointer| json::find(value, pointer).ok().flatten().and_then(json::scalar))
                .any(|failed| number(&failed).is_some_and(|failed| failed > 0))
        }
        _ => false,
    }
}

/// Whether an element is the description of a failure. The source's own data may have errors, too, such as the lines
/// of a report.
fn is_described(failure: &RawValue) -> bool {
    let is_known =
        |name: &String| is_in("code description detail details error message reason status title type", name);
    match json::kind(failure) {
        "an object" => {
            json::members(failure).unwrap_or_default().iter().any(|(name, _)| is_known(&self::plain(name)))
        }
        "a string" => json::scalar(failure).is_some_and(|text| !text.trim().is_empty()),
        _ => false,
    }
}

/// The meaning of a name whose value is a number. `list` is the plain name of the list.
fn counted(plain: &str, list: &str) -> Option<fn(u64) -> Meaning> {
    if is_in(PAGES, plain) {
        return Some(Meaning::Pages);
    }
    let of_total = plain.strip_prefix("total");
    let is_of_list = |rest: &str| !["", "rows"].contains(&list) && singular(rest) == singular(list);
    let is_total = is_in(TOTAL, plain)
        || of_total.is_some_and(|rest| is_in(OF_TOTAL, rest))
        || ["count", "total"].iter().any(|end| plain.strip_suffix(end).is_some_and(is_of_list))
        || NUMBER_OF.iter().any(|start| plain.strip_prefix(start).is_some_and(is_of_list));
    if is_total {
        return Some(Meaning::Total);
    }
    // DataTables reports the number of all records in addition to the number of matching ones.
    let rest =
        of_total.or_else(|| plain.strip_suffix("count")).or_else(|| plain.strip_prefix("recordstotal"))?;
    let is_other = NOT_COUNTED.split(' ').any(|word| rest.ends_with(word));
    (!is_other).then_some(Meaning::Count)
}

/// The value as a flag.
fn flag(kind: &str, text: &str) -> Option<bool> {
    match (kind, text) {
        ("a boolean" | "a string", "true" | "t" | "yes" | "y" | "on") => Some(true),
        ("a boolean" | "a string", "false" | "f" | "no" | "n" | "off" | "") => Some(false),
        ("a number" | "a string", text) => text.parse::<f64>().ok().map(|number| number != 0.0),
        _ => None,
    }
}

/// Whether a name means the cursor or link to the next page.
fn is_next(plain: &str, kind: &str, text: &str) -> bool {
    let is_of_next = |rest: &str| {
        let mut rests = OF_NEXT.split(' ').filter_map(|word| rest.strip_prefix(word));
        rests.any(|rest| rest.is_empty() || [OF_NEXT, OF_NEXT_PAGE].iter().any(|names| is_in(names, rest)))
    };
    is_in(NEXT, plain)
        || NEXT_STARTS.iter().any(|start| plain.starts_with(start))
        || plain.strip_prefix("next").is_some_and(is_of_next)
        || plain.strip_suffix("next").is_some_and(|rest| is_in(BEFORE_NEXT, rest))
        || plain.starts_with("more") && plain.ends_with("url")
        // Airtable's cursor. Other APIs use `offset` for the number of the first object of the page.
        // API Gateway's is `position`.
        || ["offset", "position"].contains(&plain) && kind == "a string" && text.parse::<f64>().is_err()
}

/// Whether a name means a position in the list.
fn is_cursor(plain: &str) -> bool {
    is_in(CURSOR, plain)
        || CURSOR_ENDS.iter().any(|end| plain.ends_with(end))
            && !NO_CURSOR.iter().any(|start| plain.starts_with(start))
}

/// The name of the position before this one. Next to it, a position is that of an object and not of the next page.
pub(super) fn opposite(plain: &str) -> String {
    plain.replace("after", "before").replace("end", "start")
}

/// A number of objects or pages. It may contain thousands separators, and `+` if there are more. If a proxy has
/// joined several numbers, the largest one.
pub(super) fn number(text: &str) -> Option<u64> {
    let text = text.trim_end_matches('+').trim();
    let groups: Vec<_> = text.split([',', '_', ' ', '\'']).collect();
    let (first, rest) = groups.split_first()?;
    if !rest.is_empty() && first.len() <= 3 && rest.iter().all(|group| group.len() == 3) {
        return groups.concat().parse().ok();
    }
    let numbers = text.split(',').map(|number| {
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_whole = fraction.bytes().all(|digit| digit == b'0');
        whole.trim().parse::<u64>().ok().filter(|_| is_whole)
    });
    numbers.collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// A name in the singular, or an approximation of it.
fn singular(name: &str) -> String {
    name.strip_suffix("ies")
        .map_or_else(|| name.trim_end_matches('s').to_owned(), |start| format!("{start}y"))
}

/// Whether a member is a part of a reply that describes pages.
pub(super) fn is_part(plain: &str) -> bool {
    is_in(PARTS, plain)
        || PART_STARTS.iter().any(|start| plain.starts_with(start))
        || PART_ENDS.iter().any(|end| plain.ends_with(end))
}

/// Whether a member has another meaning in the source's own data.
pub(super) fn is_bare(plain: &str) -> bool {
    is_in(BARE, plain)
}

/// Whether an object belongs to the source's own data, which contains the list, and is not a page.
pub(super) fn is_own(members: &[(String, &RawValue)]) -> bool {
    let has =
        |is: &dyn Fn(&str, &RawValue) -> bool| members.iter().any(|(name, value)| is(&plain(name), value));
    let is_of_page = |plain: &str, value: &RawValue| {
        is_in(OF_PAGE, plain)
            || is_in(NUMBERS_OF_PAGE, plain)
                && json::scalar(value).is_some_and(|text| text.parse::<f64>().is_ok())
    };
    let is_own = |plain: &str, value: &RawValue| is_in(OWN, plain) && json::scalar(value).is_some();
    has(&is_own) && !has(&is_of_page)
}

/// Whether a word is one of these words.
fn is_in(words: &str, word: &str) -> bool {
    words.split(' ').any(|known| known == word)
}
