//! The difference from the known object of a key to its newest one.

use deltaq_engine::delta::{Delta, DeltaKind};
use deltaq_engine::known::Known;
use deltaq_engine::object::{ArrayKeys, DiffLimits, Object, Operation, TooLarge};
use deltaq_types::{DiffOmission, DiffOp, DiffOperation, Difference, RawJson};

/// Maximum number of operations of a difference.
const OPERATIONS_MAX: usize = 1_000;
/// Maximum size of a difference, in bytes of JSON.
const BYTES_MAX: usize = 256 << 10;
/// Small objects may have a difference of this many bytes, which may be more than the objects have.
const BYTES_MIN: usize = 4 << 10;

/// The known and the newest object of a key; `None` if the key has only one of them, and for a deletion.
pub(super) fn compared<'o>(
    known: Option<&'o Known>,
    newest: Option<&'o Delta>,
) -> Option<(&'o Object, &'o Object)> {
    let newest = newest.filter(|delta| delta.kind != DeltaKind::Deleted)?;
    Some((&known?.object, &newest.object))
}

/// Maximum size of the difference of two objects, in bytes: their own size, within bounds. The paths of a difference repeat
/// the names of the members, so its size has no other bound.
pub(super) fn diff_bytes_max(old: &Object, new: &Object) -> usize {
    (old.bytes() + new.bytes()).clamp(BYTES_MIN, BYTES_MAX)
}

/// The difference of two objects.
pub(super) fn difference<'j>(
    old: &'j Object,
    new: &'j Object,
    array_keys: &ArrayKeys,
) -> Result<Vec<Operation<'j>>, TooLarge> {
    let limits = DiffLimits { operations: OPERATIONS_MAX, bytes: diff_bytes_max(old, new) };
    old.diff(new, array_keys, limits)
}

/// What an operation does.
pub(super) fn op(operation: &Operation<'_>) -> DiffOp {
    match (operation.old, operation.new) {
        (Some(_), Some(_)) => DiffOp::Replace,
        (Some(_), None) => DiffOp::Remove,
        (None, _) => DiffOp::Add,
    }
}

/// The members `diff` and `diff_omitted` of a document.
pub(super) fn documents(
    compared: Option<(&Object, &Object)>,
    array_keys: &ArrayKeys,
) -> (Difference, Option<DiffOmission>) {
    let value = |text: Option<&str>| text.map(RawJson::from_valid);
    let document = |operation: &Operation<'_>| DiffOperation {
        op: op(operation),
        path: operation.path.clone(),
        value: value(operation.new),
        old: value(operation.old),
    };
    match compared.map(|(old, new)| difference(old, new, array_keys)) {
        None => (Difference::Null, None),
        Some(Err(TooLarge)) => (Difference::Null, Some(DiffOmission::TooLarge)),
        Some(Ok(operations)) => (Difference::Operations(operations.iter().map(document).collect()), None),
    }
}
