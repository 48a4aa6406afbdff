//! JSON patch: a list of operations, all of which are carried out or none.

use super::tree::{self, Member, Node};
use super::{DEPTH_MAX, PatchError, malformed, undecodable};

/// Most operations of a patch: as many as a cluster takes.
const OPERATIONS_MAX: usize = 10_000;

/// Most steps that the operations of a patch may take together: members looked at, elements moved, bytes read again.
/// It is about half a second.
const STEPS_MAX: usize = 100_000_000;

/// Applies a JSON patch whose result has at most `bytes_max`.
pub(in crate::http::kubernetes) fn json_patch(
    target: &str,
    patch: &str,
    bytes_max: usize,
) -> Result<String, PatchError> {
    let root = tree::root(target).ok_or_else(|| malformed("the object is not JSON"))?;
    let patch = tree::valid(patch).ok_or_else(|| malformed("invalid JSON patch"))?;
    match tree::kind(patch) {
        "array" => {}
        "null" => return Err(malformed("Invalid JSON Patch")),
        kind => return Err(undecodable(kind, "[]handlers.jsonPatchOp")),
    }
    let operations = tree::elements(patch).ok_or_else(|| malformed("invalid JSON patch"))?;
    if operations.len() > OPERATIONS_MAX {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        )));
    }
    let operations = operations.into_iter().map(Operation::read).collect::<Result<Vec<_>, _>>()?;
    let mut document = Document { root, steps: STEPS_MAX, copied_bytes: 0, bytes_max };
    let mut is_changed = false;
    for (index, operation) in operations.iter().enumerate() {
        let applied = document.apply(operation).map_err(|failure| failure.of(index, operation))?;
        is_changed |= applied == Applied::Changed;
    }
    if !is_changed {
        return Ok(target.to_owned());
    }
    if document.root.bytes() > bytes_max {
        return Err(too_large(bytes_max));
    }
    Ok(document.root.text())
}

fn too_large(bytes_max: usize) -> PatchError {
    PatchError::TooLarge(format!("the patch makes the object larger than {bytes_max} bytes"))
}

/// An operation as it is written. What it needs is known only by its name.
#[derive(Default)]
struct Operation<'t> {
    op: Option<String>,
    path: Option<String>,
    from: Option<String>,
    value: Option<&'t str>,
}

impl<'t> Operation<'t> {
    fn read(text: &'t str) -> Result<Self, PatchError> {
        if tree::kind(text) != "object" {
            return Err(undecodable(tree::kind(text), "handlers.jsonPatchOp"));
        }
        let members = tree::members(text).ok_or_else(|| malformed("invalid JSON patch"))?;
        super::refuse_duplicates(&members)?;
        let mut operation = Self::default();
        for Member { name, value, .. } in members {
            let Node::Raw(text) = value else { continue };
            match &*name {
                "op" => operation.op = Some(string(&name, text)?),
                "path" => operation.path = Some(string(&name, text)?),
                "from" => operation.from = Some(string(&name, text)?),
                "value" => operation.value = Some(text),
                _ => {}
            }
        }
        Ok(operation)
    }

    fn path(&self) -> Result<Vec<String>, Failure> {
        pointer(self.path.as_deref().ok_or(Failure::Refused("it has no path"))?)
    }

    fn from(&self) -> Result<Vec<String>, Failure> {
        pointer(self.from.as_deref().ok_or(Failure::Refused("it has no from"))?)
    }

    fn value(&self) -> Result<Node<'t>, Failure> {
        self.value.map(Node::Raw).ok_or(Failure::Refused("it has no value"))
    }
}

fn string(name: &str, text: &str) -> Result<String, PatchError> {
    let wrong = || malformed(&format!("error decoding patch: {name} is not a string"));
    if tree::kind(text) == "string" {
        Ok(tree::string(text).ok_or_else(wrong)?.into_owned())
    } else {
        Err(wrong())
    }
}

/// The reference tokens of a JSON pointer.
fn pointer(text: &str) -> Result<Vec<String>, Failure> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let rest = text.strip_prefix('/').ok_or(Failure::Refused("a path is empty or begins with /"))?;
    let tokens = rest.split('/').map(unescaped).collect::<Result<Vec<_>, _>>()?;
    if tokens.len() > DEPTH_MAX {
        return Err(Failure::Refused("the path is too deep"));
    }
    Ok(tokens)
}

fn unescaped(token: &str) -> Result<String, Failure> {
    let plain = token.replace("~1", "").replace("~0", "");
    if plain.contains('~') {
        return Err(Failure::Refused("in a path, ~ is written ~0"));
    }
    Ok(token.replace("~1", "/").replace("~0", "~"))
}

#[derive(PartialEq, Eq)]
enum Applied {
    Changed,
    Tested,
}

/// Why an operation is not carried out.
enum Failure {
    Refused(&'static str),
    TooMuchWork,
    TooLarge(usize),
}

impl Failure {
    fn of(self, index: usize, operation: &Operation<'_>) -> PatchError {
        match self {
            Failure::Refused(why) => {
                let op = operation.op.as_deref().unwrap_or_default();
                let path = operation.path.as_deref().unwrap_or_default();
                PatchError::Refused(format!("operation {index} ({op:?} {path:?}): {why}"))
            }
            Failure::TooMuchWork => PatchError::TooLarge(format!(
                "the operations up to {index} need more than {STEPS_MAX} steps on an object of this size"
            )),
            Failure::TooLarge(bytes_max) => too_large(bytes_max),
        }
    }
}

const MISSING: Failure = Failure::Refused("there is no such member or element");

struct Document<'t> {
    root: Node<'t>,
    /// How many steps are left.
    steps: usize,
    /// What copies have added so far.
    copied_bytes: usize,
    bytes_max: usize,
}

impl<'t> Document<'t> {
    fn apply(&mut self, operation: &Operation<'t>) -> Result<Applied, Failure> {
        match operation.op.as_deref() {
            Some("add") => self.add(&operation.path()?, operation.value()?)?,
            Some("remove") => {
                self.remove(&operation.path()?)?;
            }
            Some("replace") => {
                let value = operation.value()?;
                *self.find(&operation.path()?)? = value;
            }
            Some("move") => self.move_from(&operation.from()?, &operation.path()?)?,
            Some("copy") => self.copy(&operation.from()?, &operation.path()?)?,
            Some("test") => {
                self.test(&operation.path()?, &operation.value()?)?;
                return Ok(Applied::Tested);
            }
            _ => return Err(Failure::Refused("there is no such operation")),
        }
        Ok(Applied::Changed)
    }

    fn find(&mut self, path: &[String]) -> Result<&mut Node<'t>, Failure> {
        path.iter().try_fold(&mut self.root, |node, token| child(node, token, &mut self.steps))
    }

    fn add(&mut self, path: &[String], value: Node<'t>) -> Result<(), Failure> {
        let Some((last, parents)) = path.split_last() else {
            self.root = value;
            return Ok(());
        };
        let (depth, values) = value.extent();
        spend(&mut self.steps, values)?;
        if path.len() + depth > DEPTH_MAX {
            return Err(Failure::Refused("the result is too deep"));
        }
        let parent = self.find(parents)?;
        parent.open();
        match parent {
            Node::Object(members) => {
                let steps = members.len();
                match members.iter_mut().find(|member| member.name == *last) {
                    Some(member) => member.value = value,
                    None => members.push(Member::named(last.clone(), value)),
                }
                spend(&mut self.steps, steps)
            }
            Node::Array(values) => {
                let at = if last == "-" { values.len() } else { index(last).ok_or(MISSING)? };
                if at > values.len() {
                    return Err(MISSING);
                }
                let steps = values.len() - at;
                values.insert(at, value);
                spend(&mut self.steps, steps)
            }
            Node::Raw(_) => Err(MISSING),
        }
    }

    fn remove(&mut self, path: &[String]) -> Result<Node<'t>, Failure> {
        let Some((last, parents)) = path.split_last() else {
            return Err(Failure::Refused("the whole object can't be removed"));
        };
        let parent = self.find(parents)?;
        parent.open();
        let (removed, steps) = match parent {
            Node::Object(members) => {
                let at = members.iter().position(|member| member.name == *last).ok_or(MISSING)?;
                (members.remove(at).value, members.len())
            }
            Node::Array(values) => {
                let at = index(last).filter(|at| *at < values.len()).ok_or(MISSING)?;
                (values.remove(at), values.len())
            }
            Node::Raw(_) => return Err(MISSING),
        };
        spend(&mut self.steps, steps)?;
        Ok(removed)
    }

    fn move_from(&mut self, from: &[String], path: &[String]) -> Result<(), Failure> {
        if from == path {
            return self.find(from).map(|_| ());
        }
        if path.starts_with(from) {
            return Err(Failure::Refused("a value can't be moved into itself"));
        }
        let value = self.remove(from)?;
        self.add(path, value)
    }

    fn copy(&mut self, from: &[String], path: &[String]) -> Result<(), Failure> {
        let bytes_left = self.bytes_max.saturating_sub(self.copied_bytes);
        let bytes_max = self.bytes_max;
        let value = self.find(from)?;
        let bytes = value.bytes();
        if bytes > bytes_left {
            return Err(Failure::TooLarge(bytes_max));
        }
        let value = value.clone();
        self.copied_bytes += bytes;
        self.add(path, value)
    }

    fn test(&mut self, path: &[String], wanted: &Node<'t>) -> Result<(), Failure> {
        let mut steps = self.steps;
        let is_equal = tree::is_equal(self.find(path)?, wanted, DEPTH_MAX, &mut steps);
        self.steps = self.steps.min(steps);
        match is_equal {
            Some(true) => Ok(()),
            Some(false) => Err(Failure::Refused("the value is another")),
            None => Err(Failure::Refused("the value is too deep or too large to be compared")),
        }
    }
}

fn child<'n, 't>(
    node: &'n mut Node<'t>,
    token: &str,
    steps: &mut usize,
) -> Result<&'n mut Node<'t>, Failure> {
    node.open();
    match node {
        Node::Object(members) => {
            spend(steps, members.len())?;
            members.iter_mut().find(|member| member.name == token).map(|member| &mut member.value)
        }
        Node::Array(values) => index(token).and_then(|at| values.get_mut(at)),
        Node::Raw(_) => None,
    }
    .ok_or(MISSING)
}

fn spend(steps: &mut usize, count: usize) -> Result<(), Failure> {
    *steps = steps.checked_sub(count).ok_or(Failure::TooMuchWork)?;
    Ok(())
}

/// An index of an array: digits without zeros before them.
fn index(token: &str) -> Option<usize> {
    let is_plain =
        token.bytes().all(|byte| byte.is_ascii_digit()) && (token == "0" || !token.starts_with('0'));
    if is_plain { token.parse().ok() } else { None }
}
