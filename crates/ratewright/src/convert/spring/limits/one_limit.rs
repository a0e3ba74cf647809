//! One limit of custom properties: its capacity and refill, as a policy.

use ratewright_core::quota::{Quota, Refill};

use super::super::client_keys::CountedBy;
use super::super::properties::SpringProperty;
use super::super::quotas::{DraftBucket, rate_text};
use super::super::reader::{A_NAME, DraftDuration, DraftNumber, SpringReader};
use super::{KEY, UNKNOWN, conditions};
use crate::convert::policy_file_draft::{DraftItem, quoted};

const CAPACITY: [&str; 6] =
    ["capacity", "burst-capacity", "burst-size", "burst", "bucket-size", "max-tokens"];
const REFILL_TOKENS: [&str; 3] = ["refill-tokens", "refill-amount", "tokens"];
const REFILL_PERIOD: [&str; 7] = [
    "refill-period",
    "refill-interval",
    "refill-duration",
    "refill-period-seconds",
    "refill-interval-seconds",
    "refill-duration-seconds",
    "refill-period-ms",
];
const WINDOW: [&str; 8] = [
    "window",
    "window-size",
    "window-seconds",
    "window-size-seconds",
    "period",
    "period-seconds",
    "duration",
    "interval",
];
const REQUESTS: [&str; 5] = ["limit", "max-requests", "requests", "request-limit", "permits"];
/// Rates, and the seconds in the names of some.
const RATES: [(&str, Option<u64>); 8] = [
    ("replenish-rate", None),
    ("refill-rate", None),
    ("leak-rate", None),
    ("requests-per-second", Some(1)),
    ("permits-per-second", Some(1)),
    ("requests-per-minute", Some(60)),
    ("requests-per-hour", Some(3_600)),
    ("requests-per-day", Some(86_400)),
];

/// Properties of which every limit has one.
pub(super) const ANY: [&str; 6] = [
    "capacity",
    "refill-tokens",
    "replenish-rate",
    "requests-per-second",
    "requests-per-minute",
    "max-requests",
];

/// A limit and its surroundings.
pub(super) struct NamedLimit<'a> {
    pub(super) name: String,
    pub(super) properties: &'a SpringProperty,
    /// Where the limit takes the properties from that it does not have itself.
    pub(super) default: Option<&'a SpringProperty>,
    /// What all limits of the section count by.
    pub(super) key: Option<&'a SpringProperty>,
    /// True if it is for all that no other limit covers.
    pub(super) is_default: bool,
    /// True if it is at the top of its section, whose switch it has.
    pub(super) is_section: bool,
    /// The group, if there are other limits.
    pub(super) group: Option<&'a str>,
}

/// What a limit says about its amount.
struct LimitAmounts {
    bucket: DraftBucket,
    /// Units in a window, besides the bucket.
    window: Option<(DraftNumber, DraftDuration)>,
}

impl<'a> NamedLimit<'a> {
    fn get(&self, names: &[&str]) -> Option<&'a SpringProperty> {
        self.properties.first_of(names).or_else(|| self.default?.first_of(names))
    }

    /// The policy of the limit, and the paths that the file names. None if it is invalid or switched off without an amount; both are reported.
    pub(super) fn policy(&self, reader: &mut SpringReader<'_>) -> Option<(DraftItem, Vec<String>)> {
        let enabled = self.get(&["enabled"]).filter(|_| !self.is_section);
        let is_off = enabled.and_then(|enabled| reader.switch(enabled, true)) == Some(false);
        if is_off && self.get(&ANY).is_none() {
            let comment = reader.not_converted(self.properties, "it is switched off and has no capacity");
            reader.draft.section("policies").comment(comment);
            return None;
        }
        let name = reader.unique_name(&self.name, "policy");
        let mut policy = DraftItem::new(name, self.properties.place);
        if let Some(group) = self.group {
            policy.set("group", group);
        }
        let paths = conditions(reader, self, &mut policy);
        self.counted_by(reader, &mut policy);
        self.quotas(reader, &mut policy)?;
        if let Some(property) = self.get(&["requested-tokens", "cost", "tokens-per-request"]) {
            policy.set("cost", quoted(&reader.positive(property)?.text));
        }
        if let Some(property) = self.get(&["retry-after-seconds", "retry-after"]) {
            policy.set("retry_after", quoted(&reader.duration(property)?.text));
        }
        if is_off {
            policy.set("mode", "off");
        }
        reader.assumed().into_iter().for_each(|comment| policy.comment(comment));
        let is_section = self.properties.first_of(&super::LIMITS).is_some();
        if !is_section {
            let comments = reader.leftovers(self.properties, UNKNOWN);
            comments.into_iter().for_each(|comment| policy.comment(comment));
        }
        if let Some(default) = self.default.filter(|default| !std::ptr::eq(*default, self.properties)) {
            self.overridden(reader, default, &mut policy);
        }
        Some((policy, paths))
    }

    /// Reports the values of the default limit that this one overrides.
    fn overridden(&self, reader: &mut SpringReader<'_>, default: &SpringProperty, policy: &mut DraftItem) {
        for (name, property) in default.entries() {
            let own = self.properties.get(name).and_then(SpringProperty::text);
            if own.is_some() && own == property.text() {
                continue;
            }
            if own.is_some() {
                let advice = format!("{} has another value, which counts", self.properties.name);
                policy.comment(reader.not_converted(property, &advice));
            }
        }
        for comment in reader.leftovers(default, UNKNOWN) {
            policy.comment(comment);
        }
    }

    fn counted_by(&self, reader: &mut SpringReader<'_>, policy: &mut DraftItem) {
        let property = self.properties.first_of(&KEY).or(self.key);
        let name = property.and_then(|property| reader.fixed(property, A_NAME)).unwrap_or_default();
        let by = CountedBy::of_name(&name);
        if let Some(place) = property.filter(|_| by.is_none()) {
            reader.assume(
                place,
                "by: ip; this kind of key is not known. For users: by: { first_of: [user, ip] }",
            );
        }
        let by = by.unwrap_or(CountedBy::Ip);
        if matches!(by, CountedBy::User | CountedBy::UserOrIp) {
            reader.identify_users();
        }
        if let Some(setting) = by.setting() {
            policy.set("by", setting);
        }
        if by.may_be_missing() {
            policy.set("missing", "ip"); // such requests must not be unlimited
            let place = property.unwrap_or(self.properties);
            reader.assume(
                place,
                "missing: ip, requests without it are counted by address; the file does not say",
            );
        }
    }

    fn quotas(&self, reader: &mut SpringReader<'_>, policy: &mut DraftItem) -> Option<()> {
        let LimitAmounts { bucket, window } = self.amounts(reader)?;
        let mut quotas = vec![reader.bucket_quota(self.properties, &bucket)];
        if let Some((units, window)) = window {
            match self.window_quota(reader, &bucket, &units, &window) {
                Ok(quota) => quotas.push(quota),
                Err(comment) => policy.comment(comment),
            }
        }
        policy.set_all("quota", quotas);
        Some(())
    }

    /// The quota for `window`, or a comment if it contradicts the refill.
    fn window_quota(
        &self,
        reader: &mut SpringReader<'_>,
        bucket: &DraftBucket,
        units: &DraftNumber,
        window: &DraftDuration,
    ) -> Result<String, String> {
        let refilled = || {
            let (tokens, period) = (bucket.units.value?, bucket.period.value?.as_micros());
            // Rounded down: only whole tokens come back.
            Some(u128::from(tokens) * u128::from(window.value?.as_micros()) / u128::from(period))
        };
        let capacity = units.value.map(u128::from);
        let rate = rate_text(units, window);
        match refilled().zip(capacity) {
            Some((refilled, capacity)) if refilled > capacity => {
                let property = self.get(&WINDOW).unwrap_or(self.properties);
                let advice = format!("{rate} would undo the refill, which allows {refilled} in that time");
                Err(reader.not_converted(property, &advice))
            }
            _ => {
                let is_long = units.value.is_none_or(|units| units > Quota::LOG_UNITS_MAX);
                let algorithm = if is_long { "sliding_window_counter" } else { "sliding_window" };
                Ok(format!("{{ name: window, algorithm: {algorithm}, rate: {rate} }}"))
            }
        }
    }

    /// The capacity and the refill.
    fn amounts(&self, reader: &mut SpringReader<'_>) -> Option<LimitAmounts> {
        let capacity = self.optional(reader, &CAPACITY)?;
        let window = match self.get(&WINDOW) {
            Some(property) => Some(reader.duration(property)?),
            None => None,
        };
        let refill = self.refill(reader);
        let bucket = |units: DraftNumber, period, capacity: Option<DraftNumber>| {
            let capacity = capacity.unwrap_or_else(|| units.clone());
            DraftBucket { units, period, capacity, refill }
        };
        if let Some(units) = self.optional(reader, &REFILL_TOKENS)? {
            let period = match self.get(&REFILL_PERIOD) {
                Some(property) => Some(reader.duration(property)?),
                None => window.clone(),
            };
            let has_own_period = self.get(&REFILL_PERIOD).is_some();
            let window = capacity.clone().zip(window).filter(|_| has_own_period);
            if let Some(period) = period {
                return Some(LimitAmounts { bucket: bucket(units, period, capacity), window });
            }
        } else if let Some((units, seconds)) = self.rate(reader)? {
            // A rate per second, unless a period stands beside it; a rate whose name has a unit keeps that.
            let own = match (seconds, self.get(&REFILL_PERIOD)) {
                (None, Some(property)) => Some(reader.duration(property)?),
                (None, None) | (Some(_), _) => None,
            };
            let is_window = own.is_some() || seconds.is_some();
            let beside = if is_window { None } else { window.clone() };
            let period = own.or(beside).unwrap_or_else(|| DraftDuration::seconds(seconds.unwrap_or(1)));
            let window = capacity.clone().or_else(|| Some(units.clone())).zip(window).filter(|_| is_window);
            return Some(LimitAmounts { bucket: bucket(units, period, capacity), window });
        } else if let Some(window) = window {
            let requests = self.optional(reader, &REQUESTS)?;
            if let Some(units) = requests.or_else(|| capacity.clone()) {
                return Some(LimitAmounts { bucket: bucket(units, window, capacity), window: None });
            }
        }
        let problem = "this limit has no capacity with a refill or a window; their defaults are in your Java class. Write capacity, \
                       refill-tokens and refill-period here, and convert again";
        reader.error(self.properties, problem);
        None
    }

    /// A rate, and its period if its name has one. The outer None: it is invalid.
    #[expect(clippy::option_option, reason = "absent and invalid are different")]
    fn rate(&self, reader: &mut SpringReader<'_>) -> Option<Option<(DraftNumber, Option<u64>)>> {
        let found = RATES.iter().find_map(|(name, seconds)| Some((self.get(&[name])?, *seconds)));
        let Some((property, seconds)) = found else { return Some(None) };
        reader.positive(property).map(|units| Some((units, seconds)))
    }

    /// A number that may be absent. The outer None: it is invalid.
    #[expect(clippy::option_option, reason = "absent and invalid are different")]
    fn optional(&self, reader: &mut SpringReader<'_>, names: &[&str]) -> Option<Option<DraftNumber>> {
        let Some(property) = self.get(names) else { return Some(None) };
        reader.positive(property).map(Some)
    }

    /// `refillGreedy` or `refillIntervally`.
    fn refill(&self, reader: &mut SpringReader<'_>) -> Refill {
        let property =
            self.get(&["refill-type", "refill-strategy", "refill-style", "refill-mode", "refill-speed"]);
        reader.refill(property)
    }
}

/// The quota of one algorithm of a decision service.
pub(super) fn ad_hoc_quota(
    reader: &mut SpringReader<'_>,
    properties: &SpringProperty,
    algorithm: &str,
) -> Option<String> {
    let limit = NamedLimit {
        name: algorithm.to_owned(),
        properties,
        default: None,
        key: None,
        is_default: true,
        is_section: false,
        group: None,
    };
    let LimitAmounts { bucket, .. } = limit.amounts(reader)?;
    if algorithm.ends_with("bucket") {
        return Some(reader.bucket_quota(properties, &bucket));
    }
    Some(format!("{{ rate: {} }}", rate_text(&bucket.units, &bucket.period)))
}
