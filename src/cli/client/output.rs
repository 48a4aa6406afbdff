//! Results on stdout: tables for people, JSON for programs, names for shell scripts.

mod json;
mod sparkline;
mod table;

use std::io::{self, IsTerminal as _, Write as _};

use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

pub(super) use self::sparkline::{chunks, largest, narrowed, sparkline};
pub(super) use self::table::{Cell, Table, Tone, clean};
use super::failure::Failure;
use super::reply::parse;
use crate::config;

/// How to print a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Columns for people; colours on a terminal, unless NO_COLOR is set.
    #[default]
    Table,
    /// One JSON document; a list is an array.
    Json,
    /// One JSON document per line.
    Ndjson,
    /// One name per line: of a queue, a key, or a lease.
    Name,
}

/// A number of things, such as `1 key` or `2 keys`.
pub(super) fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// An entry of a list.
pub(super) trait Row: DeserializeOwned {
    /// The headings.
    const COLUMNS: &'static [&'static str];

    /// One cell per heading.
    fn cells(&self) -> Vec<Cell>;

    /// The name, for scripts.
    fn name(&self) -> String;
}

/// The standard output.
#[derive(Debug)]
pub(super) struct Output {
    format: Format,
    has_colors: bool,
    /// The width of the terminal; `None` if stdout is not a terminal.
    width: Option<usize>,
}

/// A list that is printed page by page.
#[derive(Debug)]
pub(super) struct ListOutput<'o> {
    output: &'o Output,
    table: Table,
    printed: u64,
}

impl Output {
    pub(super) fn new(format: Format) -> Self {
        let width = io::stdout().is_terminal().then(terminal_width);
        Self { format, has_colors: width.is_some() && config::permits_colors(), width }
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Prints text immediately.
    pub(super) fn text(text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::Write)
    }

    /// Prints one document: `fields` as a table, its text as JSON, or its name.
    pub(super) fn document(
        &self,
        text: &RawValue,
        name: &str,
        fields: Vec<(&str, Cell)>,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table => {
                let mut table = Table::new(&[], self.has_colors, self.width);
                for (label, cell) in fields {
                    table.row(vec![Cell::new(label).tone(Tone::Heading), cell.left()]);
                }
                Self::text(&table.take())
            }
            Format::Json => Self::text(&format!("{}\n", self.json(text.get()))),
            Format::Ndjson => Self::text(&format!("{}\n", json::on_one_line(text.get()))),
            Format::Name => Self::text(&format!("{name}\n")),
        }
    }

    /// A table without headings, as text.
    pub(super) fn table(&self, rows: Vec<Vec<Cell>>) -> String {
        let mut table = Table::new(&[], self.has_colors, self.width);
        for row in rows {
            table.row(row);
        }
        table.take()
    }

    /// How many columns the terminal has beside a text of this width, at most `most`; `most` if stdout is not a terminal.
    pub(super) fn columns_beside(&self, beside: usize, most: usize) -> usize {
        self.width.map_or(most, |width| width.saturating_sub(beside).min(most))
    }

    /// Prints the result of a change: a sentence, its text as JSON, or a name.
    pub(super) fn change(&self, text: &RawValue, name: &str, sentence: &str) -> Result<(), Failure> {
        match self.format {
            Format::Table => Self::text(&format!("{sentence}\n")),
            _ => self.document(text, name, Vec::new()),
        }
    }

    /// Prints one document as JSON, even for the table format.
    pub(super) fn json_document(&self, text: &RawValue, name: &str) -> Result<(), Failure> {
        match self.format {
            Format::Table => Self::text(&(self.json(text.get()) + "\n")),
            _ => self.document(text, name, Vec::new()),
        }
    }

    /// Prints a document that people keep as a file: indented, unless it is to be on one line.
    pub(super) fn file(&self, text: &RawValue, name: &str) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Json => Self::text(&format!("{}\n", json::indented(text.get()))),
            _ => self.document(text, name, Vec::new()),
        }
    }

    /// Begins a list.
    pub(super) fn list<T: Row>(&self) -> ListOutput<'_> {
        ListOutput { output: self, table: Table::new(T::COLUMNS, self.has_colors, self.width), printed: 0 }
    }

    /// A document, indented on a terminal.
    fn json(&self, text: &str) -> String {
        if self.width.is_some() { json::indented(text) } else { json::on_one_line(text) }
    }
}

impl ListOutput<'_> {
    /// Prints entries.
    pub(super) fn add<T: Row>(&mut self, entries: &[Box<RawValue>]) -> Result<(), Failure> {
        let mut text = String::new();
        for entry in entries {
            match self.output.format {
                Format::Table => self.table.row(parse::<T>(entry)?.cells()),
                Format::Json => {
                    text.push_str(if self.printed == 0 { "[" } else { ",\n" });
                    text.push_str(&self.output.json(entry.get()));
                }
                Format::Ndjson => {
                    text.push_str(&json::on_one_line(entry.get()));
                    text.push('\n');
                }
                Format::Name => {
                    text.push_str(&parse::<T>(entry)?.name());
                    text.push('\n');
                }
            }
            self.printed += 1;
        }
        text.push_str(&self.table.take());
        Output::text(&text)
    }

    /// Ends the list. A table without rows says that it is empty.
    pub(super) fn finish(self, empty: &str) -> Result<(), Failure> {
        match (self.output.format, self.printed) {
            (Format::Json, 0) => Output::text("[]\n"),
            (Format::Json, _) => Output::text("]\n"),
            (Format::Table, 0) => {
                eprintln!("{empty}");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn terminal_width() -> usize {
    const USUAL: usize = 80;
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(USUAL)
}

/// A duration with its two largest units, such as `3m05s`.
pub(super) fn duration_text(ms: u64) -> String {
    let seconds = ms / 1_000;
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, 0) => format!("{ms}ms"),
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, s) => format!("{m}m{s:02}s"),
        (0, h, m, _) => format!("{h}h{m:02}m"),
        (d, h, _, _) => format!("{d}d{h:02}h"),
    }
}
