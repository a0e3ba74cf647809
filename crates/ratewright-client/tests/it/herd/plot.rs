//! The herd as an SVG figure: clients served over time, and the calls that the server gets.
//!
//! It looks like the figures of docs/concepts, which `book/src/plots/svg.rs` draws: an opaque panel, and colours that
//! follow the reader's system. Red is without jitter, blue with it. Dashes and labels tell the curves apart without
//! colours.

use std::fmt::Write as _;
use std::time::Duration;

use super::thousands;

/// The size of the figure.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 648.0;

const SHAPES: &str = "\
    text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:13px}\
    .small{font-size:12px}.strong{font-weight:600}.end{text-anchor:end}.middle{text-anchor:middle}\
    path{fill:none}.curve{stroke-width:2;stroke-linejoin:round}.dashed{stroke-dasharray:7 4}.dotted{stroke-dasharray:2 3}\
    .limit{stroke-width:1.2;stroke-dasharray:5 4}.calls{stroke-width:1.7}";

/// On the light panel, and on the dark one.
const LIGHT: &str = "\
    .panel{fill:#ffffff;stroke:#e3e6eb}text{fill:#1f2430}.muted{fill:#59616e}.grid{stroke:#e3e6eb}.axis{stroke:#59616e}\
    .limit{stroke:#1f2430}text.without{fill:#b4431b}path.without{stroke:#b4431b}text.with{fill:#1f6fb5}path.with{stroke:#1f6fb5}";
const DARK: &str = "\
    .panel{fill:#161923;stroke:#2b3140}text{fill:#e6e9ef}.muted{fill:#a3adbd}.grid{stroke:#2b3140}.axis{stroke:#a3adbd}\
    .limit{stroke:#e6e9ef}text.without{fill:#ff9d6c}path.without{stroke:#ff9d6c}text.with{fill:#6cb2f0}path.with{stroke:#6cb2f0}";

/// What became of a herd.
pub(crate) struct Run {
    calls: usize,
    served: Vec<Duration>,
    tenths: Vec<usize>,
}

/// The runs of the figure.
pub(crate) struct Runs {
    pub(crate) exponential: Run,
    pub(crate) exact: Run,
    pub(crate) envoy: Run,
    pub(crate) ours: Run,
    pub(crate) ours_in_one_process: Run,
}

/// A plot within the figure: where it is, and which values its right and top sides stand for.
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    seconds: f64,
    most: f64,
}

/// The figure in the making.
struct Figure(String);

impl Run {
    pub(crate) fn new(calls: usize, mut served: Vec<Duration>, tenths: Vec<usize>) -> Self {
        served.sort_unstable();
        Self { calls, served, tenths }
    }

    fn calls(&self) -> String {
        format!("{} calls", thousands(self.calls))
    }

    /// When the last client was served, in seconds.
    fn end(&self) -> f64 {
        self.served.last().map_or(0.0, Duration::as_secs_f64)
    }

    /// Seconds, and the clients that were served until then: every fifth client.
    fn curve(&self) -> impl Iterator<Item = (f64, f64)> {
        self.served
            .iter()
            .enumerate()
            .filter(|(n, _)| n % 5 == 4)
            .map(|(n, at)| (at.as_secs_f64(), float(n + 1)))
    }
}

impl Frame {
    fn x(&self, seconds: f64) -> f64 {
        self.left + seconds / self.seconds * self.width
    }

    fn y(&self, value: f64) -> f64 {
        self.top + self.height * (1.0 - value / self.most)
    }

    fn right(&self) -> f64 {
        self.left + self.width
    }

    fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

impl Figure {
    fn text(&mut self, x: f64, y: f64, classes: &str, text: &str) {
        writeln!(self.0, "<text x=\"{x:.0}\" y=\"{y:.0}\" class=\"{classes}\">{text}</text>").unwrap();
    }

    /// The name of something, and what it is.
    fn heading(&mut self, y: f64, name: &str, what: &str) {
        writeln!(
            self.0,
            "<text x=\"24\" y=\"{y:.0}\"><tspan class=\"strong\">{name}</tspan><tspan class=\"muted\" dx=\"10\">{what}</tspan></text>"
        )
        .unwrap();
    }

    fn path(&mut self, classes: &str, path: &str) {
        writeln!(self.0, "<path class=\"{classes}\" d=\"{path}\"/>").unwrap();
    }

    /// The grid with its numbers on the left, and ticks with seconds below.
    fn axes(&mut self, frame: &Frame, values: &[u32], seconds: &[u32]) {
        for value in values {
            let y = frame.y(f64::from(*value));
            let class = if *value == 0 { "axis" } else { "grid" };
            self.path(class, &format!("M{:.1} {y:.1}H{:.1}", frame.left, frame.right()));
            let label = thousands(usize::try_from(*value).unwrap());
            self.text(frame.left - 8.0, y + 4.0, "muted small end", &label);
        }
        for second in seconds {
            let (x, bottom) = (frame.x(f64::from(*second)), frame.bottom());
            self.path("axis", &format!("M{x:.1} {bottom:.1}v5"));
            self.text(x, bottom + 19.0, "muted small middle", &format!("{second} s"));
        }
    }

    /// Clients served over time, as far as the frame reaches.
    fn curve(&mut self, frame: &Frame, classes: &str, run: &Run) {
        let mut path = format!("M{:.1} {:.1}", frame.x(0.0), frame.y(0.0));
        for (seconds, served) in run.curve().take_while(|(seconds, _)| *seconds <= frame.seconds) {
            write!(path, "L{:.1} {:.1}", frame.x(seconds), frame.y(served)).unwrap();
        }
        if run.end() > frame.seconds {
            write!(path, "H{:.1}", frame.right()).unwrap();
        }
        self.path(&format!("curve {classes}"), &path);
    }

    /// A name with a piece of its curve, for curves that are close to each other.
    fn sample(&mut self, x: f64, y: f64, classes: &str, name: [&str; 2]) {
        self.path(&format!("curve {classes}"), &format!("M{x:.1} {:.1}h26", y - 4.0));
        self.text(x + 33.0, y, "small with", name[0]);
        self.text(x + 33.0, y + 15.0, "small with", name[1]);
    }

    /// The calls of one run, a bar for each 100 ms.
    fn calls(&mut self, frame: &Frame, side: &str, name: &str, run: &Run) {
        self.axes(frame, &[0, 500, 1_000], &[]);
        self.text(frame.left, frame.top - 9.0, "strong", name);
        self.text(frame.right(), frame.top - 9.0, &format!("{side} end"), &run.calls());
        let mut bars = String::new();
        for (tenth, calls) in run.tenths.iter().enumerate().filter(|(_, calls)| **calls > 0) {
            let seconds = (float(tenth) + 0.5) / 10.0;
            if seconds < frame.seconds {
                write!(bars, "M{:.1} {:.1}V{:.1}", frame.x(seconds), frame.bottom(), frame.y(float(*calls)))
                    .unwrap();
            }
        }
        self.path(&format!("calls {side}"), &bars);
    }
}

pub(crate) fn svg(runs: &Runs) -> String {
    let mut figure = Figure(String::new());
    served(&mut figure, runs);
    figure.heading(
        352.0,
        "Calls per 100 ms",
        "that the server gets, and their total until all clients are served",
    );
    let rows = [
        [("exponential, no jitter", &runs.exponential), ("exactly Retry-After", &runs.exact)],
        [("Retry-After × 1 to 1.5", &runs.envoy), ("our client, 1,000 processes", &runs.ours)],
    ];
    for (side, left, runs) in [("without", 62.0, rows[0]), ("with", 406.0, rows[1])] {
        figure.text(left, 378.0, side, &format!("{side} jitter"));
        for ((name, run), top) in runs.into_iter().zip([412.0, 514.0]) {
            let frame = Frame { left, top, width: 286.0, height: 66.0, seconds: 15.0, most: 1_000.0 };
            figure.calls(&frame, side, name, run);
            if top > 500.0 {
                figure.axes(&frame, &[], &[0, 5, 10, 15]);
                let middle = (left + frame.right()) / 2.0;
                figure.text(
                    middle,
                    frame.bottom() + 40.0,
                    "muted small middle",
                    "seconds since the first call",
                );
            }
        }
    }
    finish(&figure, runs)
}

/// The upper plot.
fn served(figure: &mut Figure, runs: &Runs) {
    let frame = Frame { left: 62.0, top: 66.0, width: 630.0, height: 210.0, seconds: 30.0, most: 1_000.0 };
    figure.heading(
        28.0,
        "1,000 clients call at the same moment",
        "limit: 100/s, burst 10; denied clients retry",
    );
    figure.axes(&frame, &[0, 250, 500, 750, 1_000], &[0, 5, 10, 15, 20, 25, 30]);
    figure.text(frame.left, 54.0, "muted small", "clients served");
    figure.text(
        (frame.left + frame.right()) / 2.0,
        316.0,
        "muted small middle",
        "seconds since the first call",
    );
    let limit = [(0.0, 10.0), (9.9, 1_000.0)]
        .map(|(at, served)| format!("{:.1} {:.1}", frame.x(at), frame.y(served)));
    figure.path("limit", &format!("M{}L{}", limit[0], limit[1]));
    figure.curve(&frame, "with", &runs.ours);
    figure.curve(&frame, "with dashed", &runs.envoy);
    figure.curve(&frame, "with dotted", &runs.ours_in_one_process);
    figure.curve(&frame, "without", &runs.exact);
    figure.curve(&frame, "without dashed", &runs.exponential);
    figure.sample(frame.x(11.4), frame.y(840.0), "with", ["our client,", "1,000 processes"]);
    figure.sample(frame.x(8.6), frame.y(620.0), "with dashed", ["Retry-After", "× 1 to 1.5"]);
    let mut label = |seconds: f64, served: f64, classes: &str, text: &str| {
        figure.text(frame.x(seconds), frame.y(served), &format!("small {classes}"), text);
    };
    label(6.6, 790.0, "end", "the limit");
    label(17.8, 560.0, "with", "our client, 1 process");
    let exact = format!("exactly Retry-After: all after {:.0} s", runs.exact.end());
    label(30.0, 410.0, "without end", &exact);
    let exponential = format!("exponential, no jitter: all after {:.0} min", runs.exponential.end() / 60.0);
    label(30.0, 24.0, "without end", &exponential);
}

/// The file.
fn finish(figure: &Figure, runs: &Runs) -> String {
    let Runs { exponential, exact, envoy, ours, ours_in_one_process } = runs;
    let title = "1,000 clients that call at the same moment, with and without jitter";
    let description = format!(
        "The limit is 100 a second with burst 10. Without jitter, denied clients return together, and nearly all \
         are denied again: clients that wait exactly for Retry-After need {} and {:.0} seconds until all are served, clients with \
         exponential backoff {} and {:.0} minutes. With jitter the calls spread out: Retry-After times 1 to 1.5 needs {} and {:.0} \
         seconds, our client {} and {:.0} seconds in 1,000 processes, {} and {:.0} seconds in one process.",
        exact.calls(),
        exact.end(),
        exponential.calls(),
        exponential.end() / 60.0,
        envoy.calls(),
        envoy.end(),
        ours.calls(),
        ours.end(),
        ours_in_one_process.calls(),
        ours_in_one_process.end(),
    );
    let (right, bottom, body) = (WIDTH - 1.0, HEIGHT - 1.0, &figure.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         role=\"img\" aria-labelledby=\"title description\">\n\
         <title id=\"title\">{title}</title>\n<desc id=\"description\">{description}</desc>\n\
         <style>{SHAPES}{LIGHT}@media (prefers-color-scheme:dark){{{DARK}}}</style>\n\
         <rect class=\"panel\" x=\".5\" y=\".5\" width=\"{right}\" height=\"{bottom}\" rx=\"8\"/>\n{body}</svg>\n"
    )
}

fn float(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap())
}
