//! Draws the board.

use deltaq_types::{ItemDocument, ItemState, LeaseOutcome, QueueDocument};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, TableState, Wrap};

use super::board::{Action, Board, STATES, Screen};
use super::style::{Styles, table};
use super::{queue_table, rates};
use crate::cli::client::output::clean;
use crate::cli::client::output::duration_text;

/// Number of lines above the events of a key.
const KEY_LINES: u16 = 9;

/// The digits of a version: it is below 2^53.
const VERSION_WIDTH: u16 = 16;

/// With fewer columns, tables leave out what is less important.
const NARROW: u16 = 70;

pub(super) fn draw(board: &Board, frame: &mut Frame<'_>) {
    let width = frame.area().width;
    let header = header(board, width.into());
    let lines = header.lines.len().try_into().unwrap_or(2);
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(lines), Constraint::Min(3), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(header), head);
    match &board.screen {
        Screen::Queues => queue_table::draw(board, frame, body),
        Screen::Keys { .. } => keys(board, frame, body),
        Screen::Key { .. } => key(board, frame, body),
    }
    frame.render_widget(Paragraph::new(footer(board, width)), foot);
}

fn header(board: &Board, width: usize) -> Text<'static> {
    let styles = Styles::of(board);
    let sum = |count: fn(&QueueDocument) -> u64| board.queues.iter().map(count).sum::<u64>();
    let place = match &board.screen {
        Screen::Queues => format!("{} queues", board.queues.len()),
        Screen::Keys { queue, .. } => format!("queue {queue}"),
        Screen::Key { queue, key, .. } => format!("queue {queue}, key {}", clean(key)),
    };
    let first = Line::from(vec![
        Span::styled("deltaq ", styles.heading),
        Span::raw(format!("{}  ", board.address)),
        Span::styled(place, styles.heading),
    ]);
    let parked = sum(|queue| queue.status.parked);
    // The most important counts come first, and the others are left out if they do not fit: a number that is cut is wrong.
    let counts = [
        ("ready", sum(|queue| queue.status.ready), Style::new()),
        ("parked", parked, if parked > 0 { styles.bad } else { Style::new() }),
        ("leased", sum(|queue| queue.status.leased), Style::new()),
        ("delayed", sum(|queue| queue.status.delayed), Style::new()),
    ];
    let mut left = width;
    let second = counts.into_iter().map_while(|(name, count, style)| {
        let text = format!("{name} {count}");
        left = left.checked_sub(text.len())?;
        let spaces = " ".repeat(left.min(2));
        left -= spaces.len();
        Some([Span::styled(text, style), Span::raw(spaces)])
    });
    let second: Line<'_> = second.flatten().collect();
    let rates = board.series.as_ref().and_then(|series| rates::line(series, width));
    [Some(first), Some(second), rates].into_iter().flatten().collect()
}

fn footer(board: &Board, width: u16) -> Line<'static> {
    let styles = Styles::of(board);
    match (&board.asked, &board.message) {
        (Some(Action::Redrive { queue, .. }), _) => Line::styled(
            format!("make all parked keys of queue {queue} ready? y: yes, other keys: no"),
            styles.notice,
        ),
        (_, Some(message)) => Line::styled(clean(message), styles.notice),
        _ => Line::styled(
            match board.screen {
                Screen::Queues if width < NARROW => "enter open  p pause  r redrive  q quit",
                Screen::Keys { .. } if width < NARROW => "enter open  tab state  esc back  q quit",
                Screen::Queues => "up/down select  enter open  p pause/resume  r redrive parked  q quit",
                Screen::Keys { .. } => {
                    "up/down select  enter open  tab state  r redrive  p pause/resume  esc back  q quit"
                }
                Screen::Key { .. } => "up/down scroll  r redrive  esc back  q quit",
            },
            styles.dim,
        ),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "numbers are copied")]
fn number(number: impl ToString) -> Cell<'static> {
    Cell::from(Line::from(number.to_string()).right_aligned())
}

fn keys(board: &Board, frame: &mut Frame<'_>, area: Rect) {
    let Screen::Keys { state: shown, .. } = &board.screen else { return };
    let styles = Styles::of(board);
    let [tabs, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(2)]).areas(area);
    let count = |state: ItemState| {
        let status = board.queue().map(|queue| &queue.status);
        status.map_or(0, |status| match state {
            ItemState::Parked => status.parked,
            ItemState::Ready => status.ready,
            ItemState::Leased => status.leased,
            ItemState::Delayed => status.delayed,
            ItemState::Unrecognized => 0,
        })
    };
    let tab = |state: &ItemState| {
        let text = format!(" {} {} ", state.as_str(), count(*state));
        Span::styled(text, if state == shown { styles.selected } else { Style::new() })
    };
    frame.render_widget(Line::from(STATES.iter().map(tab).collect::<Vec<_>>()), tabs);
    let is_narrow = area.width < NARROW;
    let rows = board.items.iter().map(|item| {
        let attempt = (!is_narrow).then(|| number(item.attempt));
        let deltas = (!is_narrow).then(|| number(item.deltas.len() + item.leased_deltas.len()));
        let failures = Some(number(item.failures));
        let (key, detail) = (Some(Cell::from(clean(&item.key))), Some(Cell::from(detail(item))));
        Row::new([key, attempt, failures, deltas, detail].into_iter().flatten())
    });
    let width = Constraint::Length;
    let columns = [
        (("KEY", false), Constraint::Fill(2), false),
        (("ATTEMPT", true), width(7), true),
        (("FAILURES", true), width(8), false),
        (("DELTAS", true), width(6), true),
        (("DETAIL", false), Constraint::Fill(3), false),
    ];
    let shown = columns.into_iter().filter(|(_, _, is_left_out)| !(is_narrow && *is_left_out));
    let (headings, widths): (Vec<_>, Vec<_>) = shown.map(|(heading, width, _)| (heading, width)).unzip();
    let mut state = TableState::new().with_selected(Some(board.row));
    frame.render_stateful_widget(table(rows.collect(), &headings, &widths, &styles), body, &mut state);
}

/// The lease of a leased key, the time of a delayed key, or the last error.
fn detail(item: &ItemDocument) -> String {
    match (&item.lease, &item.due_at, &item.last_error) {
        (Some(lease), ..) => {
            let worker = lease.worker.as_deref().unwrap_or("(no name)");
            clean(&format!("{worker}, {} left", duration_text(lease.expires_in_ms)))
        }
        (_, Some(due_at), error) => clean(&format!("due {due_at} {}", error.as_deref().unwrap_or_default())),
        (_, _, error) => clean(error.as_deref().unwrap_or("-")),
    }
}

fn key(board: &Board, frame: &mut Frame<'_>, area: Rect) {
    let styles = Styles::of(board);
    let [top, body] = Layout::vertical([Constraint::Length(KEY_LINES), Constraint::Min(2)]).areas(area);
    let is_narrow = area.width < NARROW;
    frame.render_widget(Paragraph::new(key_text(board, &styles)).wrap(Wrap { trim: false }), top);
    let rows = board.events.iter().map(|event| {
        let details = [
            event.kind.map(deltaq_types::DeltaType::as_str),
            event.outcome.map(LeaseOutcome::as_str),
            event.parked.then_some("parked"),
            event.worker.as_deref(),
            event.error.as_deref(),
            event.object.as_ref().map(deltaq_types::RawObject::as_str),
        ];
        let detail = details.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let (at, event_name) = (event.at.to_string(), event.event.as_str());
        // A narrow terminal shows the time of the day.
        let at = if is_narrow { at.get(11..19).unwrap_or_default().to_owned() } else { at };
        let version = (!is_narrow).then(|| number(event.resource_version));
        let others = [Cell::from(at), Cell::from(event_name), Cell::from(clean(&detail))];
        Row::new(version.into_iter().chain(others))
    });
    let width = Constraint::Length;
    let headings = [("VERSION", true), ("AT", false), ("EVENT", false), ("DETAIL", false)];
    let widths =
        [width(VERSION_WIDTH), width(if is_narrow { 8 } else { 24 }), width(10), Constraint::Fill(1)];
    let shown = usize::from(is_narrow)..;
    let headings = headings.get(shown.clone()).unwrap_or_default();
    let widths = widths.get(shown).unwrap_or_default();
    let mut state = TableState::new().with_selected(Some(board.row));
    frame.render_stateful_widget(table(rows.collect(), headings, widths, &styles), body, &mut state);
}

fn key_text(board: &Board, styles: &Styles) -> Text<'static> {
    let Some(item) = &board.item else {
        return Text::from("The queue has no delta, lease or failure of the key. Its events:");
    };
    let label = |label: &str, text: String, style: Style| {
        Line::from(vec![Span::styled(format!("{label:<10}"), styles.heading), Span::styled(text, style)])
    };
    let is_parked = item.state == Some(ItemState::Parked);
    let newest = item.deltas.last().or(item.leased_deltas.last());
    let object = newest.map_or_else(
        || "-".to_owned(),
        |delta| clean(&format!("{} {}", delta.kind.as_str(), delta.object.as_str())),
    );
    let error = item.last_error.as_deref().map_or_else(|| "-".to_owned(), clean);
    Text::from(vec![
        label(
            "state",
            item.state.map_or("none", ItemState::as_str).to_owned(),
            if is_parked { styles.bad } else { Style::new() },
        ),
        label("attempts", format!("{}, {} failures", item.attempt, item.failures), Style::new()),
        label("newest", object, Style::new()),
        label("error", error, styles.bad),
    ])
}
