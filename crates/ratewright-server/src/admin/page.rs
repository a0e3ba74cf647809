//! The files of the live page, embedded in the program. They contain no data: all callers get them, also without a token.
//!
//! The page takes all data from the admin API, so its Content-Security-Policy forbids everything but its own scripts,
//! styles and calls.

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderName, HeaderValue, StatusCode, header};
use ratewright_http::Problem;

use crate::response::ProblemResponse;

/// What the page may do.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// An embedded file.
struct PageFile {
    name: &'static str,
    content_type: &'static str,
    text: &'static str,
}

macro_rules! page_files {
    ($($name:literal $content_type:ident)*) => {
        &[$(PageFile {
            name: $name,
            content_type: $content_type,
            text: include_str!(concat!("../../page/", $name)),
        }),*]
    };
}

/// All files of the page.
const FILES: &[PageFile] = page_files! {
    "index.html" HTML
    "style.css" CSS
    "api.js" JAVASCRIPT
    "app.js" JAVASCRIPT
    "catalog.js" JAVASCRIPT
    "chart.js" JAVASCRIPT
    "client.js" JAVASCRIPT
    "curl.js" JAVASCRIPT
    "dom.js" JAVASCRIPT
    "live.js" JAVASCRIPT
    "lookup.js" JAVASCRIPT
    "now.js" JAVASCRIPT
    "parts.js" JAVASCRIPT
    "policies.js" JAVASCRIPT
    "refill.js" JAVASCRIPT
    "report.js" JAVASCRIPT
    "text.js" JAVASCRIPT
    "what-if.js" JAVASCRIPT
    "why.js" JAVASCRIPT
};

/// The routes of the page.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/", get(index)).route("/page/{name}", get(file))
}

async fn index() -> Response {
    find("index.html")
}

async fn file(Path(name): Path<String>) -> Response {
    find(&name)
}

fn find(name: &str) -> Response {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => response(file),
        None => {
            let problem = Problem::new(StatusCode::NOT_FOUND, "page file not found; open /");
            ProblemResponse::from(problem).into_response()
        }
    }
}

fn response(file: &PageFile) -> Response {
    let headers: [(HeaderName, HeaderValue); 5] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(file.content_type)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (headers, file.text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most bytes of all files together.
    const BYTES_MAX: usize = 80_000;

    #[test]
    fn the_page_is_small_and_complete() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        let mut embedded: Vec<_> = FILES.iter().map(|file| file.name).collect();
        names.sort_unstable();
        embedded.sort_unstable();
        assert_eq!(names, embedded);
        let n_bytes: usize = FILES.iter().map(|file| file.text.len()).sum();
        assert!(n_bytes <= BYTES_MAX, "{n_bytes} bytes");
    }

    #[test]
    fn the_page_names_no_other_site_and_has_no_inline_code() {
        for PageFile { name, text, .. } in FILES {
            for (n, line) in text.lines().enumerate() {
                let place = format!("{name}:{}: {line}", n + 1);
                // The namespace of SVG is a name, not an address.
                let line = line.replace("http://www.w3.org/2000/svg", "");
                for forbidden in
                    ["innerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage"]
                {
                    assert!(!line.contains(forbidden), "{place}");
                }
                for forbidden in ["sessionStorage", "document.cookie", "https://", "style=\"", "onclick="] {
                    assert!(!line.contains(forbidden), "{place}");
                }
            }
        }
    }
}
