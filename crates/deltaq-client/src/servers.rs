//! Which of several servers gets the next call: the nodes of one cluster, any of which accepts any call.

use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deltaq_types::range::shown_url;
use parking_lot::Mutex;
use reqwest::{Method, Url};
use tokio::time::{Instant, sleep_until};

use crate::call::Call;
use crate::error::Error;

/// Maximum number of queues whose owner is remembered.
const OWNERS_MAX: usize = 10_000;
/// A server that was silent for so long while a call waits for it is asked whether it is alive.
const SILENCE: Duration = Duration::from_secs(3);
/// How long the answer may take.
const ANSWER: Duration = Duration::from_secs(2);

/// The servers of a client. It stays with one of them until a call fails there.
#[derive(Debug)]
pub(crate) struct Servers {
    first: Server,
    others: Vec<Server>,
    /// The index of the server for calls on queues whose owner is unknown.
    present: AtomicUsize,
    /// The owners of queues, as servers have named them. Only a server of this list counts: the token goes to no other.
    owners: Mutex<HashMap<String, usize>>,
    pub(crate) silence: Duration,
    pub(crate) answer: Duration,
}

#[derive(Debug)]
struct Server {
    base: Url,
    /// When it has answered last.
    heard: Mutex<Instant>,
}

impl Servers {
    /// The servers at these addresses, which have commas between them.
    pub(crate) fn parse(addresses: &str) -> Result<Self, Error> {
        let mut servers: Vec<Server> = Vec::new();
        for address in addresses.split(',') {
            let base = parse(address.trim())?;
            if servers.iter().all(|server| server.base != base) {
                servers.push(Server { base, heard: Mutex::new(Instant::now()) });
            }
        }
        // A text without commas is one address.
        let first = servers.remove(0);
        Ok(Self {
            first,
            others: servers,
            present: AtomicUsize::new(0),
            owners: Mutex::default(),
            silence: SILENCE,
            answer: ANSWER,
        })
    }

    fn all(&self) -> impl Iterator<Item = &Server> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The number of servers, which is at least 1.
    pub(crate) fn count(&self) -> usize {
        self.others.len() + 1
    }

    /// The URLs of all servers.
    pub(crate) fn bases(&self) -> impl Iterator<Item = &Url> {
        self.all().map(|server| &server.base)
    }

    /// The server for the next call on a queue, or for the next call of another kind.
    pub(crate) fn next(&self, queue: Option<&str>) -> &Url {
        let owner =
            queue.filter(|_| self.count() > 1).and_then(|queue| self.owners.lock().get(queue).copied());
        let at = owner.unwrap_or_else(|| self.present.load(Ordering::Relaxed));
        self.bases().nth(at).unwrap_or(&self.first.base)
    }

    /// Records that a call has failed at a server: the next call goes to the server after it.
    pub(crate) fn leave(&self, base: &Url, queue: Option<&str>) {
        let Some(at) = self.bases().position(|other| other == base) else { return };
        let next = (at + 1) % self.count();
        let _has_moved = self.present.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
        if let Some(queue) = queue {
            self.owners.lock().remove(queue);
        }
    }

    /// Records that a server has answered.
    pub(crate) fn note_answer(&self, base: &Url) {
        if let Some(server) = self.all().find(|server| server.base == *base) {
            *server.heard.lock() = Instant::now();
        }
    }

    /// Records which server owns a queue, as the header `deltaq-owner` of a forwarded call names it.
    pub(crate) fn note_owner(&self, queue: Option<&str>, owner: Option<&str>) {
        let Some((queue, owner)) = queue.zip(owner).filter(|_| self.count() > 1) else { return };
        let owner = parse(owner).ok();
        let at = self.bases().position(|base| owner.as_ref() == Some(base));
        let mut owners = self.owners.lock();
        if owners.len() >= OWNERS_MAX {
            owners.clear();
        }
        match at {
            Some(at) => owners.insert(queue.to_owned(), at),
            None => owners.remove(queue),
        };
    }

    /// Completes once a server, from which a call awaits something, is silent and does not say that it is alive: a server
    /// that works may answer a call late, but not this question. Without another server, it never completes.
    pub(crate) async fn lost(&self, http: &reqwest::Client, base: &Url) {
        let Some(server) = self.all().find(|server| server.base == *base && self.count() > 1) else {
            return pending().await;
        };
        let mut since = Instant::now();
        loop {
            sleep_until(since + self.silence).await;
            let heard = *server.heard.lock();
            if heard > since {
                since = heard;
            } else if self.is_alive(http, base).await {
                since = Instant::now();
                self.note_answer(base);
            } else {
                return;
            }
        }
    }

    /// Whether a server answers in time. The question needs no token, and any answer counts.
    async fn is_alive(&self, http: &reqwest::Client, base: &Url) -> bool {
        match Call::new(Method::GET, ["livez"]).url(base) {
            Ok(url) => http.get(url).timeout(self.answer).send().await.is_ok(),
            Err(_) => false,
        }
    }
}

/// The URL of a server: scheme, host, port, and the path at which a proxy serves the API, if there is one.
fn parse(address: &str) -> Result<Url, Error> {
    let refused = || Error::Address { address: shown_url(address) };
    let with_scheme = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    // The parser drops line breaks instead of refusing them.
    let url = Url::parse(&with_scheme).ok().filter(|_| address.bytes().all(|byte| byte.is_ascii_graphic()));
    let mut url = url.filter(|url| matches!(url.scheme(), "http" | "https")).ok_or_else(refused)?;
    let has_more = url.query().is_some() || url.fragment().is_some();
    let has_user = !url.username().is_empty() || url.password().is_some();
    if has_more || has_user {
        return Err(refused());
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for good in [
            "localhost:7070",
            "http://127.0.0.1:7070",
            "https://queues.example/",
            "https://proxy.example/deltaq",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in ["", "ftp://a", "http://", "http://a?b", "http://a#b", "http://user@a", "http://a\n"] {
            assert!(matches!(parse(bad), Err(Error::Address { .. })), "{bad}");
        }
        assert_eq!(parse("localhost:7070").unwrap().as_str(), "http://localhost:7070/");
        assert_eq!(Servers::parse("a:1, https://b").unwrap().count(), 2);
        assert_eq!(Servers::parse("http://[::1]:7070/,[::1]:7070,http://[::1]:7070").unwrap().count(), 1);
        for bad in ["a:1,", ",a:1", "a:1,,b:2", "a:1,http://user:secret@b:2", "a:1 b:2"] {
            let error = Servers::parse(bad).unwrap_err();
            assert!(
                matches!(error, Error::Address { .. }) && !error.to_string().contains("secret"),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn a_failure_leads_to_the_next_server_and_an_owner_is_called_directly() {
        let servers = Servers::parse("a:1,b:2,https://c/deltaq").unwrap();
        let next = |queue| servers.next(queue).host_str().unwrap().to_owned();
        let base = |host: &str| servers.bases().find(|base| base.host_str() == Some(host)).unwrap();
        assert_eq!(next(None), "a");
        servers.leave(base("b"), None);
        assert_eq!(next(None), "a", "another call has failed elsewhere");
        servers.leave(base("a"), None);
        servers.leave(base("a"), None);
        assert_eq!(next(Some("q")), "b", "two calls that fail together go on at one server");
        servers.note_owner(Some("q"), Some("https://c:443/deltaq"));
        assert_eq!((next(Some("q")), next(Some("r")), next(None)), ("c".into(), "b".into(), "b".into()));
        for other in ["http://d:4", "http://c/deltaq", "https://c/other", "https://c:8443/deltaq", "c"] {
            servers.note_owner(Some("r"), Some(other));
            assert_eq!(next(Some("r")), "b", "no call goes to a server that is not listed: {other}");
        }
        servers.leave(base("c"), Some("q"));
        assert_eq!(next(Some("q")), "b");
        servers.leave(base("b"), None);
        servers.leave(base("c"), None);
        assert_eq!(next(None), "a", "after the last one comes the first");
    }
}
