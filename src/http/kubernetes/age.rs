//! The age of an object as Kubernetes prints it in a table.

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

/// An age in two or three significant figures, such as `70s`, `3m10s`, `2d1h` or `8y`: what `HumanDuration` of
/// k8s.io/apimachinery makes of it.
pub(super) fn human(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => of_two(seconds, (MINUTE, "m"), (1, "s")),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => of_two(seconds, (HOUR, "h"), (MINUTE, "m")),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => of_two(seconds, (DAY, "d"), (HOUR, "h")),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => of_two(seconds, (YEAR, "y"), (DAY, "d")),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// A whole number of the large unit, and the rest in the small one if there is any.
fn of_two(seconds: u64, large: (u64, &str), small: (u64, &str)) -> String {
    let whole = format!("{}{}", seconds / large.0, large.1);
    match seconds % large.0 / small.0 {
        0 => whole,
        rest => format!("{whole}{rest}{}", small.1),
    }
}

#[cfg(test)]
mod tests {
    use super::{DAY, HOUR, MINUTE, YEAR, human};

    /// The table of apimachinery's own test, in whole seconds.
    #[test]
    fn an_age_is_written_as_kubernetes_does() {
        let table = [
            (0, "0s"),
            (1, "1s"),
            (70, "70s"),
            (2 * MINUTE - 1, "119s"),
            (2 * MINUTE, "2m"),
            (2 * MINUTE + 1, "2m1s"),
            (190, "3m10s"),
            (10 * MINUTE - 1, "9m59s"),
            (10 * MINUTE, "10m"),
            (10 * MINUTE + 1, "10m"),
            (70 * MINUTE, "70m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + MINUTE, "3h1m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR, "8h"),
            (8 * HOUR + 59 * MINUTE, "8h"),
            (47 * HOUR, "47h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (49 * HOUR, "2d1h"),
            (8 * DAY - 1, "7d23h"),
            (8 * DAY, "8d"),
            (8 * DAY + 23 * HOUR, "8d"),
            (367 * DAY, "367d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY - 1, "2y"),
            (2 * YEAR + 25 * HOUR, "2y1d"),
            (3 * YEAR, "3y"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR, "8y"),
            (8 * YEAR + 364 * DAY, "8y"),
            (9 * YEAR, "9y"),
        ];
        for (seconds, wanted) in table {
            assert_eq!(human(seconds), wanted, "{seconds} s");
        }
    }
}
