//! Runs the SQL of docs/backup.md.

use sqlx::Row as _;

use super::*;

/// The blocks of SQL in the section with this heading.
fn blocks(heading: &str) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/backup.md");
    let text = std::fs::read_to_string(file).expect("the document");
    let (_, section) = text.split_once(&format!("\n## {heading}\n")).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```sql\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// All cells as text, as SQLite's shell shows them.
async fn rows(connection: &mut SqliteConnection, text: &str) -> Vec<Vec<String>> {
    let mut as_text = |row: &sqlx::sqlite::SqliteRow| -> Vec<String> {
        let cell = |index| match row.try_get_unchecked::<Option<String>, usize>(index) {
            Ok(cell) => cell.unwrap_or_default(),
            Err(error) => panic!("{text}: {error}"),
        };
        (0..row.len()).map(cell).collect()
    };
    let rows = sqlx::query(sqlx::AssertSqlSafe(text.to_owned())).fetch_all(connection).await.expect(text);
    rows.iter().map(&mut as_text).collect()
}

#[tokio::test]
async fn the_sql_of_the_documents_gives_what_they_say() {
    let scratch = Scratch::new();
    let folder = full_store(&scratch, "data");
    let blocks = blocks("Reading the store with sqlite3");
    let [queues, sizes] = blocks.as_slice() else { panic!("{blocks:?}") };
    let mut connection = open(&folder).await;

    let found = rows(&mut connection, queues).await;
    let names: Vec<&str> = found.iter().map(|row| row[1].as_str()).collect();
    assert_eq!(names, ["prices", "stock"]);
    assert!(found.iter().all(|row| row[2].starts_with("20") && row[2].len() == 19), "{found:?}");

    let found = rows(&mut connection, sizes).await;
    assert_eq!(found.iter().map(|row| row[0].as_str()).collect::<Vec<_>>(), ["prices", "stock"]);
    let number = |text: &str| text.parse::<u64>().expect("a number");
    assert!(found.iter().all(|row| row[1..].iter().all(|cell| number(cell) > 0)), "{found:?}");
}
