//! The names of all settings of a queue, which find a wrong one where people write the document.

use serde_json::{Map, Value};

use super::QueueSettings;

impl QueueSettings {
    /// The names of all settings. A dot separates a setting from its member, as in `retention.age`.
    pub const NAMES: &[&str] = &[
        "mode",
        "key",
        "version",
        "version_ties",
        "known_objects",
        "emit_replaced",
        "lease",
        "max_failures",
        "rate_limiter",
        "rate_limiter.item_exponential",
        "rate_limiter.item_exponential.base",
        "rate_limiter.item_exponential.max",
        "rate_limiter.item_fast_slow",
        "rate_limiter.item_fast_slow.fast",
        "rate_limiter.item_fast_slow.slow",
        "rate_limiter.item_fast_slow.max_fast",
        "rate_limiter.bucket",
        "rate_limiter.bucket.qps",
        "rate_limiter.bucket.burst",
        "rate_limiter.max_wait",
        "rate_limiter.jitter",
        "debounce",
        "debounce.quiet",
        "debounce.max_wait",
        "debounce.deletes",
        "debounce.lists",
        "order",
        "order.head_start",
        "order.head_start.pointer",
        "order.head_start.default",
        "order.priority",
        "order.priority.pointer",
        "order.priority.step",
        "order.initial_list",
        "order.resync",
        "groups",
        "groups.by",
        "groups.max_leased",
        "groups.rate",
        "groups.rate.per_second",
        "groups.rate.burst",
        "groups.overrides",
        "max_leased",
        "rate",
        "rate.per_second",
        "rate.burst",
        "resync_period",
        "max_keys",
        "max_object_bytes",
        "max_deltas_per_key",
        "max_bytes_per_key",
        "max_delete_percent",
        "max_deletes",
        "retention",
        "retention.age",
        "retention.bytes",
        "follow",
        "follow.queue",
        "follow.view",
        "follow.prefix",
        "follow.max_waiting",
        "push",
        "push.url",
        "push.format",
        "push.payload",
        "push.secrets",
        "push.timeout",
        "push.max_in_flight",
        "push.batch",
        "push.retry",
        "push.reject_statuses",
        "push.disable_after",
        "push.handshake",
        "push.headers",
        "push.async",
        "hook",
        "hook.scheme",
        "hook.secrets",
        "hook.signature",
        "hook.signature.header",
        "hook.signature.prefix",
        "hook.signature.encoding",
        "hook.signature.timestamp_header",
        "hook.object",
        "hook.id",
        "hook.only",
        "hook.deleted",
        "hook.deleted.header",
        "hook.deleted.pointer",
        "hook.deleted.values",
        "hook.source",
        "hook.refuse",
        "cloudevents",
        "cloudevents.store",
        "cloudevents.deleted",
        "kubernetes",
        "kubernetes.group",
        "kubernetes.version",
        "kubernetes.kind",
        "kubernetes.plural",
        "kubernetes.view",
        "owner",
        "schema",
        "prune",
        "ignore",
        "indexes",
        "diff",
        "diff.array_keys",
    ];

    /// The first member that is an unknown setting, such as `rate_limiter.jiter`.
    #[must_use]
    pub fn unknown_name(given: &Map<String, Value>) -> Option<String> {
        unknown_below("", given)
    }
}

fn unknown_below(parent: &str, members: &Map<String, Value>) -> Option<String> {
    members.iter().find_map(|(name, value)| {
        let path = format!("{parent}{name}");
        if !QueueSettings::NAMES.contains(&path.as_str()) {
            return Some(path);
        }
        let prefix = path + ".";
        let has_names = QueueSettings::NAMES.iter().any(|name| name.starts_with(&prefix));
        value.as_object().filter(|_| has_names).and_then(|members| unknown_below(&prefix, members))
    })
}
