//! The rules of every store, with the fake store.

use crate::store::fake::FakeStore;
use crate::store::suite;

suite!(FakeStore::default());
