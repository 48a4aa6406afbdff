//! The JSON Schema of the file: what it accepts is what `deltaq apply` reads.

use std::path::Path;

use serde_json::{Value, json};

use super::{Server, file};

/// The files of `deltaq apply` in a page: its blocks of YAML with queues.
fn examples(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).expect("a page");
    let blocks = text.split("```yaml\n").skip(1).filter_map(|block| block.split("```").next());
    blocks.filter(|block| block.lines().any(|line| line == "queues:")).map(str::to_owned).collect()
}

#[test]
fn the_schema_accepts_the_examples_of_the_documents() {
    let server = Server::in_memory();
    let schema: Value = serde_json::from_str(&server.run(&["apply", "--schema"]).ok()).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    for page in ["docs/cli.md", "docs/how-to/declare-queues.md"] {
        let examples = examples(page);
        assert!(!examples.is_empty(), "{page}");
        for example in examples {
            let document: Value = serde_saphyr::from_str(&example).expect("YAML");
            let errors: Vec<_> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{page}: {errors:?}: {example}");
            let fresh = Server::in_memory();
            fresh.run(&["apply", "--file", &file(&fresh, "queues.yaml", &example)]).ok();
        }
    }
    server.run(&["queue", "create", "jobs", "mode=keys", "owner=shop"]).ok();
    let exported: Value = serde_json::from_str(&server.run(&["export", "--settings"]).ok()).expect("JSON");
    assert!(validator.is_valid(&exported), "{exported}");
    // An editor adds the name of the schema.
    let text = json!({"$schema": "queues.schema.json", "queues": {"jobs": {"mode": "keys"}}}).to_string();
    assert!(validator.is_valid(&serde_json::from_str(&text).expect("JSON")));
    server.run(&["apply", "--file", &file(&server, "queues.json", &text)]).ok();
    let usage = server.run(&["apply", "--schema", "--dry-run"]).failed(2);
    assert!(usage.contains("--schema"), "{usage}");
}
