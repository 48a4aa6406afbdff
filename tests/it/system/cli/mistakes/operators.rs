//! Mistakes of an operator: environment, files, tokens, TLS, stores and tools.

use super::{Folder, assert_refused};
use crate::access::tls::Authority;
use crate::system::cli::Server;

/// Shell lines in a folder with these files. `data` is the store of a running server.
const FILES: &[(&str, &str)] = &[
    ("text", "just text\n"),
    ("empty", ""),
    ("unclosed.toml", "[server\n"),
    ("server.yaml", "server:\n  listen: 127.0.0.1:7070\n"),
    ("port.toml", "[server]\nport = 7070\n"),
    ("section.toml", "listen = \"127.0.0.1:7070\"\n"),
    ("number.toml", "[server]\nlisten = 7070\n"),
    ("lease.toml", "[queue_defaults]\nlease = \"30\"\n"),
    ("sync.toml", "[storage]\nsync = \"never\"\n"),
    ("tokens.toml", ""),
    ("writable.toml", ""),
    ("wrong-tokens.toml", "[[token]]\nname = \"a\"\n"),
    ("wrong-token", "dq_0000\n"),
    ("damaged/deltaq.db", "not a database\n"),
    ("damaged/deltaq.mark", "not a mark\n"),
    ("folder/file", ""),
];

const MISTAKES: &[&str] = &[
    // The environment of a server.
    "DELTAQ_LISTEN=:8080 deltaq serve --in-memory",
    "DELTAQ_SERVER_LISTEN=:8080 deltaq serve --in-memory",
    "DELTAQ_SERVER__PORT=8080 deltaq serve --in-memory",
    "DELTAQ_SERVER__MAX_CONNECTIONS=many deltaq serve --in-memory",
    "DELTAQ_STORAGE__IN_MEMORY=yes deltaq serve",
    "DELTAQ_QUEUE_DEFAULTS__LEASE=30 deltaq serve --in-memory",
    "DELTAQ_CONFIG=missing.toml deltaq serve",
    "RUST_LOG=deltaq=loud deltaq serve --in-memory",
    // Flags of a server.
    "deltaq server",
    "deltaq serve --port 8080",
    "deltaq serve --listen 8080",
    "deltaq serve --listen localhost:99999",
    "deltaq serve --listen 0.0.0.0:0 --in-memory",
    "deltaq serve --listen $SERVER --in-memory",
    "deltaq serve --data-dir new --in-memory",
    "deltaq serve --log-level verbose",
    // Files of a server.
    "deltaq serve --config missing.toml",
    "deltaq serve --config folder",
    "deltaq serve --config unclosed.toml",
    "deltaq serve --config server.yaml",
    "deltaq serve --config port.toml",
    "deltaq serve --config section.toml",
    "deltaq serve --config number.toml",
    "deltaq serve --config lease.toml",
    "deltaq serve --config sync.toml",
    "deltaq serve --data-dir text",
    "deltaq serve --data-dir text/data",
    "deltaq serve --data-dir data",
    "deltaq serve --data-dir damaged",
    "deltaq serve --in-memory --ready-file folder",
    "deltaq serve --in-memory --ready-file missing/ready",
    // Tokens and certificates of a server.
    "DELTAQ_ACCESS__TOKENS_FILE=missing deltaq serve --in-memory",
    "DELTAQ_ACCESS__TOKENS_FILE=text deltaq serve --in-memory",
    "DELTAQ_ACCESS__TOKENS_FILE=empty deltaq serve --in-memory",
    "DELTAQ_ACCESS__TOKENS_FILE=wrong-tokens.toml deltaq serve --in-memory",
    "DELTAQ_ACCESS__TOKENS_FILE=writable.toml deltaq serve --in-memory",
    "DELTAQ_SERVER__TLS_CERT=text deltaq serve --in-memory",
    "DELTAQ_SERVER__TLS_CERT=missing DELTAQ_SERVER__TLS_KEY=missing deltaq serve --in-memory",
    "DELTAQ_SERVER__TLS_CERT=text DELTAQ_SERVER__TLS_KEY=text deltaq serve --in-memory",
    // The environment and the files of a client.
    "DELTAQ_URL=ftp://localhost deltaq queues",
    "DELTAQ_TOKEN_FILE=missing deltaq queues",
    "DELTAQ_TOKEN_FILE=empty deltaq queues",
    "DELTAQ_CA_FILE=missing deltaq queues",
    "DELTAQ_CERT_FILE=text deltaq queues",
    "DELTAQ_CERT_FILE=text DELTAQ_KEY_FILE=text deltaq queues",
    "deltaq queues --cert-file server.crt --key-file text",
    "deltaq queues --url https://$SERVER",
    "deltaq queues --url http://$SECURE",
    "deltaq queues --url https://$SECURE",
    "deltaq queues --url https://$SECURE --ca-file text",
    "deltaq queues --url https://$SECURE --ca-file ca.crt",
    "deltaq queues --url https://$SECURE --ca-file ca.crt --token-file wrong-token",
    // Stores.
    "deltaq check missing",
    "deltaq check --data-dir missing",
    "deltaq check --data-dir folder",
    "deltaq check --data-dir damaged",
    "deltaq backup --data-dir missing --to copy.db",
    "deltaq backup --data-dir data --to text",
    "deltaq backup --data-dir data --to missing/copy.db",
    "deltaq export --data-dir missing --queue prices",
    "deltaq export --data-dir data --queue prices",
    "deltaq import --data-dir data --queue prices < text",
    "deltaq import --data-dir new-store --queue prices < text",
    // Tools.
    "deltaq health --url http://127.0.0.1:1",
    "deltaq health --url $SERVER/readyz",
    "deltaq bench --url https://$SERVER",
    "deltaq bench --url localhost",
    "deltaq bench --url 127.0.0.1:1",
    "deltaq bench --duration 5",
    "deltaq bench ad",
    "deltaq bench --url $SERVER --token-file missing",
    "deltaq token reader --verbs read --queues '*' --file tokens.toml",
    "deltaq token other --verbs read --queues Prices --file tokens.toml",
    "deltaq token other --verbs read --queues '*' --file missing/tokens.toml",
    "deltaq token other --verbs read --queues '*' --file tokens.toml --expires 30d",
    "deltaq token list --file missing",
    "deltaq token rotate other --file tokens.toml",
    "deltaq man --dir text",
];

#[test]
fn every_mistake_of_an_operator_has_a_message() {
    let server = Server::durable();
    let folder = Folder::new(&server);
    let authority = Authority::new();
    let pair = authority.issue("server");
    let at = |name: &str| folder.path.join(name);
    for (name, text) in FILES {
        std::fs::create_dir_all(at(name).parent().expect("a folder")).expect("a folder");
        std::fs::write(at(name), text).expect("a file");
    }
    std::fs::copy(authority.certificates(), at("ca.crt")).expect("a file");
    std::fs::copy(&pair.cert, at("server.crt")).expect("a file");
    let made = folder.shell("deltaq token reader --verbs read --queues '*' --file tokens.toml");
    made.ok();
    folder.shell("chmod 600 tokens.toml && cp tokens.toml writable.toml && chmod 666 writable.toml").ok();
    let secure = Server::with_settings(&[
        ("DELTAQ_SERVER__TLS_CERT", &pair.cert),
        ("DELTAQ_SERVER__TLS_KEY", &pair.key),
        ("DELTAQ_ACCESS__TOKENS_FILE", &at("tokens.toml")),
    ]);
    let name = format!("localhost:{}", secure.address.port());
    let mut messages = Vec::new();
    for line in MISTAKES {
        let run = folder.shell(&format!("SECURE={name}; {line}"));
        assert_refused(line, &run, !matches!(run.code, Some(0 | 124)));
        // The log has lines in JSON.
        let lines = run.stderr.lines().chain(run.stdout.lines()).filter(|line| !line.starts_with('{'));
        messages.push(format!("$ {line}"));
        messages.extend(lines.map(|line| line.replace(&name, "SECURE")));
        messages.push(format!("[exit code {}]\n", run.code.unwrap_or_default()));
    }
    insta::assert_snapshot!(folder.normalized(&messages.join("\n")));
}
