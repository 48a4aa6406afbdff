//! The calls of the HTTP API that the commands of rule scripts make. No other file of these tests has names of the API that
//! [`deltaq_types`] does not check.

use deltaq_types::{
    DeltaCall, DeltaCallType, ForgetBody, Hold, HoldScope, KeysBody, PauseBody, SeedCall, SettleAs,
    SettleBody, SettleCall,
};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::command::{Change, Command, Keyed, Options, Selection, Settle};

/// Where all keys with work are.
pub(super) const PLACES: &str = "/items?limit=5000";
/// The status of the queue.
pub(super) const STATUS: &str = "/status";
/// The codes of a call that settled none of its leases. The other members of the problem are those of a reply.
pub(super) const NONE_SETTLED: [&str; 2] = ["lease-lost", "not-leased"];
/// The code of a read of a key that the queue does not have.
pub(super) const KEY_NOT_FOUND: &str = "key-not-found";

/// A call of the queue.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: &'static str,
    /// The path behind that of the queue, with the query.
    pub(super) path: String,
    pub(super) body: String,
}

/// What a script names by small numbers.
pub(super) trait Numbers {
    /// The id of a lease.
    fn lease(&self, number: usize) -> String;

    /// The version of the queue.
    fn version(&self, number: u64) -> u64;
}

impl Call {
    pub(super) fn get(path: impl Into<String>) -> Self {
        Self { method: "GET", path: path.into(), body: String::new() }
    }

    /// The known object of a key.
    pub(super) fn known(key: &str) -> Self {
        Self::get(format!("/known/{key}"))
    }

    /// PUT creates a queue, PATCH changes its settings.
    fn settings(method: &'static str, options: &Options) -> Self {
        let settings: Map<String, Value> = options.iter().map(setting).collect();
        Self { method, path: String::new(), body: Value::Object(settings).to_string() }
    }

    fn post(call: &str, query: &Options) -> Self {
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        Self { method: "POST", path: format!("/{call}{mark}{}", query.join("&")), body: String::new() }
    }

    fn with(self, body: &impl Serialize) -> Self {
        Self { body: text(body), ..self }
    }

    /// A call that only lets the queue notice the time.
    pub(super) fn notice() -> Self {
        Self::post("forget", &Options::default()).with(&ForgetBody { keys: Vec::new() })
    }

    /// The call of a command.
    pub(super) fn of(command: &Command, numbers: &impl Numbers) -> Self {
        let bare = |call| Self::post(call, &Options::default());
        match command {
            Command::Queue(options) => Self::settings("PUT", options),
            Command::Set(options) => Self::settings("PATCH", options),
            Command::Tick(_) => Self::notice(),
            Command::Produce(change, keyed) => produce(*change, keyed),
            Command::Deltas(changes, options) => {
                let deltas: Vec<_> =
                    changes.iter().map(|(change, keyed)| delta(*change, keyed, numbers)).collect();
                Self::post("deltas", options).with(&deltas)
            }
            Command::Replace(list, options) => {
                let objects: Vec<&RawValue> = list.iter().filter_map(raw).collect();
                Self::post("replace", options).with(&objects)
            }
            Command::Resync => bare("resync"),
            Command::Seed(list) => bare("seed").with(&list.iter().filter_map(seed).collect::<Vec<_>>()),
            Command::Forget(keys) => bare("forget").with(&ForgetBody { keys: keys.clone() }),
            Command::Pop(options) => Self::post("pop", options),
            Command::Settle(settles) => {
                let settle = settles.iter().map(|settle| settle_call(settle, numbers)).collect();
                bare("settle").with(&SettleBody { settle })
            }
            Command::Purge => bare("purge"),
            Command::Promote(keys, options) => bare("delayed/promote").selecting(keys, options),
            Command::Redrive(keys, options) => bare("parked/redrive").selecting(keys, options),
            Command::Discard(keys, options) => bare("parked/discard").selecting(keys, options),
            Command::Pause(options) => bare("pause").with(&pause(options)),
            Command::Resume(options) => bare("resume").with(&pause(options)),
            Command::Close(options) => Self::post("close", options),
            Command::Reopen => bare("reopen"),
            Command::Item(key) => Self::get(format!("/items/{key}")),
            Command::Known => Self::get("/known"),
            Command::Latest => Self::get("/latest"),
            Command::Status => Self::get(STATUS),
            Command::Synced(options) => match options.get("resource_version") {
                None => Self::get("/synced"),
                Some(text) => {
                    let version =
                        text.parse().map_or(text.to_owned(), |number| numbers.version(number).to_string());
                    Self::get(format!("/synced?resource_version={version}"))
                }
            },
            Command::Sources => Self::get("/sources"),
            Command::Parked => Self::get("/parked/errors"),
        }
    }

    fn selecting(self, selection: &Selection, options: &Options) -> Self {
        let none = KeysBody { expected_count: options.number("expected_count"), ..KeysBody::default() };
        let body = match selection {
            Selection::All => KeysBody { all: true, ..none },
            Selection::Keys(keys) => KeysBody { keys: Some(keys.clone()), ..none },
            Selection::Error(error) => KeysBody { error: Some(error.clone()), ..none },
        };
        self.with(&body)
    }
}

/// The setting `groups`: what names them, the limit of all, and those of single groups.
fn groups(value: &str) -> Value {
    let mut parts = value.split(',');
    let by = parts.next().unwrap_or_default();
    if by == "none" {
        return Value::Null;
    }
    let by = by.strip_prefix("prefix:").map_or_else(|| json!(by), |end| json!({"key_prefix": end}));
    let mut groups = json!({"by": by, "overrides": {}});
    for part in parts {
        let (name, value) = part.split_once('=').expect("a value");
        let number = |text: &str| text.parse::<f64>().expect("a number");
        let value = match value.split_once('/') {
            Some((per_second, burst)) => json!({"per_second": number(per_second), "burst": number(burst)}),
            None => json!(number(value)),
        };
        match name.split_once(':') {
            None => groups[name] = value,
            Some((group, name)) => groups["overrides"][group][name] = value,
        }
    }
    groups
}

/// A setting as the config of a queue has it.
fn setting((name, value): (&str, &str)) -> (String, Value) {
    if name == "backoff" {
        let (base, max) = value.split_once("..").expect("a range");
        let limiter = json!({"item_exponential": {"base": base, "max": max}, "jitter": 0.0});
        return ("rate_limiter".to_owned(), limiter);
    }
    if name == "groups" {
        return (name.to_owned(), groups(value));
    }
    if let Some((range, flags)) = (name == "debounce").then(|| value.split_once(',').unwrap_or((value, ""))) {
        let Some((quiet, max_wait)) = range.split_once("..") else { return (name.to_owned(), Value::Null) };
        let deletes = if flags.contains("deletes=now") { "now" } else { "debounced" };
        let lists = flags.contains("lists=true");
        let debounce = json!({"quiet": quiet, "max_wait": max_wait, "deletes": deletes, "lists": lists});
        return (name.to_owned(), debounce);
    }
    if name == "rate" {
        let Some((per_second, burst)) = value.split_once(",burst=") else {
            return (name.to_owned(), Value::Null);
        };
        let number = |text: &str| text.parse::<serde_json::Number>().expect("a number");
        return (name.to_owned(), json!({"per_second": number(per_second), "burst": number(burst)}));
    }
    if name == "order" {
        return (name.to_owned(), order(value));
    }
    if name == "ignore" {
        return (name.to_owned(), json!(value.split(',').collect::<Vec<_>>()));
    }
    let plain = || Value::String(value.to_owned());
    (name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| plain()))
}

/// `/p,default=1m`, `/p,step=1m` or `/p,strict`, and `initial_list=`, `resync=`.
fn order(value: &str) -> Value {
    let mut order = Map::new();
    let pointer = value.split(',').next().filter(|part| part.starts_with('/'));
    for part in value.split(',').skip(usize::from(pointer.is_some())) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name {
            "none" => return Value::Null,
            "strict" => order.insert("priority".to_owned(), json!({"pointer": pointer, "step": null})),
            "step" => order.insert("priority".to_owned(), json!({"pointer": pointer, "step": value})),
            "default" => order.insert("head_start".to_owned(), json!({"pointer": pointer, "default": value})),
            name => order.insert(name.to_owned(), value.into()),
        };
    }
    Value::Object(order)
}

fn produce(change: Change, keyed: &Keyed) -> Call {
    let call = match change {
        Change::Added => "add",
        Change::Updated => "update",
        Change::Deleted => "delete",
    };
    let query = keyed.options.clone().with("key", &keyed.key);
    Call { body: keyed.object.clone().unwrap_or_default(), ..Call::post(call, &query) }
}

fn delta<'a>(change: Change, keyed: &'a Keyed, numbers: &impl Numbers) -> DeltaCall<'a> {
    let expected: Option<u64> = keyed.options.number("expected_version");
    DeltaCall {
        kind: match change {
            Change::Added => DeltaCallType::Added,
            Change::Updated => DeltaCallType::Updated,
            Change::Deleted => DeltaCallType::Deleted,
        },
        key: Some(keyed.key.clone()),
        object: raw(keyed),
        source: keyed.options.get("source").map(str::to_owned),
        delay: keyed.options.get("delay").map(str::to_owned),
        debounce: keyed.options.get("debounce").map(str::to_owned),
        head_start: keyed.options.get("head_start").map(str::to_owned),
        max_wait: keyed.options.get("max_wait").map(str::to_owned),
        final_state_unknown: keyed.options.flag("final_state_unknown"),
        expected_version: expected.map(|number| if number == 0 { 0 } else { numbers.version(number) }),
    }
}

fn seed(keyed: &Keyed) -> Option<SeedCall<'_>> {
    let source = keyed.options.get("source").map(str::to_owned);
    Some(SeedCall { key: None, source, resource_version: None, object: raw(keyed)? })
}

fn raw(keyed: &Keyed) -> Option<&RawValue> {
    keyed.object.as_deref().map(|object| serde_json::from_str(object).expect("JSON"))
}

fn settle_call(settle: &Settle, numbers: &impl Numbers) -> SettleCall {
    let how: SettleAs = serde_json::from_value(settle.how.clone().into()).expect("a way to settle");
    let option = |name| settle.options.get(name).map(str::to_owned);
    SettleCall {
        delay: option("delay").map(Into::into),
        floor: (option("floor").as_deref() == Some("true")).then_some(true),
        error: option("error").map(Into::into),
        hold: option("hold")
            .map(Into::into)
            .or_else(|| Some(Box::new(hold(HoldScope::Group, option("hold_group")?))))
            .or_else(|| Some(Box::new(hold(HoldScope::Key, option("hold_key")?)))),
        through: settle.options.number("through").map(|number| Box::new(numbers.version(number))),
        keep: (option("keep").as_deref() == Some("true")).then_some(true),
        lease_duration: option("lease_duration").map(Into::into),
        ..SettleCall::new(numbers.lease(settle.lease), how)
    }
}

fn hold(scope: HoldScope, length: String) -> Hold {
    Hold { scope, ..length.into() }
}

fn pause(options: &Options) -> PauseBody {
    PauseBody { group: options.get("group").map(Into::into) }
}

fn text(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("JSON")
}
