//! Every kind of deliberate damage is found and named, and a good store has no findings.

use std::collections::BTreeSet;
use std::fs;

use deltaq_engine::id::{Rv, Slot};
use deltaq_engine::time::Time;
use deltaq_journal::record::{self, Decoder, Identity, NewRun, RunEntry};
use deltaq_journal::recovery::{self, Progress};
use deltaq_journal::snapshot::Snapshot as _;
use deltaq_journal::sqlite::{Sqlite, SqliteSnapshot, Sync};
use deltaq_journal::store::{QueueId, Store as _, Writes};
use deltaq_types::name::{Incarnation, Name};
use sqlx::{AssertSqlSafe, Row as _};

use super::*;

/// The queue `prices`.
const PRICES: QueueId = QueueId(1);

/// A store with rows in every table, including a deleted queue.
async fn store(scratch: &Scratch, name: &str) -> PathBuf {
    let folder = full_store(scratch, name);
    // A server removes the row of a deleted queue within seconds, so the test inserts one.
    let (id, name, created_at) = (QueueId(9), Name::new("old").expect("a name"), Time::from_micros(1));
    let old = Identity { id, version: 9, name, incarnation: Incarnation(1), created_at };
    let row = record::deleted_queue_row(&old, Rv::new(2));
    let text = format!(
        "INSERT INTO queues VALUES ({}, {}, '{}', {}, {}, 1, {}, 0, 0, {}, {}, '{}')",
        row.id,
        row.version,
        row.name,
        row.incarnation,
        created_at.as_micros(),
        row.rv,
        row.format,
        row.checksum,
        row.state
    );
    change(&folder, &text).await;
    folder
}

/// The lines that report damage.
fn damage(ran: &Run) -> Vec<&str> {
    ran.stdout.lines().filter(|line| line.starts_with("damage")).collect()
}

/// The names and contents of the files, without SQLite's shared memory.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let mut files: Vec<_> = files
        .map(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
            let bytes = if name.ends_with("-shm") { Vec::new() } else { fs::read(&path).expect("a file") };
            (name, bytes)
        })
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_good_store_is_good_and_not_touched() {
    let scratch = Scratch::new();
    let (stopped, killed) = (store(&scratch, "stopped").await, scratch.path("killed"));
    let server = Server::start(&killed);
    server.post("prices/add", r#"{"key":"sku-1"}"#);
    server.kill();
    let _ = fs::remove_file(killed.join("deltaq.db-shm"));
    let (unread, unread_killed) = (contents(&stopped), contents(&killed));
    let said = check(&stopped).printed();
    assert!(said.contains("no damage: 2 queues with 5 keys, "), "{said}");
    let said = check(&killed).printed();
    assert!(said.contains("note: the store was not closed cleanly"), "{said}");
    assert!(
        said.contains(
            "no damage: 1 queues with 1 keys, 0 entries in checkpoints, 1 journal rows, 1 events in "
        ),
        "{said}"
    );
    assert_eq!(contents(&stopped), unread);
    assert_eq!(contents(&killed), unread_killed);
    // Afterwards no lock keeps a server from starting.
    Server::start(&killed).stop();
}

/// Changes a value: adds to a number, or changes a text.
async fn spoil(folder: &Path, table: &str, rowid: i64, column: &str) {
    let mut connection = open(folder).await;
    let read = format!("SELECT typeof({column}), CAST({column} AS BLOB) FROM {table} WHERE rowid = {rowid}");
    let row = sqlx::query(AssertSqlSafe(read)).fetch_one(&mut connection).await.expect("the row");
    let (kind, bytes): (String, Option<Vec<u8>>) = (row.get(0), row.get(1));
    let set = format!("UPDATE {table} SET {column} = ");
    let query = match kind.as_str() {
        // Far from the number of any other row.
        "integer" => format!("{set} {column} + 1000 WHERE rowid = {rowid}"),
        "null" => format!("{set} 5 WHERE rowid = {rowid}"),
        "blob" => format!("{set} ?1 WHERE rowid = {rowid}"),
        _ => format!("{set} CAST(?1 AS TEXT) WHERE rowid = {rowid}"),
    };
    let mut bytes = bytes.unwrap_or_default();
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 1;
    }
    let mut query = sqlx::query(AssertSqlSafe(query));
    if kind == "text" || kind == "blob" {
        query = query.bind(bytes);
    }
    query.execute(&mut connection).await.expect("a change");
    connection.close().await.expect("a database");
}

/// A row of each kind with all its columns: a journal row that a start needs and one that it does not need, a
/// run of each queue, a live queue and a deleted queue.
async fn targets(folder: &Path) -> Vec<(&'static str, i64, Vec<String>)> {
    let mut connection = open(folder).await;
    let mut targets = Vec::new();
    for (table, pick) in [
        ("journal", "SELECT min(id) FROM journal WHERE queue_id = 1"),
        ("journal", "SELECT id FROM journal WHERE queue_id = 1 ORDER BY id DESC LIMIT 1 OFFSET 1"),
        ("runs", "SELECT id FROM runs WHERE queue_id = 1"),
        ("runs", "SELECT id FROM runs WHERE queue_id = 2"),
        ("queues", "SELECT id FROM queues WHERE name = 'prices'"),
        ("queues", "SELECT id FROM queues WHERE deleted"),
    ] {
        let id: i64 = sqlx::query_scalar(pick).fetch_one(&mut connection).await.expect(pick);
        let columns = format!("SELECT name FROM pragma_table_info('{table}')");
        let columns = sqlx::query_scalar(AssertSqlSafe(columns)).fetch_all(&mut connection).await;
        targets.push((table, id, columns.expect("columns")));
    }
    connection.close().await.expect("a database");
    targets
}

#[tokio::test]
async fn a_change_of_any_column_of_any_row_is_found_and_the_row_is_named() {
    let scratch = Scratch::new();
    let good = store(&scratch, "good").await;
    let bad = scratch.path("bad");
    let mut seen = BTreeSet::new();
    for (table, id, columns) in targets(&good).await {
        // The count of journal rows has a meaning for the mark only, and that of runs has none.
        let has_meaning = |column: &String| table == "queues" || column != "id";
        for column in columns.into_iter().filter(has_meaning) {
            copy(&good, &bad);
            spoil(&bad, table, id, &column).await;
            let ran = check(&bad);
            let found = damage(&ran);
            assert_eq!(ran.code, Some(1), "{table} {id} {column}: {ran:?}");
            let id = if column == "id" { id + 1_000 } else { id };
            let (by_id, by_rowid) =
                (format!("table {table}, id {id}: "), format!("table {table}, rowid {id}: "));
            let is_named = |line: &&str| line.contains(&by_id) || line.contains(&by_rowid);
            assert!(found.iter().any(is_named), "{table} {id} {column}: {}", ran.stdout);
            assert!(ran.stdout.contains("what to do: "), "{}", ran.stdout);
            seen.insert((table, column));
        }
    }
    assert_eq!(seen.len(), 11 + 7 + 12, "{seen:?}");
    // The row of table `store` has no checksum; impossible values are found.
    for change_of in
        ["clean = 2", "next_row = 0", "next_row = 'x'", "floor = -1", "last_queue = 'x'", "probe = 'x'"]
    {
        copy(&good, &bad);
        change(&bad, &format!("UPDATE store SET {change_of}")).await;
        let ran = check(&bad);
        assert!(damage(&ran).iter().any(|line| line.contains("table store, id 1: ")), "{change_of}: {ran:?}");
    }
}

#[tokio::test]
async fn values_of_another_type_are_found_even_where_they_mean_the_same() {
    let scratch = Scratch::new();
    let good = store(&scratch, "good").await;
    let bad = scratch.path("bad");
    for (text, says) in [
        ("UPDATE runs SET number = number || 'x'", "column number contains text, but must be integer"),
        ("UPDATE runs SET entries = CAST('[]' AS TEXT)", "column entries contains text, but must be blob"),
        ("UPDATE runs SET entries = x'ff'", "a value can't be read"),
        ("UPDATE runs SET bytes = bytes - 1", "its text has more than"),
        ("DELETE FROM runs WHERE queue_id = 1", "table runs: 1 runs are missing"),
        ("UPDATE runs SET number = number + 7 WHERE queue_id = 1", "damaged: the checksum is"),
        ("UPDATE journal SET format = -1", "a value can't be read"),
        ("UPDATE queues SET deleted = 2 WHERE deleted = 1", "deleted is 2"),
        ("DELETE FROM store", "it has 0 rows"),
        ("DROP INDEX journal_by_queue", "index journal_by_queue is missing"),
        (
            "UPDATE _sqlx_migrations SET checksum = x'00'",
            "version 1 is missing or differs from the one that deltaq creates",
        ),
    ] {
        copy(&good, &bad);
        change(&bad, text).await;
        let ran = check(&bad);
        assert!(damage(&ran).iter().any(|line| line.contains(says)), "{text}: {ran:?}");
        assert_eq!(ran.code, Some(1));
    }
}

#[tokio::test]
async fn several_findings_are_all_told_and_history_is_told_apart() {
    let scratch = Scratch::new();
    let bad = store(&scratch, "bad").await;
    let mut connection = open(&bad).await;
    let stock = "SELECT max(id) FROM runs WHERE queue_id = 2";
    let stock: i64 = sqlx::query_scalar(stock).fetch_one(&mut connection).await.expect("a run");
    connection.close().await.expect("a database");
    for (table, id, _) in targets(&bad).await {
        // The queue `stock` stays undamaged.
        if (table, id) != ("runs", stock) {
            spoil(&bad, table, id, "checksum").await;
        }
    }
    let ran = check(&bad);
    let found = damage(&ran);
    assert_eq!(found.len(), 5, "{}", ran.stdout);
    let history: Vec<_> = found.iter().filter(|line| line.starts_with("damage (history only)")).collect();
    assert_eq!(history.len(), 1, "{}", ran.stdout);
    assert!(
        history[0].contains("queue prices, table journal, id 1: journal row of queue 1 "),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.contains("5 findings of damage, 1 of them in history only: 2 queues with "),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("queues that can still be loaded: stock"), "{}", ran.stdout);
    // The report is true.
    let out = run("export --queue stock --data-dir", &[&bad]);
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(run("export --queue prices --data-dir", &[&bad]).refused().contains("prices"));
}

#[tokio::test]
async fn damage_in_history_alone_lets_a_server_start() {
    let scratch = Scratch::new();
    let bad = full_store(&scratch, "bad");
    spoil(&bad, "journal", 1, "events").await;
    let ran = check(&bad);
    assert_eq!((ran.code, damage(&ran).len()), (Some(1), 1), "{ran:?}");
    assert!(ran.stdout.contains("1 findings of damage, 1 of them in history only"), "{ran:?}");
    assert!(ran.stdout.contains("a server starts"), "{ran:?}");
    Server::start(&bad).stop();
}

#[tokio::test]
async fn a_history_ends_with_an_error_where_it_is_damaged() {
    let scratch = Scratch::new();
    let (good, bad) = (scratch.path("good"), scratch.path("bad"));
    let server = Server::start(&good);
    for n in 0..12 {
        server.post("prices/add", &format!(r#"{{"key":"{}","n":{n}}}"#, ["x", "y"][n % 2]));
    }
    server.stop();
    let cut = |bytes: &str| {
        format!(
            "UPDATE journal SET events = CAST(CAST(substr(events, 1, 20) AS BLOB) || {bytes} AS TEXT) WHERE id = 6"
        )
    };
    for text in [
        "UPDATE journal SET events = replace(events, '\"y\"', '\"z\"') WHERE id = 6",
        "UPDATE journal SET events = '[]' WHERE id = 6",
        "DELETE FROM journal WHERE id = 6",
        &cut("''"),
        &cut("x'ff' || CAST(substr(events, 22) AS BLOB)"),
    ] {
        copy(&good, &bad);
        change(&bad, text).await;
        let ran = check(&bad);
        assert!(ran.stdout.contains("damage (history only): queue prices, table journal, id "), "{ran:?}");
        assert!(ran.stdout.contains("1 findings of damage, 1 of them in history only"), "{ran:?}");
        let server = Server::start(&bad);
        let get = |query: &str| {
            let (status, answer) = server.call("GET", &format!("/v1/queues/prices/history/y{query}"), "");
            (status, serde_json::from_str::<Value>(&answer).expect("JSON"))
        };
        let (status, newer) = get("");
        let listed: Vec<_> = newer["items"].as_array().into_iter().flatten().collect();
        let listed: Vec<_> = listed.iter().filter_map(|item| item["resource_version"].as_u64()).collect();
        // An unreadable text makes its whole page of rows unreadable.
        if status == 200 {
            let distances: Vec<_> = listed.windows(2).map(|pair| pair[0] - pair[1]).collect();
            assert_eq!(distances, [2, 2], "{text}: {listed:?}");
            let next = newer["continue"].as_str().expect("there is more");
            assert_eq!(get(&format!("?continue={next}")).0, 500, "{text}");
        } else {
            assert_eq!((status, &newer["code"]), (500, &Value::from("internal")), "{text}");
            assert!(newer["detail"].as_str().is_some_and(|detail| detail.contains("damaged")), "{newer}");
        }
        server.stop();
    }
}

#[tokio::test]
async fn rows_that_are_missing_are_found_wherever_they_stood() {
    let scratch = Scratch::new();
    let good = store(&scratch, "good").await;
    let bad = scratch.path("bad");
    let needed = "SELECT journal.id FROM journal JOIN queues ON queues.id = queue_id WHERE name = 'prices' AND first_rv > queues.rv";
    for (which, says) in [
        ("(SELECT 2)", "damage (history only): queue prices, table journal, id 3: events "),
        (&format!("({needed} ORDER BY first_rv LIMIT 1)"), "damage: queue prices, table journal, id "),
        (
            &format!("({needed} ORDER BY first_rv DESC LIMIT 1)"),
            "1 journal rows that were acknowledged are missing",
        ),
    ] {
        copy(&good, &bad);
        change(&bad, &format!("DELETE FROM journal WHERE id = {which}")).await;
        let ran = check(&bad);
        assert_eq!((ran.code, damage(&ran).len()), (Some(1), 1), "{which}: {ran:?}");
        assert!(ran.stdout.contains(says), "{which}: {ran:?}");
    }
    // The journal of one queue loses its end, and other queues continue.
    copy(&good, &bad);
    let first = "(SELECT min(first_rv) FROM journal WHERE queue_id = 1)";
    let middle =
        format!("DELETE FROM journal WHERE queue_id = 1 AND first_rv BETWEEN {first} + 8 AND {first} + 11");
    change(&bad, &middle).await;
    let ran = check(&bad);
    assert!(damage(&ran).iter().any(|line| line.contains("are missing before this row")), "{ran:?}");
    copy(&good, &bad);
    change(
        &bad,
        "UPDATE journal SET prev_rv = prev_rv - 1 WHERE id = 3; DELETE FROM queues WHERE name = 'stock'",
    )
    .await;
    let ran = check(&bad);
    let found = damage(&ran);
    assert!(found.iter().any(|line| line.contains("which table queues lacks")), "{ran:?}");
    assert!(found.iter().any(|line| line.contains("table journal, id 3: ")), "{ran:?}");
}

#[tokio::test]
async fn a_key_that_stands_twice_is_found_with_both_places() {
    let scratch = Scratch::new();
    let bad = store(&scratch, "bad").await;
    let snapshot = SqliteSnapshot::take(&bad).await.expect("a store");
    let runs = snapshot.reader().runs(PRICES, 0..u64::MAX).await.expect("runs");
    let RunEntry::Key(slot, state) = Decoder::new().run(&runs[0]).expect("a good row").remove(0) else {
        panic!("no key was removed");
    };
    Box::new(snapshot).close().await;
    let mut run = NewRun::default();
    run.add_key(Slot::new(slot.get() + 40), &state, false);
    let row = run.close(PRICES, runs[0].number + 1);
    let (mut store, _, opening) = Sqlite::open(&bad, Sync::Full).await.expect("a store");
    let (key, epoch) = (state.key.as_str(), opening.epoch);
    store.write(Writes { runs: vec![row], epoch, ..Writes::default() }).await.expect("it is written");
    store.close().await;
    let ran = check(&bad);
    assert_eq!((ran.code, damage(&ran).len()), (Some(1), 1), "{ran:?}");
    let says = format!("key {key} is in slot {slot} and in slot {}", slot.get() + 40);
    assert!(ran.stdout.contains(&says), "{ran:?}");
}

/// All queues are loaded on one connection that reads ahead.
#[tokio::test(flavor = "multi_thread")]
async fn damage_of_a_large_queue_says_nothing_of_the_others() {
    let scratch = Scratch::new();
    let folder = scratch.path("data");
    let server = Server::start(&folder);
    let seeds: Vec<String> = (0..5_000).map(|key| format!(r#"{{"object":{{"key":"{key}"}}}}"#)).collect();
    server.post("large/seed", &format!("[{}]", seeds.join(",")));
    for queue in ["one", "two"] {
        server.post(&format!("{queue}/add"), r#"{"key":"a"}"#);
    }
    server.stop();
    change(&folder, "UPDATE runs SET checksum = checksum + 1 WHERE number = 1").await;
    let ran = check(&folder);
    assert_eq!((ran.code, damage(&ran).len()), (Some(1), 1), "{ran:?}");
    let snapshot = SqliteSnapshot::take(&folder).await.expect("a store");
    let queues = snapshot.reader().queues().await.expect("the queues");
    let mut are_whole = Vec::new();
    for row in queues {
        are_whole.push(recovery::load(snapshot.reader(), &row, &Progress::default()).await.is_ok());
    }
    assert_eq!(are_whole, [false, true, true]);
}

#[tokio::test]
async fn a_file_that_was_cut_off_is_found() {
    let scratch = Scratch::new();
    let folder = store(&scratch, "data").await;
    let database = folder.join("deltaq.db");
    let bytes = fs::read(&database).expect("a file");
    for length in [bytes.len() - 4_096, bytes.len() / 2, 4_096, 100] {
        fs::write(&database, &bytes[..length]).expect("a file");
        let ran = check(&folder);
        assert_eq!(ran.code, Some(1), "{length}: {ran:?}");
        assert!(!ran.stderr.contains("panic"), "{ran:?}");
        assert!(!damage(&ran).is_empty() || ran.stderr.contains("damaged"), "{length}: {ran:?}");
    }
}

#[test]
fn a_wal_that_was_cut_off_after_a_kill_is_noticed_by_the_mark() {
    let scratch = Scratch::new();
    let folder = scratch.path("data");
    let server = Server::start(&folder);
    for key in 0..20 {
        server.post("prices/add", &format!(r#"{{"key":"{key}"}}"#));
    }
    server.kill();
    assert!(check(&folder).printed().contains("20 events"));
    let wal = folder.join("deltaq.db-wal");
    let bytes = fs::read(&wal).expect("a file");
    fs::write(&wal, &bytes[..bytes.len() * 3 / 4]).expect("a file");
    let ran = check(&folder);
    assert_eq!((ran.code, damage(&ran).len()), (Some(1), 1), "{ran:?}");
    assert!(ran.stdout.contains("journal rows that were acknowledged are missing"), "{ran:?}");
    assert!(
        ran.stdout.contains("remove") && ran.stdout.contains("deltaq.mark to accept the loss"),
        "{ran:?}"
    );
    // A copy contains the rest and is reported as damaged.
    let file = scratch.path("copy.db");
    let copied = run("backup --data-dir", &[&folder, Path::new("--to"), &file]);
    assert_eq!((copied.code, damage(&copied)), (Some(1), damage(&ran)), "{copied:?}");
    // Objects can still be exported, with a warning.
    let out = run("export --queue prices --data-dir", &[&folder]);
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(out.stderr.starts_with("deltaq: warning: "), "{out:?}");
    // An unreadable mark is damage; a missing mark is a note.
    fs::write(folder.join("deltaq.mark"), "x").expect("a file");
    assert!(check(&folder).stdout.contains("deltaq.mark is damaged"));
    fs::remove_file(folder.join("deltaq.mark")).expect("a file");
    assert!(check(&folder).printed().contains("note: there is no deltaq.mark"));
}
