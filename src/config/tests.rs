//! The layers, the messages, and the file against the defaults.

use std::collections::BTreeSet;

use super::schema::{self, Kind, SETTINGS};
use super::*;
use crate::duration::DurationText;

const FILE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/config/deltaq.toml"));

fn with_file(text: &str) -> Result<Settings, Error> {
    layered(Some((Path::new("deltaq.toml"), text)), [], &Flags::default())
}

fn with_variable(name: &str, value: &str) -> Result<Settings, Error> {
    layered(None, [(name.to_owned(), value.to_owned())], &Flags::default())
}

fn message(result: Result<Settings, Error>) -> String {
    result.unwrap_err().to_string()
}

/// The file with every setting that is commented out switched on.
fn uncommented() -> String {
    let is_setting = |line: &str| {
        let name = line.split([' ', ']']).next().unwrap().trim_start_matches('[');
        line.starts_with('[') || (line[name.len()..].starts_with(" = ") && !name.contains(char::is_uppercase))
    };
    let switch_on =
        |line: &'static str| line.strip_prefix("# ").filter(|rest| is_setting(rest)).unwrap_or(line);
    FILE.lines().map(switch_on).collect::<Vec<_>>().join("\n")
}

/// The paths of all leaves of a document; what is a list in the schema is a leaf.
fn paths(prefix: &str, table: &Table, into: &mut BTreeSet<String>) {
    for (name, value) in table {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Table(table) => paths(&path, table, into),
            _ => assert!(into.insert(path)),
        }
    }
}

fn schema_paths() -> BTreeSet<String> {
    let leaves = SETTINGS.iter().filter(|setting| !matches!(setting.kind, Kind::Table));
    leaves.map(|setting| setting.path.to_owned()).collect()
}

#[test]
fn no_layer_gives_the_defaults() {
    assert_eq!(layered(None, [], &Flags::default()).unwrap(), Settings::default());
}

#[test]
fn the_live_lines_of_the_file_are_the_defaults() {
    let live: Table = FILE.parse().unwrap();
    assert_eq!(live, Table::try_from(Settings::default()).unwrap());
}

#[test]
fn the_file_names_every_setting_live_or_commented() {
    let mut named = BTreeSet::new();
    paths("", &uncommented().parse().unwrap(), &mut named);
    assert_eq!(named, schema_paths());
}

#[test]
fn the_commented_examples_are_allowed_and_reach_their_fields() {
    let settings = with_file(&uncommented()).unwrap();
    let mut reached = BTreeSet::new();
    paths("", &Table::try_from(settings).unwrap(), &mut reached);
    assert_eq!(reached, schema_paths(), "the schema and the structs differ");
}

#[test]
fn what_the_file_leaves_commented_is_optional() {
    let mut live = BTreeSet::new();
    paths("", &FILE.parse().unwrap(), &mut live);
    for path in schema_paths().difference(&live) {
        let optional = SETTINGS.iter().any(|s| s.optional && (s.path == path || s.contains(path)));
        assert!(optional, "{path} has no default but is not optional");
    }
}

#[test]
fn each_setting_of_the_file_is_explained() {
    let lines: Vec<_> = FILE.lines().collect();
    for pair in lines.windows(2) {
        let is_setting = |line: &str| {
            line.trim_start_matches("# ").split_once(" = ").is_some_and(|(name, _)| {
                SETTINGS.iter().any(|setting| setting.path.rsplit('.').next() == Some(name))
            })
        };
        if is_setting(pair[1]) {
            assert!(pair[0].starts_with("# ") && !is_setting(pair[0]), "no comment before: {}", pair[1]);
        }
    }
}

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let file =
        "[server]\nlisten = '127.0.0.1:1'\nmax_wait = '11s'\nmax_connections = 11\n[log]\nlevel = 'warn'\n";
    let environment = [
        ("DELTAQ_SERVER__LISTEN".to_owned(), "127.0.0.1:2".to_owned()),
        ("DELTAQ_SERVER__MAX_CONNECTIONS".to_owned(), "22".to_owned()),
        ("DELTAQ_CONFIG".to_owned(), "elsewhere".to_owned()),
        ("DELTAQ_CONFORMANCE_DIR".to_owned(), "elsewhere".to_owned()),
        ("SERVER__LISTEN".to_owned(), "not ours".to_owned()),
    ];
    let flags = Flags { listen: Some("127.0.0.1:3".to_owned()), ..Flags::default() };
    let settings = layered(Some((Path::new("f.toml"), file)), environment, &flags).unwrap();
    assert_eq!(settings.server.listen.port(), 3);
    assert_eq!(settings.server.max_connections, 22);
    assert_eq!(settings.server.max_wait, DurationText::from_secs(11));
    assert_eq!(settings.log.level, LogLevel::Warn);
    assert_eq!(settings.server.idle_timeout, Server::default().idle_timeout);
}

#[test]
fn the_environment_reaches_every_kind_of_setting() {
    let set = |name, value| with_variable(name, value).unwrap();
    assert!(!set("DELTAQ_QUEUES__AUTO_CREATE", "false").queues.auto_create);
    assert_eq!(set("DELTAQ_SERVER__METRICS_LISTEN", "").server.metrics_listen, None);
    assert_eq!(set("DELTAQ_SERVER__ALLOWED_HOSTS", "['a.example', '[::1]']").server.allowed_hosts.len(), 2);
    assert_eq!(set("DELTAQ_STORAGE__DATA_DIR", "2026").storage.data_dir, Path::new("2026"));
    assert_eq!(set("DELTAQ_LOG__FORMAT", "json").log.format, LogFormat::Json);
    let defaults = set("DELTAQ_QUEUE_DEFAULTS__RATE_LIMITER__ITEM_EXPONENTIAL__BASE", "1s").queue_defaults;
    assert_eq!(defaults.rate_limiter.item_exponential.unwrap().base, "1s");
    let defaults =
        set("DELTAQ_QUEUE_DEFAULTS__RATE_LIMITER__BUCKET", "{ qps = 1, burst = 2 }").queue_defaults;
    assert_eq!(defaults.rate_limiter.bucket, Some(queue::Bucket { qps: 1.0, burst: 2 }));
    let defaults =
        set("DELTAQ_QUEUE_DEFAULTS__KEY", r#"[{pointer="/ns",optional=true},"/name"]"#).queue_defaults;
    let namespace = queue::DetailedKeyPart { pointer: "/ns".to_owned(), optional: true };
    assert_eq!(
        defaults.key,
        [queue::KeyPart::Detailed(namespace), queue::KeyPart::Required("/name".to_owned())]
    );
}

#[test]
fn unset_takes_back_what_a_lower_layer_set() {
    let file =
        "[queue_defaults]\nmax_deletes = 5\n[queue_defaults.rate_limiter]\nitem_exponential = 'unset'\n";
    let environment = [("DELTAQ_QUEUE_DEFAULTS__MAX_DELETES".to_owned(), "unset".to_owned())];
    let defaults =
        layered(Some((Path::new("f.toml"), file)), environment, &Flags::default()).unwrap().queue_defaults;
    assert_eq!(defaults.max_deletes, None);
    assert_eq!(defaults.rate_limiter.item_exponential, None);
    assert!(
        message(with_variable("DELTAQ_QUEUES__MAX_QUEUES", "unset")).contains("allowed is a whole number")
    );
}

#[test]
fn an_unknown_name_is_told_with_its_origin_and_the_nearest() {
    for (result, expected) in [
        (
            with_file("[server]\nlisen = 'x'\n"),
            r#""server.lisen", set by the file deltaq.toml, is no setting; the nearest one is "server.listen""#,
        ),
        (
            with_file("[sever]\nlisten = 'x'\n"),
            r#""sever", set by the file deltaq.toml, is no setting; the nearest one is "server""#,
        ),
        (
            with_file("metrics_listen = ''\n"),
            r#""metrics_listen", set by the file deltaq.toml, is no setting; the nearest one is "server.metrics_listen""#,
        ),
        (
            with_file("[queue_defaults.rate_limiter.item_exponential]\nbas = '1s'\n"),
            r#""queue_defaults.rate_limiter.item_exponential.bas", set by the file deltaq.toml, is no setting; the nearest one is "queue_defaults.rate_limiter.item_exponential.base""#,
        ),
        (
            with_variable("DELTAQ_SERVER_LISTEN", "127.0.0.1:1"),
            r#""DELTAQ_SERVER_LISTEN", set by the environment variable DELTAQ_SERVER_LISTEN, is no setting; the nearest one is "DELTAQ_SERVER__LISTEN""#,
        ),
        (
            with_variable("DELTAQ_LOG__LEVLE", "info"),
            r#""DELTAQ_LOG__LEVLE", set by the environment variable DELTAQ_LOG__LEVLE, is no setting; the nearest one is "DELTAQ_LOG__LEVEL""#,
        ),
    ] {
        assert_eq!(message(result), expected);
    }
}

#[test]
fn a_value_that_is_not_allowed_is_told_with_setting_origin_and_range() {
    for (result, expected) in [
        (
            with_file("[queues]\nmax_queues = 0\n"),
            "queues.max_queues can't be 0, set by the file deltaq.toml: allowed is a whole number from 1 to 1000000",
        ),
        (
            with_file("[queues]\nmax_queues = '5'\n"),
            r#"queues.max_queues can't be "5", set by the file deltaq.toml: allowed is a whole number from 1 to 1000000"#,
        ),
        (with_file("server = 5\n"), "server can't be 5, set by the file deltaq.toml: allowed is a table"),
        (
            with_variable("DELTAQ_QUEUES__AUTO_CREATE", "yes"),
            r#"queues.auto_create can't be "yes", set by the environment variable DELTAQ_QUEUES__AUTO_CREATE: allowed is true or false"#,
        ),
        (
            with_variable("DELTAQ_QUEUE_DEFAULTS__LEASE", "13h"),
            r#"queue_defaults.lease can't be "13h", set by the environment variable DELTAQ_QUEUE_DEFAULTS__LEASE: allowed is a duration from 1s to 12h, such as "30s""#,
        ),
        (
            with_variable("DELTAQ_QUEUE_DEFAULTS__RATE_LIMITER__JITTER", "nan"),
            "queue_defaults.rate_limiter.jitter can't be nan, set by the environment variable DELTAQ_QUEUE_DEFAULTS__RATE_LIMITER__JITTER: allowed is a number from 0 to 1",
        ),
        (
            with_variable("DELTAQ_QUEUE_DEFAULTS__MAX_DELETE_PERCENT", "101"),
            r#"queue_defaults.max_delete_percent can't be 101, set by the environment variable DELTAQ_QUEUE_DEFAULTS__MAX_DELETE_PERCENT: allowed is a number from 0 to 100, or "unset""#,
        ),
        (
            layered(None, [], &Flags { listen: Some("localhost:7070".to_owned()), ..Flags::default() }),
            r#"server.listen can't be "localhost:7070", set by the flag --listen: allowed is an IP address and a port, such as "127.0.0.1:7070""#,
        ),
    ] {
        assert_eq!(message(result), expected);
    }
}

#[test]
fn lists_are_checked_item_by_item() {
    for value in [
        "[]",
        "['']",
        "['key']",
        "['/a~2']",
        "[{optional=true}]",
        "[{pointer='/a',optinal=true}]",
        "[1]",
        "/key",
    ] {
        let text = message(with_variable("DELTAQ_QUEUE_DEFAULTS__KEY", value));
        assert!(text.contains("allowed is a list of 1 to 8 JSON pointers"), "{value}: {text}");
    }
    for value in ["['']", "['a:7070']", "['http://a']", "['::1']", "['[::g]']", "a.example"] {
        let text = message(with_variable("DELTAQ_SERVER__ALLOWED_HOSTS", value));
        assert!(text.contains("allowed is a list of host names"), "{value}: {text}");
    }
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    for (result, expected) in [
        (
            with_variable("DELTAQ_SERVER__METRICS_LISTEN", "127.0.0.1:7070"),
            r#"server.metrics_listen = "127.0.0.1:7070" (the environment variable DELTAQ_SERVER__METRICS_LISTEN) must differ from server.listen = "127.0.0.1:7070" (the defaults); leave it empty ("") to serve both there"#,
        ),
        (
            with_file("[queue_defaults.rate_limiter.item_exponential]\nbase = '2000s'\n"),
            r#"queue_defaults.rate_limiter.item_exponential.base = "2000s" (the file deltaq.toml) must not be above queue_defaults.rate_limiter.item_exponential.max = "1000s" (the defaults)"#,
        ),
        (
            with_file("[queue_defaults.rate_limiter.bucket]\nqps = 1\n"),
            "queue_defaults.rate_limiter.bucket.burst is needed, since queue_defaults.rate_limiter.bucket.qps is set by the file deltaq.toml",
        ),
    ] {
        assert_eq!(message(result), expected);
    }
    assert!(with_file("[server]\nlisten = '127.0.0.1:0'\nmetrics_listen = '127.0.0.1:0'\n").is_ok());
}

#[test]
fn the_file_itself_may_be_missing_or_broken() {
    let missing = Path::new("/nonexistent/deltaq.toml");
    assert!(matches!(load(Some(missing), [], &Flags::default()), Err(Error::Read { .. })));
    let text = message(with_file("[server\n"));
    assert!(text.starts_with("the configuration file deltaq.toml is not TOML at line 1: "), "{text}");
}

#[test]
fn the_flag_for_a_folder_means_to_use_it() {
    let file = "[storage]\nin_memory = true\n";
    assert!(with_file(file).unwrap().storage.in_memory);
    let flags = Flags { data_dir: Some(PathBuf::from("/data")), ..Flags::default() };
    let settings = layered(Some((Path::new("f.toml"), file)), [], &flags).unwrap();
    assert!(!settings.storage.in_memory);
    assert_eq!(settings.storage.data_dir, Path::new("/data"));
}

#[test]
fn every_parent_is_a_table_and_every_name_is_known_once() {
    for (index, setting) in SETTINGS.iter().enumerate() {
        assert!(
            SETTINGS[..index].iter().all(|earlier| earlier.path != setting.path),
            "{} twice",
            setting.path
        );
        if let Some((parent, _)) = setting.path.rsplit_once('.') {
            assert!(
                matches!(schema::find(parent), Some(table) if matches!(table.kind, Kind::Table)),
                "{parent}"
            );
        }
    }
}

#[test]
fn wrong_tokens_are_not_shown() {
    let error = message(with_variable("DELTAQ_ACCESS__TOKENS", "[{ name = \"a\", token = \"dq_5ec2e7\" }]"));
    assert!(error.contains("access.tokens") && !error.contains("5ec2e7"), "{error}");
}

#[test]
fn draining_begins_to_end_before_it_is_cut() {
    let error = message(with_file("[server]\ndrain_delay = \"30s\""));
    assert!(error.contains("server.drain_delay") && error.contains("server.shutdown_timeout"), "{error}");
    with_file("[server]\ndrain_delay = \"29s\"").unwrap();
    with_file("[server]\nshutdown_timeout = \"0s\"").unwrap();
}
