//! `deltaq export`: writes the known objects of a queue, one per line.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use deltaq_engine::Queue;
use deltaq_engine::known::Known;
use deltaq_types::name::Name;

use super::{Error, Location, stores};
use crate::recovery::{self, Progress};
use crate::snapshot::{Finding, Snapshot};

/// How many bytes are written at a time.
const CHUNK_BYTES: usize = 1 << 16;

/// Loads a queue from a store that no server uses, without changing the store. `warn` receives the damage of the
/// store as a whole.
///
/// # Errors
/// [`Error::Served`], [`Error::NoQueue`], [`Error::Load`], or an error of the store.
pub async fn load(at: &Location, name: &Name, warn: &mut dyn FnMut(String)) -> Result<Queue, Error> {
    let mut snapshot = stores::snapshot(at).await?;
    for partition in 1.. {
        let loaded = load_from(snapshot.as_ref(), at, name, warn).await;
        snapshot.close().await;
        match (loaded, stores::snapshot_of(at, partition).await?) {
            (Err(Error::NoQueue { .. }), Some(next)) => snapshot = next,
            (loaded, None) => return loaded,
            (loaded, Some(other)) => {
                other.close().await;
                return loaded;
            }
        }
    }
    Err(Error::NoTables { at: at.to_string() })
}

async fn load_from(
    snapshot: &dyn Snapshot,
    at: &Location,
    name: &Name,
    warn: &mut dyn FnMut(String),
) -> Result<Queue, Error> {
    snapshot.refuse_server().map_err(|source| {
        let path = format!("/v1/queues/{name}/known");
        let hint = format!(
            "the server exports them itself: curl -H 'accept: application/x-ndjson' localhost:7070{path}"
        );
        Error::Served { source, hint }
    })?;
    for finding in snapshot.findings() {
        if let Finding::Damage(what) = finding {
            warn(format!("{what}. The remaining objects are exported"));
        }
    }
    let rows = snapshot.reader().queues().await?;
    let mut live = rows.iter().filter(|row| !row.deleted);
    let Some(row) = live.clone().find(|row| &*row.name == name.as_str()) else {
        let names: Vec<&str> = live.by_ref().map(|row| &*row.name).take(NAMES_SHOWN + 1).collect();
        let others = match names.as_slice() {
            [] => "is none".to_owned(),
            [name] => format!("is {name}"),
            names if names.len() > NAMES_SHOWN => "are many others".to_owned(),
            names => format!("are {}", names.join(", ")),
        };
        return Err(Error::NoQueue { name: name.clone(), at: at.to_string(), others });
    };
    let loaded = recovery::load(snapshot.reader(), row, &Progress::default()).await;
    let loaded = loaded.map_err(|source| Error::Load { name: name.to_string(), source })?;
    Ok(loaded.queue)
}

/// Maximum number of names of other queues in an error.
const NAMES_SHOWN: usize = 20;

/// Writes the known objects to a new file that only its owner can read. Returns their number. An incomplete file is
/// removed.
///
/// # Errors
/// [`Error::Exists`] and [`Error::Write`].
pub fn to_file(queue: &Queue, to: &Path) -> Result<u64, Error> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists { to: to.to_owned() },
        _ => Error::Write { to: to.to_owned(), source },
    };
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(failed)?;
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, file);
    let mut written = 0;
    let done = lines(queue, &mut out, &mut written)
        .and_then(|()| out.flush())
        .and_then(|()| out.get_ref().sync_all());
    if done.is_err() {
        // The first error matters more than a failure to remove the incomplete file.
        let _ = fs::remove_file(to);
    }
    done.map(|()| written).map_err(failed)
}

/// Writes the known objects to standard output. Returns their number.
///
/// # Errors
/// [`Error::Pipe`] if the reader has closed the output, otherwise [`Error::Write`].
pub fn to_stdout(queue: &Queue) -> Result<u64, Error> {
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, io::stdout().lock());
    let mut written = 0;
    let done = lines(queue, &mut out, &mut written).and_then(|()| out.flush());
    done.map(|()| written).map_err(|source| match source.kind() {
        io::ErrorKind::BrokenPipe => {
            // The reader is gone, so the rest of the buffer is discarded.
            let _ = out.into_parts();
            Error::Pipe { written }
        }
        _ => Error::Write { to: "the standard output".into(), source },
    })
}

fn lines(queue: &Queue, out: &mut impl Write, written: &mut u64) -> io::Result<()> {
    for (_, entry) in queue.table().from(Bound::Unbounded) {
        if let Some(known) = &entry.known {
            line(entry.key.as_str(), known, out)?;
            *written += 1;
        }
    }
    Ok(())
}

fn line(key: &str, known: &Known, out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"{\"key\":")?;
    serde_json::to_writer(&mut *out, key)?;
    if let Some(source) = known.owner.as_deref() {
        out.write_all(b",\"source\":")?;
        serde_json::to_writer(&mut *out, source)?;
    }
    out.write_all(b",\"object\":")?;
    // A raw line break in an object is insignificant whitespace, because line breaks in JSON strings are always
    // escaped. It is replaced with a space.
    for (index, part) in known.object.as_str().split('\n').enumerate() {
        if index > 0 {
            out.write_all(b" ")?;
        }
        out.write_all(part.as_bytes())?;
    }
    out.write_all(b"}\n")
}
