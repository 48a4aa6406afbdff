//! Tests of the layers, the errors, and `config/deltaq.toml` against the structs.

use std::collections::BTreeSet;

use deltaq_types::duration::DurationText;
use toml::Table;

use super::*;

pub(super) const FILE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/config/deltaq.toml"));

fn with_file(text: &str) -> Result<Settings, Error> {
    layered(Some((Path::new("deltaq.toml"), text)), [], &Flags::default(), None)
}

fn with_variable(name: &str, value: &str) -> Result<Settings, Error> {
    layered(None, [(name.to_owned(), value.to_owned())], &Flags::default(), None)
}

fn message(result: Result<Settings, Error>) -> String {
    result.unwrap_err().to_string()
}

/// The file with every default and every example enabled.
fn uncommented() -> String {
    let is_setting = |line: &str| {
        let name = line.split([' ', ']']).next().unwrap().trim_start_matches('[');
        line.starts_with('[') || (line[name.len()..].starts_with(" = ") && !name.contains(char::is_uppercase))
    };
    let defaults = layers::defaults();
    let switch_on = |line| str::strip_prefix(line, "# ").filter(|rest| is_setting(rest)).unwrap_or(line);
    defaults.lines().map(switch_on).collect::<Vec<_>>().join("\n")
}

/// The paths of all values of a document.
fn paths(prefix: &str, table: &Table, into: &mut BTreeSet<String>) {
    for (name, value) in table {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Table(table) => paths(&path, table, into),
            _ => assert!(into.insert(path)),
        }
    }
}

/// The paths of all settings, without their tables.
fn settings() -> BTreeSet<String> {
    let all = layers::all_settings("");
    let is_table = |path: &String| all.iter().any(|other| other.starts_with(&format!("{path}.")));
    all.iter().filter(|path| !is_table(path)).cloned().collect()
}

#[test]
fn no_layer_gives_the_defaults() {
    assert_eq!(layered(None, [], &Flags::default(), None).unwrap(), Settings::default());
}

#[test]
fn the_file_has_every_setting_live_or_commented() {
    let mut named = BTreeSet::new();
    paths("", &uncommented().parse().unwrap(), &mut named);
    // The operator names the secrets and the groups.
    let tables = ["push.secrets", "hooks.secrets", "queue_defaults.groups.overrides"];
    let table_of = |path: String| {
        tables.into_iter().find(|table| path.starts_with(table)).map_or(path, ToOwned::to_owned)
    };
    assert_eq!(named.into_iter().map(table_of).collect::<BTreeSet<_>>(), settings());
    assert!(settings().len() > 60);
}

#[test]
fn the_commented_examples_are_valid() {
    // A queue has one order, and the file shows both.
    let text = uncommented();
    let (before, priority) = text.split_once("[queue_defaults.order.priority]").unwrap();
    let behind = &priority[priority.find("\n[").unwrap()..];
    let (first, head_start) = before.split_once("[queue_defaults.order.head_start]").unwrap();
    assert!(with_file(&format!("{first}[queue_defaults.order.priority]{priority}")).is_ok(), "{head_start}");
    let with_examples = with_file(&format!("{before}{behind}")).unwrap();
    assert!(with_examples.trace.otlp_endpoint.is_some());
    let limiter = with_examples.queue_defaults.rate_limiter;
    assert!(limiter.item_fast_slow.is_some() && limiter.bucket.is_some(), "{limiter:?}");
}

#[test]
fn each_setting_of_the_file_has_a_comment() {
    let (lines, settings): (Vec<_>, _) = (FILE.lines().collect(), settings());
    for pair in lines.windows(2) {
        let is_setting = |line: &str| {
            line.trim_start_matches(['#', ' '])
                .split_once(" = ")
                .is_some_and(|(name, _)| settings.iter().any(|path| path.rsplit('.').next() == Some(name)))
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
        ("SERVER__LISTEN".to_owned(), "not ours".to_owned()),
    ];
    let flags = Flags { listen: Some("127.0.0.1:3".to_owned()), ..Flags::default() };
    let settings = layered(Some((Path::new("f.toml"), file)), environment, &flags, None).unwrap();
    assert_eq!(settings.server.listen.port(), 3);
    assert_eq!(settings.server.max_connections, 22);
    assert_eq!(settings.server.max_wait, DurationText::from_secs(11));
    assert_eq!(settings.log.level, LogLevel::Warn);
    assert_eq!(settings.server.idle_timeout, Settings::default().server.idle_timeout);
}

#[test]
fn the_environment_reaches_every_kind_of_setting() {
    let set = |name, value| with_variable(name, value).unwrap();
    assert!(!set("DELTAQ_QUEUES__AUTO_CREATE", "false").queues.auto_create);
    let timeout = set("DELTAQ_SERVER__IDLE_TIMEOUT", "1m30.5s").server.idle_timeout;
    assert_eq!(timeout, DurationText::from_us(90_500_000), "as Go writes durations");
    assert_eq!(set("DELTAQ_SERVER__METRICS_LISTEN", "").server.metrics_listen, None);
    assert_eq!(set("DELTAQ_SERVER__ALLOWED_HOSTS", "['a.example', '[::1]']").server.allowed_hosts.len(), 2);
    let hosts = |text| set("DELTAQ_SERVER__ALLOWED_HOSTS", text).server.allowed_hosts;
    assert_eq!(hosts("*"), ["*"]);
    assert_eq!(hosts("deltaq, *.example"), ["deltaq", "*.example"]);
    assert_eq!(hosts("[\"*\"]"), ["*"]);
    assert_eq!(hosts("[::1]"), ["[::1]"]);
    assert!(hosts("").is_empty());
    for wrong in ["*deltaq", "a.*", "deltaq:7070", "a,,b"] {
        assert!(
            message(with_variable("DELTAQ_SERVER__ALLOWED_HOSTS", wrong)).contains("host names"),
            "{wrong}"
        );
    }
    let origins = set("DELTAQ_SERVER__ALLOWED_ORIGINS", "https://console.example").server.allowed_origins;
    assert_eq!(origins, ["https://console.example"]);
    for (given, url) in [
        ("https://deltaq.example/", "https://deltaq.example"),
        ("http://[::1]:7070/a/b", "http://[::1]:7070/a/b"),
    ] {
        assert_eq!(set("DELTAQ_SERVER__PUBLIC_URL", given).server.public_url.as_deref(), Some(url));
    }
    for wrong in [
        "deltaq.example",
        "ftp://a",
        "https://",
        "https://u@a",
        "https://a/?x=1",
        "https://a/#x",
        "https://a b",
    ] {
        assert!(message(with_variable("DELTAQ_SERVER__PUBLIC_URL", wrong)).contains("public_url"), "{wrong}");
    }
    assert_eq!(set("DELTAQ_SERVER__TRUSTED_PROXIES", "10.0.0.0/8").server.trusted_proxies.len(), 1);
    assert_eq!(set("DELTAQ_STORAGE__DATA_DIR", "2026").storage.data_dir, Path::new("2026"));
    assert_eq!(set("DELTAQ_LOG__FORMAT", "json").log.format, LogFormat::Json);
    let defaults = set("DELTAQ_QUEUE_DEFAULTS__RATE_LIMITER__ITEM_EXPONENTIAL__BASE", "1s").queue_defaults;
    assert_eq!(defaults.rate_limiter.item_exponential.unwrap().base, DurationText::from_secs(1));
    let defaults =
        set("DELTAQ_QUEUE_DEFAULTS__RATE_LIMITER__BUCKET", "{ qps = 1, burst = 2 }").queue_defaults;
    assert_eq!(defaults.rate_limiter.bucket, Some(deltaq_types::Bucket { qps: 1.0, burst: 2 }));
    let defaults =
        set("DELTAQ_QUEUE_DEFAULTS__KEY", r#"[{pointer="/ns",optional=true},"/name"]"#).queue_defaults;
    assert_eq!(
        set("DELTAQ_QUEUE_DEFAULTS__KEY", "/name").queue_defaults.key,
        [deltaq_types::KeyPart::Required("/name".to_owned())]
    );
    let namespace = deltaq_types::DetailedKeyPart { pointer: "/ns".to_owned(), optional: true };
    assert_eq!(
        defaults.key,
        [deltaq_types::KeyPart::Detailed(namespace), deltaq_types::KeyPart::Required("/name".to_owned())]
    );
}

#[test]
fn a_flag_for_the_place_of_the_journal_overrides_the_other_places() {
    const URL: &str = "postgres://deltaq@db.example/deltaq";
    let storage = |file: &str, flags: &Flags| {
        layered(Some((Path::new("f.toml"), file)), [], flags, None).map(|settings| settings.storage)
    };
    let in_postgres = format!("[storage]\nstore = '{URL}'\n");
    let in_memory = "[storage]\nin_memory = true\n";
    let none = Flags::default();
    let folder = Flags { data_dir: Some("data".into()), ..Flags::default() };
    let store = Flags { store: Some(URL.to_owned()), ..Flags::default() };
    let memory = Flags { in_memory: true, ..Flags::default() };
    assert_eq!(storage("", &none).unwrap().store, None);
    for (file, flags) in [(in_postgres.as_str(), &none), (in_memory, &store)] {
        let storage = storage(file, flags).unwrap();
        assert_eq!((storage.store.as_deref(), storage.in_memory), (Some(URL), false));
    }
    assert_eq!(storage(&in_postgres, &folder).unwrap().store, None);
    let storage_in_memory = storage(&in_postgres, &memory).unwrap();
    assert_eq!((storage_in_memory.store, storage_in_memory.in_memory), (None, true));
    let both = storage(&format!("{in_postgres}in_memory = true\n"), &none).unwrap_err().to_string();
    assert!(both.contains("storage.in_memory is true"), "{both}");
}

#[test]
fn the_url_of_a_database_has_no_password_and_no_error_repeats_it() {
    for url in [
        "postgres://deltaq:hunter2@db.example/deltaq",
        "postgres://deltaq@db.example/deltaq?sslmode=require&password=hunter2",
        "mysql://hunter2@db.example",
        "hunter2",
        "postgres://deltaq@db.example/hunter2 x",
    ] {
        let flags = Flags { store: Some(url.to_owned()), ..Flags::default() };
        let problem = message(layered(None, [], &flags, None));
        assert!(problem.contains("storage.store` of the flag --store"), "{problem}");
        assert!(problem.contains("postgres://") || problem.contains("PGPASSWORD"), "{problem}");
        assert!(!problem.contains("hunter2"), "{problem}");
    }
    let number = message(with_file("[storage]\nstore = 5\n"));
    assert!(number.contains("expected a URL"), "{number}");
}

/// A file that makes the server a node, without the line that begins with `without`.
fn node_file(without: &str) -> String {
    let lines = [
        "storage.store = 'postgres://deltaq@db.example/deltaq'",
        "cluster.node_name = 'a'",
        "cluster.advertise = 'http://10.0.0.1:7070/'",
        "cluster.secret_file = '/etc/deltaq/node-secret'",
    ];
    lines.into_iter().filter(|line| !line.starts_with(without)).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_node_has_a_name_a_url_a_secret_and_a_database() {
    let cluster = with_file(&node_file("-")).unwrap().cluster;
    assert_eq!(cluster.node_name.as_deref(), Some("a"));
    assert_eq!(cluster.advertise.as_deref(), Some("http://10.0.0.1:7070"));
    assert_eq!((cluster.partitions, Settings::default().cluster.node_name), (12, None));
    for (without, expected) in [
        ("storage.store", "`cluster.node_name` in deltaq.toml: storage.store is required with it"),
        ("cluster.node_name", "`cluster.advertise` in deltaq.toml: cluster.node_name is required with it"),
        ("cluster.advertise", "`cluster.node_name` in deltaq.toml: cluster.advertise is required with it"),
        (
            "cluster.secret_file",
            "`cluster.node_name` in deltaq.toml: cluster.secret_file is required with it",
        ),
    ] {
        let error = message(with_file(&node_file(without)));
        assert!(error.contains(expected), "{error}");
    }
    let file = node_file("-");
    let flags = Flags {
        node_name: Some("b".to_owned()),
        advertise: Some("https://b.example:7070".to_owned()),
        ..Flags::default()
    };
    let cluster = layered(Some((Path::new("f.toml"), &file)), [], &flags, None).unwrap().cluster;
    assert_eq!(
        (cluster.node_name.as_deref(), cluster.advertise.as_deref()),
        (Some("b"), Some("https://b.example:7070"))
    );
}

#[test]
fn the_name_and_the_url_of_a_node_have_a_form() {
    let advertise =
        |url: &str| with_file(&format!("{}\ncluster.advertise = '{url}'", node_file("cluster.advertise")));
    for url in ["http://a", "http://a.example:7070", "https://[::1]:7070/", "http://10.0.0.1:7070"] {
        advertise(url).expect(url);
    }
    for url in [
        "a:7070",
        "ftp://a",
        "http://",
        "http://u@a",
        "http://u:p@a:1",
        "http://a/x",
        "http://a:99999",
        "http://a?b",
        "http://a//",
    ] {
        let error = message(advertise(url));
        assert!(
            error.contains("cluster.advertise") && error.contains("expected a URL without user and path"),
            "{error}"
        );
    }
    let long = "a".repeat(64);
    for name in ["", "A", "a_b", "a b", &long] {
        let error =
            message(with_file(&format!("{}\ncluster.node_name = '{name}'", node_file("cluster.node_name"))));
        assert!(error.contains("expected a name of 1 to 63 characters"), "{error}");
    }
}

#[test]
fn a_listener_may_have_the_name_localhost_or_only_a_port() {
    let listen = |text: &str| {
        let flags = Flags { listen: Some(text.to_owned()), ..Flags::default() };
        layered(None, [], &flags, None).map(|settings| settings.server.listen.to_string())
    };
    assert_eq!(listen("localhost:7070").unwrap(), "127.0.0.1:7070");
    assert_eq!(listen(":7070").unwrap(), "0.0.0.0:7070");
    assert_eq!(listen("[::1]:7070").unwrap(), "[::1]:7070");
    let environment = [("DELTAQ_SERVER__METRICS_LISTEN".to_owned(), ":7071".to_owned())];
    let settings = layered(None, environment, &Flags::default(), None).unwrap();
    assert_eq!(settings.server.metrics_listen.unwrap().to_string(), "0.0.0.0:7071");
    for wrong in ["7070", ":", ":x", ":+1", "localhost", "localhost:70700", "deltaq.example:7070", "::1:"] {
        let text = listen(wrong).unwrap_err().to_string();
        assert!(text.contains("localhost:7070"), "{wrong}: {text}");
    }
}

#[test]
fn idle_connections_outlive_the_keep_alive_of_common_clients() {
    // Go's net/http closes an idle connection after 90 s. The server must not close it earlier.
    assert!(Settings::default().server.idle_timeout.get() > std::time::Duration::from_secs(90));
}

#[test]
fn unset_removes_a_value_of_a_lower_layer() {
    let file =
        "[queue_defaults]\nmax_deletes = 5\n[queue_defaults.rate_limiter]\nitem_exponential = 'unset'\n";
    let environment = [("DELTAQ_QUEUE_DEFAULTS__MAX_DELETES".to_owned(), "unset".to_owned())];
    let defaults = layered(Some((Path::new("f.toml"), file)), environment, &Flags::default(), None)
        .unwrap()
        .queue_defaults;
    assert_eq!(defaults.max_deletes, None);
    assert_eq!(defaults.rate_limiter.item_exponential, None);
    assert!(message(with_variable("DELTAQ_QUEUES__MAX_QUEUES", "unset")).contains("a value is required"));
}

#[test]
fn only_variables_with_a_section_are_settings() {
    let environment = [
        ("DELTAQ_CONFIG", "deltaq.toml"),
        ("DELTAQ_TOKEN", "dq_5ec2e7"),
        ("DELTAQ_URL", "http://localhost:7070"),
        ("DELTAQ_FOO", "1"),
        ("DELTAQ_CONFORMANCE_DIR", "elsewhere"),
        ("DELTAQ_KEY", "sku-1"),
        ("DELTAQ_LEASE", "527e0101-14"),
        ("DELTAQ_KEY_FILE", "client.key"),
        ("DELTAQ_TOKEN_FILE", "token"),
        ("DELTAQ_CA_FILE", "ca.crt"),
        ("DELTAQ__X", "1"),
        ("SERVER__LISTEN", "x"),
        // The service links that Kubernetes creates for a service named deltaq.
        ("DELTAQ_SERVICE_HOST", "10.0.0.11"),
        ("DELTAQ_SERVICE_PORT_HTTP", "7070"),
        ("DELTAQ_PORT", "tcp://10.0.0.11:7070"),
        ("DELTAQ_PORT_7070_TCP_ADDR", "10.0.0.11"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(layered(None, environment, &Flags::default(), None).unwrap(), Settings::default());
}

#[test]
fn a_variable_with_one_underscore_too_few_is_reported() {
    for (name, meant) in [
        ("DELTAQ_SERVER_LISTEN", "DELTAQ_SERVER__LISTEN"),
        ("DELTAQ_LISTEN", "DELTAQ_SERVER__LISTEN"),
        ("DELTAQ_DATA_DIR", "DELTAQ_STORAGE__DATA_DIR"),
        ("DELTAQ_QUEUE_DEFAULTS_LEASE", "DELTAQ_QUEUE_DEFAULTS__LEASE"),
    ] {
        let expected =
            format!("unknown setting `{name}` in the environment variable {name}; did you mean `{meant}`?");
        assert_eq!(message(with_variable(name, "x")), expected);
    }
}

#[test]
fn an_unknown_setting_is_reported_with_its_layer_and_a_similar_name() {
    for (said, expected) in [
        (
            message(with_file("[server]\nlisen = 'x'\n")),
            "unknown setting `server.lisen` in deltaq.toml; did you mean `server.listen`?",
        ),
        (
            message(with_file("[sever]\nlisten = 'x'\n")),
            "unknown setting `sever` in deltaq.toml; did you mean `server`?",
        ),
        (
            message(with_file("listen = 'x'\n")),
            "unknown setting `listen` in deltaq.toml; did you mean `server.listen`?",
        ),
        (
            message(with_file("metrics_listen = ''")),
            "unknown setting `metrics_listen` in deltaq.toml; did you mean `server.metrics_listen`?",
        ),
        (
            message(with_file("[queue_defaults.rate_limiter.item_exponential]\nbas = '1s'\n")),
            "unknown setting `queue_defaults.rate_limiter.item_exponential.bas` in deltaq.toml; did you mean `queue_defaults.rate_limiter.item_exponential.base`?",
        ),
        (
            message(with_variable("DELTAQ_LOG__LEVLE", "info")),
            "unknown setting `DELTAQ_LOG__LEVLE` in the environment variable DELTAQ_LOG__LEVLE; did you mean `DELTAQ_LOG__LEVEL`?",
        ),
    ] {
        assert_eq!(said, expected);
    }
    assert!(message(with_file("[xyz]")).ends_with("config/deltaq.toml lists all settings"));
}

#[test]
fn an_invalid_value_is_reported_with_setting_layer_and_range() {
    let long = message(with_variable("DELTAQ_SERVER__LISTEN", &"x".repeat(1 << 20)));
    assert!(long.len() < 500 && long.contains("expected an IP address"), "{long}");
    let flags = Flags { listen: Some("deltaq:7070".to_owned()), ..Flags::default() };
    for (said, expected) in [
        (
            message(with_file("[queues]\nmax_queues = 0\n")),
            "invalid setting `queues.max_queues` in deltaq.toml: invalid value: integer `0`, expected a whole number from 1 to 1000000",
        ),
        (
            message(with_file("[queues]\nmax_queues = '5'\n")),
            r#"invalid setting `queues.max_queues` in deltaq.toml: invalid type: string "5", expected a whole number from 1 to 1000000"#,
        ),
        (
            message(with_variable("DELTAQ_QUEUES__AUTO_CREATE", "yes")),
            r#"invalid setting `queues.auto_create` in the environment variable DELTAQ_QUEUES__AUTO_CREATE: invalid type: string "yes", expected true or false"#,
        ),
        (
            message(with_variable("DELTAQ_QUEUE_DEFAULTS__LEASE", "13h")),
            r#"invalid setting `queue_defaults.lease` in the environment variable DELTAQ_QUEUE_DEFAULTS__LEASE: invalid value: string "13h", expected a duration from 1s to 12h, such as "30s""#,
        ),
        (
            message(with_variable("DELTAQ_QUEUE_DEFAULTS__RATE_LIMITER__JITTER", "nan")),
            "invalid setting `queue_defaults.rate_limiter.jitter` in the environment variable DELTAQ_QUEUE_DEFAULTS__RATE_LIMITER__JITTER: invalid type: string \"NaN\", expected a number from 0 to 1",
        ),
        (
            message(with_variable("DELTAQ_QUEUE_DEFAULTS__MAX_DELETE_PERCENT", "101")),
            "invalid setting `queue_defaults.max_delete_percent` in the environment variable DELTAQ_QUEUE_DEFAULTS__MAX_DELETE_PERCENT: invalid value: floating point `101.0`, expected a number from 0 to 100",
        ),
        (
            message(layered(None, [], &flags, None)),
            r#"invalid setting `server.listen` of the flag --listen: invalid value: string "deltaq:7070", expected an IP address and a port, such as "127.0.0.1:7070", "localhost:7070" or ":7070" for all IPv4 addresses"#,
        ),
        (
            message(with_variable("DELTAQ_LOG__LEVEL", "loud")),
            "invalid setting `log.level` in the environment variable DELTAQ_LOG__LEVEL: unknown variant `loud`, expected one of `off`, `error`, `warn`, `info`, `debug`, `trace`",
        ),
    ] {
        assert_eq!(said, expected);
    }
    assert!(message(with_file("server = 5\n")).starts_with("invalid setting `server` in deltaq.toml: "));
}

#[test]
fn the_entries_of_a_list_are_checked() {
    for value in [
        "[]",
        "['']",
        "['key']",
        "['/a~2']",
        "[{optional=true}]",
        "[{pointer='/a',optinal=true}]",
        "[1]",
        "key",
    ] {
        let text = message(with_variable("DELTAQ_QUEUE_DEFAULTS__KEY", value));
        assert!(text.contains("expected a list of 1 to 8 JSON pointers"), "{value}: {text}");
    }
    for value in ["['']", "['a:7070']", "['http://a']", "['::1']", "['[::g]']", "a.example:7070"] {
        let text = message(with_variable("DELTAQ_SERVER__ALLOWED_HOSTS", value));
        assert!(text.contains("expected host names"), "{value}: {text}");
    }
}

#[test]
fn conflicting_settings_are_refused() {
    for (said, expected) in [
        (
            message(with_variable("DELTAQ_SERVER__METRICS_LISTEN", "127.0.0.1:7070")),
            r#"invalid setting `server.metrics_listen` in the environment variable DELTAQ_SERVER__METRICS_LISTEN: the same as server.listen; leave it empty ("") to serve /metrics there"#,
        ),
        (
            message(with_file("[server]\nhttp2_listen = ':7070'\nlisten = ':7070'\n")),
            r#"invalid setting `server.http2_listen` in deltaq.toml: the same as server.listen; leave it empty ("") to serve no HTTP/2"#,
        ),
        (
            message(with_variable("DELTAQ_SERVER__HTTP2_LISTEN", "127.0.0.1:7071")),
            r#"invalid setting `server.http2_listen` in the environment variable DELTAQ_SERVER__HTTP2_LISTEN: the same as server.metrics_listen; leave it empty ("") to serve no HTTP/2"#,
        ),
        (
            message(with_file("[queue_defaults.rate_limiter.item_exponential]\nbase = '2000s'\n")),
            "invalid setting `queue_defaults.rate_limiter.item_exponential.base` in deltaq.toml: 2000s is longer than item_exponential.max (1000s)",
        ),
        (
            message(with_file("[queue_defaults]\nprune = ['/debug']\n")),
            "invalid setting `queue_defaults.prune` in deltaq.toml: each queue has its own; set it with PUT /v1/queues/{queue}",
        ),
        (
            message(with_file("[queue_defaults.rate_limiter.bucket]\nqps = 1\n")),
            "invalid setting `queue_defaults.rate_limiter.bucket.burst` in deltaq.toml: a value is required",
        ),
        (
            message(with_file("[server]\ntls_key = 'k'\n")),
            "invalid setting `server.tls_key` in deltaq.toml: server.tls_cert is required with it",
        ),
    ] {
        assert_eq!(said, expected);
    }
    let free = "listen = '127.0.0.1:0'\nmetrics_listen = '127.0.0.1:0'\nhttp2_listen = '127.0.0.1:0'\n";
    assert!(with_file(&format!("[server]\n{free}")).is_ok());
}

#[test]
fn a_missing_or_malformed_file_is_an_error() {
    let missing = Path::new("/nonexistent/deltaq.toml");
    assert!(matches!(load(Some(missing), [], &Flags::default(), None), Err(Error::Read { .. })));
    let text = message(with_file("[server\n"));
    assert!(text.starts_with("the configuration file deltaq.toml is not TOML: line 1: "), "{text}");
}

#[test]
fn the_data_dir_flag_overrides_in_memory() {
    let file = "[storage]\nin_memory = true\n";
    assert!(with_file(file).unwrap().storage.in_memory);
    let flags = Flags { data_dir: Some(PathBuf::from("/data")), ..Flags::default() };
    let settings = layered(Some((Path::new("f.toml"), file)), [], &flags, None).unwrap();
    assert!(!settings.storage.in_memory);
    assert_eq!(settings.storage.data_dir, Path::new("/data"));
}

#[test]
fn errors_about_tokens_do_not_show_the_token() {
    let error = message(with_variable("DELTAQ_ACCESS__TOKENS", "[{ name = \"a\", token = \"dq_5ec2e7\" }]"));
    assert!(error.contains("access.tokens") && !error.contains("5ec2e7"), "{error}");
}

#[test]
fn the_drain_delay_is_shorter_than_the_shutdown_timeout() {
    let error = message(with_file("[server]\ndrain_delay = \"30s\""));
    assert!(error.contains("server.drain_delay") && error.contains("server.shutdown_timeout"), "{error}");
    with_file("[server]\ndrain_delay = \"29s\"").unwrap();
    with_file("[server]\nshutdown_timeout = \"0s\"").unwrap();
}

/// Ranges appear twice: where the setting is deserialized, and in the schema of the HTTP API.
#[test]
fn the_schema_of_the_api_has_the_ranges_of_the_settings() {
    use utoipa::PartialSchema as _;

    let schemas = [
        ("", serde_json::to_value(deltaq_types::QueueSettings::schema())),
        ("rate_limiter.", serde_json::to_value(deltaq_types::RateLimiter::schema())),
        ("rate_limiter.item_fast_slow.", serde_json::to_value(deltaq_types::ItemFastSlow::schema())),
        ("rate_limiter.bucket.", serde_json::to_value(deltaq_types::Bucket::schema())),
        ("rate.", serde_json::to_value(deltaq_types::DeliveryRate::schema())),
        ("retention.", serde_json::to_value(deltaq_types::Retention::schema())),
    ];
    let mut checked = 0;
    for (prefix, schema) in schemas {
        let schema = schema.unwrap();
        for (name, property) in schema["properties"].as_object().unwrap() {
            let path = format!("{QUEUE_SECTION}.{prefix}{name}");
            let (maximum, from) = (property["maximum"].as_u64(), property["minimum"].as_u64());
            let Some(maximum) = maximum else { continue };
            let expected = expected_of(&path);
            let to = expected.rsplit(' ').next().unwrap();
            let has_no_limit = maximum == range::WHOLE_MAX && !expected.contains(" to ");
            assert!(has_no_limit || to.parse() == Ok(maximum), "{path}: {expected}, {property}");
            let from = from.map_or("above 0".to_owned(), |from| format!("from {from}"));
            assert!(expected.contains(&from), "{path}: {expected}, {property}");
            checked += 1;
        }
    }
    assert_eq!(checked, 15, "the settings that have a range");
}

/// The expected value in the error of a setting.
fn expected_of(path: &str) -> String {
    let mut layers = Layers::new().unwrap();
    layers.set(path, Value::Boolean(true), &Origin::Default);
    let error = layers.finish().unwrap_err().to_string();
    error.rsplit_once(", expected ").unwrap().1.to_owned()
}

#[test]
fn an_array_is_no_table() {
    let replaced = |path: &str, array: &str| {
        let mut document = serde_json::to_value(Settings::default().queue_defaults).unwrap();
        let parent = document.pointer_mut(path.rsplit_once('/').unwrap().0).unwrap();
        parent[path.rsplit_once('/').unwrap().1] = serde_json::from_str(array).unwrap();
        super::from_document::<QueueSettings>(document)
    };
    assert!(replaced("/retention", "{}").is_ok());
    assert!(replaced("/key", r#"[{"pointer":"/a","optional":true}]"#).is_ok());
    for (path, array) in [
        ("/retention", "[null,null]"),
        ("/rate_limiter", "[null,null]"),
        ("/rate_limiter/item_exponential", r#"["5ms","1s"]"#),
        ("/rate_limiter/item_fast_slow", r#"["5ms","1s",3]"#),
        ("/rate_limiter/bucket", "[1,1]"),
        ("/key", r#"[["/a",true]]"#),
    ] {
        let fault = replaced(path, array).expect_err(path);
        assert!(fault.why.contains("sequence") || path == "/key", "{path}: {}", fault.why);
    }
}
