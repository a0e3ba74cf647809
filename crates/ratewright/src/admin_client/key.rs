//! A bucket's key on the command line: as in Redis, without the prefix.
//!
//! ```text
//!   login:10.0.0.1            policy, value
//!   login/minute:10.0.0.1     with one of its quotas: selects all of them
//!   per-route:orders|10.0.0.1 several values
//!   per-route:a%7Cb|10.0.0.1  a | within a value
//!   api:user:anna             a policy with alternative attributes: this one and its value
//!   all                       a policy with one bucket for all clients
//!   token_bucket:user:123     an algorithm instead of a policy: an ad hoc key
//!   login:{10.0.0.1}          with the hash tag of a Redis cluster
//! ```
//!
//! Values are sent unchanged. The admin listener decodes them, since it knows how many values the policy has.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use ratewright_core::quota::Algorithm;

/// A policy or an algorithm, and the values of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AdminKey {
    policy: String,
    values: Option<String>,
}

impl FromStr for AdminKey {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (name, values) = text.split_once(':').map_or((text, None), |(name, values)| (name, Some(values)));
        // Redis keys also name an override, a quota or an algorithm. They select all buckets of the policy.
        let policy = name.split(['+', '/', '~']).next().unwrap_or(name).to_owned();
        let values = values.map(|values| {
            let tagged = values.strip_prefix('{').and_then(|values| values.strip_suffix('}'));
            tagged.unwrap_or(values).to_owned()
        });
        Ok(Self { policy, values })
    }
}

impl AdminKey {
    /// The query parameters of the admin API.
    pub(crate) fn params(&self) -> Vec<(&'static str, String)> {
        let which = match Algorithm::named(&self.policy) {
            Some(_) => ("algorithm", self.policy.clone()),
            None => ("policy", self.policy.clone()),
        };
        std::iter::once(which).chain(self.values.clone().map(|values| ("key", values))).collect()
    }
}

impl fmt::Display for AdminKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.policy)?;
        self.values.as_ref().map_or(Ok(()), |values| write!(f, ":{values}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(text: &str) -> String {
        let Ok(key) = text.parse::<AdminKey>();
        let params = key.params();
        params.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn keys_are_parsed_as_redis_keys_without_the_prefix() {
        assert_eq!(params("login:10.0.0.1"), "policy=login key=10.0.0.1");
        assert_eq!(params("login/minute:10.0.0.1"), "policy=login key=10.0.0.1");
        assert_eq!(params("login+batch/minute~fixed_window.60000000:10.0.0.1"), "policy=login key=10.0.0.1");
        assert_eq!(params("login:{10.0.0.1}"), "policy=login key=10.0.0.1");
        assert_eq!(params("login:2001:db8::/64"), "policy=login key=2001:db8::/64");
        assert_eq!(params("per-route:orders|10.0.0.1"), "policy=per-route key=orders|10.0.0.1");
        assert_eq!(params("api:user:anna%20b"), "policy=api key=user:anna%20b");
        assert_eq!(params("api:100%"), "policy=api key=100%");
        assert_eq!(params("token_bucket:user:123"), "algorithm=token_bucket key=user:123");
        assert_eq!(params("all"), "policy=all");
    }
}
