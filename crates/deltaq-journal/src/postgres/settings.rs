//! The database to use, from the URL in the settings.

use std::fmt;
use std::str::FromStr;

use deltaq_types::range::plain_host;
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;
use tracing::subscriber::{NoSubscriber, with_default};

/// The URL parameters that the driver reads.
const DRIVER_PARAMETERS: &[&str] = &[
    "application_name",
    "dbname",
    "host",
    "options",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "user",
];
/// The number of statements that the driver keeps prepared on a connection. 0 disables prepared statements.
const CACHE_PARAMETER: &str = "statement-cache-capacity";
/// The kind of server to connect to.
const TARGET_PARAMETER: &str = "target_session_attrs";
/// The values of [`TARGET_PARAMETER`] that mean a server that accepts writes.
const TARGETS: &[&str] = &["read-write", "primary"];

/// The database of a store, and how to connect to it.
#[derive(Clone)]
pub struct Settings {
    /// The options for each host, in the order in which they are tried.
    pub(super) hosts: Vec<PgConnectOptions>,
    /// The database without its password and parameters: `user@host/database`.
    name: String,
    /// Whether statements stay prepared. A pooler in transaction mode may not support prepared statements.
    pub(super) prepares: bool,
}

/// Why a URL can't be used. The text contains no part of the URL that may be a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidUrl(String);

impl Settings {
    /// Reads a URL such as `postgres://user@host/database?sslmode=verify-full`. Several hosts are separated by
    /// commas. Missing parts come from libpq's variables (`PGUSER`, `PGPASSWORD`, `PGSSLMODE` and so on) and its
    /// password file (`PGPASSFILE`, `~/.pgpass`).
    ///
    /// # Errors
    /// [`InvalidUrl`] if the URL contains a password or an unknown parameter, or is malformed.
    pub fn parse(url: &str) -> Result<Self, InvalidUrl> {
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(|| invalid("it does not begin with postgres://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority.rsplit_once('@').map_or(("", authority), |(user, hosts)| (user, hosts));
        if user.contains(':') {
            return Err(password_in_url());
        }
        let (query, prepares) = parameters(query)?;
        let url = |host: &str| match (user, host) {
            // Without a host, the user can't be in the authority part, so it becomes a parameter.
            (user, "") if !user.is_empty() => format!("postgres:///{database}?user={user}&{query}"),
            ("", host) => format!("postgres://{host}/{database}?{query}"),
            (user, host) => format!("postgres://{user}@{host}/{database}?{query}"),
        };
        let hosts: Vec<_> = hosts.split(',').map(|host| options(&url(host))).collect::<Result<_, _>>()?;
        let name = name(&hosts);
        Ok(Self { hosts, name, prepares })
    }

    /// The database without its password and parameters: `user@host/database`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Settings {
    /// The driver's options are omitted because they contain the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The parameters for the driver, and whether statements stay prepared.
fn parameters(query: &str) -> Result<(String, bool), InvalidUrl> {
    let (mut kept, mut prepares) = (Vec::new(), true);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "password" | "sslpassword" => return Err(password_in_url()),
            TARGET_PARAMETER if TARGETS.contains(&value) => {}
            TARGET_PARAMETER => {
                return Err(invalid(&format!("{TARGET_PARAMETER} is not one of {}", TARGETS.join(", "))));
            }
            CACHE_PARAMETER => {
                prepares = value != "0";
                kept.push(pair);
            }
            name if DRIVER_PARAMETERS.contains(&name) => kept.push(pair),
            name => {
                let known = DRIVER_PARAMETERS.join(", ");
                let problem = format!(
                    "it has the unknown parameter {name}; the parameters are {known}, {CACHE_PARAMETER}, {TARGET_PARAMETER}"
                );
                return Err(invalid(&problem));
            }
        }
    }
    Ok((kept.join("&"), prepares))
}

/// The options for one host.
fn options(url: &str) -> Result<PgConnectOptions, InvalidUrl> {
    // The driver logs lines of the password file that it can't parse, with the password.
    let options = with_default(NoSubscriber::new(), || PgConnectOptions::from_str(&plain_host(url)));
    let options = options.map_err(|error| match error {
        sqlx::Error::Configuration(source) => invalid(&source.to_string()),
        error => invalid(&error.to_string()),
    })?;
    // Poolers refuse startup parameters that they do not know. No column is a float.
    let options = options.extra_float_digits(None).disable_statement_logging();
    let is_named = options.get_application_name().is_some();
    Ok(if is_named { options } else { options.application_name("deltaq") })
}

/// `user@host,host/database`. A port is included unless it is the default.
fn name(hosts: &[PgConnectOptions]) -> String {
    let host = |options: &PgConnectOptions| {
        let host = match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None if options.get_host().contains(':') => format!("[{}]", options.get_host()),
            None => options.get_host().to_owned(),
        };
        if options.get_port() == 5_432 { host } else { format!("{host}:{}", options.get_port()) }
    };
    let names: Vec<_> = hosts.iter().map(host).collect();
    let Some(first) = hosts.first() else { return String::new() };
    let user = first.get_username();
    format!("{user}@{}/{}", names.join(","), first.get_database().unwrap_or(user))
}

fn invalid(why: &str) -> InvalidUrl {
    InvalidUrl(format!("the URL of the database is invalid: {why}"))
}

fn password_in_url() -> InvalidUrl {
    let remedy = "put it into the variable PGPASSWORD or the file ~/.pgpass, because command lines and settings are shown";
    invalid(&format!("it contains a password; {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(url: &str) -> String {
        Settings::parse(url).unwrap().name().to_owned()
    }

    fn problem(url: &str) -> String {
        Settings::parse(url).unwrap_err().to_string()
    }

    #[test]
    fn a_name_has_user_hosts_and_database() {
        assert_eq!(name_of("postgres://deltaq@db.example/queues"), "deltaq@db.example/queues");
        assert_eq!(name_of("postgresql://deltaq@db.example:5433/queues"), "deltaq@db.example:5433/queues");
        assert_eq!(name_of("postgres://a@h1,h2:6432/q?target_session_attrs=read-write"), "a@h1,h2:6432/q");
        assert_eq!(name_of("postgres://a@%2Frun%2Fpg/q"), "a@/run/pg/q");
        assert_eq!(name_of("postgres://a@/q?host=/run/pg&port=5433"), "a@/run/pg:5433/q");
        assert_eq!(name_of("postgres://a@h"), "a@h/a", "as libpq: the database has the name of the user");
        assert_eq!(name_of("postgres://a@[::1]:5433/q"), "a@[::1]:5433/q");
        assert_eq!(name_of("postgres://a@[2001:db8::1],h2/q?sslmode=require"), "a@[2001:db8::1],h2/q");
    }

    #[test]
    fn an_address_in_brackets_is_a_host() {
        for (url, host, port) in [
            ("postgres://a@[::1]:5433/q", "::1", 5_433),
            ("postgres://[::1]/q", "::1", 5_432),
            ("postgres://a@[fe80::1%25eth0]/q?sslmode=disable", "fe80::1%eth0", 5_432),
            ("postgres://a@h:5433/q", "h", 5_433),
            ("postgres://a@[::1]/q?host=h", "h", 5_432),
        ] {
            let settings = Settings::parse(url).unwrap();
            assert_eq!((settings.hosts[0].get_host(), settings.hosts[0].get_port()), (host, port), "{url}");
        }
    }

    #[test]
    fn statements_stay_prepared_unless_the_cache_is_empty() {
        assert!(Settings::parse("postgres://a@h/q").unwrap().prepares);
        assert!(Settings::parse("postgres://a@h/q?statement-cache-capacity=10").unwrap().prepares);
        assert!(!Settings::parse("postgres://a@h/q?statement-cache-capacity=0").unwrap().prepares);
    }

    #[test]
    fn a_password_in_the_url_is_refused_and_not_repeated() {
        for url in [
            "postgres://a:hunter2@h/q",
            "postgres://a:hun@ter2@h/q",
            "postgres://a@h/q?password=hunter2",
            "postgres://a@h/q?sslmode=require&sslpassword=hunter2",
        ] {
            let problem = problem(url);
            assert!(problem.contains("PGPASSWORD") && !problem.contains("hun"), "{problem}");
        }
        for url in [
            "hunter2",
            "mysql://a:hunter2@h",
            "postgres://a@h/q?passwort=hunter2",
            "postgres://a@h:hunter2/q",
        ] {
            let problem = problem(url);
            assert!(!problem.contains("hunter2"), "{problem}");
        }
        let settings = Settings::parse("postgres://a@h/q").unwrap();
        let with_password = Settings {
            hosts: settings.hosts.iter().map(|options| options.clone().password("hunter2")).collect(),
            ..settings
        };
        assert!(!format!("{with_password:?}").contains("hunter2"), "{with_password:?}");
    }

    #[test]
    fn unknown_parameters_and_replicas_are_refused() {
        assert!(problem("postgres://a@h/q?sslmod=require").contains("unknown parameter sslmod"));
        assert!(problem("postgres://a@h/q?target_session_attrs=standby").contains("read-write"));
        assert!(problem("postgres://a@h/q?sslmode=maybe").contains("maybe"));
    }
}
