//! The journal makes events durable, in order. A reply waits until its events are durable.
//!
//! All queues share one journal. Events that arrive while a commit runs are grouped into the next commit, so all
//! waiting calls share the cost of making it durable (group commit). The journal is not an object store and contains
//! no rules of a queue. It stores the engine's events and returns them after a restart.
//!
//! Architecture invariants:
//! - only a [`store`] knows how rows are stored, and only [`record`] knows what a row contains;
//! - no module imports from this one, which only declares the public parts;
//! - a commit has exactly one outcome. If it fails, every commit that was queued after it fails too.

pub mod offline;
pub mod postgres;
pub mod record;
pub mod recovery;
pub mod snapshot;
pub mod sqlite;
pub mod store;
pub mod writer;

mod checkpointer;
mod commit;
mod commit_queue;
mod compression;
mod grouped_batch;
mod handle;
mod hooks;
mod options;
mod pages;
mod partition;
mod queue_log;
mod runs;
mod shared_texts;
mod text_cleanup;
mod text_id;
mod turns;

pub use self::commit::{Author, Commit, Error, Health};
pub use self::commit_queue::CommitQueue;
pub use self::handle::Journal;
pub use self::hooks::{Live, Observer};
pub use self::options::WriterOptions;
pub use self::partition::partition_of;
pub use self::queue_log::QueueMeta;
pub use self::runs::Runs;
pub use self::text_id::TextId;
