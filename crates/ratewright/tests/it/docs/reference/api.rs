//! `docs/reference/api.md`: the calls of the API listener, from `/openapi.json`, and those of the admin listener, from the
//! sources.

mod schema;

use serde_json::Value;

use super::described_rows::DescribedRows;
use super::source::{Source, sources, texts};
use super::{assert_page, code, paragraph, sentence, table, with_reference};
use crate::process::Ratewright;
use schema::OpenApi;

const PAGE: &str = "api.md";
const CALLS: DescribedRows = DescribedRows { head: &["call", "parameters", "response"], key: 0 };

/// The files and functions with the routes of the admin listener, and of the API listener.
const ADMIN_ROUTERS: [(&str, &str); 4] = [
    ("crates/ratewright-server/src/admin.rs", "fn open<"),
    ("crates/ratewright-server/src/admin.rs", "fn guarded<"),
    ("crates/ratewright-server/src/admin/page.rs", "fn router<"),
    ("crates/ratewright-server/src/rest.rs", "fn key_router<"),
];
const API_ROUTERS: [(&str, &str); 4] = [
    ("crates/ratewright-server/src/rest.rs", "fn router<"),
    ("crates/ratewright-server/src/rest/authorize.rs", "fn authorize_router<"),
    ("crates/ratewright/src/envoy.rs", "fn routes("),
    ("crates/ratewright/src/serve/shared_state.rs", "fn api_routes("),
];

/// One call: several methods if they are described alike.
struct Operation<'a> {
    methods: Vec<String>,
    path: &'a str,
    described: &'a Value,
}

fn operations(api: &OpenApi) -> Vec<Operation<'_>> {
    let mut found = Vec::<Operation<'_>>::new();
    for (path, methods) in api.0["paths"].as_object().unwrap() {
        for (method, described) in methods.as_object().unwrap() {
            let method = method.to_uppercase();
            let is_alike = |other: &&mut Operation<'_>| {
                other.path == path && other.described["parameters"] == described["parameters"]
            };
            match found.last_mut().filter(is_alike) {
                Some(other) => other.methods.push(method),
                None => found.push(Operation { methods: vec![method], path, described }),
            }
        }
    }
    found
}

impl Operation<'_> {
    fn render(&self, api: &OpenApi) -> String {
        let Self { methods, path, described } = self;
        let any = if *path == "/api/v1/authorize" { "any method".to_owned() } else { methods.join(" or ") };
        let mut made = format!("### {any} {path}\n\n");
        made += &paragraph(&sentence(described["summary"].as_str().unwrap()));
        if let Some(parameters) = described["parameters"].as_array() {
            made += &table(
                ["parameter", "in", "type", "meaning"],
                parameters.iter().map(|parameter| parameter_row(api, parameter)),
            );
        }
        let body = &described["requestBody"]["content"]["application/json"]["schema"];
        if body.is_object() {
            made += &format!("Request body: {}.\n\n", api.type_of(body));
        }
        let responses = described["responses"].as_object().unwrap();
        let rows =
            responses.iter().map(|(status, response)| response_row(api, status, api.resolve(response)));
        made + &table(["status", "meaning", "body", "headers"], rows)
    }
}

fn parameter_row(api: &OpenApi, parameter: &Value) -> [String; 4] {
    let text = |name: &str| parameter[name].as_str().unwrap();
    let required = if parameter["required"] == true { " Required." } else { "" };
    [
        code(text("name")),
        text("in").to_owned(),
        api.type_of(&parameter["schema"]),
        sentence(text("description")) + required,
    ]
}

fn response_row(api: &OpenApi, status: &str, response: &Value) -> [String; 4] {
    let bodies = response["content"].as_object().into_iter().flatten();
    let bodies: Vec<_> = bodies.map(|(_, content)| api.type_of(&content["schema"])).collect();
    let headers: Vec<_> =
        response["headers"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let is_limited = headers.contains(&"RateLimit");
    let headers = match headers.contains(&"Retry-After") {
        true => "[limits](#headers), `Retry-After`".to_owned(),
        false if is_limited => "[limits](#headers)".to_owned(),
        false => headers.iter().map(|name| code(name)).collect::<Vec<_>>().join(", "),
    };
    let or_dash = |text: String| if text.is_empty() { "–".to_owned() } else { text };
    let meaning = sentence(response["description"].as_str().unwrap());
    [status.to_owned(), meaning, or_dash(bodies.join(" or ")), or_dash(headers)]
}

fn render_headers(api: &OpenApi) -> String {
    let headers = api.0["components"]["headers"].as_object().unwrap();
    let rows = headers.iter().map(|(name, header)| {
        let (example, meaning) = (&header["example"], header["description"].as_str().unwrap());
        let example = example.as_str().map_or_else(|| example.to_string(), str::to_owned);
        [code(name), api.type_of(&header["schema"]), code(&example), sentence(meaning)]
    });
    format!("## Headers\n\n{}", table(["header", "type", "example", "meaning"], rows))
}

/// The paths that functions add to a router, each with a method.
fn routes(sources: &[Source], functions: &[(&str, &str)]) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    for (path, function) in functions {
        let source = sources.iter().find(|source| source.path == *path).unwrap();
        let body =
            Source { path: source.path.clone(), code: source.body(function).replace(".route(", "\nroute(") };
        for call in body.calls("route") {
            let path = texts(call.arguments[0]).pop().unwrap_or_default();
            let methods = [("get(", "GET"), ("post(", "POST"), ("delete(", "DELETE")];
            let mut methods: Vec<_> =
                methods.iter().filter(|(word, _)| call.arguments[1].contains(word)).collect();
            if methods.is_empty() {
                methods.push(&("", "any method"));
            }
            found.extend(methods.iter().map(|(_, method)| (path.clone(), *method)));
        }
    }
    found
}

/// The calls that the description does not have: all of the admin listener, and the rest of the API listener.
fn undescribed(api: &OpenApi, sources: &[Source]) -> Vec<Vec<String>> {
    let is_described = |path: &str| path.is_empty() || api.0["paths"].get(path).is_some();
    let of_api = routes(sources, &API_ROUTERS).into_iter().filter(|(path, _)| !is_described(path));
    let of_admin = routes(sources, &ADMIN_ROUTERS);
    of_admin.into_iter().chain(of_api).map(|(path, method)| vec![code(&format!("{method} {path}"))]).collect()
}

#[test]
fn the_page_on_the_api_is_the_openapi_description_and_the_admin_routes() {
    let ratewright = Ratewright::start("");
    let (api, sources) = (OpenApi(ratewright.ask("GET", "/openapi.json").json()), sources());
    let calls: String = operations(&api).iter().map(|operation| operation.render(&api)).collect();
    let reference =
        format!("## Calls\n\n{calls}{}## Bodies\n\n{}", render_headers(&api), api.render_schemas());
    let made = CALLS.refresh(&with_reference(PAGE, &reference), &undescribed(&api, &sources));
    assert_page(PAGE, &made);
    CALLS.assert_described(&made);
}
