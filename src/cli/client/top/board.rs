//! The state of the board.

use std::collections::HashMap;

use deltaq_types::{EventDocument, ItemDocument, ItemState, QueueDocument, SeriesDocument};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A pressed key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Up,
    Down,
    PageUp,
    PageDown,
    Enter,
    Back,
    /// Select the next state of keys.
    Next,
    /// Select the previous state of keys.
    Previous,
    Pause,
    Redrive,
    Yes,
    Quit,
    /// The size of the terminal has changed.
    Redraw,
}

/// The action that a pressed key triggers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    None,
    Quit,
    /// Fetch the content of the screen.
    Look,
    Pause(String),
    Resume(String),
    Redrive {
        queue: String,
        /// The key to redrive; `None` for all parked keys.
        key: Option<String>,
    },
}

/// The current screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Screen {
    Queues,
    Keys { queue: String, state: ItemState },
    Key { queue: String, key: String, state: ItemState },
}

/// The states of keys in the order of their tabs.
pub(super) const STATES: [ItemState; 4] =
    [ItemState::Parked, ItemState::Ready, ItemState::Leased, ItemState::Delayed];

/// How often a series is fetched. It has a new point once a minute.
const SERIES_PERIOD_US: u64 = 15_000_000;

/// Rows of a page.
const PAGE: usize = 10;

/// The board.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) address: String,
    pub(super) has_colors: bool,
    pub(super) screen: Screen,
    pub(super) queues: Vec<QueueDocument>,
    /// Queued changes per second of each queue.
    pub(super) rates: HashMap<String, f64>,
    /// The last minutes of all queues, or of the open queue; `None` before they are fetched.
    pub(super) series: Option<SeriesDocument>,
    /// Of which queue the series was fetched, and when.
    series_of: Option<(Option<String>, u64)>,
    pub(super) items: Vec<ItemDocument>,
    pub(super) item: Option<ItemDocument>,
    pub(super) events: Vec<EventDocument>,
    /// The selected row of the queues, and of the keys or events.
    pub(super) queue_row: usize,
    pub(super) row: usize,
    /// The result of the last action, or the last failure.
    pub(super) message: Option<String>,
    /// An action that waits for confirmation.
    pub(super) asked: Option<Action>,
    /// The life and the newest event of each queue at the last fetch, and the time of the fetch.
    last: HashMap<String, (String, u64)>,
    last_us: Option<u64>,
}

impl Input {
    pub(super) fn of(key: &KeyEvent) -> Option<Self> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return (key.code == KeyCode::Char('c')).then_some(Self::Quit);
        }
        Some(match key.code {
            KeyCode::Up | KeyCode::Char('k') => Self::Up,
            KeyCode::Down | KeyCode::Char('j') => Self::Down,
            KeyCode::PageUp => Self::PageUp,
            KeyCode::PageDown => Self::PageDown,
            KeyCode::Enter => Self::Enter,
            KeyCode::Esc | KeyCode::Backspace => Self::Back,
            KeyCode::Tab | KeyCode::Right => Self::Next,
            KeyCode::BackTab | KeyCode::Left => Self::Previous,
            KeyCode::Char('p') => Self::Pause,
            KeyCode::Char('r') => Self::Redrive,
            KeyCode::Char('y') => Self::Yes,
            KeyCode::Char('q') => Self::Quit,
            _ => return None,
        })
    }
}

impl Board {
    pub(super) fn new(address: String, has_colors: bool) -> Self {
        Self {
            address,
            has_colors,
            screen: Screen::Queues,
            queues: Vec::new(),
            rates: HashMap::new(),
            series: None,
            series_of: None,
            items: Vec::new(),
            item: None,
            events: Vec::new(),
            queue_row: 0,
            row: 0,
            message: None,
            asked: None,
            last: HashMap::new(),
            last_us: None,
        }
    }

    /// Sets the queues that were fetched at this time. The rate of a queue is computed from its changes since the last
    /// fetch.
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
    pub(super) fn set_queues(&mut self, queues: Vec<QueueDocument>, now_us: u64) {
        let seconds = self.last_us.map(|last_us| now_us.saturating_sub(last_us) as f64 / 1e6);
        let rate = |queue: &QueueDocument| {
            // Each life counts anew.
            let (_, last) = self.last.get(&queue.name).filter(|(life, _)| *life == queue.life)?;
            let changes = queue.status.changes.saturating_sub(*last);
            Some((queue.name.clone(), changes as f64 / seconds.filter(|seconds| *seconds > 0.0)?))
        };
        self.rates = queues.iter().filter_map(rate).collect();
        let last = |queue: &QueueDocument| (queue.life.clone(), queue.status.changes);
        self.last = queues.iter().map(|queue| (queue.name.clone(), last(queue))).collect();
        self.last_us = Some(now_us);
        self.queues = queues;
        self.queue_row = self.queue_row.min(self.queues.len().saturating_sub(1));
    }

    /// The queue that is open.
    pub(super) fn open_queue(&self) -> Option<&str> {
        match &self.screen {
            Screen::Queues => None,
            Screen::Keys { queue, .. } | Screen::Key { queue, .. } => Some(queue),
        }
    }

    /// Whether the series of the open queue, or without one that of all queues, has to be fetched.
    pub(super) fn wants_series(&self, now_us: u64) -> bool {
        self.series_of.as_ref().is_none_or(|(of, at_us)| {
            of.as_deref() != self.open_queue() || now_us.saturating_sub(*at_us) >= SERIES_PERIOD_US
        })
    }

    /// Sets the series that was fetched at this time; `None` if the server has none.
    pub(super) fn set_series(&mut self, of: Option<String>, series: Option<SeriesDocument>, now_us: u64) {
        self.series = series;
        self.series_of = Some((of, now_us));
    }

    /// Sets the keys that were fetched.
    pub(super) fn set_items(&mut self, items: Vec<ItemDocument>) {
        self.items = items;
        self.row = self.row.min(self.items.len().saturating_sub(1));
    }

    /// Handles a pressed key.
    pub(super) fn press(&mut self, input: Input) -> Action {
        if let Some(asked) = self.asked.take() {
            return if input == Input::Yes { asked } else { Action::None };
        }
        match input {
            Input::Quit => Action::Quit,
            Input::Redraw | Input::Yes => Action::None,
            Input::Up => self.step(|row| row.saturating_sub(1)),
            Input::Down => self.step(|row| row + 1),
            Input::PageUp => self.step(|row| row.saturating_sub(PAGE)),
            Input::PageDown => self.step(|row| row + PAGE),
            Input::Enter => self.enter(),
            Input::Back => self.back(),
            Input::Next => self.turn(1),
            Input::Previous => self.turn(STATES.len() - 1),
            Input::Pause => self.pause(),
            Input::Redrive => self.redrive(),
        }
    }

    /// The queue that the screen shows, or the selected queue in the list of queues.
    pub(super) fn queue(&self) -> Option<&QueueDocument> {
        match &self.screen {
            Screen::Queues => self.queues.get(self.queue_row),
            Screen::Keys { queue, .. } | Screen::Key { queue, .. } => {
                self.queues.iter().find(|known| known.name == *queue)
            }
        }
    }

    fn step(&mut self, to: impl Fn(usize) -> usize) -> Action {
        self.message = None;
        let (row, rows) = match self.screen {
            Screen::Queues => (&mut self.queue_row, self.queues.len()),
            Screen::Keys { .. } => (&mut self.row, self.items.len()),
            Screen::Key { .. } => (&mut self.row, self.events.len()),
        };
        *row = to(*row).min(rows.saturating_sub(1));
        Action::None
    }

    fn enter(&mut self) -> Action {
        self.message = None;
        let screen = match &self.screen {
            Screen::Queues => self.queue().map(|queue| {
                let is_parked = queue.status.parked > 0;
                let state = if is_parked { ItemState::Parked } else { ItemState::Ready };
                Screen::Keys { queue: queue.name.clone(), state }
            }),
            Screen::Keys { queue, state } => self.items.get(self.row).map(|item| Screen::Key {
                queue: queue.clone(),
                key: item.key.clone(),
                state: *state,
            }),
            Screen::Key { .. } => None,
        };
        self.show(screen)
    }

    fn back(&mut self) -> Action {
        self.message = None;
        let screen = match &self.screen {
            Screen::Queues => None,
            Screen::Keys { .. } => Some(Screen::Queues),
            Screen::Key { queue, state, .. } => Some(Screen::Keys { queue: queue.clone(), state: *state }),
        };
        self.show(screen)
    }

    fn turn(&mut self, steps: usize) -> Action {
        let Screen::Keys { queue, state } = &self.screen else { return Action::None };
        let at = STATES.iter().position(|known| known == state).unwrap_or_default();
        let state = STATES.get((at + steps) % STATES.len()).copied().unwrap_or(*state);
        let screen = Screen::Keys { queue: queue.clone(), state };
        self.show(Some(screen))
    }

    fn show(&mut self, screen: Option<Screen>) -> Action {
        let Some(screen) = screen else { return Action::None };
        self.screen = screen;
        (self.items, self.item, self.events, self.row) = (Vec::new(), None, Vec::new(), 0);
        Action::Look
    }

    fn pause(&mut self) -> Action {
        let Some(queue) = self.queue() else { return Action::None };
        let name = queue.name.clone();
        if queue.status.paused { Action::Resume(name) } else { Action::Pause(name) }
    }

    /// Asks for confirmation before all parked keys of a queue are redriven. The redrive of a single key needs no
    /// confirmation.
    fn redrive(&mut self) -> Action {
        let Some(queue) = self.queue().map(|queue| queue.name.clone()) else { return Action::None };
        let key = match &self.screen {
            Screen::Queues => None,
            Screen::Keys { state, .. } => {
                let item = self.items.get(self.row).filter(|_| *state == ItemState::Parked);
                let Some(item) = item else { return Action::None };
                Some(item.key.clone())
            }
            Screen::Key { key, .. } => Some(key.clone()),
        };
        let action = Action::Redrive { queue, key };
        if matches!(action, Action::Redrive { key: None, .. }) {
            self.asked = Some(action);
            return Action::None;
        }
        action
    }
}
