//! The key: the name of one bucket, from a limit and the partition values of a query.
//!
//! A [`BucketName`] belongs to the policy and is made once; a [`Key`] adds the attributes of one query and
//! only borrows. Two keys are the same if and only if their names and partition values are.
//!
//! The name includes the policy, the override, the algorithm with its variant, the quota's own name if the policy has
//! several, and for windows the window. It does not include rate and burst, so spent units stay spent when a limit is
//! changed, while state of another algorithm is never misread.

use std::fmt;
use std::hash::Hash;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::inline_vec::InlineVec;
use crate::quantity::Micros;
use crate::query::{Attribute, AttributeName};
use crate::quota::{Algorithm, Quota};

/// The part of a key that all clients of a limit share, and the attributes that make up the rest.
#[derive(Clone, PartialEq, Eq)]
pub struct BucketName {
    policy: String,
    override_name: Option<String>,
    quota: Option<String>,
    /// The kind of quota, where the key has to say it.
    kind: Option<String>,
    partition: Vec<Part>,
    digest: [u64; 2],
}

/// One part of a partition: an attribute, or the first that a query has of several.
///
/// Values of several attributes could be equal, and a user named like an address would share that address' bucket. So
/// if a part has several attributes, its value carries the name of the attribute: `user:anna`, `ip:10.0.0.1`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    first: AttributeName<String>,
    others: Vec<AttributeName<String>>,
}

/// One partition value of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value<'a> {
    /// The attribute that it comes from, if the part has several.
    pub tag: Option<&'a AttributeName<String>>,
    /// The value.
    pub text: &'a str,
}

/// The name of one bucket, borrowed from its policy and query.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    name: &'a BucketName,
    attributes: &'a [Attribute<'a>],
    /// The first partition value, unless it has a tag. Most keys have one value, and so look it up once.
    first: Option<&'a str>,
    /// If attributes have several values: which one of each, as digits of one number.
    reading: u8,
}

impl BucketName {
    /// The name of the buckets that `policy` keeps for `quota`, one for each combination of values of the
    /// attributes in `partition`. A policy with several quotas gives each a `quota_name`.
    pub fn new(policy: &str, quota_name: Option<&str>, quota: &Quota, partition: Vec<Part>) -> Self {
        Self::of_override(policy, None, quota_name, quota, partition)
    }

    /// The same for one of the policy's overrides, which has its own buckets.
    pub fn of_override(
        policy: &str,
        override_name: Option<&str>,
        quota_name: Option<&str>,
        quota: &Quota,
        partition: Vec<Part>,
    ) -> Self {
        let algorithm = quota.algorithm();
        let window = if algorithm.has_burst() { 0 } else { quota.window().as_micros() };
        // The digest needs no secret key: only the operator chooses policy names.
        let mut hasher = SipHasher13::new();
        (policy, override_name, quota_name, &partition, algorithm, window).hash(&mut hasher);
        let digest = hasher.finish128();
        Self {
            policy: policy.to_owned(),
            override_name: override_name.map(str::to_owned),
            quota: quota_name.map(str::to_owned),
            kind: (!is_plain(policy, quota)).then(|| quota.kind()),
            partition,
            digest: [digest.h1, digest.h2],
        }
    }

    /// The kind of state, from [`Quota::kind`]. `None` for the plain kind: a token bucket that refills smoothly, or the algorithm's
    /// default for ad hoc keys. State of one kind is never stored under the key of another.
    pub fn kind(&self) -> Option<&str> {
        self.kind.as_deref()
    }

    /// The override that the buckets belong to, if they are not the policy's own.
    pub fn override_name(&self) -> Option<&str> {
        self.override_name.as_deref()
    }

    /// The policy's name.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// The quota's own name, if the policy has several.
    pub fn quota(&self) -> Option<&str> {
        self.quota.as_deref()
    }

    /// The attributes whose values make the rest of the key.
    pub fn partition(&self) -> &[Part] {
        &self.partition
    }

    /// The attributes of a query that would be charged to the bucket with these values, written by [`Value::exact`]. `None` if the
    /// number of values is wrong, or one lacks its tag.
    pub fn attributes<'a>(&'a self, values: &[&'a str]) -> Option<InlineVec<Attribute<'a>>> {
        if values.len() != self.partition.len() {
            return None;
        }
        let mut attributes = InlineVec::new();
        for (part, value) in self.partition.iter().zip(values) {
            match value.strip_prefix(STAND_IN) {
                Some(value) => {
                    let name = part.first.as_deref();
                    attributes.push(Attribute { name, value: Attribute::UNREADABLE });
                    attributes.push(Attribute { name: AttributeName::Ip, value });
                }
                None => attributes.push(part.attribute(value)?),
            }
        }
        Some(attributes)
    }

    /// A 128-bit digest of the name.
    #[inline(always)]
    pub fn digest(&self) -> [u64; 2] {
        self.digest
    }
}

/// True if a key need not name the kind of its state. Ad hoc keys belong to a policy that is named after the algorithm, so their
/// default kind is known.
fn is_plain(policy: &str, quota: &Quota) -> bool {
    let is_default = |algorithm: Algorithm| {
        let is_usual = algorithm.has_burst() || quota.window() == Micros::from_secs(60);
        quota.algorithm() == algorithm && is_usual
    };
    match Algorithm::named(policy) {
        Some(algorithm) => is_default(algorithm),
        None => quota.algorithm() == Algorithm::default(),
    }
}

impl Part {
    /// The value of this attribute.
    pub fn one(name: AttributeName<String>) -> Self {
        Self { first: name, others: Vec::new() }
    }

    /// The value of the first attribute that a query has.
    pub fn first_of(first: AttributeName<String>, others: Vec<AttributeName<String>>) -> Self {
        Self { first, others }
    }

    /// The attributes, the first one first.
    pub fn names(&self) -> impl Iterator<Item = &AttributeName<String>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    #[inline(always)]
    fn is_tagged(&self) -> bool {
        !self.others.is_empty()
    }

    /// The value that a query has for it.
    #[inline(always)]
    pub(crate) fn value<'a>(&'a self, attributes: &'a [Attribute<'a>]) -> Option<Value<'a>> {
        match attributes.iter().find(|attribute| self.first.is(&attribute.name)) {
            Some(found) if !self.is_tagged() && found.is_readable() => {
                Some(Value { tag: None, text: found.value })
            }
            None if !self.is_tagged() => None,
            _ => self.nth_value(attributes, 0),
        }
    }

    /// The n-th value of this part: the readable values of its attributes in order, then the client's address in place of an unreadable
    /// one.
    fn nth_value<'a>(&'a self, attributes: &'a [Attribute<'a>], mut n: usize) -> Option<Value<'a>> {
        for name in self.names() {
            if let Some(text) = readable(name, attributes).nth(n) {
                return Some(Value { tag: self.is_tagged().then_some(name), text });
            }
            n -= readable(name, attributes).count();
        }
        let is_there = |name: &AttributeName<String>| attributes.iter().any(|other| name.is(&other.name));
        // Without an address, all such queries share one bucket.
        let text = readable(&AttributeName::Ip, attributes).next().unwrap_or_default();
        self.names().any(is_there).then_some(Value { tag: Some(&IP), text })
    }

    /// True if the client's address may stand in for an unreadable value, in a form that no readable value has.
    pub fn may_be_unreadable(&self) -> bool {
        !self.is_tagged()
            && match self.first {
                AttributeName::User
                | AttributeName::Header(_)
                | AttributeName::Cookie(_)
                | AttributeName::Param(_)
                | AttributeName::Claim(_)
                | AttributeName::Route
                | AttributeName::Named(_) => true,
                AttributeName::Ip
                | AttributeName::Method
                | AttributeName::Path
                | AttributeName::Host
                | AttributeName::Key => false,
            }
    }

    /// The position of the value in `seen` among all values of the query.
    pub(crate) fn position(&self, seen: &[Attribute<'_>], attributes: &[Attribute<'_>]) -> Option<usize> {
        let value = self.value(seen)?;
        let mut n_before = 0;
        for name in self.names() {
            if !value.is_stand_in() && value.tag.unwrap_or(&self.first) == name {
                let position = readable(name, attributes).position(|text| text == value.text);
                return Some(n_before + position.unwrap_or(0));
            }
            n_before += readable(name, attributes).count();
        }
        Some(n_before)
    }

    /// How many values a query has for it: those of the first attribute that has some. If one of these cannot be read, also
    /// those that count without the attribute.
    pub(crate) fn n_values(&self, attributes: &[Attribute<'_>]) -> usize {
        let mut n_values = 0;
        let mut stands_in = false;
        for name in self.names() {
            let n = readable(name, attributes).count();
            n_values += n;
            let is_unreadable =
                |other: &Attribute<'_>| name.is(&other.name) && other.value == Attribute::UNREADABLE;
            stands_in |= attributes.iter().any(is_unreadable);
            if n > 0 && !attributes.iter().any(is_unreadable) {
                return n_values;
            }
        }
        n_values + usize::from(stands_in || n_values == 0)
    }

    /// True if one of its attributes came more often than it may.
    pub(crate) fn is_repeated(&self, attributes: &[Attribute<'_>]) -> bool {
        let is_repeated = |name: &AttributeName<String>| {
            attributes.iter().any(|other| other.value == Attribute::REPEATED && name.is(&other.name))
        };
        self.names().any(is_repeated)
    }

    /// The attribute that has this value, which is tagged if there are several.
    fn attribute<'a>(&'a self, value: &'a str) -> Option<Attribute<'a>> {
        if !self.is_tagged() {
            return Some(Attribute { name: self.first.as_deref(), value });
        }
        self.names().find_map(|name| {
            let rest = value.strip_prefix(name.kind())?.strip_prefix(':')?;
            let value = match name.text() {
                None => rest,
                Some(text) => rest.strip_prefix(text)?.strip_prefix(':')?,
            };
            Some(Attribute { name: name.as_deref(), value })
        })
    }
}

/// Stands in where an attribute cannot be read.
static IP: AttributeName<String> = AttributeName::Ip;

/// The values of an attribute that can be read.
fn readable<'a>(
    name: &AttributeName<String>,
    attributes: &'a [Attribute<'a>],
) -> impl Iterator<Item = &'a str> {
    let of_name = attributes.iter().filter(move |other| name.is(&other.name) && other.is_readable());
    of_name.map(|attribute| attribute.value)
}

impl From<AttributeName<&str>> for Part {
    fn from(name: AttributeName<&str>) -> Self {
        Self::one(name.to_owned())
    }
}

/// The prefix of a client's address that stands in for an unreadable value. No other value begins with it.
const STAND_IN: &str = "\0ip:";

impl Value<'_> {
    /// True if this is the client's address, used because the part's own value is unreadable.
    pub fn is_stand_in(&self) -> bool {
        self.tag.is_some_and(|tag| std::ptr::eq(tag, &IP))
    }

    /// The text of an address that stands in: see [`exact`](Self::exact).
    pub fn stand_in(address: &str) -> String {
        format!("{STAND_IN}{address}")
    }

    /// The value as a text that no other value has: see [`BucketName::attributes`].
    pub fn exact(&self) -> String {
        if self.is_stand_in() { Self::stand_in(self.text) } else { self.to_string() }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tag.map_or(Ok(()), |tag| write!(f, "{tag}:"))?;
        f.write_str(self.text)
    }
}

impl fmt::Debug for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.policy)?;
        self.override_name.as_ref().map_or(Ok(()), |name| write!(f, "+{name}"))?;
        self.quota.as_ref().map_or(Ok(()), |quota| write!(f, ".{quota}"))
    }
}

impl<'a> Key<'a> {
    /// The bucket that `name` keeps for these attributes; `None` if an attribute of the partition is missing.
    #[inline(always)]
    pub fn new(name: &'a BucketName, attributes: &'a [Attribute<'a>]) -> Option<Self> {
        let mut key = Self { name, attributes, first: None, reading: 0 };
        let Some((first, rest)) = name.partition.split_first() else { return Some(key) };
        let first = first.value(attributes)?;
        key.first = if first.tag.is_none() { Some(first.text) } else { None };
        let is_whole = rest.is_empty() || rest.iter().all(|part| part.value(attributes).is_some());
        is_whole.then_some(key)
    }

    /// The same for one reading of attributes that have several values: a number below the product of the parts' numbers of values.
    #[inline(always)]
    pub fn read(name: &'a BucketName, attributes: &'a [Attribute<'a>], reading: u8) -> Option<Self> {
        let mut key = Self::new(name, attributes)?;
        if reading > 0 {
            key.reading = reading;
            let first = key.values().next().filter(|first| first.tag.is_none()).map(|first| first.text);
            key.first = first;
        }
        Some(key)
    }

    /// The bucket's name.
    #[inline(always)]
    pub fn name(&self) -> &'a BucketName {
        self.name
    }

    /// The partition values, in the policy's order.
    #[inline(always)]
    pub fn values(&self) -> impl Iterator<Item = Value<'a>> {
        let (attributes, mut reading) = (self.attributes, usize::from(self.reading));
        self.name.partition.iter().filter_map(move |part| {
            if reading == 0 {
                return part.value(attributes);
            }
            let n_values = part.n_values(attributes);
            let n = reading % n_values;
            reading /= n_values;
            part.nth_value(attributes, n)
        })
    }

    /// The partition value, if there is exactly one, without a tag.
    #[inline(always)]
    pub fn single_value(&self) -> Option<&'a str> {
        if self.name.partition.len() == 1 { self.first } else { None }
    }

    /// All attributes that it was made from, and the number of the reading.
    pub fn source(&self) -> (&'a [Attribute<'a>], u8) {
        (self.attributes, self.reading)
    }

    /// The attributes that made the values, in the policy's order.
    pub fn attributes(&self) -> impl Iterator<Item = Attribute<'a>> {
        let parts = self.name.partition.iter().zip(self.values());
        parts.map(|(part, value)| Attribute {
            name: value.tag.unwrap_or(&part.first).as_deref(),
            value: value.text,
        })
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.values().eq(other.values())
    }
}

impl Eq for Key<'_> {}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)?;
        f.debug_list().entries(self.values().map(|value| value.to_string())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{Algorithm, Refill};

    fn name(policy: &str, quota_name: Option<&str>, algorithm: Algorithm, rate: &str) -> BucketName {
        BucketName::new(
            policy,
            quota_name,
            &Quota::new(algorithm, rate.parse().unwrap()).unwrap(),
            Vec::new(),
        )
    }

    #[test]
    fn a_changed_rate_keeps_the_bucket_and_a_changed_window_of_a_counter_does_not() {
        let smooth = Algorithm::TokenBucket(Refill::Smooth);
        assert_eq!(name("p", None, smooth, "1/s"), name("p", None, smooth, "9/min"));
        let counter = Algorithm::SlidingWindowCounter;
        assert_eq!(name("p", None, counter, "1/s"), name("p", None, counter, "9/s"));
        assert_ne!(name("p", None, counter, "1/s"), name("p", None, counter, "1/min"));
        assert_ne!(
            name("p", None, smooth, "1/s"),
            name("p", None, Algorithm::TokenBucket(Refill::Stepped), "1/s")
        );
        assert_ne!(name("p", None, smooth, "1/s"), name("p", Some("a"), smooth, "1/s"));
        assert_ne!(name("p", None, smooth, "1/s"), name("q", None, smooth, "1/s"));
    }

    #[test]
    fn a_key_has_the_values_of_its_partition_and_no_others() {
        let quota = Quota::new(Algorithm::SlidingWindow, "1/s".parse().unwrap()).unwrap();
        let route = AttributeName::Named("route");
        let name = BucketName::new("p", None, &quota, vec![AttributeName::Ip.into(), route.into()]);
        let [ip, route, method] =
            [(AttributeName::Ip, "i"), (route, "r"), (AttributeName::Named("method"), "m")]
                .map(|(name, value)| Attribute { name, value });
        let all = [route, method, ip];
        let some = [ip, route];
        let key = Key::new(&name, &all).unwrap();
        assert_eq!(key.values().map(|value| value.text).collect::<Vec<_>>(), ["i", "r"]);
        assert_eq!(Some(key), Key::new(&name, &some), "what is not in the partition does not matter");
        assert_eq!(Key::new(&name, &some[..1]), None);
    }

    #[test]
    fn b5_a_user_named_like_an_address_does_not_share_its_bucket() {
        let quota = Quota::new(Algorithm::SlidingWindow, "1/s".parse().unwrap()).unwrap();
        let header = AttributeName::Header("x-key".to_owned());
        let part = Part::first_of(AttributeName::User, vec![header, AttributeName::Ip]);
        let name = BucketName::new("p", None, &quota, vec![part]);
        let key = |attributes: &[Attribute<'_>]| Key::new(&name, attributes).map(|key| format!("{key:?}"));
        let [ip, user, header] = [AttributeName::Ip, AttributeName::User, AttributeName::Header("x-key")]
            .map(|name| Attribute { name, value: "10.0.0.1" });
        assert_eq!(key(&[ip, user]).unwrap(), r#"p["user:10.0.0.1"]"#);
        assert_eq!(key(&[ip]).unwrap(), r#"p["ip:10.0.0.1"]"#);
        assert_eq!(key(&[ip, header]).unwrap(), r#"p["header:x-key:10.0.0.1"]"#);
        assert_eq!(key(&[]), None);
        for attribute in [ip, user, header] {
            let value = Key::new(&name, &[attribute]).unwrap().values().next().unwrap().to_string();
            assert_eq!(name.attributes(&[&value]).unwrap()[..], [attribute], "and back");
        }
        assert_eq!(name.attributes(&["10.0.0.1"]), None);
        assert_eq!(name.attributes(&[]), None);
    }
}
