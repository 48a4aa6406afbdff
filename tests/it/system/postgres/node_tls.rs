//! TLS between nodes: the certificate of the owner, and the certificate that the other node shows.

use std::fs;
use std::path::{Path, PathBuf};

use deltaq_service::{Limits, Name, Partitions, WatchLimits};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};

use super::nodes::{Nodes, SECRET};
use crate::harness::blocking::{Connection, Message};
use crate::harness::process::deltaq;
use crate::harness::server::Spawned;
use crate::harness::waiting::found;

/// An authority, and the folder of the files.
struct Authority {
    folder: PathBuf,
    name: &'static str,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(folder: &Path, name: &'static str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let authority = Self { folder: folder.to_owned(), name, issuer };
        fs::write(authority.file(), authority.issuer.pem()).expect("a file");
        authority
    }

    /// The file of the authority's certificate.
    fn file(&self) -> PathBuf {
        self.folder.join(format!("{}.pem", self.name))
    }

    /// The files of a certificate of the loopback address for a node, and of its key. Nodes read files again that change.
    fn issue(&self, node: &str) -> [PathBuf; 2] {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("names");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let files = ["crt", "key"].map(|end| self.folder.join(format!("{}-{node}.{end}", self.name)));
        fs::write(&files[0], certificate.pem()).expect("a file");
        fs::write(&files[1], key.serialize_pem()).expect("a file");
        files
    }
}

/// Starts the node `b`, whose API speaks TLS and demands certificates of an authority.
fn start_b(nodes: &Nodes, authority: &Authority) -> Spawned {
    let [cert, key] = authority.issue("b");
    Spawned::start_uncalled(&nodes.store, |command| {
        command.args(["--node-name", "b", "--advertise", "https://127.0.0.1:0"]);
        command.env("DELTAQ_CLUSTER__SECRET_FILE", &nodes.secret);
        for section in ["SERVER", "CLUSTER"] {
            command.env(format!("DELTAQ_{section}__TLS_CERT"), &cert);
            command.env(format!("DELTAQ_{section}__TLS_KEY"), &key);
        }
        command.env("DELTAQ_SERVER__TLS_CLIENT_CA", authority.file());
    })
}

/// Starts the node `a`, which trusts the authorities of a file and shows a certificate.
fn start_a(nodes: &Nodes, authorities: &Path, [cert, key]: &[PathBuf; 2]) -> Spawned {
    Spawned::start_with(&nodes.store, |command| {
        command.args(["--node-name", "a", "--advertise", "http://127.0.0.1:0"]);
        command.env("DELTAQ_CLUSTER__SECRET_FILE", &nodes.secret);
        command.env("DELTAQ_CLUSTER__CA_FILE", authorities);
        command.env("DELTAQ_CLUSTER__TLS_CERT", cert).env("DELTAQ_CLUSTER__TLS_KEY", key);
    })
}

/// The name of a queue whose partition the node owns.
fn queue_of(nodes: &Nodes, node: &str) -> String {
    let owned = nodes.cluster.sql(&format!("SELECT partition FROM deltaq.partitions WHERE node = '{node}'"));
    let owned: Vec<usize> = owned.lines().map(|line| line.parse().expect("a number")).collect();
    let limits = Limits { auto_create: true, max_queues: 1, max_waiters: 1, watch: WatchLimits::default() };
    let metrics = deltaq_service::metrics::Metrics::new(1).expect("metrics");
    let partitions = Partitions::new(super::nodes::PARTITIONS, limits, std::sync::Arc::default(), metrics);
    let mut names = (0..).map(|number| format!("q{number}"));
    let is_owned = |name: &String| owned.contains(&partitions.of(&Name::new(name).expect("a name")));
    names.find(is_owned).expect("names without end")
}

/// The status, the head and the document of an Add at a node.
fn add(node: &Spawned, queue: &str) -> (u16, String, Value) {
    let message = Message::post(format!("/v1/queues/{queue}/add"), &json!({"key": "k", "object": {}}));
    let reply = Connection::open(node.api).and_then(|mut own| own.call(&message)).expect("a reply");
    let document = serde_json::from_slice(&reply.body).unwrap_or_default();
    (reply.status().expect("a status"), reply.head, document)
}

/// Waits until an Add is answered so.
fn until(node: &Spawned, queue: &str, wanted: u16) -> (String, Value) {
    found(|| {
        let (status, head, document) = add(node, queue);
        if status == wanted { Ok((head, document)) } else { Err(format!("{status} {document}")) }
    })
}

/// Calls a queue until the log has a line with these texts, and returns the last problem.
fn until_logged(node: &Spawned, queue: &str, texts: &[&str]) -> Value {
    found(|| {
        let (status, _, problem) = add(node, queue);
        assert_eq!(status, 503, "{problem}");
        let log = node.last_words();
        let is_logged = log.lines().any(|line| texts.iter().all(|text| line.contains(text)));
        if is_logged { Ok(problem) } else { Err(format!("{texts:?} in {log}")) }
    })
}

#[test]
fn nodes_verify_the_certificates_of_each_other() {
    let nodes = Nodes::new();
    let folder = nodes.cluster.folder().to_owned();
    let [right, wrong] = ["right", "wrong"].map(|name| Authority::new(&folder, name));
    let _b = start_b(&nodes, &right);
    nodes.until_owners(&[("b", super::nodes::PARTITIONS)]);
    let authorities = folder.join("authorities.pem");
    fs::copy(right.file(), &authorities).expect("a file");
    let own = right.issue("a");
    let a = start_a(&nodes, &authorities, &own);
    nodes.until_owners(&[("a", super::nodes::PARTITIONS / 2), ("b", super::nodes::PARTITIONS / 2)]);
    let queue = queue_of(&nodes, "b");
    until(&a, &queue, 200);

    // A reload reads the authorities again.
    fs::copy(wrong.file(), &authorities).expect("a file");
    a.signal("HUP");
    until(&a, &queue, 503);
    let refused =
        ["a call at a node failed", "invalid peer certificate", "cluster.ca_file", "https://127.0.0.1:"];
    assert_eq!(until_logged(&a, &queue, &refused)["code"], "not-owner");
    assert!(!a.last_words().contains(SECRET), "{}", a.last_words());

    fs::copy(right.file(), &authorities).expect("a file");
    a.signal("HUP");
    let (head, _) = until(&a, &queue, 200);
    assert!(head.to_ascii_lowercase().contains("deltaq-owner: https://127.0.0.1:"), "{head}");

    // The owner refuses a certificate of another authority.
    let foreign = wrong.issue("a");
    for (from, to) in foreign.iter().zip(&own) {
        fs::copy(from, to).expect("a file");
    }
    a.signal("HUP");
    until(&a, &queue, 503);
    let refused = ["a call at a node failed", "fatal alert", "cluster.ca_file"];
    assert_eq!(until_logged(&a, &queue, &refused)["code"], "not-owner");
}

#[test]
fn a_node_whose_api_demands_certificates_needs_one_of_its_own() {
    let nodes = Nodes::new();
    let authority = Authority::new(nodes.cluster.folder(), "right");
    let [cert, key] = authority.issue("b");
    let refusal = |advertise: &str| {
        let server = Spawned::try_start(&nodes.store, deltaq(&[]), "127.0.0.1:0", |command| {
            command.args(["--node-name", "a", "--advertise", advertise]);
            command.env("DELTAQ_CLUSTER__SECRET_FILE", &nodes.secret);
            command.env("DELTAQ_SERVER__TLS_CERT", &cert).env("DELTAQ_SERVER__TLS_KEY", &key);
            command.env("DELTAQ_SERVER__TLS_CLIENT_CA", authority.file());
        });
        server.expect_err("the node does not start")
    };
    let text = refusal("https://127.0.0.1:0");
    assert!(text.contains("cluster.tls_cert") && text.contains("server.tls_client_ca"), "{text}");
    let text = refusal("http://127.0.0.1:0");
    assert!(text.contains("cluster.advertise") && text.contains("https"), "{text}");
}
