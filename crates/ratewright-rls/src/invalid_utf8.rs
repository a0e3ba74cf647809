//! Requests with texts that are not UTF-8.
//!
//! Envoy copies header values into descriptors byte by byte, and clients may send any bytes. Protocol Buffers allow no such
//! texts, so the usual reader rejects the whole request, and Envoy lets it pass uncounted, unless `failure_mode_deny` is set: one
//! such header would be a way around every limit. So a request that the usual reader rejects is read once more here, and U+FFFD
//! replaces bytes that are not UTF-8.

use bytes::Bytes;
use prost::{DecodeError, Message};

use crate::wire::{Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest};

/// `RateLimitRequest` with bytes in place of texts.
#[derive(Clone, PartialEq, Message)]
struct RawRequest {
    #[prost(bytes = "bytes", tag = "1")]
    domain: Bytes,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<RawDescriptor>,
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
struct RawDescriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<RawEntry>,
    #[prost(message, optional, tag = "2")]
    limit: Option<RateLimitOverride>,
    #[prost(message, optional, tag = "3")]
    hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    is_negative_hits: bool,
}

#[derive(Clone, PartialEq, Message)]
struct RawEntry {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// Reads a request whose texts may be any bytes.
///
/// # Errors
/// If it is invalid for another reason.
pub(crate) fn decode(message: &[u8]) -> Result<RateLimitRequest, DecodeError> {
    let RawRequest { domain, descriptors, hits_addend } = RawRequest::decode(message)?;
    let descriptors = descriptors.into_iter().map(RawDescriptor::into_text).collect();
    Ok(RateLimitRequest { domain: text(&domain), descriptors, hits_addend })
}

impl RawDescriptor {
    fn into_text(self) -> RateLimitDescriptor {
        let Self { entries, limit, hits_addend, is_negative_hits } = self;
        let entry = |entry: RawEntry| Entry { key: text(&entry.key), value: text(&entry.value) };
        let entries = entries.into_iter().map(entry).collect();
        RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every field arrives, so that this type cannot fall behind the generated one unnoticed.
    #[test]
    fn a_request_of_texts_reads_as_usual() {
        let limit = RateLimitOverride { requests_per_unit: 7, unit: 2 };
        let entry = Entry { key: "key".to_owned(), value: "é".to_owned() };
        let descriptor = RateLimitDescriptor {
            entries: vec![entry.clone(), entry],
            limit: Some(limit),
            hits_addend: Some(3),
            is_negative_hits: true,
        };
        let descriptors = vec![descriptor.clone(), descriptor];
        let request = RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 9 };
        assert_eq!(decode(&request.encode_to_vec()).unwrap(), request);
        assert!(decode(b"\xff").is_err());
    }
}
