//! Requests by curl, over HTTP/1.1 and HTTP/2.

use std::process::Command;
use std::time::Duration;

use ratewright_lab::{is_full_run, without_settings};

use crate::process::output_for;

/// A request: the method, the path, and its headers, which may be no text.
pub(crate) type Request<'a> = (&'a str, &'a str, &'a [&'a [u8]]);

/// What a client gets: the status, and the body; in place of the body of HEAD, the headers.
pub(crate) type Response = (u16, String);

/// The versions of HTTP, as curl calls them. Neither needs TLS.
pub(crate) const HTTP_1: &str = "http1.1";
pub(crate) const HTTP_2: &str = "http2-prior-knowledge";

/// Ends the record of a response. No response contains it.
const END: char = '\u{1e}';

/// Sends requests to an address, one after the other, and gives the responses. The status of a request that gets none is 0.
///
/// Each has a connection of its own: curl 7.88 breaks off the second request on one of HTTP/2. For that, each has its own host in the URL.
pub(crate) fn curl(version: &str, address: &str, requests: &[Request<'_>]) -> Vec<Response> {
    let mut config = Vec::new();
    for (n, (method, path, headers)) in requests.iter().enumerate() {
        if n > 0 {
            config.extend_from_slice(b"next\n");
        }
        let write_out = format!("write-out = \"\\n%{{http_code}}{END}\"\n");
        let method =
            if *method == "HEAD" { "head\n".to_owned() } else { format!("request = \"{method}\"\n") };
        let fixed = "path-as-is\ngloboff\nmax-time = 30\n";
        config.extend_from_slice(format!("{version}\n{fixed}{write_out}{method}").as_bytes());
        add_option(&mut config, "url", format!("http://{n}.invalid{path}").as_bytes());
        add_option(&mut config, "connect-to", format!("::{address}").as_bytes());
        if !headers.iter().any(|header| header.starts_with(b"Host:")) {
            add_option(&mut config, "header", format!("Host: {address}").as_bytes());
        }
        for header in *headers {
            // A header without a value ends in a semicolon.
            let empty = header.strip_suffix(b":").map(|name| [name, b";"].concat());
            add_option(&mut config, "header", empty.as_deref().unwrap_or(header));
        }
    }
    let mut curl = Command::new("curl");
    // -q: without the user's .curlrc.
    without_settings(&mut curl).args(["-q", "-s", "-K", "-"]);
    let limit = Duration::from_secs(if is_full_run() { 300 } else { 100 });
    let printed = output_for(&mut curl, config, limit).stdout;
    let printed = String::from_utf8_lossy(&printed);
    let responses: Vec<Response> = printed
        .split_terminator(END)
        .map(|record| {
            let (body, status) = record.rsplit_once('\n').unwrap();
            (status.parse().unwrap(), body.to_owned())
        })
        .collect();
    assert_eq!(responses.len(), requests.len(), "{printed}");
    responses
}

/// The statuses that curl gets.
pub(crate) fn statuses(version: &str, address: &str, requests: &[Request<'_>]) -> Vec<u16> {
    curl(version, address, requests).into_iter().map(|(status, _)| status).collect()
}

/// Adds an option with a text, as curl's files quote it.
fn add_option(config: &mut Vec<u8>, name: &str, value: &[u8]) {
    config.extend_from_slice(format!("{name} = \"").as_bytes());
    for byte in value {
        if b"\"\\".contains(byte) {
            config.push(b'\\');
        }
        config.push(*byte);
    }
    config.extend_from_slice(b"\"\n");
}
