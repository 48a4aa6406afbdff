//! Tables with aligned columns.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Spaces between columns.
const GAP: usize = 2;
/// Minimum width of a column that is narrowed to fit the terminal.
const NARROWEST: usize = 8;
/// Maximum width of a cell if the output is not a terminal.
const CELL_WIDTH_MAX: usize = 200;

/// The meaning of a cell, shown as a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::cli::client) enum Tone {
    /// No colour.
    #[default]
    Plain,
    /// A heading or label: bold.
    Heading,
    /// Something that needs attention: yellow.
    Notice,
    /// Something to repair: red.
    Bad,
    /// Less important: dim.
    Dim,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli::client) struct Cell {
    text: String,
    tone: Tone,
    is_number: bool,
}

/// Rows that are aligned and printed together. Later rows keep the column widths of the first rows.
#[derive(Debug)]
pub(in crate::cli::client) struct Table {
    headings: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
    widths: Vec<usize>,
    has_colors: bool,
    width: Option<usize>,
}

impl Cell {
    /// A text. Control characters become spaces, so that no object or error can change the terminal.
    pub(in crate::cli::client) fn new(text: impl AsRef<str>) -> Self {
        Self { text: clean(text.as_ref()), tone: Tone::Plain, is_number: false }
    }

    /// A text whose spaces have a meaning.
    pub(in crate::cli::client) fn verbatim(text: String) -> Self {
        Self { text, tone: Tone::Plain, is_number: false }
    }

    /// A number, aligned to the right.
    #[expect(clippy::needless_pass_by_value, reason = "numbers are copied")]
    pub(in crate::cli::client) fn number(number: impl ToString) -> Self {
        Self { text: number.to_string(), tone: Tone::Plain, is_number: true }
    }

    /// A number that has a tone unless it is 0.
    pub(in crate::cli::client) fn count(number: u64, tone: Tone) -> Self {
        let cell = Self::number(number);
        if number == 0 { cell } else { cell.tone(tone) }
    }

    /// An optional text.
    pub(in crate::cli::client) fn optional(text: Option<impl AsRef<str>>) -> Self {
        text.map_or_else(|| Self::new("-").tone(Tone::Dim), Self::new)
    }

    /// The cell, aligned to the left.
    #[must_use]
    pub(in crate::cli::client) fn left(mut self) -> Self {
        self.is_number = false;
        self
    }

    /// The cell with a tone.
    #[must_use]
    pub(in crate::cli::client) fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }

    fn width(&self) -> usize {
        self.text.width()
    }

    /// The cell in a column of this width, cut to `longest`. The last column of a row gets no trailing spaces.
    fn padded(&self, width: usize, longest: usize, is_last: bool, has_colors: bool) -> String {
        let text = cut(&self.text, longest);
        let spaces = " ".repeat(width.saturating_sub(text.width()));
        let code = match self.tone {
            Tone::Plain => "",
            Tone::Heading => "\x1b[1m",
            Tone::Notice => "\x1b[33m",
            Tone::Bad => "\x1b[31m",
            Tone::Dim => "\x1b[2m",
        };
        let text = if has_colors && !code.is_empty() { format!("{code}{text}\x1b[0m") } else { text };
        match (self.is_number, is_last) {
            (true, _) => spaces + &text,
            (false, true) => text,
            (false, false) => text + &spaces,
        }
    }
}

impl Table {
    /// Creates a table with these headings. A list of labels and values has no headings. `width` is the width of the
    /// terminal.
    pub(in crate::cli::client) fn new(headings: &[&str], has_colors: bool, width: Option<usize>) -> Self {
        let headings = headings.iter().map(|heading| Cell::new(heading).tone(Tone::Heading)).collect();
        Self { headings, rows: Vec::new(), widths: Vec::new(), has_colors, width }
    }

    /// Adds a row.
    pub(in crate::cli::client) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The rows that were added since the last call, as text. The first call also returns the headings.
    pub(in crate::cli::client) fn take(&mut self) -> String {
        let mut rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return String::new();
        }
        if self.widths.is_empty() {
            if !self.headings.is_empty() {
                let numbers = rows.first().map(Vec::as_slice).unwrap_or_default();
                for (heading, cell) in self.headings.iter_mut().zip(numbers) {
                    heading.is_number = cell.is_number;
                }
                rows.insert(0, self.headings.clone());
            }
            self.widths = widths(&rows, self.width);
        }
        let mut text = String::new();
        for row in rows {
            let last = row.len().saturating_sub(1);
            for (index, (cell, width)) in row.iter().zip(&self.widths).enumerate() {
                // For a program that reads the table, complete keys are more useful than aligned columns.
                let longest = if self.width.is_some() { *width } else { CELL_WIDTH_MAX };
                text.push_str(&cell.padded(*width, longest, index == last, self.has_colors));
                if index != last {
                    text.push_str(&" ".repeat(GAP));
                }
            }
            text.push('\n');
        }
        text
    }
}

/// The widths of the columns. On a terminal, the widest columns are made narrower until a row fits.
fn widths(rows: &[Vec<Cell>], terminal: Option<usize>) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let mut widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max().unwrap_or_default()
        })
        .map(|width| width.min(CELL_WIDTH_MAX))
        .collect();
    // The last column is not padded, so its text may be longer in later rows.
    let last_is_text = rows.first().and_then(|row| row.last()).is_some_and(|cell| !cell.is_number);
    let Some(terminal) = terminal else {
        if let Some(last) = widths.last_mut().filter(|_| last_is_text) {
            *last = CELL_WIDTH_MAX;
        }
        return widths;
    };
    let gaps = GAP * columns.saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > terminal {
        match widths.iter_mut().max().filter(|widest| **widest > NARROWEST) {
            Some(widest) => *widest -= 1,
            None => break,
        }
    }
    let left = terminal.saturating_sub(widths.iter().sum::<usize>() + gaps);
    if let Some(last) = widths.last_mut().filter(|_| last_is_text) {
        *last += left;
    }
    widths
}

/// The text without control characters.
pub(in crate::cli::client) fn clean(text: &str) -> String {
    let is_unsafe =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if is_unsafe(c) { ' ' } else { c }).collect()
}

/// The text, truncated to a width with an ellipsis.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 1);
    for c in text.chars() {
        used += c.width().unwrap_or_default();
        if used > width {
            break;
        }
        kept.push(c);
    }
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: Option<usize>, has_colors: bool) -> Table {
        let mut table = Table::new(&["KEY", "N", "ERROR"], has_colors, width);
        table.row(vec![Cell::new("sku-1"), Cell::number(7), Cell::new("no route\x1b[31m to host")]);
        table.row(vec![Cell::new("価格"), Cell::count(12, Tone::Bad), Cell::optional(None::<&str>)]);
        table
    }

    #[test]
    fn columns_are_aligned_and_control_characters_are_removed() {
        let expected = "\
KEY     N  ERROR
sku-1   7  no route [31m to host
価格   12  -
";
        let mut table = table(None, false);
        assert_eq!(table.take(), expected);
        table.row(vec![Cell::new("a-long-key"), Cell::number(1), Cell::new("x")]);
        assert_eq!(table.take(), "a-long-key   1  x\n", "without a terminal, later rows are whole");
    }

    #[test]
    fn a_table_fits_the_terminal() {
        let mut table = table(Some(22), false);
        assert_eq!(table.take(), "KEY     N  ERROR\nsku-1   7  no route […\n価格   12  -\n");
        table.row(vec![Cell::new("a-long-key"), Cell::number(1), Cell::new("x")]);
        assert_eq!(table.take(), "a-lo…   1  x\n", "later rows have the widths of the first");
    }

    #[test]
    fn colours_are_outside_of_the_padding() {
        let text = table(None, true).take();
        assert!(text.starts_with("\x1b[1mKEY\x1b[0m     \x1b[1mN\x1b[0m  \x1b[1mERROR\x1b[0m\n"), "{text:?}");
        assert!(text.contains("\x1b[31m12\x1b[0m"), "{text:?}");
    }
}
