//! Runs the examples of the README against the real binary.
//!
//! The examples need python3. The shell worker needs curl and jq.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::harness::blocking::{Connection, Message};
use crate::harness::server::{End, Spawned, Store};
use crate::harness::waiting::found;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A server without a journal.
fn server() -> Spawned {
    Spawned::start(&Store::Memory)
}

fn url(server: &Spawned, path: &str) -> String {
    format!("http://{}{path}", server.api)
}

/// Makes a POST on a new connection and asserts a 200.
fn post(server: &Spawned, path: &str, body: &str) {
    let mut connection = Connection::open(server.api).expect("a connection");
    let content_type = None;
    let message = Message { method: "POST", path: path.to_owned(), content_type, body: body.to_owned() };
    let reply = connection.call(&message).expect("a reply");
    assert_eq!(reply.status(), Some(200), "{}", String::from_utf8_lossy(&reply.body));
}

/// The result of a script.
#[derive(Debug, PartialEq, Eq)]
struct ScriptResult {
    succeeded: bool,
    stdout: String,
    stderr: String,
}

impl ScriptResult {
    /// The output of a successful script.
    #[track_caller]
    fn stdout(self) -> String {
        assert!(self.succeeded, "{self:?}");
        self.stdout
    }

    /// The error output of a failed script.
    #[track_caller]
    fn stderr(self) -> String {
        assert!(!self.succeeded && self.stdout.is_empty(), "{self:?}");
        self.stderr
    }
}

fn run(command: &mut Command) -> ScriptResult {
    let output = command.output().unwrap_or_else(|error| panic!("can't run {command:?}: {error}"));
    let text = |bytes| String::from_utf8(bytes).expect("text");
    ScriptResult {
        succeeded: output.status.success(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(ROOT).join("examples/debian-packages").join(name)
}

fn python(name: &str, server: &Spawned, args: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.arg(script(name)).args(["--url", &url(server, "")]).args(args);
    command
}

fn produce(server: &Spawned, args: &[&str]) -> ScriptResult {
    run(&mut python("produce", server, args))
}

fn work(server: &Spawned, args: &[&str]) -> String {
    run(python("work", server, args).arg("--until-idle")).stdout()
}

fn data(name: &str) -> String {
    script("data").join(name).to_str().expect("a path in UTF-8").to_owned()
}

/// The output of the worker when all packages of an excerpt are new (`+`) or deleted (`-`).
fn all(name: &str, sign: char) -> String {
    let text = std::fs::read_to_string(data(name)).expect("the excerpt");
    let field = |stanza: &str, field: &str| {
        let line = stanza.lines().find_map(|line| line.strip_prefix(&format!("{field}: ")));
        line.unwrap_or_else(|| panic!("no {field} in {stanza}")).to_owned()
    };
    text.split_terminator("\n\n").fold(String::new(), |mut lines, stanza| {
        let (name, arch) = (field(stanza, "Package"), field(stanza, "Architecture"));
        writeln!(lines, "{sign} {name}:{arch} {}", field(stanza, "Version")).expect("a string grows");
        lines
    })
}

const CHANGES: &str = "\
~ bluetooth:all version 5.66-1+deb12u1 -> 5.66-1+deb12u2
~ bluez:amd64 version 5.66-1+deb12u1 -> 5.66-1+deb12u2
~ chromium:amd64 version 147.0.7727.137-1~deb12u1 -> 148.0.7778.167-1~deb12u1, installed_kib 263680 -> 266111, depends changed
~ cockpit:all version 287.1-0+deb12u2 -> 287.1-0+deb12u3, depends changed
~ composer:all version 2.5.5-1+deb12u2 -> 2.5.5-1+deb12u4, installed_kib 2714 -> 2717
~ containerd:amd64 version 1.6.20~ds1-1+deb12u2 -> 1.6.20~ds1-1+deb12u3
~ cups-filters:amd64 version 1.28.17-3+deb12u1 -> 1.28.17-3+deb12u2, installed_kib 1898 -> 1899, depends changed
~ curl:amd64 version 7.88.1-10+deb12u5 -> 7.88.1-10+deb12u14, installed_kib 488 -> 489, depends changed
~ djview:all version 3.5.28-2.1~deb12u1 -> 3.5.28-2.2~deb12u1
~ dpdk:amd64 version 22.11.7-1~deb12u1 -> 22.11.11-0+deb12u1
~ libcurl4:amd64 version 7.88.1-10+deb12u5 -> 7.88.1-10+deb12u14, installed_kib 843 -> 840
+ linux-headers-6.1.0-48-amd64:amd64 6.1.172-1
- linux-headers-6.1.0-45-amd64:amd64 6.1.170-1
- sl:amd64 5.02-1+b1
";

#[test]
fn a_package_list_is_delivered_as_its_changes() {
    let server = server();
    let (first, second) = (data("packages-1.txt"), data("packages-2.txt"));
    let sent = produce(&server, &["--from", &first]).stdout();
    assert_eq!(sent, "33 packages: 33 replaced, 0 deleted, 0 unchanged\n");
    assert_eq!(work(&server, &[]), all("packages-1.txt", '+'));

    let sent = produce(&server, &["--from", &first]).stdout();
    assert_eq!(sent, "33 packages: 0 replaced, 0 deleted, 33 unchanged\n");
    assert_eq!(work(&server, &[]), "");

    let sent = produce(&server, &["--from", &second, "--dry-run"]).stdout();
    assert_eq!(sent, "32 packages: 12 replaced, 2 deleted, 20 unchanged (dry run)\n");
    assert_eq!(work(&server, &[]), "");
    let sent = produce(&server, &["--from", &second]).stdout();
    assert_eq!(sent, "32 packages: 12 replaced, 2 deleted, 20 unchanged\n");
    assert_eq!(work(&server, &[]), CHANGES);

    let refused = produce(&server, &["--from", "/dev/null"]).stderr();
    assert!(refused.contains("would delete 32 of 32"), "{refused}");
    assert_eq!(work(&server, &[]), "");
    let sent = produce(&server, &["--from", "/dev/null", "--max-delete-percent", "100"]).stdout();
    assert_eq!(sent, "0 packages: 0 replaced, 32 deleted, 0 unchanged\n");
    let deletions = work(&server, &[]);
    assert_eq!(sorted(&deletions), sorted(&all("packages-2.txt", '-')));
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_worker_may_skip_the_first_list_or_stop_early() {
    let server = server();
    produce(&server, &["--from", &data("packages-1.txt")]).stdout();
    let some = run(&mut python("work", &server, &["--max", "2"])).stdout();
    assert_eq!(some, "+ adduser:all 3.134\n+ base-files:amd64 12.4+deb12u14\n");
    assert_eq!(work(&server, &["--skip-initial", "--batch", "7"]), "31 packages in the first list\n");
    produce(&server, &["--from", &data("packages-2.txt")]).stdout();
    assert_eq!(work(&server, &["--skip-initial"]), CHANGES);
}

/// A PATH with fake programs that precede those of the machine.
fn fake_programs(test: &str, programs: &[(&str, &str)]) -> std::ffi::OsString {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, text) in programs {
        let file = folder.join(name);
        std::fs::write(&file, text).expect("a script");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))
            .expect("the script becomes executable");
    }
    let mut path = folder.into_os_string();
    path.push(":/usr/local/bin:/usr/bin:/bin");
    path
}

#[test]
fn installed_and_removed_packages_are_changes() {
    const LIST: &str = "#!/bin/sh\ncat <<'END'\n\
        Package: adduser\nArchitecture: all\nVersion: 3.134\nInstalled-Size: 686\nStatus: installed\n\n\
        Package: nano\nArchitecture: amd64\nVersion: 7.2-1\nInstalled-Size: 2872\nStatus: config-files\n\n\
        Package: hello\nArchitecture: amd64\nVersion: 2.10-3\nInstalled-Size: 277\nStatus: STATUS\n\nEND\n";
    let list = |status: &str| LIST.replace("STATUS", status);
    let server = server();
    let installed = |status: &str| {
        let path = fake_programs("installed", &[("dpkg-query", &list(status))]);
        let args = ["--installed", "--max-delete-percent", "50"];
        let sent = run(python("produce", &server, &args).env("PATH", path)).stdout();
        sent + &work(&server, &["--queue", "installed"])
    };
    let new = "+ adduser:all 3.134\n";
    assert_eq!(installed("config-files"), format!("1 packages: 1 replaced, 0 deleted, 0 unchanged\n{new}"));
    let hello = "2 packages: 1 replaced, 0 deleted, 1 unchanged\n+ hello:amd64 2.10-3\n";
    assert_eq!(installed("installed"), hello);
    let removed = "1 packages: 0 replaced, 1 deleted, 1 unchanged\n- hello:amd64 2.10-3\n";
    assert_eq!(installed("config-files"), removed);
}

#[test]
fn a_truncated_list_changes_nothing() {
    let server = server();
    produce(&server, &["--from", &data("packages-1.txt")]).stdout();
    work(&server, &[]);
    let half = "#!/bin/sh\nprintf 'Package: hello\\nArchitecture: amd64\\nVersion: 3\\n\\n'\nexit 100\n";
    let path = fake_programs("broken", &[("apt-cache", half)]);
    let failed = run(python("produce", &server, &["--max-delete-percent", "100"]).env("PATH", path)).stderr();
    assert_eq!(failed, "produce: apt-cache failed with exit status 100; nothing was changed\n");
    assert_eq!(work(&server, &[]), "");
}

#[test]
fn the_shell_worker_of_the_readme_works() {
    let server = server();
    // A closed queue delivers its keys and then ends its workers.
    post(&server, "/v1/queues/prices/add", r#"[{"key":"sku-1","price":10},{"key":"sku-2","price":7}]"#);
    post(&server, "/v1/queues/prices/close", "");
    let mut worker = Command::new("sh");
    worker.arg(Path::new(ROOT).join("examples/worker.sh")).arg(url(&server, "/v1/queues/prices"));
    worker.args(["jq", "-e", r#".key == "sku-1" or .attempt == 2"#]);
    let ScriptResult { succeeded, stdout, stderr } = run(&mut worker);
    assert!(succeeded, "{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    let [first, failed, again, end] = lines[..] else { panic!("{stdout}\n{stderr}") };
    assert_eq!([first, failed, again], ["true", "false", "true"]);
    assert!(end.contains("queue-closed"), "{end}");
}

#[test]
fn the_python_worker_of_the_readme_works() {
    let server = server();
    post(&server, "/v1/queues/prices/add", r#"{"key":"sku-1","price":10}"#);
    post(&server, "/v1/queues/prices/close", "");
    let worker = || {
        let mut worker = Command::new("python3");
        worker.arg(Path::new(ROOT).join("examples/worker.py")).arg(url(&server, "/v1/queues/prices"));
        run(&mut worker)
    };
    let new = worker();
    assert_eq!(new.stdout, "sku-1 Added None -> {'key': 'sku-1', 'price': 10}\n");
    assert!(new.stderr.contains("410"), "{new:?}");
    post(&server, "/v1/queues/prices/reopen", "");
    post(&server, "/v1/queues/prices/replace", r#"[{"key":"sku-2","price":7}]"#);
    post(&server, "/v1/queues/prices/close", "");
    let changed = "sku-2 Replaced None -> {'key': 'sku-2', 'price': 7}\n\
         sku-1 Deleted {'key': 'sku-1', 'price': 10} -> {'key': 'sku-1', 'price': 10}\n";
    assert_eq!(worker().stdout, changed);
}

#[test]
fn a_worker_without_a_command_is_refused() {
    let server = server();
    post(&server, "/v1/queues/prices/add", r#"{"key":"sku-1"}"#);
    let mut worker = Command::new("sh");
    worker.arg(Path::new(ROOT).join("examples/worker.sh")).arg(url(&server, "/v1/queues/prices"));
    let refused = run(&mut worker).stderr();
    assert!(refused.contains("usage: worker.sh QUEUE-URL COMMAND"), "{refused}");
    assert!(
        run(Command::new("python3").arg(Path::new(ROOT).join("examples/worker.py")))
            .stderr()
            .contains("usage")
    );
    let mut connection = Connection::open(server.api).expect("a connection");
    let reply = connection.call(&Message::get("/v1/queues/prices/items/sku-1".to_owned())).expect("a reply");
    let item: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!((&item["state"], &item["attempt"]), (&"ready".into(), &0.into()), "nothing was popped");
}

/// Both workers wait for their queue, and work over a restart of the server and without a scheme in the URL.
#[test]
fn the_workers_of_the_readme_wait_for_their_queue_and_survive_a_restart() {
    for (program, file, command) in
        [("sh", "examples/worker.sh", &["jq", "-r", ".key"][..]), ("python3", "examples/worker.py", &[])]
    {
        let store = Store::folder("workers");
        let server = Spawned::start(&store);
        let address = server.api;
        let mut worker = Command::new(program);
        worker.arg(Path::new(ROOT).join(file)).arg(format!("{address}/v1/queues/prices")).args(command);
        let mut worker =
            worker.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the worker runs");
        let mut complaints = BufReader::new(worker.stderr.take().expect("a pipe")).lines();
        let complaint = complaints.next().expect("a line").expect("text");
        assert_eq!(complaint, "queue prices does not exist yet", "{file}");
        post(&server, "/v1/queues/prices/add", r#"{"key":"before"}"#);
        let mut lines = BufReader::new(worker.stdout.take().expect("a pipe")).lines();
        let mut next = || lines.next().map(|line| line.expect("text")).unwrap_or_default();
        assert!(next().starts_with("before"), "{file}");
        server.end(End::Kill);
        let server = Spawned::start_at(&store, address, |_| {});
        post(&server, "/v1/queues/prices/add", r#"{"key":"after"}"#);
        let after = next();
        // The ack of the first item was lost with the server, or arrives with the next pop.
        let after = if after.starts_with("before") { next() } else { after };
        assert!(after.starts_with("after"), "{file}: {after}");
        post(&server, "/v1/queues/prices/close", "");
        worker.wait().expect("the worker ends");
    }
}

/// A process that ends with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Waits until the file has these objects, by key.
fn wait_for_copy(file: &Path, expected: &serde_json::Value) {
    found(|| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let is_equal = serde_json::from_str::<serde_json::Value>(&text).is_ok_and(|copy| copy == *expected);
        if is_equal { Ok(()) } else { Err(format!("the copy is {text}, not {expected}")) }
    });
}

#[test]
fn the_cache_stays_in_step_over_a_crash_and_a_new_queue() {
    let store = Store::folder("cache");
    let server = Spawned::start(&store);
    let address = server.api;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("copy.json");
    post(&server, "/v1/queues/prices/add", r#"[{"key":"a"},{"key":"b"}]"#);
    let mut cache = Command::new("python3");
    cache
        .arg(Path::new(ROOT).join("examples/cache.py"))
        .arg(format!("{address}/v1/queues/prices"))
        .arg(&file);
    let _cache = Ended(cache.stderr(Stdio::null()).spawn().expect("the cache runs"));
    wait_for_copy(&file, &json!({"a": {"key": "a"}, "b": {"key": "b"}}));
    server.end(End::Kill);

    let server = Spawned::start_at(&store, address, |_| {});
    post(&server, "/v1/queues/prices/delete", r#"{"key":"a"}"#);
    post(&server, "/v1/queues/prices/add", r#"{"key":"c"}"#);
    wait_for_copy(&file, &json!({"b": {"key": "b"}, "c": {"key": "c"}}));

    let mut connection = Connection::open(server.api).expect("a connection");
    let message = Message { method: "DELETE", ..Message::get("/v1/queues/prices".to_owned()) };
    assert_eq!(connection.call(&message).expect("a reply").status(), Some(204));
    post(&server, "/v1/queues/prices/add", r#"{"key":"d"}"#);
    wait_for_copy(&file, &json!({"d": {"key": "d"}}));
}

#[test]
fn the_page_for_workers_shows_the_real_workers() {
    let read = |path: &str| std::fs::read_to_string(Path::new(ROOT).join(path)).expect("a file");
    let page = read("docs/worker.md");
    for (language, path) in [("sh", "examples/worker.sh"), ("python", "examples/worker.py")] {
        let text = read(path);
        assert!(page.contains(&format!("```{language}\n{text}```\n")), "docs/worker.md and {path} differ");
    }
}
