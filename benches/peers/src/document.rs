//! The document with the results. The text between two markers is generated; all other text is written by hand.

use std::fmt::Write as _;
use std::io;

use crate::figures::short;
use crate::plot::bars;
use crate::rows::{Line, Row};

const END: &str = "<!-- end -->";
const HEAD: &str = "| row | deltaq | compared with | ratio | target | reached |\n|---|---|---|---|---|---|\n";

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

/// The table of all lines, each with the name of its row.
pub(crate) fn table(lines: &[(&str, Line)]) -> String {
    let mut text = String::from(HEAD);
    for (row, line) in lines {
        let named = |(name, figure): &(String, _)| format!("{name}: {figure} {}", line.unit);
        let (ours, baseline, ratio) = (named(&line.ours), named(&line.baseline), short(line.ratio()));
        let _ =
            writeln!(text, "| {row} | {ours} | {baseline} | {ratio} | {} | {} |", line.target, reached(line));
    }
    text
}

/// "yes" or "no" for a line with a target, otherwise an empty text.
pub(crate) fn reached(line: &Line) -> &'static str {
    match line.target.is_reached(line.ratio()) {
        Some(true) => "yes",
        Some(false) => "**no**",
        None => "",
    }
}

/// The chart of the lines that compare throughput.
pub(crate) fn chart(lines: &[(&str, Line)]) -> String {
    let compared = lines.iter().filter(|(_, line)| line.unit == "objects/s");
    let named: Vec<_> =
        compared.map(|(row, line)| (format!("{row} / {}", line.baseline.0), line.ratio())).collect();
    let ratios: Vec<_> = named.iter().map(|(name, ratio)| (name.as_str(), *ratio)).collect();
    bars("throughput of deltaq divided by that of the other server", &ratios)
}

/// The description of each row, with the command that repeats it.
pub(crate) fn legend(rows: &[Row]) -> String {
    let line = |row: &Row| format!("- **{}**: {} `{}`\n", row.name, row.about, command(row.name));
    rows.iter().map(line).collect()
}

/// The command that measures one row.
pub(crate) fn command(row: &str) -> String {
    format!("just bench-peers --rows {row}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Figure, Target};

    const TEXT: &str = "# A\n\n<!-- measured: table -->\n\nold\n\n<!-- end -->\n\nby hand\n\
                        <!-- measured: machine -->\n<!-- end -->\nend\n";

    #[test]
    fn only_the_text_between_markers_is_replaced() {
        let new = with_block(TEXT, "table", "new\n").unwrap();
        assert_eq!(new, TEXT.replace("old", "new"));
        assert_eq!(with_block(&new, "table", "old").unwrap(), TEXT);
        let both = with_block(&new, "machine", "more").unwrap();
        assert!(both.contains("new\n\n<!-- end -->\n\nby hand\n"), "{both}");
        assert!(both.ends_with("<!-- measured: machine -->\n\nmore\n\n<!-- end -->\nend\n"), "{both}");
    }

    #[test]
    fn missing_markers_are_errors() {
        let crossing = "<!-- measured: table --> <!-- measured: machine --> <!-- end -->";
        for (text, name) in
            [(TEXT, "growth"), ("<!-- measured: table --> open", "table"), (crossing, "table")]
        {
            assert!(with_block(text, name, "new").is_err(), "{text}");
        }
    }

    #[test]
    fn a_line_names_both_servers_and_whether_the_target_is_reached() {
        let named = |name: &str, median| (name.to_owned(), Figure { median, least: median, most: median });
        let line = |unit, target| Line {
            unit,
            ours: named("deltaq", 500.0),
            baseline: named("Redis", 1_000.0),
            target,
        };
        let lines = [
            ("cycle", line("objects/s", Target::AtLeast(1.0))),
            ("hand-off", line("p50 µs", Target::AtMost(1.5))),
        ];
        let table = table(&lines);
        for expected in [
            "| cycle | deltaq: 500 objects/s | Redis: 1,000 objects/s | 0.50 | ≥ 1 | **no** |\n",
            "| hand-off | deltaq: 500 p50 µs | Redis: 1,000 p50 µs | 0.50 | ≤ 1.5 | yes |\n",
        ] {
            assert!(table.contains(expected), "{table}");
        }
        let chart = chart(&lines);
        assert!(chart.contains(">cycle / Redis<") && !chart.contains("hand-off"), "{chart}");
    }
}
