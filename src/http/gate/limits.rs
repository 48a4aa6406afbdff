//! Limits of requests that no setting changes.

use std::time::Duration;

pub(in crate::http) use deltaq_types::terms::DELAY_MAX;

/// Most keys in one pop.
pub(in crate::http) const POP_MAX: u64 = 1_000;
/// Shortest lease.
pub(in crate::http) const LEASE_MIN: Duration = Duration::from_secs(1);
/// Longest lease.
pub(in crate::http) const LEASE_MAX: Duration = Duration::from_hours(12);
/// Entries of a page without the parameter `limit`.
pub(in crate::http) const PAGE_DEFAULT: u64 = 500;
/// Most entries of a page.
pub(in crate::http) const PAGE_MAX: u64 = 5_000;
/// Approximate maximum size of a page, in bytes.
pub(in crate::http) const PAGE_BYTES_MAX: usize = 8 << 20;
/// Approximate maximum size of the pages in which a list is streamed, in bytes. A stream holds one of them at a time.
pub(in crate::http) const STREAMED_PAGE_BYTES_MAX: usize = 256 << 10;
/// Longest wait of a read for an index that is being built. The read counts in the limit of reads meanwhile.
pub(in crate::http) const INDEX_WAIT_MAX: Duration = Duration::from_secs(10);
/// Interval of the bookmarks of a watch without the parameter `bookmark`.
pub(in crate::http) const BOOKMARK_DEFAULT: Duration = Duration::from_secs(15);
/// Shortest interval of bookmarks.
pub(in crate::http) const BOOKMARK_MIN: Duration = Duration::from_secs(1);
/// Longest interval of bookmarks. The connection of a client that takes no bytes for `server.idle_timeout` is closed.
pub(in crate::http) const BOOKMARK_MAX: Duration = Duration::from_mins(1);
/// Shortest time after which the server ends a stream.
pub(in crate::http) const WATCH_MIN: Duration = Duration::from_mins(5);
/// The server ends a stream at most this much later.
pub(in crate::http) const WATCH_SPREAD: Duration = Duration::from_mins(5);
