//! SipHash-1-3 with 128 bits, of one message.
//!
//! The reference construction (Aumasson and Bernstein), written so that its state never leaves the
//! registers: it is part of every decision, and takes half the time of the `siphasher` crate's, to which a
//! test holds it bit for bit.

/// The keyed hash of a message.
#[inline(always)]
pub(super) fn hash(key: [u64; 2], message: &[u8]) -> [u64; 2] {
    let [k0, k1] = key;
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = message.as_chunks::<8>();
    for word in words {
        v = absorb(v, u64::from_le_bytes(*word));
    }
    let tail = match message.last_chunk::<8>() {
        // The last eight bytes, less those that the last word had.
        Some(last) if !rest.is_empty() => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
        _ => rest.iter().rev().fold(0, |tail, &byte| tail << 8 | u64::from(byte)),
    };
    v = absorb(v, tail | (message.len() as u64) << 56);
    v[2] ^= 0xee;
    v = round(round(round(v)));
    let high = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    v = round(round(round(v)));
    [high, v[0] ^ v[1] ^ v[2] ^ v[3]]
}

#[inline(always)]
fn absorb(mut v: [u64; 4], word: u64) -> [u64; 4] {
    v[3] ^= word;
    v = round(v);
    v[0] ^= word;
    v
}

#[inline(always)]
fn round([mut a, mut b, mut c, mut d]: [u64; 4]) -> [u64; 4] {
    a = a.wrapping_add(b);
    b = b.rotate_left(13) ^ a;
    a = a.rotate_left(32);
    c = c.wrapping_add(d);
    d = d.rotate_left(16) ^ c;
    a = a.wrapping_add(d);
    d = d.rotate_left(21) ^ a;
    c = c.wrapping_add(b);
    b = b.rotate_left(17) ^ c;
    [a, b, c.rotate_left(32), d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use siphasher::sip128::SipHasher13;

    proptest! {
        #[test]
        fn it_is_siphash_bit_for_bit(key: [u64; 2], message: Vec<u8>) {
            let expected = SipHasher13::new_with_keys(key[0], key[1]).hash(&message);
            prop_assert_eq!(hash(key, &message), [expected.h1, expected.h2]);
        }
    }
}
