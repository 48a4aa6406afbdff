//! Decides which fields are left out of records.

/// Whether a field has its default value. Records leave such a field out, and readers use the default.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
