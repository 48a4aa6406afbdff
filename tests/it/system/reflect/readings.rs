//! Lists that have shrunk: they are read once more before anything is deleted.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::upstream::Upstream;
use super::{Reflecting, by_key, drain, known};
use crate::system::cli::Server;

fn objects(count: usize) -> Vec<Value> {
    (0..count).map(|at| json!({ "key": format!("k{at}"), "n": at })).collect()
}

#[test]
fn two_readings_with_other_keys_delete_nothing() {
    // The lists of the next requests; the last one stays.
    let lists = Arc::new(Mutex::new(vec![objects(20)]));
    let next = Arc::clone(&lists);
    let upstream = Upstream::start(move |_, reply| {
        let mut lists = next.lock();
        let list = if lists.len() > 1 { lists.remove(0) } else { lists[0].clone() };
        reply.send(200, &[], &Value::from(list).to_string());
    });
    let server = Server::in_memory();
    let url = upstream.url("/");
    let once = || server.run(&["reflect", "q", "--source", "s", "--list", &url, "--once"]);
    once().ok();
    let others: Vec<Value> = objects(20).split_off(8);
    for second in [objects(20), objects(13), others.clone()] {
        *lists.lock() = vec![objects(12), second];
        let failed = once().failed(1);
        assert!(
            failed.contains("two readings of the list differ, and neither was sent: after 20 keys"),
            "{failed}"
        );
        drain(&server, "q");
        assert_eq!(known(&server, "q"), by_key(&objects(20)));
    }
    // Both readings have the same keys. The objects are those of the second one.
    let mut second = objects(12);
    second[0]["n"] = json!(99);
    *lists.lock() = vec![objects(12), second.clone()];
    assert!(once().ok().contains("12 objects, 1 replaced, 8 deleted"));
    drain(&server, "q");
    assert_eq!(known(&server, "q"), by_key(&second));
    // A fifth less, or a list of fewer than ten, is read once.
    for left in [10, 8, 5] {
        let before = upstream.requests().len();
        *lists.lock() = vec![second[..left].to_vec()];
        once().ok();
        assert_eq!(upstream.requests().len() - before, 1, "{left}");
    }
}

#[test]
fn new_keys_that_come_and_go_do_not_stop_a_shrunken_list() {
    let lists = Arc::new(Mutex::new(vec![objects(20)]));
    let next = Arc::clone(&lists);
    let upstream = Upstream::start(move |_, reply| {
        let mut lists = next.lock();
        let list = if lists.len() > 1 { lists.remove(0) } else { lists[0].clone() };
        reply.send(200, &[], &Value::from(list).to_string());
    });
    let server = Server::in_memory();
    let url = upstream.url("/");
    let once = || server.run(&["reflect", "q", "--source", "s", "--list", &url, "--once"]);
    let with = |count: usize, more: &[&str]| {
        let more = more.iter().map(|key| json!({ "key": key }));
        objects(count).into_iter().chain(more).collect::<Vec<_>>()
    };
    once().ok();
    // The sessions x and y are new.
    *lists.lock() = vec![with(12, &["x"]), with(12, &["y"])];
    let run = once();
    assert!(run.stdout.contains("13 objects, 1 replaced, 8 deleted"), "{}", run.stdout);
    drain(&server, "q");
    assert_eq!(known(&server, "q"), by_key(&with(12, &["y"])));
    // A key goes between the readings: it waits for a later list.
    *lists.lock() = vec![with(8, &["a", "b"]), with(7, &["c", "d", "e"])];
    let run = once();
    assert!(run.stdout.contains("11 objects, 3 replaced, 5 deleted"), "{}", run.stdout);
    assert!(run.stderr.contains("are kept until a later list"), "{}", run.stderr);
    drain(&server, "q");
    assert_eq!(known(&server, "q"), by_key(&with(8, &["c", "d", "e"])));
    *lists.lock() = vec![with(7, &["c", "d", "e"])];
    assert!(once().ok().contains("10 objects, 0 replaced, 1 deleted"));
    // Only one of the readings has known keys: the first was not whole.
    *lists.lock() = vec![with(3, &["f"]), with(4, &["g"])];
    let failed = once().failed(1);
    assert!(failed.contains("has 1 of the keys that the first lacks"), "{failed}");
    assert_eq!(known(&server, "q").len(), 11);
}

#[test]
fn a_command_that_leaves_something_out_deletes_nothing() {
    let server = Server::in_memory();
    let folder = server.folder.path();
    let (script, short) = (folder.join("dump"), folder.join("short"));
    // Each other run is cut short once the file exists.
    let text = format!(
        "#!/bin/sh\nlast=20\nif [ -e {short} ]; then rm {short}; last=12; elif [ -e {short}.again ]; then touch {short}; fi\n\
         for n in $(seq $last); do echo \"{{\\\"key\\\":\\\"k$n\\\"}}\"; done\n",
        short = short.display()
    );
    std::fs::write(&script, text).expect("a file");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let program = script.display().to_string();
    let reflecting =
        Reflecting::start(&server, &["q", "--source", "s", "--interval", "50ms", "--", &program]);
    reflecting.until_lists(1);
    std::fs::write(&short, "").expect("a file");
    std::fs::write(folder.join("short.again"), "").expect("a file");
    reflecting.until_metric("deltaq_reflect_failures_total", "side=\"source\"", 1.0);
    std::fs::remove_file(folder.join("short.again")).expect("a file");
    reflecting.until_lists(2);
    assert_eq!(server.count("q", "ready"), 20);
    let log = reflecting.stop();
    assert!(log.contains("it is read once more") && log.contains("two readings of the list differ"), "{log}");
}

#[test]
fn objects_with_old_versions_are_told() {
    let versions: Arc<Mutex<Vec<usize>>> = Arc::new(Mutex::new(vec![5; 12]));
    let state = Arc::clone(&versions);
    let upstream = Upstream::start(move |_, reply| {
        let versions = state.lock().clone();
        let rows = versions.iter().enumerate().filter(|(_, version)| **version > 0);
        let rows = rows.map(|(at, version)| json!({ "key": format!("k{at:02}"), "v": version }));
        reply.send(200, &[], &Value::from(rows.collect::<Vec<_>>()).to_string());
    });
    let server = Server::in_memory();
    let url = upstream.url("/");
    let once = || {
        let run = server.run(&[
            "reflect",
            "q",
            "--source",
            "s",
            "--list",
            &url,
            "--create",
            "version=/v",
            "--once",
        ]);
        assert_eq!(run.code, Some(0), "{run:?}");
        (run.stderr.contains("of the list change nothing"), run.stdout)
    };
    let problem = || server.run(&["sources", "q", "-o", "json"]).ok();
    once();
    let (is_told, counts) = once();
    assert!(!is_told && counts.contains("12 unchanged"), "{counts}");
    versions.lock()[11] = 0;
    assert!(!once().0);
    // The key comes back with the version that was deleted, with an older one, and with a newer one.
    for (version, is_stale) in [(5, true), (3, true), (6, false)] {
        versions.lock()[11] = version;
        assert_eq!(once().0, is_stale, "{version}");
        assert_eq!(problem().contains("has deleted: 1"), is_stale, "{version}: {}", problem());
    }
    // The source was restored.
    *versions.lock() = vec![2; 12];
    assert!(once().0 && problem().contains("has deleted: 12"));
}
