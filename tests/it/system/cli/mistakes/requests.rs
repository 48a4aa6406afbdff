//! Mistakes in requests with curl.

use super::{Folder, assert_refused};
use crate::system::cli::Server;

/// Shell lines. `$Q` is the URL of a queue with two keys of the source erp; `$URL` is that of the server.
const MISTAKES: &[&str] = &[
    // Paths and methods.
    "curl $URL",
    "curl $URL/queues",
    "curl $URL/v1/queue",
    "curl $URL/v1/queues/missing",
    "curl $URL/v1/queues/Prices",
    "curl $URL/v1/queues -d '{\"name\":\"new\"}'",
    "curl $Q/push -d '{\"key\":\"a\"}'",
    "curl $Q/dead-letters",
    "curl $Q/redrive -d '{}'",
    "curl $Q/add",
    "curl $Q/pop",
    "curl $Q/items/missing",
    "curl -X POST $Q -d '{\"lease\":\"1m\"}'",
    "curl -X PATCH $URL/v1/queues/missing -d '{\"lease\":\"1m\"}'",
    "curl -X PUT $Q -H 'if-none-match: *' -d '{\"lease\":\"1m\"}'",
    "curl -X PATCH $Q -H 'if-match: \"old\"' -d '{\"lease\":\"1m\"}'",
    "curl -X DELETE $Q -H 'if-match: \"old\"'",
    "curl $Q/update -H 'if-match: \"old\"' -d '{\"key\":\"sku-1\"}'",
    "curl $Q/update -H 'if-match: old' -d '{\"key\":\"sku-1\"}'",
    "curl $Q/add -H 'if-none-match: \"*\", *' -d '{\"key\":\"sku-1\"}'",
    "curl $Q/add -H 'if-none-match: *' -d '[{\"key\":\"sku-1\"}]'",
    "curl $Q/deltas -H 'if-none-match: *' -d '[]'",
    "curl -H 'Host: deltaq.example' $URL/v1/queues",
    "curl -H 'Origin: http://shop.example' $URL/v1/queues",
    // Bodies.
    "curl -X POST $Q/add",
    "curl $Q/add -d key=sku-1",
    "curl $Q/add -H 'content-type: multipart/form-data' -d key=sku-1",
    "curl $Q/add -d sku-1",
    "curl $Q/add -d '{key:\"sku-1\"}'",
    "curl $Q/add -d \"{'key':'sku-1'}\"",
    "curl $Q/add -d '{\"key\":\"a\"'",
    "curl $Q/add -d '{\"key\":\"a\",}'",
    "curl $Q/add -d '{\"key\":\"a\",\"key\":\"b\"}'",
    "curl $Q/add --data-binary $'{\"key\":\"a\"}\\n{\"key\":\"b\"}'",
    "curl $Q/add -H 'content-type: application/x-ndjson' --data-binary $'[{\"key\":\"a\"},\\n{\"key\":\"b\"}]'",
    "curl $Q/add -H 'content-type: application/x-ndjson' --data-binary $'{\"key\":\"a\"},\\n{\"key\":\"b\"}'",
    "curl $Q/add -H 'content-type: application/yaml' -d 'key: a'",
    "curl $Q/add -H 'content-encoding: gzip' -d '{\"key\":\"a\"}'",
    "curl $Q/add --data-binary $'{\"key\":\"\\xe4\"}'",
    // Objects and keys.
    "curl $Q/add -d '\"sku-1\"'",
    "curl $Q/add -d '{\"id\":7}'",
    "curl $Q/add -d '{\"key\":1.5}'",
    "curl $Q/add -d '{\"objects\":[{\"key\":\"a\"}]}'",
    "curl \"$Q/add?key=a\" -d '{\"key\":\"b\"}'",
    "curl \"$Q/add?key=a\" -d '[{},{}]'",
    "curl -X POST $Q/delete",
    "curl $Q/deltas -d '[{\"type\":\"Add\",\"object\":{\"key\":\"a\"}}]'",
    "curl $Q/deltas -d '[{\"type\":\"Added\"}]'",
    "curl $Q/deltas -d '[{\"type\":\"Deleted\",\"key\":\"sku-1\",\"expected_version\":0}]'",
    "curl $Q/deltas -d '[{\"type\":\"Deleted\",\"key\":\"sku-1\",\"expected_version\":\"0\"}]'",
    // Parameters.
    "curl \"$Q/add?delay=5\" -d '{\"key\":\"a\"}'",
    "curl \"$Q/add?delay=1month\" -d '{\"key\":\"a\"}'",
    "curl \"$Q/add?sorce=erp\" -d '{\"key\":\"a\"}'",
    "curl \"$Q/add?rate_limited=true\" -d '{\"key\":\"a\"}'",
    "curl \"$Q/items?state=waiting\"",
    "curl \"$Q/items?limit=1000000\"",
    "curl -X POST \"$Q/pop?wait=2h\"",
    "curl -X POST \"$Q/pop?timeout=20s\"",
    "curl $Q/pop -d '{\"max\":10}'",
    "curl -X POST \"$Q/close?wait_for=workers\"",
    // Replace.
    "curl \"$Q/replace?source=erp\" -d '[]'",
    "curl \"$Q/replace?source=erp\" -d '{\"key\":\"a\"}'",
    "curl \"$Q/replace?source=erp\" -d '[{\"key\":\"a\"},{\"key\":\"a\"}]'",
    "curl \"$Q/replace?source=erp&max_deletes=1\" -d '[{\"key\":\"a\"}]'",
    "curl \"$Q/replace?source=erp\" -H 'content-type: application/x-ndjson' -d '{\"key\":\"sku-1\"}'",
    "curl \"$Q/replace?source=erp&count=3\" -H 'content-type: application/x-ndjson' -d '{\"key\":\"sku-1\"}'",
    "curl $Q/seed -d '[{\"key\":\"a\",\"object\":{\"key\":\"a\"}}]'",
    // Leases.
    "curl $Q/ack -d '{\"lease\":\"1-1\"}'",
    "curl $Q/ack -d '{\"lease_ids\":\"1-1\"}'",
    "curl -X POST $Q/ack",
    "curl $Q/nack -d '{\"lease_ids\":[\"1-1\"],\"delay\":5}'",
    "curl $Q/nack -d '{\"lease_ids\":[\"1-1\"],\"delay\":\"5\"}'",
    "curl $Q/settle -d '{\"settle\":[{\"lease_id\":\"1-1\",\"as\":\"fail\"}]}'",
    "curl $Q/done -d '{\"lease_ids\":[\"1-1\"]}'",
    "curl $Q/parked/redrive -d '{\"keys\":\"sku-1\"}'",
    // Settings.
    "curl -X PUT $Q -d '{\"mode\":\"keys\"}'",
    "curl -X PUT $URL/v1/queues/new -d '{\"lease\":30}'",
    "curl -X PUT $URL/v1/queues/new -d '{\"key\":\"name\"}'",
    "curl -X PUT $URL/v1/queues/new -d '{\"settings\":{\"lease\":\"30s\"}}'",
    "curl -X PUT $URL/v1/queues/new -d '{\"max_failures\":\"5\"}'",
    "curl -X PUT $URL/v1/queues/new -d '{\"schema\":{\"type\":\"objekt\"}}'",
];

#[test]
fn every_mistake_of_a_request_has_a_message() {
    let server = Server::in_memory();
    server.run(&["replace", "prices", "--source", "erp", r#"[{"key":"sku-1"},{"key":"sku-2"}]"#]).ok();
    let folder = Folder::new(&server);
    let mut messages = Vec::new();
    for line in MISTAKES {
        // The options that a person with curl has in ~/.curlrc: no progress, and the JSON type unless the line has another.
        let run = folder.shell(&line.replacen("curl ", "curl -sS ", 1));
        assert_refused(line, &run, run.stdout.contains("\"code\":"));
        let status = run.stdout.split("\"status\":").nth(1).and_then(|rest| rest.split(',').next());
        let code = run.stdout.split("\"code\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let problem = serde_json::from_str::<serde_json::Value>(&run.stdout).expect("a problem");
        let detail = problem["detail"].as_str().expect("a detail");
        let hint = problem["hint"].as_str().map_or(String::new(), |hint| format!("hint: {hint}\n"));
        let (status, code) = (status.expect("a status"), code.expect("a code"));
        messages.push(format!("$ {line}\n{detail} ({status}, {code})\n{hint}"));
    }
    insta::assert_snapshot!(folder.normalized(&messages.join("\n")));
}
