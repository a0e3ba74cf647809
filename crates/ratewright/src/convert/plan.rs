//! In which order policies have to stand, to mean what descriptors mean.

use ratewright_core::Pattern;
use ratewright_rls_rules::{Descriptor, RateLimit};

/// One line of the plan.
pub(super) enum Line<'a> {
    Said(Said<'a>),
    /// What cannot be said, and why.
    Unsaid(String),
}

/// A policy.
pub(super) struct Said<'a> {
    pub(super) path: String,
    pub(super) remarks: Vec<String>,
    /// Keys, and what their values must fit.
    pub(super) when: Vec<(String, String)>,
    /// Keys whose values have buckets of their own.
    pub(super) by: Vec<String>,
    pub(super) terms: Terms<'a>,
    pub(super) is_shadow: bool,
}

/// Who passes.
#[derive(Clone, Copy)]
pub(super) enum Terms<'a> {
    Limits(&'a [RateLimit]),
    Nobody,
    Everybody,
}

/// The way down to a descriptor.
#[derive(Clone, Default)]
struct Way {
    path: Vec<String>,
    when: Vec<(String, String)>,
    by: Vec<String>,
}

/// The policies of a domain.
pub(super) fn lines(descriptors: &[Descriptor]) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let mut ways = Vec::new();
    keys(descriptors, &mut Vec::new(), &mut ways, &mut lines);
    ways.sort_by_key(|way| std::cmp::Reverse(way.len()));
    for (n, way) in ways.iter().enumerate() {
        let n_lines = lines.len();
        below(descriptors, way, &Way::default(), &mut lines);
        drop_last_off(&mut lines, n_lines);
        let is_within = |other: &Vec<String>| other.iter().all(|key| way.contains(key));
        if ways[n + 1..].iter().any(is_within) {
            let every = way.iter().map(|key| (key.clone(), "**".to_owned()));
            lines.push(off(Way { path: way.clone(), when: every.collect(), by: Vec::new() }));
        }
    }
    drop_last_off(&mut lines, 0);
    lines
}

/// All keys on the ways down, each way once. What no policy can say is told.
fn keys(
    descriptors: &[Descriptor],
    above: &mut Vec<String>,
    ways: &mut Vec<Vec<String>>,
    lines: &mut Vec<Line<'_>>,
) {
    for one in descriptors {
        if let Some(why) = unsayable(one, above) {
            let path = above.iter().chain([&one.composite()]).cloned().collect::<Vec<_>>().join(".");
            lines.push(Line::Unsaid(format!("{path}, and what is below it: {why}")));
            continue;
        }
        above.push(one.key.clone());
        if !ways.contains(above) {
            ways.push(above.clone());
        }
        keys(&one.descriptors, above, ways, lines);
        above.pop();
    }
}

/// Why a descriptor cannot be said.
fn unsayable(one: &Descriptor, above: &[String]) -> Option<&'static str> {
    let has = |what: &str| one.key.contains(what) || one.value.contains(what);
    if above.contains(&one.key) {
        Some("an attribute has one value, and this key is there already")
    } else if one.key.contains('*') {
        Some("attributes have whole names, without stars")
    } else if has("${") {
        Some("${ begins a variable")
    } else if Pattern::new(&fitting(one), None).is_err() {
        Some("the value is too long for a pattern")
    } else {
        None
    }
}

/// The descriptors that a request with these keys can meet, those that go before others first.
fn below<'a>(descriptors: &'a [Descriptor], keys: &[String], way: &Way, lines: &mut Vec<Line<'a>>) {
    let Some((key, rest)) = keys.split_first() else { return };
    let above: Vec<_> = way.when.iter().map(|(key, _)| key.clone()).collect();
    let mut candidates: Vec<_> =
        descriptors.iter().filter(|one| one.key == *key && unsayable(one, &above).is_none()).collect();
    candidates.sort_by_key(|one| if one.value.is_empty() { 2 } else { u8::from(one.value.contains('*')) });
    for one in candidates {
        let mut way = way.clone();
        way.path.push(one.composite());
        way.when.push((key.clone(), fitting(one)));
        let is_exact = !one.value.is_empty() && !one.value.contains('*');
        if !is_exact && !one.share_threshold {
            way.by.push(key.clone());
        }
        if rest.is_empty() {
            lines.push(Line::Said(leaf(one, way)));
            continue;
        }
        below(&one.descriptors, rest, &way, lines);
        let others = rest.iter().map(|key| (key.clone(), "**".to_owned()));
        way.when.extend(others);
        lines.push(off(way));
    }
}

/// What a value must fit. Several stars in a row are one.
fn fitting(one: &Descriptor) -> String {
    if one.value.is_empty() {
        return "**".to_owned();
    }
    let mut text = one.value.clone();
    while text.contains("**") {
        text = text.replace("**", "*");
    }
    text
}

fn leaf(one: &Descriptor, Way { path, when, by }: Way) -> Said<'_> {
    let limits = one.rate_limits.as_slice();
    let mut remarks = Vec::new();
    let terms = if limits.is_empty() || limits.iter().any(|limit| limit.unlimited) {
        Terms::Everybody
    } else if limits.iter().any(|limit| limit.requests_per_unit == 0) {
        remarks.push("none pass: who is counted by what nothing has is denied".to_owned());
        Terms::Nobody
    } else {
        Terms::Limits(limits)
    };
    if one.quota_mode {
        remarks.push(
            "cannot be said: quota_mode, that all such descriptors must be over their limits to deny"
                .to_owned(),
        );
    }
    if one.record_mode {
        remarks.push("cannot be said: record_mode, that also what is denied is counted".to_owned());
    }
    if limits.iter().any(|limit| !limit.replaces.is_empty()) {
        remarks.push("cannot be said: replaces".to_owned());
    }
    Said { path: path.join("."), remarks, when, by, terms, is_shadow: one.shadow_mode }
}

/// A policy that lets pass, and keeps those after it away.
fn off<'a>(Way { mut path, when, .. }: Way) -> Line<'a> {
    path.push("none".to_owned());
    let (remarks, by) = (Vec::new(), Vec::new());
    Line::Said(Said { path: path.join("."), remarks, when, by, terms: Terms::Everybody, is_shadow: false })
}

/// Takes away at the end what keeps nobody away, but leaves the first lines.
fn drop_last_off(lines: &mut Vec<Line<'_>>, n_first: usize) {
    let is_off = |line: &Line<'_>| matches!(line, Line::Said(said) if matches!(said.terms, Terms::Everybody));
    while lines.len() > n_first && lines.last().is_some_and(is_off) {
        lines.pop();
    }
}
