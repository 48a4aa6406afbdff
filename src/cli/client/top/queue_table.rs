//! The table of the queues, with as many columns as fit.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, TableState};

use super::board::Board;
use super::style::{Styles, table};
use crate::cli::client::output::{Tone, duration_text};
use crate::cli::client::queues::state_word;

/// Number of columns after the name.
const COLUMNS: usize = 8;
/// The headings after the name.
const HEADINGS: [&str; COLUMNS] =
    ["READY", "DELAYED", "LEASED", "PARKED", "KNOWN", "CHANGES/S", "OLDEST", "STATE"];
const PARKED: usize = 3;
const STATE: usize = 7;
/// The columns that a narrow terminal leaves out, the first one first. A column that is left out misleads nobody; a number that is cut
/// is a wrong number.
const LEFT_OUT: [usize; COLUMNS] = [4, 1, 5, 2, STATE, 6, PARKED, 0];
/// A name is cut to this width before a column is left out.
const NAME_WIDTH: usize = 16;

/// The texts of a row after the name, and their styles.
type Cells = [(String, Style); COLUMNS];

pub(super) fn draw(board: &Board, frame: &mut Frame<'_>, area: Rect) {
    let styles = Styles::of(board);
    let rows: Vec<Cells> = board.queues.iter().map(|queue| cells(board, queue, &styles)).collect();
    let widths = widths(&rows);
    let name = board.queues.iter().map(|queue| queue.name.len()).max().unwrap_or_default();
    let shown = fitting(&widths, name.min(NAME_WIDTH), area.width.into());
    let rows = board.queues.iter().zip(rows).map(|(queue, cells)| {
        let name = std::iter::once(Cell::from(queue.name.clone()));
        let cells = cells.into_iter().enumerate().filter(|(column, _)| shown.contains(column));
        let cells = cells.map(|(column, (text, style))| {
            let line = Line::from(text);
            Cell::from(if column == STATE { line } else { line.right_aligned() }).style(style)
        });
        Row::new(name.chain(cells))
    });
    let heading = |column: &usize| Some((*HEADINGS.get(*column)?, *column != STATE));
    let headings: Vec<_> =
        std::iter::once(("QUEUE", false)).chain(shown.iter().filter_map(heading)).collect();
    let width = |column: &usize| {
        let width = widths.get(*column).copied().unwrap_or_default();
        Constraint::Length(width.try_into().unwrap_or(u16::MAX))
    };
    let widths: Vec<_> = std::iter::once(Constraint::Fill(1)).chain(shown.iter().map(width)).collect();
    let table = table(rows.collect(), &headings, &widths, &styles).column_spacing(1);
    let mut state = TableState::new().with_selected(Some(board.queue_row));
    frame.render_stateful_widget(table, area, &mut state);
}

fn cells(board: &Board, queue: &deltaq_types::QueueDocument, styles: &Styles) -> Cells {
    let status = &queue.status;
    let (state, tone) = state_word(status);
    let plain = |text: String| (text, Style::new());
    let rate = board.rates.get(&queue.name).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
    let age = match status.oldest_unacknowledged_age_ms {
        0 => "-".to_owned(),
        age_ms => duration_text(age_ms),
    };
    [
        plain(status.ready.to_string()),
        plain(status.delayed.to_string()),
        plain(status.leased.to_string()),
        (status.parked.to_string(), if status.parked > 0 { styles.bad } else { Style::new() }),
        plain(status.known.to_string()),
        plain(rate),
        plain(age),
        (state.to_owned(), if tone == Tone::Notice { styles.notice } else { Style::new() }),
    ]
}

/// The width of each column.
fn widths(rows: &[Cells]) -> Vec<usize> {
    let width = |(column, heading): (usize, &&str)| {
        let cells = rows.iter().filter_map(|cells| cells.get(column)).map(|(text, _)| text.chars().count());
        cells.chain([heading.len()]).max().unwrap_or_default()
    };
    HEADINGS.iter().enumerate().map(width).collect()
}

/// The columns that fit beside a name of this width, in their order.
fn fitting(widths: &[usize], name: usize, width: usize) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..widths.len()).collect();
    let needed = |shown: &[usize]| {
        name + shown.iter().filter_map(|column| widths.get(*column)).map(|width| width + 1).sum::<usize>()
    };
    for column in LEFT_OUT {
        if needed(&shown) <= width {
            break;
        }
        shown.retain(|kept| *kept != column);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_leaves_out_columns_and_cuts_none() {
        let widths = [6, 7, 6, 6, 7, 8, 6, 6];
        let named = |width| {
            let shown = fitting(&widths, 16, width);
            let taken: usize = shown.iter().map(|column| widths[*column] + 1).sum();
            assert!(shown.is_empty() || taken + 16 <= width, "{width}: {shown:?}");
            shown.iter().map(|column| HEADINGS[*column]).collect::<Vec<_>>()
        };
        (0..120).for_each(|width| drop(named(width)));
        assert_eq!(named(80), HEADINGS);
        assert_eq!(named(70), ["READY", "DELAYED", "LEASED", "PARKED", "CHANGES/S", "OLDEST", "STATE"]);
        assert_eq!(named(44), ["READY", "PARKED", "OLDEST", "STATE"]);
        assert_eq!(named(30), ["READY", "PARKED"]);
        assert_eq!(named(10), [""; 0]);
    }
}
