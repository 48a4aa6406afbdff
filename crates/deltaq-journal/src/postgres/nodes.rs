//! The nodes that share a database, and the owners of its partitions.
//!
//! A node is a row of the table `nodes`, which it renews by heartbeats. A node that sends none for [`TTL`](super::owner::TTL) is removed by another node, and
//! only then its partitions can be claimed. The heartbeat and the removal change the same row, so one of them comes first: a node that was
//! removed finds that out by its next heartbeat.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};

use super::connect::{self, Protection, simple_rows};
use super::error::database;
use super::owner::{Loads, Member};
use super::{Settings, migrate, sql};
use crate::store::Error;

/// How long a heartbeat may take.
const HEARTBEAT_MAX: Duration = Duration::from_secs(2);

/// A node, as the others know it.
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
    /// The partitions that it has failed to load lately.
    pub unloadable: Vec<i16>,
}

/// What a heartbeat finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whether this process is still a member.
    pub condition: Condition,
    /// The nodes, including this one, by name.
    pub nodes: Vec<Node>,
    /// The name of each partition's owner. It may have been removed since.
    pub owners: Vec<Option<String>>,
}

/// Whether a process is still a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It is: until the next heartbeat is due, no other node claims its partitions.
    Member,
    /// It was removed: other nodes may have claimed its partitions.
    Removed,
    /// Another process has joined with its name.
    Replaced,
}

/// The membership of this process, on a connection of its own.
#[derive(Debug)]
pub struct Membership {
    settings: Settings,
    member: Member,
    url: String,
    connection: Option<PgConnection>,
    /// The number of the host that the connection leads to.
    host: usize,
}

impl Membership {
    /// Joins the nodes of a database. Creates the tables, and `partitions` partitions, if there are none. Returns the number of
    /// partitions, and what an acknowledged commit survives.
    ///
    /// # Errors
    /// As [`Postgres::open`](super::Postgres::open).
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
        // The lock comes before the number.
        let count = joined.last().ok_or(sqlx::Error::RowNotFound).and_then(|row| row.try_get::<i64, _>(0));
        let count = count.map_err(|error| database(doing, error))?;
        let membership = Self { settings, member, url, connection: Some(connection), host };
        Ok((membership, usize::try_from(count).unwrap_or_default(), protection))
    }

    /// This process as a member.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// The name of this node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.member.name
    }

    /// Joins again as another member, after a removal. The partitions of the former member are lost. If another process has the name,
    /// the next heartbeat says so.
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

    /// Renews the membership, gives up partitions, and reads the nodes and the owners from before that. `removes` nodes that have sent no
    /// heartbeat for [`TTL`](super::owner::TTL).
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

/// Reads the rows of a heartbeat: those of nodes come without a partition.
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
