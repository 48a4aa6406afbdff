//! The document with the results. The text between two markers is generated; all other text is written by hand.

use std::io;

use crate::figures::{Figure, short};
use crate::plot::bars;
use crate::rows::{Line, Row};

const END: &str = "<!-- end -->";
const HEAD: &str =
    "| row | measured | compared with | ratio | target | reached | date |\n|---|---|---|---|---|---|---|\n";

/// The text between the markers with this name.
pub(crate) fn block<'a>(text: &'a str, name: &str) -> io::Result<&'a str> {
    let (start, end) = bounds(text, name)?;
    Ok(text.get(start..end).unwrap_or_default().trim())
}

/// Replaces the block between the markers with this name.
pub(crate) fn with_block(text: &str, name: &str, block: &str) -> io::Result<String> {
    let (start, end) = bounds(text, name)?;
    let (before, rest) = text.split_at(start);
    Ok(format!("{before}\n\n{}\n\n{}", block.trim(), rest.get(end - start..).unwrap_or_default()))
}

fn bounds(text: &str, name: &str) -> io::Result<(usize, usize)> {
    let marker = format!("<!-- measured: {name} -->");
    let missing = |marker: &str| io::Error::other(format!("the document has no {marker}"));
    let start = text.find(&marker).ok_or_else(|| missing(&marker))? + marker.len();
    let rest = text.get(start..).unwrap_or_default();
    let length = rest.find(END).ok_or_else(|| missing(&format!("{END} after {marker}")))?;
    if rest.get(..length).is_some_and(|block| block.contains("<!-- measured: ")) {
        return Err(missing(&format!("{END} between {marker} and the next block")));
    }
    Ok((start, start + length))
}

/// The table with new lines for the row `name`. The lines of other rows are taken from `old`.
pub(crate) fn table(old: &str, rows: &[Row], name: &str, lines: &[Line], date: &str) -> String {
    let mut text = String::from(HEAD);
    for row in rows {
        if row.name == name {
            text.extend(lines.iter().map(|line| rendered(name, line, date)));
        } else {
            let begin = format!("| {} |", row.name);
            let kept = old.lines().filter(|line| line.starts_with(&begin));
            text.extend(kept.map(|line| format!("{line}\n")));
        }
    }
    text
}

/// A line of the table.
fn rendered(row: &str, line: &Line, date: &str) -> String {
    let unit = &line.unit;
    let named = |(name, figure): &(String, _)| format!("{name}: {figure} {unit}");
    let baseline = line.baseline.as_ref().map(named).unwrap_or_default();
    let ratio = line.baseline.as_ref().map(|_| short(line.ratio())).unwrap_or_default();
    let (ours, target) = (named(&line.ours), line.target);
    let reached = reached(line);
    format!("| {row} | {ours} | {baseline} | {ratio} | {target} | {reached} | {date} |\n")
}

/// "yes" or "no" for a line with a target, otherwise an empty text.
pub(crate) fn reached(line: &Line) -> &'static str {
    match line.target.is_reached(line.ratio()) {
        Some(true) => "yes",
        Some(false) => "**no**",
        None => "",
    }
}

/// A bar for each figure of a row that has the unit of the first line.
pub(crate) fn chart(lines: &[Line]) -> String {
    let unit = lines.first().map(|line| line.unit.as_str()).unwrap_or_default();
    let mut figures: Vec<(&str, Figure)> = Vec::new();
    for line in lines.iter().filter(|line| line.unit == unit) {
        for (name, figure) in std::iter::once(&line.ours).chain(&line.baseline) {
            if figures.iter().all(|(other, _)| other != name) {
                figures.push((name, *figure));
            }
        }
    }
    bars(unit, &figures)
}

/// The description of each row, with the command that repeats it.
pub(crate) fn legend(rows: &[Row]) -> String {
    let line = |row: &Row| format!("- **{}**: {} `{}`\n", row.name, row.about, command(row.name));
    rows.iter().map(line).collect()
}

/// The command that measures one row.
pub(crate) fn command(row: &str) -> String {
    format!("cargo run --release --manifest-path benches/peers/Cargo.toml -- --rows {row}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Figure, Target};
    use crate::rows::rows;

    const TEXT: &str = "# A\n\n<!-- measured: table -->\n\nold\n\n<!-- end -->\n\nby hand\n\
                        <!-- measured: growth -->\n<!-- end -->\nend\n";

    #[test]
    fn only_the_text_between_markers_is_replaced() {
        assert_eq!(block(TEXT, "table").unwrap(), "old");
        assert_eq!(block(TEXT, "growth").unwrap(), "");
        let new = with_block(TEXT, "table", "new\n").unwrap();
        assert_eq!(new, TEXT.replace("old", "new"));
        assert_eq!(with_block(&new, "table", "old").unwrap(), TEXT);
        let both = with_block(&new, "growth", "more").unwrap();
        assert_eq!((block(&both, "table").unwrap(), block(&both, "growth").unwrap()), ("new", "more"));
        assert!(both.contains("by hand\n") && both.ends_with("<!-- end -->\nend\n"));
    }

    #[test]
    fn missing_markers_are_errors() {
        assert!(block(TEXT, "machine").is_err());
        assert!(block("<!-- measured: table --> open", "table").is_err());
        assert!(block("<!-- measured: table --> <!-- measured: growth --> <!-- end -->", "table").is_err());
    }

    #[test]
    fn a_chart_has_a_bar_for_each_figure_of_one_unit() {
        let named = |name: &str| (name.to_owned(), Figure { median: 2.0, least: 1.0, most: 3.0 });
        let line = |unit: &str, other: &str| Line {
            unit: unit.into(),
            ours: named("deltaq"),
            baseline: Some(named(other)),
            target: Target::None,
        };
        let svg = chart(&[line("objects/s", "Redis"), line("objects/s", "NATS"), line("p50 µs", "nothing")]);
        assert_eq!((svg.matches("<rect").count(), svg.matches(">deltaq<").count()), (3, 1), "{svg}");
        assert!(svg.contains(">objects/s<") && !svg.contains("nothing"));
    }

    #[test]
    fn a_row_replaces_only_its_own_lines() {
        let figure = |median: f64| Figure { median, least: median, most: median };
        let line = |median: f64| Line {
            unit: "objects/s".into(),
            ours: ("deltaq".into(), figure(median)),
            baseline: Some(("Redis".into(), figure(1_000.0))),
            target: Target::AtLeast(1.0),
        };
        let rows = rows();
        let first = table("not measured yet", &rows, "cycle", &[line(2_000.0)], "2026-01-01");
        assert_eq!(first.lines().count(), 3);
        let cycle =
            "| cycle | deltaq: 2,000 objects/s | Redis: 1,000 objects/s | 2.00 | ≥ 1 | yes | 2026-01-01 |";
        assert!(first.contains(cycle), "{first}");
        let both = table(&first, &rows, "add", &[line(500.0)], "2026-01-02");
        assert!(both.contains(cycle) && both.contains("| 0.50 | ≥ 1 | **no** | 2026-01-02 |"), "{both}");
        assert!(both.find("| add |") < both.find("| cycle |"));
        let again = table(&both, &rows, "cycle", &[line(3_000.0)], "2026-01-03");
        assert!(!again.contains("2,000") && again.lines().count() == 4, "{again}");
    }
}
