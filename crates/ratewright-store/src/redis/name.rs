//! The names of buckets in Redis.
//!
//! ```text
//!   ratelimit:login:10.0.0.1              prefix, policy, partition value
//!   ratelimit:login/minute:10.0.0.1       several quotas: the quota's name
//!   ratelimit:login~fixed_window.60000000:10.0.0.1   the kind of state, unless it is a plain token bucket
//!   ratelimit:login+batch:10.0.0.1        override: its name, or a digest of its `match`
//!   ratelimit:per-route:orders|10.0.0.1   several partition values
//!   ratelimit:api:user:anna               first_of: the attribute that was used, and its value
//!   ratelimit:per-user:ip:10.0.0.1        refused token: counted by address; a user named ip:10.0.0.1 is written ip%3A10.0.0.1
//!   ratelimit:all                         no partition: one bucket for everybody
//!   ratelimit:login:{10.0.0.1}            in a cluster, where all buckets of a client lie on one node
//!   ratelimit:@instances                  the instances that share these buckets, with `share: auto`
//! ```
//!
//! Values are percent-encoded, except for letters, digits and `. - _ : / @`: an address reads as itself, and no
//! value can reach another key, whatever a client sends.
//!
//! A value longer than 64 bytes, or one whose attribute name sounds like a secret (`header:X-Api-Key`), is written as a digest: `#` and
//! 128 bits of its SHA-256. The digest is unkeyed, so all instances and `ratewright key VALUE` compute the same; guessed values can be
//! confirmed.

use aws_lc_rs::digest::{SHA256, digest};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ratewright_core::policy::Part;
use ratewright_core::query::AttributeName;
use ratewright_core::store::{Key, Value};
use ratewright_telemetry::sounds_secret;

/// The characters that are encoded in a value.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b':').remove(b'/').remove(b'@');

/// How keys are written.
#[derive(Clone, Debug)]
pub(super) struct Naming {
    /// The prefix of all keys.
    pub(super) prefix: String,
    /// True in a cluster: the values select the node of a key.
    pub(super) is_tagged: bool,
}

impl Naming {
    /// Where instances announce themselves. No policy has an `@` in its name.
    pub(super) fn instances(&self) -> String {
        format!("{}:@instances", self.prefix)
    }

    /// The key that marks a receipt as refunded. It is on the bucket's node: it has the bucket's hash tag, or, for a bucket without
    /// one, the bucket's whole key as its tag.
    pub(super) fn used(&self, bucket: &str, id: u64) -> String {
        let tagged = bucket.split_once('{').filter(|_| self.is_tagged);
        let (rest, tag) = tagged.map_or(("", bucket), |(rest, tag)| (rest, tag.trim_end_matches('}')));
        format!("{}:@used:{{{tag}}}:{rest}{id:016x}", self.prefix)
    }

    /// The Redis key of a bucket.
    pub(super) fn name(&self, key: &Key<'_>) -> String {
        let mut name = String::with_capacity(64);
        name.push_str(&self.prefix);
        name.push(':');
        name.push_str(key.name().policy());
        // No policy, override or quota has one of these marks in its name.
        if let Some(override_name) = key.name().override_name() {
            name.push('+');
            name.push_str(override_name);
        }
        if let Some(quota) = key.name().quota() {
            name.push('/');
            name.push_str(quota);
        }
        if let Some(kind) = key.name().kind() {
            name.push('~');
            name.push_str(kind);
        }
        let (open, close) = if self.is_tagged { (":{", "}") } else { (":", "") };
        let n_values = key.name().partition().len();
        for (n, (value, part)) in key.values().zip(key.name().partition()).enumerate() {
            name.push_str(if n == 0 { open } else { "|" });
            if let Some(tag) = value.tag {
                name.push_str(tag.kind());
                name.push(':');
                if let Some(text) = tag.text() {
                    name.extend(utf8_percent_encode(text, ENCODED));
                    name.push(':');
                }
            }
            match value.text.strip_prefix("ip:").filter(|_| value.tag.is_none() && part.may_be_unreadable()) {
                // Only an address in place of an unreadable attribute begins like this.
                Some(rest) if !is_hidden(&value, part) => {
                    name.push_str("ip%3A");
                    name.extend(utf8_percent_encode(rest, ENCODED));
                }
                _ if is_hidden(&value, part) => name.push_str(&digest_of(value.text)),
                _ => name.extend(utf8_percent_encode(value.text, ENCODED)),
            }
        }
        if n_values > 0 {
            if self.is_tagged && name.ends_with('{') {
                name.push('%'); // an empty tag would be none; no encoded value is a single %
            }
            name.push_str(close);
        }
        name
    }
}

/// The longest value that a key contains unchanged, in bytes.
const VALUE_MAX: usize = 64;

/// The digest that replaces a value which is long or may be a secret.
pub fn digest_of(value: &str) -> String {
    let digest = digest(&SHA256, value.as_bytes());
    digest.as_ref().iter().take(16).fold("#".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// True if a value is written as a digest.
fn is_hidden(value: &Value<'_>, part: &Part) -> bool {
    let name = value.tag.or_else(|| part.names().next());
    let is_secret = match name {
        Some(
            AttributeName::Header(name)
            | AttributeName::Cookie(name)
            | AttributeName::Param(name)
            | AttributeName::Named(name),
        ) => sounds_secret(name),
        Some(
            AttributeName::Ip
            | AttributeName::User
            | AttributeName::Method
            | AttributeName::Path
            | AttributeName::Host
            | AttributeName::Route
            | AttributeName::Key
            | AttributeName::Claim(_),
        )
        | None => false,
    };
    is_secret || value.text.len() > VALUE_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use ratewright_core::Quota;
    use ratewright_core::query::Attribute;
    use ratewright_core::quota::{Algorithm, Refill};
    use ratewright_core::store::BucketName;

    #[track_caller]
    fn check(quota_name: Option<&str>, values: &[&str], is_tagged: bool, expected: Expect) {
        let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1/s".parse().unwrap()).unwrap();
        let names: Vec<String> = (0..values.len()).map(|n| n.to_string()).collect();
        let partition = names.iter().map(|name| AttributeName::Named(name.as_str()).into()).collect();
        let attributes: Vec<_> = names
            .iter()
            .zip(values)
            .map(|(name, value)| Attribute { name: AttributeName::Named(name.as_str()), value })
            .collect();
        let bucket = BucketName::new("login", quota_name, &quota, partition);
        let naming = Naming { prefix: "ratelimit".to_owned(), is_tagged };
        expected.assert_eq(&naming.name(&Key::new(&bucket, &attributes).unwrap()));
    }

    #[test]
    fn a_key_is_prefix_policy_and_values() {
        check(None, &["10.0.0.1"], false, expect!["ratelimit:login:10.0.0.1"]);
        check(None, &["2001:db8::/64"], false, expect!["ratelimit:login:2001:db8::/64"]);
        check(Some("minute"), &["10.0.0.1"], false, expect!["ratelimit:login/minute:10.0.0.1"]);
        check(None, &["orders", "ann@example.com"], false, expect!["ratelimit:login:orders|ann@example.com"]);
        check(None, &[], false, expect!["ratelimit:login"]);
        check(None, &[""], false, expect!["ratelimit:login:"]);
        check(None, &["10.0.0.1", "b"], true, expect!["ratelimit:login:{10.0.0.1|b}"]);
        check(None, &[], true, expect!["ratelimit:login"]);
        check(None, &[""], true, expect!["ratelimit:login:{%}"]);
    }

    #[test]
    fn an_address_that_stands_in_has_a_key_of_its_own() {
        let quota = Quota::new(Algorithm::default(), "1/s".parse().unwrap()).unwrap();
        let bucket = BucketName::new("p", None, &quota, vec![AttributeName::User.into()]);
        let naming = Naming { prefix: "ratelimit".to_owned(), is_tagged: false };
        let [user, unreadable] = ["ip:10.0.0.1", Attribute::UNREADABLE]
            .map(|value| Attribute { name: AttributeName::User, value });
        let ip = Attribute { name: AttributeName::Ip, value: "10.0.0.1" };
        let name = |attributes: &[Attribute<'_>]| naming.name(&Key::new(&bucket, attributes).unwrap());
        assert_eq!(name(&[unreadable, ip]), "ratelimit:p:ip:10.0.0.1");
        assert_eq!(name(&[user, ip]), "ratelimit:p:ip%3A10.0.0.1");
    }

    /// One request once made a key of 14 kB.
    #[test]
    fn long_values_and_secrets_are_told_as_digests() {
        let long = "x".repeat(64);
        check(
            None,
            &[&long],
            false,
            expect![[r#"ratelimit:login:xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"#]],
        );
        check(None, &[&(long + "x")], false, expect!["ratelimit:login:#9537c5fdf120482f7d58d25e9ed583f5"]);
        check(
            None,
            &["#8ce1ac05ae92aaaf1a4f3d8b4b6ce2f3"],
            false,
            expect!["ratelimit:login:%238ce1ac05ae92aaaf1a4f3d8b4b6ce2f3"],
        );
        let quota = Quota::new(Algorithm::default(), "1/s".parse().unwrap()).unwrap();
        let secret = AttributeName::Header("x-api-key");
        let bucket = BucketName::new("p", None, &quota, vec![secret.into()]);
        let naming = Naming { prefix: "ratelimit".to_owned(), is_tagged: false };
        let key = [Attribute { name: secret, value: "k-123" }];
        let name = naming.name(&Key::new(&bucket, &key).unwrap());
        assert_eq!(name, format!("ratelimit:p:{}", digest_of("k-123")));
        assert_eq!(name.len(), "ratelimit:p:#".len() + 32);
    }

    #[test]
    fn the_mark_of_a_receipt_lies_beside_its_bucket() {
        let used =
            |bucket: &str, is_tagged| Naming { prefix: "ratelimit".to_owned(), is_tagged }.used(bucket, 7);
        let tagged = used("ratelimit:login:{10.0.0.1|b}", true);
        assert_eq!(tagged, "ratelimit:@used:{10.0.0.1|b}:ratelimit:login:0000000000000007");
        assert_eq!(used("ratelimit:all", true), "ratelimit:@used:{ratelimit:all}:0000000000000007");
        assert_eq!(used("ratelimit:p:a", false), "ratelimit:@used:{ratelimit:p:a}:0000000000000007");
    }

    #[test]
    fn no_value_reaches_another_key() {
        check(None, &["a|b", "c"], false, expect!["ratelimit:login:a%7Cb|c"]);
        check(None, &["a", "b|c"], false, expect!["ratelimit:login:a|b%7Cc"]);
        check(None, &["}x{"], true, expect!["ratelimit:login:{%7Dx%7B}"]);
        check(None, &["a\0\r\n é%"], false, expect!["ratelimit:login:a%00%0D%0A%20%C3%A9%25"]);
    }
}
