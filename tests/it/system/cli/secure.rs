//! Tokens and TLS.

use std::path::Path;

use deltaq::config::access::Verb;
use serde_json::Value;

use super::{Run, Server, deltaq, finished};
use crate::access::tls::Authority;
use crate::harness::process::Process;
use crate::harness::waiting::until;

/// The output of a program that makes a token.
fn token(server_file: &std::path::Path, line: &[&str]) -> String {
    let mut command = deltaq(&["token"]);
    command.args(line).arg("--file").arg(server_file);
    finished(command, "").ok().trim().to_owned()
}

#[test]
fn a_token_opens_what_its_grants_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens.toml");
    let reader = token(&file, &["reader", "--verbs", Verb::Read.as_str(), "--queues", "*"]);
    let server = Server::with_settings(&[("DELTAQ_ACCESS__TOKENS_FILE", &file)]);
    let refused = server.run(&["queues"]).failed(1);
    assert!(refused.contains("unauthorized") && refused.contains("DELTAQ_TOKEN"), "{refused}");
    let with_token = |line: &[&str]| -> Run {
        let mut command = server.command(line);
        command.env("DELTAQ_TOKEN", &reader);
        finished(command, "")
    };
    assert_eq!(with_token(&["queues", "-o", "json"]).ok(), "[]\n");
    let refused = with_token(&["add", "prices", "{\"key\":\"a\"}"]).failed(1);
    assert!(refused.contains("forbidden") && !refused.contains(&reader), "{refused}");
    // A worker whose token is refused ends instead of repeating its pop.
    let refused = with_token(&["work", "prices", "--", "true"]).failed(1);
    assert!(refused.contains("forbidden"), "{refused}");

    let secret = folder.path().join("token");
    std::fs::write(&secret, format!("{reader}\n")).expect("a file");
    let path = secret.to_str().expect("text");
    server.run(&["queues", "--token-file", path]).ok();
    let rotated = token(&file, &["rotate", "reader"]);
    server.signal("HUP");
    until("the old token is refused", || server.run(&["queues", "--token-file", path]).code == Some(1));
    std::fs::write(&secret, rotated).expect("a file");
    server.run(&["queues", "--token-file", path]).ok();
    assert_eq!(token(&file, &["list"]), "reader  read on *  expires never");
}

#[test]
fn processes_go_on_after_their_token_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let [tokens, secret, old, done, files] =
        ["tokens.toml", "token", "old", "done", "files"].map(|name| folder.path().join(name));
    let first = token(&tokens, &["all", "--verbs", "admin,produce,consume,read", "--queues", "*"]);
    let server = Server::with_settings(&[("DELTAQ_ACCESS__TOKENS_FILE", &tokens)]);
    std::fs::create_dir(&files).expect("a folder");
    let write = |path: &Path, text: &str| std::fs::write(path, text).expect("a file");
    write(&files.join("a"), "{\"key\":\"a\"}");
    write(&secret, &first);
    write(&old, &first);
    let [secret_text, old_text, files] = [&secret, &old, &files].map(|path| path.to_str().expect("text"));

    let common = ["--token-file", secret_text];
    let reflect =
        [&["reflect", "q", "--source", "s", "--create", "key=/key", "--files", files][..], &common].concat();
    let reflect = Process::start(server.command(&reflect), |_, _| {});
    let script = format!("until [ -e {} ]; do sleep 0.05; done", done.display());
    let work = [&["work", "q"][..], &common, &["--", "sh", "-c", &script]].concat();
    let count = |name: &str| {
        let queue = server.run(&[&["queue", "get", "q", "-o", "json"], &common[..]].concat());
        serde_json::from_str::<Value>(&queue.stdout).ok().and_then(|queue| queue["status"][name].as_u64())
    };
    until("the queue has the first key", || count("ready") == Some(1));
    let work = Process::start(server.command(&work), |_, _| {});
    until("the key is leased", || count("leased") == Some(1));

    write(&secret, &token(&tokens, &["rotate", "all"]));
    server.signal("HUP");
    until("the old token is refused", || server.run(&["queues", "--token-file", old_text]).code == Some(1));
    write(&Path::new(files).join("b"), "{\"key\":\"b\"}");
    write(&done, "");
    until("the lease is acknowledged, and so is the next key", || {
        count("known") == Some(2) && count("leased") == Some(0)
    });
    for process in [work, reflect] {
        process.stop();
    }
}

#[test]
fn tls_takes_an_authority_and_a_certificate() {
    let authority = Authority::new();
    let (pair, own) = (authority.issue("server"), authority.issue("client"));
    let ca = authority.certificates();
    let server = Server::with_settings(&[
        ("DELTAQ_SERVER__TLS_CERT", &pair.cert),
        ("DELTAQ_SERVER__TLS_KEY", &pair.key),
        ("DELTAQ_SERVER__TLS_CLIENT_CA", &ca),
    ]);
    let url = format!("https://localhost:{}", server.address.port());
    let [ca, cert, key] = [&ca, &own.cert, &own.key].map(|path| path.to_str().expect("text"));
    let all = ["queues", "--url", &url, "--ca-file", ca, "--cert-file", cert, "--key-file", key];
    server.run(&all).ok();
    let unknown = server.run(&["queues", "--url", &url]).failed(4);
    assert!(unknown.contains("certificate"), "{unknown}");
    let uncertified = server.run(&["queues", "--url", &url, "--ca-file", ca]).failed(1);
    assert!(uncertified.contains("--cert-file"), "{uncertified}");
    server.run(&["queues", "--url", &url, "--ca-file", ca, "--cert-file", cert]).failed(2);
    let plain = server.run(&["queues"]);
    assert!(plain.code != Some(0) && plain.stderr.contains("https"), "{plain:?}");
}

#[test]
fn plain_http_needs_no_certificates_of_the_system() {
    let server = Server::in_memory();
    let mut command = server.command(&["queues", "-o", "json"]);
    command.env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", "/nonexistent");
    assert_eq!(finished(command, "").ok(), "[]\n");
}

#[test]
fn a_kubeconfig_names_the_server_and_the_files_of_the_client() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, "x").expect("a file");
        path.canonicalize().expect("a path").to_str().expect("text").to_owned()
    };
    let (token, authority) = (write("token"), write("ca.pem"));
    let run = |more: &[&str]| {
        let mut command = deltaq(&["kubeconfig", "--url", "deltaq.example:7070,other:7070"]);
        command.env_remove("DELTAQ_TOKEN").args(more);
        finished(command, "")
    };
    let expected = format!(
        r#"apiVersion: v1
kind: Config
current-context: deltaq
clusters:
- name: deltaq
  cluster:
    server: "http://deltaq.example:7070"
    certificate-authority: "{authority}"
users:
- name: deltaq
  user:
    tokenFile: "{token}"
contexts:
- name: deltaq
  context:
    cluster: "deltaq"
    user: "deltaq"
    namespace: "shop"
"#
    );
    let files = ["--token-file", &token, "--ca-file", &authority, "--namespace", "shop"];
    assert_eq!(run(&files).ok(), expected);
    assert!(run(&[]).ok().contains("  user: {}\n"));
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "\n").expect("a file");
    let empty = run(&["--token-file", empty.to_str().expect("text")]).failed(1);
    assert!(empty.contains("is empty"), "{empty}");
    let missing = run(&["--token-file", "/nowhere/token"]).failed(1);
    assert!(missing.contains("/nowhere/token"), "{missing}");
}
