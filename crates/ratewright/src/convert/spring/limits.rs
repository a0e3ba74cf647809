//! Custom properties of an application's own rate limits: a section `rate-limit` with limits by name, as a Bucket4j filter has them.
//!
//! ```text
//!   rate-limit:
//!     default-limit: {capacity: 100, refill-tokens: 10, refill-period: 1s}
//!     limits:
//!       login: {capacity: 10, window: 1m, refill-tokens: 1, refill-period: 6s, retry-after-seconds: 60}
//! ```
//!
//! Each limit is a policy of the group `endpoint`, the default one last. Which paths a limit covers is usually code; it is guessed
//! from the limit's name.

mod one_limit;

use super::exemptions::Exemptions;
use super::path_overlap;
use super::path_regex;
use super::predicates::{PATTERN_MAX, policy_patterns};
use super::properties::{SpringProperty, is_same};
use super::reader::{A_NAME, A_NUMBER, SpringReader};
use crate::convert::policy_file_draft::{DraftItem, quoted, quoted_list};
use one_limit::NamedLimit;

/// Names of sections with limits.
const SECTIONS: [&str; 5] = ["rate-limit", "rate-limiter", "rate-limiting", "rate-limits", "throttling"];

/// Sections that others own.
const FOREIGN: [&str; 4] = ["spring", "bucket4j", "resilience4j", "management"];

/// A limit is compared with this many limits before it.
const GROUP_MAX: usize = 500;

/// How deep a section of limits may be: `com.example.app.rate-limit`.
const DEPTH_MAX: usize = 6;

const LIMITS: [&str; 6] = ["limits", "policies", "endpoints", "rules", "buckets", "configs"];
const DEFAULT_LIMIT: [&str; 4] = ["default-limit", "default", "default-policy", "default-config"];
const EXEMPT_PATHS: [&str; 7] = [
    "skip-paths",
    "exclude-paths",
    "excluded-paths",
    "exclude-patterns",
    "ignored-paths",
    "whitelist-paths",
    "skip-patterns",
];
const EXEMPT_METHODS: [&str; 3] = ["skip-methods", "exclude-methods", "excluded-methods"];
const EXEMPT_CLIENTS: [&str; 5] =
    ["whitelist-ips", "ip-whitelist", "whitelisted-ips", "allowed-ips", "exclude-ips"];
const PREFIX: [&str; 3] = ["redis-key-prefix", "key-prefix", "prefix"];
const KEY: [&str; 6] = ["key-type", "key-strategy", "client-key", "key-resolver", "key", "by"];

/// The advice for properties that nothing reads.
const UNKNOWN: &str = "this property is not known; docs/reference/configuration.md lists all settings";

/// Converts all sections of limits, and returns their number.
pub(super) fn convert(reader: &mut SpringReader<'_>) -> usize {
    let mut found = Vec::new();
    sections(reader.root, 0, &mut found);
    let (sections, others): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|section| !section.entries().is_empty());
    for section in &sections {
        convert_section(reader, section);
    }
    let resilience4j = reader.root.get("resilience4j.ratelimiter");
    for other in others.into_iter().chain(resilience4j) {
        let comment =
            reader.not_converted(other, "rate limits in this form are not read; write policies for them");
        reader.draft.section("policies").comment(comment);
    }
    sections.len()
}

/// Collects the sections of limits below a property; of lists and of items in lists too, to report them.
fn sections<'a>(property: &'a SpringProperty, depth: usize, found: &mut Vec<&'a SpringProperty>) {
    for (name, section) in property.entries() {
        let is_foreign = depth == 0 && FOREIGN.contains(&name.as_str());
        if is_foreign || section.is_null() {
            continue;
        }
        if SECTIONS.iter().any(|known| is_same(known, name)) {
            found.push(section);
        } else if depth < DEPTH_MAX {
            sections(section, depth + 1, found);
        }
    }
    for item in property.items().iter().filter(|_| depth < DEPTH_MAX) {
        let n_found = found.len();
        sections(item, depth + 1, found);
        // A section for each item: the policies would need the item's name and paths.
        if found.len() > n_found {
            found.truncate(n_found);
            found.push(property);
            return;
        }
    }
}

fn convert_section<'a>(reader: &mut SpringReader<'a>, section: &'a SpringProperty) {
    exemptions(reader, section);
    store(reader, section);
    ad_hoc_defaults(reader, section);
    let first_policy = reader.n_policies();
    policies(reader, section);
    if reader.n_policies() > first_policy {
        assumptions(reader, section);
    }
    reader.add_switch(section.get("enabled"), first_policy);
    let comments = reader.leftovers(section, UNKNOWN);
    let policies = reader.draft.section("policies");
    comments.into_iter().for_each(|comment| policies.comment(comment));
}

/// Reports what only the application's code knows.
fn assumptions(reader: &mut SpringReader<'_>, section: &SpringProperty) {
    let mut assumed = Vec::new();
    if section.first_of(&KEY).is_none() {
        assumed.push("limits count by client address; for users write by: { first_of: [user, ip] }");
    }
    assumed.push("tokens come back evenly (refillGreedy); for refillIntervally add refill: stepped");
    if reader.exempted.is_none() {
        assumed.push("/health, /static/** and Ratewright's other defaults are exempt; see exempt");
    }
    for assumption in assumed {
        reader.warn(section, &format!("the file does not say; assumed: {assumption}"));
        reader.draft.section("policies").comment(format!("assumed: {assumption}"));
    }
}

/// Lists of requests that are never limited.
fn exemptions<'a>(reader: &mut SpringReader<'a>, section: &'a SpringProperty) {
    let mut own = Exemptions::default();
    for (names, list) in [
        (&EXEMPT_PATHS[..], &mut own.paths),
        (&EXEMPT_METHODS[..], &mut own.methods),
        (&EXEMPT_CLIENTS[..], &mut own.clients),
    ] {
        let Some(property) = section.first_of(names) else { continue };
        own.property = own.property.or(Some(property));
        list.extend(reader.texts(property, A_NAME).into_iter().map(|text| text.written));
    }
    if own.property.is_some() {
        reader.exempted.get_or_insert_default().merge(own);
    }
}

/// The prefix of keys, and what happens without Redis.
fn store(reader: &mut SpringReader<'_>, section: &SpringProperty) {
    if let Some(text) = section.first_of(&PREFIX).and_then(|prefix| reader.text(prefix, A_NAME)) {
        let prefix = text.written.trim_end_matches(':').to_owned();
        set_store(reader, section, "redis.prefix", quoted(&prefix));
    }
    let without_redis = section.get("fallback-enabled");
    let fallback = without_redis.and_then(|property| reader.switch(property, true));
    let open = section.first_of(&["fail-open", "failure-mode-allow"]);
    let open = open.and_then(|property| reader.switch(property, false));
    let on_failure = match (fallback, open) {
        (Some(true), _) => Some("local"),
        (Some(false) | None, Some(true)) => Some("open"),
        (Some(false) | None, Some(false)) => Some("closed"),
        (Some(false), None) => {
            // Spring Cloud Gateway and filters like it let requests pass without Redis and without a fallback.
            let advice =
                "on_failure: open, requests pass while Redis is gone; write closed or local to be strict";
            without_redis.into_iter().for_each(|property| reader.assume(property, advice));
            Some("open")
        }
        (None, None) => None,
    };
    let comments = reader.assumed();
    comments.into_iter().for_each(|comment| reader.draft.section("store").comment(comment));
    if let Some(on_failure) = on_failure {
        set_store(reader, section, "on_failure", on_failure.to_owned());
    }
    let share = section.first_of(&["fallback-reduction", "fallback-ratio"]);
    if let Some(share) = share.and_then(|property| reader.text(property, A_NUMBER)) {
        set_store(reader, section, "local.share", quoted(&share.written));
    }
    let ttl = section.first_of(&["local-cache-ttl-seconds", "local-cache-ttl"]);
    if let Some(ttl) = ttl.and_then(|property| reader.duration(property)) {
        set_store(reader, section, "local.ttl", quoted(&ttl.text));
    }
}

/// Sets a setting of the store. There is one store: of several sections the first counts, and the others are reported.
fn set_store(reader: &mut SpringReader<'_>, section: &SpringProperty, name: &str, value: String) {
    if !reader.draft.section("store").sets(name) {
        reader.draft.section("store").set(name, value);
        return;
    }
    let note = format!("not converted: store.{name} {value} of {}; another section has set it", section.name);
    reader.warn(section, &note);
    reader.draft.section("store").comment(note);
}

/// The algorithms of a decision service: `token-bucket: {capacity: 100, refill-rate: 10}`.
fn ad_hoc_defaults(reader: &mut SpringReader<'_>, section: &SpringProperty) {
    const NAMES: [(&str, &str); 6] = [
        ("token-bucket", "token_bucket"),
        ("leaky-bucket", "leaky_bucket"),
        ("sliding-window-log", "sliding_window"),
        ("sliding-window", "sliding_window"),
        ("sliding-window-counter", "sliding_window_counter"),
        ("fixed-window", "fixed_window"),
    ];
    for (name, algorithm) in NAMES {
        let Some(property) = section.get(name).filter(|property| !property.entries().is_empty()) else {
            continue;
        };
        let quota = one_limit::ad_hoc_quota(reader, property, algorithm);
        let comments = reader.leftovers(property, UNKNOWN);
        let api = reader.draft.section("api");
        comments.into_iter().for_each(|comment| api.comment(comment));
        if let Some(quota) = quota {
            api.set(&format!("defaults.{algorithm}"), quota);
        }
    }
    let Some(property) = section.first_of(&["default-algorithm", "algorithm"]) else { return };
    if property.text().is_some_and(|text| is_same(text, "token-bucket")) {
        return; // Ratewright's default
    }
    let comment = reader.not_converted(property, "callers of /check name the algorithm: ?algorithm=…");
    reader.draft.section("api").comment(comment);
}

/// The limits by name, and the default one last.
fn policies(reader: &mut SpringReader<'_>, section: &SpringProperty) {
    let default = section.first_of(&DEFAULT_LIMIT).filter(|limit| !limit.entries().is_empty());
    let limits = section.first_of(&LIMITS);
    let named = limits.map(SpringProperty::entries).unwrap_or_default().iter();
    let listed = limits.map(SpringProperty::items).unwrap_or_default().iter().map(|limit| {
        let name = limit.first_of(&["name", "id", "key"]).and_then(SpringProperty::text);
        (name.unwrap_or("limit").to_owned(), limit)
    });
    let all: Vec<_> = named.map(|(name, limit)| (name.clone(), limit)).chain(listed).collect();
    let (defaults, named): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| is_same(name, "default"));
    // A limit at the top of the section, without a name.
    let own = default.is_none() && defaults.is_empty() && section.first_of(&one_limit::ANY).is_some();
    let key = section.first_of(&KEY);
    // Each section has its own group: of a group only the first match applies.
    let group = (!named.is_empty()).then(|| reader.unique_name("endpoint", "group"));
    let group = group.as_deref();
    let mut in_group = Vec::new();
    for (name, limit) in named {
        let limit = NamedLimit {
            name,
            properties: limit,
            default: None,
            key,
            is_default: false,
            is_section: false,
            group,
        };
        add(reader, &limit, &mut in_group);
    }
    let last = defaults.first().map(|(_, limit)| *limit).or(default).or_else(|| own.then_some(section));
    if let Some(properties) = last {
        let name = "default".to_owned();
        let is_section = std::ptr::eq(properties, section);
        let limit = NamedLimit { name, properties, default, key, is_default: true, is_section, group };
        add(reader, &limit, &mut in_group);
    }
}

fn add(reader: &mut SpringReader<'_>, limit: &NamedLimit<'_>, group: &mut Vec<Vec<String>>) {
    let Some((mut policy, paths)) = limit.policy(reader) else { return };
    // Of a group the first match applies: a limit goes before those that would hide it.
    let is_hidden_by = |others: &Vec<String>| {
        let is_covered = |path: &String| others.iter().any(|other| path_overlap::covers(other, path));
        !paths.is_empty() && *others != paths && paths.iter().all(is_covered)
    };
    let at = group.iter().take(GROUP_MAX).position(is_hidden_by);
    if at.is_some() {
        let advice = "it applies before limits with broader paths; the file has it after one";
        reader.warn(limit.properties, &format!("assumed: {advice}"));
        policy.comment(format!("assumed: {advice}"));
    }
    let policies = &mut reader.draft.section("policies").items;
    let first = policies.len().saturating_sub(group.len());
    let at = at.unwrap_or(group.len());
    policies.insert(first + at, policy);
    group.insert(at, paths);
}

/// The paths that a limit of this name probably covers.
fn paths_of_name(name: &str) -> Vec<String> {
    let known: &[&str] = match name.to_ascii_lowercase().as_str() {
        "login" | "auth" => &["**/login**", "**/auth**", "**/signin**"],
        "recovery" | "password-recovery" => &["**/recovery**", "**/reset**", "**/forgot**"],
        _ => return vec![format!("**/{}**", name.to_ascii_lowercase())],
    };
    known.iter().map(|path| (*path).to_owned()).collect()
}

/// The patterns of a path, which may be a regular expression. None for one that patterns cannot express.
fn patterns(path: &str) -> Option<Vec<String>> {
    let is_regex = path.contains(".*") || path.contains(".+") || path.contains(['^', '\\', '(', '|', '[']);
    if is_regex || path.ends_with('$') {
        return path_regex::patterns(path);
    }
    (path.len() <= PATTERN_MAX).then(|| policy_patterns(path))
}

/// Writes which requests a limit covers.
fn conditions(reader: &mut SpringReader<'_>, limit: &NamedLimit<'_>, policy: &mut DraftItem) -> Vec<String> {
    const PATHS: [&str; 8] = ["paths", "path", "patterns", "pattern", "path-patterns", "urls", "url", "uri"];
    let properties = limit.properties;
    let mut conditions = Vec::new();
    let mut limit_paths = Vec::new();
    if let Some(paths) = properties.first_of(&PATHS) {
        let texts = reader.texts(paths, A_NAME);
        let all: Option<Vec<_>> = texts.iter().map(|text| patterns(&text.written)).collect();
        let all = all.map(|lists| lists.concat()).unwrap_or_else(|| {
            reader.assume(paths, "all paths; patterns cannot express this regular expression");
            vec!["**".to_owned()]
        });
        conditions.push(format!("path: {}", quoted_list(&all)));
        limit_paths = all;
    } else if !limit.is_default {
        let paths = quoted_list(&paths_of_name(&limit.name));
        reader.warn(
            properties,
            &format!("the file does not name its paths; assumed {paths}. Compare them with your filter"),
        );
        policy.comment("assumed: the paths, from the limit's name. Compare them with your filter.");
        conditions.push(format!("path: {paths}"));
    }
    if let Some(methods) = properties.first_of(&["methods", "method", "http-methods"]) {
        let texts: Vec<_> = reader.texts(methods, A_NAME).into_iter().map(|text| text.written).collect();
        conditions.push(format!("method: {}", quoted_list(&texts)));
    }
    if !conditions.is_empty() {
        policy.set("when", format!("{{ {} }}", conditions.join(", ")));
    }
    limit_paths
}
