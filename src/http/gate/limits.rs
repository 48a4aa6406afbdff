//! Fixed limits of requests.

use std::time::Duration;

pub(in crate::http) use deltaq_types::terms::DELAY_MAX;

/// Maximum number of keys in one pop.
pub(in crate::http) const POP_MAX: u64 = 1_000;
/// Minimum length of a lease.
pub(in crate::http) const LEASE_MIN: Duration = Duration::from_secs(1);
/// Maximum length of a lease.
pub(in crate::http) const LEASE_MAX: Duration = Duration::from_hours(12);
/// Number of entries of a page without the parameter `limit`.
pub(in crate::http) const PAGE_DEFAULT: u64 = 500;
/// Maximum number of entries of a page.
pub(in crate::http) const PAGE_MAX: u64 = 5_000;
/// Approximate maximum size of a page, in bytes.
pub(in crate::http) const PAGE_BYTES_MAX: usize = 8 << 20;
/// Approximate maximum size of the pages in which a list is streamed, in bytes. A stream holds one page at a time.
pub(in crate::http) const STREAMED_PAGE_BYTES_MAX: usize = 256 << 10;
/// Maximum wait of a read for an index that is being built. While it waits, the read counts toward the limit of
/// reads.
pub(in crate::http) const INDEX_WAIT_MAX: Duration = Duration::from_secs(10);
/// Interval of the bookmarks of a watch without the parameter `bookmark`.
pub(in crate::http) const BOOKMARK_DEFAULT: Duration = Duration::from_secs(15);
/// Minimum interval of bookmarks.
pub(in crate::http) const BOOKMARK_MIN: Duration = Duration::from_secs(1);
/// Maximum interval of bookmarks. It is limited because a connection whose client accepts no bytes for
/// `server.idle_timeout` is closed.
pub(in crate::http) const BOOKMARK_MAX: Duration = Duration::from_mins(1);
/// Minimum time after which the server ends a stream.
pub(in crate::http) const WATCH_MIN: Duration = Duration::from_mins(5);
/// The server ends a stream at most this much later.
pub(in crate::http) const WATCH_SPREAD: Duration = Duration::from_mins(5);
