//! A small file system in a namespace of its own, which becomes full or read-only.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::{QUEUE, add_in_the_end, call, expect_all, try_add};
use crate::harness::blocking::Message;
use crate::harness::server::{End, Spawned, Store};
use crate::harness::waiting::until;

/// Bytes of an object, large enough to fill the disk soon.
const OBJECT_BYTES: usize = 20_000;
/// More objects than fit.
const OBJECTS: usize = 2_000;

/// A tmpfs of 24 MiB.
struct Volume {
    holder: Child,
    folder: PathBuf,
}

impl Volume {
    fn mount(test: &str) -> Self {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("volume-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let script = "mount -t tmpfs -o size=24m,mode=0700 tmpfs \"$1\" && echo mounted && cat";
        let holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut holder = holder.expect("unshare of util-linux runs");
        let mut line = String::new();
        let mut out = BufReader::new(holder.stdout.take().expect("a pipe"));
        out.read_line(&mut line).expect("a line");
        assert_eq!(line, "mounted\n", "no file system can be mounted in a user namespace");
        Self { holder, folder }
    }

    /// A command that runs in the namespace of the volume.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let target = self.holder.id().to_string();
        command.args(["--user", "--mount", "--preserve-credentials", "--target", &target, program]);
        command
    }

    fn run(&self, script: &str) {
        let done = self.command("sh").args(["-ec", script, "sh"]).arg(&self.folder).status();
        assert!(done.expect("nsenter of util-linux runs").success(), "{script}");
    }

    /// A server that writes until the file system is full.
    fn serve(&self) -> Spawned {
        self.serve_above(0)
    }

    /// A server that refuses changes while the file system has less than this many bytes free.
    fn serve_above(&self, min_free_bytes: u64) -> Spawned {
        let store = Store::Borrowed(self.folder.clone());
        Spawned::start_as(&store, self.command(env!("CARGO_BIN_EXE_deltaq")), |command| {
            command.env("DELTAQ_STORAGE__MIN_FREE_BYTES", min_free_bytes.to_string());
        })
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Closing its input ends the process, the namespace and the file system.
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
        let _ = std::fs::remove_dir(&self.folder);
    }
}

#[test]
fn a_full_disk_loses_nothing_and_heals_when_there_is_room() {
    let volume = Volume::mount("full");
    volume.run("head -c 12500000 /dev/zero > \"$1/ballast\"");
    let server = volume.serve();
    let mut acknowledged = BTreeSet::new();
    let mut full = None;
    // The journal is compressed, so texts that repeat themselves would not fill the disk.
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..OBJECTS {
        let key = format!("key-{number}");
        let text: String = std::iter::repeat_with(|| random.alphanumeric()).take(OBJECT_BYTES).collect();
        let object = json!({"key": key, "text": text});
        let (status, body) =
            call(&server, &Message::post(format!("{QUEUE}/add"), &object)).expect("an answer");
        if status == 200 {
            acknowledged.insert(key);
        } else {
            full = Some((status, body["code"].clone()));
            break;
        }
    }
    assert_eq!(full, Some((507, json!("disk-full"))), "{}", server.last_words());
    reads_go_on(&server, &acknowledged);
    assert!(acknowledged.len() > 100, "it was full too soon: {}", acknowledged.len());
    volume.run("rm \"$1/ballast\"");
    add_in_the_end(&server, "after");
    acknowledged.insert("after".to_owned());
    expect_all(&server, &acknowledged, "after there was room");
    server.end(End::Kill);
    let server = volume.serve();
    expect_all(&server, &acknowledged, "after a restart");
}

#[test]
fn changes_are_refused_before_the_disk_is_full() {
    let volume = Volume::mount("low");
    let server = volume.serve_above(8 << 20);
    let mut acknowledged = BTreeSet::new();
    let mut add = |key: String| {
        let done = try_add(&server, &key);
        acknowledged.extend(done.then_some(key));
        done
    };
    assert!(add("before".to_owned()));
    volume.run("head -c 18000000 /dev/zero > \"$1/ballast\"");
    let mut number = 0;
    until("changes are refused", || {
        number += 1;
        !add(format!("key-{number}"))
    });
    // Nothing was lost, so the queue is read as before, without being loaded again.
    expect_all(&server, &acknowledged, "while there is little room");
    let (status, body) = call(&server, &Message::get("/readyz".to_owned())).expect("an answer");
    let detail = body["detail"].as_str().unwrap_or_default();
    assert!(status == 507 && detail.contains("storage.min_free_bytes"), "{status} {body}");
    let (_, nodes) = call(&server, &Message::get("/v1/nodes".to_owned())).expect("an answer");
    let free = nodes["this"]["disk_free_bytes"].as_u64();
    assert!(free.is_some_and(|free| free < 8 << 20), "{nodes}");
    volume.run("rm \"$1/ballast\"");
    add_in_the_end(&server, "after");
    acknowledged.insert("after".to_owned());
    expect_all(&server, &acknowledged, "after there was room");
    server.end(End::Kill);
}

/// Checks that a server with a full disk refuses changes, and answers every read with what is durable.
fn reads_go_on(server: &Spawned, acknowledged: &BTreeSet<String>) {
    // A queue whose change could not be committed is loaded first.
    until("the queue can be read", || {
        let (status, body) = call(server, &Message::get(format!("{QUEUE}/status"))).expect("an answer");
        assert!(status == 200 || body["code"] == "queue-reloading", "{status} {body}");
        status == 200
    });
    expect_all(server, acknowledged, "while the disk is full");
    for path in [
        "/v1/queues".to_owned(),
        QUEUE.to_owned(),
        format!("{QUEUE}/status"),
        format!("{QUEUE}/settings"),
        format!("{QUEUE}/items/key-0"),
        format!("{QUEUE}/explain/key-0"),
        format!("{QUEUE}/latest?limit=5"),
        format!("{QUEUE}/latest/key-0"),
        format!("{QUEUE}/known"),
        format!("{QUEUE}/sources"),
        format!("{QUEUE}/workers"),
        format!("{QUEUE}/synced"),
        format!("{QUEUE}/history?key=key-0"),
        "/v1/sources".to_owned(),
        "/v1/info".to_owned(),
        "/livez".to_owned(),
        "/console/".to_owned(),
    ] {
        let (status, body) = call(server, &Message::get(path.clone())).expect("an answer");
        assert_eq!(status, 200, "{path}: {body}");
    }
    let posts = [
        Message::post(format!("{QUEUE}/add"), &json!({"key": "refused"})),
        Message::post(format!("{QUEUE}/pop"), &json!({})),
        Message::post(format!("{QUEUE}/pause"), &json!({})),
    ];
    for post in posts {
        let (status, body) = call(server, &post).expect("an answer");
        assert_eq!((status, &body["code"]), (507, &json!("disk-full")), "{}: {body}", post.path);
    }
    let (status, body) = call(server, &Message::get("/readyz".to_owned())).expect("an answer");
    let detail = body["detail"].as_str().unwrap_or_default();
    assert!(status == 507 && !detail.contains("unknown") && detail.contains("reads"), "{status} {body}");
}

#[test]
fn a_start_on_a_full_disk_is_refused_and_succeeds_when_there_is_room() {
    let volume = Volume::mount("full-start");
    let server = volume.serve();
    assert!(try_add(&server, "before"));
    server.end(End::Kill);
    volume.run("cat /dev/zero > \"$1/ballast\" 2> /dev/null || true");
    let mut refused = volume.command(env!("CARGO_BIN_EXE_deltaq"));
    let refused = refused.args(["serve", "--listen", "127.0.0.1:0", "--metrics-listen", "", "--data-dir"]);
    // A server that starts all the same would run for ever.
    let done = Command::new("timeout")
        .arg("60")
        .arg(refused.get_program())
        .args(refused.get_args())
        .arg(&volume.folder)
        .output()
        .expect("timeout of coreutils runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("the disk is full"), "{said}");
    volume.run("rm \"$1/ballast\"");
    let server = volume.serve();
    add_in_the_end(&server, "after");
    expect_all(&server, &["before", "after"].map(str::to_owned).into(), "after there was room");
}

#[test]
fn a_disk_that_becomes_read_only_is_told_and_heals() {
    let volume = Volume::mount("read-only");
    let server = volume.serve();
    assert!(try_add(&server, "before"));
    server.end(End::Kill);
    volume.run("mount -o remount,ro \"$1\"");
    let mut refused = volume.command(env!("CARGO_BIN_EXE_deltaq"));
    refused
        .args(["serve", "--listen", "127.0.0.1:0", "--metrics-listen", "", "--data-dir"])
        .arg(&volume.folder);
    let mut refused = refused.stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut said = String::new();
    refused.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(refused.wait().expect("it ends").code(), Some(1), "{said}");
    assert!(said.contains("ead-only") && said.contains(&volume.folder.display().to_string()), "{said}");
    volume.run("mount -o remount,rw \"$1\"");
    let server = volume.serve();
    expect_all(&server, &BTreeSet::from(["before".to_owned()]), "after a start");
}
