//! Limits of requests that no setting changes.

use std::time::Duration;

pub(super) use deltaq_types::terms::DELAY_MAX;

/// Most keys in one pop.
pub(super) const POP_MAX: u64 = 1_000;
/// Shortest lease.
pub(super) const LEASE_MIN: Duration = Duration::from_secs(1);
/// Longest lease.
pub(super) const LEASE_MAX: Duration = Duration::from_hours(12);
/// Entries of a page without the parameter `limit`.
pub(super) const PAGE_DEFAULT: u64 = 500;
/// Most entries of a page.
pub(super) const PAGE_MAX: u64 = 5_000;
/// Approximate maximum size of a page, in bytes.
pub(super) const PAGE_BYTES_MAX: usize = 8 << 20;
/// Approximate maximum size of the pages in which a list is streamed, in bytes. A stream holds one of them at a time.
pub(super) const STREAMED_PAGE_BYTES_MAX: usize = 256 << 10;
/// Longest wait of a read for an index that is being built. The read counts in the limit of reads meanwhile.
pub(super) const INDEX_WAIT_MAX: Duration = Duration::from_secs(10);
/// Interval of the bookmarks of a watch without the parameter `bookmark`.
pub(super) const BOOKMARK_DEFAULT: Duration = Duration::from_secs(15);
/// Shortest interval of bookmarks.
pub(super) const BOOKMARK_MIN: Duration = Duration::from_secs(1);
/// Longest interval of bookmarks. The connection of a client that takes no bytes for `server.idle_timeout` is closed.
pub(super) const BOOKMARK_MAX: Duration = Duration::from_mins(1);
/// Shortest time after which the server ends a stream.
pub(super) const WATCH_MIN: Duration = Duration::from_mins(5);
/// The server ends a stream at most this much later.
pub(super) const WATCH_SPREAD: Duration = Duration::from_mins(5);
