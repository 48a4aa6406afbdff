//! The output of a command, files of several sources, and how the process ends.

use super::{Reflecting, counts, drain, known};
use crate::harness::process::finished;
use crate::harness::waiting::until;
use crate::system::cli::Server;

/// The arguments of one list of a shell command.
fn shell<'a>(script: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    [&["reflect", "q", "--source", "s", "--once"], options, &["--", "sh", "-c", script]].concat()
}

#[test]
fn the_exit_status_decides_whether_the_list_is_complete() {
    let server = Server::in_memory();
    let run = |script: &str, options: &[&str]| server.run(&shell(script, options));
    let three = "printf '%s\\n' '{\"key\":\"a\"}' '{\"key\":\"b\"}' '' '{\"key\":\"c\",\"n\":12345678901234567890.10}'";
    assert_eq!(run(three, &[]).ok(), "s: 3 objects, 3 replaced, 0 deleted, 0 unchanged\n");
    assert_eq!(
        run(
            "echo '{\"rows\":[{\"key\":\"a\"},{\"key\":\"b\"}]}'",
            &["--items", "/rows", "--max-deletes", "1"]
        )
        .ok(),
        "s: 2 objects, 0 replaced, 1 deleted, 2 unchanged\n"
    );
    for (script, expected) in [
        ("echo '[]'; echo no database >&2; exit 3", "sh has failed (exit status: 3): no database"),
        ("echo '{\"key\":\"a\"}'; kill -9 $$", "sh has failed (signal: 9 (SIGKILL))"),
        ("echo '[{\"key\":\"a\"}'", "the output of sh is not JSON"),
        ("echo '{\"key\":\"a\"}'; echo nothing", "the output of sh: line 2 is not a JSON object"),
        ("head -c 3000 /dev/zero; sleep 60", "sh has written more than 2000 bytes (max_bytes)"),
        ("sleep 60 & sleep 60", "sh has not ended within 300ms (timeout)"),
    ] {
        let timeout = if expected.contains("300ms") { "300ms" } else { "1m" };
        let failed = run(script, &["--max-bytes", "2000", "--timeout", timeout]).failed(1);
        assert!(failed.contains(expected), "{script}: {failed}");
    }
    let missing = server.run(&["reflect", "q", "--source", "s", "--once", "--", "./nothing-here"]).failed(1);
    assert!(missing.contains("can't run ./nothing-here: No such file"), "{missing}");
    assert_eq!(drain(&server, "q"), counts(&[("Replaced", 3), ("Deleted", 1)]));
    assert_eq!(known(&server, "q").into_keys().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_command_does_not_inherit_the_variables_of_deltaq() {
    let server = Server::in_memory();
    let variables = "printf '{\"key\":\"%s variables, %s\"}' \"$(env | grep -c ^DELTAQ_)\" \"$OTHER\"";
    let mut command = server.command(&shell(variables, &[]));
    command.env("DELTAQ_TOKEN", "secret").env("DELTAQ_SOURCE_PASSWORD", "secret").env("OTHER", "kept");
    finished(command, "").ok();
    assert_eq!(drain(&server, "q"), counts(&[("Replaced", 1)]));
    assert_eq!(known(&server, "q").into_keys().collect::<Vec<_>>(), ["0 variables, kept"]);
}

#[test]
fn settings_that_do_not_fit_the_existing_queue_are_an_error() {
    let server = Server::in_memory();
    server.run(&["queue", "create", "q", "key=/id", "mode=latest"]).ok();
    let list = "echo '{\"sku\":\"a\",\"id\":\"b\"}'";
    for (create, both) in [
        ("key=/sku", ["key [\"/id\"]", "key \"/sku\""]),
        ("mode=delta", ["mode \"latest\"", "mode \"delta\""]),
        ("known_objects=false", ["known_objects true", "known_objects false"]),
    ] {
        let failed = server.run(&shell(list, &["--create", create])).failed(1);
        assert!(both.iter().all(|text| failed.contains(text)), "{create}: {failed}");
    }
    assert_eq!(server.count("q", "ready"), 0);
    // Settings that an operator may have changed since do not matter.
    for create in ["key=/id", "key=[\"/id\"]", "mode=latest", "lease=5m"] {
        server.run(&shell(list, &["--create", create])).ok();
    }
}

#[test]
fn a_name_of_a_file_neither_forges_a_line_nor_controls_the_terminal() {
    let server = Server::in_memory();
    let folder = server.folder.path().join("files");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("bad\u{1b}[31m\nFAKE LINE\u{202e}.json"), "{").expect("a file");
    let shown = folder.to_string_lossy();
    let failed =
        server.run(&["reflect", "q", "--source", "s", "--once", "--files", &shown, "--suffix", ".json"]);
    let failed = failed.failed(1);
    assert!(failed.contains("bad\\u{1b}[31m\\u{a}FAKE LINE\\u{202e}.json"), "{failed}");
    assert!(!failed.contains('\u{1b}') && !failed.contains("\nFAKE LINE"), "{failed}");
}

#[test]
fn sources_of_a_file_are_isolated_from_each_other() {
    let server = Server::in_memory();
    let list = server.folder.path().join("list.json");
    std::fs::write(&list, "[{\"sku\":\"a\"}]").expect("a file");
    let file = server.folder.path().join("reflect.toml");
    let text = format!(
        "[sources.good]\nqueue = \"prices\"\ninterval = \"20ms\"\ncreate = {{ key = \"/sku\", mode = \"latest\" }}\n[sources.good.command]\nrun = [\"cat\", {list:?}]\n\
         [sources.locked]\nqueue = \"prices\"\n[sources.locked.deltaq]\nurl = \"http://127.0.0.1:1\"\nqueue = \"q\"\ntoken_file = \"missing-token\"\n\
         [sources.home]\nqueue = \"prices\"\n[sources.home.kubernetes]\nresource = \"/api/v1/pods\"\nkubeconfig = \"missing\"\n\
         [sources.bad]\nqueue = \"prices\"\n[sources.bad.command]\nrun = [\"false\"]\n\
         [sources.slow]\nqueue = \"prices\"\n[sources.slow.command]\nrun = [\"sleep\", \"600\"]\n"
    );
    std::fs::write(&file, text).expect("a file");
    let path = file.display().to_string();
    let reflecting = Reflecting::start(&server, &["--config", &path, "--log-level", "info"]);
    reflecting.until_lists(3);
    let unready = reflecting.get("/readyz");
    assert_eq!((unready.0, unready.1.as_str()), (503, "no list was accepted yet: bad, home, locked, slow\n"));
    for source in ["bad", "home", "locked"] {
        reflecting.until_metric("deltaq_reflect_failures_total", &format!("source=\"{source}\""), 2.0);
    }
    assert_eq!(server.json(&["queue", "get", "prices"])["settings"]["mode"], "latest");
    assert_eq!(server.count("prices", "ready"), 1);
    let log = reflecting.stop();
    assert!(
        log.contains("can't read the token file missing-token")
            && log.contains("can't read missing (kubeconfig)"),
        "{log}"
    );
}

#[test]
fn a_stop_breaks_a_list_off_and_leaves_no_process() {
    let server = Server::in_memory();
    let marker = server.folder.path().join("pid");
    let script = format!("echo $$ > {}; echo '[]'; exec sleep 600", marker.display());
    let reflecting = Reflecting::start(
        &server,
        &["q", "--source", "s", "--create", "mode=latest", "--", "sh", "-c", &script],
    );
    let pid = || std::fs::read_to_string(&marker).unwrap_or_default().trim().to_owned();
    until("the command runs", || !pid().is_empty());
    reflecting.stop();
    let process = std::path::PathBuf::from(format!("/proc/{}/exe", pid()));
    until("the command has ended", || std::fs::read_link(&process).is_err());
}

/// Wrong command lines, their exit codes, and a part of what they print.
const WRONG: &[(&[&str], i32, &str)] = &[
    (&["reflect"], 2, "--source <NAME>"),
    (&["reflect", "q", "--source", "s"], 2, "a source is required: one of --list, --files"),
    (&["reflect", "Q", "--source", "s", "--", "true"], 2, "QUEUE: a queue name is made of"),
    (
        &["reflect", "q", "--source", "s", "--interval", "1", "--", "true"],
        2,
        "--interval: invalid value: string \"1\", expected a duration from 10ms to 1d",
    ),
    (&["reflect", "q", "--source", "s", "--list", "ftp://a"], 2, "--list: invalid value, expected a URL"),
    (
        &["reflect", "q", "--source", "s", "--header-file", "x", "--", "true"],
        2,
        "--header-file: this kind of source does not have it",
    ),
    (
        &["reflect", "q", "--source", "s", "--create", "mode", "--", "true"],
        2,
        "\"mode\" is not a setting of the form NAME=VALUE",
    ),
    (
        &["reflect", "q", "--source", "s", "--list", "https://a", "--source-ca-file", "missing", "--once"],
        1,
        "can't read missing (ca_file)",
    ),
    (
        &["reflect", "q", "--source", "s", "--metrics-listen", "nowhere", "--", "true"],
        2,
        "--metrics-listen: invalid value",
    ),
    (&["reflect", "--config", "missing.toml"], 1, "can't read missing.toml"),
    (
        &["reflect", "--config", "a.toml", "--max-deletes", "1"],
        2,
        "--max-deletes is for one source without a file; a.toml has the settings of each source",
    ),
    (&["reflect", "q", "--source", "s", "--once", "--", "echo", "[{}]"], 1, "--create key=/id"),
    (
        &["reflect", "q", "--source", "s", "--once", "--", "echo", "[{\"key\":1},{\"key\":1,\"n\":2}]"],
        1,
        "--last-duplicate",
    ),
    (
        &[
            "reflect",
            "q",
            "--source",
            "home",
            "--kubernetes",
            "/api/v1/pods",
            "--kubeconfig",
            "missing",
            "--once",
        ],
        1,
        "source home: can't read missing (kubeconfig)",
    ),
];

#[test]
fn wrong_flags_and_files_have_clear_errors() {
    let server = Server::in_memory();
    let file = server.folder.path().join("reflect.toml");
    let path = file.display().to_string();
    let unknown = "reflect.toml, line 3: unknown setting `sources.a.comand`; did you mean `command`?";
    let with_file: [(&[&str], _, _); 1] = [(&["reflect", "--config", &path], 1, unknown)];
    for (line, code, expected) in WRONG.iter().copied().chain(with_file) {
        std::fs::write(&file, "[sources.a]\nqueue = \"q\"\n[sources.a.comand]\n").expect("a file");
        let failed = server.run(line).failed(code);
        assert!(failed.contains(expected), "{line:?}: {failed}");
    }
}
