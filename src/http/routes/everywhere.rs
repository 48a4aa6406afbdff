//! Reads over all queues that the caller may read: their workers, and what a text is found in.

use deltaq_engine::key::Key;
use deltaq_types::{Found, WorkerList};

use crate::http::cluster::everywhere;
use crate::http::gate::limits::{PAGE_DEFAULT, PAGE_MAX};
use crate::http::openapi::params::{AllWorkersQuery, FindQuery};
use crate::http::openapi::responses::{Always, Unavailable};
use crate::http::problem::Problem;
use crate::http::reply::Json;
use crate::http::request::call::ReadCall;
use crate::http::request::params::wrong;

/// List the workers of all queues that the caller may read, with their leases.
#[utoipa::path(
    get, path = "/v1/workers", tag = "reading", operation_id = "list_all_workers",
    params(AllWorkersQuery),
    responses(
        (status = 200, description = "The workers, those with slow leases first.", body = WorkerList),
        Always, Unavailable,
    )
)]
pub(in crate::http) async fn workers(
    ReadCall { params, context, .. }: ReadCall,
) -> Result<Json<WorkerList>, Problem> {
    let limit = params.count("limit", 1..=PAGE_MAX)?.unwrap_or(PAGE_DEFAULT);
    let rows = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(Json(everywhere::workers(&context, rows).await?))
}

/// Find a text among the queues that the caller may read, and among their keys, sources and workers.
#[utoipa::path(
    get, path = "/v1/find", tag = "reading", operation_id = "find",
    params(FindQuery),
    responses(
        (status = 200, description = "At most 20 matches of each kind.", body = Found),
        Always, Unavailable,
    )
)]
pub(in crate::http) async fn find(
    ReadCall { params, context, .. }: ReadCall,
) -> Result<Json<Found>, Problem> {
    let text =
        params.text("text").map(|text| Key::new(text).map_err(|error| wrong("text", &error.to_string())));
    let text = text.transpose()?.ok_or_else(|| {
        wrong(
            "text",
            "it is empty; it takes the start of a key, or a part of the name of a queue, source or worker",
        )
    })?;
    Ok(Json(everywhere::find(&context, text.as_str()).await?))
}
