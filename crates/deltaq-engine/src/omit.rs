//! Fields that records leave out.

/// Whether a field of a record is left out: a reader then uses the default.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
