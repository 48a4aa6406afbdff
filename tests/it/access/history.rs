//! The history of a key names the token of each call.

use deltaq::config::access::Verb;
use serde_json::{Value, json};

use super::{root, token};
use crate::harness::Service;

/// A server with a journal and these tokens: `root`, `erp` that produces, and two that consume.
async fn service(folder: &tempfile::TempDir) -> Service {
    Service::with(|settings| {
        settings.storage.in_memory = false;
        folder.path().clone_into(&mut settings.storage.data_dir);
        settings.access.tokens = vec![
            root(),
            token("erp", &[Verb::Produce], "*"),
            token("early", &[Verb::Consume], "*"),
            token("late", &[Verb::Consume], "*"),
        ];
    })
    .await
}

async fn call(service: &Service, who: &str, path: &str, body: &Value) -> Value {
    let path = format!("/v1/queues/prices{path}");
    service.client().await.call_as(who, "POST", &path, body).await.ok()
}

/// The events of a key, oldest first, each with the token of its call.
async fn history(service: &Service, key: &str) -> Vec<(String, Option<String>)> {
    let path = format!("/v1/queues/prices/history/{key}");
    let page = service.client().await.call_as("root", "GET", &path, &Value::Null).await.ok();
    let items = page["items"].as_array().expect("events").iter().rev();
    items.map(|item| (item["event"].to_string(), item["by"].as_str().map(str::to_owned))).collect()
}

fn events(expected: &[(&str, &str)]) -> Vec<(String, Option<String>)> {
    let by = |by: &str| (!by.is_empty()).then(|| by.to_owned());
    expected.iter().map(|(event, who)| (format!("{event:?}"), by(who))).collect()
}

#[tokio::test]
async fn each_event_of_a_key_names_the_token_of_its_call() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = service(&folder).await;
    call(&service, "erp", "/add", &json!({"key": "a"})).await;
    let popped = call(&service, "early", "/pop", &Value::Null).await;
    let lease = &popped["items"][0]["lease"]["id"];
    call(&service, "late", "/nack", &json!({"lease_id": lease, "error": "no", "delay": "1h"})).await;
    call(&service, "root", "/delayed/promote", &json!({"all": true})).await;
    let expected = [("appended", "erp"), ("leased", "early"), ("settled", "late"), ("delay_elapsed", "root")];
    assert_eq!(history(&service, "a").await, events(&expected));
}

#[tokio::test]
async fn a_lease_is_by_the_token_of_the_pop_that_waited() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = service(&folder).await;
    call(&service, "erp", "/add", &json!({"key": "a"})).await;
    let popped = call(&service, "early", "/pop", &Value::Null).await;
    let pop = call(&service, "late", "/pop?wait=50s", &Value::Null);
    let settle = async {
        let status = || async {
            service.client().await.call_as("root", "GET", "/v1/queues/prices", &Value::Null).await
        };
        while status().await.ok()["status"]["waiters"] != 1 {
            tokio::task::yield_now().await;
        }
        // A settle and pop in one call: what it makes ready goes to the pop that waits.
        let id = &popped["items"][0]["lease"]["id"];
        let settle = json!({"settle": [{"lease_id": id, "as": "release"}]});
        call(&service, "early", "/pop", &settle).await
    };
    tokio::join!(pop, settle);
    let expected = [("appended", "erp"), ("leased", "early"), ("settled", "early"), ("leased", "late")];
    assert_eq!(history(&service, "a").await, events(&expected));
}

#[tokio::test]
async fn what_becomes_due_is_by_no_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = service(&folder).await;
    call(&service, "erp", "/add?delay=10ms", &json!({"key": "a"})).await;
    call(&service, "early", "/pop?wait=50s", &Value::Null).await;
    let expected = [("appended", "erp"), ("delay_elapsed", ""), ("leased", "early")];
    assert_eq!(history(&service, "a").await, events(&expected));
}
