//! The real binary as a process: its log, signals, supervisor and exit code.

#![expect(clippy::float_cmp, reason = "counts on a page of metrics are exact")]

mod endless;
mod fenced;

use std::fs::File;
use std::io::Read as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use deltaq::config::access::{TokenEntry, Verb};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::access::{root, token};
use crate::harness::blocking::{Connection, Message};
use crate::harness::process::{Run, deltaq, finished};
use crate::harness::server::{Spawned, Store};
use crate::harness::waiting::{PATIENCE, found, until};
use crate::harness::{Client, eventually};
use crate::metrics::page::Page;

/// A server with tokens in a file.
struct Process {
    server: Spawned,
    folder: TempDir,
}

fn write_tokens(folder: &Path, tokens: &[TokenEntry]) {
    let text = toml::to_string(&json!({ "tokens": tokens })).expect("tokens are TOML");
    std::fs::write(folder.join("tokens.toml"), text).expect("a file");
}

impl Process {
    /// Starts a server with tokens in a file, and waits until it is ready.
    fn start(folder: TempDir, tokens: &[TokenEntry], adapt: impl FnOnce(&mut Command)) -> Self {
        write_tokens(folder.path(), tokens);
        let server = Spawned::start_uncalled(&Store::Memory, |command| {
            command.env("DELTAQ_ACCESS__TOKENS_FILE", folder.path().join("tokens.toml"));
            adapt(command);
        });
        Self { server, folder }
    }

    async fn client(&self) -> Client {
        Client::connect(self.server.api).await
    }

    /// Waits until a metric has a value, and returns the page.
    fn until_measured(&self, token: &str, series: &str, wanted: f64) -> Page {
        let bearer = format!("authorization: Bearer {token}");
        found(|| {
            let mut connection = Connection::open(self.server.api).expect("a connection");
            let reply = connection.call_with(&Message::get("/metrics".to_owned()), &[&bearer]);
            let page = Page::read(&String::from_utf8(reply.expect("a reply").body).expect("text"));
            let value = page.value(series);
            if value == wanted { Ok(page) } else { Err(format!("{series} is {value} and not {wanted}")) }
        })
    }

    fn signal(&self, name: &str) {
        self.server.signal(name);
    }

    fn has_logged(&self, text: &str) -> bool {
        self.server.process.log().contains(text)
    }

    /// Stops the server, and returns its log.
    fn stop(self) -> String {
        self.server.stop()
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

#[tokio::test]
async fn the_log_has_a_line_for_each_request() {
    let process = Process::start(folder(), &[root()], |command| {
        command.args(["--log-level", "debug"]);
    });
    let mut client = process.client().await;
    let objects = json!([{ "key": "sku-1", "text": "payload" }, { "key": "sku-2" }]);
    client.call_as("root", "POST", "/v1/queues/prices/add", &objects).await.ok();
    let popped = client.call_as("root", "POST", "/v1/queues/prices/pop?max=5", &Value::Null).await.ok();
    // A server without a journal ends when no lease is left.
    let leases = [0, 1].map(|item| popped["items"][item]["lease"]["id"].clone());
    client.call_as("root", "POST", "/v1/queues/prices/ack", &json!({ "lease_ids": leases })).await.ok();
    let secret = "not-a-token-but-secret";
    let refused =
        client.call_as(secret, "GET", "/v1/queues/prices", &Value::Null).await.problem("unauthorized");
    let log = process.stop();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let requests: Vec<&Value> = lines.iter().filter(|line| line["message"] == "request").collect();
    let logged = requests.iter().map(|line| {
        let counts = ["queued", "ignored", "items", "leases"].map(|name| line[name].clone());
        json!([
            line["level"],
            line["method"],
            line["route"],
            line["queue"],
            line["who"],
            line["status"],
            line["outcome"],
            counts
        ])
    });
    let queue = "/v1/queues/{queue}";
    assert_eq!(
        logged.collect::<Vec<_>>(),
        [
            json!(["DEBUG", "POST", format!("{queue}/add"), "prices", "root", 200, "ok", [2, 0, null, null]]),
            json!(["DEBUG", "POST", format!("{queue}/pop"), "prices", "root", 200, "ok", [null, null, 2, 0]]),
            json!([
                "DEBUG",
                "POST",
                format!("{queue}/ack"),
                "prices",
                "root",
                200,
                "ok",
                [null, null, null, 2]
            ]),
            json!(["INFO", "GET", queue, "prices", null, 401, "unauthorized", [null, null, null, null]]),
        ]
    );
    assert_eq!(requests[3]["request_id"], refused["request_id"]);
    assert!(requests.iter().all(|line| line["took_us"].is_u64()), "{log}");
    assert!(lines.iter().any(|line| line["target"] == "audit" && line["outcome"] == "unauthorized"), "{log}");
    for hidden in ["payload", secret, "sku-1"] {
        assert!(!log.contains(hidden), "{hidden} is in the log");
    }
}

#[tokio::test]
async fn a_flood_of_refused_requests_does_not_flood_the_log() {
    let process = Process::start(folder(), &[root()], |_| {});
    let mut client = process.client().await;
    for _ in 0..3_000 {
        client.call_as("unknown", "GET", "/v1/info", &Value::Null).await.problem("unauthorized");
    }
    client.call_as("root", "GET", "/v1/queues/absent", &Value::Null).await.problem("queue-not-found");
    // The lines that were left out are reported, and each of them is counted once.
    let counted = |log: &str| {
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let refused: Vec<Value> =
            lines.filter(|line| line["outcome"] == "unauthorized" && line["target"] != "audit").collect();
        let written = refused.iter().filter(|line| line["message"] == "request").count();
        let left_out: u64 = refused.iter().filter_map(|line| line["left_out"].as_u64()).sum();
        (written, left_out)
    };
    until("the lines are reported", || {
        let (written, left_out) = counted(&process.server.process.log());
        written as u64 + left_out == 3_000
    });
    let (written, left_out) = counted(&process.stop());
    assert!(left_out > 0, "{written} lines were written");
}

#[tokio::test]
async fn an_unread_log_blocks_no_request() {
    let mut process = Process::start(folder(), &[root()], |command| {
        command.args(["--log-level", "debug"]).stderr(Stdio::piped());
    });
    let mut client = process.client().await;
    // Far more lines than the pipe of the log holds.
    for _ in 0..2_000 {
        client.call_as("root", "GET", "/v1/info", &Value::Null).await.ok();
    }
    process.signal("TERM");
    let mut log = String::new();
    let pipe = process.server.process.child.stderr.as_mut().expect("a pipe");
    pipe.read_to_string(&mut log).expect("text");
    assert_eq!(log.lines().filter(|line| line.contains("/v1/info")).count(), 2_000);
}

#[tokio::test]
async fn a_hangup_reloads_and_the_supervisor_is_notified() {
    let folder = folder();
    let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("an option");
    let notification = || {
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let path = folder.path().join("notify");
    let process = Process::start(folder, &[root()], |command| {
        command.env("NOTIFY_SOCKET", path);
    });
    assert_eq!(notification().trim_end(), "READY=1");
    let mut client = process.client().await;
    client.call_as("late", "GET", "/v1/info", &Value::Null).await.problem("unauthorized");
    write_tokens(process.folder.path(), &[token("late", &[Verb::Read], "*")]);
    process.signal("HUP");
    let reloading = notification();
    assert!(reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="), "{reloading}");
    assert_eq!(notification().trim_end(), "READY=1");
    client.call_as("late", "GET", "/v1/info", &Value::Null).await.ok();
    client.call_as("root", "GET", "/v1/info", &Value::Null).await.problem("unauthorized");
    let log = process.stop();
    assert_eq!(notification().trim_end(), "STOPPING=1");
    let line = log.lines().find(|line| line.contains("\"reloaded\"")).expect("a line");
    let line: Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(["added", "changed", "removed"].map(|name| line[name].clone()), ["late", "", "root"]);
}

#[tokio::test]
async fn changed_files_with_tokens_are_read_again_without_a_signal() {
    let folder = folder();
    let settings = folder.path().join("deltaq.toml");
    let in_settings = |name: &str| {
        let tokens = toml::to_string(&json!({"access": {"tokens": [token(name, &[Verb::Read], "*")]}}));
        std::fs::write(&settings, tokens.expect("TOML")).expect("a file");
    };
    in_settings("first");
    let process = Process::start(folder, &[root()], |command| {
        command.env("DELTAQ_CONFIG", &settings);
    });
    let mut client = process.client().await;
    let mut becomes = async |secret: &str, status: u16| {
        eventually(async || client.call_as(secret, "GET", "/v1/info", &Value::Null).await.status == status)
            .await;
    };
    becomes("first", 200).await;
    // A file may also be replaced by another, and a wrong one changes nothing.
    write_tokens(process.folder.path(), &[root(), token("second", &[Verb::Read], "*")]);
    becomes("second", 200).await;
    std::fs::write(process.folder.path().join("tokens.toml"), "no tokens").expect("a file");
    until("the file is refused", || process.has_logged("reload failed"));
    becomes("second", 200).await;
    let next = process.folder.path().join("next.toml");
    std::fs::rename(process.folder.path().join("tokens.toml"), &next).expect("a file");
    write_tokens(process.folder.path(), &[root()]);
    becomes("second", 401).await;
    in_settings("third");
    becomes("third", 200).await;
    becomes("first", 401).await;
}

#[tokio::test]
async fn the_log_says_that_keys_are_parked_and_what_the_server_runs_with() {
    let process = Process::start(folder(), &[root()], |_| {});
    let mut client = process.client().await;
    client.call_as("root", "POST", "/v1/queues/prices/add", &json!({ "key": "sku-1" })).await.ok();
    let popped = client.call_as("root", "POST", "/v1/queues/prices/pop", &Value::Null).await.ok();
    let lease = &popped["items"][0]["lease"]["id"];
    client.call_as("root", "POST", "/v1/queues/prices/reject", &json!({ "lease_ids": [lease] })).await.ok();
    let log = process.stop();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let line = |message: &str| lines.iter().find(|line| line["message"] == message).expect("a line");
    let parked = line("keys were parked");
    assert_eq!(
        (&parked["level"], &parked["queue"], &parked["keys"]),
        (&json!("INFO"), &json!("prices"), &json!(1))
    );
    let start = line("listening");
    assert_eq!([&start["version"], &start["durability"]], [env!("CARGO_PKG_VERSION"), "memory"]);
    assert_eq!(
        (&start["tokens"], &start["insecure"], &start["tls"]),
        (&json!(1), &json!(false), &json!(false))
    );
    assert!(!lines.iter().any(|line| line["message"] == "request"), "{log}");
}

/// Replaces a file with a pipe that has no writer: opening it blocks for ever.
fn block(path: &Path) {
    std::fs::remove_file(path).expect("a file");
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

#[tokio::test]
async fn files_that_can_not_be_opened_block_no_request() {
    let authority = crate::access::tls::Authority::new();
    let pair = authority.issue("server");
    for blocked in ["tokens", "cert"] {
        let tls = blocked == "cert";
        let process = Process::start(folder(), &[root()], |command| {
            if tls {
                command.env("DELTAQ_SERVER__TLS_CERT", &pair.cert).env("DELTAQ_SERVER__TLS_KEY", &pair.key);
            }
        });
        let tokens = process.folder.path().join("tokens.toml");
        block(if tls { &pair.cert } else { &tokens });
        let logged = |text: &str| process.server.process.log().matches(text).count();
        // Signals in quick succession count as one.
        while logged("SIGHUP during a reload") < 2 {
            process.signal("HUP");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if tls {
            let health =
                || run(&["health", "--url", &format!("https://{}", process.server.api)]).code == Some(0);
            assert!(health());
        } else {
            let mut client = process.client().await;
            client.call("GET", "/livez", &Value::Null).await.ok();
            client.call_as("root", "GET", "/v1/info", &Value::Null).await.ok();
            // A writer of the pipe ends the wait, and the requested reload follows.
            let text = toml::to_string(&json!({ "tokens": [token("late", &[Verb::Read], "*")] }));
            std::fs::write(&tokens, text.expect("tokens are TOML")).expect("a pipe");
            until("a reload", || logged("\"reloaded\"") > 0);
            client.call_as("late", "GET", "/v1/info", &Value::Null).await.ok();
        }
        process.stop();
    }
}

#[test]
fn a_start_that_waits_for_a_file_can_be_stopped() {
    let folder = folder();
    std::fs::write(folder.path().join("tokens.toml"), "").expect("a file");
    block(&folder.path().join("tokens.toml"));
    let mut command = deltaq(&["serve", "--in-memory", "--listen", "127.0.0.1:0", "--metrics-listen", ""]);
    command.env("DELTAQ_ACCESS__TOKENS_FILE", folder.path().join("tokens.toml"));
    let process = crate::harness::process::Process::start(command, |_, _| {});
    // Before the process handles the signal, the signal would end it with a failure.
    until("the handlers of signals", || handles_hangup(process.child.id()));
    process.stop();
}

/// Whether the process has a handler for SIGHUP, which is the last handler that it installs.
fn handles_hangup(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 == 1)
}

#[test]
fn a_reload_reports_every_failure() {
    let authority = crate::access::tls::Authority::new();
    let pair = authority.issue("server");
    let process = Process::start(folder(), &[root()], |command| {
        command.env("DELTAQ_SERVER__TLS_CERT", &pair.cert).env("DELTAQ_SERVER__TLS_KEY", &pair.key);
    });
    std::fs::write(process.folder.path().join("tokens.toml"), "tokens = 1").expect("a file");
    std::fs::write(&pair.cert, "no certificate").expect("a file");
    process.signal("HUP");
    until("the error of the tokens", || process.has_logged("can't read the tokens"));
    until("the error of TLS", || process.has_logged("can't set up TLS"));
    process.stop();
}

#[test]
fn an_empty_notify_socket_is_no_supervisor() {
    let process = Process::start(folder(), &[root()], |command| {
        command.env("NOTIFY_SOCKET", "");
    });
    let log = process.stop();
    assert!(!log.contains("supervisor"), "{log}");
}

#[test]
fn a_failed_reload_shows_in_the_metrics() {
    const SUCCESSFUL: &str = "deltaq_last_reload_successful";
    let process = Process::start(folder(), &[root()], |_| {});
    let timestamp = |page: &Page| page.value("deltaq_last_reload_success_timestamp_seconds");
    let started = timestamp(&process.until_measured("root", SUCCESSFUL, 1.0));
    assert!(started > 1.7e9, "seconds since 1970, not {started}");
    std::fs::write(process.folder.path().join("tokens.toml"), "tokens = 1").expect("a file");
    process.signal("HUP");
    let failed = process.until_measured("root", SUCCESSFUL, 0.0);
    assert_eq!(timestamp(&failed), started, "the start was the last success");
    write_tokens(process.folder.path(), &[root()]);
    process.signal("HUP");
    let repaired = process.until_measured("root", SUCCESSFUL, 1.0);
    assert!(timestamp(&repaired) > started);
}

#[tokio::test]
async fn a_quiet_log_still_shows_the_audit() {
    for (name, filter, shows) in [
        ("DELTAQ_LOG__LEVEL", "warn", true),
        ("RUST_LOG", "deltaq=debug", true),
        ("RUST_LOG", "warn,audit=off", false),
        ("DELTAQ_LOG__LEVEL", "off", false),
    ] {
        let process = Process::start(folder(), &[root()], |command| {
            command.env(name, filter);
        });
        let mut client = process.client().await;
        client.call_as("other", "GET", "/v1/info", &Value::Null).await.problem("unauthorized");
        client.call_as("root", "PUT", "/v1/queues/prices", &json!({})).await.ok();
        let log = process.stop();
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let outcomes = lines.filter(|line| line["target"] == "audit").map(|line| line["outcome"].clone());
        let wanted: &[Value] = if shows { &["unauthorized".into(), "ok".into()] } else { &[] };
        assert_eq!(outcomes.collect::<Vec<_>>(), wanted, "{name}={filter}: {log}");
    }
}

#[tokio::test]
async fn audit_lines_lost_by_a_full_disk_are_counted() {
    let folder = folder();
    let audit = folder.path().join("audit.jsonl");
    std::os::unix::fs::symlink("/dev/full", &audit).expect("a link");
    let process = Process::start(folder, &[root()], |command| {
        command.env("DELTAQ_AUDIT__FILE", &audit);
    });
    let mut client = process.client().await;
    for _ in 0..3 {
        client.call_as("other", "GET", "/v1/info", &Value::Null).await.problem("unauthorized");
    }
    let lost = || {
        let text = process.server.process.log();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_default());
        let lost = lines.filter(|line| line["message"] == "can't write the audit log: lines are dropped");
        lost.filter_map(|line| line["lines"].as_u64()).sum::<u64>()
    };
    until("the lost lines are counted", || lost() == 3);
    process.until_measured("root", "deltaq_audit_lost_total", 3.0);
    std::fs::remove_file(&audit).expect("a link");
    client.call_as("root", "PUT", "/v1/queues/prices", &json!({})).await.ok();
    let written = || std::fs::read_to_string(&audit).unwrap_or_default();
    until("a line of the audit", || written().ends_with('\n'));
    let lines: Vec<Value> = written().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0], json!({ "lost": 3 }));
    assert_eq!((lines.len(), &lines[1]["who"]), (2, &json!("root")), "{lines:?}");
}

#[tokio::test]
async fn a_stalled_audit_disk_blocks_neither_a_reload_nor_the_shutdown() {
    let folder = folder();
    let audit = folder.path().join("audit");
    // An unread pipe takes some lines, and then the writer blocks for ever.
    assert!(Command::new("mkfifo").arg(&audit).status().expect("mkfifo runs").success());
    let pipe = File::options().read(true).write(true).open(&audit).expect("a pipe");
    let mut process = Process::start(folder, &[root()], |command| {
        command.env("DELTAQ_AUDIT__FILE", &audit).env("DELTAQ_AUDIT__CALLS", "all");
    });
    let mut client = process.client().await;
    for _ in 0..1_000 {
        client.call_as("root", "GET", "/v1/info", &Value::Null).await.ok();
    }
    write_tokens(process.folder.path(), &[token("late", &[Verb::Read], "*")]);
    process.signal("HUP");
    until("a reload", || process.has_logged("\"reloaded\""));
    client.call_as("late", "GET", "/v1/info", &Value::Null).await.ok();
    process.signal("TERM");
    until("the shutdown waits", || process.has_logged("a second signal ends"));
    process.signal("TERM");
    let ended = process.server.process.ended();
    assert!(ended.success(), "{ended}");
    assert!(process.has_logged("the disk of the audit log is stalled"));
    drop(pipe);
}

#[test]
fn errors_of_settings_do_not_show_secrets() {
    let folder = folder();
    let path = folder.path().join("deltaq.toml");
    let secret = format!("dq_{}", "5ec2e75e".repeat(8));
    for (text, expected) in [
        ("[server]\nmax_body_bytes = 99999999999999999999\n".to_owned(), "line 2"),
        ("[server]\nidle_timeout = 5 s\n".to_owned(), "line 2"),
        ("[log]\nlevel = \"warn\n".to_owned(), "line 2"),
        (format!("[access]\ntokens = [\"{secret}]\n"), "line 2"),
        (format!("[access]\ntokens = [{secret}]\n"), "line 2"),
        (format!("[access]\ntokens = [\"{secret}\"]\n"), "access.tokens"),
        (format!("[access]\ntokens = \"{secret}\"\n"), "expected a sequence"),
        (
            format!("[access]\ntokens = [{{ name = \"a\", token = \"{secret}\" }}]\n"),
            "expected one of `name`",
        ),
        (format!("[access]\n{secret} = 5\n"), "access."),
        (format!("access = \"{secret}\"\n"), "setting `access`"),
        (format!("[access]\ninsecure = \"{secret}\"\n"), "access.insecure"),
    ] {
        std::fs::write(&path, &text).expect("a file");
        let message = run(&["serve", "--in-memory", "--config", &path.display().to_string()]).failed(1);
        assert!(!message.contains("5ec2e7"), "{text}: {message}");
        assert!(message.contains(expected), "{text}: {message}");
    }
}

fn run(line: &[&str]) -> Run {
    finished(deltaq(line), "")
}

#[test]
fn a_start_without_tokens_on_a_public_address_is_refused() {
    let message = run(&["serve", "--in-memory", "--listen", "0.0.0.0:0"]).failed(1);
    assert!(message.contains("0.0.0.0") && message.contains("--insecure"), "{message}");
}

#[test]
fn health_finds_the_server_of_its_settings() {
    let authority = crate::access::tls::Authority::new();
    let pair = authority.issue("server");
    for tls in [false, true] {
        let settings = |command: &mut Command| {
            if tls {
                command.env("DELTAQ_SERVER__TLS_CERT", &pair.cert).env("DELTAQ_SERVER__TLS_KEY", &pair.key);
                command.env("DELTAQ_SERVER__TLS_CLIENT_CA", authority.certificates());
            }
        };
        let process = Process::start(folder(), &[root()], settings);
        let health = |address: &str, adapt: &dyn Fn(&mut Command)| {
            let mut command = deltaq(&["health"]);
            command.env("DELTAQ_SERVER__LISTEN", address);
            adapt(&mut command);
            finished(command, "")
        };
        let address = process.server.api.to_string();
        health(&address, &settings).ok();
        if tls {
            run(&["health", "--url", &format!("https://{address}")]).ok();
            // The server expects TLS.
            run(&["health", "--url", &format!("http://{address}")]).failed(1);
        }
        process.stop();
        // Nothing listens there.
        health("127.0.0.1:1", &|_| {}).failed(1);
    }
}

#[tokio::test]
async fn a_service_manager_can_pass_the_listening_socket() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("an address");
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder, &[root()], |command| {
        // The shell moves the socket to the first file descriptor of the protocol, and the server keeps its process id.
        let script = "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$@\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        *command = shell;
        command.stdin(std::os::fd::OwnedFd::from(socket));
    });
    assert_eq!(process.server.api, address);
    process.client().await.call_as("root", "GET", "/v1/info", &Value::Null).await.ok();
}

#[test]
fn compressed_lists_as_lines_end_as_they_should() {
    let server = Spawned::start(&Store::Memory);
    let mut connection = Connection::open(server.api).expect("a connection");
    let add = Message::post("/v1/queues/q/add".to_owned(), &json!({"key": "a"}));
    assert_eq!(connection.call(&add).expect("a reply").status(), Some(200));
    for encoding in ["identity", "gzip", "br", "zstd"] {
        let head = "GET /v1/queues/q/items HTTP/1.1\r\nhost: localhost\r\naccept: application/x-ndjson\r\n";
        let request = format!("{head}accept-encoding: {encoding}\r\n\r\n");
        connection.send(request.as_bytes()).expect("the server reads");
        let reply = connection.receive().unwrap_or_else(|error| panic!("{encoding}: {error}"));
        assert_eq!(reply.status(), Some(200), "{encoding}");
        assert_eq!(
            reply.head.contains(&format!("content-encoding: {encoding}")),
            encoding != "identity",
            "{}",
            reply.head
        );
        assert!(!reply.body.is_empty(), "{encoding}");
    }
}
