//! The name of one bucket: whose, and under which limit.
//!
//! A [`BucketName`] belongs to the policy and is made once; a [`Key`] adds the values of one client and
//! only borrows. Two keys are the same if and only if name and values are.
//!
//! The name covers policy, algorithm with its variant, the quota's own name if the policy has several,
//! and for windows the window. It does not cover rate and burst: what was spent stays spent when a limit is
//! changed, while state of another algorithm is never misread.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher13};
use smallvec::SmallVec;

use crate::quota::Quota;

/// The part of a key that all clients of a limit share.
#[derive(Clone, PartialEq, Eq)]
pub struct BucketName {
    policy: Arc<str>,
    quota: Option<Arc<str>>,
    digest: [u64; 2],
}

/// The name of one bucket. Borrows until a store needs more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key<'a> {
    name: &'a BucketName,
    values: SmallVec<[&'a str; 2]>,
}

impl BucketName {
    /// The name of the buckets that `policy` keeps for `quota`. A policy with several quotas tells them
    /// apart by `quota_name`.
    pub fn new(policy: &str, quota_name: Option<&str>, quota: &Quota) -> Self {
        let algorithm = quota.algorithm();
        let window = if algorithm.has_burst() { 0 } else { quota.window().as_micros() };
        // The digest's key is no secret: who could choose policy names could choose the limits.
        let mut hasher = SipHasher13::new();
        (policy, quota_name, algorithm, window).hash(&mut hasher);
        let digest = hasher.finish128();
        Self { policy: policy.into(), quota: quota_name.map(Into::into), digest: [digest.h1, digest.h2] }
    }

    /// The policy's name.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// The quota's own name, if the policy has several.
    pub fn quota(&self) -> Option<&str> {
        self.quota.as_deref()
    }
}

impl fmt::Debug for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.policy)?;
        self.quota.as_ref().map_or(Ok(()), |quota| write!(f, ".{quota}"))
    }
}

impl<'a> Key<'a> {
    /// The bucket that `name` keeps for these partition values.
    #[inline]
    pub fn new(name: &'a BucketName, values: impl IntoIterator<Item = &'a str>) -> Self {
        Self { name, values: values.into_iter().collect() }
    }

    /// The bucket's name.
    pub fn name(&self) -> &'a BucketName {
        self.name
    }

    /// The partition values, in the policy's order.
    pub fn values(&self) -> &[&'a str] {
        &self.values
    }
}

/// Feeds a hasher everything that tells two keys apart: values are set off by their lengths, so that
/// `a|bc` is not `ab|c`.
impl Hash for Key<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.name.digest[0]);
        state.write_u64(self.name.digest[1]);
        for value in &self.values {
            state.write_u64(value.len() as u64);
            state.write(value.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{Algorithm, Refill};

    fn name(policy: &str, quota_name: Option<&str>, algorithm: Algorithm, rate: &str) -> BucketName {
        BucketName::new(policy, quota_name, &Quota::new(algorithm, rate.parse().unwrap()).unwrap())
    }

    fn digest(key: &Key<'_>) -> u128 {
        let mut hasher = SipHasher13::new();
        key.hash(&mut hasher);
        hasher.finish128().as_u128()
    }

    #[test]
    fn a_changed_rate_keeps_the_bucket_and_a_changed_window_of_a_counter_does_not() {
        let smooth = Algorithm::TokenBucket(Refill::Smooth);
        assert_eq!(name("p", None, smooth, "1/s"), name("p", None, smooth, "9/min"));
        let counter = Algorithm::SlidingWindowCounter;
        assert_eq!(name("p", None, counter, "1/s"), name("p", None, counter, "9/s"));
        assert_ne!(name("p", None, counter, "1/s"), name("p", None, counter, "1/min"));
        assert_ne!(name("p", None, smooth, "1/s"), name("p", None, Algorithm::TokenBucket(Refill::Stepped), "1/s"));
        assert_ne!(name("p", None, smooth, "1/s"), name("p", Some("a"), smooth, "1/s"));
        assert_ne!(name("p", None, smooth, "1/s"), name("q", None, smooth, "1/s"));
    }

    #[test]
    fn no_value_can_be_crafted_into_another_key() {
        let name = name("p", None, Algorithm::SlidingWindow, "1/s");
        let keys = [
            Key::new(&name, ["a", "bc"]),
            Key::new(&name, ["ab", "c"]),
            Key::new(&name, ["abc"]),
            Key::new(&name, ["abc", ""]),
            Key::new(&name, ["", "abc"]),
            Key::new(&name, []),
        ];
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[i + 1..] {
                assert_ne!(digest(a), digest(b), "{a:?} {b:?}");
            }
        }
    }
}
