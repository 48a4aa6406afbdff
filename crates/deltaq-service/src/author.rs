//! The author of changes: a part of the context of a task, which every change of the task passes to the journal.

use deltaq_journal::Author;

tokio::task_local! {
    static AUTHOR: Author;
}

/// Runs a future whose changes are made on behalf of `author`.
pub async fn on_behalf_of<T>(author: Author, future: impl Future<Output = T>) -> T {
    AUTHOR.scope(author, future).await
}

/// The author of the changes that the current task makes. Without one, it is the server.
#[must_use]
pub fn author() -> Author {
    AUTHOR.try_with(Clone::clone).unwrap_or_default()
}
