//! The sums over the series of the queues of all nodes.
//!
//! Each owner adds up its own queues. The node that the client has called adds up these sums; the histograms are merged before
//! quantiles are computed. As in the list of queues, the answer is refused if a partition is missing.

use std::sync::Arc;

use deltaq_service::{
    Backlog, Bucket, Counts, Gauges, Handle, Minute, Name, Outlook, SeriesRange, SeriesSums, Sketch,
};
use serde::{Deserialize, Serialize};

use super::gather::gather;
use crate::config::access::Verb;
use crate::http::problem::Problem;
use crate::http::request::context::RequestContext;
use crate::http::wire::timestamp;

/// The sums over the queues of one node, as nodes send them to each other.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::http) struct Part {
    points: Vec<PartPoint>,
    queues: u64,
    complete_from: u32,
    /// The minute up to which the sums are complete.
    until: u32,
    /// Keys that wait now, the lowest numbers of both halves, the minutes, and acks.
    backlog: (u64, [u64; 2], u32, u64),
    #[serde(with = "PartOutlook")]
    outlook: Outlook,
}

/// The form of an outlook.
#[derive(Debug, Serialize, Deserialize)]
#[serde(remote = "Outlook")]
enum PartOutlook {
    Empty,
    After(u64),
    Unknown,
    Stalled,
    Growing,
}

/// The minutes, the counts, the gauges and the classes of the histogram of a point.
#[derive(Debug, Serialize, Deserialize)]
struct PartPoint(u32, [u64; 17], [u64; 10], Vec<(u8, u64)>);

/// The sums over the queues of this node that the caller may read, and the minute up to which they are complete.
pub(in crate::http) async fn own(
    context: &Arc<RequestContext>,
    range: SeriesRange,
) -> Result<(SeriesSums, Minute), Problem> {
    let caller = context.caller();
    let may_see = |name: &Name| caller.is_none_or(|caller| caller.may(Verb::Read, name.as_str()));
    let mut sums = SeriesSums::new(range);
    let mut until = range.until;
    for registry in context.state.partitions.registries() {
        let handles: Vec<Arc<Handle>> = registry.list(None, usize::MAX, may_see);
        registry.add_series(&handles, &mut sums).await;
        until = until.min(registry.series_until());
    }
    Ok((sums, until))
}

/// The sums over the queues of all nodes that the caller may read.
pub(in crate::http) async fn all(
    context: &Arc<RequestContext>,
    range: SeriesRange,
) -> Result<SeriesSums, Problem> {
    let path = path(range);
    let (own, parts) = gather::<_, Part, _>(context, &path, || own(context, range)).await?;
    let (mut sums, mut until) = own?;
    let is_alone = parts.is_empty();
    for part in parts {
        until = until.min(Minute(part.until));
        sums.merge(&part.sums(range));
    }
    if is_alone {
        return Ok(sums);
    }
    sums.end_at(until);
    Ok(sums)
}

fn path(range: SeriesRange) -> String {
    let (from, until) = (timestamp(range.from.begins_at()), timestamp(range.until.begins_at()));
    format!("/v1/series?since={from}&until={until}&step={}m", range.step)
}

impl Part {
    pub(in crate::http) fn of(sums: &SeriesSums, until: Minute) -> Self {
        let point = |(minutes, sum): &(u32, Bucket)| {
            let classes = sum.works.classes().to_vec();
            PartPoint(*minutes, sum.counts.numbers(), sum.gauges.numbers(), classes)
        };
        let Backlog { now, lows, minutes, acks, outlook } = sums.backlog;
        Self {
            points: sums.points.iter().map(point).collect(),
            queues: sums.queues,
            complete_from: sums.complete_from.0,
            until: until.0,
            backlog: (now, lows, minutes, acks),
            outlook,
        }
    }

    fn sums(self, range: SeriesRange) -> SeriesSums {
        let point = |PartPoint(minutes, counts, gauges, classes): PartPoint| {
            let sum = Bucket::new(Counts::of(counts), Gauges::of(gauges), Sketch::of_classes(&classes));
            (minutes, sum)
        };
        let (now, lows, minutes, acks) = self.backlog;
        SeriesSums {
            range,
            points: self.points.into_iter().map(point).collect(),
            queues: self.queues,
            complete_from: Minute(self.complete_from),
            backlog: Backlog { now, lows, minutes, acks, outlook: self.outlook },
        }
    }
}
