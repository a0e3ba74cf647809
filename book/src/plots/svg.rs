//! A small writer of SVG figures.
//!
//! A figure has an opaque panel behind it, whose colour follows the reader's system like all others: a book's theme may differ from
//! the system's, and the text must be readable on both. Colours are classes, so that one rule changes each.

use std::fmt::Write as _;

/// The width of all figures.
pub(crate) const WIDTH: f64 = 720.0;

/// What a colour is for. Contrast with the panel: 4.5 for text, 3 for lines that carry meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Text,
    Line,
    /// Helps the eye; nothing is lost without it.
    Decoration,
}

/// A CSS rule, with the colour on the light and on the dark panel.
pub(crate) struct Tone {
    pub(crate) selector: &'static str,
    property: &'static str,
    pub(crate) light: &'static str,
    pub(crate) dark: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the test of contrasts"))]
    pub(crate) role: Role,
}

const fn tone(
    selector: &'static str,
    property: &'static str,
    [light, dark]: [&'static str; 2],
    role: Role,
) -> Tone {
    Tone { selector, property, light, dark, role }
}

/// The panel's colours.
pub(crate) const PANEL: [&str; 2] = ["#ffffff", "#161923"];

const INK: [&str; 2] = ["#1f2430", "#e6e9ef"];
const GREY: [&str; 2] = ["#59616e", "#a3adbd"];
const BLUE: [&str; 2] = ["#1f6fb5", "#6cb2f0"];
const RED: [&str; 2] = ["#b4431b", "#ff9d6c"];
const RULE: [&str; 2] = ["#e3e6eb", "#2b3140"];

/// All colours.
pub(crate) const TONES: [Tone; 11] = [
    tone(".panel", "stroke", RULE, Role::Decoration),
    tone("text", "fill", INK, Role::Text),
    tone(".muted", "fill", GREY, Role::Text),
    tone(".blue", "fill", BLUE, Role::Text),
    tone(".red", "fill", RED, Role::Text),
    tone(".over", "fill", RED, Role::Decoration),
    tone(".grid", "stroke", RULE, Role::Decoration),
    tone(".axis", "stroke", GREY, Role::Line),
    tone(".curve", "stroke", BLUE, Role::Line),
    tone(".cross", "stroke", RED, Role::Line),
    tone(".limit", "stroke", INK, Role::Line),
];

const SHAPES: &str = "\
    text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:13px}\
    .small{font-size:12px}.strong{font-weight:600}.end{text-anchor:end}.middle{text-anchor:middle}\
    path{fill:none}.curve{stroke-width:2;stroke-linejoin:round}.thin{stroke-width:1}.cross{stroke-width:1.6}\
    .limit{stroke-width:1.2;stroke-dasharray:5 4}.edge{stroke-dasharray:2 4}.dashed{stroke-dasharray:7 4}\
    .over{fill-opacity:.22}";

/// A figure in the making.
pub(crate) struct Figure {
    height: f64,
    title: &'static str,
    description: &'static str,
    body: String,
}

/// A plot within a figure: where it is, and which values its sides stand for.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) x: [f64; 2],
    pub(crate) y: [f64; 2],
}

impl Frame {
    pub(crate) fn x(&self, value: f64) -> f64 {
        self.left + (value - self.x[0]) / (self.x[1] - self.x[0]) * self.width
    }

    pub(crate) fn y(&self, value: f64) -> f64 {
        self.top + self.height - (value - self.y[0]) / (self.y[1] - self.y[0]) * self.height
    }

    pub(crate) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// A path through these points. Those that change nothing are left out: equal ones, and the inner ones of a line along an axis.
    pub(crate) fn path(&self, points: &[(f64, f64)]) -> String {
        let mut points: Vec<_> =
            points.iter().map(|(x, y)| (number(self.x(*x)), number(self.y(*y)))).collect();
        points.dedup();
        let mut made = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|before| points.get(before));
            let around = before.zip(points.get(index + 1));
            if around.is_some_and(|(a, b)| a.0 == *x && b.0 == *x && a.1 != b.1 || a.1 == *y && b.1 == *y) {
                continue;
            }
            made += &match before {
                None => format!("M{x} {y}"),
                Some(before) if before.1 == *y => format!("H{x}"),
                Some(before) if before.0 == *x => format!("V{y}"),
                Some(_) => format!("L{x} {y}"),
            };
        }
        made
    }
}

impl Figure {
    /// An empty figure. Readers who do not see it get the description.
    pub(crate) fn new(height: f64, title: &'static str, description: &'static str) -> Self {
        Self { height, title, description, body: String::new() }
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, classes: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let class = if classes.is_empty() { String::new() } else { format!(" class=\"{classes}\"") };
        self.add(&format!("<text x=\"{}\" y=\"{}\"{class}>{text}</text>", number(x), number(y)));
    }

    /// The name of something, and what it is.
    pub(crate) fn heading(&mut self, x: f64, y: f64, name: &str, what: &str) {
        let (x, y) = (number(x), number(y));
        self.add(&format!(
            "<text x=\"{x}\" y=\"{y}\"><tspan class=\"strong\">{name}</tspan><tspan class=\"muted\" dx=\"10\">{what}</tspan></text>"
        ));
    }

    /// The meaning of dots and crosses, at the right.
    pub(crate) fn key(&mut self, y: f64) {
        self.dot(560.0, y - 4.5);
        self.text(569.0, y, "small blue", "allowed");
        self.cross(634.0, y - 4.5);
        self.text(643.0, y, "small red", "denied");
    }

    pub(crate) fn path(&mut self, classes: &str, path: &str) {
        self.add(&format!("<path class=\"{classes}\" d=\"{path}\"/>"));
    }

    /// An allowed request.
    pub(crate) fn dot(&mut self, x: f64, y: f64) {
        self.add(&format!("<circle class=\"blue\" cx=\"{}\" cy=\"{}\" r=\"3\"/>", number(x), number(y)));
    }

    /// A denied request.
    pub(crate) fn cross(&mut self, x: f64, y: f64) {
        let (left, top) = (number(x - 2.8), number(y - 2.8));
        self.path("cross", &format!("M{left} {top}l5.6 5.6m0-5.6l-5.6 5.6"));
    }

    pub(crate) fn horizontal(&mut self, classes: &str, frame: &Frame, value: f64) {
        let (left, y, right) = (number(frame.left), number(frame.y(value)), number(frame.right()));
        self.path(classes, &format!("M{left} {y}H{right}"));
    }

    pub(crate) fn vertical(&mut self, classes: &str, frame: &Frame, value: f64) {
        let (x, top, bottom) = (number(frame.x(value)), number(frame.top), number(frame.bottom()));
        self.path(classes, &format!("M{x} {top}V{bottom}"));
    }

    /// Lines of the grid with their numbers on the left.
    pub(crate) fn y_axis(&mut self, frame: &Frame, ticks: &[u32]) {
        for tick in ticks {
            let value = f64::from(*tick);
            self.horizontal(if *tick == 0 { "axis" } else { "grid" }, frame, value);
            self.text(frame.left - 8.0, frame.y(value) + 4.0, "muted small end", &tick.to_string());
        }
    }

    /// Ticks with their labels, at this height.
    pub(crate) fn x_axis(&mut self, frame: &Frame, y: f64, ticks: impl IntoIterator<Item = (u32, String)>) {
        for (tick, label) in ticks {
            let x = frame.x(f64::from(tick));
            self.path("axis", &format!("M{} {}v5", number(x), number(y)));
            self.text(x, y + 19.0, "muted small middle", &label);
        }
    }

    /// The file.
    pub(crate) fn finish(self) -> String {
        let rules = |colour: fn(&Tone) -> &'static str, panel: &str| {
            TONES.iter().fold(format!(".panel{{fill:{panel}}}"), |mut css, tone| {
                let _ = write!(css, "{}{{{}:{}}}", tone.selector, tone.property, colour(tone));
                css
            })
        };
        let (light, dark) = (rules(|tone| tone.light, PANEL[0]), rules(|tone| tone.dark, PANEL[1]));
        let Self { height, title, description, body } = self;
        let (width, height, right, bottom) =
            (number(WIDTH), number(height), number(WIDTH - 1.0), number(height - 1.0));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\" aria-labelledby=\"title description\">\n\
             <title id=\"title\">{title}</title>\n<desc id=\"description\">{description}</desc>\n\
             <style>{SHAPES}{light}@media (prefers-color-scheme:dark){{{dark}}}</style>\n\
             <rect class=\"panel\" x=\".5\" y=\".5\" width=\"{right}\" height=\"{bottom}\" rx=\"8\"/>\n{body}</svg>\n"
        )
    }

    fn add(&mut self, element: &str) {
        self.body += element;
        self.body.push('\n');
    }
}

/// At most one digit after the point.
pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The relative luminance of WCAG 2.
    fn luminance(colour: &str) -> f64 {
        let channel = |from: usize| {
            let value = u8::from_str_radix(colour.get(from..from + 2).unwrap(), 16).unwrap();
            let share = f64::from(value) / 255.0;
            if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn colours_are_readable_on_both_panels() {
        for tone in TONES {
            let least = match tone.role {
                Role::Text => 4.5,
                Role::Line => 3.0,
                Role::Decoration => continue,
            };
            for (colour, panel) in [(tone.light, PANEL[0]), (tone.dark, PANEL[1])] {
                let contrast = contrast(colour, panel);
                assert!(contrast >= least, "{}: {colour} on {panel} is {contrast:.2}", tone.selector);
            }
        }
    }

    #[test]
    fn points_within_a_straight_line_are_left_out() {
        let frame = Frame { left: 0.0, top: 0.0, width: 10.0, height: 10.0, x: [0.0, 10.0], y: [0.0, 10.0] };
        let points = [(0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (2.0, 5.0), (2.0, 6.0), (4.0, 8.0)];
        assert_eq!(frame.path(&points), "M0 10H2V4L4 2");
    }
}
