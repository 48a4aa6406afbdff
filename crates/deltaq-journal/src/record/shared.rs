//! Large objects in rows of queues that share them: the row has a reference, and the text is stored once.

use std::sync::Arc;

use deltaq_engine::object::Object;

use crate::store::SharedText;
use crate::text_id::TextId;

/// Objects of at least this many bytes are shared. The reference, its place in the indexes and the row of the text take
/// several hundred bytes, so sharing shorter objects would save little.
pub const SHARED_BYTES_MIN: usize = 4 << 10;

/// Whether the object is shared.
pub(super) fn is_large(object: &Object) -> bool {
    object.bytes() >= SHARED_BYTES_MIN
}

/// Replaces a large object by a reference, and adds its text to `texts`.
pub(super) fn share(object: &mut Object, texts: &mut Vec<SharedText>) {
    if is_large(object) {
        let text = object.shared();
        // The deltas of a key, its known object and the keys of followers are often clones of one object.
        let id = TextId::of_shared(&text);
        *object = Object::from_valid(&id.reference());
        texts.push(SharedText { id, text });
    }
}

/// Replaces a reference by the object. If the store has lost the text, the object becomes empty, and the id of the text is
/// returned.
pub(super) fn resolve_or_empty(object: &mut Object, texts: &[SharedText]) -> Result<Option<TextId>, String> {
    if let Some(id) = TextId::from_reference(object.as_str()) {
        let shared = texts.iter().find(|shared| shared.id == id);
        let shared = shared.ok_or_else(|| format!("it does not list text {id}, to which it refers"))?;
        if shared.text.is_empty() {
            *object = Object::empty();
            return Ok(Some(id));
        }
        *object = Object::from_shared(Arc::clone(&shared.text));
    }
    if object.as_str().starts_with('{') { Ok(None) } else { Err("an object is not a JSON object".to_owned()) }
}

/// Replaces a reference by the object.
pub(super) fn resolve(object: &mut Object, texts: &[SharedText]) -> Result<(), String> {
    resolve_or_empty(object, texts)?.map_or(Ok(()), |id| Err(lost(id)))
}

/// Why an object is lost.
pub(super) fn lost(id: TextId) -> String {
    format!(
        "its object is lost: text {id} is missing in table texts, or differs from what was written. `deltaq check` says \
         which rows need the text, and what to do"
    )
}
