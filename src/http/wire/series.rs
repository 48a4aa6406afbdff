//! The points of a series.

use deltaq_service::{Backlog, Bucket, Counts, Minute, SERIES_MINUTES, SeriesRange, SeriesSums};
use deltaq_types::{
    DrainEstimate, DrainReason, ProcessingTime, SeriesCounts, SeriesDocument, SeriesGauges, SeriesPoint,
    SeriesRates,
};

use super::timestamp;

const MINUTE_MS: u64 = 60_000;

/// The series of a queue or, without a name, sums. `now` is the minute up to which series are complete.
#[must_use]
pub fn series(queue: Option<&str>, sums: &SeriesSums, now: Minute) -> SeriesDocument {
    let SeriesRange { from, until, step } = sums.range;
    let complete_from = sums.complete_from.max(now.minus(SERIES_MINUTES));
    let point = |(number, (minutes, sum)): (usize, &(u32, Bucket))| {
        let begin = sums.range.point(number);
        // What is missing of one queue may be most of the point. Sums lack little.
        let is_known = queue.is_none() || begin >= sums.complete_from;
        point(begin, if is_known { *minutes } else { 0 }, sum)
    };
    SeriesDocument {
        queue: queue.map(str::to_owned),
        queues: sums.queues,
        from_at: timestamp(from.begins_at()),
        until_at: timestamp(until.begins_at()),
        step_ms: u64::from(step) * MINUTE_MS,
        complete_from_at: timestamp(complete_from.begins_at()),
        points: sums.points.iter().enumerate().map(point).collect(),
        drain: drain(&sums.backlog),
    }
}

fn point(begin: Minute, minutes: u32, sum: &Bucket) -> SeriesPoint {
    let gap = SeriesPoint {
        at: timestamp(begin.begins_at()),
        minutes: minutes.into(),
        counts: None,
        per_minute: None,
        gauges: None,
        processing: None,
    };
    if minutes == 0 {
        return gap;
    }
    let counts = counts(&sum.counts);
    let rate = |count: u64| rate(count, minutes);
    SeriesPoint {
        per_minute: Some(SeriesRates {
            changes: rate(counts.changes),
            deliveries: rate(counts.deliveries),
            acks: rate(counts.acks),
            failures: rate(counts.failures),
        }),
        counts: Some(counts),
        gauges: Some(SeriesGauges {
            ready: sum.gauges.ready,
            delayed: sum.gauges.delayed,
            leased: sum.gauges.leased,
            parked: sum.gauges.parked,
            known: sum.gauges.known,
            held_bytes: sum.gauges.held_bytes,
            oldest_ready_age_ms: sum.gauges.oldest_ready_ms.unwrap_or_default(),
            oldest_unacknowledged_age_ms: sum.gauges.oldest_unacknowledged_ms.unwrap_or_default(),
            lag_events: sum.gauges.lag_events,
            lag_ms: sum.gauges.lag_events.map(|_| sum.gauges.lag_ms.unwrap_or_default()),
        }),
        processing: sum.works.quantile_us(50).zip(sum.works.quantile_us(99)).map(|(p50_us, p99_us)| {
            ProcessingTime {
                leases: sum.works.count(),
                p50_ms: thousandth(p50_us),
                p99_ms: thousandth(p99_us),
            }
        }),
        ..gap
    }
}

fn counts(counts: &Counts) -> SeriesCounts {
    let [added, updated, deleted, replaced, sync] = counts.deltas;
    let [acks, nacks, released, rejects, expired] = counts.settled;
    SeriesCounts {
        changes: counts.deltas.iter().sum(),
        added,
        updated,
        deleted,
        replaced,
        sync,
        deliveries: counts.deliveries,
        acks,
        failures: nacks + rejects + expired,
        nacks,
        rejects,
        expired,
        released,
        stale: counts.stale,
        parked: counts.parked,
        retries: counts.retries,
        ignored: counts.ignored,
        coalesced: counts.coalesced,
        debounced: counts.debounced,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate of more than 2^53 a minute may be rounded")]
fn rate(count: u64, minutes: u32) -> f64 {
    ((count as f64 / f64::from(minutes)) * 1_000.0).round() / 1_000.0
}

#[expect(clippy::cast_precision_loss, reason = "a time of 285 years may be rounded")]
fn thousandth(number: u64) -> f64 {
    number as f64 / 1_000.0
}

/// The estimate that follows from how the backlog has changed.
fn drain(backlog: &Backlog) -> DrainEstimate {
    let Backlog { now, before, minutes, acks } = *backlog;
    let known = DrainEstimate {
        empties_in_ms: None,
        reason: None,
        waiting: now,
        shrinks_per_minute: None,
        measured_minutes: minutes.into(),
    };
    if minutes == 0 {
        return DrainEstimate { reason: Some(DrainReason::Unknown), ..known };
    }
    let shrunk = before.saturating_sub(now);
    let grown = now.saturating_sub(before);
    let known =
        DrainEstimate { shrinks_per_minute: Some(rate(shrunk, minutes) - rate(grown, minutes)), ..known };
    if now == 0 {
        return DrainEstimate { empties_in_ms: Some(0), ..known };
    }
    if shrunk == 0 {
        let reason = if acks == 0 && grown == 0 { DrainReason::Stalled } else { DrainReason::Growing };
        return DrainEstimate { reason: Some(reason), ..known };
    }
    let span_ms = u128::from(minutes) * u128::from(MINUTE_MS);
    let empties_in_ms = u128::from(now) * span_ms / u128::from(shrunk);
    DrainEstimate { empties_in_ms: Some(u64::try_from(empties_in_ms).unwrap_or(u64::MAX)), ..known }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_from_the_last_minutes() {
        let of = |now, before, minutes, acks| {
            let estimate = drain(&Backlog { now, before, minutes, acks });
            (estimate.empties_in_ms, estimate.reason, estimate.shrinks_per_minute)
        };
        assert_eq!(of(120, 220, 10, 300), (Some(12 * MINUTE_MS), None, Some(10.0)));
        assert_eq!(of(0, 50, 9, 50), (Some(0), None, Some(5.556)));
        assert_eq!(of(50, 50, 9, 70), (None, Some(DrainReason::Growing), Some(0.0)), "as many come as go");
        assert_eq!(of(80, 50, 10, 70), (None, Some(DrainReason::Growing), Some(-3.0)));
        assert_eq!(of(80, 50, 10, 0), (None, Some(DrainReason::Growing), Some(-3.0)));
        assert_eq!(of(50, 50, 9, 0), (None, Some(DrainReason::Stalled), Some(0.0)));
        assert_eq!(of(50, 50, 0, 0), (None, Some(DrainReason::Unknown), None));
        assert_eq!(of(u64::MAX, 0, 1, 0).1, Some(DrainReason::Growing));
    }
}
