//! All metrics, in Prometheus' text format.
//!
//! Nothing is counted here: each crate counts in its own atomics, the program registers functions that return
//! [`Figure`]s, and each scrape renders all of them. So a metric costs nothing between scrapes.
//!
//! The format is OpenMetrics. Scrapers that do not accept it get Prometheus' older format, which differs in one
//! respect: the HELP and TYPE lines of a counter have the suffix `_total`, like its series.

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use ratewright_core::{Clock, Micros, Verdict};
use ratewright_telemetry::Reading;

use super::labels::Labels;
use crate::telemetry::{Check, NearLimit, Telemetry, basis_name};

/// All metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
}

/// One metric of the program, with its current values.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    name: &'static str,
    help: &'static str,
    kind: MetricKind,
    samples: Vec<(Vec<(&'static str, String)>, Sample)>,
}

/// One value.
#[derive(Clone, PartialEq, Debug)]
enum Sample {
    Number(f64),
    Durations(Reading),
}

/// The text format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    OpenMetrics,
    Plain,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MetricKind {
    Counter,
    Gauge,
    Durations,
}

struct ChecksAndDecisions<C>(Arc<Telemetry<C>>);

struct ProgramMetrics<F>(F);

impl Metrics {
    /// The metrics of decisions. Every series carries these labels.
    pub fn new<C: Clock + 'static>(labels: Labels, telemetry: Arc<Telemetry<C>>) -> Self {
        let mut registry = Registry::with_labels(labels.into_pairs());
        registry.register_collector(Box::new(ChecksAndDecisions(telemetry)));
        Self { registry }
    }

    /// Adds metrics of the program. The function is called at each scrape, and must not block.
    #[must_use]
    pub fn with(mut self, known: impl Fn() -> Vec<Figure> + Send + Sync + 'static) -> Self {
        self.registry.register_collector(Box::new(ProgramMetrics(known)));
        self
    }

    pub(super) fn render(&self, format: Format) -> String {
        let mut page = String::new();
        match text::encode(&mut page, &self.registry) {
            Ok(()) => {}
            Err(fmt::Error) => page.clear(), // writing to a string cannot fail
        }
        match format {
            Format::OpenMetrics => page,
            Format::Plain => plain(&page),
        }
    }
}

impl Format {
    /// The format for this `Accept` header.
    pub(super) fn accepted(accepts: &str) -> Self {
        if accepts.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Plain }
    }

    pub(super) fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        })
    }
}

/// The page in the older format.
fn plain(page: &str) -> String {
    let mut plain = String::with_capacity(page.len());
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let head = if line.starts_with("# HELP ") { lines.peek().copied() } else { Some(line) };
        let is_counters = head.is_some_and(|head| head.starts_with("# TYPE ") && head.ends_with(" counter"));
        match line.splitn(4, ' ').collect::<Vec<_>>().as_slice() {
            ["#", word, name, rest] if is_counters => plain.extend(["# ", word, " ", name, "_total ", rest]),
            _ => plain.push_str(line),
        }
        plain.push('\n');
    }
    plain
}

impl Figure {
    /// A number that goes up and down.
    pub fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricKind::Gauge, samples: Vec::new() }
    }

    /// A number that only grows. Its series get the suffix `_total`.
    pub fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricKind::Counter, samples: Vec::new() }
    }

    /// A histogram of durations, in seconds. Its series get the suffix `_seconds` and those of histograms.
    pub fn durations(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricKind::Durations, samples: Vec::new() }
    }

    /// Its value.
    #[must_use]
    pub fn of(self, value: f64) -> Self {
        self.under([], value)
    }

    /// Its value under a label, which must have few values.
    #[must_use]
    pub fn labelled(self, label: &'static str, is: impl Into<String>, value: f64) -> Self {
        self.under([(label, is.into())], value)
    }

    /// Its value under several labels, which must have few values.
    #[must_use]
    pub fn under<const N: usize>(mut self, labels: [(&'static str, String); N], value: f64) -> Self {
        self.samples.push((labels.into(), Sample::Number(value)));
        self
    }

    /// The durations under these labels.
    #[must_use]
    pub fn took<const N: usize>(mut self, labels: [(&'static str, String); N], took: Reading) -> Self {
        self.samples.push((labels.into(), Sample::Durations(took)));
        self
    }
}

impl<C: Clock + 'static> Collector for ChecksAndDecisions<C> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let checks: Vec<_> = self.0.checks().read().collect();
        encode_checks(&checks, &mut encoder)?;
        let help = "What each policy said of each query, by entrypoint";
        let mut family =
            encoder.encode_descriptor("ratewright_decisions", help, None, MetricType::Counter)?;
        for count in self.0.decisions().read() {
            let labels = [
                ("policy", &*count.policy),
                ("entrypoint", count.entrypoint.name()),
                ("verdict", verdict(count.verdict)),
                ("basis", basis_name(count.basis)),
                ("mode", count.mode),
            ];
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&count.n, None)?;
        }
        let help = "Allowed decisions after which a policy had less than 20 % of a limit left";
        let mut family =
            encoder.encode_descriptor("ratewright_near_limit", help, None, MetricType::Counter)?;
        for NearLimit { policy, entrypoint, n } in self.0.decisions().near_limit() {
            let labels = [("policy", &*policy), ("entrypoint", entrypoint.name())];
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&n, None)?;
        }
        Ok(())
    }
}

fn encode_checks(checks: &[Check], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Decisions of all entrypoints, under the algorithm of the deciding policy";
    let mut family = encoder.encode_descriptor("rate_limiter_requests", help, None, MetricType::Counter)?;
    for check in checks {
        let labels = [("algorithm", check.algorithm), ("allowed", allowed(check.verdict))];
        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&check.took.n, None)?;
    }
    let (help, unit) = ("How long decisions took, from the query to the verdict", Some(&Unit::Seconds));
    let mut family = encoder.encode_descriptor("rate_limiter_check", help, unit, MetricType::Histogram)?;
    for check in checks {
        let labels = [("algorithm", check.algorithm), ("allowed", allowed(check.verdict))];
        encode_durations(&check.took, family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn encode_durations(took: &Reading, mut series: MetricEncoder<'_>) -> fmt::Result {
    let bound = |bound: Option<Micros>| bound.map_or(f64::INFINITY, seconds);
    let steps: Vec<_> = took.steps().map(|(to, n)| (bound(to), n)).collect();
    series.encode_histogram::<NoLabelSet>(seconds(took.sum), took.n, &steps, None)
}

impl<F: Fn() -> Vec<Figure> + Send + Sync + 'static> Collector for ProgramMetrics<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0)().iter().try_for_each(|figure| encode_figure(figure, &mut encoder))
    }
}

fn encode_figure(figure: &Figure, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Figure { name, help, kind, samples } = figure;
    let (metric_type, unit) = match kind {
        MetricKind::Counter => (MetricType::Counter, None),
        MetricKind::Gauge => (MetricType::Gauge, None),
        MetricKind::Durations => (MetricType::Histogram, Some(&Unit::Seconds)),
    };
    let mut family = encoder.encode_descriptor(name, help, unit, metric_type)?;
    let encode = |mut series: MetricEncoder<'_>, sample: &Sample| match (sample, kind) {
        (Sample::Durations(took), _) => encode_durations(took, series),
        (Sample::Number(value), MetricKind::Counter) => {
            series.encode_counter::<NoLabelSet, _, f64>(value, None)
        }
        (Sample::Number(value), MetricKind::Gauge | MetricKind::Durations) => series.encode_gauge(value),
    };
    for (labels, sample) in samples {
        if labels.is_empty() {
            return encode(family, sample); // without labels there is only one sample
        }
        let labels: Vec<_> = labels.iter().map(|(name, is)| (*name, is.as_str())).collect();
        encode(family.encode_family(&labels)?, sample)?;
    }
    Ok(())
}

impl<C> fmt::Debug for ChecksAndDecisions<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChecksAndDecisions").finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for ProgramMetrics<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProgramMetrics").finish_non_exhaustive()
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allowed",
        Verdict::Deny => "denied",
    }
}

fn allowed(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "true",
        Verdict::Deny => "false",
    }
}

fn seconds(micros: Micros) -> f64 {
    std::time::Duration::from(micros).as_secs_f64()
}
