//! The nodes that share a database, and the owners of its partitions.
//!
//! A node is a row of the table `nodes`, which the node renews by heartbeats. If a node sends no heartbeat for
//! [`TTL`], another node removes it, and only then can its partitions be claimed. Heartbeat and removal change the same
//! row, so one of them comes first. A removed node learns of its removal from its next heartbeat.

use std::fmt;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};
use tokio::time::Instant;

use super::connect::{self, Protection, simple, simple_rows};
use super::error::database;
use super::owner::{Member, Report, TTL};
use super::{Settings, migrate, sql};
use crate::store::Error;

/// Timeout of a heartbeat.
const HEARTBEAT_MAX: Duration = Duration::from_secs(2);
/// A process whose row does not change for this long, in which it sends several heartbeats, does not run.
const QUIET: Duration = Duration::from_secs(2);

/// A node, as other nodes see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The address of its API.
    pub url: String,
    /// The random number of the process.
    pub instance: i64,
    /// Whether it is stopping.
    pub is_leaving: bool,
    /// Whether it takes partitions: it and the other nodes have called each other.
    pub has_joined: bool,
    /// The instances of the nodes that it has called.
    pub reached: Vec<i64>,
    /// The salted digests of the secrets that it accepts. The first one is of the secret that it sends.
    pub secrets: Vec<String>,
    /// The number of its queues.
    pub queues: u64,
    /// The time since its last heartbeat, by the clock of the database.
    pub heartbeat_age: Duration,
    /// When it sent its last heartbeat, in microseconds since 1970 by the clock of the database.
    pub heartbeat_us: i64,
    /// How far its wall clock is ahead of the clock of the database, in milliseconds.
    pub clock_ahead_ms: i64,
    /// Whether it owns a partition that it has loaded.
    pub has_loaded: bool,
    /// The partitions that it has recently failed to load.
    pub unloadable: Vec<i16>,
}

impl Node {
    /// Whether the node has sent a heartbeat within [`TTL`].
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.heartbeat_age < TTL
    }

    /// Whether the node and a process with these secrets accept each other's calls.
    fn shares(&self, secrets: &dyn Fn(&Member) -> Vec<String>) -> bool {
        let own = secrets(&Member { name: self.name.clone(), instance: self.instance });
        let has =
            |accepted: &[String], sent: Option<&String>| sent.is_none_or(|sent| accepted.contains(sent));
        has(&self.secrets, own.first()) && has(&own, self.secrets.first())
    }
}

/// What a process needs to join the nodes of a database.
pub struct Join<'a> {
    /// The name of the node.
    pub name: String,
    /// The address of its API.
    pub url: String,
    /// The number of partitions (`cluster.partitions`).
    pub partitions: u16,
    /// The digests of the secrets that it accepts, with a member as salt.
    pub secrets: &'a (dyn Fn(&Member) -> Vec<String> + Sync),
}

impl fmt::Debug for Join<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join").field("name", &self.name).field("url", &self.url).finish_non_exhaustive()
    }
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
    /// The start time of the server that has answered, in microseconds. It identifies the server.
    pub server: i64,
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
    /// As [`Removed`](Self::Removed), but the database is another server. Its row of the name may be of an earlier process: a standby that
    /// lagged does not know this process.
    Forgotten,
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
    /// The server that has confirmed the last heartbeat.
    server: Option<i64>,
    /// The row of another process with the name on another server, and since when it has not changed.
    namesake: Option<(i64, i64, Instant)>,
}

impl Membership {
    /// Joins the nodes of a database. Creates the tables and the partitions if there are none. Returns the failures
    /// that an acknowledged commit survives.
    ///
    /// # Errors
    /// Same as [`Postgres::open`](super::Postgres::open), or the database has another number of partitions, or a node of the
    /// database has other secrets. In these cases nothing has changed.
    pub async fn join(settings: Settings, join: Join<'_>) -> Result<(Self, Protection), Error> {
        let Join { name, url, partitions, secrets } = join;
        let (mut connection, host) = connect::writable(&settings, 0).await?;
        migrate::migrate(&mut connection, settings.name()).await?;
        let protection = connect::protection(&mut connection).await?;
        let member = Member { name, instance: connect::random()? };
        let doing = "join the nodes";
        // The connection ends with an error, and the transaction with it.
        let rows = simple_rows(&mut connection, doing, sql::begin_join(partitions)).await?;
        // The first row comes from the lock.
        let (nodes, owners) =
            read(rows.get(1..).unwrap_or_default()).map_err(|error| database(doing, error))?;
        let refused = |why: String| {
            let doing = format!("join the nodes of the database {}: {why}", settings.name());
            Err(Error::Failed { doing, source: None })
        };
        if owners.len() != usize::from(partitions) {
            let found = owners.len();
            return refused(format!(
                "it has {found} partitions, and cluster.partitions is {partitions}: set cluster.partitions = {found}, because the \
                 number can't be changed"
            ));
        }
        if let Some(node) = nodes.iter().find(|node| node.is_live() && !node.shares(secrets)) {
            return refused(format!(
                "its node {:?} at {} has another secret. If this server belongs to the same cluster, its cluster.secret_file must \
                 have the same secret; otherwise storage.store must name another database",
                node.name, node.url
            ));
        }
        let digests = secrets(&member);
        simple(&mut connection, doing, sql::join(&member, &url, &digests)).await?;
        let connection = Some(connection);
        let membership = Self { settings, member, url, connection, host, server: None, namesake: None };
        Ok((membership, protection))
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
    /// process has the same name, the next heartbeat reports it. A row of a process that no longer runs is replaced.
    ///
    /// # Errors
    /// The database can't be reached.
    pub async fn join_again(&mut self) -> Result<(), Error> {
        let member = Member { name: self.member.name.clone(), instance: connect::random()? };
        let former = self.namesake.map(|(instance, ..)| instance);
        let statement = sql::join_again(&member, &self.url, former);
        self.run("join the nodes", statement).await?;
        self.member = member;
        self.namesake = None;
        Ok(())
    }

    /// Renews the membership, gives up partitions, and returns the nodes and owners as they were before this
    /// heartbeat. With `removes`, also removes nodes that have sent no heartbeat for [`TTL`].
    ///
    /// # Errors
    /// The database can't be reached.
    pub async fn heartbeat(&mut self, report: &Report, removes: bool) -> Result<Found, Error> {
        let doing = "send a heartbeat";
        let rows = self.run(doing, sql::heartbeat(&self.member, report, removes)).await?;
        let (nodes, owners) = read(&rows).map_err(|error| database(doing, error))?;
        let server = rows.first().map(|row| row.try_get("server")).transpose();
        let server = server.map_err(|error| database(doing, error))?.unwrap_or_default();
        let own = nodes.iter().find(|node| node.name == self.member.name);
        let condition = self.condition(own, server);
        Ok(Found { condition, nodes, owners, server })
    }

    /// What the row of this name on this server means for this process.
    fn condition(&mut self, own: Option<&Node>, server: i64) -> Condition {
        let Some(own) = own else { return Condition::Removed };
        if own.instance == self.member.instance {
            (self.server, self.namesake) = (Some(server), None);
            return Condition::Member;
        }
        if self.server.is_none_or(|known| known == server) {
            return Condition::Replaced;
        }
        match self.namesake {
            Some((instance, sent_us, since)) if (instance, sent_us) == (own.instance, own.heartbeat_us) => {
                if since.elapsed() < QUIET {
                    Condition::Forgotten
                } else {
                    Condition::Removed
                }
            }
            // It has sent a heartbeat in the meantime.
            Some((instance, ..)) if instance == own.instance => Condition::Replaced,
            _ => {
                self.namesake = Some((own.instance, own.heartbeat_us, Instant::now()));
                Condition::Forgotten
            }
        }
    }

    /// The address of the API of this node.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
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

/// Reads the nodes and the owners of the partitions. Rows of nodes have no partition.
fn read(rows: &[PgRow]) -> Result<(Vec<Node>, Vec<Option<String>>), sqlx::Error> {
    let (mut nodes, mut owners) = (Vec::new(), Vec::new());
    for row in rows {
        let name: Option<String> = row.try_get("name")?;
        let partition: Option<i16> = row.try_get("partition")?;
        let (None, Some(name)) = (partition, &name) else {
            owners.push(name);
            continue;
        };
        let age_ms = row.try_get::<i64, _>("heartbeat_age_ms")?;
        nodes.push(Node {
            name: name.clone(),
            url: row.try_get("url")?,
            instance: row.try_get("instance")?,
            is_leaving: row.try_get("is_leaving")?,
            has_joined: row.try_get("has_joined")?,
            reached: row.try_get("reached")?,
            secrets: row.try_get("secrets")?,
            queues: u64::try_from(row.try_get::<i64, _>("queues")?).unwrap_or_default(),
            heartbeat_age: Duration::from_millis(u64::try_from(age_ms).unwrap_or_default()),
            heartbeat_us: row.try_get("heartbeat_us")?,
            clock_ahead_ms: row.try_get("clock_ahead_ms")?,
            has_loaded: row.try_get("has_loaded")?,
            unloadable: row.try_get("unloadable")?,
        });
    }
    Ok((nodes, owners))
}
