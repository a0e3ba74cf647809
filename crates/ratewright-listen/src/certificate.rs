//! The expiry of our own certificates.
//!
//! ```text
//!   Certificate ─ TBSCertificate ─ … issuer, Validity { notBefore, notAfter }, subject …     RFC 5280
//! ```
//!
//! rustls verifies the certificates of peers, but does not show when our own expire. `Validity` is the only field that is a
//! sequence of two times, so the parser looks for that.

use simple_asn1::{ASN1Block, from_der};
use tokio_rustls::rustls::pki_types::CertificateDer;

/// When the first of these certificates expires, in Unix seconds; clients reject the chain from then on. None: a
/// certificate cannot be parsed.
pub(crate) fn expires_at(chain: &[CertificateDer<'_>]) -> Option<u64> {
    let times: Option<Vec<u64>> = chain.iter().map(|certificate| not_after(certificate)).collect();
    times?.into_iter().min()
}

fn not_after(certificate: &[u8]) -> Option<u64> {
    let blocks = from_der(certificate).ok()?;
    let [ASN1Block::Sequence(_, certificate)] = blocks.as_slice() else { return None };
    let Some(ASN1Block::Sequence(_, fields)) = certificate.first() else { return None };
    fields.iter().find_map(|field| {
        let ASN1Block::Sequence(_, validity) = field else { return None };
        let [start, end] = validity.as_slice() else { return None };
        seconds(start).and(seconds(end))
    })
}

/// A time, in Unix seconds.
fn seconds(block: &ASN1Block) -> Option<u64> {
    let (ASN1Block::UTCTime(_, time) | ASN1Block::GeneralizedTime(_, time)) = block else { return None };
    Some(u64::try_from(time.assume_utc().unix_timestamp()).unwrap_or(0)) // expired before 1970
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn until(year: i32, month: u8, day: u8) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, month, day);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn expiry_is_read_from_both_time_formats() {
        assert_eq!(expires_at(&[until(2030, 1, 2)]), Some(1_893_542_400), "UTCTime");
        assert_eq!(expires_at(&[until(2100, 1, 1)]), Some(4_102_444_800), "GeneralizedTime");
    }

    #[test]
    fn a_chain_expires_with_its_first_certificate() {
        assert_eq!(expires_at(&[until(2031, 1, 1), until(2030, 1, 2)]), Some(1_893_542_400));
        assert_eq!(expires_at(&[]), None);
    }

    #[test]
    fn an_invalid_certificate_has_no_expiry() {
        assert_eq!(expires_at(&[CertificateDer::from(b"nothing".to_vec())]), None);
        let whole = until(2030, 1, 2);
        for length in 0..whole.len() {
            not_after(&whole[..length]); // must not panic
        }
    }
}
