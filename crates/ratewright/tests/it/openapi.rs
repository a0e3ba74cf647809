//! `/openapi.json` against the program: schemathesis generates valid and invalid requests, and checks each response. Real denials are
//! compared with their descriptions, header by header.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use ratewright_lab::{PATIENCE, foreign, is_full_run, output_within, seed};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Answer, Ratewright, http};

/// Some requests are allowed, some denied, and some cannot be counted.
const POLICIES: &str = "
api: {defaults: {token_bucket: {rate: 5/s, burst: 5}, fixed_window: {rate: 5/s}}}
policies:
- {name: all, quota: {rate: 10/s, burst: 10}}
- {name: login, by: ip, quota: [{rate: 1/6s, burst: 10}, {name: minute, algorithm: sliding_window, rate: 10/min}]}
- {name: strict, when: {path: '/**'}, by: 'header:X-Api-Key', missing: deny, quota: {rate: 1/h}}
";

/// All that it checks, except that what fits the schema is accepted: a schema cannot say which policies there are, that two
/// parameters exclude each other, or what a receipt holds.
#[test]
fn responses_match_the_openapi_description() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let program = root.join("target/venv/bin/schemathesis");
    assert!(program.exists(), "schemathesis is missing; `make deps` installs it");
    let (ratewright, folder) = (Ratewright::start(POLICIES), TempDir::new().unwrap());
    let n_examples = if is_full_run() { "60" } else { "20" };
    let seed = seed();
    let mut schemathesis = foreign(program);
    schemathesis
        .args(["run", &format!("http://{}/openapi.json", ratewright.address), "--no-color", "--seed", &seed])
        .args(["--max-examples", n_examples, "--request-timeout", "10", "--suppress-health-check", "all"])
        .args(["--exclude-checks", "positive_data_acceptance", "--continue-on-failure"])
        // It takes any method, which a description cannot say.
        .args(["--exclude-path", "/api/v1/authorize"])
        .current_dir(&folder);
    let limit = if is_full_run() { 5 * PATIENCE } else { Duration::from_secs(100) };
    let output = output_within(limit, &mut schemathesis);
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}{}", String::from_utf8_lossy(&output.stderr));
    assert!(report.contains("Tested: 8"), "all calls are described: {report}");
    for verdict in ["allowed", "denied"] {
        let series = format!(
            r#"ratewright_decisions_total{{policy="all",entrypoint="rest",verdict="{verdict}",basis="local",mode="enforce"}}"#
        );
        assert!(ratewright.metric(&series) > 0.0, "some are {verdict}");
    }
    let refused = r#"ratewright_decisions_total{policy="strict",entrypoint="rest",verdict="denied",basis="none",mode="enforce"}"#;
    assert!(ratewright.metric(refused) > 0.0, "some cannot be counted");
}

/// Two units an hour for each key, so that the third request is denied, and a policy for each other refusal.
const DENYING: &str = "
clients: {trusted_proxies: [127.0.0.1]}
api: {defaults: {token_bucket: {rate: 2/h, burst: 2}}, authorize: forward-auth}
policies:
- {name: login, when: {path: /login}, by: ip, quota: {rate: 2/h, burst: 2}}
- {name: strict, when: {path: /strict}, by: 'header:X-Api-Key', missing: deny, quota: {rate: 1/h}}
";

/// The headers of a denial, with their types.
const DENIAL_HEADERS: [(&str, &str); 6] = [
    ("Retry-After", "integer"),
    ("RateLimit", "string"),
    ("RateLimit-Policy", "string"),
    ("X-RateLimit-Limit", "integer"),
    ("X-RateLimit-Remaining", "integer"),
    ("X-RateLimit-Reset", "integer"),
];

/// `/openapi.json`.
struct Description(Value);

impl Description {
    fn of(ratewright: &Ratewright) -> Self {
        Self(ratewright.ask("GET", "/openapi.json").json())
    }

    /// Follows a reference, if it is one.
    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
            Some(pointer) => self.0.pointer(pointer).unwrap_or_else(|| panic!("{pointer} leads nowhere")),
            None => value,
        }
    }

    /// Each operation: its method and path, and its responses by status.
    fn operations(&self) -> impl Iterator<Item = (String, &serde_json::Map<String, Value>)> {
        let paths = self.0["paths"].as_object().unwrap();
        paths.iter().flat_map(|(path, methods)| {
            methods.as_object().unwrap().iter().map(move |(method, operation)| {
                (format!("{method} {path}"), operation["responses"].as_object().unwrap())
            })
        })
    }

    fn response(&self, operation: &str, status: u16) -> &Value {
        let (_, responses) = self.operations().find(|(name, _)| name == operation).unwrap();
        let response = responses.get(&status.to_string());
        self.resolve(response.unwrap_or_else(|| panic!("{operation} does not describe {status}")))
    }

    /// Fails unless the schema allows the value.
    #[track_caller]
    fn assert_valid(&self, schema: &Value, value: &Value) {
        let schema = json!({ "allOf": [schema], "components": self.0["components"] });
        let errors: Vec<_> = jsonschema::validator_for(&schema)
            .unwrap()
            .iter_errors(value)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{errors:?}: {value}");
    }

    /// The members that a schema names.
    fn members(&self, schema: &Value) -> BTreeSet<String> {
        let schema = self.resolve(schema);
        let own = schema["properties"].as_object().into_iter().flat_map(|members| members.keys().cloned());
        let parts = ["allOf", "anyOf"].into_iter().filter_map(|kind| schema[kind].as_array()).flatten();
        own.chain(parts.flat_map(|part| self.members(part))).collect()
    }

    /// Holds a response's body against its description: the type, the schema, and that every member is named.
    #[track_caller]
    fn assert_body(&self, operation: &str, answer: &Answer) {
        let content = &self.response(operation, answer.status)["content"];
        let schema = &content[&answer.headers["content-type"]]["schema"];
        assert!(schema.is_object(), "{operation} {} has no schema: {content}", answer.status);
        let body = answer.json();
        self.assert_valid(schema, &body);
        let (named, sent) = (self.members(schema), body.as_object().unwrap().keys());
        let unnamed: Vec<_> = sent.filter(|member| !named.contains(*member)).collect();
        assert!(unnamed.is_empty(), "{operation} {}: not described: {unnamed:?}", answer.status);
    }
}

/// E5: a generated client knows how long to wait, and why.
#[test]
fn every_429_is_described_with_its_headers_and_its_body() {
    let ratewright = Ratewright::start(DENYING);
    let description = Description::of(&ratewright);
    let login = json!({ "ip": "192.0.2.7", "path": "/login" });
    let check = |method: &str| ratewright.ask(method, &format!("/api/v1/rate-limit/check?key={method}"));
    let decide = || ratewright.decide(&login);
    let authorize = || {
        let headers = "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /login\r\nX-Forwarded-Host: t\r\nX-Forwarded-For: 192.0.2.8\r\n";
        let request =
            format!("GET /api/v1/authorize HTTP/1.1\r\nHost: t\r\n{headers}Connection: close\r\n\r\n");
        http(&ratewright.address, &request)
    };
    for _ in 0..2 {
        let statuses = [check("GET").status, check("POST").status, decide().status, authorize().status];
        assert_eq!(statuses, [200; 4]);
    }
    let denials = [
        ("get /api/v1/rate-limit/check", check("GET")),
        ("post /api/v1/rate-limit/check", check("POST")),
        ("post /api/v1/decide", decide()),
        ("get /api/v1/authorize", authorize()),
    ];
    let described = description.operations().filter(|(_, responses)| responses.contains_key("429"));
    let described: BTreeSet<_> = described.map(|(operation, _)| operation).collect();
    assert_eq!(described, denials.iter().map(|(operation, _)| (*operation).to_owned()).collect());

    for (operation, answer) in &denials {
        assert_eq!(answer.status, 429, "{operation}");
        let headers = description.response(operation, 429)["headers"].as_object().unwrap();
        for (name, kind) in DENIAL_HEADERS {
            let header = headers.get(name).unwrap_or_else(|| panic!("{operation} does not describe {name}"));
            let header = description.resolve(header);
            assert_eq!(header["schema"]["type"], kind, "{operation}: {name}");
            assert!(
                header["description"].as_str().is_some_and(|text| text.len() > 20),
                "{operation}: {name}"
            );
            let sent = &answer.headers[&name.to_lowercase()];
            let sent = if kind == "integer" { json!(sent.parse::<u64>().unwrap()) } else { json!(sent) };
            description.assert_valid(&header["schema"], &sent);
            description.assert_valid(&header["schema"], &header["example"]);
        }
        let names: Vec<String> = headers.keys().map(|name| name.to_lowercase()).collect();
        let is_ours = |name: &&String| name.contains("ratelimit") || name.starts_with("x-");
        for sent in answer.headers.keys().filter(is_ours) {
            assert!(names.contains(sent), "{operation} does not describe {sent}");
        }
        description.assert_body(operation, answer);
    }
}

#[test]
fn every_problem_is_described_with_its_schema() {
    let ratewright = Ratewright::start(DENYING);
    let description = Description::of(&ratewright);
    for (operation, responses) in description.operations() {
        for (status, response) in responses.iter().filter(|(status, _)| status.starts_with('4')) {
            let content = description.resolve(response)["content"].as_object().unwrap();
            // A denied check has the body of an allowed one.
            let is_check = operation.ends_with("/check") && status == "429";
            let kind = if is_check { "application/json" } else { "application/problem+json" };
            let schema = &content[kind]["schema"];
            let members = description.members(schema);
            let expected: &[&str] = if is_check {
                &["allowed", "retryAfterSeconds"]
            } else {
                &["type", "title", "status", "detail"]
            };
            for member in expected {
                assert!(members.contains(*member), "{operation} {status}: {member} is not in {members:?}");
            }
        }
    }
    let two_keys = json!({ "X-Api-Key": ["a", "b"] });
    for (operation, status, answer) in [
        ("get /api/v1/rate-limit/check", 400, ratewright.get("check?algorithm=GCRA")),
        ("get /api/v1/rate-limit/check", 404, ratewright.get("check?policy=nobody")),
        ("post /api/v1/decide", 400, ratewright.post("/api/v1/decide", &[], "{")),
        ("post /api/v1/decide", 400, ratewright.decide(&json!({ "path": "/strict", "headers": two_keys }))),
        ("post /api/v1/decide", 403, ratewright.decide(&json!({ "path": "/strict" }))),
    ] {
        assert_eq!(answer.status, status, "{operation}: {answer:?}");
        description.assert_body(operation, &answer);
    }
}
