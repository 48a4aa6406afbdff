//! Two nodes of deltaq on one database.

use std::io;

use deltaq::bench::{HttpClient, Wire};
use deltaq_runtime::clock::Clock;

use crate::process::POLL_INTERVAL;
use crate::servers::Running;
use crate::subject::{GRACE, QUEUE};

/// The secret that the nodes share.
pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// The end of the head of a reply.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// The two nodes once each owns half of the partitions: first the node that owns the first queue, which is created.
pub(crate) async fn owner_first(
    one: Running,
    other: Running,
    clock: &Clock,
) -> io::Result<(Running, Running)> {
    let (begun_us, path) = (clock.monotonic_us(), format!("/v1/queues/{QUEUE}"));
    loop {
        let (owned, of_other) = (partitions(&one.address).await?, partitions(&other.address).await?);
        if owned > 0 && owned == of_other {
            break;
        }
        if clock.since(begun_us) > GRACE {
            return Err(io::Error::other(format!("the nodes own {owned} and {of_other} partitions")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    HttpClient::open(&one.address, None).await?.call("PUT", &path, "{}").await?;
    if is_forwarded(&one.address, &path).await? { Ok((other, one)) } else { Ok((one, other)) }
}

/// The number of partitions that a node owns.
async fn partitions(address: &str) -> io::Result<u32> {
    const NAME: &str = "deltaq_owned_partitions ";
    let mut client = HttpClient::open(address, None).await?;
    let metrics = String::from_utf8_lossy(client.call("GET", "/metrics", "").await?).into_owned();
    let value = metrics.lines().find_map(|line| line.strip_prefix(NAME)?.trim().parse().ok());
    value.ok_or_else(|| io::Error::other(format!("there is no {NAME}")))
}

/// Whether a node does not answer a GET of this path itself: only replies to forwarded calls name the owner.
async fn is_forwarded(address: &str, path: &str) -> io::Result<bool> {
    let mut wire = Wire::open(address).await?;
    wire.send(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).await?;
    let end =
        |received: &[u8]| Ok(memchr::memmem::find(received, HEAD_END).map(|start| start + HEAD_END.len()));
    let head = String::from_utf8_lossy(wire.receive(end).await?).to_ascii_lowercase();
    Ok(!head.starts_with("http/1.1 200") || head.contains("\r\ndeltaq-owner:"))
}
