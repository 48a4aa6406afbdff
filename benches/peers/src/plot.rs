//! The chart in SVG: horizontal bars.
//!
//! The background is transparent, and the colours are readable on light and dark backgrounds.

use std::fmt::Write as _;

use crate::figures::short;

const TOP: f64 = 36.0;
const INK: &str = "#7d8590";
const BAR: &str = "#3b82f6";

/// Room for the names of bars, for the longest bar, and for its number.
const BARS_LEFT: f64 = 300.0;
const BARS_WIDTH: f64 = 480.0;
const BARS_RIGHT: f64 = 80.0;
const BAR_HEIGHT: f64 = 16.0;
const BAR_STEP: f64 = 24.0;

/// Horizontal bars of ratios, with their names on the left and their numbers on the right. A line marks the ratio 1.
pub(crate) fn bars(title: &str, ratios: &[(&str, f64)]) -> String {
    let most = ratios.iter().map(|(_, ratio)| *ratio).fold(1.0, f64::max);
    let height: f64 = TOP + ratios.iter().map(|_| BAR_STEP).sum::<f64>();
    let mut out = head(BARS_LEFT + BARS_WIDTH + BARS_RIGHT, height, title);
    text(&mut out, BARS_LEFT, TOP - 16.0, "start", title);
    let x = |ratio: f64| BARS_LEFT + BARS_WIDTH * ratio / most;
    let mut top = TOP;
    for (name, ratio) in ratios {
        let baseline = top + BAR_HEIGHT / 2.0 + 4.0;
        let _ = writeln!(
            out,
            "<rect x=\"{BARS_LEFT:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BAR_HEIGHT:.1}\" fill=\"{BAR}\"/>",
            x(*ratio) - BARS_LEFT
        );
        text(&mut out, BARS_LEFT - 8.0, baseline, "end", name);
        text(&mut out, x(*ratio) + 8.0, baseline, "start", &short(*ratio));
        top += BAR_STEP;
    }
    let one = x(1.0);
    let _ = writeln!(
        out,
        "<line x1=\"{one:.1}\" y1=\"{:.1}\" x2=\"{one:.1}\" y2=\"{height:.1}\" stroke=\"{INK}\"/>",
        TOP - 8.0
    );
    out.push_str("</svg>\n");
    out
}

/// The first lines of a chart.
fn head(width: f64, height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\" fill=\"{INK}\">\n\
         <title>{}</title>\n",
        escaped(title)
    )
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = escaped(text);
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_a_bar_for_each_ratio() {
        let svg = bars("throughput", &[("add", 0.5), ("<batch", 2.0)]);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!((svg.matches("<rect").count(), svg.contains("&lt;batch")), (2, true), "{svg}");
    }
}
