//! One canonical spelling for all base64 texts that decode to the same bytes.
//!
//! Many decoders skip characters outside their alphabet, accept either alphabet, and ignore padding and unused bits of
//! the last character. So one credential has many spellings, and without this each would have its own bucket.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

/// The same bytes in the URL-safe alphabet, without padding and unused bits.
pub(crate) fn canonical(text: &str) -> Cow<'_, str> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &URL_SAFE,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireNone),
    );
    if BASE64_URL_SAFE_NO_PAD.decode(text).is_ok() {
        return Cow::Borrowed(text);
    }
    let mut letters: String = text.chars().filter_map(letter).collect();
    if letters.len() % 4 == 1 {
        letters.pop(); // six bits are less than a byte
    }
    let bytes = LENIENT.decode(&letters).expect("all letters are of the alphabet, and the last is of a byte");
    Cow::Owned(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// A character in the URL-safe alphabet; `None` if it is in neither alphabet.
fn letter(letter: char) -> Option<char> {
    match letter {
        '+' => Some('-'),
        '/' => Some('_'),
        '-' | '_' | 'a'..='z' | 'A'..='Z' | '0'..='9' => Some(letter),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_the_same_bytes_are_canonicalised() {
        for spelling in [
            "YW5uYTpzM2NyZXQ",
            "YW5uYTpzM2NyZXQ=",
            "YW5u~YTpz!M2NyZXQ",
            "YW5uYTpzM2NyZXR",
            "YW5uYTpzM2NyZXQ====",
        ] {
            assert_eq!(canonical(spelling), "YW5uYTpzM2NyZXQ", "{spelling}");
        }
        assert_eq!(canonical(" YW5uYTpzM2NyZXQ\tA"), "YW5uYTpzM2NyZXQA", "one byte more");
        assert_eq!(canonical("a+b/"), "a-b_");
        assert_eq!(canonical("QR"), "QQ");
        assert_eq!(canonical("abcdé"), "abcd");
        for nothing in ["", "=", "A", "é"] {
            assert_eq!(canonical(nothing), "", "{nothing}");
        }
    }

    proptest::proptest! {
        #[test]
        fn the_canonical_spelling_is_stable(text in "([ -~]|\\PC){0,40}") {
            let spelled = canonical(&text).into_owned();
            proptest::prop_assert_eq!(canonical(&spelled), spelled.clone());
        }
    }
}
