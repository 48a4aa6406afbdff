//! The styles of the board, and its tables.

use ratatui::layout::Constraint;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table};

use super::board::Board;

/// Styles. Nothing depends on colours alone.
pub(super) struct Styles {
    pub(super) heading: Style,
    pub(super) selected: Style,
    pub(super) bad: Style,
    pub(super) notice: Style,
    pub(super) dim: Style,
}

impl Styles {
    pub(super) fn of(board: &Board) -> Self {
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

pub(super) fn table<'a>(
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
