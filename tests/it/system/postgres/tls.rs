//! TLS to the database, with a certificate of an authority that the system does not know.

use std::net::{IpAddr, Ipv4Addr};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::*;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).expect("names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
}

/// A loopback address of this process, so that tests that run at the same time can use the same port.
fn own_address() -> IpAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 77, high, low).into()
}

/// Starts a server of PostgreSQL with a certificate for this name.
fn start(authority: &Authority, name: &str) -> (Cluster, IpAddr) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![name.to_owned()]).expect("names");
    let certificate = params.signed_by(&key, authority).expect("a certificate").pem();
    let (mut cluster, address) = (Cluster::start(), own_address());
    cluster.listen_with_tls(address, &certificate, &key.serialize_pem());
    (cluster, address)
}

#[tokio::test]
async fn the_certificate_of_the_database_is_verified() {
    let (right, wrong) = (authority(), authority());
    let (cluster, address) = start(&right, &own_address().to_string());
    let [right, wrong] = [("right.pem", right), ("wrong.pem", wrong)].map(|(name, authority)| {
        let path = cluster.folder().join(name);
        std::fs::write(&path, authority.pem()).expect("a file");
        path.display().to_string()
    });
    let url = |parameters: &str| format!("postgres://deltaq@{address}/deltaq?{parameters}");
    for mode in ["verify-full", "verify-ca"] {
        let (mut store, reader) = open(&url(&format!("sslmode={mode}&sslrootcert={right}"))).await;
        let used = cluster.sql("SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'deltaq'");
        assert_eq!(used, "t");
        let rv = events(&reader).await.len() as u64 + 1;
        store.write(event(rv)).await.expect("a write");
        assert_eq!(events(&reader).await.len() as u64, rv, "readers use TLS too");
        store.close().await;
        for parameters in [format!("sslmode={mode}&sslrootcert={wrong}"), format!("sslmode={mode}")] {
            let text = refusal(&url(&parameters)).await;
            assert!(text.contains("certificate") && text.contains("sslrootcert"), "{parameters}: {text}");
        }
    }
    let text = refusal(&url("sslmode=verify-full&sslrootcert=/nonexistent.pem")).await;
    assert!(text.contains("No such file"), "{text}");
    // A server that asks for TLS refuses a connection without it.
    cluster.authenticate("hostnossl all all all reject");
    let text = refusal(&url("sslmode=disable")).await;
    assert!(text.contains("no encryption") || text.contains("rejects connection"), "{text}");
}

#[tokio::test]
async fn the_name_in_the_certificate_is_verified_by_verify_full() {
    let authority = authority();
    let (cluster, address) = start(&authority, "db.example");
    let path = cluster.folder().join("authority.pem");
    std::fs::write(&path, authority.pem()).expect("a file");
    let url = |mode: &str| {
        format!("postgres://deltaq@{address}/deltaq?sslmode={mode}&sslrootcert={}", path.display())
    };
    let (store, _) = open(&url("verify-ca")).await;
    store.close().await;
    let text = refusal(&url("verify-full")).await;
    assert!(text.contains("not valid for name") && text.contains("db.example"), "{text}");
}
