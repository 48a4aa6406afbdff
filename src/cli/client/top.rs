//! `deltaq top`: a live board in the terminal.
//!
//! [`board`] holds the state and handles pressed keys, [`view`] draws the board, and this module makes the calls.

mod board;
mod queue_table;
mod rates;
mod style;
mod view;

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use clap::Args;
use deltaq_client::Call;
use deltaq_runtime::causes::with_causes;
use deltaq_types::duration::DurationText;
use deltaq_types::{EventDocument, ItemDocument, KeysBody, Page, QueuePage, SelectedCount, SeriesDocument};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use self::board::{Action, Board, Input, Screen};
use super::failure::Failure;
use super::output::counted;
use super::pages::check_complete;
use super::session::{Execute, Session};
use crate::config;

/// Maximum number of queues on the board.
const QUEUES_MAX: u64 = 1_000;
/// Maximum number of keys of a queue on the board.
const KEYS_MAX: u64 = 200;
/// Maximum number of events of a key on the board.
const EVENTS_MAX: u64 = 100;
/// Maximum number of pressed keys that have not been handled.
const INPUTS_WAITING: usize = 16;

/// `deltaq top`.
#[derive(Debug, Clone, Args)]
pub struct Top {
    /// Time between two polls of the server.
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub interval: DurationText,
}

impl Execute for Top {
    const OPERATIONS: &'static [&'static str] = &[
        "list_queues",
        "get_series",
        "get_all_series",
        "list_items",
        "get_item_of",
        "get_history_of",
        "pause_queue",
        "resume_queue",
        "redrive_parked",
    ];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(Failure::Usage(
                "top needs a terminal; deltaq queues prints the counts once".to_owned(),
            ));
        }
        let mut board = Board::new(session.client.address(), config::permits_colors());
        // The first fetch runs before the terminal is changed, so that a wrong address is reported as an ordinary
        // failure.
        look(session, &mut board).await?;
        let mut terminal = ratatui::try_init().map_err(Failure::Write)?;
        let done = self.show(session, &mut board, &mut terminal).await;
        ratatui::restore();
        done
    }
}

impl Top {
    async fn show(
        &self,
        session: &Session,
        board: &mut Board,
        terminal: &mut DefaultTerminal,
    ) -> Result<(), Failure> {
        let mut inputs = inputs()?;
        let interval = Duration::from(self.interval).max(Duration::from_millis(100));
        let mut next_look = Instant::now() + interval;
        loop {
            terminal.draw(|frame| view::draw(board, frame)).map_err(Failure::Write)?;
            tokio::select! {
                () = sleep_until(next_look) => {}
                input = inputs.recv() => {
                    let Some(input) = input else { return Ok(()) };
                    match board.press(input) {
                        Action::None => continue,
                        Action::Quit => return Ok(()),
                        Action::Look => {}
                        action => board.message = Some(perform(session, &action).await),
                    }
                }
            }
            if let Err(failure) = look(session, board).await {
                board.message = Some(with_causes(&failure));
            }
            next_look = Instant::now() + interval;
        }
    }
}

/// Reads the keyboard on a thread.
fn inputs() -> Result<mpsc::Receiver<Input>, Failure> {
    let (to, inputs) = mpsc::channel(INPUTS_WAITING);
    let read = move || {
        while let Ok(event) = event::read() {
            let input = match event {
                Event::Key(key) if key.kind == KeyEventKind::Press => Input::of(&key),
                Event::Resize(..) => Some(Input::Redraw),
                _ => None,
            };
            if input.is_some_and(|input| to.blocking_send(input).is_err()) {
                return;
            }
        }
    };
    let started = std::thread::Builder::new().name("keyboard".to_owned()).spawn(read);
    started.map_err(|error| Failure::Other(format!("can't read the keyboard: {error}")))?;
    Ok(inputs)
}

/// Fetches what the screen shows.
async fn look(session: &Session, board: &mut Board) -> Result<(), Failure> {
    let call = session.call("list_queues", "", "")?.query("limit", Some(QUEUES_MAX));
    let queues: QueuePage = session.client.fetch(call).await?;
    board.set_queues(queues.items, session.clock.monotonic_us());
    if let Err(failure) = check_complete(&queues.unavailable) {
        board.message = Some(failure.to_string());
    }
    let now_us = session.clock.monotonic_us();
    if board.wants_series(now_us) {
        let of = board.open_queue().map(str::to_owned);
        let call = match &of {
            Some(queue) => session.call("get_series", queue, "")?,
            None => session.call("get_all_series", "", "")?,
        };
        // An older server has no series, and an open queue may have been deleted.
        let series: Result<SeriesDocument, _> = session.client.fetch(call.query("since", Some("30m"))).await;
        board.set_series(of, series.ok(), now_us);
    }
    match board.screen.clone() {
        Screen::Queues => {}
        Screen::Keys { queue, state } => {
            let call = session.call("list_items", &queue, "")?;
            let call = call.query("state", Some(state.as_str())).query("limit", Some(KEYS_MAX));
            let items: Page<ItemDocument> = session.client.fetch(call).await?;
            board.set_items(items.items);
        }
        Screen::Key { queue, key, .. } => {
            let call = session.call("get_item_of", &queue, "")?.query("key", Some(&key));
            let item: Result<ItemDocument, _> = session.client.fetch(call).await;
            board.item = match item {
                Err(error) if error.code() == Some("key-not-found") => None,
                item => Some(item?),
            };
            let call = session.call("get_history_of", &queue, "")?;
            let call = call.query("key", Some(key)).query("limit", Some(EVENTS_MAX));
            let events: Page<EventDocument> = session.client.fetch(call).await?;
            board.events = events.items;
        }
    }
    Ok(())
}

/// Performs an action and returns a message about it.
async fn perform(session: &Session, action: &Action) -> String {
    let done = match action {
        Action::Pause(queue) => {
            send(session, "pause_queue", queue).await.map(|()| format!("queue {queue} is paused"))
        }
        Action::Resume(queue) => {
            send(session, "resume_queue", queue).await.map(|()| format!("queue {queue} delivers again"))
        }
        Action::Redrive { queue, key } => redrive(session, queue, key.as_deref()).await,
        Action::None | Action::Look | Action::Quit => Ok(String::new()),
    };
    done.unwrap_or_else(|failure| with_causes(&failure))
}

async fn send(session: &Session, operation: &str, queue: &str) -> Result<(), Failure> {
    let call: Call = session.call(operation, queue, "")?;
    session.client.send(call).await?;
    Ok(())
}

async fn redrive(session: &Session, queue: &str, key: Option<&str>) -> Result<String, Failure> {
    let keys = key.map(|key| vec![key.to_owned()]);
    let call = session.call("redrive_parked", queue, "")?.json(&KeysBody {
        all: keys.is_none(),
        keys,
        ..KeysBody::default()
    });
    let count: SelectedCount = session.client.fetch(call).await?;
    Ok(format!("{} of queue {queue} made ready", counted(count.keys, "parked key")))
}
