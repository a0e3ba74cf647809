//! Charts in SVG: bars over time with axes, and small ones for a table.
//!
//! Colours come from the page's style sheet by class, so that one chart fits light, dark and paper.

mod ticks;

use super::Timeline;
use super::escape::html;
use super::number::grouped;

/// The size of a chart. The plot is what the labels leave of it.
const SIZE: (f64, f64) = (880.0, 200.0);
const PLOT: Area = Area { left: 62.0, top: 10.0, width: 806.0, height: 146.0 };
/// The size of a chart in a table.
const SMALL: Area = Area { left: 0.0, top: 0.0, width: 120.0, height: 22.0 };
/// The least height of a bar that is not empty: one denial among a million requests is visible.
const BAR_MIN: f64 = 1.5;

/// Bars over time.
pub(super) struct Chart<'a> {
    /// Unique in the page.
    pub(super) id: &'a str,
    /// A short title, for screen readers.
    pub(super) title: &'a str,
    /// What the chart shows, in a sentence, for screen readers.
    pub(super) description: &'a str,
    /// The intervals.
    pub(super) timeline: &'a Timeline,
    /// Which requests to draw.
    pub(super) bars: Bars,
}

/// The requests that a chart draws.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bars {
    /// Denied requests on top of allowed ones.
    Stacked,
    /// Denied requests alone, on a scale of their own.
    Denied,
}

/// A rectangle in a drawing.
#[derive(Clone, Copy)]
struct Area {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Chart<'_> {
    /// The chart with its axes.
    pub(super) fn to_svg(&self) -> String {
        let counts = self.timeline.counts(self.bars);
        let largest =
            counts.iter().map(|(allowed, denied)| allowed.saturating_add(*denied)).max().unwrap_or(0);
        let ticks = ticks::counts(largest);
        let top = ticks.last().copied().unwrap_or(1);
        let mut svg = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\n\
             <title id=\"{id}-t\">{}</title>\n<desc id=\"{id}-d\">{}</desc>\n",
            SIZE.0,
            SIZE.1,
            html(self.title),
            html(self.description),
            id = self.id,
        );
        svg.push_str(&count_axis(&ticks, top));
        svg.push_str(&bar_paths(&counts, top, PLOT));
        svg.push_str(&time_axis(self.timeline));
        svg.push_str("</svg>\n");
        svg
    }
}

/// The denials of a timeline, small and without axes.
pub(super) fn small_chart(timeline: &Timeline, title: &str) -> String {
    let counts = timeline.counts(Bars::Denied);
    let top = counts.iter().map(|(_, denied)| *denied).max().unwrap_or(0).max(1);
    let Area { width, height, .. } = SMALL;
    format!(
        "<svg class=\"small\" viewBox=\"0 0 {width} {height}\" role=\"img\"><title>{}</title>\
         <path class=\"axis\" d=\"M0 {height}h{width}\"/>{}</svg>",
        html(title),
        bar_paths(&counts, top, SMALL),
    )
}

impl Timeline {
    /// Allowed and denied requests of each interval; without the allowed ones, 0.
    fn counts(&self, bars: Bars) -> Vec<(u64, u64)> {
        let interval = |n| {
            let (allowed, denied) = self.interval(n);
            if bars == Bars::Stacked { (allowed, denied) } else { (0, denied) }
        };
        (0..self.n_intervals()).map(interval).collect()
    }
}

/// One path of bars for the allowed requests, one for the denied.
fn bar_paths(counts: &[(u64, u64)], top: u64, area: Area) -> String {
    let scale = area.height / top.max(1) as f64;
    let step = area.width / counts.len().max(1) as f64;
    let width = if step > 4.0 { step - 1.0 } else { step };
    let height = |count: u64| if count == 0 { 0.0 } else { (count as f64 * scale).max(BAR_MIN) };
    let bottom = area.top + area.height;
    let (mut allowed_bars, mut denied_bars) = (String::new(), String::new());
    for (n, (allowed, denied)) in counts.iter().enumerate() {
        let left = area.left + n as f64 * step;
        let (allowed, denied) = (height(*allowed), height(*denied));
        push_bar(&mut allowed_bars, Area { left, top: bottom - allowed, width, height: allowed });
        let denied_top = (bottom - allowed - denied).max(area.top);
        push_bar(&mut denied_bars, Area { left, top: denied_top, width, height: denied });
    }
    let path = |class: &str, bars: &str| {
        if bars.is_empty() { String::new() } else { format!("<path class=\"{class}\" d=\"{bars}\"/>\n") }
    };
    path("allowed", &allowed_bars) + &path("denied", &denied_bars)
}

fn push_bar(path: &mut String, Area { left, top, width, height }: Area) {
    if height > 0.0 {
        path.push_str(&format!("M{left:.1} {top:.1}h{width:.1}v{height:.1}h-{width:.1}z"));
    }
}

/// Lines and labels for counts.
fn count_axis(ticks: &[u64], top: u64) -> String {
    let Area { left, top: ceiling, width, height } = PLOT;
    let tick = |count: &u64| {
        let y = ceiling + height - height * *count as f64 / top.max(1) as f64;
        let class = if *count == 0 { "axis" } else { "grid" };
        format!(
            "<path class=\"{class}\" d=\"M{left} {y:.1}h{width}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            left - 6.0,
            y + 4.0,
            grouped(*count),
        )
    };
    ticks.iter().map(tick).collect()
}

/// Marks and labels for times, the date below the first and below each midnight.
fn time_axis(timeline: &Timeline) -> String {
    let Area { left, top, width, height } = PLOT;
    let bottom = top + height;
    let (from, to) =
        (timeline.start_of(0).as_micros(), timeline.start_of(timeline.n_intervals()).as_micros());
    let scale = width / to.saturating_sub(from).max(1) as f64;
    let tick = |tick: &ticks::TimeTick| {
        let x = left + tick.at.as_micros().saturating_sub(from) as f64 * scale;
        let anchor = if x > left + width - 24.0 { "end" } else { "middle" };
        let label = |text: &str, y: f64| {
            format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>")
        };
        let date = tick.date.as_ref().map_or_else(String::new, |date| label(date, bottom + 32.0));
        format!(
            "<path class=\"axis\" d=\"M{x:.1} {bottom}v4\"/>{}{date}\n",
            label(&tick.label, bottom + 18.0)
        )
    };
    ticks::times(timeline.start_of(0), timeline.start_of(timeline.n_intervals())).iter().map(tick).collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_reports::full_report;
    use super::*;

    #[test]
    fn a_single_denial_is_visible_beside_many_requests() {
        let counts = [(1_000_000, 1), (0, 0)];
        assert!(
            bar_paths(&counts, 1_000_000, PLOT)
                .contains("class=\"denied\" d=\"M62.0 10.0h402.0v1.5h-402.0z\"")
        );
    }

    #[test]
    fn a_chart_has_a_title_a_description_and_labels() {
        let timeline = full_report().timeline;
        let chart =
            Chart { id: "c", title: "a<b", description: "d&e", timeline: &timeline, bars: Bars::Stacked };
        let svg = chart.to_svg();
        for part in
            ["role=\"img\"", "a&lt;b</title>", "d&amp;e</desc>", ">12:00</text>", ">2026-02-10</text>"]
        {
            assert!(svg.contains(part), "{part} is missing in {svg}");
        }
    }

    #[test]
    fn an_empty_timeline_has_no_bars() {
        assert!(!small_chart(&Timeline::default(), "").contains("denied"));
    }
}
