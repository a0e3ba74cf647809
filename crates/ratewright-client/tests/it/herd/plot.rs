//! How many clients were served when, as SVG.

use std::fmt::Write as _;
use std::time::Duration;

/// The width and height of the picture's inside, and the seconds that it shows.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const SECONDS: f64 = 80.0;
const COLOURS: [&str; 5] = ["#9a9a9a", "#c1592c", "#b08a1e", "#2a6fb0", "#1c8a5a"];

pub(crate) struct Curve {
    name: String,
    calls: usize,
    served: Vec<Duration>,
}

impl Curve {
    pub(crate) fn new(name: String, calls: usize, mut served: Vec<Duration>) -> Self {
        served.sort_unstable();
        Self { name, calls, served }
    }

    /// A step up for each served client, thinned to what can be seen.
    fn points(&self) -> String {
        let mut points = String::from("0,300");
        for (index, at) in self.served.iter().enumerate().filter(|(index, _)| index % 5 == 4) {
            let served = f64::from(u32::try_from(index + 1).unwrap()) / 1_000.0;
            let x = at.as_secs_f64() / SECONDS * WIDTH;
            if x > WIDTH {
                break;
            }
            write!(points, " {x:.1},{:.1}", HEIGHT * (1.0 - served)).unwrap();
        }
        points
    }
}

pub(crate) fn svg(curves: &[Curve]) -> String {
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 370\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>1,000 clients denied at once by a limit of 100/s with burst 10: served clients over time</title>\n\
         <rect width=\"960\" height=\"370\" fill=\"#ffffff\"/>\n<g transform=\"translate(50 20)\">\n",
    );
    for tick in 0..=4 {
        let (x, y) = (f64::from(tick) * WIDTH / 4.0, HEIGHT - f64::from(tick) * HEIGHT / 4.0);
        writeln!(svg, "<path d=\"M0 {y}H640\" stroke=\"#e4e4e4\"/><text x=\"-8\" y=\"{:.0}\" text-anchor=\"end\">{}</text>", y + 4.0, tick * 250)
            .unwrap();
        writeln!(svg, "<text x=\"{x}\" y=\"322\" text-anchor=\"middle\">{} s</text>", tick * 20).unwrap();
    }
    for (index, curve) in curves.iter().enumerate() {
        let (colour, y) = (COLOURS[index], 40 + 44 * index);
        writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            curve.points()
        )
        .unwrap();
        writeln!(svg, "<path d=\"M660 {}h18\" stroke=\"{colour}\" stroke-width=\"3\"/>", y - 4).unwrap();
        writeln!(svg, "<text x=\"684\" y=\"{y}\">{}</text>", curve.name).unwrap();
        writeln!(svg, "<text x=\"684\" y=\"{}\" fill=\"#666666\">{} calls</text>", y + 17, curve.calls)
            .unwrap();
    }
    svg += "<text x=\"320\" y=\"344\" text-anchor=\"middle\">clients served, out of 1,000 that were denied at once (limit: 100/s, burst 10)</text>\n</g>\n</svg>\n";
    svg
}
