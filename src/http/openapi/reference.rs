//! References to named schemas.

use serde_json::{Value, json};

/// A reference to the schema of this name.
pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}
