//! What is wrong with a file, and where.

use std::fmt;

/// What is wrong with a value of a file.
#[derive(Debug)]
pub(super) struct Fault {
    /// The names of the members around the value, innermost first.
    path: Vec<String>,
    /// The line, from 1.
    line: Option<usize>,
    why: String,
}

impl Fault {
    /// A fault at a line.
    pub(super) fn at(line: usize, why: impl Into<String>) -> Self {
        Self { path: Vec::new(), line: Some(line), why: why.into() }
    }

    /// A fault whose line is not known.
    pub(super) fn anywhere(why: impl Into<String>) -> Self {
        Self { path: Vec::new(), line: None, why: why.into() }
    }

    /// Adds the member, or the index, that has the value.
    #[must_use]
    pub(super) fn inside(mut self, name: &str) -> Self {
        self.path.push(name.to_owned());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        for (depth, name) in self.path.iter().rev().enumerate() {
            write!(f, "{}{name}", if depth == 0 { "" } else { "." })?;
        }
        if !self.path.is_empty() {
            f.write_str(": ")?;
        }
        f.write_str(&self.why)
    }
}
