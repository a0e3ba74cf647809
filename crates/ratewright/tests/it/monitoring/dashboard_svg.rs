//! `docs/operations/dashboard.svg`: some panels of the dashboard, drawn from what Prometheus recorded during the test.
//!
//! Times and values differ from run to run, so the picture is written only with UPDATE_DOCS=1; otherwise its panels are compared.

use std::fmt::Write as _;

use ratewright_lab::{Prometheus, Range};
use serde_json::Value;

use super::dashboard::{panels, substituted};
use super::environment::Scene;
use super::{path, text};

/// The panels of the picture, by title.
const SHOWN: [&str; 9] = [
    "429s by route",
    "Allowed by policy",
    "Denied by policy",
    "Near the limit",
    "Basis of decisions",
    "Redis latency",
    "Shadow: would be denied",
    "Upstream health",
    "Replicas",
];
const COLOURS: [&str; 6] = ["#2a6fb0", "#c1592c", "#1c8a5a", "#b08a1e", "#7b4fa3", "#5f6b76"];

/// A panel's box, and the plot in it.
const WIDE: f64 = 400.0;
const HIGH: f64 = 230.0;
const PLOT: (f64, f64, f64, f64) = (54.0, 36.0, 330.0, 128.0);
const PER_ROW: usize = 3;
const GAP: f64 = 12.0;

/// One series to draw: its name, and its points.
type Line = (String, Vec<(f64, f64)>);

/// True if the picture is written anew.
pub(super) fn is_drawn() -> bool {
    std::env::var_os("UPDATE_DOCS").is_some()
}

/// Draws the last so many seconds.
pub(super) fn draw(prometheus: &Prometheus, seconds: f64, scene: &Scene) {
    let addresses = [
        (format!("http://{}", scene.orders.address()), "10.0.0.7:3000"),
        (format!("http://{}", scene.site.address()), "10.0.0.8:3000"),
    ];
    let named =
        |name: String| addresses.iter().fold(name, |name, (from, to)| name.replace(from.as_str(), to));
    let panels = panels();
    let shown = SHOWN.map(|title| panels.iter().find(|panel| panel["title"] == title).unwrap());
    let mut svg = head();
    for (n, panel) in shown.iter().enumerate() {
        let mut lines: Vec<Line> = Vec::new();
        for target in panel["targets"].as_array().unwrap() {
            let expression = substituted(target["expr"].as_str().unwrap());
            let ranges = prometheus.range(&expression, seconds, seconds / 160.0);
            assert!(!ranges.is_empty(), "{} has no data", panel["title"]);
            lines.extend(ranges.into_iter().map(|range| (named(legend(target, &range)), range.points)));
        }
        let (column, row) = ((n % PER_ROW) as f64, (n / PER_ROW) as f64);
        let corner = (GAP + column * (WIDE + GAP), GAP + row * (HIGH + GAP));
        draw_panel(&mut svg, panel, &lines, corner, seconds);
    }
    svg.push_str("</svg>\n");
    if is_drawn() {
        std::fs::write(path("docs/operations/dashboard.svg"), &svg).unwrap();
    }
    let titles = |svg: &str| -> Vec<String> {
        let titles = svg.split("class=\"t\">").skip(1).filter_map(|rest| rest.split('<').next());
        titles.map(str::to_owned).collect()
    };
    assert_eq!(
        titles(&text("docs/operations/dashboard.svg")),
        titles(&svg),
        "docs/operations/dashboard.svg is old: UPDATE_DOCS=1"
    );
}

fn head() -> String {
    let rows = SHOWN.len().div_ceil(PER_ROW) as f64;
    let (width, height) = (GAP + PER_ROW as f64 * (WIDE + GAP), GAP + rows * (HIGH + GAP));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <title>Panels of the dashboard, drawn from a test: clients are denied, Redis goes away and comes back, an upstream fails</title>\n\
         <style>.t{{font-size:14px;font-weight:600;fill:#1f2933}}.a{{fill:#6b7682}}.g{{stroke:#e6e9ed}}polyline{{fill:none;stroke-width:1.6;stroke-linejoin:round}}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#f3f5f7\"/>\n"
    )
}

/// The name of a series, by the panel's pattern.
fn legend(target: &Value, range: &Range) -> String {
    let mut name = target["legendFormat"].as_str().unwrap().to_owned();
    for (label, value) in range.labels.as_object().into_iter().flatten() {
        name = name.replace(&format!("{{{{{label}}}}}"), value.as_str().unwrap_or_default());
    }
    name
}

fn draw_panel(svg: &mut String, panel: &Value, lines: &[Line], corner: (f64, f64), seconds: f64) {
    let (left, top, width, height) = PLOT;
    let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap();
    let values = lines.iter().flat_map(|(_, points)| points).map(|(_, value)| *value);
    let top_value = round_up(values.filter(|value| value.is_finite()).fold(0.0, f64::max));
    writeln!(svg, "<g transform=\"translate({} {})\">", corner.0, corner.1).unwrap();
    writeln!(svg, "<rect width=\"{WIDE}\" height=\"{HIGH}\" rx=\"5\" fill=\"#fff\" stroke=\"#d9dee4\"/>")
        .unwrap();
    writeln!(svg, "<text x=\"12\" y=\"22\" class=\"t\">{}</text>", panel["title"].as_str().unwrap()).unwrap();
    for tick in 0..=4 {
        let share = tick as f64 / 4.0;
        let y = top + height * (1.0 - share);
        let (x, at) = (left + width * share, seconds * share);
        writeln!(svg, "<path class=\"g\" d=\"M{left} {y:.1}h{width}\"/>").unwrap();
        if tick % 2 == 0 {
            let value_label = shown(top_value * share, unit);
            writeln!(
                svg,
                "<text class=\"a\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value_label}</text>",
                left - 6.0,
                y + 4.0
            )
            .unwrap();
            let (below, anchor) = (top + height + 15.0, ["start", "middle", "end"][tick / 2]);
            writeln!(
                svg,
                "<text class=\"a\" x=\"{x:.0}\" y=\"{below}\" text-anchor=\"{anchor}\">{at:.0} s</text>"
            )
            .unwrap();
        }
    }
    let at = |(time, value): &(f64, f64)| {
        let (x, y) = (left + width * time / seconds, top + height * (1.0 - value / top_value));
        format!("{x:.1},{y:.1}")
    };
    let (mut legend_x, mut legend_y) = (12.0, top + height + 36.0);
    for (n, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        for stretch in
            points.chunk_by(|a, b| a.1.is_finite() && b.1.is_finite() && b.0 - a.0 < seconds / 40.0)
        {
            let drawn: Vec<_> = stretch.iter().filter(|(_, value)| value.is_finite()).map(at).collect();
            if drawn.len() > 1 {
                writeln!(svg, "<polyline stroke=\"{colour}\" points=\"{}\"/>", drawn.join(" ")).unwrap();
            }
        }
        let needed = 22.0 + 6.2 * name.chars().count() as f64;
        if legend_x + needed > WIDE {
            (legend_x, legend_y) = (12.0, legend_y + 14.0);
        }
        writeln!(
            svg,
            "<path d=\"M{legend_x} {}h10\" stroke=\"{colour}\" stroke-width=\"3\"/>",
            legend_y - 4.0
        )
        .unwrap();
        writeln!(svg, "<text class=\"a\" x=\"{}\" y=\"{legend_y}\">{name}</text>", legend_x + 14.0).unwrap();
        legend_x += needed;
    }
    svg.push_str("</g>\n");
}

/// The next round number: 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1e-6).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|round| value <= *round).unwrap_or(value)
}

/// A value with its unit.
fn shown(value: f64, unit: &str) -> String {
    let plain = |value: f64| if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    match unit {
        "reqps" | "ops" => format!("{}/s", plain(value)),
        "percentunit" => format!("{} %", plain(value * 100.0)),
        "s" if value < 0.01 && value > 0.0 => format!("{} ms", plain(value * 1_000.0)),
        "s" if value < 1.0 && value > 0.0 => format!("{:.0} ms", value * 1_000.0),
        "s" => format!("{} s", plain(value)),
        _ => plain(value),
    }
}
