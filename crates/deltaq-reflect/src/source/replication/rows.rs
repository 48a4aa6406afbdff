//! Rows of the stream as JSON. The database itself converts them, with the function that writes the copy, so a row has the
//! same text in both.

use serde_json::value::RawValue;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row as _};

use super::pgoutput::{Cell, Old, Row};
use super::session::{Session, refused};
use super::table::Table;
use crate::json;
use crate::source::Error;
use crate::source::sql::quoted;

/// The query of the whole table.
pub(super) fn copy(table: &Table) -> String {
    let columns: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
    format!(
        "SELECT row_to_json(t.*)::text FROM (SELECT {} FROM {}) AS t",
        columns.join(", "),
        table.of_rows()
    )
}

/// The query of the row that has these values in columns of the identity.
pub(super) fn of_identity(table: &Table, identity: &[String]) -> String {
    let wanted = identity.iter().enumerate().map(|(at, name)| {
        let kind = table.columns.iter().position(|column| column.name == *name);
        let kind = kind.and_then(|at| table.types.get(at)).map_or("text", String::as_str);
        format!("t.{} = CAST(${} AS {kind})", quoted(name), at + 1)
    });
    format!("{} WHERE {}", copy(table), wanted.collect::<Vec<_>>().join(" AND "))
}

/// The query that converts texts, which it takes as one array for each column.
fn conversion(table: &Table) -> String {
    let all = 1..=table.columns.len();
    let arrays: Vec<String> = all.clone().map(|at| format!("${at}::text[]")).collect();
    let names: Vec<String> = all.map(|at| format!("c{at}")).collect();
    let columns = table.columns.iter().zip(&table.types).zip(&names);
    let columns: Vec<String> = columns
        .map(|((column, kind), name)| format!("CAST(u.{name} AS {kind}) AS {}", quoted(&column.name)))
        .collect();
    format!(
        "SELECT row_to_json(t.*)::text FROM unnest({}) WITH ORDINALITY AS u({}, place) \
         CROSS JOIN LATERAL (SELECT {}) AS t ORDER BY u.place",
        arrays.join(", "),
        names.join(", "),
        columns.join(", ")
    )
}

/// Converts rows. A value that was not sent is null. The transaction that this begins is to be ended.
pub(super) async fn convert(
    session: &mut Session,
    table: &Table,
    rows: &[&Row],
) -> Result<Vec<Box<RawValue>>, Error> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let mut query = sqlx::query(AssertSqlSafe(conversion(table))).persistent(false);
    for at in 0..table.columns.len() {
        let column: Vec<Option<&str>> = rows.iter().map(|row| text(row.get(at))).collect();
        query = query.bind(column);
    }
    session.begin().await?;
    let limit = session.limit();
    let converted = super::session::within(limit, query.fetch_all(&mut session.connection)).await?;
    let converted = converted.map_err(refused)?;
    if converted.len() != rows.len() {
        return Err(Error::new("the database has converted another number of rows"));
    }
    converted.iter().map(object).collect()
}

fn text(cell: Option<&Cell>) -> Option<&str> {
    match cell {
        Some(Cell::Text(text)) => Some(text),
        Some(Cell::Null | Cell::Unchanged) | None => None,
    }
}

/// The object of a row of such a query.
pub(super) fn object(row: &PgRow) -> Result<Box<RawValue>, Error> {
    let text: String = row.try_get(0).map_err(refused)?;
    // A value of the type json may have line breaks, which the queue keeps as blanks, since its lists are lines.
    RawValue::from_string(text.replace(['\n', '\r'], " "))
        .map_err(|error| Error::because("a row is not JSON", error))
}

/// The new row with the values of an earlier state of the row in the columns that were not sent; `None` if the earlier
/// state lacks one of them.
pub(super) fn patched(new: &RawValue, earlier: &RawValue, missing: &[&str]) -> Option<Box<RawValue>> {
    let (mut members, before) = (json::members(new).ok()?, json::members(earlier).ok()?);
    for name in missing {
        let (_, value) = before.iter().find(|(known, _)| known == name)?;
        let (_, place) = members.iter_mut().find(|(known, _)| known == name)?;
        *place = value;
    }
    let members = members
        .iter()
        .map(|(name, value)| serde_json::to_string(name).map(|name| format!("{name}:{}", value.get())).ok());
    let text = format!("{{{}}}", members.collect::<Option<Vec<_>>>()?.join(","));
    RawValue::from_string(text).ok()
}

/// The names of the columns that were not sent.
pub(super) fn missing<'t>(table: &'t Table, row: &Row) -> Vec<&'t str> {
    let columns = table.columns.iter().zip(row);
    columns.filter(|(_, cell)| **cell == Cell::Unchanged).map(|(column, _)| column.name.as_str()).collect()
}

/// The new row with the values that the old row has of the columns that were not sent. A null of an old row that is not whole is none of them.
pub(super) fn completed(new: Row, old: &Old) -> Row {
    let value = |(new, old_cell): (Cell, &Cell)| {
        let is_known = old.is_whole || matches!(old_cell, Cell::Text(_));
        if new == Cell::Unchanged && is_known { old_cell.clone() } else { new }
    };
    new.into_iter().zip(&old.row).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::super::pgoutput::Column;
    use super::super::table::Identity;
    use super::*;

    fn table() -> Table {
        let column = |name: &str| Column { name: name.to_owned(), type_id: 0, modifier: -1 };
        Table {
            id: 1,
            name: "\"s\".\"t\"".to_owned(),
            is_partitioned: false,
            columns: vec![column("id"), column("a\"b")],
            types: vec!["integer".to_owned(), "numeric(5,2)".to_owned()],
            identity: Identity::Whole,
        }
    }

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn the_database_writes_the_json() {
        assert_eq!(
            copy(&table()),
            "SELECT row_to_json(t.*)::text FROM (SELECT \"id\", \"a\"\"b\" FROM ONLY \"s\".\"t\") AS t"
        );
        assert_eq!(
            conversion(&table()),
            "SELECT row_to_json(t.*)::text FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u(c1, c2, place) \
             CROSS JOIN LATERAL (SELECT CAST(u.c1 AS integer) AS \"id\", CAST(u.c2 AS numeric(5,2)) AS \"a\"\"b\") AS t \
             ORDER BY u.place"
        );
        assert!(of_identity(&table(), &["id".to_owned()]).ends_with(" WHERE t.\"id\" = CAST($1 AS integer)"));
    }

    #[test]
    fn values_that_were_not_sent_come_from_the_earlier_state() {
        let (new, earlier) =
            (raw(r#"{"id":1,"big":null,"n":1.10}"#), raw(r#"{"big": {"x": 1.00}, "id":1,"n":3}"#));
        let patched_with =
            |missing: &[&str]| patched(&new, &earlier, missing).map(|object| object.get().to_owned());
        assert_eq!(patched_with(&["big"]).unwrap(), r#"{"id":1,"big":{"x": 1.00},"n":1.10}"#);
        assert_eq!(patched_with(&["gone"]), None);
        let row = vec![Cell::Text("1".to_owned()), Cell::Unchanged];
        assert_eq!(missing(&table(), &row), ["a\"b"]);
        let text = |text: &str| Cell::Text(text.to_owned());
        let old = |row: Vec<Cell>, is_whole| Old { row, is_whole };
        assert_eq!(completed(row, &old(vec![Cell::Null, text("big")], true)), [text("1"), text("big")]);
        // A large value of the identity, as in an old row that has only the identity.
        let row = vec![Cell::Unchanged, Cell::Unchanged];
        assert_eq!(completed(row, &old(vec![text("k"), Cell::Null], false)), [text("k"), Cell::Unchanged]);
    }
}
