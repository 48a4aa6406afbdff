//! Bad input over HTTP. Each row is a request and the problem that it must get.
//!
//! No row may change a queue, and each reply is a complete problem document.

mod bodies;
mod compressed;
mod connections;
mod heads;
mod parameters;
mod routes;

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::harness::{Reply, Service, said};

/// A server whose queue `q` has a key in every state and a known object.
struct Bench {
    service: Service,
    before: Value,
}

/// A wrong request.
#[derive(Clone, Debug)]
struct Row {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// The problem's code.
    code: &'static str,
    /// What the detail and the hint must contain.
    tells: Vec<String>,
    /// Headers that the reply must have.
    replies_with: Vec<(&'static str, String)>,
    /// Fields that the problem must have, with these values; null is any value.
    fields: Value,
}

/// A row without headers and body that expects only the code.
fn row(method: &str, path: &str, code: &'static str) -> Row {
    let (method, path) = (method.to_owned(), path.to_owned());
    Row {
        method,
        path,
        headers: Vec::new(),
        body: Vec::new(),
        code,
        tells: Vec::new(),
        replies_with: Vec::new(),
        fields: json!({}),
    }
}

impl Row {
    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    fn ndjson(self, body: impl AsRef<[u8]>) -> Self {
        self.header("content-type", "application/x-ndjson").body(body)
    }

    fn tells(mut self, text: &str) -> Self {
        self.tells.push(text.to_owned());
        self
    }

    fn replies_with(mut self, name: &'static str, value: &str) -> Self {
        self.replies_with.push((name, value.to_owned()));
        self
    }

    fn has(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields[name] = value.into();
        self
    }

    /// The bytes of the request.
    fn text(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let is_given = |name: &str| self.headers.iter().any(|(given, _)| given == name);
        if !is_given("host") {
            head.push_str("host: localhost\r\n");
        }
        if !is_given("content-length") && !is_given("transfer-encoding") {
            let _ = write!(head, "content-length: {}\r\n", self.body.len());
        }
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        let mut text = head.into_bytes();
        text.extend_from_slice(&self.body);
        text
    }

    fn judge(&self, reply: Reply) {
        if let Err(why) = self.check(&reply) {
            panic!("{why}: {} {}: {} {}", self.method, self.path, reply.status, reply.text);
        }
        reply.problem(self.code);
    }

    fn check(&self, reply: &Reply) -> Result<(), String> {
        if !(400..500).contains(&reply.status) || reply.body["code"] != self.code {
            return Err(format!("the code is not {}", self.code));
        }
        let said = said(&reply.body);
        if let Some(text) = self.tells.iter().find(|text| !said.contains(*text)) {
            return Err(format!("neither the detail nor the hint has {text:?}"));
        }
        for (name, value) in &self.replies_with {
            if reply.header(name) != Some(value) {
                return Err(format!("the header {name} is {:?}", reply.header(name)));
            }
        }
        for (name, wanted) in self.fields.as_object().into_iter().flatten() {
            let found = &reply.body[name];
            if found.is_null() || (!wanted.is_null() && found != wanted) {
                return Err(format!("{name} is {found} and not {wanted}"));
            }
        }
        Ok(())
    }
}

impl Bench {
    async fn new() -> Self {
        Self::on(Service::start().await).await
    }

    async fn on(service: Service) -> Self {
        let post = async |path: &str, body: Value| service.post(path, &body).await.ok();
        post("/v1/queues/q/add", json!([{ "key": "known" }, { "key": "parked" }, { "key": "leased" }])).await;
        let popped = post("/v1/queues/q/pop?max=3&lease_duration=12h", json!({})).await;
        let lease = |index: usize| popped["items"][index]["lease"]["id"].clone();
        post("/v1/queues/q/ack", json!({ "lease_ids": [lease(0)] })).await;
        post("/v1/queues/q/reject", json!({ "lease_ids": [lease(1)] })).await;
        post("/v1/queues/q/add?delay=100d", json!({ "key": "delayed" })).await;
        post("/v1/queues/q/add", json!({ "key": "ready" })).await;
        let before = state(&service).await;
        Self { service, before }
    }

    /// Each row is refused as expected and changes nothing.
    async fn refuses(&self, rows: impl IntoIterator<Item = Row>) {
        let mut wrong = Vec::new();
        for row in rows {
            let mut client = self.service.client().await;
            client.send_bytes(&row.text()).await;
            let reply = client.reply().await;
            match row.check(&reply) {
                Ok(()) => drop(reply.problem(row.code)),
                Err(why) => {
                    let (request, body) = (row.path.as_str(), String::from_utf8_lossy(&row.body));
                    wrong.push(format!(
                        "{why}: {} {request} {body}\n  {} {}",
                        row.method, reply.status, reply.text
                    ));
                }
            }
            self.unchanged(&row.path).await;
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    async fn unchanged(&self, after: &str) {
        assert_eq!(state(&self.service).await, self.before, "{after}");
    }
}

/// All queues, without the values that change with time.
async fn state(service: &Service) -> Value {
    let mut list = service.get("/v1/queues").await.ok();
    for queue in list["items"].as_array_mut().into_iter().flatten() {
        queue["status"]["oldest_ready_age_ms"] = Value::Null;
        queue["status"]["oldest_unacknowledged_age_ms"] = Value::Null;
    }
    list
}

/// The operations of the OpenAPI document: method, path template and description.
async fn operations(service: &Service) -> Vec<(String, String, Value)> {
    let document = service.get("/openapi.json").await.ok();
    let paths = document["paths"].as_object().expect("paths").clone();
    let operations = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().into_iter().flatten();
        methods.map(|(method, operation)| (method.to_uppercase(), path.clone(), operation.clone()))
    });
    operations.collect()
}

/// A path that matches the template.
fn filled(template: &str) -> String {
    template.replace("{queue}", "q").replace("{key}", "known").replace("{name}", "expired")
}
