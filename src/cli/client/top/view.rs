//! Draws the board.

use deltaq_types::{ItemDocument, ItemState, LeaseOutcome, QueueDocument};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState, Wrap};

use super::board::{Action, Board, STATES, Screen};
use crate::cli::client::output::duration_text;
use crate::cli::client::output::{Tone, clean};
use crate::cli::client::queues::state_word;

/// Number of lines above the events of a key.
const KEY_LINES: u16 = 9;

/// The column of parked keys, after the name.
const PARKED_COLUMN: usize = 3;

pub(super) fn draw(board: &Board, frame: &mut Frame<'_>) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(3), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(header(board)), head);
    match &board.screen {
        Screen::Queues => queues(board, frame, body),
        Screen::Keys { .. } => keys(board, frame, body),
        Screen::Key { .. } => key(board, frame, body),
    }
    frame.render_widget(Paragraph::new(footer(board)), foot);
}

/// Styles. Nothing depends on colours alone.
struct Styles {
    heading: Style,
    selected: Style,
    bad: Style,
    notice: Style,
    dim: Style,
}

impl Styles {
    fn of(board: &Board) -> Self {
        let color = |color: Color| if board.has_colors { Style::new().fg(color) } else { Style::new() };
        Self {
            heading: Style::new().add_modifier(Modifier::BOLD),
            selected: Style::new().add_modifier(Modifier::REVERSED),
            bad: color(Color::Red),
            notice: color(Color::Yellow),
            dim: Style::new().add_modifier(Modifier::DIM),
        }
    }
}

fn header(board: &Board) -> Text<'static> {
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
    let second = Line::from(vec![
        Span::raw(format!("ready {}  ", sum(|queue| queue.status.ready))),
        Span::raw(format!("delayed {}  ", sum(|queue| queue.status.delayed))),
        Span::raw(format!("leased {}  ", sum(|queue| queue.status.leased))),
        Span::styled(format!("parked {parked}"), if parked > 0 { styles.bad } else { Style::new() }),
    ]);
    Text::from(vec![first, second])
}

fn footer(board: &Board) -> Line<'static> {
    let styles = Styles::of(board);
    match (&board.asked, &board.message) {
        (Some(Action::Redrive { queue, .. }), _) => Line::styled(
            format!("make all parked keys of queue {queue} ready? y: yes, other keys: no"),
            styles.notice,
        ),
        (_, Some(message)) => Line::styled(clean(message), styles.notice),
        _ => Line::styled(
            match board.screen {
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

fn table<'a>(
    rows: Vec<Row<'a>>,
    headings: &[(&'static str, bool)],
    widths: &[Constraint],
    styles: &Styles,
) -> Table<'a> {
    let headings = headings.iter().map(|(heading, is_number)| {
        let line = Line::from(*heading);
        Cell::from(if *is_number { line.right_aligned() } else { line })
    });
    Table::new(rows, widths.to_vec())
        .header(Row::new(headings).style(styles.heading))
        .row_highlight_style(styles.selected)
        .column_spacing(2)
}

fn queues(board: &Board, frame: &mut Frame<'_>, area: Rect) {
    let styles = Styles::of(board);
    let rows = board.queues.iter().map(|queue| {
        let status = &queue.status;
        let (state, tone) = state_word(status);
        let state_style = if tone == Tone::Notice { styles.notice } else { Style::new() };
        let rate = board.rates.get(&queue.name).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
        let age = if status.oldest_unacknowledged_age_ms == 0 {
            "-".to_owned()
        } else {
            duration_text(status.oldest_unacknowledged_age_ms)
        };
        let numbers = [
            status.ready.to_string(),
            status.delayed.to_string(),
            status.leased.to_string(),
            status.parked.to_string(),
            status.known.to_string(),
            rate,
            age,
        ];
        (queue, numbers, state, state_style)
    });
    let rows: Vec<_> = rows.collect();
    let headings = [
        ("QUEUE", false),
        ("READY", true),
        ("DELAYED", true),
        ("LEASED", true),
        ("PARKED", true),
        ("KNOWN", true),
        ("EVENTS/S", true),
        ("OLDEST", true),
        ("STATE", false),
    ];
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|(_, numbers, ..)| numbers.get(column)).map(String::len);
        let heading = headings.get(column + 1).map(|(heading, _)| heading.len());
        Constraint::Length(cells.chain(heading).max().and_then(|width| width.try_into().ok()).unwrap_or(8))
    };
    let numbers = (0..headings.len() - 2).map(width);
    let name = std::iter::once(Constraint::Fill(1));
    let widths: Vec<_> = name.chain(numbers).chain([Constraint::Length(7)]).collect();
    let rows = rows.iter().map(|(queue, numbers, state, state_style)| {
        let parked = if queue.status.parked > 0 { styles.bad } else { Style::new() };
        let numbers = numbers.iter().enumerate().map(|(column, text)| {
            number(text).style(if column == PARKED_COLUMN { parked } else { Style::new() })
        });
        let name = std::iter::once(Cell::from(queue.name.as_str()));
        Row::new(name.chain(numbers).chain([Cell::from(*state).style(*state_style)]))
    });
    let table = table(rows.collect(), &headings, &widths, &styles).column_spacing(1);
    let mut state = TableState::new().with_selected(Some(board.queue_row));
    frame.render_stateful_widget(table, area, &mut state);
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
    let rows = board.items.iter().map(|item| {
        Row::new([
            Cell::from(clean(&item.key)),
            number(item.attempt),
            number(item.failures),
            number(item.deltas.len() + item.leased_deltas.len()),
            Cell::from(detail(item)),
        ])
    });
    let headings =
        [("KEY", false), ("ATTEMPT", true), ("FAILURES", true), ("DELTAS", true), ("DETAIL", false)];
    let width = Constraint::Length;
    let widths = [Constraint::Fill(2), width(7), width(8), width(6), Constraint::Fill(3)];
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
        Row::new([
            number(event.resource_version),
            Cell::from(event.at.to_string()),
            Cell::from(event.event.as_str()),
            Cell::from(clean(&detail)),
        ])
    });
    let headings = [("VERSION", true), ("AT", false), ("EVENT", false), ("DETAIL", false)];
    let width = Constraint::Length;
    let widths = [width(9), width(24), width(10), Constraint::Fill(1)];
    let mut state = TableState::new().with_selected(Some(board.row));
    frame.render_stateful_widget(table(rows.collect(), &headings, &widths, &styles), body, &mut state);
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
