//! Lists the shared texts and the references to them, for the cleanup.

use sqlx::sqlite::SqliteConnection;

use super::{rows, sql};
use crate::store::{LISTED_ROWS_MAX, Position, References, Referring};
use crate::text_id::TextId;

/// The next rows of a table that refer to texts.
pub(super) async fn references(
    connection: &mut SqliteConnection,
    table: Referring,
    (first, second): Position,
) -> Result<References, sqlx::Error> {
    let text = match table {
        Referring::Journal => sql::JOURNAL_REFERENCES,
        Referring::Keys => sql::KEY_REFERENCES,
    };
    let query = sqlx::query(text).bind(first).bind(second).bind(LISTED_ROWS_MAX);
    query.fetch_all(connection).await?.iter().map(rows::reference).collect()
}

/// The next texts.
pub(super) async fn all(
    connection: &mut SqliteConnection,
    after: Option<TextId>,
) -> Result<Vec<(TextId, u64)>, sqlx::Error> {
    let after = after.map(|id| id.to_string()).unwrap_or_default();
    let query = sqlx::query(sql::LIST_TEXTS).bind(after).bind(LISTED_ROWS_MAX);
    query.fetch_all(connection).await?.iter().map(rows::text_size).collect()
}
