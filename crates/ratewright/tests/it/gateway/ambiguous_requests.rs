//! Ambiguous requests cannot bypass a limit: they are rejected or counted, in the gateway over HTTP/1.1 and HTTP/2, and at `/decide`.

mod credentials;
mod duplicate_values;
mod legitimate_requests;
mod methods;
mod paths;

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::{application, gateway};
use crate::curl::{self, HTTP_1, HTTP_2, Request, Response};
use crate::process::Ratewright;

const SECRET: &str = "a secret of at least thirty-two bytes";

const USERS: &str = "clients: {user: {jwt: {secret: a secret of at least thirty-two bytes}}}\n";

fn token(sub: &str, expires: u64) -> String {
    let claims = json!({"sub": sub, "exp": expires});
    encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes())).unwrap()
}

/// A header with a token.
fn bearer(sub: &str, expires: u64) -> Vec<u8> {
    format!("Authorization: Bearer {}", token(sub, expires)).into_bytes()
}

/// What a client of the gateway gets for a request over this version of HTTP.
fn pass(ratewright: &Ratewright, version: &str, request: Request<'_>) -> Response {
    curl::curl(version, &ratewright.gateway, &[request]).remove(0)
}

/// What `/decide` says of a request.
fn decide(ratewright: &Ratewright, (method, path, headers): Request<'_>) -> u16 {
    let mut merged: Vec<(String, Vec<String>)> = Vec::new();
    for header in headers {
        let (name, value) = std::str::from_utf8(header).unwrap().split_once(':').unwrap();
        match merged.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => values.push(value.trim_matches(' ').to_owned()),
            None => merged.push((name.to_owned(), vec![value.trim_matches(' ').to_owned()])),
        }
    }
    let headers: serde_json::Map<String, Value> =
        merged.into_iter().map(|(name, values)| (name, json!(values))).collect();
    ratewright.decide(&json!({"ip": "192.0.2.1", "method": method, "path": path, "headers": headers})).status
}

/// Sends requests through the gateway, in each version of HTTP to a fresh one, and then asks `/decide` about them.
#[track_caller]
fn check(config: &str, requests: &[Request<'_>], through: &[u16], decided: Option<&[u16]>) {
    let application = application();
    for version in [HTTP_1, HTTP_2] {
        let ratewright = gateway(&application, config);
        assert_eq!(curl::statuses(version, &ratewright.gateway, requests), through, "{version}");
    }
    if let Some(decided) = decided {
        let ratewright = gateway(&application, config);
        let got: Vec<u16> = requests.iter().map(|request| decide(&ratewright, *request)).collect();
        assert_eq!(got, decided, "/decide");
    }
}

fn limit(terms: &str) -> String {
    format!("{USERS}policies: [{{name: p, {terms}, quota: {{rate: 1/h}}}}]\n")
}
