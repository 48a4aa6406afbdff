//! Decides which fields records leave out.

/// Whether a field has its default value. Records leave such a field out, and readers use the default.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
