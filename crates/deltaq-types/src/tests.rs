//! Each document survives a round trip, and replies of newer servers are readable.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

/// Reads the text, writes it and compares.
fn same<T: Serialize + DeserializeOwned + Debug>(text: &str) {
    let document: T = serde_json::from_str(text).expect(text);
    assert_eq!(serde_json::to_string(&document).expect("it can be written"), text);
}

const SETTINGS: &str = r#"{"mode":"latest","key":[{"pointer":"/ns","optional":true},"/name"],"version":"/at","version_ties":"apply","known_objects":true,"emit_replaced":false,"lease":"1m","max_failures":5,"rate_limiter":{"item_exponential":{"base":"5ms","max":"1000s"},"item_fast_slow":{"fast":"1s","slow":"1m","max_fast":3},"bucket":{"qps":0.5,"burst":2},"max_wait":"1h","jitter":0.1},"debounce":{"quiet":"2s","max_wait":"10s","deletes":"now","lists":true},"order":{"head_start":{"pointer":"/urgent_for","default":"-1s"},"priority":{"pointer":"/p","step":"1m"},"initial_list":"-10m","resync":"5m"},"groups":{"by":{"key_prefix":"/"},"max_leased":20,"rate":{"per_second":2.5,"burst":3},"overrides":{"":{"weight":null,"max_leased":7,"rate":null},"acme":{"weight":5,"max_leased":null,"rate":{"per_second":0.001,"burst":1}}}},"max_leased":200,"rate":{"per_second":0.5,"burst":300},"resync_period":"10h","max_keys":10,"max_object_bytes":100,"max_deltas_per_key":2,"max_bytes_per_key":7,"max_delete_percent":12.5,"max_deletes":3,"retention":{"age":"7d","bytes":9},"follow":{"queue":"a","view":"known","prefix":"x","max_waiting":4},"push":{"url":"https://shop.example/hooks","format":"raw","payload":"thin","secrets":["shop"],"timeout":"8s","max_in_flight":9,"batch":7,"retry":["5s","5m"],"reject_statuses":[404],"disable_after":"5d","handshake":"deltaq.example","headers":{"authorization":{"secret":"shop","prefix":"Bearer "},"x-env":"prod"},"async":true},"hook":{"scheme":"hmac","secrets":["gh"],"signature":{"header":"x-signature","prefix":"sha256=","encoding":"base64","timestamp_header":"x-time"},"object":"/issue","id":"header:x-delivery","only":[{"header":"x-event","pointer":null,"values":["issues"]}],"deleted":{"header":null,"pointer":"/action","values":["deleted"]},"source":"github","refuse":true},"cloudevents":{"store":"event","deleted":[".gone"]},"kubernetes":{"group":"shop.example","version":"v1","kind":"Price","plural":"prices","view":"known"},"owner":"shop","schema":{"minimum":1.50},"prune":["/debug"],"ignore":["/at"],"indexes":{"by_city":"/city"},"diff":{"array_keys":{"/items":"/sku"}}}"#;
const BARE_SETTINGS: &str = r#"{"mode":"delta","key":["/key"],"version":null,"version_ties":null,"known_objects":true,"emit_replaced":true,"lease":"30s","max_failures":0,"rate_limiter":{"item_exponential":null,"item_fast_slow":null,"bucket":null,"max_wait":null,"jitter":0},"debounce":null,"order":null,"groups":null,"max_leased":null,"rate":null,"resync_period":null,"max_keys":10,"max_object_bytes":100,"max_deltas_per_key":2,"max_bytes_per_key":7,"max_delete_percent":50,"max_deletes":null,"retention":{"age":null,"bytes":null},"follow":null,"push":null,"hook":null,"cloudevents":null,"kubernetes":null,"owner":null,"schema":null,"prune":[],"ignore":[],"indexes":{},"diff":{"array_keys":{}}}"#;
const STATUS: &str = r#"{"ready":1,"delayed":2,"leased":3,"parked":4,"known":5,"held_bytes":12,"waiters":6,"has_synced":true,"initial_remaining":7,"resource_version":18446744073709551615,"changes":13,"oldest_ready_age_ms":8,"oldest_unacknowledged_age_ms":9,"paused":false,"held_until":"2026-11-21T04:21:03.491Z","pause_reason":"endpoint_gone","closed":true,"drained":false,"building_indexes":["by_city"],"building_groups":true,"last_replace":{"source":null,"counts":{"replaced":1,"deleted":2,"unchanged":3,"skipped":4,"taken_over":5,"stale":6},"started_at":"2026-11-21T04:20:03.491Z","ended_at":null,"aborted":true},"follow":{"state":"waiting","resource_version":null,"lag_events":10,"lag_ms":11,"reason":null,"detail":"why"},"push":{"state":"failing","in_flight":1,"allowed_in_flight":2,"last_success_at":null,"last_error":"503"},"hook":{"kept":3,"last_applied_at":null,"last_rejected_at":"2026-11-21T04:20:03.491Z","last_rejected":"no_key: the object has no key"},"followers":["b"]}"#;

#[test]
fn replies_survive_a_round_trip() {
    same::<QueueSettings>(SETTINGS);
    same::<QueueSettings>(BARE_SETTINGS);
    let queue = format!(
        r#"{{"name":"a","incarnation":"7a1e0b52","life":"2f319c5d","auto_created":false,"created_at":"2026-11-21T04:20:03.491Z","settings":{SETTINGS},"status":{STATUS},"drained":null}}"#
    );
    same::<QueueDocument>(&queue);
    same::<QueueDocument>(&queue.replace(r#""drained":null"#, r#""drained":true"#));
    same::<PushTestDocument>(r#"{"status":null,"duration_ms":15000,"answer":"no answer within 15s"}"#);
    same::<Produced>(
        r#"{"resource_version":4,"queued":1,"merged":2,"ignored":0,"stale":0,"duplicate":false,"sequence":7,"incarnation":"7a1e0b52","life":"2f319c5d","keys":null,"invalid":1,"invalid_objects":[{"index":3,"key":null,"code":"no-key","detail":"no key"}]}"#,
    );
    same::<Replaced>(
        r#"{"resource_version":8,"queued":2,"merged":0,"ignored":0,"replaced":2,"deleted":0,"unchanged":1,"skipped":3,"taken_over":4,"stale":5,"duplicate":true,"sequence":null,"incarnation":null,"life":null,"invalid":0,"invalid_objects":[]}"#,
    );
    same::<SettledList>(
        r#"{"settled":[{"lease_id":"a-1","as":"ack","result":"ok","outcome":null,"failures":null,"due_at":null,"parked":null},{"lease_id":"a-2","as":"nack","result":"stale","outcome":"expired","failures":null,"due_at":null,"parked":null},{"lease_id":"a-3","as":"nack","result":"ok","outcome":null,"failures":2,"due_at":"2026-11-21T04:20:03.491Z","parked":false}],"stale":1}"#,
    );
    same::<SettledList>(
        r#"{"settled":[{"lease_id":"a-1","as":"extend","result":"ok","outcome":null,"expires_at":"2026-11-21T04:20:03.491Z","expires_in_ms":5,"pending_deltas":1,"deleted":false},{"lease_id":"a-2","as":"extend","result":"stale","outcome":"unknown","expires_at":null,"expires_in_ms":null,"pending_deltas":null,"deleted":null}],"stale":1}"#,
    );
    same::<Page<ItemDocument>>(
        r#"{"items":[{"key":"k","state":"leased","deltas":[],"leased_deltas":[{"type":"Sync","resource_version":1,"queued_at":"2026-11-21T04:20:03.491Z","object":{"n": 1.50},"final_state_unknown":true,"source":"s","coalesced":2,"traceparent":"t"}],"lease":{"id":"a-1","token":1,"worker":null,"expires_at":"2026-11-21T04:20:03.491Z","expires_in_ms":5},"leased_at":"2026-11-21T04:20:03.491Z","attempt":1,"failures":0,"last_error":null,"due_at":null,"source":"o"}],"continue":"ff","resource_version":3}"#,
    );
    same::<Page<ObjectDocument>>(
        r#"{"items":[{"key":"k","source":null,"resource_version":1,"object":{}}],"continue":null,"resource_version":3}"#,
    );
    same::<Page<EventDocument>>(
        r#"{"items":[{"resource_version":1,"at":"2026-11-21T04:20:03.491Z","event":"settled","by":null,"lease_id":"a-1","outcome":"returned","parked":true,"error":null,"due_at":null},{"resource_version":2,"at":"2026-11-21T04:20:03.491Z","event":"removed","by":null}],"continue":null,"resource_version":3}"#,
    );
    same::<Page<WatchRow>>(
        r#"{"items":[{"type":"Added","key":"k","resource_version":1,"object":{},"source":null},{"type":"Deleted","key":"k","resource_version":2,"final_state_unknown":true,"object":null,"source":"s"},{"type":"Bookmark","resource_version":2,"initial_events_end":false}],"continue":null,"resource_version":3}"#,
    );
    same::<ProblemDocument>(
        r#"{"type":"/problems/lease-lost","title":"t","status":409,"detail":"d","code":"lease-lost","retryable":false,"request_id":"r","limit":7,"limit_ms":1000,"settled":[],"stale":0}"#,
    );
}

#[test]
fn requests_survive_a_round_trip() {
    same::<PopBody>(r#"{"settle":[{"lease_id":"a-1","as":"nack","delay":"5m","error":"no route"}]}"#);
    same::<PopBody>("{}");
    same::<PopBody>(r#"{"settle":[{"lease_ids":["a-1","a-2"],"as":"extend","lease_duration":"1m"}]}"#);
    same::<LeasesBody>(r#"{"lease_ids":["a-1"],"error":"no"}"#);
    same::<LeasesBody>(r#"{"lease_id":"a-1","lease_duration":"1m"}"#);
    same::<LeasesBody>(r#"{"lease_id":"a-1","hold":{"scope":"queue","for":"30s"}}"#);
    same::<LeasesBody>(r#"{"lease_id":"a-1","through":7,"keep":true}"#);
    same::<KeysBody>(r#"{"keys":["a"]}"#);
    same::<KeysBody>(r#"{"error":"","expected_count":3}"#);
    same::<KeysBody>(r#"{"all":true}"#);
    same::<ForgetBody>(r#"{"keys":[]}"#);
    for text in [
        r#"{"type":"Deleted","key":"k","source":"s","delay":"1s","final_state_unknown":true}"#,
        r#"{"type":"Added","object":{"n": 1.50}}"#,
    ] {
        let call: DeltaCall<'_> = serde_json::from_str(text).expect(text);
        assert_eq!(serde_json::to_string(&call).expect("it can be written"), text);
    }
    let text = r#"{"key":"k","source":"s","resource_version":5,"object":{"n": 1.50}}"#;
    let call: SeedCall<'_> = serde_json::from_str(text).expect(text);
    assert_eq!(serde_json::to_string(&call).expect("it can be written"), text);
}

#[test]
fn requests_refuse_unknown_fields() {
    let refused = |text: &str| serde_json::from_str::<KeysBody>(text).expect_err(text).to_string();
    assert!(refused(r#"{"keyz":[]}"#).contains("unknown field `keyz`"));
    let former =
        serde_json::from_str::<LeasesBody>(r#"{"leases":[]}"#).expect_err("a former name").to_string();
    assert!(former.contains("unknown field `leases`"), "{former}");
}

#[test]
fn empty_texts_and_null_are_absent() {
    let text = r#"{"lease_id":"","lease_ids":["a-1"],"as":"nack","delay":"","floor":false,"error":"","lease_duration":""}"#;
    let call: SettleCall = serde_json::from_str(text).expect(text);
    let expected = LeasesBody { lease_ids: Some(vec!["a-1".to_owned()]), ..LeasesBody::default() };
    assert_eq!(call, expected.settled_as(SettleAs::Nack));
    let text = r#"{"lease_id":null,"delay":null,"floor":null,"error":null,"hold":null,"through":null,"keep":null,"lease_duration":null}"#;
    assert_eq!(serde_json::from_str::<LeasesBody>(text).expect(text), LeasesBody::default());
    let text = r#"{"error":null,"all":null,"expected_count":null}"#;
    assert_eq!(serde_json::from_str::<KeysBody>(text).expect(text), KeysBody::default());
    let text =
        r#"{"type":"Deleted","key":"","object":null,"source":"","delay":"","final_state_unknown":null}"#;
    let call: DeltaCall<'_> = serde_json::from_str(text).expect(text);
    assert_eq!(serde_json::to_string(&call).expect("it can be written"), r#"{"type":"Deleted"}"#);
}

#[test]
fn each_option_goes_with_some_ways_to_settle() {
    let misplaced = |how: SettleAs| {
        let all = LeasesBody {
            delay: Some("1s".into()),
            floor: Some(true),
            error: Some("no".into()),
            hold: Some("1s".to_owned().into()),
            lease_duration: Some("1m".into()),
            ..LeasesBody::default()
        };
        all.settled_as(how).misplaced_option().map(|(option, _)| option)
    };
    assert_eq!(misplaced(SettleAs::Ack), Some("delay"));
    assert_eq!(misplaced(SettleAs::Done), Some("floor"));
    assert_eq!(misplaced(SettleAs::Reject), Some("delay"));
    assert_eq!(misplaced(SettleAs::Nack), Some("hold"));
    assert_eq!(misplaced(SettleAs::Extend), Some("delay"));
    assert_eq!(SettleCall::new("a-1", SettleAs::Extend).misplaced_option(), None);
}

#[test]
fn null_is_an_empty_list() {
    let keys = |text: &str| serde_json::from_str::<KeysBody>(text).expect(text).keys;
    assert_eq!((keys(r#"{"keys":null}"#), keys("{}")), (Some(Vec::new()), None));
    let forget: ForgetBody = serde_json::from_str(r#"{"keys":null}"#).expect("null");
    assert_eq!(forget.keys, Vec::<String>::new());
    assert_eq!(serde_json::from_str::<PopBody>(r#"{"settle":null}"#).expect("null"), PopBody::default());
    let leases: LeasesBody = serde_json::from_str(r#"{"lease_ids":null}"#).expect("null");
    assert_eq!(leases.lease_ids, Some(Vec::new()));
}

#[test]
fn replies_of_newer_servers_are_readable() {
    let text = r#"{"lease_id":"a-1","as":"ack","result":"later","outcome":"moved","shard":3}"#;
    let settled: SettledDocument = serde_json::from_str(text).expect(text);
    assert_eq!(
        (settled.result, settled.outcome),
        (SettleResult::Unrecognized, Some(LeaseOutcome::Unrecognized))
    );
}

#[test]
fn the_settings_of_a_newer_server_are_readable() {
    let text =
        SETTINGS.replacen('{', r#"{"later":{"url":"x"},"#, 1).replace(r#""age":"#, r#""bits":1,"age":"#);
    assert_eq!(
        serde_json::from_str::<QueueSettings>(&text).expect("unknown settings are ignored"),
        serde_json::from_str(SETTINGS).expect("settings")
    );
    let names = |text: &str| {
        QueueSettings::unknown_name(&serde_json::from_str(text).expect("an object")).unwrap_or_default()
    };
    assert_eq!(names(&text), "later");
    assert_eq!(names(r#"{"retention":{"bits":1}}"#), "retention.bits");
    assert_eq!(names(r#"{"rate_limiter":{"bucket":{"qqps":1}}}"#), "rate_limiter.bucket.qqps");
    assert_eq!(names(SETTINGS), "", "names in a schema and in indexes are those of the user");
}

/// The list of names against the fields of the types.
#[test]
fn the_names_of_all_settings_are_known() {
    fn add(parent: &str, value: &serde_json::Value, names: &mut Vec<String>) {
        for (name, value) in value.as_object().into_iter().flatten() {
            let path = format!("{parent}{name}");
            names.push(path.clone());
            if !["schema", "indexes", "diff.array_keys", "groups.by", "groups.overrides", "push.headers"]
                .contains(&path.as_str())
            {
                add(&format!("{path}."), value, names);
            }
        }
    }
    let mut names = Vec::new();
    add("", &serde_json::from_str(SETTINGS).expect("settings"), &mut names);
    assert_eq!(names, QueueSettings::NAMES);
}

/// The settings of a store that 0.1.0 has written, with only what 0.1.0 requires. A later setting needs a default, or such a store does
/// not load: never add to this text.
#[test]
fn stored_settings_may_lack_a_later_one() {
    let stored = r#"{"mode":"delta","key":["/key"],"known_objects":true,"emit_replaced":true,"lease":"30s","max_failures":0,"rate_limiter":{"jitter":0},"max_keys":10,"max_object_bytes":100,"max_deltas_per_key":2,"max_bytes_per_key":7}"#;
    let settings: QueueSettings = serde_json::from_str(stored).expect("the store loads");
    let bare: QueueSettings = serde_json::from_str(BARE_SETTINGS).expect("settings");
    assert_eq!(settings, QueueSettings { max_delete_percent: None, ..bare });
}

/// `serde_json` alone reads the first two off by the last bit.
#[test]
fn a_fraction_is_read_back_exactly() {
    for fraction in [55.393_536_131_272_924, 19.844_004_278_856_286, 0.1 + 0.2, 1e-300, 0.25] {
        let settings: QueueSettings = serde_json::from_str(BARE_SETTINGS).expect("settings");
        let settings = QueueSettings { max_delete_percent: Some(fraction), ..settings };
        let text = serde_json::to_string(&settings).expect("it can be written");
        assert_eq!(serde_json::from_str::<QueueSettings>(&text).expect(&text), settings);
    }
}

#[test]
fn an_object_keeps_its_text() {
    let object: RawObject =
        serde_json::from_str(r#"{"n": 1.50, "big":12345678901234567890123}"#).expect("an object");
    assert_eq!(object.as_str(), r#"{"n": 1.50, "big":12345678901234567890123}"#);
    assert!(serde_json::from_str::<RawObject>("[]").is_err());
}

#[test]
fn timestamps_have_milliseconds_and_an_end() {
    let instant = Timestamp::from_micros(1_795_298_400_102_030);
    assert_eq!(instant.to_string(), "2026-11-21T22:00:00.102Z");
    assert_eq!(Timestamp::from_micros(u64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
    let read: Timestamp = serde_json::from_str("\"2026-11-21T22:00:00.102Z\"").expect("an instant");
    assert_eq!(read, Timestamp::from_micros(1_795_298_400_102_000));
}

#[test]
fn a_shown_url_has_no_secret() {
    for (url, shown) in [
        ("http://a:7070/b", "http://a:7070/b"),
        ("http://u:PW@a:7070/b", "http://***@a:7070/b"),
        ("u:PW@a", "***@a"),
        ("http://u:P/W@a", "http://***@a"),
        ("http://u:P@W@a", "http://***@a"),
        ("http://a/b?api_key=PW", "http://a/b?***"),
        ("http://u:P?W@a", "http://***?***"),
        ("postgres://u:PW@[::1]:5432/d?password=PW", "postgres://***@[::1]:5432/d?***"),
    ] {
        assert_eq!(crate::range::shown_url(url), shown);
    }
}
