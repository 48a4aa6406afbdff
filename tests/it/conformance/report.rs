//! What a replay compared, and where it differed in a way that is expected.

use std::collections::BTreeMap;
use std::fmt;

/// Counts of a replay.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Steps, or rows, whose outcome was compared.
    pub(crate) compared: u64,
    /// Steps that were ignored because the trace was stopped.
    pub(crate) ignored: u64,
    /// Differences that are named in advance, by name.
    pub(crate) expected: BTreeMap<&'static str, u64>,
    /// Everything else that differed; each text names its trace and step.
    pub(crate) wrong: Vec<String>,
}

impl Report {
    /// Counts a difference that was named in advance.
    pub(crate) fn expect(&mut self, name: &'static str) {
        *self.expected.entry(name).or_default() += 1;
    }

    /// Prints the counts. Fails the test if anything was wrong, or if much was ignored.
    pub(crate) fn finish(self, what: &str) -> Self {
        println!("{what}: {self}");
        let shown: Vec<_> = self.wrong.iter().take(5).map(String::as_str).collect();
        assert!(shown.is_empty(), "{what}: {} wrong, first:\n{}", self.wrong.len(), shown.join("\n\n"));
        assert!(self.ignored * 10 <= self.compared, "{what}: too little was compared");
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
