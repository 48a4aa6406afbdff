//! Charts in SVG: curves in panels side by side that share a logarithmic horizontal axis, and horizontal bars.
//!
//! The background is transparent, and the colours are readable on light and dark backgrounds.

use std::fmt::Write as _;

use crate::figures::{Figure, short};

const PANEL_WIDTH: f64 = 380.0;
const HEIGHT: f64 = 300.0;
/// Margins around the curve of a panel.
const LEFT: f64 = 72.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 52.0;
const INK: &str = "#7d8590";
const CURVE: &str = "#3b82f6";
/// The approximate number of grid lines in a panel.
const LINES: f64 = 5.0;

/// Room for the names of bars, for the longest bar, and for its number.
const BARS_LEFT: f64 = 200.0;
const BARS_WIDTH: f64 = 480.0;
const BARS_RIGHT: f64 = 80.0;
const BAR_HEIGHT: f64 = 20.0;
const BAR_STEP: f64 = 32.0;

/// A curve with axes of its own.
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    /// Whether the vertical axis is logarithmic. A linear axis begins at 0.
    pub(crate) is_logarithmic: bool,
    /// One figure for each mark of the horizontal axis.
    pub(crate) figures: Vec<Figure>,
}

/// The chart as SVG. `marks` are the positions and labels of the points on the horizontal axis.
pub(crate) fn svg(axis: &str, marks: &[(f64, String)], panels: &[Panel]) -> String {
    let width: f64 = panels.iter().map(|_| PANEL_WIDTH).sum();
    let titles: Vec<&str> = panels.iter().map(|panel| panel.title).collect();
    let mut out = head(width, HEIGHT, &format!("{} over {axis}", titles.join(", ")));
    let mut left = 0.0;
    for panel in panels {
        draw(&mut out, left, axis, marks, panel);
        left += PANEL_WIDTH;
    }
    out.push_str("</svg>\n");
    out
}

/// Horizontal bars of medians, with their names on the left and their numbers on the right. A thin line spans the rounds.
pub(crate) fn bars(unit: &str, figures: &[(&str, Figure)]) -> String {
    let most = figures.iter().map(|(_, figure)| figure.most).fold(f64::MIN_POSITIVE, f64::max);
    let height: f64 = TOP + figures.iter().map(|_| BAR_STEP).sum::<f64>();
    let mut out = head(BARS_LEFT + BARS_WIDTH + BARS_RIGHT, height, unit);
    text(&mut out, BARS_LEFT, TOP - 16.0, "start", unit);
    let x = |value: f64| BARS_LEFT + BARS_WIDTH * value / most;
    let mut top = TOP;
    for (name, figure) in figures {
        let middle = top + BAR_HEIGHT / 2.0;
        let _ = writeln!(
            out,
            "<rect x=\"{BARS_LEFT:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BAR_HEIGHT:.1}\" fill=\"{CURVE}\"/>",
            x(figure.median) - BARS_LEFT
        );
        stroke(&mut out, (x(figure.least), middle), (x(figure.most), middle), 1.0);
        text(&mut out, BARS_LEFT - 8.0, middle + 4.0, "end", name);
        text(&mut out, x(figure.most) + 8.0, middle + 4.0, "start", &short(figure.median));
        top += BAR_STEP;
    }
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

fn draw(out: &mut String, left: f64, axis: &str, marks: &[(f64, String)], panel: &Panel) {
    let (begin, end) = (left + LEFT, left + PANEL_WIDTH - RIGHT);
    let (top, bottom) = (TOP, HEIGHT - BOTTOM);
    let ends = |numbers: &[f64]| {
        let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        (least, numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    };
    let places: Vec<f64> = marks.iter().map(|(at, _)| at.ln()).collect();
    let (first, last) = ends(&places);
    let x = |at: f64| begin + (end - begin) * share(at.ln(), first, last);
    let lines = lines(panel);
    let scale = |value: f64| if panel.is_logarithmic { value.ln() } else { value };
    let scaled: Vec<f64> = lines.iter().map(|line| scale(*line)).collect();
    let (lowest, highest) = ends(&scaled);
    let y = |value: f64| bottom - (bottom - top) * share(scale(value), lowest, highest);

    text(out, f64::midpoint(begin, end), top - 16.0, "middle", panel.title);
    text(out, f64::midpoint(begin, end), HEIGHT - 8.0, "middle", axis);
    for line in lines {
        let at = y(line);
        stroke(out, (begin, at), (end, at), 0.3);
        text(out, begin - 8.0, at + 4.0, "end", &label(line));
    }
    let mut curve = String::new();
    for ((at, mark), figure) in marks.iter().zip(&panel.figures) {
        let (at, middle) = (x(*at), y(figure.median));
        stroke(out, (at, bottom), (at, bottom + 5.0), 1.0);
        text(out, at, bottom + 20.0, "middle", mark);
        // The bar spans the rounds from the lowest to the highest.
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" y1=\"{:.1}\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke=\"{CURVE}\" stroke-width=\"5\" \
             stroke-opacity=\"0.35\"/>",
            y(figure.least),
            y(figure.most)
        );
        let _ = writeln!(out, "<circle cx=\"{at:.1}\" cy=\"{middle:.1}\" r=\"3.5\" fill=\"{CURVE}\"/>");
        let _ = write!(curve, "{at:.1},{middle:.1} ");
    }
    let curve = curve.trim_end();
    let _ =
        writeln!(out, "<polyline points=\"{curve}\" fill=\"none\" stroke=\"{CURVE}\" stroke-width=\"2\"/>");
}

/// The values of the grid lines: round numbers that enclose all figures.
fn lines(panel: &Panel) -> Vec<f64> {
    let least = panel.figures.iter().map(|figure| figure.least).fold(f64::INFINITY, f64::min);
    let most = panel.figures.iter().map(|figure| figure.most).fold(f64::NEG_INFINITY, f64::max);
    let mut lines = Vec::new();
    if panel.is_logarithmic && least > 0.0 {
        let mut line = 10f64.powf(least.log10().floor());
        lines.push(line);
        while line < most {
            line *= 10.0;
            lines.push(line);
        }
        return lines;
    }
    let rough = (most / LINES).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let mut line = 0.0;
    lines.push(line);
    while line < most {
        line += step;
        lines.push(line);
    }
    lines
}

/// The relative position of `value` between two bounds, from 0 to 1. The middle if the bounds are equal.
fn share(value: f64, from: f64, to: f64) -> f64 {
    if to > from { (value - from) / (to - from) } else { 0.5 }
}

/// The label of a number on an axis, such as 1.5M, 20k or 0.5.
fn label(value: f64) -> String {
    let rounded = |value: f64| (value * 1e3).round() / 1e3;
    match value {
        _ if value >= 1e6 => format!("{}M", rounded(value / 1e6)),
        _ if value >= 1e3 => format!("{}k", rounded(value / 1e3)),
        _ => rounded(value).to_string(),
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = escaped(text);
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

fn stroke(out: &mut String, from: (f64, f64), to: (f64, f64), opacity: f64) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{INK}\" \
         stroke-opacity=\"{opacity}\"/>"
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(is_logarithmic: bool, medians: &[f64]) -> Panel {
        let figure = |median: &f64| Figure { median: *median, least: 0.9 * median, most: 1.1 * median };
        Panel { title: "objects/s", is_logarithmic, figures: medians.iter().map(figure).collect() }
    }

    #[test]
    fn grid_lines_are_round_numbers_that_enclose_the_figures() {
        assert_eq!(lines(&panel(false, &[40.0, 80.0])), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(lines(&panel(true, &[40.0, 800.0])), [10.0, 100.0, 1_000.0]);
        assert_eq!(lines(&panel(true, &[0.0])), [0.0]);
        assert_eq!([1_500_000.0, 20_000.0, 0.5, 0.0].map(label), ["1.5M", "20k", "0.5", "0"]);
    }

    #[test]
    fn the_points_of_a_chart_are_in_order_and_in_bounds() {
        let marks = [(1.0, "1".to_owned()), (10.0, "10".to_owned()), (100.0, "<100".to_owned())];
        let panels = [panel(false, &[10.0, 50.0, 90.0]), panel(true, &[1.0, 2.0, 300.0])];
        let svg = svg("connections", &marks, &panels);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("&lt;100") && !svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(svg.matches("<circle").count(), 6);
        for curve in svg.split("points=\"").skip(1) {
            let points: Vec<(f64, f64)> = curve[..curve.find('"').unwrap()]
                .split(' ')
                .map(|point| point.split_once(',').unwrap())
                .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
                .collect();
            assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 > b.1), "{points:?}");
            assert!(points.iter().all(|(x, y)| (0.0..760.0).contains(x) && (TOP..HEIGHT).contains(y)));
        }
    }
}
