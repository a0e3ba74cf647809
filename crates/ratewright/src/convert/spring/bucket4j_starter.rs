//! bucket4j-spring-boot-starter: filters with a url, and limits with bandwidths.
//!
//! ```text
//!   bucket4j.filters[]: url (a regular expression)
//!     rate-limits[]: cache-key, conditions (expressions)
//!       bandwidths[]: capacity, time, unit, refill-speed
//! ```
//!
//! A condition that cannot be converted is left out, so that the limit holds for more requests than before, never for fewer.

use ratewright_core::Micros;
use ratewright_core::quota::Refill;

use super::client_keys::CountedBy;
use super::path_regex;
use super::properties::{SpringProperty, is_same};
use super::quotas::DraftBucket;
use super::reader::{A_NAME, A_NUMBER, DraftDuration, SpringReader};
use crate::convert::policy_file_draft::{DraftItem, quoted, quoted_list};

/// Properties that say how Java keeps the buckets, and have no meaning here.
const OF_JAVA: [&str; 9] = [
    "cache-name",
    "cache-to-use",
    "filter-method",
    "filter-order",
    "filter-config-cache-name",
    "filter-config-caching-enabled",
    "major-version",
    "minor-version",
    "strategy",
];

/// Units of time, in seconds; those below are in microseconds.
const UNITS: [(&str, u64); 7] = [
    ("seconds", 1),
    ("minutes", 60),
    ("hours", 3_600),
    ("half-days", 43_200),
    ("days", 86_400),
    ("weeks", 604_800),
    ("months", 2_592_000),
];

/// Units of time that a policy file has too; there, a number may be a variable.
const SHORT_UNITS: [(&str, &str); 5] =
    [("millis", "ms"), ("seconds", "s"), ("minutes", "min"), ("hours", "h"), ("days", "d")];

/// Converts the filters. Returns whether there are any.
pub(super) fn convert(reader: &mut SpringReader<'_>) -> bool {
    let Some(section) = reader.root.get("bucket4j").filter(|section| !section.entries().is_empty()) else {
        return false;
    };
    let first_policy = reader.n_policies();
    for (n, filter) in
        section.get("filters").map(SpringProperty::items).unwrap_or_default().iter().enumerate()
    {
        convert_filter(reader, filter, n);
    }
    reader.add_switch(section.get("enabled"), first_policy);
    read_silently(section);
    let comments = reader.leftovers(section, "this property of the starter has no equivalent");
    let policies = reader.draft.section("policies");
    comments.into_iter().for_each(|comment| policies.comment(comment));
    true
}

fn read_silently(section: &SpringProperty) {
    OF_JAVA.iter().filter_map(|name| section.get(name)).for_each(SpringProperty::set_read);
}

fn convert_filter(reader: &mut SpringReader<'_>, filter: &SpringProperty, n: usize) {
    let name = filter
        .get("id")
        .and_then(SpringProperty::text)
        .map_or_else(|| format!("filter-{}", n + 1), str::to_owned);
    let strategy = filter.get("strategy").and_then(|strategy| reader.text(strategy, "all"));
    // A variable: all limits apply, as that is stricter.
    let is_first = !strategy.is_some_and(|text| text.has_variables() || is_same(&text.written, "all"));
    read_silently(filter);
    let paths = filter.get("url").and_then(|url| paths(reader, url));
    let list = filter.get("rate-limits");
    // With one limit, the list may be missing.
    let limits = list.map(SpringProperty::items).filter(|items| !items.is_empty());
    let limits: Vec<_> = match limits {
        Some(items) => items.iter().collect(),
        None => list.into_iter().collect(),
    };
    let has_conditions = limits.iter().any(|limit| conditions(limit).next().is_some());
    let is_group = is_first && limits.len() > 1 && !has_conditions;
    let group = is_group.then(|| reader.unique_name(&name, "group"));
    for limit in limits {
        let policy_name = reader.unique_name(&name, "policy");
        let mut policy = DraftItem::new(policy_name, limit.place);
        if let Some(group) = &group {
            policy.set("group", quoted(group));
        }
        if let Some(paths) = &paths {
            policy.set("when", format!("{{ path: {} }}", quoted_list(paths)));
        }
        if convert_limit(reader, limit, &mut policy).is_some() {
            reader.draft.section("policies").items.push(policy);
        }
    }
    let comments = reader.leftovers(filter, "this property of the starter has no equivalent");
    let policies = &mut reader.draft.section("policies").items;
    if let Some(policy) = policies.last_mut() {
        comments.into_iter().for_each(|comment| policy.comment(comment));
    }
}

/// The paths of a filter; None for all.
fn paths(reader: &mut SpringReader<'_>, url: &SpringProperty) -> Option<Vec<String>> {
    let text = reader.text(url, A_NAME)?;
    let patterns = text.value.as_deref().and_then(path_regex::patterns);
    match patterns {
        None => {
            reader.warn(url, "this regular expression has no equivalent; the limit covers all paths. Write when: { path: … }");
            None
        }
        Some(patterns) if patterns == ["**"] => None,
        Some(patterns) => Some(patterns),
    }
}

/// The expressions that choose requests.
fn conditions(limit: &SpringProperty) -> impl Iterator<Item = &SpringProperty> {
    const NAMES: [&str; 5] = [
        "execute-condition",
        "skip-condition",
        "post-execute-condition",
        "execute-predicates",
        "skip-predicates",
    ];
    NAMES.iter().filter_map(|name| limit.get(name))
}

/// Writes a limit into its policy. None if it is invalid, which is reported.
fn convert_limit(
    reader: &mut SpringReader<'_>,
    limit: &SpringProperty,
    policy: &mut DraftItem,
) -> Option<()> {
    let key = limit.first_of(&["cache-key", "expression"]);
    let by = match key.and_then(SpringProperty::text) {
        None => CountedBy::Everybody,
        Some(expression) => {
            let by = CountedBy::of_expression(expression).unwrap_or(CountedBy::Ip);
            if !CountedBy::is_exact(expression) {
                let shown = by.setting().unwrap_or_else(|| "one bucket for everybody".to_owned());
                let assumption = format!("by: {shown}; expressions are not evaluated, compare it with yours");
                reader.assume(key.unwrap_or(limit), &assumption);
            }
            by
        }
    };
    if matches!(by, CountedBy::User | CountedBy::UserOrIp) {
        reader.identify_users();
    }
    if let Some(setting) = by.setting() {
        policy.set("by", setting);
    }
    if by.may_be_missing() {
        policy.set("missing", "deny");
        let assumption = "missing: deny, requests without it get 403; the starter counts them together. Or write missing: ip, to count by address";
        reader.assume(key.unwrap_or(limit), assumption);
    }
    let bandwidths = limit.get("bandwidths");
    let mut quotas = Vec::new();
    for (n, bandwidth) in bandwidths.map(SpringProperty::items).unwrap_or_default().iter().enumerate() {
        let quota = bandwidth_quota(reader, bandwidth)?;
        let id = bandwidth
            .get("id")
            .and_then(SpringProperty::text)
            .map_or_else(|| format!("bandwidth-{}", n + 1), str::to_owned);
        let id = reader.unique_name(&id, &policy.name);
        quotas.push(if n == 0 {
            quota
        } else {
            quota.replacen('{', &format!("{{ name: {},", quoted(&id)), 1)
        });
    }
    if quotas.is_empty() {
        reader.error(limit, "a limit needs bandwidths, with capacity, time and unit");
        return None;
    }
    policy.set_all("quota", quotas);
    reader.assumed().into_iter().for_each(|comment| policy.comment(comment));
    for condition in conditions(limit).collect::<Vec<_>>() {
        let advice = "expressions are not read; the limit holds for all requests. See overrides and when";
        policy.comment(reader.not_converted(condition, advice));
    }
    for comment in reader.leftovers(limit, "this property of the starter has no equivalent") {
        policy.comment(comment);
    }
    Some(())
}

fn bandwidth_quota(reader: &mut SpringReader<'_>, bandwidth: &SpringProperty) -> Option<String> {
    let Some(capacity) = bandwidth.get("capacity") else {
        reader.error(bandwidth, "a bandwidth needs capacity, time and unit");
        return None;
    };
    let capacity = reader.positive(capacity)?;
    let units = match bandwidth.get("refill-capacity") {
        Some(property) => reader.positive(property)?,
        None => capacity.clone(),
    };
    let refill = reader.refill(bandwidth.get("refill-speed"));
    let fixed = bandwidth.get("fixed-refill-interval").and_then(|property| reader.number(property));
    let period = span(reader, bandwidth, "time", "unit")?;
    let (period, refill) = match fixed.filter(|fixed| fixed.text != "0") {
        Some(_) => {
            (span(reader, bandwidth, "fixed-refill-interval", "fixed-refill-interval-unit")?, Refill::Stepped)
        }
        None => (period, refill),
    };
    if let Some(unit) = bandwidth.get("fixed-refill-interval-unit") {
        unit.set_read();
    }
    Some(reader.bucket_quota(bandwidth, &DraftBucket { units, period, capacity, refill }))
}

/// A number and its unit, in two properties.
fn span(
    reader: &mut SpringReader<'_>,
    bandwidth: &SpringProperty,
    time: &str,
    unit: &str,
) -> Option<DraftDuration> {
    let (Some(time), Some(unit)) = (bandwidth.get(time), bandwidth.get(unit)) else {
        reader.error(bandwidth, "a bandwidth needs time and unit, such as time: 1 and unit: minutes");
        return None;
    };
    let count = reader.positive(time)?;
    let name = reader.fixed(unit, A_NAME)?;
    let short = SHORT_UNITS.iter().find(|(known, _)| is_same(known, &name)).map(|(_, short)| *short);
    if let Some(short) = short.filter(|_| count.text.contains('$')) {
        let unit = Micros::parse(&format!("1{short}")).map_or(0, Micros::as_micros);
        let value = count.value.map(|count| Micros::new(u64::from(count).saturating_mul(unit)));
        return Some(DraftDuration { text: format!("{}{short}", count.text), value });
    }
    let count = reader.fixed(time, A_NUMBER).and(count.value);
    let seconds = UNITS.iter().find(|(known, _)| is_same(known, &name)).map(|(_, seconds)| *seconds);
    let micros = match name.to_ascii_lowercase().as_str() {
        "millis" | "milliseconds" => Some(1_000),
        "micros" | "microseconds" => Some(1),
        _ => seconds.map(|seconds| seconds * 1_000_000),
    };
    let (Some(count), Some(micros)) = (count, micros) else {
        reader.error(unit, "time and unit must be known; write for example time: 1 and unit: minutes");
        return None;
    };
    Some(DraftDuration::known(Micros::new(u64::from(count).saturating_mul(micros))))
}
