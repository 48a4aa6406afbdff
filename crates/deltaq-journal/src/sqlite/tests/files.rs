//! Permissions, the lock, and files that a start refuses.

use deltaq_engine::id::Rv;

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

const NAMES: [&str; 5] = ["deltaq.db", "deltaq.db-wal", "deltaq.db-shm", "deltaq.lock", "deltaq.mark"];

#[tokio::test]
async fn only_the_owner_may_read_the_files() {
    let scratch = Scratch::new();
    let (mut store, _, _) = scratch.open().await;
    store.write(rows(1..=1)).await.unwrap();
    assert_eq!(mode(&scratch.data()), 0o700);
    for name in NAMES {
        assert_eq!(mode(&scratch.file(name)), 0o600, "{name}");
    }
    store.close().await;

    // A start removes the permissions of other users from the files, but not from the folder.
    let names = ["deltaq.db", "deltaq.lock", "deltaq.mark"];
    for name in names {
        fs::set_permissions(scratch.file(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    fs::set_permissions(scratch.data(), fs::Permissions::from_mode(0o755)).unwrap();
    let (store, _, _) = scratch.open().await;
    for name in NAMES {
        assert_eq!(mode(&scratch.file(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&scratch.data()), 0o755);
    store.close().await;
}

#[tokio::test]
async fn a_second_server_is_refused_and_the_first_one_named() {
    let scratch = Scratch::new();
    let (store, _, _) = scratch.open().await;
    let Err(Error::Locked { at, holder }) = Sqlite::open(&scratch.data(), Sync::Full).await else {
        panic!("a store has one server")
    };
    assert_eq!((at, holder), (scratch.data(), Holder::Process(std::process::id())));
    let message = scratch.refusal(Sync::Full).await;
    let pid = format!("is in use by process {}", std::process::id());
    assert!(message.contains(&pid) && message.contains(scratch.data().to_str().unwrap()), "{message}");
    store.close().await;
    // The lock file of a killed process is not a lock.
    fs::write(scratch.file("deltaq.lock"), "1\n").unwrap();
    let (store, _, _) = scratch.open().await;
    store.close().await;
    // A reading command is not mistaken for that process.
    let looks = SqliteSnapshot::take(&scratch.data()).await.unwrap();
    let message = scratch.refusal(Sync::Full).await;
    assert!(
        message.contains("in use by a command that reads it, such as `deltaq check`: start again"),
        "{message}"
    );
    Box::new(looks).close().await;
    let (store, _, _) = scratch.open().await;
    store.close().await;
}

#[tokio::test]
async fn a_store_of_a_newer_program_is_refused_with_both_versions() {
    let scratch = Scratch::new();
    let (store, _, _) = scratch.open().await;
    store.close().await;
    let paths = Paths::new(&scratch.data()).unwrap();
    let mut connection = connect::writer(&paths, Sync::Full).await.unwrap();
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (7, 'later', TRUE, x'00', 0)";
    sqlx::query(newer).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    for refused in [
        Sqlite::open(&scratch.data(), Sync::Full).await.map(drop),
        SqliteSnapshot::take(&scratch.data()).await.map(drop),
        backup(&scratch.data(), &scratch.0.join("copy")).await.map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Newer { found: 7, known: 3, .. })), "{refused:?}");
    }
    let message = scratch.refusal(Sync::Full).await;
    assert!(message.contains("has version 7") && message.contains("up to 3"), "{message}");
}

/// A store of the version before, such as a backup from before an upgrade, is no damage.
#[tokio::test]
async fn an_older_store_can_be_read_and_is_migrated_by_a_start() {
    let scratch = Scratch::new();
    let (mut store, _, _) = scratch.open().await;
    store.write(rows(1..=3)).await.unwrap();
    store.close().await;
    let paths = Paths::new(&scratch.data()).unwrap();
    let mut connection = connect::writer(&paths, Sync::Full).await.unwrap();
    // Migration 2 changes no table, and migration 3 adds one.
    let older = "DELETE FROM _sqlx_migrations WHERE version > 1; DROP TABLE series";
    sqlx::raw_sql(older).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let looks = SqliteSnapshot::take(&scratch.data()).await.unwrap();
    assert_eq!(looks.integrity().await, [""; 0]);
    let notes = format!("{:?}", looks.findings());
    assert!(notes.contains("has version 1: the next start migrates it to version 3"), "{notes}");
    Box::new(looks).close().await;
    let (store, reader, _) = scratch.open().await;
    assert_eq!(last_rv(&reader).await, Some(3));
    let looks = SqliteSnapshot::take(&scratch.data()).await.unwrap();
    assert!(!format!("{:?}", looks.findings()).contains("migrates"));
    Box::new(looks).close().await;
    store.close().await;
}

#[tokio::test]
async fn other_files_are_refused_and_left_unchanged() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.data()).unwrap();
    let garbage = vec![b'x'; 10_000];
    fs::write(scratch.file("deltaq.db"), &garbage).unwrap();
    let refused = Sqlite::open(&scratch.data(), Sync::Full).await.map(drop);
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    assert_eq!(fs::read(scratch.file("deltaq.db")).unwrap(), garbage);

    fs::remove_file(scratch.file("deltaq.db")).unwrap();
    super::super::files::create(&scratch.file("deltaq.db")).unwrap();
    let paths = Paths::new(&scratch.data()).unwrap();
    let mut connection = connect::writer(&paths, Sync::Full).await.unwrap();
    sqlx::query("CREATE TABLE photos (name TEXT)").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let message = scratch.refusal(Sync::Full).await;
    assert!(message.contains("another program"), "{message}");

    assert!(SqliteSnapshot::take(&scratch.0.join("nowhere")).await.is_err());
    assert!(!scratch.0.join("nowhere").exists(), "to look makes nothing");
}

#[tokio::test]
async fn a_damaged_page_is_found_at_the_start() {
    let scratch = Scratch::new();
    let (mut store, _, _) = scratch.open().await;
    let row = JournalRow { events: "e".repeat(100_000), ..journal_row(1, 1..=1) };
    store.write(Writes { journal: vec![row], ..Writes::default() }).await.unwrap();
    store.write(rows(2..=500)).await.unwrap();
    store.close().await;
    let good = fs::read(scratch.file("deltaq.db")).unwrap();
    let mut refused = 0;
    for page in 1..good.len() / 4_096 {
        let mut bad = good.clone();
        bad[page * 4_096..page * 4_096 + 16].fill(0xff);
        fs::write(scratch.file("deltaq.db"), bad).unwrap();
        match Sqlite::open(&scratch.data(), Sync::Full).await {
            Ok((store, _, _)) => store.close().await,
            Err(Error::Damaged { found }) => {
                assert!(found.contains("deltaq check"), "{found}");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    // SQLite detects damage of every page that is in use.
    assert!(refused + 3 > good.len() / 4_096, "{refused} of {} pages", good.len() / 4_096);
    fs::write(scratch.file("deltaq.db"), &good).unwrap();
    let snapshot = SqliteSnapshot::take(&scratch.data()).await.unwrap();
    assert_eq!(snapshot.integrity().await, Vec::<String>::new());
    Box::new(snapshot).close().await;
    let (store, _, _) = scratch.open().await;
    store.close().await;
}

/// A damaged index would hide acknowledged rows.
#[tokio::test]
async fn no_bit_of_an_index_can_hide_a_row() {
    let scratch = Scratch::new();
    let (mut store, _, _) = scratch.open().await;
    store.write(rows(1..=4)).await.unwrap();
    store.close().await;
    let good = fs::read(scratch.file("deltaq.db")).unwrap();
    let paths = Paths::new(&scratch.data()).unwrap();
    let mut connection = connect::reader(&paths.database).await.unwrap();
    let root = sqlx::query_scalar("SELECT rootpage FROM sqlite_schema WHERE name = 'journal_by_queue'");
    let root: u32 = root.fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let page = (root as usize - 1) * 4_096..root as usize * 4_096;
    let mut refused = 0;
    for at in page.filter(|at| good[*at] != 0) {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            fs::write(scratch.file("deltaq.db"), bad).unwrap();
            match Sqlite::open(&scratch.data(), Sync::Full).await {
                Ok((store, reader, _)) => {
                    let found = reader.journal(QueueId(1), Rv::ZERO, usize::MAX).await.unwrap();
                    assert_eq!(found, rows(1..=4).journal, "bit {bit} of byte {at}");
                    store.close().await;
                }
                Err(Error::Damaged { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

#[tokio::test]
async fn a_backup_of_a_store_in_use_is_a_store() {
    let scratch = Scratch::new();
    let (mut store, _, _) = scratch.open().await;
    store.write(Writes { queues: vec![queue_row(1, 1, "one")], ..rows(1..=50) }).await.unwrap();
    let copy = scratch.0.join("copy.db");
    let (bytes, looks) = backup(&scratch.data(), &copy).await.unwrap();
    Box::new(looks).close().await;
    assert_eq!(bytes, fs::metadata(&copy).unwrap().len());
    assert_eq!(mode(&copy), 0o600);
    store.write(rows(51..=60)).await.unwrap();

    let again = backup(&scratch.data(), &copy).await;
    assert!(matches!(again, Err(Error::Failed { .. })), "nothing is written over: {again:?}");
    assert_eq!(fs::metadata(&copy).unwrap().len(), bytes);
    let names: Vec<_> = fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "nothing is left beside the copy: {names:?}");

    let other = Scratch::new();
    fs::create_dir(other.data()).unwrap();
    fs::copy(&copy, other.file("deltaq.db")).unwrap();
    let (mut restored, reader, _) = other.open().await;
    assert_eq!(restored.last_row(), 50);
    assert_eq!(last_rv(&reader).await, Some(50));
    assert_eq!(reader.queues().await.unwrap(), [queue_row(1, 1, "one")]);
    restored.write(rows(51..=51)).await.unwrap();
    let paths = Paths::new(&other.data()).unwrap();
    let mut connection = connect::reader(&paths.database).await.unwrap();
    let kept =
        "SELECT (SELECT auto_vacuum FROM pragma_auto_vacuum), (SELECT journal_mode FROM pragma_journal_mode)";
    let kept: (i64, String) = sqlx::query_as(kept).fetch_one(&mut connection).await.unwrap();
    assert_eq!(kept, (2, "wal".to_owned()), "a copy can shrink, and is read while it is written");
    restored.close().await;
    store.close().await;

    let nothing = backup(&scratch.0.join("nowhere"), &scratch.0.join("none.db")).await;
    assert!(nothing.is_err() && !scratch.0.join("none.db").exists());
}
