//! The OpenAPI 3.1 description of the REST API: `openapi.json`, which `/openapi.json` serves unchanged.
//!
//! Bodies are described by the types that are parsed and rendered; the calls are listed here. This module and
//! `schemars` are compiled for tests only. A test compares the file with the types, the calls and the version;
//! `UPDATE_EXPECT=1 cargo test -p ratewright-server openapi` writes it. It is indented, so that a diff shows
//! changes line by line; by one space only, to keep the response small.

use std::borrow::Cow;

use expect_test::{expect, expect_file};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value, json};

use super::decide::{BatchRequest, BatchResponse, DecideRequest, DecideResponse, Explanation};
use super::params::{self, KEY_MAX};
use super::receipt::RefundRequest;
use super::wire::{CheckResponse, RefundResponse, RemainingResponse, ResetResponse};
use crate::body::Object;

/// The pattern of a policy's name.
pub(super) const NAME: &str = "^[a-z0-9._-]{1,64}$";

/// The pattern of texts without control characters.
const PRINTABLE: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";

/// The document.
fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    let mut schemas = settings.into_generator();
    let paths = json!({
        "/api/v1/rate-limit/check": {
            "get": check(&mut schemas, "check"),
            "post": check(&mut schemas, "checkByPost"),
        },
        "/api/v1/rate-limit/remaining": { "get": remaining(&mut schemas) },
        "/api/v1/rate-limit/reset": { "delete": reset(&mut schemas) },
        "/api/v1/authorize": { "get": authorize() },
        "/api/v1/decide": { "post": decide(&mut schemas) },
        "/api/v1/decide/batch": { "post": decide_batch(&mut schemas) },
        "/api/v1/explain": { "post": explain(&mut schemas) },
        "/api/v1/refund": { "post": refund(&mut schemas) },
    });
    let mut definitions: Map<String, Value> = schemas.take_definitions(true);
    definitions.insert("Problem".to_owned(), problem());
    definitions.insert("RateLimitProblem".to_owned(), rate_limit_problem());
    definitions.insert("Denied".to_owned(), denied());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ratewright decisions",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Is this request allowed? Callers on the same machine may call everything; others need a token for calls that concern other clients.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "schemas": definitions,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "responses": problems(),
            "headers": headers(),
        },
    })
}

fn check(schemas: &mut SchemaGenerator, id: &str) -> Value {
    let body = content::<CheckResponse<'_>>(schemas);
    let mut parameters = bucket_params();
    parameters.push(json!({
        "name": "permits", "in": "query", "description": "Units to spend. Default: 1.",
        "schema": { "type": "integer", "minimum": 1, "maximum": u32::MAX },
    }));
    call(
        id,
        "Spend units of a bucket",
        &parameters,
        None,
        json!({
            "200": { "description": "Allowed", "headers": limit_headers(), "content": body },
            "429": { "description": TOO_MANY, "headers": denial_headers(), "content": body },
        }),
    )
}

fn remaining(schemas: &mut SchemaGenerator) -> Value {
    let body = content::<RemainingResponse<'_>>(schemas);
    let responses = json!({ "200": { "description": "The state of the bucket", "headers": limit_headers(), "content": body } });
    call("remaining", "Show a bucket without spending", &bucket_params(), None, responses)
}

fn reset(schemas: &mut SchemaGenerator) -> Value {
    let body = content::<ResetResponse<'_>>(schemas);
    let responses = json!({ "200": { "description": "Reset", "content": body } });
    call("reset", "Reset a bucket", &bucket_params(), None, responses)
}

/// The headers depend on `api.authorize`, so none is required here. Any method is accepted; this is the one of most proxies.
fn authorize() -> Value {
    let header = |(name, description): (&str, &str)| json!({ "name": name, "in": "header", "description": description, "schema": { "type": "string", "pattern": PRINTABLE } });
    let mut parameters = vec![json!({
        "name": "status", "in": "query", "description": "With `api.authorize: auth-request`, the status of every rejection of a client's request. The real one is in X-Ratewright-Status.",
        "schema": { "type": "string", "enum": ["401", "403"] },
    })];
    parameters.extend([
        ("X-Forwarded-For", "The client's address; the last entry that is not a trusted proxy counts."),
        ("X-Forwarded-Method", "With `forward-auth`: the client's method."),
        ("X-Forwarded-Uri", "With `forward-auth`: the client's path and query."),
        ("X-Forwarded-Host", "With `forward-auth`: the client's host."),
        ("X-Original-Method", "With `auth-request`: the client's method."),
        ("X-Original-URL", "With `auth-request`: the client's URL, with scheme and host."),
        ("X-Ratewright-Token", "One of `api.tokens`, unless the caller is in `clients.trusted_proxies` or presents a client certificate."),
    ].map(header));
    let denied = problem_content(&json!({ "$ref": "#/components/schemas/RateLimitProblem" }));
    let mut call = call(
        "authorize",
        "Decide for a proxy whether its client's request may pass",
        &parameters,
        None,
        json!({
            "200": { "description": "Allowed", "headers": limit_headers() },
            "429": { "description": TOO_MANY, "headers": denial_headers(), "content": denied },
        }),
    );
    for (status, description) in [
        ("401", "The caller is not a trusted proxy, or the request is denied with `status=401`"),
        ("403", "The request lacks an attribute that a policy counts by, or is denied with `status=403`"),
        ("404", "`api.authorize` is off"),
    ] {
        let content = problem_content(&json!({ "$ref": "#/components/schemas/Problem" }));
        call["responses"][status] = json!({ "description": description, "content": content });
    }
    call
}

fn decide(schemas: &mut SchemaGenerator) -> Value {
    let (mut request, body) = (content::<DecideRequest<'_>>(schemas), content::<DecideResponse<'_>>(schemas));
    show(&mut request, "login", example_query());
    let denied = problem_content(&json!({ "$ref": "#/components/schemas/Denied" }));
    let mut call = call(
        "decide",
        "Decide a request under the policy file",
        &[],
        Some(request),
        json!({
            "200": { "description": "Allowed", "headers": limit_headers(), "content": body },
            "429": { "description": TOO_MANY, "headers": denial_headers(), "content": denied },
        }),
    );
    // A policy that cannot count the request denies it, and the problem has the decision as well.
    let either = json!({ "anyOf": [
        { "$ref": "#/components/schemas/Denied" }, { "$ref": "#/components/schemas/Problem" }
    ] });
    for (status, description) in [
        ("400", "Invalid request, or a policy cannot count it because it sends an attribute more than once"),
        ("403", "The caller is not authorized, or the request lacks an attribute that a policy counts by"),
    ] {
        call["responses"][status] =
            json!({ "description": description, "content": problem_content(&either) });
    }
    call
}

fn decide_batch(schemas: &mut SchemaGenerator) -> Value {
    let (mut request, body) = (content::<BatchRequest<'_>>(schemas), content::<BatchResponse<'_>>(schemas));
    show(&mut request, "two", json!({ "queries": [example_query(), { "look": true }] }));
    let responses = json!({ "200": { "description": "Decided, in order", "content": body } });
    call("decideBatch", "Decide up to 1,000 requests", &[], Some(request), responses)
}

fn explain(schemas: &mut SchemaGenerator) -> Value {
    let (mut request, body) = (content::<DecideRequest<'_>>(schemas), content::<Explanation>(schemas));
    show(&mut request, "login", example_query());
    let responses = json!({ "200": { "description": "The explanation, for every policy", "content": body } });
    call(
        "explain",
        "Explain why a request is limited or not, without spending",
        &[],
        Some(request),
        responses,
    )
}

fn refund(schemas: &mut SchemaGenerator) -> Value {
    let (mut request, body) = (content::<RefundRequest>(schemas), content::<RefundResponse>(schemas));
    show(&mut request, "login", json!({ "receipt": RECEIPT }));
    let responses = json!({ "200": { "description": "Refunded", "content": body } });
    call("refund", "Refund what a decision charged", &[], Some(request), responses)
}

/// One call, with the errors that all calls share.
fn call(id: &str, summary: &str, parameters: &[Value], body: Option<Value>, responses: Value) -> Value {
    let mut call = json!({ "operationId": id, "summary": summary, "responses": responses });
    let errors: &[&str] = match body {
        Some(_) => &["400", "401", "403", "408", "413"],
        None => &["400", "401", "403", "404"],
    };
    for status in errors {
        call["responses"][*status] = json!({ "$ref": format!("#/components/responses/{status}") });
    }
    if !parameters.is_empty() {
        call["parameters"] = parameters.into();
    }
    if let Some(body) = body {
        call["requestBody"] = json!({ "required": true, "content": body });
    }
    call
}

/// The parameters that select a bucket.
fn bucket_params() -> Vec<Value> {
    let names = params::ApiAlgorithm::ALL.map(params::ApiAlgorithm::name);
    vec![
        json!({ "name": "algorithm", "in": "query", "description": "The algorithm of the ad hoc bucket. Default: TOKEN_BUCKET.",
                "schema": { "type": "string", "enum": names } }),
        json!({ "name": "policy", "in": "query", "description": "The policy of the bucket, in place of algorithm.",
                "schema": { "type": "string", "pattern": NAME } }),
        json!({ "name": "key", "in": "query", "description": "The bucket. Default: the caller's own.",
                "schema": { "type": "string", "minLength": 1, "maxLength": KEY_MAX, "pattern": PRINTABLE } }),
    ]
}

/// An optional address.
pub(super) fn address(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "string", "format": "ipv4" }, { "type": "string", "format": "ipv6" }, { "type": "null" }] })
}

/// A body in JSON.
fn content<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    json!({ "application/json": { "schema": schemas.subschema_for::<T>() } })
}

/// Adds an example to a body.
fn show(content: &mut Value, name: &str, example: Value) {
    content["application/json"]["examples"] = json!({ name: { "value": example } });
}

/// A query as a gateway would send it.
fn example_query() -> Value {
    let headers = json!({ "X-Api-Key": "k-17" });
    json!({ "attributes": { "ip": "192.0.2.7", "method": "POST", "path": "/api/login", "headers": headers }, "receipt": true })
}

/// The receipt of that query: one unit of the policy `login`, with a burst of 10 and one unit every 6 s.
const RECEIPT: &str = "eyJpIjo3LCJoIjozLCJjIjpbeyJwIjoibG9naW4iLCJ2IjpbIjE5Mi4wLjIuNyJdLCJjIjoxLCJ0IjoxNzAwMDAwMDAwMDAwMDAwLCJiIjoic2hhcmVkIiwiciI6IjEvNnMiLCJrIjoidG9rZW5fYnVja2V0IiwibiI6MTB9XX0";

fn problem_content(schema: &Value) -> Value {
    json!({ "application/problem+json": { "schema": schema } })
}

fn problems() -> Value {
    let content = problem_content(&json!({ "$ref": "#/components/schemas/Problem" }));
    let problem = |description: &str| json!({ "description": description, "content": content });
    let mut problems = json!({
        "400": problem("Invalid request; `detail` says what is wrong and what to do"),
        "401": problem("The token is missing or not valid"),
        "403": problem("The caller may not act for other clients"),
        "404": problem("Unknown policy"),
        "408": problem("The body was sent too slowly"),
        "413": problem("The body is too long"),
    });
    problems["401"]["headers"] = json!({ "WWW-Authenticate": {
        "description": "`Bearer`: send one of `api.tokens`", "schema": { "type": "string" }
    } });
    problems
}

/// The problem of RFC 9457.
fn problem() -> Value {
    json!({
        "description": "An error of RFC 9457.",
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": { "type": "string", "format": "uri-reference", "description": "Which kind of problem; `about:blank` if the status says it all." },
            "title": { "type": "string", "description": "The status in words." },
            "status": { "type": "integer", "minimum": 400, "maximum": 599, "description": "The status of the response." },
            "detail": { "type": "string", "description": "What is wrong, and what to do; for people." },
            "parameter": { "type": "string", "description": "The parameter or member that is wrong." },
            "instance": { "type": "string", "description": "The path of the request." },
            "correlationId": { "type": "string", "description": "The id of the request, as in X-Correlation-Id and in the log." },
            "timestamp": { "type": "string", "format": "date-time", "description": "When it happened." },
        },
    })
}

/// The additional members of a denial, at every entrypoint.
fn rate_limit_problem() -> Value {
    json!({
        "description": "The problem of a denied request. The gateway and the tower layer send the same.",
        "allOf": [{ "$ref": "#/components/schemas/Problem" }],
        "type": "object",
        "required": ["correlationId", "timestamp", "violated-policies"],
        "properties": {
            "limitType": { "type": "string", "description": "The policy that denies for longest." },
            "retryAfter": { "type": "integer", "minimum": 1, "description": "Seconds to wait, as in Retry-After. Missing if waiting does not help." },
            "violated-policies": { "type": "array", "items": { "type": "string" }, "description": "All limits that denied the request, as RateLimit names them." },
        },
    })
}

/// A denial by `decide`: the problem, and every limit that applies.
fn denied() -> Value {
    json!({ "description": "A denial by `decide`.", "allOf": [
        { "$ref": "#/components/schemas/RateLimitProblem" }, { "$ref": "#/components/schemas/DecideResponse" }
    ] })
}

const TOO_MANY: &str = "Denied: a limit is reached. Wait at least Retry-After; nothing was spent";

/// All headers that responses share. None is required: `headers.families` and `headers.retry_after` choose.
fn headers() -> Value {
    let header = |schema: Value, example: Value, description: &str| json!({ "description": description, "schema": schema, "example": example });
    let count = json!({ "type": "integer", "format": "int64", "minimum": 0 });
    let wait = json!({ "type": "integer", "format": "int64", "minimum": 1 });
    let text = json!({ "type": "string" });
    json!({
        "X-RateLimit-Limit": header(count.clone(), json!(10), "Units that the tightest limit holds when full; with `headers.limit: rate`, the units of its rate."),
        "X-RateLimit-Remaining": header(count.clone(), json!(0), "Units left of the tightest limit, rounded down."),
        "X-RateLimit-Reset": header(count, json!(1_794_756_097), "Unix time in seconds at which the bucket of the tightest limit is full again, or its window or the oldest request in it ends. A denied request may pass earlier: see Retry-After."),
        "RateLimit-Policy": header(text.clone(), json!("\"login\";q=10;w=60"), "Every limit that applies, a structured field list: it holds q units, and refills them in w seconds."),
        "RateLimit": header(text.clone(), json!("\"login\";r=0;t=6"), "Every limit that applies, a structured field list: r units are left, and no more for t seconds."),
        "Retry-After": header(wait, json!(6), "Whole seconds after which the same request is allowed. Missing if waiting does not help."),
        "X-Correlation-Id": header(text, json!("4bf92f3577b34da6"), "The id of the request: its own, or a generated one."),
    })
}

/// The headers of a response with the state of limits.
fn limit_headers() -> Value {
    refer_to(&[
        "X-RateLimit-Limit",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
        "RateLimit-Policy",
        "RateLimit",
        "X-Correlation-Id",
    ])
}

/// The headers of a denial.
fn denial_headers() -> Value {
    let mut headers = limit_headers();
    headers["Retry-After"] = json!({ "$ref": "#/components/headers/Retry-After" });
    headers
}

fn refer_to(headers: &[&str]) -> Value {
    let reference =
        |name: &&str| ((*name).to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }));
    headers.iter().map(reference).collect::<Map<String, Value>>().into()
}

/// Has the schema of its content.
impl<T: JsonSchema> JsonSchema for Object<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

#[test]
fn the_committed_document_describes_the_types_and_calls() {
    let mut text = Vec::new();
    let mut json = Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b" "));
    document().serialize(&mut json).unwrap();
    expect_file!["../../openapi.json"].assert_eq(&format!("{}\n", String::from_utf8(text).unwrap()));
}

#[test]
fn every_reference_resolves() {
    fn walk(whole: &Value, value: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    let there = reference.strip_prefix('#').and_then(|pointer| whole.pointer(pointer));
                    assert!(there.is_some(), "{reference}");
                }
                members.values().for_each(|value| walk(whole, value));
            }
            Value::Array(items) => items.iter().for_each(|value| walk(whole, value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document = document();
    walk(&document, &document);
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["paths"].as_object().unwrap().len(), 8);
    let names: Vec<_> = document["components"]["schemas"].as_object().unwrap().keys().collect();
    expect![[r#"["BatchDecision", "BatchRequest", "BatchResponse", "BucketState", "CheckResponse", "ClientFacts", "DecideRequest", "DecideResponse", "Denied", "ExplainedPolicy", "Explanation", "KnownAttribute", "LimitState", "Problem", "RateLimitProblem", "RefundRequest", "RefundResponse", "RemainingResponse", "ResetResponse"]"#]]
        .assert_eq(&format!("{names:?}"));
}

#[test]
fn examples_are_valid() {
    let query = example_query().to_string();
    assert!(super::decide::parse(query.as_bytes()).is_ok());
    let refund = json!({ "receipt": RECEIPT }).to_string();
    let receipt = super::receipt::parse(refund.as_bytes()).unwrap();
    assert_eq!(receipt.paid().unwrap().len(), 1);
}
