//! The names of descriptors' policies.
//!
//! ```text
//!   shop, client_red, method     envoy.shop.client_red.method
//!   shop, route_/api/*           envoy.shop.route_-api--..bb77fbdb2497dd6d
//! ```
//!
//! A policy's name is part of its buckets' names, so it must not change from one load to the next, whatever else is in
//! the files, and no two descriptors may share one. Texts of `a-z 0-9 _ -` are copied, with dots between levels. Other
//! characters are replaced, long names are cut, and both then end in a digest of the whole; after two dots, so that no
//! name without a digest looks the same.

use ratewright_core::Policy;

/// The prefix of all names.
pub const PREFIX: &str = "envoy.";

/// Hexadecimal digits of a digest of 64 bits.
const DIGITS: usize = 16;

/// The name of a descriptor's policy, from its domain and the texts of its levels.
pub(crate) fn policy_name(path: &[String]) -> String {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
    let is_plain = path.iter().all(|text| !text.is_empty() && text.bytes().all(plain));
    let name = format!("{PREFIX}{}", path.join("."));
    if is_plain && name.len() <= Policy::NAME_MAX {
        return name;
    }
    let replaced = name.chars().map(|c| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '.' | '_' | '-') => c,
        _ => '-',
    });
    let readable: String = replaced.take(Policy::NAME_MAX - DIGITS - 2).collect();
    format!("{readable}..{:016x}", digest(path))
}

/// FNV-1a over texts and their lengths. Not collision resistant: the author of the files has no reason to attack it.
fn digest(path: &[String]) -> u64 {
    let texts = path.iter().flat_map(|text| {
        let length = u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes();
        length.into_iter().chain(text.bytes())
    });
    texts.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn names_say_where_a_descriptor_stands_and_stay_as_they_are() {
        let long = "x".repeat(70);
        let paths: [&[&str]; 7] = [
            &["shop", "client_red", "method"],
            &["shop", "route_/api/*"],
            &["shop", "route_/Api/*"],
            &["a.b", "c"],
            &["a", "b.c"],
            &["shop", &long],
            &["shop", "ü"],
        ];
        let owned = |path: &[&str]| path.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let names: Vec<_> = paths.into_iter().map(|path| policy_name(&owned(path))).collect();
        assert!(names.iter().all(|name| name.len() <= Policy::NAME_MAX));
        expect![[r#"
            envoy.shop.client_red.method
            envoy.shop.route_-api--..bb77fbdb2497dd6d
            envoy.shop.route_-api--..9fdf9ccfd03ea08d
            envoy.a.b.c..39c4598280a90511
            envoy.a.b.c..3de1e5df048b95ad
            envoy.shop.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..0a87c7247173b2d3
            envoy.shop.-..750532344c403b08"#]]
        .assert_eq(&names.join("\n"));
    }
}
