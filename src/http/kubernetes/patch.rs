//! The two patches of JSON: merge patch (RFC 7386) and JSON patch (RFC 6902), from text to text.
//!
//! What a patch does not touch keeps its text: no number goes through a float, and members keep their order. Only the
//! objects and arrays on the way to a change are taken apart. Nothing here knows queues, HTTP or Kubernetes' objects.
//!
//! A patch can't take more than its share: depth, operations, the size of the result and the work are bounded.

use std::collections::{HashMap, HashSet};

use self::tree::{Member, Node};

mod numbers;
mod operations;
mod tree;

pub(super) use self::operations::json_patch;

/// Deepest nesting that a patch may reach.
const DEPTH_MAX: usize = 128;

/// Why a patch is not applied. Each variant has the message for the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PatchError {
    /// The text is no patch: status 400.
    Malformed(String),
    /// The patch has too many operations, or its result is too large: status 413.
    TooLarge(String),
    /// An operation can't be carried out on this object: status 422.
    Refused(String),
}

/// Applies a merge patch. A patch that changes nothing returns the text of the target as it is.
///
/// A member may be in an object of the patch only once.
pub(super) fn merge(target: &str, patch: &str) -> Result<String, PatchError> {
    let root = tree::root(target).ok_or_else(|| malformed("the object is not JSON"))?;
    let patch = tree::valid(patch).ok_or_else(|| malformed("invalid JSON patch"))?;
    match tree::kind(patch) {
        "object" => {}
        "null" => return Err(malformed("Invalid JSON Patch")),
        kind => return Err(undecodable(kind, "map[string]interface {}")),
    }
    let mut root = root;
    if merge_into(&mut root, patch, DEPTH_MAX)? { Ok(root.text()) } else { Ok(target.to_owned()) }
}

/// Merges the text of an object, and says whether that changed anything.
fn merge_into<'t>(target: &mut Node<'t>, patch: &'t str, depth: usize) -> Result<bool, PatchError> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(malformed(&format!("the patch is nested deeper than {DEPTH_MAX}")));
    };
    let changes = tree::members(patch).ok_or_else(|| malformed("invalid JSON patch"))?;
    refuse_duplicates(&changes)?;
    let mut is_changed = false;
    if !target.is_object() {
        *target = Node::Object(Vec::new());
        is_changed = true;
    }
    target.open();
    let Node::Object(members) = target else {
        return Err(malformed("the object is not JSON"));
    };
    let places: HashMap<_, _> =
        members.iter().enumerate().map(|(at, member)| (member.name.clone(), at)).collect();
    let mut removed = HashSet::new();
    for Member { key, name, value } in changes {
        let Node::Raw(text) = value else { continue };
        let place = places.get(&name).copied();
        match (place.and_then(|at| members.get_mut(at)), tree::kind(text)) {
            (None, "null") => {}
            (Some(_), "null") => {
                removed.extend(place);
            }
            (Some(member), "object") => is_changed |= merge_into(&mut member.value, text, depth)?,
            (Some(member), _) => {
                is_changed |= !matches!(member.value, Node::Raw(old) if old == text);
                member.value = Node::Raw(text);
            }
            (None, kind) => {
                let mut value = Node::Raw(text);
                if kind == "object" {
                    // Merging into an empty object leaves out the members that are null.
                    value = Node::Object(Vec::new());
                    merge_into(&mut value, text, depth)?;
                }
                members.push(Member { key, name, value });
                is_changed = true;
            }
        }
    }
    if !removed.is_empty() {
        is_changed = true;
        let mut at = 0..;
        members.retain(|_| at.next().is_none_or(|at| !removed.contains(&at)));
    }
    Ok(is_changed)
}

fn refuse_duplicates(members: &[Member<'_>]) -> Result<(), PatchError> {
    let mut seen = HashSet::with_capacity(members.len());
    match members.iter().find(|member| !seen.insert(&member.name)) {
        Some(twice) => Err(malformed(&format!("error decoding patch: duplicate field {:?}", twice.name))),
        None => Ok(()),
    }
}

fn malformed(message: &str) -> PatchError {
    PatchError::Malformed(message.to_owned())
}

/// A patch of the wrong kind, in the words of a cluster.
fn undecodable(kind: &str, wanted: &str) -> PatchError {
    PatchError::Malformed(format!(
        "error decoding patch: json: cannot unmarshal {kind} into Go value of type {wanted}"
    ))
}

#[cfg(test)]
mod tests;
