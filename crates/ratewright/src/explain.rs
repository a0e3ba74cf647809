//! `ratewright explain`: why a request is limited, or not. Asks a running instance, or evaluates a policy file.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use http::Method;
use ratewright_core::{Clock as _, Limiter};
use ratewright_http::HttpSettings;
use ratewright_server::{ServerSettings, rest};
use ratewright_store::{MemoryStore, SystemClock, WallClock};
use ratewright_telemetry::escape_hidden;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::admin_client;
use crate::cli::ExplainArgs;
use crate::config::{Config, Source};
use crate::serve::found_route;
use crate::text_table::TextTable;

/// More keys than one request can have.
const KEYS_MAX: usize = 1_000;

/// The explanation of a request, as the admin API returns it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExplainReply {
    allowed: bool,
    status: u16,
    basis: String,
    summary: String,
    route: Option<String>,
    attributes: Vec<ReplyAttribute>,
    policies: Vec<ReplyPolicy>,
    headers: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct ReplyAttribute {
    name: String,
    values: Vec<String>,
    from: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplyPolicy {
    policy: String,
    result: String,
    why: String,
    mode: String,
    key: Option<String>,
    limits: Vec<ReplyLimit>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplyLimit {
    quota: Option<String>,
    limit: u32,
    remaining: u32,
    reset_after_seconds: u64,
    retry_after_seconds: Option<u64>,
}

/// Explains one request.
pub(crate) fn explain(args: &ExplainArgs) -> ExitCode {
    let body = match body(args) {
        Ok(body) => body,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(crate::EXIT_USAGE);
        }
    };
    let request = format!("{} {}", args.method, args.path);
    let words = |explanation: ExplainReply| explanation.words(&request);
    let Some(path) = &args.config else {
        return admin_client::finish(&args.admin, async |client| {
            let response = client.post("explain", &body).await?;
            admin_client::show(&args.admin, response, words)
        });
    };
    let source = Source { path: Some(path.clone()), profile: args.profile.clone() };
    let config = match Config::read(&source, &crate::environment) {
        Ok(config) => config,
        Err(errors) => return crate::report_errors(&errors),
    };
    config.warnings.iter().for_each(|warning| eprintln!("warning: {warning:#}"));
    let explained =
        by_file(config, &body).and_then(|response| admin_client::show(&args.admin, response, words));
    match explained {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(crate::EXIT_USAGE)
        }
    }
}

/// The body of the request to the admin API.
fn body(args: &ExplainArgs) -> anyhow::Result<Value> {
    let mut headers: Map<String, Value> = Map::new();
    for header in &args.headers {
        let (name, value) = header
            .split_once(':')
            .ok_or_else(|| anyhow!("-H {header:?} has no colon; write -H 'Name: value'"))?;
        let lines = headers.entry(name.trim().to_ascii_lowercase()).or_insert_with(|| json!([]));
        if let Some(lines) = lines.as_array_mut() {
            lines.push(json!(value.trim()));
        }
    }
    let mut attributes = json!({ "method": args.method, "path": args.path, "headers": headers });
    for (name, value) in [("ip", &args.ip), ("peer", &args.peer)] {
        if let Some(value) = value {
            attributes[name] = json!(value.to_string());
        }
    }
    if let Some(user) = &args.user {
        attributes["user"] = json!(user);
    }
    Ok(json!({ "attributes": attributes, "cost": args.cost, "policies": args.policies }))
}

/// Explains a request by a policy file, with full buckets. Contacts no running instance.
fn by_file(config: Config, body: &Value) -> anyhow::Result<Value> {
    let http_settings = HttpSettings::default()
        .rules(config.clients.rules)
        .headers(config.answers.fields)
        .problem_type(config.answers.problem_type)
        .unknown_key(None);
    let settings = ServerSettings {
        http_settings: Arc::new(http_settings),
        access: config.access,
        ..ServerSettings::default()
    };
    let limiter = Limiter::new(config.policies, MemoryStore::new(SystemClock::new(), KEYS_MAX));
    let (routes, permits) = (config.gateway.routes, Arc::new(config.permits));
    let gateway = rest::GatewayView {
        route: Box::new(move |host, path, method| found_route(&routes, host, path, method)),
        permits: Box::new(move || Arc::clone(&permits)),
        ..rest::GatewayView::default()
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().context("cannot start the runtime")?;
    let body = body.to_string();
    let explained = rest::explanation(&limiter, &settings, WallClock.now(), &gateway, body.as_bytes());
    runtime.block_on(explained).map_err(|problem| anyhow!("{}", problem.detail()))
}

impl ExplainReply {
    fn words(&self, request: &str) -> String {
        let mut text = format!("{}: {}\n", escape_hidden(request), escape_hidden(&self.summary));
        // Writing to a string cannot fail.
        if let Some(route) = &self.route {
            let _ = writeln!(text, "route: {}", escape_hidden(route));
        }
        let mut known = TextTable::new(["ATTRIBUTE", "VALUE", "FROM"]);
        for ReplyAttribute { name, values, from } in &self.attributes {
            known.row([name.clone(), values.join(", "), from.clone()]);
        }
        let mut policies = TextTable::new(["POLICY", "RESULT", "WHY"]);
        for policy in &self.policies {
            policies.row([policy.policy.clone(), policy.result.replace('_', " "), policy.why.clone()]);
        }
        let _ = write!(text, "\n{known}\n{policies}");
        let applying: Vec<_> = self.policies.iter().filter(|policy| !policy.limits.is_empty()).collect();
        if !applying.is_empty() {
            let mut buckets = TextTable::new(["KEY", "LEFT", "OF", "FULL IN", "RETRY AFTER", "MODE"]);
            for policy in applying {
                for limit in &policy.limits {
                    let quota = limit.quota.as_ref().map_or(String::new(), |quota| format!("/{quota}"));
                    let retry =
                        limit.retry_after_seconds.map_or("never".to_owned(), |wait| format!("{wait} s"));
                    buckets.row([
                        format!("{}{quota}:{}", policy.policy, policy.key.as_deref().unwrap_or_default()),
                        limit.remaining.to_string(),
                        limit.limit.to_string(),
                        format!("{} s", limit.reset_after_seconds),
                        retry,
                        policy.mode.clone(),
                    ]);
                }
            }
            let _ = write!(text, "\n{buckets}");
        }
        let verdict =
            if self.allowed { "allowed".to_owned() } else { format!("denied with {}", self.status) };
        let _ = writeln!(text, "\n{verdict} (basis {}); nothing was spent", escape_hidden(&self.basis));
        for (name, value) in &self.headers {
            let _ = writeln!(text, "  {}: {}", escape_hidden(name), escape_hidden(value));
        }
        text
    }
}

/// Parses an HTTP method.
pub(crate) fn method(text: &str) -> Result<String, &'static str> {
    let is_method = Method::from_bytes(text.as_bytes()).is_ok();
    if is_method { Ok(text.to_owned()) } else { Err("invalid HTTP method; use a method such as GET or POST") }
}
