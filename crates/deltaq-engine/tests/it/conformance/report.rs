//! The result of a replay: compared steps, expected differences, and errors.

use std::collections::BTreeMap;
use std::fmt;

/// Counts of a replay.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Compared steps or rows.
    pub(crate) compared: u64,
    /// Steps after the point at which a trace was stopped.
    pub(crate) ignored: u64,
    /// Counts of the expected differences, by name.
    pub(crate) expected: BTreeMap<&'static str, u64>,
    /// All other differences. Each text names its trace and step.
    pub(crate) wrong: Vec<String>,
}

impl Report {
    /// Counts an expected difference.
    pub(crate) fn expect(&mut self, name: &'static str) {
        *self.expected.entry(name).or_default() += 1;
    }

    /// Prints the counts. Fails the test if there are other differences, or if more than a tenth was ignored.
    pub(crate) fn finish(self, name: &str) -> Self {
        println!("{name}: {self}");
        let shown: Vec<_> = self.wrong.iter().take(5).map(String::as_str).collect();
        assert!(shown.is_empty(), "{name}: {} wrong, first:\n{}", self.wrong.len(), shown.join("\n\n"));
        assert!(self.ignored * 10 <= self.compared, "{name}: too many steps were ignored");
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps compared, {} ignored", self.compared, self.ignored)?;
        for (name, count) in &self.expected {
            write!(f, "\n  {count} times: {name}")?;
        }
        Ok(())
    }
}
