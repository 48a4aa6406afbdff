//! Lists the shared texts and the references to them, for the cleanup.

use sqlx::sqlite::SqliteConnection;

use super::{rows, sql};
use crate::store::{Position, References, Referring};
use crate::text_id::TextId;

/// The next rows of a table that refer to texts.
pub(super) async fn references(
    connection: &mut SqliteConnection,
    table: Referring,
    (first, second): Position,
    limit: u32,
) -> Result<References, sqlx::Error> {
    let text = match table {
        Referring::Journal => sql::JOURNAL_REFERENCES,
        Referring::Runs => sql::RUN_REFERENCES,
    };
    let query = sqlx::query(text).bind(first).bind(second).bind(limit);
    query.fetch_all(connection).await?.iter().map(rows::reference).collect()
}

/// The next texts.
pub(super) async fn all(
    connection: &mut SqliteConnection,
    after: Option<TextId>,
    limit: u32,
) -> Result<Vec<(TextId, u64)>, sqlx::Error> {
    let after = after.map(|id| id.to_string()).unwrap_or_default();
    let query = sqlx::query(sql::LIST_TEXTS).bind(after).bind(limit);
    query.fetch_all(connection).await?.iter().map(rows::text_size).collect()
}
