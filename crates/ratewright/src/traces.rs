//! Traces of requests, for an OpenTelemetry collector.
//!
//! Each request to the REST API has one span, a child of its `traceparent` if it has one. A thread sends the spans from a buffer in
//! memory. Spans that the collector does not accept are dropped; no request waits for it.
//!
//! A span's name has the method and the matched route, not the path: clients choose paths and methods, and a collector keeps
//! statistics for each name.

use std::sync::OnceLock;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, Method};
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::{Instrument as _, Subscriber, field, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::config::TracesConfig;

/// The exporter of spans, to flush it at the end.
static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// The layer that exports spans.
pub(crate) fn layer<S>(config: &TracesConfig) -> Option<Box<dyn Layer<S> + Send + Sync>>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let endpoint = format!("{}/v1/traces", config.endpoint.trim_end_matches('/'));
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpJson)
        .with_endpoint(endpoint)
        .build()
        .ok()?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.ratio))))
        .with_resource(Resource::builder().with_service_name("ratewright").build())
        .build();
    let tracer = provider.tracer("ratewright");
    let _first = PROVIDER.set(provider);
    Some(tracing_opentelemetry::layer().with_tracer(tracer).boxed())
}

/// Sends the remaining spans.
pub(crate) fn finish() {
    if let Some(provider) = PROVIDER.get() {
        // An unreachable collector does not keep the program from ending.
        let _ = provider.shutdown();
    }
}

/// Wraps a request in a span.
pub(crate) async fn trace(request: Request, next: Next) -> Response {
    let known = is_known(request.method());
    let route = request.extensions().get().map(MatchedPath::as_str);
    let verb = if known { request.method().as_str() } else { "HTTP" };
    let span = info_span!(
        "request",
        otel.name = route.map_or_else(|| verb.to_owned(), |route| format!("{verb} {route}")),
        http.request.method = if known { verb } else { "_OTHER" },
        http.route = route,
        url.path = request.uri().path(),
        http.response.status_code = field::Empty,
    );
    let parent = TraceContextPropagator::new().extract(&HeaderExtractor(request.headers()));
    let _untraced = span.set_parent(parent);
    let response = next.run(request).instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    response
}

/// True for a standard method. Clients can send any number of other names.
fn is_known(method: &Method) -> bool {
    use Method as M;
    [M::GET, M::HEAD, M::POST, M::PUT, M::DELETE, M::CONNECT, M::OPTIONS, M::TRACE, M::PATCH].contains(method)
}

/// Gives the propagator access to the headers.
struct HeaderExtractor<'a>(&'a HeaderMap);

impl Extractor for HeaderExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}
