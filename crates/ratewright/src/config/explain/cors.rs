//! What `cors` means, in plain words.

use http::{HeaderName, Method};
use ratewright_core::Micros;
use ratewright_gateway::cors::{AllowedHeaders, Cors};
use ratewright_gateway::{GatewaySettings, Route};

use super::span;

/// What holds where a route says nothing else.
pub(super) fn gateway(settings: &GatewaySettings) -> Option<String> {
    let cors = settings.cors.as_deref()?;
    Some(format!("cors, unless a route says otherwise: {}\n", describe(cors)))
}

/// What a route says otherwise, if it does.
pub(super) fn route(settings: &GatewaySettings, route: &Route) -> Option<String> {
    match (settings.cors.as_deref(), route.cors.as_deref()) {
        (general, Some(own)) if general != Some(own) => Some(format!("cors {}", describe(own))),
        (Some(_), None) => Some("cors off".to_owned()),
        (Some(_) | None, Some(_)) | (None, None) => None,
    }
}

fn describe(cors: &Cors) -> String {
    let rules = cors.rules();
    let origins: Vec<_> = rules.origins.iter().map(ToString::to_string).collect();
    let methods: Vec<_> = rules.methods.iter().map(Method::as_str).collect();
    let headers: Vec<_> = match &rules.headers {
        AllowedHeaders::Any => vec!["all"],
        AllowedHeaders::Listed(names) if names.is_empty() => vec!["none"],
        AllowedHeaders::Listed(names) => names.iter().map(HeaderName::as_str).collect(),
    };
    let mut words = vec![
        format!("from {}", origins.join(", ")),
        format!("methods {}", methods.join(", ")),
        format!("request headers {}", headers.join(", ")),
    ];
    if !rules.expose.is_empty() {
        let names: Vec<_> = rules.expose.iter().map(HeaderName::as_str).collect();
        words.push(format!("also exposes {}", names.join(", ")));
    }
    if rules.credentials {
        words.push("with credentials".to_owned());
    }
    words.push(match rules.max_age.as_secs() {
        0 => "preflights not cached".to_owned(),
        seconds => format!("preflights cached for {}", span(Micros::from_secs(seconds))),
    });
    words.join("; ")
}
