//! Commands with the URLs of several nodes, of which one is killed and one is frozen.

use std::process::Stdio;

use deltaq_journal::postgres::TTL;

use super::nodes::{Nodes, PARTITIONS, added};
use crate::harness::process::{Process, deltaq, finished};
use crate::harness::server::End;
use crate::harness::waiting::until;

#[test]
fn commands_go_on_at_the_nodes_that_live() {
    let nodes = Nodes::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| nodes.start(name));
    nodes.until_owners(&[("a", PARTITIONS / 3), ("b", PARTITIONS / 3), ("c", PARTITIONS / 3)]);
    let of_b = |queue: &String| {
        added(&c, queue, "first");
        nodes.owner_of(queue) == "b"
    };
    let queue = (0..100).map(|number| format!("q{number}")).find(of_b).expect("some queue is of b");
    let url = [&a, &b, &c].map(|node| format!("http://{}", node.api)).join(",");
    let script = "echo \"$DELTAQ_KEY $DELTAQ_URL\" >> \"$DIR/done\"";
    let line = ["work", &queue, "--url", &url, "--", "sh", "-c", script];
    let worker = Process::start(deltaq(&line), |command, folder| {
        command.env("DIR", folder).stdout(Stdio::null());
    });
    let until_done = |key: &str| {
        let line = format!("{key} {url}");
        let done = || std::fs::read_to_string(worker.folder().join("done")).unwrap_or_default();
        until(key, || done().lines().any(|other| other == line));
    };
    until_done("first");
    // A node removes no other node before it has sent heartbeats for this long.
    std::thread::sleep(TTL);
    a.end(End::Kill);
    added(&c, &queue, "after the kill");
    until_done("after the kill");
    for command in
        [&["items", &queue, "--url", &url][..], &["queue", "purge", &queue, "--yes", "--url", &url]]
    {
        finished(deltaq(command), "").ok();
    }
    b.freeze();
    nodes.until_owners(&[("c", PARTITIONS)]);
    added(&c, &queue, "after the freeze");
    until_done("after the freeze");
    worker.stop();
}
