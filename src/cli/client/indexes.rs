//! `deltaq indexes`, and the lookup of `deltaq known`.

use std::time::Duration;

use clap::Args;
use deltaq_client::Call;
use deltaq_types::duration;
use deltaq_types::name::Name;
use deltaq_types::{IndexDocument, IndexState, IndexValueDocument};

use super::failure::Failure;
use super::output::{Cell, Row, Tone};
use super::pages::{Limit, print_list};
use super::session::{Execute, Session};

/// How long the server may wait for an index that is being built.
const INDEX_WAIT: Duration = Duration::from_secs(10);

/// A value in an index.
#[derive(Debug, Clone, Args)]
pub struct Lookup {
    /// Only objects that have the value --value in this index.
    #[arg(long, value_name = "NAME", requires = "value", conflicts_with = "key")]
    pub index: Option<String>,
    /// The value.
    #[arg(long, value_name = "TEXT", requires = "index", allow_hyphen_values = true)]
    pub value: Option<String>,
}

/// `deltaq indexes`.
#[derive(Debug, Clone, Args)]
pub struct Indexes {
    /// The queue.
    pub queue: Name,
    /// List the values of this index with the number of keys of each.
    pub index: Option<String>,
    /// Only values with this prefix.
    #[arg(long, requires = "index")]
    pub prefix: Option<String>,
    /// The limit.
    #[command(flatten)]
    pub limit: Limit,
}

impl Lookup {
    /// Adds the lookup to the call, if there is one.
    pub(super) fn add_to(&self, call: Call) -> Call {
        let call = call.query("index", self.index.as_deref()).query("value", self.value.as_deref());
        if self.index.is_some() { waiting(call) } else { call }
    }
}

/// Makes the call wait for an index that is being built.
fn waiting(call: Call) -> Call {
    call.query("wait", Some(duration::format(INDEX_WAIT))).wait(INDEX_WAIT)
}

impl Execute for Indexes {
    const OPERATIONS: &'static [&'static str] = &["list_indexes", "list_index_values"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let Some(index) = &self.index else {
            let call = || session.on_queue("list_indexes", &self.queue);
            return print_list::<IndexDocument>(session, call, &self.limit, "no indexes").await;
        };
        let call = || {
            let call = session.call("list_index_values", self.queue.as_str(), index)?;
            let call = call.query("prefix", self.prefix.as_deref());
            Ok(waiting(call))
        };
        print_list::<IndexValueDocument>(session, call, &self.limit, "no values").await
    }
}

impl Row for IndexDocument {
    const COLUMNS: &'static [&'static str] = &["INDEX", "POINTER", "STATE", "VALUES", "KEYS", "OMITTED"];

    fn cells(&self) -> Vec<Cell> {
        let is_building = self.state == IndexState::Building;
        let tone = if is_building { Tone::Notice } else { Tone::Plain };
        let state = Cell::new(self.state.as_str()).tone(tone);
        vec![
            Cell::new(&self.name),
            Cell::new(&self.pointer),
            state,
            Cell::number(self.values),
            Cell::number(self.keys),
            Cell::count(self.omitted_values, Tone::Notice),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Row for IndexValueDocument {
    const COLUMNS: &'static [&'static str] = &["VALUE", "KEYS"];

    fn cells(&self) -> Vec<Cell> {
        vec![Cell::new(&self.value), Cell::number(self.keys)]
    }

    fn name(&self) -> String {
        self.value.clone()
    }
}
