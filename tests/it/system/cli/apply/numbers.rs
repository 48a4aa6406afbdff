//! Numbers of any size in schemas: they keep their text on their way through files, plans and the server.

use serde_json::value::RawValue;

use super::{Server, file};

/// A schema with numbers that a double can't hold, or writes in another way.
const SCHEMA: &str = r#"{"maximum":1e400,"minimum":-12345678901234567890123,"multipleOf":4.90,"const":0.12345678901234567890123}"#;

/// The text of the schema of a queue.
fn schema(server: &Server, queue: &str) -> String {
    let settings = server.run(&["queue", "settings", queue, "-o", "ndjson"]).ok();
    let settings: std::collections::BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(&settings).expect("JSON");
    settings["schema"].get().to_owned()
}

#[test]
fn numbers_of_a_json_file_keep_every_digit() {
    let server = Server::in_memory();
    let text = format!(
        r#"{{"owner":"shop","queues":{{"plain":{{"mode":"keys"}},"q":{{"mode":"latest","schema":{SCHEMA}}}}}}}"#
    );
    let path = file(&server, "queues.json", &text);
    let applied = server.run(&["apply", "--file", &path]).ok();
    assert!(applied.contains(&format!("    schema: {SCHEMA}\n")), "{applied}");
    assert!(applied.ends_with("2 new, 0 changed, 0 as before\n"), "{applied}");
    assert_eq!(schema(&server, "q"), SCHEMA);

    // Another order and other spellings of the same numbers are no change.
    let same = r#"{"const":0.12345678901234567890123,"multipleOf":4.9,"minimum":-1.2345678901234567890123e22,"maximum":10E399}"#;
    let path = file(&server, "same.json", &text.replace(SCHEMA, same));
    let kept = server.run(&["apply", "--file", &path, "--dry-run", "--prune"]).ok();
    assert!(kept.ends_with("0 new, 0 changed, 2 as before\n"), "{kept}");

    // A change of the last digit is one.
    let other = text.replace("890123,\"multi", "890124,\"multi");
    let path = file(&server, "other.json", &other);
    let changed = server.run(&["apply", "--file", &path]).ok();
    let expected = "~ q\n    schema.minimum: -12345678901234567890123 -> -12345678901234567890124\n";
    assert!(changed.contains(expected), "{changed}");
    let planned =
        server.run(&["apply", "--file", &file(&server, "queues.json", &text), "--dry-run", "-o", "json"]);
    assert!(planned.stdout.contains(r#""after":-12345678901234567890123"#), "{planned:?}");
    planned.failed(7);

    // The file that the server exports has the same texts.
    let exported = server.run(&["export", "--settings"]).ok();
    assert!(
        exported.contains("\"maximum\": 1e400,") && exported.contains("\"multipleOf\": 4.90"),
        "{exported}"
    );
    let copy = Server::in_memory();
    copy.run(&["apply", "--file", &file(&copy, "exported.json", &exported)]).ok();
    assert_eq!(schema(&copy, "q"), schema(&server, "q"));
    assert_eq!(copy.run(&["export", "--settings"]).ok(), exported);
}

#[test]
fn numbers_of_yaml_and_toml_keep_every_digit() {
    let server = Server::in_memory();
    let yaml = format!("queues:\n  q: {{schema: {}}}\n", SCHEMA.replace(':', ": "));
    server.run(&["apply", "--file", &file(&server, "queues.yaml", &yaml)]).ok();
    assert_eq!(schema(&server, "q"), SCHEMA);
    let toml = format!("[queues.q]\nschema = {}\n", SCHEMA.replace(':', " = "));
    let kept = server.run(&["apply", "--file", &file(&server, "queues.toml", &toml), "--dry-run"]).ok();
    assert!(kept.ends_with("0 new, 0 changed, 1 as before\n"), "{kept}");

    // What JSON has no number for is refused, with its place.
    let large = format!("0x{}", "f".repeat(40));
    for (name, text, part) in [
        (
            "a.yaml",
            format!("queues:\n  a: {{}}\n  q: {{schema: {{maximum: {large}}}}}\n"),
            "line 3: queues.q.schema.maximum",
        ),
        (
            "b.yaml",
            "queues:\n  q:\n    schema: {enum: [1, .inf]}\n".to_owned(),
            "line 3: queues.q.schema.enum.1: .inf",
        ),
        ("c.toml", format!("[queues.q.schema]\nmaximum = {large}\n"), "line 2: queues.q.schema.maximum"),
        ("d.toml", "[queues.q.schema]\nmaximum = nan\n".to_owned(), "line 2: queues.q.schema.maximum: nan"),
    ] {
        let refused = server.run(&["apply", "--file", &file(&server, name, &text)]).failed(1);
        assert!(refused.contains(name) && refused.contains(part), "{name}: {refused}");
    }
}

#[test]
fn a_number_that_is_no_value_of_its_setting_is_refused_with_its_queue() {
    let server = Server::in_memory();
    let text = r#"{"queues":{"good":{},"bad":{"max_failures":1e400}}}"#;
    let refused = server.run(&["apply", "--file", &file(&server, "queues.json", text)]).failed(1);
    assert!(refused.contains("queue bad") && refused.contains("max_failures"), "{refused}");
    assert_eq!(server.run(&["queues", "-o", "name"]).ok(), "");
}
