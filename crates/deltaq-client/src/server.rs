//! The server as a whole.

use std::time::Duration;

use deltaq_types::{ActivityPage, Found, Info, NodeList, SeriesDocument, WorkerList};
use http::Method;
use serde_json::Value;

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;

impl Client {
    /// The version, the durability and the limits of the server.
    ///
    /// # Errors
    /// The call failed.
    pub async fn info(&self) -> Result<Info, Error> {
        self.request(Call::new(Method::GET, ["v1", "info"])).await
    }

    /// The nodes that share the database of the server; none for a single server.
    ///
    /// # Errors
    /// The call failed.
    pub async fn nodes(&self) -> Result<NodeList, Error> {
        self.request(Call::new(Method::GET, ["v1", "nodes"])).await
    }

    /// The workers of all queues that the token may read, those with slow leases first.
    ///
    /// # Errors
    /// The call failed.
    pub async fn workers(&self) -> Result<WorkerList, Error> {
        self.request(Call::new(Method::GET, ["v1", "workers"])).await
    }

    /// What a text is found in: the start of keys, or a part of the names of queues, sources and workers.
    ///
    /// # Errors
    /// The call failed.
    pub async fn find(&self, text: &str) -> Result<Found, Error> {
        self.request(Call::new(Method::GET, ["v1", "find"]).query("text", Some(text))).await
    }

    /// The last calls of operators, newest first. `after` is the `next` of the page before.
    ///
    /// # Errors
    /// The call failed.
    pub async fn activity(&self, after: Option<&str>) -> Result<ActivityPage, Error> {
        self.request(Call::new(Method::GET, ["v1", "activity"]).query("continue", after)).await
    }

    /// What happened to all queues that the token may read since so long ago, in points of this length.
    ///
    /// # Errors
    /// The call failed.
    pub async fn series(&self, since: Duration, step: Duration) -> Result<SeriesDocument, Error> {
        self.request(Call::new(Method::GET, ["v1", "series"]).series(since, step)).await
    }

    /// Checks once whether the process serves requests.
    ///
    /// # Errors
    /// The process does not serve requests.
    pub async fn livez(&self) -> Result<(), Error> {
        self.send(Call::new(Method::GET, ["livez"])).await.map(drop)
    }

    /// Checks once whether all queues are loaded.
    ///
    /// # Errors
    /// The server is not ready: `recovering` or `draining`.
    pub async fn readyz(&self) -> Result<(), Error> {
        self.send(Call::new(Method::GET, ["readyz"])).await.map(drop)
    }

    /// The OpenAPI document of the API.
    ///
    /// # Errors
    /// The call failed.
    pub async fn openapi(&self) -> Result<Value, Error> {
        self.request(Call::new(Method::GET, ["openapi.json"])).await
    }

    /// The page of a problem's code: what the problem means and what to do.
    ///
    /// # Errors
    /// The call failed.
    pub async fn problem_page(&self, code: &str) -> Result<String, Error> {
        self.send(Call::new(Method::GET, ["problems", code])).await?.text().await
    }
}
