//! Finds signs of more objects in a reply that is the end of the list according to the settings: a cursor or link
//! under another name, `has_more`, a number of objects or pages. Without this check, a page could pass for the whole
//! list, and the keys of the other pages would be deleted.
//!
//! The names are those of public APIs. The check covers the members beside the list, those on the way to it, and
//! those in a part about pages. A reply that says that it is the last page is trusted. A value that can't be read
//! counts as a sign.

mod names;
#[cfg(test)]
mod tests;

use reqwest::Url;
use reqwest::header::HeaderMap;
use serde_json::value::RawValue;

use self::names::{Meaning, is_bare, is_failure, is_own, is_part, meaning, next_at, number, opposite, plain};
use super::super::Error;
use super::link;
use crate::json;

/// Maximum depth at which parts are examined.
const DEPTH_MAX: usize = 3;
/// Maximum number of elements of an array on the way to the list, such as `[page, list]`.
const ELEMENTS_MAX: usize = 4;

/// The signs in one page. Each text names the place of its sign.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// A cursor or a link leads to another page. Some servers include one even on the last page.
    next: Option<String>,
    /// A position in the list, which leads to another page unless `has_no_next`.
    cursor: Option<String>,
    /// A member for the next page says that there is no such page.
    has_no_next: bool,
    /// A value that may say that another page follows, but can't be read.
    unclear: Option<String>,
    /// The page says that another one follows.
    more: Option<String>,
    /// The reply says that the list is incomplete.
    partial: Option<String>,
    /// The number of objects or pages, and its place.
    total: Option<(u64, String)>,
    /// A number that is the number of all objects if there is no `total`.
    count: Option<(u64, String)>,
    /// There are more objects than this number.
    more_than: Option<(u64, String)>,
    /// Whether two pages have different numbers of all objects.
    is_torn: bool,
    pages: Option<(u64, String)>,
    /// A page with at least this number of objects may be a range of a list whose number of objects is not known.
    open: Option<(u64, String)>,
    /// The page says that it is the last one.
    is_last: bool,
}

/// What was read up to the end of the list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    pub(super) objects: u64,
    pub(super) pages: u64,
    /// Whether the list consists of numbered pages. Otherwise it ended because a page did not name another one. An
    /// empty page that ends such a list does not count in `pages`.
    pub(super) is_numbered: bool,
    /// Whether no page has named another one, and the settings do not say how a page names the next one.
    pub(super) is_alone: bool,
}

impl Signs {
    /// Examines the reply to a request for `asked`. `document` is `None` for a reply with one object per line.
    pub(super) fn new(headers: &HeaderMap, document: Option<&RawValue>, items: &str, asked: &Url) -> Self {
        let list = plain(items.rsplit('/').next().unwrap_or_default());
        let mut look = Look { signs: Self::default(), list, asked };
        if let Some(document) = document {
            look.way(document, items);
        }
        for (name, value) in headers {
            if let Ok(text) = value.to_str() {
                look.header(name.as_str(), text.trim());
            }
        }
        let mut signs = look.signs;
        if let Ok(Some(_)) = link::next(headers) {
            signs.next =
                Some(follows("the header Link", "without --next and --page-parameter it is followed"));
        }
        signs
    }

    /// Keeps what the pages before have said about the whole list: the number of objects, if this page has none, and
    /// that something is missing.
    pub(super) fn after(self, before: Self) -> Self {
        let number = |total: &Option<(u64, String)>| total.as_ref().map(|(number, _)| *number);
        let differ = number(&self.total).zip(number(&before.total)).is_some_and(|(one, other)| one != other);
        Self {
            is_torn: differ || before.is_torn,
            total: self.total.or(before.total),
            count: self.count.or(before.count),
            more_than: self.more_than.or(before.more_than),
            partial: self.partial.or(before.partial),
            ..self
        }
    }

    /// Whether the number of all objects has changed while the pages were read.
    pub(super) const fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Refuses the end of a list if a reply says that there are more objects. `of` names the reply.
    pub(super) fn check(&self, of: &str, read: Read) -> Result<(), Error> {
        let Some(why) = self.why(read) else { return Ok(()) };
        Err(Error::new(format!(
            "the list of {of} ends here by the settings, but {why}; --trust-end takes it as it is"
        )))
    }

    fn why(&self, read: Read) -> Option<String> {
        let next = self.next.clone();
        if let Some(partial) = &self.partial {
            return next.or_else(|| Some(format!("{partial} says that it is not complete")));
        }
        if let Some(more) = &self.more {
            return next.or_else(|| Some(more.clone()));
        }
        if self.is_last {
            return None;
        }
        // The place of an object, or of this page. For numbered pages, the settings say how the list ends.
        let cursor = self.cursor.as_ref().filter(|_| !self.has_no_next && !read.is_numbered);
        let unclear = self.unclear.as_ref().filter(|_| !read.is_numbered);
        if let Some(next) = next.or_else(|| cursor.or(unclear).cloned()) {
            return Some(next);
        }
        let Read { objects, pages, .. } = read;
        let advice = if read.is_numbered {
            "is --first-page right?"
        } else {
            "--next or --page-parameter leads to the others"
        };
        let total = self.total.as_ref().or(self.count.as_ref());
        if let Some((total, place)) = total.filter(|(total, _)| *total > objects) {
            return Some(format!(
                "{place} says that there are {total} objects, and it has {objects}; {advice}"
            ));
        }
        if let Some((number, place)) = self.more_than.as_ref().filter(|(number, _)| *number >= objects) {
            return Some(format!(
                "{place} says that there are more than {number} objects, and it has {objects}; {advice}"
            ));
        }
        if let Some((total, place)) = self.pages.as_ref().filter(|(total, _)| *total > pages) {
            return Some(format!(
                "{place} says that there are {total} pages, and {pages} were read; {advice}"
            ));
        }
        let is_open =
            |least: u64| read.is_alone && objects >= least && total.or(self.pages.as_ref()).is_none();
        let (_, place) = self.open.as_ref().filter(|(least, _)| is_open(*least))?;
        let advice = format!("{advice}, and a header such as Prefer: count=exact may ask for their number");
        Some(format!("{place} is that of a range, and does not say how many objects there are; {advice}"))
    }
}

/// The examination of one reply.
struct Look<'r> {
    signs: Signs,
    /// The plain name of the list.
    list: String,
    /// The URL that was asked for.
    asked: &'r Url,
}

impl Look<'_> {
    /// Examines the members beside the list and on the way to it.
    fn way(&mut self, document: &RawValue, items: &str) {
        let (mut value, mut pointer) = (document, String::new());
        for token in items.split('/').skip(1) {
            self.beside(value, &pointer, token);
            let step = format!("/{token}");
            let Ok(Some(inner)) = json::find(value, &step) else { return };
            (value, pointer) = (inner, pointer + &step);
        }
    }

    /// Examines everything beside the member or element that leads to the list.
    fn beside(&mut self, value: &RawValue, pointer: &str, token: &str) {
        if json::kind(value) != "an array" {
            return self.object(value, pointer, Some(token), 0);
        }
        let elements: Vec<&RawValue> = serde_json::from_str(value.get()).unwrap_or_default();
        if elements.len() <= ELEMENTS_MAX {
            let elements = elements.into_iter().enumerate();
            for (index, element) in elements.filter(|(index, _)| index.to_string() != token) {
                self.object(element, &format!("{pointer}/{index}"), None, 0);
            }
        }
    }

    /// Examines the members of an object, except the one that leads to the list.
    fn object(&mut self, object: &RawValue, pointer: &str, without: Option<&str>, depth: usize) {
        if json::kind(object) != "an object" || depth > DEPTH_MAX {
            return;
        }
        let members = json::members(object).unwrap_or_default();
        let is_own = depth == 0 && is_own(&members);
        for (name, value) in &members {
            let token = name.replace('~', "~0").replace('/', "~1");
            if without == Some(token.as_str()) || token.chars().any(char::is_control) {
                continue;
            }
            let (plain, pointer) = (plain(name), format!("{pointer}/{token}"));
            match (meaning(&plain, value, &self.list), json::kind(value)) {
                (Some(Meaning::Count(_)), _) if is_own => {}
                (Some(_), _) if is_own && is_bare(&plain) => {}
                (Some(Meaning::Cursor | Meaning::Count(_)), _)
                    if self.is_no_sign(&plain, value, &members) => {}
                // What is left of a rate limit.
                (Some(Meaning::More), "a number")
                    if plain == "remaining" && has(&members, &["limit", "reset"]) => {}
                (Some(meaning), _) => self.value(meaning, value, &pointer),
                (None, _) if !is_own && is_failure(&plain, value) => {
                    self.value(Meaning::Partial, value, &pointer);
                }
                (None, "an object") if is_part(&plain) => self.object(value, &pointer, None, depth + 1),
                (None, "an array") if plain.ends_with("link") || plain.ends_with("links") => {
                    self.links(value, &pointer);
                }
                (None, _) => {}
            }
        }
    }

    /// Whether a position in the list is not that of the next page. If its opposite is beside it, it is the position
    /// of the last object. Values of the request, such as its cursor or the size of a page, are not signs either.
    fn is_no_sign(&self, name: &str, value: &RawValue, beside: &[(String, &RawValue)]) -> bool {
        let opposite = opposite(name);
        let has_opposite =
            beside.iter().any(|(other, value)| plain(other) == opposite && next_at(value, "").is_some());
        let text = json::scalar(value).unwrap_or_default();
        let mut asked = self.asked.query_pairs();
        opposite != name && has_opposite || asked.any(|(known, asked)| plain(&known) == name && asked == text)
    }

    fn value(&mut self, meaning: Meaning, value: &RawValue, pointer: &str) {
        let place = if pointer.starts_with('/') {
            format!("its member {pointer}")
        } else {
            format!("the header {pointer}")
        };
        let signs = &mut self.signs;
        match meaning {
            Meaning::Next | Meaning::Cursor => {
                let found = next_at(value, pointer).map(|(pointer, is_url)| {
                    let cursor = if is_url { "" } else { " with --next-parameter NAME" };
                    follows(&place, &format!("--next {pointer}{cursor} leads to it"))
                });
                match (meaning, found) {
                    (Meaning::Next, None) => signs.has_no_next = true,
                    (Meaning::Next, found) => signs.next = found,
                    (_, found) => signs.cursor = found.or(signs.cursor.take()),
                }
            }
            Meaning::Total(number) => at_least(&mut signs.total, number, place),
            Meaning::Count(number) => at_least(&mut signs.count, number, place),
            Meaning::MoreThan(number) => at_least(&mut signs.more_than, number, place),
            Meaning::Pages(number) => at_least(&mut signs.pages, number, place),
            Meaning::Partial => signs.partial = Some(place),
            Meaning::More => signs.more = Some(follows(&place, "--next or --page-parameter leads to it")),
            Meaning::Unclear => {
                let what = "can't be read, and may say that another page follows";
                signs.unclear = Some(format!("{place} {what}; --next or --page-parameter leads to it"));
            }
            Meaning::Last => signs.is_last = true,
        }
    }

    fn header(&mut self, name: &str, text: &str) {
        if name == "warning" && is_failure("warning", &quoted(text)) {
            self.signs.partial = Some(format!("the header {name}"));
            return;
        }
        if name.ends_with("content-range") {
            return self.range(name, text);
        }
        if name == "accept-range" || name == "accept-ranges" {
            // A number is the largest range. A unit alone says nothing about this reply.
            let most = text.split_once(' ').filter(|(unit, _)| *unit != "bytes");
            if let Some(most) = most.and_then(|(_, most)| number(most)) {
                self.signs.open.get_or_insert((most, format!("the header {name}")));
            }
            return;
        }
        let rest = name.strip_prefix("x-").unwrap_or(name);
        // Any prefix may name the server.
        let own = rest.match_indices('-').map(|(at, _)| at + 1).chain([0]).filter_map(|at| rest.get(at..));
        let own = own.filter(|own| {
            let is_of_pages = ["has-more", "next-", "nexttoken", "pagination-", "total-"]
                .iter()
                .any(|start| own.starts_with(start));
            is_of_pages || ["next", "pagination"].contains(own)
        });
        let own = own.max_by_key(|own| own.len());
        if rest == name && own.is_none() {
            return;
        }
        let quoted = quoted(text);
        let value = serde_json::from_str::<&RawValue>(text).unwrap_or(&quoted);
        if json::kind(value) == "an object" {
            if is_part(&plain(rest)) {
                self.object(value, "", None, 1);
            }
            return;
        }
        let start =
            ["ms-", "wp-", "pagination-", "paging-"].iter().find_map(|start| rest.strip_prefix(start));
        let own = own.map(|own| own.strip_prefix("pagination-").unwrap_or(own));
        let plain = plain(start.or(own).unwrap_or(rest));
        match meaning(&plain, value, &self.list) {
            Some(Meaning::Next | Meaning::Cursor) if next_at(value, "").is_none() => {}
            Some(Meaning::Cursor | Meaning::Count(_)) if self.is_no_sign(&plain, value, &[]) => {}
            Some(Meaning::Next | Meaning::Cursor) => {
                let advice = "--page-parameter reads pages by number";
                self.signs.next = Some(follows(&format!("the header {name}"), advice));
            }
            // Servers also count things other than objects.
            Some(Meaning::Count(_))
                if plain != "count" && !plain.starts_with("total") && !plain.starts_with("records") => {}
            Some(Meaning::More) if plain == "remaining" => {}
            Some(meaning) => self.value(meaning, value, name),
            None => {}
        }
    }

    /// Examines a range, such as `items 0-24/319`. The number of objects may be `*`.
    fn range(&mut self, name: &str, text: &str) {
        let place = format!("the header {name}");
        let (range, total) = text.rsplit_once('/').unwrap_or((text, ""));
        let (unit, range) = range.trim().split_once([' ', '=']).unwrap_or(("", range));
        match number(total) {
            Some(bytes) if unit.trim() == "bytes" => {
                let is_whole = range.trim() == format!("0-{}", bytes.saturating_sub(1));
                self.signs.partial = self.signs.partial.take().or((!is_whole).then_some(place));
            }
            Some(total) => at_least(&mut self.signs.total, total, place),
            None if range.contains(|c: char| c.is_ascii_digit()) => self.signs.open = Some((0, place)),
            None => {}
        }
    }

    /// Examines a list of links, each with its relation.
    fn links(&mut self, links: &RawValue, pointer: &str) {
        let links: Vec<&RawValue> = serde_json::from_str(links.get()).unwrap_or_default();
        let found = |link: &RawValue, names: [&str; 5]| {
            let mut found = names.iter().filter_map(|name| json::find(link, name).ok().flatten());
            found.next().map(ToOwned::to_owned)
        };
        let is_next = |link: &RawValue| {
            let relation = found(link, ["/rel", "/relation", "/rels", "/relations", "/type"]);
            let words = relation.map(|relation| relation.get().to_owned()).unwrap_or_default();
            let target = found(link, ["/href", "/url", "/uri", "/link", "/target"]);
            // A link without a target counts as a link that can't be read.
            let leads = target.is_none_or(|target| next_at(&target, "").is_some());
            words.split([' ', ',', '[', ']', '"']).any(link::is_next) && leads
        };
        if links.into_iter().any(is_next) {
            let advice = "a link in an array can't be followed, but a command can read the pages";
            self.signs.next = Some(follows(&format!("its member {pointer}"), advice));
        }
    }
}

/// Whether an object has a member with one of these names.
fn has(members: &[(String, &RawValue)], names: &[&str]) -> bool {
    members.iter().any(|(name, _)| names.contains(&plain(name).as_str()))
}

/// A text as JSON.
fn quoted(text: &str) -> Box<RawValue> {
    serde_json::value::to_raw_value(text).unwrap_or_default()
}

fn follows(place: &str, advice: &str) -> String {
    format!("{place} says that another page follows; {advice}")
}

/// Keeps the larger number.
fn at_least(known: &mut Option<(u64, String)>, number: u64, place: String) {
    if known.as_ref().is_none_or(|(known, _)| *known < number) {
        *known = Some((number, place));
    }
}
