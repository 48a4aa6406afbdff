//! A TCP proxy in front of PostgreSQL that cuts connections, holds them back, or cuts one at the worst moment of a commit.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 16;
/// Messages of the server: a statement is complete, and the server is ready for the next one.
const COMMAND_COMPLETE: u8 = b'C';
const READY: u8 = b'Z';
/// The state in a ready message: no transaction is open.
const IDLE: u8 = b'I';

/// What happens to a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Flow {
    /// Bytes pass.
    #[default]
    Pass,
    /// Bytes of the client wait in the proxy. The server still answers what it has: so a client that works all the time always has a statement
    /// in the proxy, and not only an answer.
    Held,
}

/// The proxy. Dropping it ends all its connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// The address for clients.
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    links: Vec<Arc<Link>>,
    /// What happens to new connections.
    flow: Flow,
    /// Whether new connections are closed at once.
    refuses: bool,
    /// Whether the next answer to a commit is dropped, with its connection.
    cuts_answer: bool,
    has_cut_answer: bool,
    has_delivered: bool,
    is_over: bool,
}

#[derive(Debug)]
struct Shared {
    server: Mutex<PathBuf>,
    state: Mutex<State>,
    changed: Condvar,
}

/// A connection of a client and its connection to the server.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: UnixStream,
    is_held: AtomicBool,
    is_cut: AtomicBool,
}

impl Link {
    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        let _closed = self.client.shutdown(Shutdown::Both);
        let _closed = self.server.shutdown(Shutdown::Both);
    }
}

impl Proxy {
    /// Starts a proxy of the server with this socket.
    pub(crate) fn start(server: PathBuf) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared =
            Arc::new(Shared { server: Mutex::new(server), state: Mutex::default(), changed: Condvar::new() });
        let accepting = shared.clone();
        let accepting = Some(std::thread::spawn(move || accept(&listener, &accepting)));
        Self { address, shared, accepting }
    }

    /// Leads new connections to another server.
    pub(crate) fn leads_to(&self, server: PathBuf) {
        *self.shared.server.lock() = server;
    }

    /// The address of a database behind the proxy.
    pub(crate) fn url(&self) -> String {
        format!("postgres://deltaq@{}/deltaq?sslmode=disable", self.address)
    }

    /// Closes all connections. New ones pass.
    pub(crate) fn cut(&self) {
        self.shared.state.lock().links.iter().for_each(|link| link.cut());
        self.shared.changed.notify_all();
    }

    /// Closes all connections, and new ones at once, until [`release`](Self::release).
    pub(crate) fn refuse(&self) {
        self.shared.state.lock().refuses = true;
        self.cut();
    }

    /// Holds back what the clients of the present connections send until [`release`](Self::release). New ones pass.
    pub(crate) fn hold(&self) {
        for link in &self.shared.state.lock().links {
            link.is_held.store(true, Ordering::SeqCst);
        }
    }

    /// Swallows what the clients of all connections send, also of new ones, until [`release`](Self::release).
    pub(crate) fn black_hole(&self) {
        self.shared.state.lock().flow = Flow::Held;
        self.hold();
    }

    /// Lets all bytes pass, including the bytes that were held back.
    pub(crate) fn release(&self) {
        let mut state = self.shared.state.lock();
        (state.flow, state.refuses) = (Flow::Pass, false);
        state.links.iter().for_each(|link| link.is_held.store(false, Ordering::SeqCst));
        self.shared.changed.notify_all();
    }

    /// Cuts the next connection whose transaction the server has committed, before the client learns of it.
    pub(crate) fn cut_next_answer(&self) {
        let mut state = self.shared.state.lock();
        (state.cuts_answer, state.has_cut_answer) = (true, false);
    }

    /// Whether [`cut_next_answer`](Self::cut_next_answer) has cut a connection.
    pub(crate) fn has_cut_answer(&self) -> bool {
        self.shared.state.lock().has_cut_answer
    }

    /// Whether the server has got bytes that were held back.
    pub(crate) fn has_delivered(&self) -> bool {
        self.shared.state.lock().has_delivered
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.cut();
        // The connection wakes the accepting thread, which waits for the other threads.
        let _woken = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ended = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    for client in listener.incoming().filter_map(Result::ok) {
        let mut state = shared.state.lock();
        if state.is_over {
            break;
        }
        // A server that is down refuses connections.
        let server = UnixStream::connect(&*shared.server.lock()).ok().filter(|_| !state.refuses);
        let Some(server) = server else { continue };
        let _batched = client.set_nodelay(true);
        let is_held = AtomicBool::new(state.flow == Flow::Held);
        let link = Arc::new(Link { client, server, is_held, is_cut: AtomicBool::new(false) });
        state.links.retain(|link| !link.is_cut.load(Ordering::SeqCst));
        state.links.push(link.clone());
        drop(state);
        let (up, down) = ((shared.clone(), link.clone()), (shared.clone(), link));
        threads.push(std::thread::spawn(move || up.0.carry_up(&up.1)));
        threads.push(std::thread::spawn(move || down.0.carry_down(&down.1)));
    }
    for thread in threads {
        let _ended = thread.join();
    }
}

impl Shared {
    /// Waits while the link is held back. Returns false once it is cut.
    fn may_pass(&self, link: &Link) -> bool {
        let mut state = self.state.lock();
        while link.is_held.load(Ordering::SeqCst) && !link.is_cut.load(Ordering::SeqCst) {
            self.changed.wait(&mut state);
        }
        !link.is_cut.load(Ordering::SeqCst)
    }

    fn carry_up(&self, link: &Link) {
        let mut piece = vec![0; PIECE_BYTES];
        while let Ok(read @ 1..) = (&link.client).read(&mut piece) {
            let was_held = link.is_held.load(Ordering::SeqCst);
            if !self.may_pass(link) || (&link.server).write_all(&piece[..read]).is_err() {
                break;
            }
            if was_held {
                self.state.lock().has_delivered = true;
            }
        }
        // A client that has gone leaves the bytes that it has sent, which the server still gets.
        let _ended = link.server.shutdown(Shutdown::Write);
    }

    fn carry_down(&self, link: &Link) {
        let mut piece = vec![0; PIECE_BYTES];
        let mut answers = Answers::default();
        while let Ok(read @ 1..) = (&link.server).read(&mut piece) {
            let mut state = self.state.lock();
            let passed = answers.take(&piece[..read], state.cuts_answer);
            if answers.is_commit_answered && state.cuts_answer {
                (state.cuts_answer, state.has_cut_answer) = (false, true);
                break;
            }
            drop(state);
            if (&link.client).write_all(&passed).is_err() {
                break;
            }
        }
        link.cut();
        self.changed.notify_all();
    }
}

/// The messages of a server that the client does not have yet.
#[derive(Debug, Default)]
struct Answers {
    bytes: Vec<u8>,
    /// The end of the last complete message.
    parsed: usize,
    /// The end of the messages that may pass.
    passing: usize,
    /// Whether a statement is complete since the last ready message.
    is_complete: bool,
    /// Whether the last bytes end a transaction with a complete statement.
    is_commit_answered: bool,
}

impl Answers {
    /// Adds bytes of the server. Returns the bytes that may pass: all complete messages, or, if `keeps`, the messages before the
    /// answer to a statement whose transaction may be committed.
    fn take(&mut self, more: &[u8], keeps: bool) -> Vec<u8> {
        self.bytes.extend_from_slice(more);
        self.is_commit_answered = false;
        while let Some(head) = self.bytes.get(self.parsed..self.parsed + 5) {
            let end = self.parsed + 1 + u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let Some(message) = self.bytes.get(self.parsed..end) else { break };
            match (message[0], message.get(5)) {
                (COMMAND_COMPLETE, _) => self.is_complete = true,
                (READY, state) => {
                    self.is_commit_answered |= self.is_complete && state == Some(&IDLE);
                    self.is_complete = false;
                }
                _ => {}
            }
            if keeps && self.is_commit_answered {
                break;
            }
            self.parsed = end;
            if !(keeps && self.is_complete) {
                self.passing = end;
            }
        }
        self.parsed -= self.passing;
        self.bytes.drain(..std::mem::take(&mut self.passing)).collect()
    }
}

#[test]
fn the_answer_to_a_commit_is_found_in_any_pieces() {
    let message = |kind: u8, body: &[u8]| {
        let length = u32::try_from(body.len() + 4).expect("a short message").to_be_bytes();
        [&[kind], &length[..], body].concat()
    };
    let ready = |state: u8| message(READY, &[state]);
    let before =
        [message(b'1', b""), ready(IDLE), message(COMMAND_COMPLETE, b"BEGIN\0"), ready(b'T')].concat();
    let commit = [message(b'2', b""), message(COMMAND_COMPLETE, b"COMMIT\0"), ready(IDLE)].concat();
    let all = [before.clone(), commit].concat();
    for piece in [1, 3, 7, 1_000] {
        let (mut answers, mut passed, mut found) = (Answers::default(), Vec::new(), false);
        for piece in all.chunks(piece) {
            passed.extend(answers.take(piece, true));
            found |= answers.is_commit_answered;
        }
        assert!(found && passed == [before.clone(), message(b'2', b"")].concat(), "{piece}: {passed:?}");
        let (mut answers, mut passed) = (Answers::default(), Vec::new());
        all.chunks(piece).for_each(|piece| passed.extend(answers.take(piece, false)));
        assert_eq!(passed, all);
    }
}
