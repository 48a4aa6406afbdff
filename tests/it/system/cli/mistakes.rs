//! Mistakes that people make, each with its message in a reviewed snapshot: on the command line, in requests with curl, and in
//! files and variables.

mod operators;
mod requests;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Run, Server, finished};

/// The folder of a server, in which shell lines run.
struct Folder {
    path: PathBuf,
    address: String,
}

impl Folder {
    fn new(server: &Server) -> Self {
        Self { path: server.folder.path().to_owned(), address: server.address.to_string() }
    }

    /// Runs a line of bash. It ends after a minute, with the exit code 124.
    fn shell(&self, line: &str) -> Run {
        let binaries = Path::new(env!("CARGO_BIN_EXE_deltaq")).parent().expect("a folder");
        let script = format!(
            "PATH={}:$PATH; SERVER={}; URL=$SERVER; Q=$URL/v1/queues/prices; {line}",
            binaries.display(),
            self.address
        );
        let mut command = Command::new("timeout");
        command.args(["60", "bash", "-c", &script]).current_dir(&self.path);
        #[expect(clippy::disallowed_methods, reason = "the lines must not see the variables of the test run")]
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for name in inherited.filter(|name| name.to_string_lossy().starts_with("DELTAQ_")) {
            command.env_remove(name);
        }
        command.env_remove("RUST_LOG").env("DELTAQ_URL", &self.address);
        finished_shell(command)
    }

    /// The messages without what differs from run to run.
    fn normalized(&self, messages: &str) -> String {
        let port = self.address.rsplit(':').next().expect("a port");
        let path = self.path.to_str().expect("text");
        let mut messages = messages.replace(path, "/srv").replace(&self.address, "SERVER");
        messages = messages.replace(&format!("localhost:{port}"), "SERVER");
        for before_number in ["in use by process ", "server.listen is 0.0.0.0:"] {
            let mut parts = messages.split(before_number);
            let mut text = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                text += before_number;
                text += "N";
                text += part.trim_start_matches(|digit: char| digit.is_ascii_digit());
            }
            messages = text;
        }
        messages
    }
}

fn finished_shell(mut command: Command) -> Run {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finished(command, "")
}

#[track_caller]
fn assert_refused(line: &str, run: &Run, is_refused: bool) {
    assert!(is_refused && !run.stderr.contains("panicked"), "{line}: {run:?}");
}

/// The words of a command line, and the text on stdin.
const MISTAKES: &[(&str, &str)] = &[
    // The command.
    ("que", ""),
    ("queue", ""),
    ("queue show prices", ""),
    ("list", ""),
    ("push prices {}", ""),
    ("--url localhost:1 queues", ""),
    // The server.
    ("queues --url localhost:1", ""),
    ("queues --url http://nowhere.invalid", ""),
    ("queues --url ftp://localhost", ""),
    ("queues --url http://localhost/?a=b", ""),
    ("queues --url", ""),
    ("queues --token-file missing", ""),
    ("queues --ca-file missing", ""),
    ("queues --ca-file text", ""),
    ("queues --cert-file text", ""),
    ("queues -o yaml", ""),
    ("queues --token abc", ""),
    // Names of queues.
    ("queue get Prices", ""),
    ("queue get prices/a", ""),
    ("queue get missing", ""),
    ("queue get", ""),
    ("queue configure missing lease=1m", ""),
    // Settings.
    ("queue create new lease", ""),
    ("queue create new lease=1", ""),
    ("queue create new lease=1x", ""),
    ("queue create new leese=1m", ""),
    ("queue create new mode=fifo", ""),
    ("queue create new max_failures=-1", ""),
    ("queue create new --from text", ""),
    ("queue create prices lease=1m", ""),
    ("queue configure prices mode=keys", ""),
    // Things that are lost.
    ("queue delete prices", ""),
    ("queue purge prices", ""),
    ("discard prices --all", ""),
    // Objects.
    ("add prices sku-1", ""),
    ("add prices missing.json", ""),
    ("add prices", ""),
    ("add prices", "sku-1"),
    ("add prices", "[{\"key\":\"a\"}"),
    ("add prices", "{\"key\":\"a\"}\n{\"key\":"),
    ("add prices", "{\"key\":\"a\"}\n{\"kay\":\"b\"}\n"),
    ("add prices", "{\"key\":\"a\"},\n{\"key\":\"b\"}"),
    ("add prices", "[1,2]"),
    ("add prices {key:1}", ""),
    ("add prices --key a --key b {}", ""),
    ("add prices --key a --delay 1", ""),
    ("add prices --key a --delay 1s --rate-limited", ""),
    ("add prices --key a --if-absent --rate-limited", ""),
    ("add prices --if-absent {\"key\":\"sku-1\"}", ""),
    ("update prices --if-version 0 {\"key\":\"sku-1\"}", ""),
    ("update prices --if-version 7 [{\"key\":\"sku-1\"}]", ""),
    ("update prices --if-version 7 {\"key\":", ""),
    ("replace prices", ""),
    ("replace prices --max-delete-percent 50%", "[]"),
    ("replace prices --count 3", "{\"key\":\"a\"}\n"),
    // Leases and keys.
    ("ack prices", ""),
    ("ack prices nonsense", ""),
    ("ack prices 00000000-1", ""),
    ("pop prices --wait 20", ""),
    ("pop prices --max 0", ""),
    ("pop prices --lease 1ms", ""),
    ("pop empty --wait 10ms", ""),
    ("items prices missing", ""),
    ("items prices --state redy", ""),
    ("known prices missing", ""),
    ("redrive prices", ""),
    ("redrive prices sku-1", ""),
    ("redrive prices sku-1 --all", ""),
    // Waiting and working.
    ("wait prices --timeout 10ms", ""),
    ("wait prices --idle --synced", ""),
    ("work prices", ""),
    ("work prices true", ""),
    ("work prices --concurrency 0 -- true", ""),
    ("work prices -- /missing/command", ""),
    ("top", ""),
    ("series prices --since yesterday", ""),
    ("series --step 90s", ""),
    // Tools.
    ("completion powershell", ""),
    ("config show --config missing.toml", ""),
    ("config check --config text", ""),
    ("token", ""),
    ("token revoke a --file missing", ""),
    ("token a --verbs write --queues * --file tokens", ""),
];

#[test]
fn every_mistake_has_a_message() {
    let server = Server::in_memory();
    server.run(&["add", "prices", "{\"key\":\"sku-1\"}"]).ok();
    server.run(&["queue", "create", "empty"]).ok();
    std::fs::write(server.folder.path().join("text"), "just text\n").expect("a file");
    let (mut messages, mut accepted) = (String::new(), Vec::new());
    for (line, stdin) in MISTAKES {
        let mut command = server.command(&line.split(' ').collect::<Vec<_>>());
        command.current_dir(server.folder.path());
        let run = finished(command, stdin);
        let is_refused = run.code.is_some_and(|code| code > 0) && !run.stderr.is_empty();
        if !is_refused || run.stderr.contains("panicked") {
            accepted.push(line);
        }
        let shown = if stdin.is_empty() { String::new() } else { format!("   with {stdin:?} on stdin") };
        let stderr = run.stderr.replace(&server.address.to_string(), "SERVER");
        writeln!(
            messages,
            "$ deltaq {line}{shown}\n{}[exit code {}]\n",
            stderr,
            run.code.unwrap_or_default()
        )
        .expect("a string grows");
    }
    assert!(accepted.is_empty(), "{accepted:?}");
    insta::assert_snapshot!(messages);
}
