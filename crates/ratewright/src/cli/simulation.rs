//! The commands that read access logs.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ratewright_core::query::AttributeName;
use ratewright_sim::{DeniedShare, FieldMap};

#[derive(Args, Debug)]
pub(crate) struct SimulateArgs {
    /// Policy file to try, or a folder of them
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: PathBuf,

    /// Compare with this policy file: which requests are newly denied, and which newly allowed
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,

    /// Merge the profile's file over each policy file: ratewright.NAME.yaml over ratewright.yaml
    #[arg(long, value_name = "NAME", env = "RATEWRIGHT_PROFILE")]
    pub(crate) profile: Option<String>,

    /// Enforce this policy even if its mode is shadow or off; repeatable; `*` means all
    #[arg(long, value_name = "NAME")]
    pub(crate) enforce: Vec<String>,

    #[command(flatten)]
    pub(crate) logs: LogArgs,

    /// List the N most denied clients of each policy
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=1_000))]
    pub(crate) top: u16,

    /// Print one JSON object instead of text; `ratewright schema --simulate` prints its schema
    #[arg(long)]
    pub(crate) json: bool,

    /// Also write the report as a self-contained HTML page with charts
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct SuggestArgs {
    #[command(flatten)]
    pub(crate) logs: LogArgs,

    /// Attributes that identify a client, comma-separated: ip, user, path, header:NAME, cookie:NAME, query:NAME; empty: one bucket for all requests
    #[arg(long, value_name = "ATTRIBUTES", default_value = "ip")]
    pub(crate) by: String,

    /// Only requests with this path, such as /login or /api/**; repeatable
    #[arg(long, value_name = "PATTERN")]
    pub(crate) path: Vec<String>,

    /// Only requests with this method; repeatable
    #[arg(short = 'X', long, value_name = "METHOD")]
    pub(crate) method: Vec<String>,

    /// Burst: requests that a client may send at once; comma-separated values each get their own rate
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "20", value_parser = burst)]
    pub(crate) burst: Vec<NonZeroU32>,

    /// The largest share that may be denied: 0.1% or 1/1000
    #[arg(long, value_name = "SHARE", default_value = "0.1%")]
    pub(crate) deny_at_most: DeniedShare,

    /// Unit of --deny-at-most: share of all requests, or share of clients with at least one denied request
    #[arg(long, value_name = "UNIT", default_value = "requests")]
    pub(crate) of: ShareOfArg,

    /// Take the sections `clients` (trusted proxies, addresses, paths), `exempt` and `routes` from this policy file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Merge the profile's file over it: ratewright.NAME.yaml over ratewright.yaml
    #[arg(long, value_name = "NAME", env = "RATEWRIGHT_PROFILE")]
    pub(crate) profile: Option<String>,

    /// List the N clients that the suggested rate denies most
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=1_000))]
    pub(crate) top: u16,

    /// Print one JSON object instead of text; `ratewright schema --suggest` prints its schema
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a share is a share of.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum ShareOfArg {
    Requests,
    Clients,
}

/// Logs, and how to read them.
#[derive(Args, Debug)]
pub(crate) struct LogArgs {
    /// Access logs, in any order, plain or compressed with gzip or zstd; `-` is standard input
    #[arg(value_name = "LOG", default_value = "-")]
    pub(crate) logs: Vec<PathBuf>,

    /// Format of the logs: combined, common, ratewright, envoy, envoy-json, traefik, caddy, alb, json, csv [default: detected from the first lines]
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) format: Option<String>,

    /// Field mapping for --format json or csv, such as time=ts,ip=client.addr,method=verb,path=uri,status=code
    ///
    /// Fields: time, ip, forwarded_for, method, path, host, user, route, status, request_bytes, denied, policy, header:NAME, cookie:NAME,
    /// query:NAME, claim:NAME, attribute:NAME.
    #[arg(long, value_name = "MAP")]
    pub(crate) fields: Option<FieldMap>,

    /// If the log has whole seconds only, spread the requests of each second evenly over it [default: replay them at the same instant]
    #[arg(long)]
    pub(crate) spread: bool,

    /// Assume that no request has this attribute, for attributes that the log does not record, such as user or header:X-Api-Key; repeatable
    #[arg(long, value_name = "ATTRIBUTE", value_parser = attribute)]
    pub(crate) assume_absent: Vec<AttributeName<String>>,

    /// Maximum size of one log after decompression; the rest is not read, and the exit status is 1
    #[arg(long, value_name = "SIZE", default_value = "1TiB", value_parser = size)]
    pub(crate) max_size: u64,
}

fn attribute(text: &str) -> Result<AttributeName<String>, &'static str> {
    AttributeName::parse(text)
        .ok_or("use ip, user, method, path, host, route, header:NAME, cookie:NAME, query:NAME or claim:NAME")
}

fn burst(text: &str) -> Result<NonZeroU32, &'static str> {
    text.trim().parse().map_err(|_| "use a whole number from 1")
}

/// A size in bytes: a whole number, with KiB, MiB, GiB or TiB.
fn size(text: &str) -> Result<u64, &'static str> {
    const UNITS: [(&str, u32); 5] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("", 0)];
    let parse = |(unit, shift): &(&str, u32)| {
        let number = text.strip_suffix(unit)?.trim_end().parse::<u64>().ok()?;
        number.checked_mul(1 << shift)
    };
    UNITS.iter().find_map(parse).filter(|size| *size > 0).ok_or("use a size such as 500MiB or 2TiB")
}

pub(super) const SIMULATE_EXAMPLES: &str = "\
Exit status:
  0  every line was replayed or is not a request
  1  some lines or logs could not be read, or were more than a minute out of order, or no policy applied to any request; the report says which
  2  invalid option or policy file, a log could not be opened, or the HTML file could not be written

A policy file:
  policies:
    - name: login
      by: ip
      when: { path: /login, method: POST }
      quota: { rate: 5/min, burst: 10 }

Examples:
  ratewright simulate -c new.yaml access.log
  ratewright simulate -c new.yaml --against ratewright.yaml /var/log/nginx/access.log*
  ratewright simulate -c new.yaml --enforce per-ip --html report.html access.log
  ratewright simulate -c new.yaml access.log* --json | jq '.policies[] | [.policy, .denied]'
  ratewright simulate -c new.yaml --format csv --fields time=1,ip=3,path=5 export.csv";

pub(super) const SUGGEST_EXAMPLES: &str = "\
Exit status:
  0  every line was replayed or is not a request, and every burst has a rate
  1  a burst has no suitable rate, no request matches, or some lines were unreadable or out of order
  2  invalid option or policy file, or a log could not be opened

Examples:
  ratewright suggest access.log
  ratewright suggest access.log --by ip --path '/api/**' --burst 20 --deny-at-most 0.1%
  ratewright suggest access.log* --burst 5,20,100 --deny-at-most 1% --of clients
  ratewright suggest access.log --by user --json | jq '.bursts[] | [.burst, .rate]'";
