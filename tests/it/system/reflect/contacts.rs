//! What `deltaq reflect` reports to the server: contacts without a list, thresholds, and heartbeats.

use serde_json::Value;

use super::Reflecting;
use super::upstream::Upstream;
use crate::harness::blocking::{Connection, Message};
use crate::harness::waiting::until;
use crate::system::cli::Server;

fn get(server: &Server, path: &str) -> Value {
    let mut connection = Connection::open(server.address).expect("a connection");
    let reply = connection.call(&Message::get(path.to_owned())).expect("a reply");
    assert_eq!(reply.status(), Some(200), "{path}");
    serde_json::from_slice(&reply.body).expect("JSON")
}

#[test]
fn a_source_that_answers_304_is_in_contact_and_its_reflector_is_listed_until_it_stops() {
    let server = Server::in_memory();
    let upstream = Upstream::start(|request, reply| match request.header("if-none-match") {
        Some("\"one\"") => reply.send(304, &[], ""),
        _ => reply.send(200, &["etag: \"one\""], "[{\"key\":\"a\"}]"),
    });
    let url = upstream.url("/");
    let line = ["prices", "--source", "shop", "--list", &url, "--interval", "50ms"];
    let reflecting = Reflecting::start(&server, &line);
    until("the list is accepted", || reflecting.get("/readyz").0 == 200);
    let source = || get(&server, "/v1/sources?queue=prices")["items"][0].clone();
    // Contacts are reported at most once a minute, so the shortest threshold is three minutes.
    until("the threshold is set", || source()["stale_after"] == "3m");
    until("a 304 is a contact", || {
        let source = source();
        let [contact, list] =
            ["last_contact_at", "last_replaced_at"].map(|name| source[name].as_str().map(str::to_owned));
        contact > list
    });
    assert_eq!(source()["is_stale"], false);
    let reflectors = || get(&server, "/v1/reflectors")["items"].clone();
    until("a heartbeat arrives", || reflectors()[0]["source"] == "shop");
    let reflector = &reflectors()[0];
    assert_eq!(
        (reflector["kind"].as_str(), reflector["state"].as_str()),
        (Some("rest"), Some("ok")),
        "{reflector}"
    );
    reflecting.stop();
    assert_eq!(reflectors().as_array().map(Vec::len), Some(0), "a clean stop takes the entry away");
}
