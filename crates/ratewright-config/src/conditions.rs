//! Conditions on requests: `when`, `match` and `exempt`.

use ipnet::IpNet;
use ratewright_core::policy::{Condition, Pattern};
use ratewright_core::query::AttributeName;
use ratewright_http::path::{Case, normalise};

use crate::file;
use crate::ineffective_policies::UnavailableEffect;
use crate::raw_value::{ConfigValue, RawList, RawValue};
use crate::reader::Reader;
use crate::yaml_errors::closest;

/// Paths that are exempt by default.
const EXEMPT_PATHS: [&str; 11] = [
    "/actuator/**",
    "/health",
    "/health/**",
    "/healthz",
    "/livez",
    "/readyz",
    "/metrics",
    "/static/**",
    "/css/**",
    "/js/**",
    "/images/**",
];
const EXEMPT_METHODS: [&str; 1] = ["OPTIONS"];

/// The methods that standards define, and those that caches and notifications use.
const METHODS: [&str; 46] = [
    "ACL",
    "BAN",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "CONNECT",
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LABEL",
    "LINK",
    "LOCK",
    "M-SEARCH",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "NOTIFY",
    "OPTIONS",
    "ORDERPATCH",
    "PATCH",
    "POST",
    "PROPFIND",
    "PROPPATCH",
    "PURGE",
    "PUT",
    "QUERY",
    "REBIND",
    "REFRESH",
    "REPORT",
    "SEARCH",
    "SOURCE",
    "SUBSCRIBE",
    "TRACE",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UNSUBSCRIBE",
    "UPDATE",
    "VERSION-CONTROL",
];

/// What to write in place of a regular expression, if a pattern looks like one.
fn looks_like_regex(text: &str) -> Option<&'static str> {
    let marks = ["/.+", "\\d", "\\w", "\\.", "\\/", "[0-9]", "[a-z", "[A-Z", "[^", "(?", "]+", "]*", ").*"];
    let is_regex = text.starts_with('^')
        || text.len() > 1 && text.ends_with('$')
        || marks.iter().any(|mark| text.contains(mark))
        || text.contains('(') && text.contains('|');
    is_regex.then_some(
        "patterns are not regular expressions: * stands for any text within a segment, ** for any text. \
         Write a list for alternatives: [/a/**, /b/**]",
    )
}

/// Why no request path matches a pattern, and what to write instead. `shown` is the pattern as written, with its variables.
fn unmatched_path(text: &str, shown: &str) -> Option<String> {
    if text == "/" {
        return None;
    }
    if text.ends_with('/') {
        let advice = match shown.strip_suffix('/') {
            Some(shorter) => format!("Write {shorter}, or {shown}** to match everything below it too"),
            None => {
                format!("Remove the slash at the end, or write {shown}** to match everything below it too")
            }
        };
        return Some(format!(
            ", which matches no request: paths are compared without a slash at the end. {advice}"
        ));
    }
    let mistake = if text.contains(['?', '#']) {
        ", which matches no request: paths are compared without the query. Remove the query; to match a \
         parameter, use query:NAME"
    } else if text.contains("/.*") {
        ", which matches only names that begin with a dot. Write * for any text within a segment, ** for any text"
    } else if text.contains(['{', '}']) || text.contains("/:") {
        "; only routes have parameters such as {id}. Write * for any text within a segment: /users/*"
    } else {
        return not_normal(text, shown);
    };
    Some(mistake.to_owned())
}

/// The advice for a pattern that is not in normal form.
fn not_normal(text: &str, shown: &str) -> Option<String> {
    // An example path, with a text for each star.
    let example = text.replace('*', "x");
    let example = if example.starts_with('/') { example } else { format!("/{example}") };
    let normal = normalise(&example, Case::Sensitive);
    if normal == example {
        return None;
    }
    let is_shown = text == shown && !text.contains('*');
    let advised = if is_shown { &*normal } else { "the pattern in that form" };
    Some(format!(
        ", but paths are compared in their normal form: decoded, without //, . and .., and without parameters (;v=1). Write {advised}"
    ))
}

impl Reader<'_> {
    /// Tests that must all hold.
    pub(crate) fn condition(&mut self, path: &str, raw: &file::Condition, case: Case) -> Option<Condition> {
        let mut condition = Condition::default();
        let mut is_valid = self.has_each_attribute_once(path, raw);
        for (name, patterns) in &raw.0 {
            let path = format!("{path}.{name}");
            let added = match AttributeName::from_text(name) {
                Err(why) => {
                    self.error(patterns.position, format!("{path}: unknown attribute {name:?}; {why}"));
                    None
                }
                Ok(_) if patterns.items.is_empty() => {
                    self.error(
                        patterns.position,
                        format!("{path} is an empty list, which matches nothing; remove it"),
                    );
                    None
                }
                Ok(AttributeName::Ip) => {
                    self.networks(&path, patterns).map(|networks| condition.clone().and_within(networks))
                }
                Ok(name) => {
                    self.check_available(&path, [&name], patterns.position, UnavailableEffect::Ignored);
                    let patterns = self.patterns(&path, &name, patterns, case);
                    patterns.map(|patterns| condition.clone().and_fits(name, patterns))
                }
            };
            match added {
                Some(added) => condition = added,
                None => is_valid = false,
            }
        }
        is_valid.then_some(condition)
    }

    /// False, and an error, if a condition names a header twice. Only names of headers can be spelled in two ways.
    fn has_each_attribute_once(&mut self, path: &str, raw: &file::Condition) -> bool {
        let mut names: Vec<_> = raw.0.iter().map(|(name, patterns)| (patterns.position, name)).collect();
        names.sort();
        let mut known: Vec<(AttributeName<String>, &String)> = Vec::new();
        let n_errors = self.errors.len();
        for (position, text) in names {
            let Ok(name) = AttributeName::from_text(text) else { continue };
            if let Some((_, first)) = known.iter().find(|(known, _)| *known == name) {
                let problem = format!(
                    "{path} has the same header twice, as {first:?} and {text:?} (header names are case-insensitive); \
                     write it once, with a list of patterns"
                );
                self.error(position, problem);
            }
            known.push((name, text));
        }
        self.errors.len() == n_errors
    }

    fn networks(&mut self, path: &str, raw: &RawList<String>) -> Option<Vec<IpNet>> {
        raw.items.iter().map(|network| self.read(path, &network.cast())).collect()
    }

    fn patterns(
        &mut self,
        path: &str,
        name: &AttributeName<String>,
        raw: &RawList<String>,
        case: Case,
    ) -> Option<Vec<Pattern>> {
        let patterns: Vec<_> =
            raw.items.iter().map(|pattern| self.pattern(path, name, pattern, case)).collect();
        patterns.into_iter().collect()
    }

    pub(crate) fn pattern(
        &mut self,
        path: &str,
        name: &AttributeName<String>,
        raw: &RawValue<String>,
        case: Case,
    ) -> Option<Pattern> {
        let mut text = self.read(path, raw)?;
        if let Some(problem) = looks_like_regex(&text) {
            self.error(raw.position, format!("{path} is {:?}; {problem}", raw.text));
            return None;
        }
        match name {
            AttributeName::Method => text = self.method(path, &text, raw)?,
            AttributeName::Host => {
                text = text.to_ascii_lowercase();
                self.check_host(path, &text, raw);
            }
            AttributeName::Path if !text.starts_with(['/', '*']) => {
                let problem = format!("{path} is {:?}, which matches no path; begin with / or **", raw.text);
                self.error(raw.position, problem);
                return None;
            }
            AttributeName::Path => {
                self.check_path(path, &text, raw);
                if case == Case::Insensitive {
                    text = text.to_ascii_lowercase();
                }
            }
            AttributeName::Header(header) if header == "authorization" => {
                text = ratewright_http::parts::credentials_pattern(&text);
            }
            AttributeName::Route => self.check_route(path, &text, raw.position),
            AttributeName::Ip
            | AttributeName::User
            | AttributeName::Key
            | AttributeName::Header(_)
            | AttributeName::Cookie(_)
            | AttributeName::Param(_)
            | AttributeName::Claim(_)
            | AttributeName::Named(_) => {}
        }
        let parse = |text: &str| Pattern::new(text, name.separator()).map_err(|error| error.to_string());
        let pattern = self.parse_expanded(raw, &text, parse);
        pattern.map_err(|why| self.error(raw.position, format!("{path}: {why}"))).ok()
    }

    /// A method, or a pattern of methods, in capitals.
    pub(crate) fn method(&mut self, path: &str, text: &str, raw: &RawValue<String>) -> Option<String> {
        let method = text.to_ascii_uppercase();
        if method.contains('*') || METHODS.contains(&method.as_str()) {
            return Some(method);
        }
        let (position, shown) = (raw.position, &raw.text);
        if method.parse::<http::Method>().is_err() {
            let problem = format!("{path} is {shown:?}, which is not a method; use GET, POST or another one");
            self.error(position, problem);
            return None;
        }
        if let Some(like) = closest(&method, &METHODS) {
            self.error(position, format!("{path} is {shown:?}, which is not a method; did you mean {like}?"));
            return None;
        }
        let problem = format!(
            "{path} is {shown:?}, which is not a standard method; it matches only requests with exactly this method"
        );
        self.warn(position, problem);
        Some(method)
    }

    /// Warns of a pattern that no request path matches, since paths are compared in normal form.
    fn check_path(&mut self, path: &str, text: &str, raw: &RawValue<String>) {
        if let Some(mistake) = unmatched_path(text, &raw.text) {
            self.warn(raw.position, format!("{path} is {:?}{mistake}", raw.text));
        }
    }

    /// Warns of a pattern that no host matches.
    fn check_host(&mut self, path: &str, text: &str, raw: &RawValue<String>) {
        let example = text.replace('*', "x");
        if ratewright_http::parts::host_of(&example).as_deref() != Some(&example) {
            let problem = format!(
                "{path} is {:?}, which matches no request: hosts are compared without port, user and a dot at the end: \
                 api.example.com, *.example.com",
                raw.text
            );
            self.warn(raw.position, problem);
        }
    }

    /// The conditions of `exempt`. A request that meets any of these conditions is exempt.
    pub(crate) fn exempt(&mut self, raw: file::Exempt, case: Case) -> Vec<Condition> {
        let without_position = |texts: &[&str]| RawList {
            items: texts.iter().map(|text| RawValue::without_position(text)).collect(),
            position: None,
        };
        let paths = raw.paths.unwrap_or_else(|| without_position(&EXEMPT_PATHS));
        let methods = raw.methods.unwrap_or_else(|| without_position(&EXEMPT_METHODS));
        let paths = self.patterns("exempt.paths", &AttributeName::Path, &paths, case).unwrap_or_default();
        let methods =
            self.patterns("exempt.methods", &AttributeName::Method, &methods, case).unwrap_or_default();
        let clients = self.read_all("exempt.clients", &raw.clients).unwrap_or_default();
        let conditions = [
            Condition::default().and_fits(AttributeName::Path, paths),
            Condition::default().and_fits(AttributeName::Method, methods),
            Condition::default().and_within(clients),
        ];
        conditions.into()
    }
}
