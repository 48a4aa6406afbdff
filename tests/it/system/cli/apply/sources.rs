//! The thresholds of sources in the file of `deltaq apply`.

use serde_json::{Value, json};

use super::{Server, file};

/// The threshold of each source that the queue remembers, by name.
pub(super) fn thresholds(server: &Server, queue: &str) -> Value {
    let sources = server.json(&["sources", queue]);
    let sources = sources.as_array().expect("a list").iter();
    let threshold = |source: &Value| {
        (source["source"].as_str().expect("a name").to_owned(), source["stale_after"].clone())
    };
    Value::Object(sources.map(threshold).collect())
}

#[test]
fn a_file_sets_the_thresholds_of_sources() {
    let server = Server::in_memory();
    let apply = |text: &str, options: &[&str]| {
        let path = file(&server, "queues.yaml", text);
        server.run(&[&["apply", "--file", &path], options].concat())
    };
    let text = "queues:\n  prices:\n    sources: {erp: {stale_after: 15m}, 72044e0: {stale_after: 90s}}\n";
    let plan: Value = serde_json::from_str(&apply(text, &["--dry-run", "-o", "json"]).stdout).expect("JSON");
    let planned = plan["queues"][0]["changes"].as_array().expect("changes");
    let change = json!({"setting": "sources.erp.stale_after", "before": null, "after": "15m"});
    assert!(planned.contains(&change), "{plan}");
    let created = apply(text, &[]).ok();
    assert!(
        created.contains("+ prices\n") && created.contains("    sources.erp.stale_after: null -> \"15m\"\n"),
        "{created}"
    );
    assert_eq!(thresholds(&server, "prices"), json!({"erp": "15m", "72044e0": "90s"}));
    let again = apply(&text.replace("15m", "900s"), &["--dry-run"]).ok();
    assert!(again.ends_with("0 new, 0 changed, 1 as before\n"), "{again}");

    // The file that the server exports has them, and no other source.
    server.run(&["add", "prices", r#"{"key":"a"}"#, "--source", "shop"]).ok();
    let exported = server.run(&["export", "--settings"]).ok();
    let document: Value = serde_json::from_str(&exported).expect("JSON");
    assert_eq!(
        document["queues"]["prices"]["sources"],
        json!({"erp": {"stale_after": "15m"}, "72044e0": {"stale_after": "90s"}})
    );
    let path = file(&server, "exported.json", &exported);
    server.run(&["apply", "--file", &path, "--dry-run"]).ok();
    let copy = Server::in_memory();
    copy.run(&["apply", "--file", &path]).ok();
    assert_eq!(copy.run(&["export", "--settings"]).ok(), exported);

    // A source without a threshold has none; one that the file does not name keeps its own.
    let changed = apply("queues: {prices: {lease: 2m, sources: {erp: {}}}}", &[]).ok();
    let expected = "~ prices\n    lease: \"30s\" -> \"2m\"\n    sources.erp.stale_after: \"15m\" -> null\n";
    assert!(changed.starts_with(expected), "{changed}");
    assert_eq!(thresholds(&server, "prices")["erp"], Value::Null);
    assert_eq!(thresholds(&server, "prices")["72044e0"], "90s");

    for (text, part) in [
        ("queues: {a: {sources: {erp: {stale_for: 1m}}}}", "queue a: sources"),
        ("queues: {a: {sources: {erp: {stale_after: soon}}}}", "queue a: sources"),
        ("queues: {a: {sources: [erp]}}", "queue a: sources"),
        ("queues: {a: {sources: {erp: {stale_after: 1ms}}}}", "queue a: sources.erp: invalid value"),
    ] {
        let refused = apply(text, &[]).failed(1);
        assert!(refused.contains(part), "{text}: {refused}");
    }
}
