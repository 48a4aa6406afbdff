//! A TCP proxy in front of a node, which the node advertises: the calls of the other nodes arrive through it. It delays their bytes,
//! cuts connections in the middle of a message, closes one direction of them, or swallows what they carry.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

/// Bytes that are read at a time: less than most messages have, so that a fault can hit the middle of one.
const PIECE_BYTES: usize = 700;
/// The longest delay of a piece, in milliseconds.
const DELAY_MS: u64 = 60;
/// One in so many pieces is the last one of its connection or direction.
const ENDS_ONE_IN: u32 = 6;

/// What happens to the connections of the other nodes to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkFault {
    /// Each piece of bytes arrives late.
    Delayed,
    /// Connections end, mostly in the middle of a message.
    Cut,
    /// All connections end, and new ones end at once.
    Refused,
    /// Requests have no end, as if the calling node had closed its direction of the connection.
    RequestsClosed,
    /// Replies have no end, as if the called node had closed its direction of the connection.
    RepliesClosed,
    /// Nothing arrives any more, and no connection ends.
    Swallowed,
    /// Requests arrive, and their replies do not.
    RepliesSwallowed,
}

impl LinkFault {
    /// All faults.
    pub(crate) const ALL: [Self; 7] = [
        Self::RepliesSwallowed,
        Self::Cut,
        Self::RequestsClosed,
        Self::Delayed,
        Self::Swallowed,
        Self::RepliesClosed,
        Self::Refused,
    ];
}

/// The proxy. Dropping it ends all its connections.
#[derive(Debug)]
pub(crate) struct LinkProxy {
    /// The address that the node advertises.
    pub(crate) address: SocketAddr,
    /// The address of the node. Only this process uses its host, so the port is free.
    pub(crate) node: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    node: SocketAddr,
    state: Mutex<State>,
    /// Number of pieces that a fault has hit.
    hits: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    fault: Option<LinkFault>,
    links: Vec<Arc<Link>>,
    is_over: bool,
}

/// A connection of another node and its connection to this node.
#[derive(Debug)]
struct Link {
    caller: TcpStream,
    node: TcpStream,
    /// Whether bytes are swallowed until the end of the connection: a stream can't go on after a gap.
    loses_requests: AtomicBool,
    loses_replies: AtomicBool,
    /// Number of directions that carry nothing any more.
    ended: AtomicUsize,
    is_cut: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

/// What happens to a piece of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passage {
    Passes,
    Late,
    Swallowed,
    /// A part of it passes, and nothing after it in this direction.
    EndsDirection,
    /// A part of it passes, and then the connection ends.
    EndsLink,
}

impl Link {
    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        let _closed = self.caller.shutdown(Shutdown::Both);
        let _closed = self.node.shutdown(Shutdown::Both);
    }

    fn loses(&self, direction: Direction) -> &AtomicBool {
        match direction {
            Direction::Requests => &self.loses_requests,
            Direction::Replies => &self.loses_replies,
        }
    }
}

impl LinkProxy {
    /// Starts a proxy of a node that may start later.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let [.., high, low] = std::process::id().to_be_bytes();
        let node = SocketAddr::from(([127, 79, high, low.max(1)], address.port()));
        let shared = Arc::new(Shared { node, state: Mutex::default(), hits: AtomicUsize::new(0) });
        let accepting = shared.clone();
        let accepting = Some(std::thread::spawn(move || accept(&listener, &accepting)));
        Self { address, node, shared, accepting }
    }

    /// Begins a fault.
    pub(crate) fn begin(&self, fault: LinkFault) {
        let mut state = self.shared.state.lock();
        state.fault = Some(fault);
        if fault == LinkFault::Refused {
            state.links.iter().for_each(|link| link.cut());
        }
    }

    /// Ends the fault, and the connections that have lost bytes.
    pub(crate) fn release(&self) {
        let mut state = self.shared.state.lock();
        state.fault = None;
        let has_lost = |link: &&Arc<Link>| {
            [&link.loses_requests, &link.loses_replies].iter().any(|loses| loses.load(Ordering::SeqCst))
        };
        state.links.iter().filter(has_lost).for_each(|link| link.cut());
    }

    /// Number of pieces that faults have hit.
    pub(crate) fn hits(&self) -> usize {
        self.shared.hits.load(Ordering::Relaxed)
    }
}

impl Drop for LinkProxy {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock();
            state.is_over = true;
            state.links.iter().for_each(|link| link.cut());
        }
        // The connection wakes the accepting thread, which waits for the other threads.
        let _woken = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ended = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    for caller in listener.incoming().filter_map(Result::ok) {
        let mut state = shared.state.lock();
        if state.is_over {
            break;
        }
        if state.fault == Some(LinkFault::Refused) {
            shared.hits.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let Ok(node) = TcpStream::connect(shared.node) else { continue };
        for stream in [&caller, &node] {
            let _batched = stream.set_nodelay(true);
        }
        let link = Arc::new(Link {
            caller,
            node,
            loses_requests: AtomicBool::new(false),
            loses_replies: AtomicBool::new(false),
            ended: AtomicUsize::new(0),
            is_cut: AtomicBool::new(false),
        });
        state.links.retain(|link| !link.is_cut.load(Ordering::SeqCst));
        state.links.push(link.clone());
        drop(state);
        threads.retain(|thread| !thread.is_finished());
        for direction in [Direction::Requests, Direction::Replies] {
            let (shared, link) = (shared.clone(), link.clone());
            threads.push(std::thread::spawn(move || shared.carry(&link, direction)));
        }
    }
    for thread in threads {
        let _ended = thread.join();
    }
}

impl Shared {
    /// Carries the bytes of one direction until its end.
    fn carry(&self, link: &Link, direction: Direction) {
        let (mut from, mut to) = match direction {
            Direction::Requests => (&link.caller, &link.node),
            Direction::Replies => (&link.node, &link.caller),
        };
        let mut rng = fastrand::Rng::new();
        let mut piece = [0; PIECE_BYTES];
        while let Ok(read @ 1..) = from.read(&mut piece) {
            let passage = self.passage(link, direction, &mut rng);
            if passage != Passage::Passes {
                self.hits.fetch_add(1, Ordering::Relaxed);
            }
            let passing = match passage {
                Passage::Swallowed => continue,
                Passage::Passes => read,
                Passage::Late => {
                    std::thread::sleep(Duration::from_millis(rng.u64(..DELAY_MS)));
                    read
                }
                Passage::EndsDirection | Passage::EndsLink => rng.usize(..read),
            };
            let is_written = to.write_all(&piece[..passing]).is_ok();
            match passage {
                Passage::EndsLink => link.cut(),
                Passage::EndsDirection => break,
                _ if !is_written => break,
                _ => {}
            }
        }
        let _closed = to.shutdown(Shutdown::Write);
        if link.ended.fetch_add(1, Ordering::SeqCst) > 0 {
            link.cut();
        }
    }

    fn passage(&self, link: &Link, direction: Direction, rng: &mut fastrand::Rng) -> Passage {
        let fault = self.state.lock().fault;
        let is_hit = rng.u32(..ENDS_ONE_IN) == 0;
        let loses = link.loses(direction);
        match (fault, direction) {
            (Some(LinkFault::Swallowed), _) | (Some(LinkFault::RepliesSwallowed), Direction::Replies) => {
                loses.store(true, Ordering::SeqCst);
            }
            _ => {}
        }
        match (fault, direction) {
            _ if loses.load(Ordering::SeqCst) => Passage::Swallowed,
            (Some(LinkFault::Delayed), _) => Passage::Late,
            (Some(LinkFault::Cut), _) if is_hit => Passage::EndsLink,
            (Some(LinkFault::RequestsClosed), Direction::Requests)
            | (Some(LinkFault::RepliesClosed), Direction::Replies)
                if is_hit =>
            {
                Passage::EndsDirection
            }
            _ => Passage::Passes,
        }
    }
}
