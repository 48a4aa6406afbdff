//! YAML is YAML 1.2 with its core schema.

use serde_json::{Value, json};

use super::{Server, file, settings};

#[test]
fn names_stay_text_and_values_are_those_of_the_core_schema() {
    let server = Server::in_memory();
    let text = "owner: 1e5
queues:
  no: {max_failures: 012}
  1e5: {max_failures: 0o17}
  72044e0: {max_failures: 0x1F}
  0o17: {schema: {enum: [no, 'no', 1_000, 0b11, 012, 1e5, 0o17, true, ~, 5., +7]}}
  1_000: {}
  0b11: {}
  012: {}
  15: {}
  10: {}
";
    server.run(&["apply", "--file", &file(&server, "queues.yaml", text)]).ok();
    let names = server.run(&["queues", "-o", "name"]).ok();
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["012", "0b11", "0o17", "10", "15", "1_000", "1e5", "72044e0", "no"]);
    let failures = |queue: &str| settings(&server, queue)["max_failures"].clone();
    assert_eq!([failures("no"), failures("1e5"), failures("72044e0")], [json!(12), json!(15), json!(31)]);
    assert_eq!(settings(&server, "no")["owner"], "1e5");
    let expected: Value = json!(["no", "no", "1_000", "0b11", 12, 1e5, 15, true, null, 5, 7]);
    assert_eq!(settings(&server, "0o17")["schema"]["enum"], expected);
    let kept = server.run(&["apply", "--file", &file(&server, "queues.yaml", text), "--dry-run"]).ok();
    assert!(kept.ends_with("0 new, 0 changed, 9 as before\n"), "{kept}");

    // A text where a number is needed is refused by the server, and not read as a number of YAML 1.1.
    for value in ["1_000", "0b11", "-0o17"] {
        let text = format!("queues: {{bad: {{max_failures: {value}}}}}");
        let refused = server.run(&["apply", "--file", &file(&server, "queues.yaml", &text)]).failed(1);
        assert!(refused.contains("queue bad") && refused.contains("max_failures"), "{refused}");
    }
}

#[test]
fn a_doubled_name_is_an_error_with_its_line() {
    let server = Server::in_memory();
    for (text, part) in [
        ("queues:\n  a: {}\n  b: {}\n  a: {}\n", "line 4: queues: \"a\" is there twice, first in line 2"),
        ("queues:\n  a:\n    lease: 1m\n    \"lease\": 2m\n", "line 4: queues.a: \"lease\" is there twice"),
        ("queues: {a: {}}\nqueues: {b: {}}\n", "line 2: \"queues\" is there twice"),
        ("queues:\n  0o17: {}\n  15: {}\n  0o17: {}\n", "line 4: queues: \"0o17\" is there twice"),
    ] {
        let refused = server.run(&["apply", "--file", &file(&server, "twice.yaml", text)]).failed(1);
        assert!(refused.contains("twice.yaml") && refused.contains(part), "{text}: {refused}");
    }
    assert_eq!(server.run(&["queues", "-o", "name"]).ok(), "");
}
