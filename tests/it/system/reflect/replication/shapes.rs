//! Values, columns, partitions: what the log does not say, or says in another form.

use serde_json::json;

use super::super::{counts, drain};
use super::{LISTED, Replica, times};
use crate::harness::waiting::until;

/// A value that is stored outside of its row.
const LARGE: &str = "(SELECT string_agg(md5(random()::text || g), '') FROM generate_series(1, 400) g)";

/// A table with a column of each kind of type.
const TYPES: &str = r#"CREATE TYPE e AS ENUM ('a b', 'c'); CREATE TYPE c AS (x int, y text); CREATE DOMAIN d AS numeric(8, 3) NOT NULL;
    CREATE TABLE t (id int PRIMARY KEY, n int, a bigint, b real, c double precision, d numeric, e numeric(10, 4), f money, g text, h varchar(7),
      i char(5), j bytea, k timestamp(3), l timestamptz, m date, n2 time, o timetz, p interval, q bool, r e, s c, t d, u int[], v text[], w json,
      x jsonb, y uuid, z inet, aa bit(3), ab tsvector, ac xml, ad point, ae int4range, af "char", ag name, ah regclass, ai numeric[], aj c[],
      ak float8[], al tstzrange, "we""ird" text, generated int GENERATED ALWAYS AS (id * 2) STORED);
    INSERT INTO t (id, n, a, b, c, d, e, f, g, h, i, j, k, l, m, n2, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al,
      "we""ird") VALUES (1, 1, 9007199254740993, 0.1, 0.30000000000000004, 1e50, 1.5, 12.5, E'q"\\ \n é', 'abc', 'ab', '\x00ff',
      '2026-01-02 03:04:05.123456', '2026-01-02 03:04:05.123456+05', '0044-03-15 BC', '01:02:03', '01:02:03+02', '1 year 2 mons -3 days 04:05:06.789',
      true, 'a b', ROW(1, 'x,"y'), 1.5, '{1,NULL,3}', '{"a b",NULL,"c\"d"}', E'{"a":  1.00,\n "b":2}', '{"z":1.10,"a":null}',
      'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '10.0.0.1/8', '101', 'fat cat', '<a>x</a>', '(1,2)', '[1,5)', 'z', 'nm', 't', '{1.10,NaN}', '{"(1,a)"}',
      '{1e-7,Infinity}', '[2026-01-01,)', ' x '),
      (2, 1, NULL, 'NaN', '-Infinity', 'NaN', NULL, NULL, '', NULL, NULL, NULL, 'infinity', '-infinity', 'infinity', NULL, NULL, NULL, NULL, NULL, NULL,
      0, '{}', '{{a,b},{c,d}}', NULL, 'null', NULL, NULL, NULL, NULL, NULL, NULL, 'empty', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"#;

#[test]
fn a_copy_and_the_stream_have_the_same_text() {
    let replica = Replica::new("t", TYPES);
    // The settings of the role are those of the session, unless they are fixed.
    replica.cluster.sql(
        "ALTER ROLE deltaq SET datestyle = 'German'; ALTER ROLE deltaq SET intervalstyle = 'iso_8601'; ALTER ROLE deltaq SET timezone = 'Asia/Tokyo';
         ALTER ROLE deltaq SET bytea_output = 'escape'; ALTER ROLE deltaq SET extra_float_digits = 0",
    );
    let mut reflecting = replica.start(&[]);
    assert_eq!(drain(&replica.server, "t"), counts(&[("Replaced", 2)]));
    replica.sql("UPDATE t SET n = n");
    replica.sql("UPDATE t SET n = 2");
    replica.until_values("n", &[("1", json!(2)), ("2", json!(2))]);
    assert_eq!(drain(&replica.server, "t"), counts(&[("Updated", 2)]));
    assert!(!replica.latest()["1"].as_object().expect("an object").contains_key("generated"));
    reflecting.process.kill();
    let reflecting = replica.start(&[]);
    until("the copy changes nothing", || times(&reflecting, "\"replaced\":0") > 0);
    reflecting.stop();
}

#[test]
fn large_values_that_did_not_change_are_kept() {
    let replica = Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY, n int, large text, none text)");
    replica.sql(&format!("INSERT INTO t VALUES (1, 1, {LARGE}, NULL)"));
    let reflecting = replica.start(&[]);
    let large = |key: &str| replica.latest()[key]["large"].as_str().map(str::len);
    // From the object of the queue.
    replica.sql("UPDATE t SET n = 2");
    replica.until_values("n", &[("1", json!(2))]);
    assert_eq!(large("1"), Some(12_800));
    // From earlier changes of the same transaction, also of another key.
    replica.sql(&format!(
        "BEGIN; INSERT INTO t VALUES (2, 1, {LARGE}, NULL); UPDATE t SET n = 5 WHERE id = 2; UPDATE t SET id = 3 WHERE id = 2;
         UPDATE t SET n = 6 WHERE id = 3; COMMIT"
    ));
    replica.until_values("n", &[("1", json!(2)), ("3", json!(6))]);
    assert_eq!(large("3"), Some(12_800));
    // From the row itself, if the queue has removed the member.
    replica.server.run(&["queue", "configure", "t", "prune=[\"/large\"]"]).ok();
    replica.sql("UPDATE t SET n = 7 WHERE id = 1");
    replica.until_values("n", &[("1", json!(7)), ("3", json!(6))]);
    // It has another key, and is gone before its large value can be read.
    replica.sql(&format!("INSERT INTO t VALUES (4, 1, {LARGE}, NULL)"));
    replica.until_keys(3);
    replica.sql("BEGIN; UPDATE t SET id = 5 WHERE id = 4; DELETE FROM t WHERE id = 5; COMMIT");
    replica.until_keys(2);
    replica.server.run(&["queue", "configure", "t", "prune=null"]).ok();
    // From the old row.
    replica.sql("ALTER TABLE t REPLICA IDENTITY FULL");
    reflecting.until_metric("deltaq_reflect_lists_total", "", 2.0);
    replica.sql("UPDATE t SET n = 8 WHERE id = 3");
    replica.until_values("n", &[("1", json!(7)), ("3", json!(8))]);
    assert_eq!(large("3"), Some(12_800));
    reflecting.stop();
}

#[test]
fn a_large_key_stays_and_a_value_that_the_database_refuses_leads_to_a_list() {
    // The row is too long, and only its key can be stored outside of it.
    let replica = Replica::new(
        "t",
        "CREATE TABLE gone (); CREATE TABLE t (id text PRIMARY KEY, n int, pad text, kind regclass);
         ALTER TABLE t ALTER id SET STORAGE EXTERNAL, ALTER pad SET STORAGE PLAIN; INSERT INTO t VALUES (repeat('k', 400), 1, repeat('x', 1900), 'gone')",
    );
    let reflecting = replica.start(&[]);
    let key = "k".repeat(400);
    replica.sql("UPDATE t SET n = 2");
    replica.until_values("n", &[(&key, json!(2))]);
    assert_eq!(drain(&replica.server, "t"), counts(&[("Replaced", 1), ("Updated", 1)]));
    // The name of a table that is gone is its number, which is no name of a table.
    replica.sql("DROP TABLE gone; UPDATE t SET n = 3");
    replica.until_values("n", &[(&key, json!(3))]);
    assert_eq!(times(&reflecting, LISTED), 2);
    reflecting.stop();
}

#[test]
fn a_truncate_is_a_list_under_the_limit_of_deletions() {
    let replica =
        Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 20)");
    let reflecting = replica.start(&[]);
    replica.sql("TRUNCATE t");
    until("it is refused", || times(&reflecting, "would delete 20 of 20 keys") > 0);
    until("it is not in step", || reflecting.metric("deltaq_reflect_up", "") < 1.0);
    assert_eq!(replica.latest().len(), 20);
    reflecting.stop();
    let reflecting = replica.start(&["--allow-empty", "--max-delete-percent", "100"]);
    replica.until_keys(0);
    replica.sql("INSERT INTO t VALUES (1), (2)");
    replica.until_keys(2);
    replica.sql("BEGIN; TRUNCATE t; INSERT INTO t VALUES (7); COMMIT");
    until("the new row is alone", || replica.latest().into_keys().eq(["7"]));
    reflecting.stop();
}

#[test]
fn partitions_are_one_table() {
    let replica = Replica::new(
        "t",
        "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id); CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10);
         CREATE TABLE t2 (v text, gone int, id int NOT NULL PRIMARY KEY); ALTER TABLE t2 DROP gone;
         ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (10) TO (20); INSERT INTO t VALUES (1, 'a'), (11, 'a')",
    );
    let reflecting = replica.start(&["--max-delete-percent", "100"]);
    replica.sql("UPDATE t SET v = 'b' WHERE id = 11");
    replica.until_values("v", &[("1", json!("a")), ("11", json!("b"))]);
    // A row that moves to another partition.
    replica.sql("UPDATE t SET id = 12 WHERE id = 1");
    replica.until_values("v", &[("11", json!("b")), ("12", json!("a"))]);
    assert_eq!(times(&reflecting, LISTED), 1);
    replica.sql(
        "CREATE TABLE t3 (id int PRIMARY KEY, v text); INSERT INTO t3 VALUES (25, 'c'); ALTER TABLE t ATTACH PARTITION t3 FOR VALUES FROM (20) TO (30)",
    );
    replica.until_values("v", &[("11", json!("b")), ("12", json!("a")), ("25", json!("c"))]);
    replica.sql("UPDATE t SET v = 'd' WHERE id = 25; ALTER TABLE t DETACH PARTITION t2");
    replica.until_values("v", &[("25", json!("d"))]);
    reflecting.stop();
}

#[test]
fn other_columns_lead_to_a_list() {
    let replica = Replica::new(
        "t",
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    );
    let reflecting = replica.start(&[]);
    replica.sql("ALTER TABLE t ADD n int DEFAULT 7");
    replica.until_values("n", &[("1", json!(7)), ("2", json!(7))]);
    replica.sql("ALTER TABLE t ALTER n TYPE text; UPDATE t SET v = 'c' WHERE id = 1");
    replica.until_values("n", &[("1", json!("7")), ("2", json!("7"))]);
    replica.until_values("v", &[("1", json!("c")), ("2", json!("b"))]);
    // The same columns, and other values.
    replica.sql("ALTER TABLE t ALTER v TYPE text USING upper(v)");
    replica.until_values("v", &[("1", json!("C")), ("2", json!("B"))]);
    replica
        .sql("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, w int); INSERT INTO t VALUES (1, 1), (2, 2)");
    replica.until_values("w", &[("1", json!(1)), ("2", json!(2))]);
    replica.sql("UPDATE t SET w = 3");
    replica.until_values("w", &[("1", json!(3)), ("2", json!(3))]);
    reflecting.stop();
}
