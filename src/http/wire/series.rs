//! The points of a series.

use deltaq_service::{Backlog, Bucket, Counts, Minute, Outlook, SERIES_MINUTES, SeriesRange, SeriesSums};
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
    let Backlog { now, lows: [before, after], minutes, acks, outlook } = *backlog;
    let trend = || {
        rate(before.saturating_sub(after), backlog.span())
            - rate(after.saturating_sub(before), backlog.span())
    };
    let (empties_in_ms, reason) = match outlook {
        Outlook::Empty => (Some(0), None),
        Outlook::Unknown => (None, Some(DrainReason::Unknown)),
        _ if minutes == 0 => (None, Some(DrainReason::Unknown)),
        Outlook::After(ms) => (Some(ms), None),
        // Some queues get empty.
        Outlook::Stalled if acks > 0 => (None, Some(DrainReason::Growing)),
        Outlook::Stalled => (None, Some(DrainReason::Stalled)),
        Outlook::Growing => (None, Some(DrainReason::Growing)),
    };
    DrainEstimate {
        empties_in_ms,
        reason,
        waiting: now,
        shrinks_per_minute: (minutes > 0).then(trend),
        measured_minutes: minutes.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_from_the_last_minutes() {
        let of = |outlook, lows, minutes, acks| {
            let estimate = drain(&Backlog { now: 7, lows, minutes, acks, outlook });
            (estimate.empties_in_ms, estimate.reason, estimate.shrinks_per_minute)
        };
        assert_eq!(of(Outlook::After(5), [220, 120], 10, 300), (Some(5), None, Some(20.0)));
        assert_eq!(of(Outlook::Empty, [50, 0], 9, 50), (Some(0), None, Some(10.0)));
        let growing = Some(DrainReason::Growing);
        assert_eq!(of(Outlook::Growing, [50, 80], 10, 70), (None, growing, Some(-6.0)));
        assert_eq!(of(Outlook::Stalled, [50, 50], 9, 0), (None, Some(DrainReason::Stalled), Some(0.0)));
        assert_eq!(
            of(Outlook::Stalled, [50, 40], 10, 7),
            (None, growing, Some(2.0)),
            "other queues get empty"
        );
        assert_eq!(of(Outlook::Stalled, [50, 50], 0, 0), (None, Some(DrainReason::Unknown), None));
        assert_eq!(of(Outlook::Growing, [0, u64::MAX], 1, 0).1, growing);
    }
}
