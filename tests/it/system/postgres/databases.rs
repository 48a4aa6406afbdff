//! Databases that an administrator has made in another way: other encodings and orders, other owners, missing rights.

use super::store::Database;
use super::*;
use crate::store;

/// Each with a part of `CREATE DATABASE`. No text of a store depends on them.
const KINDS: [&str; 4] = [
    "ENCODING 'LATIN1' LOCALE 'C'",
    "ENCODING 'SQL_ASCII' LOCALE 'C'",
    "ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'tr' LOCALE 'C'",
    "ENCODING 'UTF8' LOCALE 'C.UTF-8'",
];

#[tokio::test]
async fn texts_and_their_order_do_not_depend_on_the_encoding_and_the_collation() {
    let mut cluster = Cluster::start();
    for (number, kind) in KINDS.into_iter().enumerate() {
        for rule in 0..3 {
            let name = format!("other_{number}_{rule}");
            cluster.sql(&format!("CREATE DATABASE {name} OWNER deltaq TEMPLATE template0 {kind}"));
            let url = cluster.url_of(&name);
            let place = Database { cluster, url };
            match rule {
                0 => store::texts_are_returned_unchanged(&place).await,
                1 => store::written_rows_are_read_and_survive_a_restart(&place).await,
                _ => store::runs_come_in_pages_newest_first(&place).await,
            }
            cluster = place.cluster;
        }
    }
}

#[tokio::test]
async fn a_user_without_rights_gets_a_sentence() {
    let cluster = Cluster::start();
    cluster.sql("CREATE ROLE outsider LOGIN");
    let url = cluster.url().replace("deltaq@", "outsider@");
    let text = refusal(&url).await;
    assert!(text.contains("permission denied"), "{text}");
    let (store, _) = open(&cluster.url()).await;
    store.close().await;
    let text = refusal(&url).await;
    assert!(text.contains("permission denied"), "{text}");
    // The owner of the tables can give the rights away.
    for rights in [
        "GRANT USAGE ON SCHEMA deltaq TO outsider",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA deltaq TO outsider",
    ] {
        cluster.sql(rights);
    }
    let (mut store, reader) = open(&url).await;
    store.write(event(1)).await.expect("a write");
    assert_eq!(events(&reader).await, [1]);
    store.close().await;
}

/// A start must not end because the database had no free connection for a moment.
#[tokio::test]
async fn a_refusal_that_may_pass_is_told_from_one_that_does_not() {
    let cluster = Cluster::start();
    cluster.sql("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0");
    for (user, passes) in [("crowded", true), ("nobody", false)] {
        let error =
            try_open(&cluster.url().replace("deltaq@", &format!("{user}@"))).await.expect_err("no store");
        assert_eq!(deltaq_journal::postgres::is_broken(&error), passes, "{error:?}");
    }
}

#[tokio::test]
async fn a_missing_database_or_user_gets_a_sentence() {
    let cluster = Cluster::start();
    let text = refusal(&cluster.url_of("nowhere")).await;
    assert!(text.contains("database \"nowhere\" does not exist"), "{text}");
    let text = refusal(&cluster.url().replace("deltaq@", "nobody@")).await;
    assert!(text.contains("role \"nobody\" does not exist"), "{text}");
    let text = refusal("postgres://deltaq@localhost/deltaq?host=/nonexistent").await;
    assert!(text.contains("No such file"), "{text}");
}

#[tokio::test]
async fn a_store_of_a_newer_program_is_refused() {
    let cluster = Cluster::start();
    let (store, _) = open(&cluster.url()).await;
    store.close().await;
    cluster.sql("INSERT INTO deltaq.migrations (version, name) VALUES (7, 'later')");
    let text = refusal(&cluster.url()).await;
    assert!(text.contains("has version 7") && text.contains("start a newer program"), "{text}");
}

/// Two programs start on an empty database at the same time.
#[tokio::test]
async fn two_openings_of_an_empty_database_create_it_once() {
    let cluster = Cluster::start();
    let url = cluster.url();
    let (one, two) = tokio::join!(try_open(&url), try_open(&url));
    let mut opened = Vec::new();
    for store in [one, two] {
        match store {
            Ok((_, _, opening)) => opened.push(opening.epoch),
            // The other program has taken the store over.
            Err(Error::Fenced { own, found }) => assert_eq!((own, found), (Epoch(1), Epoch(2))),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(opened.contains(&Epoch(2)), "{opened:?}");
}
