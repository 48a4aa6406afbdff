//! The examples of reflect.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Reflecting;
use crate::harness::waiting::until;
use crate::system::cli::Server;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

#[test]
fn dns_records_follow_the_inventory() {
    let server = Server::in_memory();
    let folder = server.folder.path();
    let sqlite = |statements: &str| {
        let script =
            "import sqlite3, sys; sqlite3.connect('inventory.db', timeout=60).executescript(sys.argv[1])";
        let status = Command::new("python3").args(["-c", script, statements]).current_dir(folder).status();
        assert!(status.expect("python3 runs").success(), "{statements}");
    };
    sqlite(&std::fs::read_to_string(example("dns-records/inventory.sql")).expect("text"));
    let database = format!("sqlite:{}", folder.join("inventory.db").display());
    let query = "SELECT name AS key, address FROM hosts WHERE active";
    let readme = std::fs::read_to_string(example("dns-records/README.md")).expect("text");
    assert!(readme.contains(&format!("--query '{query}'")));
    let line =
        ["records", "--source", "inventory", "--sql", &database, "--query", query, "--interval", "50ms"];
    let reflecting = Reflecting::start(&server, &line);
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    let script = example("dns-records/zone").display().to_string();
    let zone = folder.join("example.zone");
    let work = || {
        server.run(&["work", "records", "--until-empty", "--", &script, &zone.display().to_string()]).ok();
        let text = std::fs::read_to_string(&zone).expect("a zone");
        text.lines().skip(4).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(work(), ["ns A 192.0.2.1", "www A 192.0.2.2"]);
    sqlite("UPDATE hosts SET active = 1 WHERE name = 'old'; UPDATE hosts SET active = 0 WHERE name = 'www'");
    until("the changes are queued", || server.count("records", "ready") == 2);
    assert_eq!(work(), ["ns A 192.0.2.1", "old A 192.0.2.3"]);
    reflecting.stop();
}

#[test]
fn the_example_file_has_every_kind_of_source() {
    let path = example("reflect/reflect.toml");
    let settings = deltaq::config::reflect::load(&path).expect("the example is valid");
    let kinds: Vec<_> =
        settings.sources.values().filter_map(deltaq_reflect::settings::Source::kind).collect();
    assert_eq!((kinds.len(), settings.sources.len()), (7, 7));
    let text = std::fs::read_to_string(path).expect("text");
    for kind in ["rest", "command", "files", "sql", "replication", "deltaq", "kubernetes"] {
        assert!(text.contains(&format!(".{kind}]\n")), "{kind}");
    }
}
