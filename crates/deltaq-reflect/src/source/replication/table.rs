//! A table: its columns, and what identifies its rows.

use super::pgoutput::Column;
use super::session::{Session, get};
use crate::source::Error;
use crate::source::sql::{literal, quoted};

/// The table. A name without a schema is looked up as in any query.
const FIND: &str = "SELECT c.oid::int8, n.nspname::text, c.relname::text, c.relkind::text \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)";
/// The columns that the stream has: a generated column is not one of them. A domain is written as its base type, so that a
/// null of a column that was not sent does not break a rule of the domain.
const COLUMNS: &str = "SELECT a.attname::text, a.atttypid::int8, a.atttypmod, b.name FROM pg_attribute a CROSS JOIN LATERAL ( \
      WITH RECURSIVE d AS ( \
        SELECT a.atttypid AS id, a.atttypmod AS modifier \
        UNION ALL SELECT t.typbasetype, t.typtypmod FROM d JOIN pg_type t ON t.oid = d.id WHERE t.typtype = 'd') \
      SELECT format_type(d.id, d.modifier) AS name FROM d JOIN pg_type t ON t.oid = d.id WHERE t.typtype <> 'd') AS b \
    WHERE a.attrelid = $1::int8::oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum";
/// The table and its partitions that have rows, each with its kind of identity and the columns of the index that it uses, and whether the
/// log has its changes. An index whose check can be deferred identifies no row.
const IDENTITIES: &str = "SELECT c.oid::regclass::text, c.relreplident::text, ( \
      SELECT array_agg(a.attname::text ORDER BY k.place) FROM pg_index i \
      CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place) \
      JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number \
      WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate AND k.place <= i.indnkeyatts \
        AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END), \
      c.relkind = 'r' AND c.relpersistence = 'p' \
    FROM pg_class c WHERE c.relkind IN ('r', 'f') AND (c.oid = $1::int8::oid OR c.oid IN (SELECT relid FROM pg_partition_tree($1::int8::oid::regclass)))";
/// The same for a partitioned table without partitions.
const OWN_IDENTITY: &str = "SELECT array_agg(a.attname::text ORDER BY k.place) FROM pg_index i \
    CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place) \
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number \
    WHERE i.indrelid = $1::int8::oid AND i.indisprimary AND i.indimmediate AND k.place <= i.indnkeyatts";
/// Everything whose change brings or takes rows without an event: the columns, the files (a rewrite has another), the partitions, the
/// identities and the publication.
const SHAPE: &str = "WITH tree AS (SELECT $1::int8::oid AS id UNION SELECT relid::oid FROM pg_partition_tree($1::int8::oid::regclass)) \
    SELECT md5(concat_ws('|', \
      (SELECT string_agg(concat_ws(',', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attgenerated, a.attisdropped), ';' ORDER BY a.attnum) \
        FROM pg_attribute a WHERE a.attrelid = $1::int8::oid AND a.attnum > 0), \
      (SELECT string_agg(concat_ws(',', c.oid, c.relreplident, c.relpersistence, c.relfilenode), ';' ORDER BY c.oid) FROM tree \
        JOIN pg_class c ON c.oid = tree.id), \
      (SELECT concat_ws(',', c.relname, c.relnamespace) FROM pg_class c WHERE c.oid = $1::int8::oid), \
      (SELECT string_agg(i.indexrelid::text, ';' ORDER BY i.indexrelid) FROM tree \
        JOIN pg_index i ON i.indrelid = tree.id AND (i.indisprimary OR i.indisreplident)), \
      (SELECT concat_ws(',', p.oid, p.pubviaroot, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, \
        (SELECT string_agg(t.relid::text, ';' ORDER BY t.relid) FROM pg_get_publication_tables(p.pubname) AS t), \
        (SELECT string_agg(to_jsonb(r)::text, ';' ORDER BY r.oid) FROM pg_publication_rel r WHERE r.prpubid = p.oid)) \
        FROM pg_publication p WHERE p.pubname = $2)))";

/// A table.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) id: i64,
    /// The name with its schema, as in SQL.
    pub(super) name: String,
    pub(super) is_partitioned: bool,
    pub(super) columns: Vec<Column>,
    /// The types of the columns, as in SQL.
    pub(super) types: Vec<String>,
    pub(super) identity: Identity,
}

/// What identifies a row of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Identity {
    /// The values of these columns.
    Columns(Vec<String>),
    /// All values (`REPLICA IDENTITY FULL`).
    Whole,
    /// Nothing, and what to do about it.
    Missing(String),
}

impl Identity {
    /// The same identity, unless a part of it is no column of the stream.
    fn of_columns(self, table: &str, columns: &[Column]) -> Self {
        let is_known = |part: &String| columns.iter().any(|column| column.name == *part);
        match &self {
            Self::Columns(parts) if !parts.iter().all(is_known) => Self::Missing(format!(
                "the replica identity of {table} has a generated column, which the log does not have: \
                 run ALTER TABLE {table} REPLICA IDENTITY USING INDEX with an index of other columns, or REPLICA IDENTITY FULL"
            )),
            _ => self,
        }
    }
}

impl Table {
    /// Reads what the catalogue says about a table.
    pub(super) async fn find(session: &mut Session, name: &str) -> Result<Self, Error> {
        let found = session.rows(FIND, &[name]).await?;
        let found = found.first().ok_or_else(|| Error::new(format!("there is no table {name}")))?;
        let (id, schema, table): (i64, String, String) = (get(found, 0)?, get(found, 1)?, get(found, 2)?);
        let kind: String = get(found, 3)?;
        if !matches!(kind.as_str(), "r" | "p") {
            return Err(Error::new(format!("{name} is not a table, so its changes can't be replicated")));
        }
        let parameter = id.to_string();
        let rows = session.rows(COLUMNS, &[&parameter]).await?;
        let (mut columns, mut types) = (Vec::new(), Vec::new());
        for row in &rows {
            let type_id = u32::try_from(get::<i64>(row, 1)?).unwrap_or_default();
            columns.push(Column { name: get(row, 0)?, type_id, modifier: get(row, 2)? });
            types.push(get(row, 3)?);
        }
        let identity = identity(session, name, &parameter).await?.of_columns(name, &columns);
        let name = format!("{}.{}", quoted(&schema), quoted(&table));
        Ok(Self { id, name, is_partitioned: kind == "p", columns, types, identity })
    }

    /// The table as a list of rows: with its partitions, and without tables that inherit from it, which the publication
    /// does not have either.
    pub(super) fn of_rows(&self) -> String {
        if self.is_partitioned { self.name.clone() } else { format!("ONLY {}", self.name) }
    }

    /// The query of a text that differs after each change of the table that has no events.
    pub(super) fn shape(&self, publication: &str) -> String {
        SHAPE.replace("$1", &self.id.to_string()).replace("$2", &literal(publication))
    }

    /// The pointers of a key that consists of the identity.
    pub(super) fn key(&self) -> Option<Vec<String>> {
        match &self.identity {
            Identity::Columns(columns) => Some(columns.iter().map(|column| pointer(column)).collect()),
            Identity::Whole | Identity::Missing(_) => None,
        }
    }

    /// Why the table can't be published: its updates and deletions would fail.
    pub(super) fn without_identity(&self) -> Option<Error> {
        match &self.identity {
            Identity::Missing(why) => Some(Error::new(why)),
            Identity::Columns(_) | Identity::Whole => None,
        }
    }

    /// Refuses a key that a deletion would not have.
    pub(super) fn check_key(&self, key: &[String]) -> Result<(), Error> {
        let Identity::Columns(columns) = &self.identity else { return Ok(()) };
        let known: Vec<String> = columns.iter().map(|column| pointer(column)).collect();
        let is_known =
            |part: &String| known.iter().any(|known| part == known || part.starts_with(&format!("{known}/")));
        match key.iter().find(|part| !is_known(part)) {
            None => Ok(()),
            Some(part) => Err(Error::new(format!(
                "the key {part} of the queue is not part of the replica identity of {} ({}), so a deletion would not name it: \
                 let the queue have the key {}, or run ALTER TABLE {} REPLICA IDENTITY FULL",
                self.name,
                columns.join(", "),
                known.join(" and "),
                self.name
            ))),
        }
    }
}

/// The identity that all partitions have.
async fn identity(session: &mut Session, name: &str, id: &str) -> Result<Identity, Error> {
    let rows = session.rows(IDENTITIES, &[id]).await?;
    let mut common: Option<Identity> = None;
    for row in &rows {
        let (of, kind, is_logged): (String, String, bool) = (get(row, 0)?, get(row, 1)?, get(row, 3)?);
        if !is_logged {
            return Err(Error::new(format!(
                "{of} is an unlogged, temporary or foreign table, which has no log of changes"
            )));
        }
        let columns: Option<Vec<String>> = get(row, 2)?;
        let identity = match (kind.as_str(), columns) {
            ("f", _) => Identity::Whole,
            (_, Some(columns)) => Identity::Columns(columns),
            _ => return Ok(missing(&of)),
        };
        common = match common {
            None => Some(identity),
            Some(common) if common == identity => Some(common),
            Some(_) => {
                return Ok(Identity::Missing(format!(
                    "the partitions of {name} have different replica identities"
                )));
            }
        };
    }
    if let Some(common) = common {
        return Ok(common);
    }
    let columns: Option<Vec<String>> = get(&session.row(OWN_IDENTITY, &[id]).await?, 0)?;
    Ok(columns.map_or_else(|| missing(name), Identity::Columns))
}

fn missing(table: &str) -> Identity {
    Identity::Missing(format!(
        "the table {table} has no replica identity, so its updates and deletions would fail if it were published: give it a \
         primary key that is not DEFERRABLE, or run ALTER TABLE {table} REPLICA IDENTITY USING INDEX with a unique index of columns that are NOT \
         NULL, or REPLICA IDENTITY FULL, which writes whole rows to the log"
    ))
}

fn pointer(column: &str) -> String {
    format!("/{}", column.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(identity: Identity) -> Table {
        let name = "\"public\".\"t\"".to_owned();
        Table { id: 1, name, is_partitioned: false, columns: Vec::new(), types: Vec::new(), identity }
    }

    #[test]
    fn the_key_of_the_queue_is_part_of_the_identity() {
        let of_columns = table(Identity::Columns(vec!["a/b".to_owned(), "c".to_owned()]));
        let keys = |keys: &[&str]| {
            of_columns.check_key(&keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of_columns.key().unwrap(), ["/a~1b", "/c"]);
        assert!(keys(&["/c"]).is_ok() && keys(&["/a~1b", "/c/x"]).is_ok());
        assert!(keys(&["/cc"]).unwrap_err().to_string().contains("the key /cc of the queue is not part of"));
        assert!(table(Identity::Whole).check_key(&["/any".to_owned()]).is_ok());
    }
}
