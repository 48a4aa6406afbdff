//! Reports the invalid objects that a call with `--skip-invalid` has left out.

use deltaq_types::InvalidObject;

use super::output::clean;

/// Reports the objects on stderr, and the number of those that the reply does not name.
pub(super) fn tell_invalid(invalid: u64, objects: &[InvalidObject]) {
    for object in objects {
        let key = object
            .key
            .as_deref()
            .map_or_else(|| "an object without a readable key".to_owned(), |key| format!("key {key}"));
        eprintln!("left out: {}: {}", clean(&key), clean(&object.detail));
    }
    let more = invalid.saturating_sub(objects.len() as u64);
    if more > 0 {
        eprintln!("left out: {more} more");
    }
}
