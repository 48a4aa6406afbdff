//! What happened in each minute of the last 24 hours.

use axum::response::{IntoResponse, Response};
use deltaq_service::Minute;
use deltaq_types::SeriesDocument;

use crate::http::cluster::series_sums::{self, Part};
use crate::http::openapi::params::{InQueue, SeriesQuery};
use crate::http::openapi::responses::{Always, OfQueue, Unavailable};
use crate::http::problem::Problem;
use crate::http::reply::Json;
use crate::http::request::call::ReadCall;
use crate::http::request::series_range::{range_of_node, series_range};
use crate::http::state::AppState;
use crate::http::wire;

/// What happened to a queue in each minute, for up to 24 hours: counts, gauges, and quantiles of the processing time.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/series", tag = "reading", operation_id = "get_series",
    params(InQueue, SeriesQuery),
    responses(
        (status = 200, description = "The series.", body = SeriesDocument),
        Always, OfQueue,
    )
)]
pub(in crate::http) async fn of_queue(call: ReadCall) -> Result<Json<SeriesDocument>, Problem> {
    let name = call.name()?;
    let registry = call.state.partitions.registry(&name)?;
    let handle = registry.get(&name)?;
    let now = registry.series_until();
    let range = series_range(&call.params, now)?;
    let sums = registry.series_of(&handle, range).await;
    Ok(Json(wire::series(Some(name.as_str()), &sums, now)))
}

/// The sums over all queues that the caller may read.
#[utoipa::path(
    get, path = "/v1/series", tag = "reading", operation_id = "get_all_series",
    params(SeriesQuery),
    responses(
        (status = 200, description = "The sums.", body = SeriesDocument),
        Always, Unavailable,
    )
)]
pub(in crate::http) async fn of_all(call: ReadCall) -> Result<Response, Problem> {
    let ReadCall { state, params, context, .. } = call;
    if context.is_from_node() {
        let (sums, until) = series_sums::own(&context, range_of_node(&params)?).await?;
        return Ok(Json(Part::of(&sums, until)).into_response());
    }
    let now = present(&state);
    let sums = series_sums::all(&context, series_range(&params, now)?).await?;
    Ok(Json(wire::series(None, &sums, now)).into_response())
}

/// The minute up to which the series of this node's queues are complete.
fn present(state: &AppState) -> Minute {
    let complete = state.partitions.registries().map(|registry| registry.series_until()).min();
    complete.unwrap_or_else(|| Minute::of(deltaq_engine::time::Time::from_micros(state.clock.wall_us())))
}
