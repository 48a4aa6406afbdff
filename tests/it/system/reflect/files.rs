//! A folder of 10,000 files that changes: new, changed, renamed and removed files, half-written ones, and a folder that goes away.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::{Reflecting, counts, drain, known};
use crate::harness::waiting::until;
use crate::system::cli::Server;

const FILES: usize = 10_000;

fn path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("{:02}", number % 100)).join(format!("{number}.json"))
}

fn write(folder: &Path, number: usize, price: usize) {
    let path = path(folder, number);
    fs::write(&path, json!({ "key": format!("sku-{number}"), "price": price }).to_string()).expect("a file");
}

/// The objects of all files of a folder, by key.
fn content(folder: &Path) -> BTreeMap<String, Value> {
    let mut objects = BTreeMap::new();
    for inner in fs::read_dir(folder).expect("a folder") {
        for file in fs::read_dir(inner.expect("an entry").path()).expect("a folder") {
            let text = fs::read_to_string(file.expect("an entry").path()).expect("text");
            let object: Value = serde_json::from_str(&text).expect("JSON");
            objects.insert(object["key"].as_str().expect("a key").to_owned(), object);
        }
    }
    objects
}

/// Waits until the newest objects of the queue are those of the folder.
#[track_caller]
fn until_equal(server: &Server, folder: &Path) {
    let wanted = content(folder);
    until("the queue equals the folder", || {
        let rows = server.run(&["latest", "q", "-o", "ndjson"]).ok();
        let rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).expect("JSON"));
        let latest = rows.map(|row| (row["key"].as_str().expect("a key").to_owned(), row["object"].clone()));
        latest.collect::<BTreeMap<_, _>>() == wanted
    });
}

#[test]
fn ten_thousand_files_that_change_are_followed() {
    let server = Server::in_memory();
    let folder = server.folder.path().join("files");
    for number in 0..100 {
        fs::create_dir_all(folder.join(format!("{number:02}"))).expect("a folder");
    }
    (0..FILES).for_each(|number| write(&folder, number, number));
    let shown = folder.display().to_string();
    let line = ["q", "--source", "s", "--files", &shown, "--suffix", ".json", "--interval", "60s"];
    let reflecting = Reflecting::start(&server, &line);
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    assert_eq!(drain(&server, "q"), counts(&[("Replaced", FILES)]));
    assert_eq!(known(&server, "q"), content(&folder));

    // Each change is one delta, and files that are only touched are none.
    for number in 0..50 {
        write(&folder, number, number + 1_000_000);
    }
    let text = fs::read(path(&folder, 60)).expect("a file");
    fs::write(path(&folder, 60), text).expect("a file");
    until_equal(&server, &folder);
    assert_eq!(drain(&server, "q"), counts(&[("Updated", 50)]));
    write(&folder, FILES, 1);
    until_equal(&server, &folder);
    assert_eq!(drain(&server, "q"), counts(&[("Updated", 1)]));

    // A renamed file is no change, and a removed one is a deletion.
    fs::rename(path(&folder, 70), path(&folder, 70).with_file_name("other.json")).expect("a rename");
    for number in 100..130 {
        fs::remove_file(path(&folder, number)).expect("a file");
    }
    until_equal(&server, &folder);
    assert_eq!(drain(&server, "q"), counts(&[("Deleted", 30)]));

    // A file whose key changes is a deletion and a new object.
    fs::write(path(&folder, 71), "{\"key\":\"new-name\"}").expect("a file");
    until_equal(&server, &folder);
    assert_eq!(drain(&server, "q"), counts(&[("Deleted", 1), ("Replaced", 1)]));
    reflecting.stop();

    // After a restart nothing has changed.
    let reflecting = Reflecting::start(&server, &line);
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    assert_eq!(drain(&server, "q"), counts(&[]));
    assert_eq!(known(&server, "q"), content(&folder));

    // A folder that is gone deletes nothing.
    let away = server.folder.path().join("away");
    fs::rename(&folder, &away).expect("a rename");
    reflecting.until_metric("deltaq_reflect_failures_total", "side=\"source\"", 1.0);
    fs::rename(&away, &folder).expect("a rename");
    reflecting.until_metric("deltaq_reflect_up", "", 1.0);
    assert_eq!(drain(&server, "q"), counts(&[]));
    // So does an empty one: the list would delete too much.
    fs::rename(&folder, &away).expect("a rename");
    fs::create_dir(&folder).expect("a folder");
    reflecting.until_metric("deltaq_reflect_failures_total", "side=\"queue\"", 1.0);
    assert_eq!(drain(&server, "q"), counts(&[]));
    assert!(reflecting.stop().contains("mass-delete"));
}

#[test]
fn half_written_files_change_nothing() {
    let server = Server::in_memory();
    let folder = server.folder.path().join("files");
    fs::create_dir_all(folder.join("deep")).expect("a folder");
    fs::write(folder.join("a.json"), "{\"n\":1}").expect("a file");
    fs::write(folder.join("deep/b.json"), "[{\"n\":2}]").expect("a file");
    fs::write(folder.join(".hidden.json"), "{").expect("a file");
    fs::write(folder.join("notes.txt"), "nothing").expect("a file");
    // Links to folders above them would lead to the same files again, and for ever.
    for (link, target) in [("deep/up", folder.as_path()), ("deep/out", server.folder.path())] {
        std::os::unix::fs::symlink(target, folder.join(link)).expect("a link");
    }
    let shown = folder.display().to_string();
    let line = [
        "q",
        "--source",
        "s",
        "--files",
        &shown,
        "--suffix",
        ".json",
        "--file-key",
        "key",
        "--interval",
        "50ms",
    ];
    let reflecting = Reflecting::start(&server, &line);
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    assert_eq!(drain(&server, "q"), counts(&[("Replaced", 2)]));
    assert_eq!(known(&server, "q").into_keys().collect::<Vec<_>>(), ["a", "deep/b"]);

    // The file stays half-written, which is a failure of this file alone.
    fs::write(folder.join("a.json"), "{\"n\":").expect("a file");
    fs::write(folder.join("c.json"), "{\"n\":3}").expect("a file");
    reflecting.until_metric("deltaq_reflect_failures_total", "side=\"source\"", 1.0);
    until("the other file is sent", || server.count("q", "ready") == 1);
    assert_eq!(drain(&server, "q"), counts(&[("Updated", 1)]));
    assert!(reflecting.metric("deltaq_reflect_up", "") < 0.5);
    fs::write(folder.join("a.json"), "{\"n\":1}").expect("a file");
    reflecting.until_metric("deltaq_reflect_up", "", 1.0);
    assert_eq!(drain(&server, "q"), counts(&[]));
    // A file that is put in place by a rename is read whole.
    fs::write(folder.join("a.tmp"), "{\"n\":4}").expect("a file");
    fs::rename(folder.join("a.tmp"), folder.join("a.json")).expect("a rename");
    until("the change is sent", || server.count("q", "ready") == 1);
    assert_eq!(drain(&server, "q"), counts(&[("Updated", 1)]));
    assert_eq!(known(&server, "q")["a"], json!({ "key": "a", "n": 4 }));
    let log = reflecting.stop();
    assert!(
        log.contains("a.json is not JSON") || log.contains("a.json: line 1 is not a JSON object"),
        "{log}"
    );
}

#[test]
fn a_folder_that_is_made_again_is_watched_again() {
    let server = Server::in_memory();
    let folder = server.folder.path().join("files");
    let write = |name: &str, text: &str| {
        fs::write(folder.join("new"), text).expect("a file");
        fs::rename(folder.join("new"), folder.join(name)).expect("a rename");
    };
    fs::create_dir(&folder).expect("a folder");
    write("a.json", "{\"key\":\"a\"}");
    let shown = folder.display().to_string();
    let line = ["q", "--source", "s", "--files", &shown, "--suffix", ".json", "--interval", "10m"];
    let reflecting = Reflecting::start(&server, &line);
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    fs::remove_dir_all(&folder).expect("a folder");
    fs::create_dir(&folder).expect("a folder");
    write("a.json", "{\"key\":\"a\",\"n\":1}");
    let is_at = |n: u64| known_price(&server) == Some(n);
    until("the new folder is read", || is_at(1));
    write("a.json", "{\"key\":\"a\",\"n\":2}");
    until("the new folder is watched", || is_at(2));
    reflecting.stop();
}

/// The number of the newest object `a`.
fn known_price(server: &Server) -> Option<u64> {
    let rows = server.run(&["latest", "q", "-o", "ndjson"]).ok();
    serde_json::from_str::<Value>(rows.lines().next()?).expect("JSON")["object"]["n"].as_u64()
}

#[test]
fn two_files_with_one_key_are_named() {
    let server = Server::in_memory();
    let folder = server.folder.path().join("files");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("a.json"), "{\"key\":\"a\"}").expect("a file");
    let shown = folder.display().to_string();
    let line = ["q", "--source", "s", "--files", &shown, "--suffix", ".json", "--interval", "50ms"];
    let reflecting = Reflecting::start(&server, &line);
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    fs::write(folder.join("b.json"), "{\"key\":\"a\",\"n\":2}").expect("a file");
    reflecting.until_metric("deltaq_reflect_failures_total", "side=\"source\"", 1.0);
    assert!(reflecting.metric("deltaq_reflect_up", "") < 0.5);
    let once = [&["reflect"][..], &line, &["--once"]].concat();
    let refused = server.run(&once).failed(1);
    assert!(
        refused.contains("b.json has an object with the key of one in ") && refused.contains("a.json"),
        "{refused}"
    );
    let last = [&once[..], &["--last-duplicate"]].concat();
    assert!(server.run(&last).ok().contains("2 objects"));
    fs::write(folder.join("b.json"), "{\"key\":\"b\"}").expect("a file");
    reflecting.until_metric("deltaq_reflect_up", "", 1.0);
    reflecting.stop();
}

#[test]
fn new_content_with_the_same_size_and_time_is_read() {
    let server = Server::in_memory();
    let folder = server.folder.path().join("files");
    fs::create_dir(&folder).expect("a folder");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let write = |path: &Path, n: usize| {
        let name = path.file_name().expect("a name").to_string_lossy();
        fs::write(path, json!({ "key": name, "n": n }).to_string()).expect("a file");
        fs::File::options().write(true).open(path).and_then(|file| file.set_modified(time)).expect("a time");
    };
    let names = ["in-place", "removed", "renamed", "copied"];
    for name in names {
        write(&folder.join(name), 10);
    }
    let shown = folder.display().to_string();
    let line = ["q", "--source", "s", "--files", &shown, "--interval", "50ms"];
    let reflecting = Reflecting::start(&server, &line);
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    assert_eq!(drain(&server, "q"), counts(&[("Replaced", 4)]));
    write(&folder.join("in-place"), 20);
    // The next file often gets the inode that has become free.
    fs::remove_file(folder.join("removed")).expect("a file");
    write(&folder.join("removed"), 20);
    let aside = server.folder.path().join("renamed");
    write(&aside, 20);
    fs::rename(&aside, folder.join("renamed")).expect("a rename");
    let source = server.folder.path().join("copied");
    write(&source, 20);
    let copied = Command::new("cp").arg("-p").arg(&source).arg(folder.join("copied")).status();
    assert!(copied.expect("cp runs").success());
    until_all(&server, 20, names.len());
    // Again, a moment later: the clocks of file systems are coarse.
    for n in 21..25 {
        write(&folder.join("in-place"), n);
    }
    until_all(&server, 24, 1);
    // A file whose mode alone changes is read again, and is no change.
    drain(&server, "q");
    fs::set_permissions(folder.join("in-place"), fs::Permissions::from_mode(0o600)).expect("a mode");
    write(&folder.join("copied"), 30);
    until_all(&server, 30, 1);
    assert_eq!(drain(&server, "q"), counts(&[("Updated", 1)]));
    reflecting.stop();
}

/// Waits until this many newest objects have this number.
#[track_caller]
fn until_all(server: &Server, n: usize, count: usize) {
    until(&format!("{count} objects have {n}"), || {
        let rows = server.run(&["latest", "q", "-o", "ndjson"]).ok();
        rows.matches(&format!("\"n\":{n}")).count() == count
    });
}

#[test]
fn names_of_files_are_shown_without_control_characters() {
    let server = Server::in_memory();
    let folder = server.folder.path().join("files");
    fs::create_dir(&folder).expect("a folder");
    let shown = folder.display().to_string();
    for name in ["bad\u{1b}[31m\nFAKE LINE", "bell\u{7}\rover", "bidi\u{202e}txt"] {
        let path = folder.join(format!("{name}.json"));
        fs::write(&path, "{").expect("a file");
        let failed = server.run(&["reflect", "q", "--source", "s", "--files", &shown, "--once"]).failed(1);
        let is_raw = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
        assert!(!failed.contains(is_raw) && !failed.contains("\nFAKE"), "{failed:?}");
        assert!(failed.contains("is not JSON") || failed.contains("is not a JSON object"), "{failed}");
        fs::remove_file(path).expect("a file");
    }
}

#[test]
fn a_link_that_leads_nowhere_keeps_its_objects() {
    let server = Server::in_memory();
    server.run(&["queue", "create", "q"]).ok();
    let (folder, other) = (server.folder.path().join("files"), server.folder.path().join("other"));
    fs::create_dir_all(other.join("eu")).and_then(|()| fs::create_dir(&folder)).expect("folders");
    let write = |path: PathBuf, key: &str, price: usize| {
        fs::write(path, json!({ "key": key, "price": price }).to_string()).expect("a file");
    };
    write(folder.join("a.json"), "a", 1);
    write(other.join("b.json"), "b", 1);
    write(other.join("eu/c.json"), "c", 1);
    symlink(other.join("b.json"), folder.join("b.json")).expect("a link");
    symlink(other.join("eu"), folder.join("eu")).expect("a link");
    let shown = folder.display().to_string();
    let line = ["q", "--source", "s", "--files", &shown, "--suffix", ".json", "--interval", "50ms"];
    let reflecting = Reflecting::start(&server, &line);
    let latest = || server.run(&["latest", "q", "-o", "ndjson"]).ok();
    until("all objects are there", || latest().lines().count() == 3);
    let gone = server.folder.path().join("gone");
    fs::rename(&other, &gone).expect("a folder");
    until("the links are reported", || reflecting.metric("deltaq_reflect_up", "") < 0.5);
    write(folder.join("a.json"), "a", 2);
    until("the other file is followed", || latest().contains("\"price\":2"));
    assert_eq!(latest().lines().count(), 3);
    // The key of a file that is removed is deleted, although the links lead nowhere.
    fs::remove_file(folder.join("a.json")).expect("a file");
    until("the key is deleted", || latest().lines().count() == 2);
    fs::rename(&gone, &other).expect("a folder");
    reflecting.until_metric("deltaq_reflect_up", "", 1.0);
    fs::remove_file(folder.join("eu")).expect("a link");
    until("the objects behind the link are deleted", || latest().lines().count() == 1);
    let log = reflecting.stop();
    assert!(log.contains("can't read") && log.contains("b.json"), "{log}");
}
