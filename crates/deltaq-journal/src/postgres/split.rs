//! Splits a store of one partition into several, for several nodes.
//!
//! Invariant: the split is one transaction, so a store has one partition with all queues, or all partitions. It
//! begins a new epoch, so a writer that still has the partition open can't write afterwards.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};

use super::connect::{self, simple, simple_rows};
use super::error::{database, within};
use super::{Settings, sql};
use crate::store::Error;

const DOING: &str = "split the store into partitions";
/// Timeout for moving the rows of a table.
const MOVE_MAX: Duration = Duration::from_hours(1);

/// Moves the queues of partition 0 to the partitions that `partition_of` returns for their names. Creates these partitions.
///
/// # Errors
/// The store does not consist of one closed partition, nodes use it, or the database has failed. Nothing has changed.
pub(super) async fn split(
    settings: &Settings,
    partitions: i16,
    partition_of: impl Fn(&str) -> i16,
) -> Result<(), Error> {
    let (mut connection, _) = connect::writable(settings, 0).await?;
    simple(&mut connection, DOING, sql::begin_split()).await?;
    let row = simple(&mut connection, DOING, sql::SPLITTABLE).await?;
    let is_closed = row.ok_or(sqlx::Error::RowNotFound).and_then(|row| row.try_get::<bool, _>(0));
    if !is_closed.map_err(|error| database(DOING, error))? {
        let doing =
            format!("{DOING}: {} has several partitions already, or a server uses it", settings.name());
        return Err(Error::Failed { doing, source: None });
    }
    let rows = simple_rows(&mut connection, DOING, sql::QUEUES_TO_SPLIT.to_owned()).await?;
    let (mut queues, mut numbers) = (Vec::new(), Vec::new());
    for row in &rows {
        let (queue, name) = named(row).map_err(|error| database(DOING, error))?;
        queues.push(queue);
        numbers.push(partition_of(&name));
    }
    simple(&mut connection, DOING, sql::add_partitions(partitions)).await?;
    for statement in sql::SPLITS {
        moved(&mut connection, statement, &queues, &numbers).await?;
    }
    for statement in [sql::SPLIT_TEXTS, sql::SPLIT_MINUTES] {
        let copying = sqlx::query(statement).persistent(false);
        within(MOVE_MAX, DOING, copying.execute(&mut connection)).await?;
    }
    simple(&mut connection, DOING, "COMMIT").await?;
    Ok(())
}

fn named(row: &PgRow) -> Result<(i64, String), sqlx::Error> {
    let name: Vec<u8> = row.try_get(1)?;
    let name = String::from_utf8(name).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok((row.try_get(0)?, name))
}

async fn moved(
    connection: &mut PgConnection,
    statement: &'static str,
    queues: &[i64],
    numbers: &[i16],
) -> Result<(), Error> {
    let moving = sqlx::query(statement).bind(queues).bind(numbers).persistent(false);
    within(MOVE_MAX, DOING, moving.execute(connection)).await?;
    Ok(())
}
