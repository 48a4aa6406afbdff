//! Signs of more objects in a reply that the settings take for the end of the list: a cursor or link under another name, `has_more`, a
//! number of objects or pages. Without them a page would pass for the whole list, and the keys of the others would be deleted.
//!
//! The names are those of public APIs. Only what stands beside the list, on the way to it, or in a part for pages is looked at. A reply that
//! says that it is the last page is believed.

mod names;
#[cfg(test)]
mod tests;

use reqwest::header::{CONTENT_RANGE, HeaderMap};
use serde_json::value::RawValue;

use self::names::{Meaning, is_part, meaning, next_at, plain};
use super::super::Error;
use super::link;
use crate::json;

/// Deepest part that is looked at.
const DEPTH_MAX: usize = 3;

/// What one page says. Each text names where.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// A cursor or a link leads to another page. Some servers have one on the last page, too.
    next: Option<String>,
    /// The page says that another one follows.
    more: Option<String>,
    /// The list is not whole.
    partial: Option<String>,
    /// The number of objects and of pages.
    total: Option<(u64, String)>,
    pages: Option<(u64, String)>,
    /// The page says that it is the last one.
    is_last: bool,
}

/// What was read up to the end of the list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    pub(super) objects: u64,
    pub(super) pages: u64,
    /// Whether the list ended behind a number, and not because a page named no other one.
    pub(super) is_numbered: bool,
}

impl Signs {
    /// Looks at a reply. `document` is `None` where it has lines.
    pub(super) fn new(headers: &HeaderMap, document: Option<&RawValue>, items: &str) -> Self {
        let mut signs = Self::default();
        if let Some(document) = document {
            signs.of_way(document, items);
        }
        for (name, value) in headers {
            if let Ok(text) = value.to_str() {
                signs.of_header(name.as_str(), text.trim());
            }
        }
        if let Ok(Some(_)) = link::next(headers) {
            signs.next =
                Some(follows("the header Link", "without --next and --page-parameter it is followed"));
        }
        let range = headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok()?.rsplit_once('/'));
        if let Some(total) = range.and_then(|(_, total)| total.trim().parse().ok()) {
            at_least(&mut signs.total, total, "the header content-range".to_owned());
        }
        signs
    }

    /// Keeps the number of objects of the page before, if this one has none.
    pub(super) fn after(self, before: Self) -> Self {
        Self { total: self.total.or(before.total), ..self }
    }

    /// Refuses the end of a list if a reply says that there is more. `of` names the reply.
    pub(super) fn check(&self, of: &str, read: Read) -> Result<(), Error> {
        let Some(why) = self.why(read) else { return Ok(()) };
        Err(Error::new(format!(
            "the list of {of} ends here by the settings, but {why}; --trust-end takes it as it is"
        )))
    }

    fn why(&self, read: Read) -> Option<String> {
        if let Some(partial) = &self.partial {
            return Some(format!("{partial} says that it is not complete"));
        }
        // Some servers name a next page for ever. The user has said how numbered pages end.
        if let Some(more) = self.more.as_ref().filter(|_| !read.is_numbered) {
            return Some(more.clone());
        }
        if self.is_last {
            return None;
        }
        if let Some(next) = self.next.as_ref().filter(|_| !read.is_numbered) {
            return Some(next.clone());
        }
        let Read { objects, pages, .. } = read;
        let advice = if read.is_numbered {
            "is --first-page right?"
        } else {
            "--next or --page-parameter leads to the others"
        };
        if let Some((total, place)) = self.total.as_ref().filter(|(total, _)| *total > objects) {
            return Some(format!(
                "{place} says that there are {total} objects, and it has {objects}; {advice}"
            ));
        }
        let (total, place) = self.pages.as_ref().filter(|(total, _)| *total > pages && !read.is_numbered)?;
        Some(format!("{place} says that there are {total} pages, and {pages} were read; {advice}"))
    }

    /// The members beside the list and on the way to it.
    fn of_way(&mut self, document: &RawValue, items: &str) {
        let (mut value, mut pointer) = (document, String::new());
        for token in items.split('/').skip(1) {
            self.of_object(value, &pointer, Some(token), 0);
            let step = format!("/{token}");
            let Ok(Some(inner)) = json::find(value, &step) else { return };
            (value, pointer) = (inner, pointer + &step);
        }
    }

    /// The members of an object, without the one that leads to the list.
    fn of_object(&mut self, object: &RawValue, pointer: &str, without: Option<&str>, depth: usize) {
        if json::kind(object) != "an object" || depth > DEPTH_MAX {
            return;
        }
        for (name, value) in json::members(object).unwrap_or_default() {
            let token = name.replace('~', "~0").replace('/', "~1");
            if without == Some(token.as_str()) || token.chars().any(char::is_control) {
                continue;
            }
            let (plain, pointer) = (plain(&name), format!("{pointer}/{token}"));
            match (meaning(&plain, value), json::kind(value)) {
                (Some(meaning), _) => self.of_value(meaning, value, &pointer),
                (None, "an object") if is_part(&plain) => {
                    self.of_object(value, &pointer, None, depth + 1);
                }
                (None, "an array") if plain == "link" || plain == "links" => self.of_links(value, &pointer),
                (None, _) => {}
            }
        }
    }

    fn of_value(&mut self, meaning: Meaning, value: &RawValue, pointer: &str) {
        let place = if pointer.starts_with('/') {
            format!("its member {pointer}")
        } else {
            format!("the header {pointer}")
        };
        match meaning {
            Meaning::Next => {
                if let Some((pointer, is_url)) = next_at(value, pointer) {
                    let cursor = if is_url { "" } else { " with --next-parameter NAME" };
                    self.next = Some(follows(&place, &format!("--next {pointer}{cursor} leads to it")));
                }
            }
            Meaning::Total(number) => at_least(&mut self.total, number, place),
            Meaning::Pages(number) => at_least(&mut self.pages, number, place),
            Meaning::Partial => self.partial = Some(place),
            Meaning::More => self.more = Some(follows(&place, "--next or --page-parameter leads to it")),
            Meaning::Last => self.is_last = true,
        }
    }

    fn of_header(&mut self, name: &str, text: &str) {
        let rest = name.strip_prefix("x-").unwrap_or(name);
        let is_of_pages = ["next-", "pagination-", "total-"].iter().any(|start| name.starts_with(start));
        if rest == name && !is_of_pages {
            return;
        }
        let quoted = serde_json::value::to_raw_value(text);
        let value = serde_json::from_str::<&RawValue>(text).ok().or(quoted.as_deref().ok());
        let Some(value) = value else { return };
        if json::kind(value) == "an object" {
            if is_part(&plain(rest)) {
                self.of_object(value, "", None, 0);
            }
            return;
        }
        let start =
            ["ms-", "wp-", "pagination-", "paging-"].iter().find_map(|start| rest.strip_prefix(start));
        match meaning(&plain(start.unwrap_or(rest)), value) {
            Some(Meaning::Next) if next_at(value, "").is_none() => {}
            Some(Meaning::Next) => {
                let advice = "--page-parameter reads pages by number";
                self.next = Some(follows(&format!("the header {name}"), advice));
            }
            Some(meaning) => self.of_value(meaning, value, name),
            None => {}
        }
    }

    /// A list of links, each with its relation.
    fn of_links(&mut self, links: &RawValue, pointer: &str) {
        let links: Vec<&RawValue> = serde_json::from_str(links.get()).unwrap_or_default();
        let text = |link: &RawValue, pointer| {
            json::find(link, pointer).ok().flatten().and_then(json::scalar).unwrap_or_default()
        };
        let has_target =
            |link: &RawValue| ["/href", "/url"].iter().any(|target| !text(link, target).is_empty());
        let is_next = |link: &RawValue| {
            let mut relations = ["/rel", "/relation"].iter().map(|relation| text(link, relation));
            relations.any(|relation| relation.eq_ignore_ascii_case("next")) && has_target(link)
        };
        if links.into_iter().any(is_next) {
            let advice = "a link in an array can't be followed, but a command can read the pages";
            self.next = Some(follows(&format!("its member {pointer}"), advice));
        }
    }
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
