//! The names under which clients reach the server.

use deltaq::config::access::Verb;
use serde_json::Value;

use crate::access::token;
use crate::harness::{Client, Reply, Service};

const NAME: &str = "deltaq.example:7070";

/// The reply to a GET whose `Host` is this name.
async fn get_as(mut client: Client, path: &str, host: &str, headers: &str) -> Reply {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n");
    client.send_bytes(request.as_bytes()).await;
    client.reply().await
}

#[tokio::test]
async fn without_tokens_a_server_on_loopback_takes_only_allowed_hosts() {
    let service = Service::start().await;
    let refused = get_as(service.client().await, "/v1/info", NAME, "").await.problem("host-not-allowed");
    assert_eq!(refused["title"], "Host not allowed");
    let detail = refused["detail"].as_str().expect("a text");
    assert!(detail.contains("deltaq.example:7070") && detail.contains("server.allowed_hosts"), "{detail}");
    for pattern in ["deltaq.example", "*.example", "*"] {
        let service =
            Service::with(|settings| settings.server.allowed_hosts = vec![pattern.to_owned()]).await;
        get_as(service.client().await, "/v1/info", NAME, "").await.ok();
        let foreign = "origin: https://evil.example\r\n";
        get_as(service.client().await, "/v1/info", NAME, foreign).await.problem("cross-site");
    }
}

#[tokio::test]
async fn the_type_of_a_problem_leads_to_its_page() {
    let service = Service::start().await;
    let kind = |problem: Value| problem["type"].as_str().expect("a URL").to_owned();
    let path = "/v1/queues/absent";
    let host = service.api.to_string();
    let refused = get_as(service.client().await, path, &host, "").await.problem("queue-not-found");
    let page = kind(refused);
    let page = page.strip_prefix(&format!("http://{host}")).expect("the URL that was called");
    assert_eq!(service.get(page).await.status, 200);
    // A host that is no host is not repeated.
    for malformed in ["<b>", "a b", "user@localhost", ""] {
        let refused = get_as(service.client().await, path, malformed, "").await;
        assert_eq!(kind(refused.problem("host-not-allowed")), "/problems/host-not-allowed", "{malformed}");
    }
    let mut client = service.client().await;
    client.send_bytes(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await;
    assert_eq!(kind(client.reply().await.problem("queue-not-found")), "/problems/queue-not-found");

    let url = "https://example.com/deltaq";
    let service = Service::with(|settings| settings.server.public_url = Some(url.to_owned())).await;
    let refused = get_as(service.client().await, path, &host, "").await.problem("queue-not-found");
    assert_eq!(kind(refused), format!("{url}/problems/queue-not-found"));
}

#[tokio::test]
async fn an_insecure_server_takes_only_allowed_hosts_too() {
    let insecure = |hosts: &'static [&'static str]| {
        Service::with(|settings| {
            settings.access.insecure = true;
            settings.server.allowed_hosts = hosts.iter().map(|&host| host.to_owned()).collect();
        })
    };
    let service = insecure(&["deltaq"]).await;
    for host in ["localhost:7070", "127.0.0.1", "[::1]:7070", "192.0.2.7:7070", "deltaq:7070", "DELTAQ"] {
        get_as(service.client().await, "/v1/info", host, "").await.ok();
    }
    // What a browser sends for a page whose name was rebound to the address of this server.
    for host in ["deltaq.example:7070", "localhost.deltaq.example", "deltaq.localhost.example:7070"] {
        let rebound = format!(
            "origin: http://{host}\r\nreferer: http://{host}/\r\nsec-fetch-site: same-origin\r\nsec-fetch-mode: cors\r\n"
        );
        for path in ["/v1/info", "/v1/queues", "/console/", "/livez", "/metrics"] {
            get_as(service.client().await, path, host, &rebound).await.problem("host-not-allowed");
        }
    }
    let every_name = insecure(&["*"]).await;
    get_as(every_name.client().await, "/v1/info", NAME, "").await.ok();
}

#[tokio::test]
async fn the_host_of_a_url_of_the_server_is_allowed() {
    let service = Service::with(|settings| {
        settings.server.public_url = Some("https://deltaq.example:8443/queues".to_owned());
        settings.cluster.advertise = Some("http://a.deltaq:7070".to_owned());
    });
    let service = service.await;
    for host in ["deltaq.example", "a.deltaq:7070"] {
        get_as(service.client().await, "/v1/info", host, "").await.ok();
    }
    for host in ["queues", "b.deltaq:7070", "example"] {
        get_as(service.client().await, "/v1/info", host, "").await.problem("host-not-allowed");
    }
}

#[tokio::test]
async fn with_tokens_every_host_is_taken_and_foreign_pages_are_refused() {
    let token = token("secret", &[Verb::Read], "*");
    let service = Service::with(|settings| settings.access.tokens = vec![token]).await;
    let bearer = "authorization: Bearer secret\r\n";
    get_as(service.client().await, "/v1/info", NAME, bearer).await.ok();
    let foreign = format!("{bearer}origin: https://evil.example\r\n");
    get_as(service.client().await, "/v1/info", NAME, &foreign).await.problem("cross-site");
    get_as(service.client().await, "/v1/info", NAME, "").await.problem("unauthorized");
}

#[tokio::test]
async fn the_metrics_listener_takes_every_host() {
    let service = Service::start().await;
    let scraped = get_as(Client::connect(service.metrics).await, "/metrics", NAME, "").await;
    assert_eq!(scraped.status, 200, "{}", scraped.text);
    let shared = Service::with(|settings| settings.server.metrics_listen = None).await;
    let client = Client::connect(shared.api).await;
    get_as(client, "/metrics", NAME, "").await.problem("host-not-allowed");
}
