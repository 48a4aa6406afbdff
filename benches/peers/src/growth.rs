//! Scaling: the same cycle with more connections, larger batches, more keys and larger objects.

use std::fmt::Write as _;

use deltaq::bench::Measured;

use crate::figures::{Figure, short};
use crate::plot::{Panel, svg};
use crate::rows::{LOAD, known_load};
use crate::servers::{Kind, Storage};
use crate::subject::{Load, Subject};

/// Measurements in which one quantity grows.
pub(crate) struct Series {
    /// Name of the chart's file.
    pub(crate) name: &'static str,
    about: &'static str,
    axis: &'static str,
    /// Position on the axis, its label, and the load.
    points: Vec<(f64, String, Load)>,
    /// Whether the table shows megabytes per second.
    has_bytes: bool,
}

impl Series {
    pub(crate) fn subjects(&self) -> Vec<Subject> {
        let subject = |(_, mark, load): &(f64, String, Load)| Subject {
            name: format!("{}: {mark}", self.axis),
            kind: Kind::Deltaq,
            storage: Storage::Memory,
            load: *load,
        };
        self.points.iter().map(subject).collect()
    }

    /// The figures as a table and as a chart.
    pub(crate) fn rendered(&self, results: &[Vec<Measured>]) -> (String, String) {
        let mut table = format!("{}\n\n| {} | objects/s |", self.about, self.axis);
        let heads = if self.has_bytes { " MB/s | p50 ms | p99 ms |" } else { " p50 ms | p99 ms |" };
        let rule = "---|".repeat(if self.has_bytes { 5 } else { 4 });
        let _ = writeln!(table, "{heads}\n|{rule}");
        let (mut rates, mut slowest) = (Vec::new(), Vec::new());
        for ((_, mark, load), rounds) in self.points.iter().zip(results) {
            let figure = |of: &dyn Fn(&Measured) -> f64| Figure::of(rounds.iter().map(of));
            let rate = figure(&|measured| measured.rate(measured.objects));
            let p50 = figure(&|measured| millis(measured.latencies().p50));
            let p99 = figure(&|measured| millis(measured.latencies().p99));
            let (Some(rate), Some(p50), Some(p99)) = (rate, p50, p99) else { continue };
            let _ = write!(table, "| {mark} | {rate} |");
            if self.has_bytes {
                let _ = write!(table, " {} |", short(megabytes(rate.median, load.object_bytes)));
            }
            let _ = writeln!(table, " {} | {} |", short(p50.median), short(p99.median));
            rates.push(rate);
            slowest.push(p99);
        }
        let _ = writeln!(table, "\n![objects/s and p99 over {}](plots/{}.svg)", self.axis, self.name);
        let marks: Vec<_> = self.points.iter().map(|(at, mark, _)| (*at, mark.clone())).collect();
        let panels = [
            Panel { title: "objects/s", is_logarithmic: self.has_bytes, figures: rates },
            Panel { title: "p99 of an operation, ms", is_logarithmic: true, figures: slowest },
        ];
        (table, svg(self.axis, &marks, &panels))
    }
}

/// All series.
pub(crate) fn series() -> Vec<Series> {
    let point = |number: u32, mark: &str, load| (f64::from(number), mark.to_owned(), load);
    let connections = |(number, connections): (u32, usize)| {
        point(number, &number.to_string(), Load { connections, ..LOAD })
    };
    let batch = |(number, batch): (u32, usize)| {
        point(number, &number.to_string(), Load { connections: 8, batch, ..LOAD })
    };
    let known = |(number, mark): (u32, &str)| point(number, mark, known_load(number.into()));
    // The number of keys is bounded, because known objects of the largest size would soon fill the memory.
    let bytes = |(number, object_bytes, mark): (u32, usize, &str)| {
        point(number, mark, Load { connections: 8, object_bytes, keys: Some(1_000), ..LOAD })
    };
    vec![
        Series {
            name: "connections",
            about: "Cycles of one object, by number of connections:",
            axis: "connections",
            points: [(1, 1), (8, 8), (64, 64), (512, 512)].map(connections).into(),
            has_bytes: false,
        },
        Series {
            name: "batches",
            about: "Cycles on 8 connections, by number of objects in a request. p50 and p99 are of an operation, which \
                    adds a whole batch and pops a whole batch:",
            axis: "objects in a batch",
            points: [(1, 1), (10, 10), (100, 100), (1_000, 1_000)].map(batch).into(),
            has_bytes: false,
        },
        Series {
            name: "keys",
            about: "Cycles in batches of 10 on 8 connections, with objects of 40 bytes and 1,000 keys, by number of known \
                    keys:",
            axis: "known keys",
            points: [
                (1_000, "1k"),
                (10_000, "10k"),
                (100_000, "100k"),
                (1_000_000, "1M"),
                (10_000_000, "10M"),
            ]
            .map(known)
            .into(),
            has_bytes: false,
        },
        Series {
            name: "sizes",
            about: "Cycles of one object on 8 connections, with 1,000 keys, by object size. MB/s counts each object \
                    once, although it is sent and received:",
            axis: "object size",
            points: [
                (64, 64, "64 B"),
                (256, 256, "256 B"),
                (1 << 10, 1 << 10, "1 KiB"),
                (16 << 10, 16 << 10, "16 KiB"),
                (256 << 10, 256 << 10, "256 KiB"),
                (1 << 20, 1 << 20, "1 MiB"),
            ]
            .map(bytes)
            .into(),
            has_bytes: true,
        },
    ]
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn millis(micros: u64) -> f64 {
    micros as f64 / 1e3
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn megabytes(rate: f64, object_bytes: usize) -> f64 {
    rate * object_bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_a_line_and_a_point_for_each_load() {
        for series in series() {
            let mut measured = Measured::default();
            measured.lasted = std::time::Duration::from_secs(1);
            let results: Vec<_> = series.subjects().iter().map(|_| vec![measured.clone()]).collect();
            let (table, svg) = series.rendered(&results);
            let count = series.points.len();
            assert_eq!(table.lines().filter(|line| line.starts_with('|')).count(), count + 2, "{table}");
            assert_eq!(svg.matches("<circle").count(), 2 * count);
        }
    }
}
