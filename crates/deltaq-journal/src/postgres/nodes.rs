//! The nodes that share a database, and the owners of its partitions.
//!
//! A node is a row of the table `nodes`, which the node renews by heartbeats. If a node sends no heartbeat for
//! [`TTL`](super::owner::TTL), another node removes it, and only then can its partitions be claimed. Heartbeat and
//! removal change the same row, so one of them comes first. A removed node learns of its removal from its next
//! heartbeat.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};

use super::connect::{self, Protection, simple_rows};
use super::error::database;
use super::owner::{Loads, Member};
use super::{Settings, migrate, sql};
use crate::store::Error;

/// Timeout of a heartbeat.
const HEARTBEAT_MAX: Duration = Duration::from_secs(2);

/// A node, as other nodes see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The address of its API.
    pub url: String,
    /// Whether it is stopping.
    pub is_leaving: bool,
    /// Whether it owns a partition that it has loaded.
    pub has_loaded: bool,
    /// The partitions that it has recently failed to load.
    pub unloadable: Vec<i16>,
}

/// The result of a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whether this process is still a member.
    pub condition: Condition,
    /// The nodes, including this one, by name.
    pub nodes: Vec<Node>,
    /// The name of each partition's owner. The owner may have been removed since.
    pub owners: Vec<Option<String>>,
}

/// Whether a process is still a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It is a member. No other node claims its partitions before the next heartbeat is due.
    Member,
    /// It was removed. Other nodes may have claimed its partitions.
    Removed,
    /// Another process has joined with its name.
    Replaced,
}

/// The membership of this process. It has its own connection.
#[derive(Debug)]
pub struct Membership {
    settings: Settings,
    member: Member,
    url: String,
    connection: Option<PgConnection>,
    /// The index of the host that the connection uses.
    host: usize,
}

impl Membership {
    /// Joins the nodes of a database. Creates the tables and `partitions` partitions if there are none. Returns the
    /// number of partitions, and the failures that an acknowledged commit survives.
    ///
    /// # Errors
    /// Same as [`Postgres::open`](super::Postgres::open).
    pub async fn join(
        settings: Settings,
        name: String,
        url: String,
        partitions: u16,
    ) -> Result<(Self, usize, Protection), Error> {
        let (mut connection, host) = connect::writable(&settings, 0).await?;
        migrate::migrate(&mut connection, settings.name()).await?;
        let protection = connect::protection(&mut connection).await?;
        let member = Member { name, instance: connect::random()? };
        let doing = "join the nodes";
        let joined = simple_rows(&mut connection, doing, sql::join(&member, &url, partitions)).await?;
        // The first row comes from the lock, and the last row has the number.
        let count = joined.last().ok_or(sqlx::Error::RowNotFound).and_then(|row| row.try_get::<i64, _>(0));
        let count = count.map_err(|error| database(doing, error))?;
        let membership = Self { settings, member, url, connection: Some(connection), host };
        Ok((membership, usize::try_from(count).unwrap_or_default(), protection))
    }

    /// The identity of this process as a member.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// The name of this node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.member.name
    }

    /// Joins again as another member, after a removal. The partitions of the former member are lost. If another
    /// process has the same name, the next heartbeat reports it.
    ///
    /// # Errors
    /// The database can't be reached.
    pub async fn join_again(&mut self) -> Result<(), Error> {
        let member = Member { name: self.member.name.clone(), instance: connect::random()? };
        let statement = sql::join_again(&member, &self.url);
        self.run("join the nodes", statement).await?;
        self.member = member;
        Ok(())
    }

    /// Renews the membership, gives up partitions, and returns the nodes and owners as they were before this
    /// heartbeat. With `removes`, also removes nodes that have sent no heartbeat for [`TTL`](super::owner::TTL).
    ///
    /// # Errors
    /// The database can't be reached.
    pub async fn heartbeat(
        &mut self,
        is_leaving: bool,
        loads: &Loads,
        removes: bool,
    ) -> Result<Found, Error> {
        let doing = "send a heartbeat";
        let rows = self.run(doing, sql::heartbeat(&self.member, is_leaving, loads, removes)).await?;
        found(&rows, &self.member).map_err(|error| database(doing, error))
    }

    /// Ends the membership.
    ///
    /// # Errors
    /// The database can't be reached.
    pub async fn leave(mut self) -> Result<(), Error> {
        let statement = sql::leave(&self.member);
        self.run("leave the nodes", statement).await?;
        Ok(())
    }

    /// Runs a statement on the connection, or on a new one.
    async fn run(&mut self, doing: &str, statement: String) -> Result<Vec<PgRow>, Error> {
        let mut connection = if let Some(connection) = self.connection.take() {
            connection
        } else {
            let (connection, host) = connect::writable(&self.settings, self.host).await?;
            self.host = host;
            connection
        };
        let run = simple_rows(&mut connection, doing, statement);
        let rows = tokio::time::timeout(HEARTBEAT_MAX, run).await.unwrap_or_else(|elapsed| {
            let doing = format!("{doing}: the database did not respond within {} s", HEARTBEAT_MAX.as_secs());
            Err(Error::Failed { doing, source: Some(elapsed.into()) })
        })?;
        self.connection = Some(connection);
        Ok(rows)
    }
}

/// Reads the rows of a heartbeat. Rows of nodes have no partition.
fn found(rows: &[PgRow], member: &Member) -> Result<Found, sqlx::Error> {
    let (mut nodes, mut owners) = (Vec::new(), Vec::new());
    let mut condition = Condition::Removed;
    for row in rows {
        let name: Option<String> = row.try_get("name")?;
        let partition: Option<i16> = row.try_get("partition")?;
        let (None, Some(name)) = (partition, &name) else {
            owners.push(name);
            continue;
        };
        if *name == member.name {
            let is_own = row.try_get::<i64, _>("instance")? == member.instance;
            condition = if is_own { Condition::Member } else { Condition::Replaced };
        }
        nodes.push(Node {
            name: name.clone(),
            url: row.try_get("url")?,
            is_leaving: row.try_get("is_leaving")?,
            has_loaded: row.try_get("has_loaded")?,
            unloadable: row.try_get("unloadable")?,
        });
    }
    Ok(Found { condition, nodes, owners })
}
