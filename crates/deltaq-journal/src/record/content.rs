//! The content of rows that is not an engine value, and the error for rows that can't be read.

use deltaq_engine::event::Event;
use deltaq_engine::id::Rv;
use deltaq_engine::snapshot::QueueState;
use deltaq_engine::time::Time;
use deltaq_types::name::{Incarnation, Name};

use crate::store::QueueId;
use crate::text_id::TextId;

/// The format version that is written, and the newest version that can be read.
pub const FORMAT: u32 = 1;

/// The facts of a queue that never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The queue's number in the store.
    pub id: QueueId,
    /// A number that increases each time any queue is created or deleted.
    pub version: u64,
    /// The queue's name.
    pub name: Name,
    /// Distinguishes the queue from earlier ones of the same name.
    pub incarnation: Incarnation,
    /// When the queue was created.
    pub created_at: Time,
}

/// The content of a queue row.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueRecord {
    /// The queue.
    pub identity: Identity,
    /// The event at which the state was captured; the last event of a deleted queue.
    pub rv: Rv,
    /// The state, unless the queue was deleted.
    pub state: Option<QueueState>,
}

/// The events of a journal row, although the store may have lost texts to which the row refers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastEvents {
    /// The events, oldest first. An event whose object is lost has an empty object.
    pub events: Vec<Event>,
    /// The lost objects, oldest first.
    pub lost: Vec<LostObject>,
}

/// An object that an event had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostObject {
    /// The event.
    pub rv: Rv,
    /// The id of the text that the store has lost.
    pub text: TextId,
}

/// Why a row can't be read. The message names the row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A column differs from what was written.
    #[error("{row}: damaged: the checksum is {found:08x}, and that of the other columns {computed:08x}")]
    Damaged {
        /// The row's name.
        row: String,
        /// The checksum in the row.
        found: u32,
        /// The checksum of the other columns.
        computed: u32,
    },
    /// A later version of deltaq wrote the row.
    #[error("{row}: its format is version {format}, and the newest that can be read here is {FORMAT}")]
    Newer {
        /// The row's name.
        row: String,
        /// The version of the row's format.
        format: u32,
    },
    /// The checksum is right, but the content is invalid.
    #[error("{row}: unreadable: {reason}")]
    Unreadable {
        /// The row's name.
        row: String,
        /// What is wrong.
        reason: String,
    },
}
