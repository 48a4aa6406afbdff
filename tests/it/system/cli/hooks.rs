//! Kept deliveries of hooks, and the check of a signature.

use std::fs;

use super::{Server, deltaq, finished};
use crate::harness::Client;
use crate::harness::private_file::private_file;

const SECRET: &str = "0123456789abcdef-of-a-hook";

#[tokio::test]
async fn kept_deliveries_are_seen_applied_and_discarded() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = private_file(folder.path(), "secret", SECRET);
    let config = folder.path().join("deltaq.toml");
    let text = format!("[hooks.secrets.gl]\nfile = \"{}\"\nqueues = [\"q\"]\n", secret.display());
    fs::write(&config, text).expect("a file");
    let server = Server::with_settings(&[("DELTAQ_CONFIG", &config)]);
    let settings = r#"{"key":["/id"],"hook":{"scheme":"gitlab","secrets":["gl"]}}"#;
    server.run(&["queue", "create", "q", "--from", settings]).ok();
    let mut client = Client::connect(server.address).await;
    for (id, body) in [("d-1", r#"{"name":"a"}"#), ("d-2", r#"{"name":"b"}"#), ("d-3", "{}"), ("d-4", "{}")] {
        let headers = [("x-gitlab-token", SECRET), ("idempotency-key", id)];
        client.send_text("POST", "/v1/hooks/q", &headers, body).await;
        assert_eq!(client.reply().await.body["reason"], "no_key");
    }
    let listed = server.run(&["hook", "list", "q", "-o", "name"]).ok();
    let numbers: Vec<&str> = listed.lines().rev().collect();
    assert_eq!(numbers.len(), 4, "{listed}");
    let shown = server.json(&["hook", "show", "q", numbers[0]]);
    assert_eq!(shown["body"], r#"{"name":"a"}"#);
    assert_eq!(shown["headers"]["idempotency-key"], "d-1");
    assert_eq!(shown["headers"]["x-gitlab-token"], serde_json::Value::Null);

    let refused = server.run(&["hook", "redeliver", "q", numbers[0]]).failed(1);
    assert!(refused.contains("1 delivery can't be applied"), "{refused}");
    server.run(&["queue", "configure", "q", "--from", r#"{"key":["/name"]}"#]).ok();
    let applied = server.run(&["hook", "redeliver", "q", numbers[0]]).ok();
    assert!(applied.contains("1 delivery applied, 0 kept"), "{applied}");
    server.run(&["hook", "redeliver", "q", "--all"]).failed(1);
    assert_eq!(server.count("q", "ready"), 2);
    let discarded = server.run(&["hook", "discard", "q", numbers[2]]).ok();
    assert!(discarded.contains("1 delivery discarded"), "{discarded}");
    server.run(&["hook", "discard", "q", "--all", "--yes"]).ok();
    assert_eq!(server.run(&["hook", "list", "q", "-o", "name"]).ok(), "");
}

/// The signature was made with `openssl dgst -sha256 -hmac`.
#[test]
fn a_signature_is_verified_without_a_server() {
    let folder = tempfile::tempdir().expect("a folder");
    private_file(folder.path(), "secret", SECRET);
    fs::write(folder.path().join("body"), "Hello, World!").expect("a file");
    let given = "403c015aa0776216269a43b812a5a16e1ad61f2cbcffc9547e951d549ab58cb1";
    let check = |scheme: &str, header: &str, more: &[&str]| {
        let line =
            ["hook", "verify", scheme, "--secret-file", "secret", "--body", "body", "--header", header];
        let mut command = deltaq(&[&line, more].concat());
        command.current_dir(folder.path());
        finished(command, "")
    };
    let valid = check("github", &format!("x-hub-signature-256: sha256={given}"), &["--at", "1"]).ok();
    assert!(valid.contains("the signature is valid"), "{valid}");
    let setting = r#"{"header":"x-signature"}"#;
    check("hmac", &format!("x-signature: {given}"), &["--signature", setting]).ok();
    let wrong = check("github", &format!("x-hub-signature-256: sha256=00{given}"), &[]).failed(1);
    assert!(wrong.contains("no secret of the hook has made the signature"), "{wrong}");
}
