//! The name of one bucket: whose, and under which limit.
//!
//! A [`BucketName`] belongs to the policy and is made once; a [`Key`] adds the attributes of one query and
//! only borrows. Two keys are the same if and only if their names and partition values are.
//!
//! The name covers policy, algorithm with its variant, the quota's own name if the policy has several,
//! and for windows the window. It does not cover rate and burst: what was spent stays spent when a limit is
//! changed, while state of another algorithm is never misread.

use std::fmt;
use std::hash::Hash;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::query::{Attribute, AttributeName};
use crate::quota::Quota;

/// The part of a key that all clients of a limit share, and which attributes make the rest.
#[derive(Clone, PartialEq, Eq)]
pub struct BucketName {
    policy: String,
    quota: Option<String>,
    partition: Vec<AttributeName<String>>,
    digest: [u64; 2],
}

/// The name of one bucket. Borrows until a store needs more.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    name: &'a BucketName,
    attributes: &'a [Attribute<'a>],
    /// The first partition value. Most keys have just one, which so is looked up once.
    first: &'a str,
}

impl BucketName {
    /// The name of the buckets that `policy` keeps for `quota`, one for each combination of values of the
    /// attributes in `partition`. A policy with several quotas tells them apart by `quota_name`.
    pub fn new(
        policy: &str,
        quota_name: Option<&str>,
        quota: &Quota,
        partition: Vec<AttributeName<String>>,
    ) -> Self {
        let algorithm = quota.algorithm();
        let window = if algorithm.has_burst() { 0 } else { quota.window().as_micros() };
        // The digest's key is no secret: who can choose policy names can choose the limits.
        let mut hasher = SipHasher13::new();
        (policy, quota_name, &partition, algorithm, window).hash(&mut hasher);
        let digest = hasher.finish128();
        Self {
            policy: policy.to_owned(),
            quota: quota_name.map(str::to_owned),
            partition,
            digest: [digest.h1, digest.h2],
        }
    }

    /// The policy's name.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// The quota's own name, if the policy has several.
    pub fn quota(&self) -> Option<&str> {
        self.quota.as_deref()
    }

    /// The attributes whose values tell buckets apart.
    pub fn partition(&self) -> &[AttributeName<String>] {
        &self.partition
    }

    /// 128 bits that stand for the name.
    #[inline(always)]
    pub fn digest(&self) -> [u64; 2] {
        self.digest
    }
}

impl fmt::Debug for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.policy)?;
        self.quota.as_ref().map_or(Ok(()), |quota| write!(f, ".{quota}"))
    }
}

impl<'a> Key<'a> {
    /// The bucket that `name` keeps for these attributes; nothing if one of its partition is missing.
    #[inline(always)]
    pub fn new(name: &'a BucketName, attributes: &'a [Attribute<'a>]) -> Option<Self> {
        let mut key = Self { name, attributes, first: "" };
        let Some((first, rest)) = name.partition.split_first() else { return Some(key) };
        key.first = key.value(first)?;
        rest.iter().all(|name| key.value(name).is_some()).then_some(key)
    }

    /// The bucket's name.
    #[inline(always)]
    pub fn name(&self) -> &'a BucketName {
        self.name
    }

    /// The partition values, in the policy's order.
    #[inline(always)]
    pub fn values(&self) -> impl Iterator<Item = &'a str> {
        let key = *self;
        self.name.partition.iter().map(move |name| key.value(name).unwrap_or_default())
    }

    /// The partition value, if there is exactly one.
    #[inline(always)]
    pub fn single_value(&self) -> Option<&'a str> {
        (self.name.partition.len() == 1).then_some(self.first)
    }

    #[inline(always)]
    fn value(&self, name: &AttributeName<String>) -> Option<&'a str> {
        self.attributes.iter().find(|attribute| name.is(&attribute.name)).map(|attribute| attribute.value)
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
        f.debug_list().entries(self.values()).finish()
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
        let name = BucketName::new("p", None, &quota, vec![AttributeName::Ip, route.to_owned()]);
        let [ip, route, method] =
            [(AttributeName::Ip, "i"), (route, "r"), (AttributeName::Named("method"), "m")]
                .map(|(name, value)| Attribute { name, value });
        let all = [route, method, ip];
        let some = [ip, route];
        let key = Key::new(&name, &all).unwrap();
        assert_eq!(key.values().collect::<Vec<_>>(), ["i", "r"]);
        assert_eq!(Some(key), Key::new(&name, &some), "what is not in the partition does not matter");
        assert_eq!(Key::new(&name, &some[..1]), None);
    }
}
