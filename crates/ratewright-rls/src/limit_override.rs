//! Limit overrides: limits in the request itself, which replace the configured ones.
//!
//! A bucket is named by the domain, all entries and the unit. There is one policy for each unit; the quota comes from the request.
//!
//! # How entries are written in a bucket's name
//!
//! ```text
//!   x_path=/login     6:x_path:6:/login:        every text after its length in bytes
//!   more than 256     sha256:9f86d081884c7d…    256 bits over the domain and all entries
//! ```
//!
//! - Different descriptors never have the same name: lengths say where each text ends, whatever is in it.
//! - A name has at most 256 bytes.
//! - The same descriptor has the same name in every version and every instance: its bucket lies in Redis under it.

use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use ratewright_core::policy::{Part, Selector};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Rate, WindowStart};
use ratewright_core::{Policy, Quota};
use ratewright_rls_rules::{Entry, Unit};

use crate::wire::{RateLimitOverride, RateLimitUnit};

/// The attributes that name a bucket.
pub(crate) const DOMAIN: &str = "domain";
pub(crate) const ENTRIES: &str = "entries";

/// The longest text of entries, in bytes. Longer ones are replaced by a digest.
const ENTRIES_MAX: usize = 256;

/// The longest domain that is part of a bucket's name, in bytes. Longer ones are part of the digest.
const DOMAIN_MAX: usize = 256;

/// Windows as envoyproxy/ratelimit has them.
const ALGORITHM: Algorithm = Algorithm::FixedWindow(WindowStart::Epoch);

/// A limit in a request.
#[derive(Debug)]
pub(crate) struct LimitOverride {
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: Unit,
    /// `None` for a limit of zero.
    pub(crate) quota: Option<Quota>,
    /// All entries in one text that is unique in the domain.
    pub(crate) entries: String,
}

impl LimitOverride {
    /// `None` if the unit is unknown: then the configured limit applies.
    pub(crate) fn new(limit: &RateLimitOverride, domain: &str, entries: &[Entry<'_>]) -> Option<Self> {
        let unit = match RateLimitUnit::try_from(limit.unit).ok()? {
            RateLimitUnit::Unknown => return None,
            RateLimitUnit::Second => Unit::Second,
            RateLimitUnit::Minute => Unit::Minute,
            RateLimitUnit::Hour => Unit::Hour,
            RateLimitUnit::Day => Unit::Day,
            RateLimitUnit::Month => Unit::Month,
            RateLimitUnit::Year => Unit::Year,
        };
        let quota = quota(limit.requests_per_unit, unit);
        let entries = entries_text(domain, entries);
        Some(Self { requests_per_unit: limit.requests_per_unit, unit, quota, entries })
    }

    /// The policy that counts it.
    pub(crate) fn policy(&self) -> &'static str {
        name(self.unit)
    }
}

/// All entries in one text that is unique in the domain.
fn entries_text(domain: &str, entries: &[Entry<'_>]) -> String {
    let texts = || entries.iter().flat_map(|entry| [entry.key, entry.value]);
    let n_bytes: usize = texts().map(|text| text.len() + ":256:".len()).sum();
    if n_bytes <= ENTRIES_MAX && domain.len() <= DOMAIN_MAX {
        return with_lengths(texts());
    }
    let mut name = "sha256:".to_owned();
    for byte in digest(&SHA256, with_lengths(std::iter::once(domain).chain(texts())).as_bytes()).as_ref() {
        let _ = write!(name, "{byte:02x}"); // a string takes everything
    }
    name
}

/// Every text after its length in bytes: `6:x_path:6:/login:`.
fn with_lengths<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.fold(String::new(), |mut all, text| {
        let _ = write!(all, "{}:{text}:", text.len()); // a string takes everything
        all
    })
}

fn name(unit: Unit) -> &'static str {
    match unit {
        Unit::Second => "envoy..override.second",
        Unit::Minute => "envoy..override.minute",
        Unit::Hour => "envoy..override.hour",
        Unit::Day => "envoy..override.day",
        Unit::Week => "envoy..override.week",
        Unit::Month => "envoy..override.month",
        Unit::Year => "envoy..override.year",
    }
}

fn quota(requests_per_unit: u32, unit: Unit) -> Option<Quota> {
    let units = requests_per_unit.try_into().ok()?;
    Quota::new(ALGORITHM, Rate::new(units, unit.length()).ok()?).ok()
}

/// The policies that count limit overrides. Their names begin with an empty domain, so no configured rule can have one of them.
pub fn policies() -> Vec<Policy> {
    let partition =
        || [DOMAIN, ENTRIES].map(|name| Part::one(AttributeName::Named(name.to_owned()))).to_vec();
    let policy = |unit: Unit| {
        let policy = Policy::new(name(unit), quota(1, unit)?).ok()?;
        Some(policy.with_selector(Selector::Named).with_partition(partition()))
    };
    Unit::ALL.into_iter().filter_map(policy).collect()
}

/// True for a policy of [`policies`], false for configured rules.
pub fn is_override_policy(policy: &Policy) -> bool {
    Unit::ALL.into_iter().any(|unit| name(unit) == policy.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ratewright_rls_rules::{Descriptor, Domains, DuplicateDomains, RateLimit};

    type Pairs = Vec<(String, String)>;

    fn text_of(domain: &str, pairs: &[(String, String)]) -> String {
        let entries: Vec<_> = pairs.iter().map(|(key, value)| Entry { key, value }).collect();
        entries_text(domain, &entries)
    }

    /// Texts that resemble each other, and are made of what separates texts in names.
    fn texts() -> impl Strategy<Value = String> {
        prop_oneof!["[a_:1/|.%]{0,5}", "(1:a:|x_|path_|/login|sha256:|0::){0,4}", "[a]{250,260}", "\\PC{0,4}"]
    }

    fn descriptors() -> impl Strategy<Value = Pairs> {
        prop::collection::vec((texts(), texts()), 0..4)
    }

    proptest! {
        /// Two descriptors share a bucket only if they are the same.
        #[test]
        fn different_descriptors_have_different_names(one in descriptors(), other in descriptors()) {
            prop_assert_eq!(one == other, text_of("shop", &one) == text_of("shop", &other));
        }

        /// The same words: what separates texts in one descriptor is part of a text in the other.
        #[test]
        fn what_separates_texts_may_be_part_of_them(
            words in prop::collection::vec("|a|x|1|/login", 2..8),
            separator in "_|:|::|:1:|1:|:0:|a:1:",
            (one, other) in (any::<u8>(), any::<u8>()),
        ) {
            let divided = |apart: u8| {
                let mut texts = vec![words[0].clone()];
                for (n, word) in words.iter().enumerate().skip(1) {
                    match (apart >> n & 1, texts.last_mut()) {
                        (0, Some(last)) => last.extend([separator.as_str(), word.as_str()]),
                        _ => texts.push(word.clone()),
                    }
                }
                texts.resize(texts.len().next_multiple_of(2), String::new());
                texts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect::<Pairs>()
            };
            let (one, other) = (divided(one), divided(other));
            prop_assert_eq!(one == other, text_of("shop", &one) == text_of("shop", &other), "{:?} {:?}", one, other);
        }

        #[test]
        fn names_are_bounded(pairs in descriptors(), length in 0..5_000usize) {
            let long = "x".repeat(length);
            let text = text_of(&long, &[&pairs[..], &[(long.clone(), String::new())]].concat());
            prop_assert!(text.len() <= ENTRIES_MAX, "{text}");
        }

        /// Neither do the policies of rules, whatever their domain and keys are called.
        #[test]
        fn no_configured_rule_shares_a_policy_name(
            domain in prop_oneof!["[.a]{1,3}", Just(".override".to_owned()), Just(".override.hour".to_owned())],
            key in prop_oneof!["(second|hour|override|[.]){1,3}", texts()],
            value in prop_oneof![Just(String::new()), "[a-z./]{0,6}"],
        ) {
            let rate_limit = RateLimit { unit: "hour".to_owned(), requests_per_unit: 1, ..RateLimit::default() };
            let rule = Descriptor { key, value, rate_limits: vec![rate_limit], ..Descriptor::default() };
            let mut domains = Domains::default();
            prop_assume!(domains.add(&domain, &[rule], DuplicateDomains::Reject).is_ok());
            prop_assert!(domains.policies().iter().all(|policy| !is_override_policy(policy)));
        }
    }

    /// Buckets lie in Redis under these names: a change forgets what was counted.
    #[test]
    fn names_stay_as_they_are() {
        let of = |pairs: &[(&str, &str)]| {
            let pairs: Pairs =
                pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            text_of("shop", &pairs)
        };
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[("", "")]), "0::0::");
        assert_eq!(of(&[("x_path", "/login")]), "6:x_path:6:/login:");
        assert_eq!(of(&[("x", "path_/login")]), "1:x:11:path_/login:");
        assert_eq!(of(&[("ü", "é"), ("a", "")]), "2:ü:2:é:1:a:0::");
        let long = "x".repeat(300);
        let digest = "sha256:accfeeb656484d8f858455690cb8ee251bca021ff2baa4d98896d264e6753b56";
        assert_eq!(of(&[("a", &long)]), digest, "of 4:shop:1:a:300:x…x:");
    }

    /// A domain too long to tell buckets apart by its beginning is in the digest.
    #[test]
    fn long_domains_tell_buckets_apart() {
        let (one, other) = (format!("{}1", "d".repeat(5_000)), format!("{}2", "d".repeat(5_000)));
        assert_ne!(text_of(&one, &[]), text_of(&other, &[]));
    }
}
