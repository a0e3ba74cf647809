//! Receipts: the charges of a decision, as a text that the caller can return for a refund.
//!
//! ```text
//!   base64url of  {"i":7,"h":3,"c":[{"p":"login","v":["192.0.2.7"],"c":1,"t":1700000000000000,"b":"shared",
//!                                    "r":"1/6s","k":"token_bucket","n":10}]}
//! ```
//!
//! A receipt is not signed: only callers that may decide for other clients can return it, and a refund never exceeds
//! its cost, less what has been refilled since, and only if the limit is unchanged. A second refund of the same
//! receipt, for example after a lost response, returns nothing: Redis remembers refunds for all instances. Charges in
//! an instance's own memory are refunded by that instance only, which remembers the last receipts returned to it.

use std::collections::{HashSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::StatusCode;
use parking_lot::Mutex;
use ratewright_core::quota::{Rate, Share};
use ratewright_core::store::{Basis, Outcome, PaidCharge};
use ratewright_core::{Decision, Query, Timestamp};
use ratewright_http::Problem;
use serde::{Deserialize, Serialize};

use crate::body;

/// The most used receipts remembered.
const USED_MAX: usize = 65_536;

/// The maximum length of a receipt, and of its charges.
const RECEIPT_MAX: usize = 64 * 1024;
const CHARGES_MAX: usize = 256;

/// Refunds what a decision charged.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RefundRequest {
    /// The receipt of the decision. It is valid for one refund.
    #[cfg_attr(test, schemars(length(max = RECEIPT_MAX), regex(pattern = "^[A-Za-z0-9_-]+$")))]
    receipt: String,
}

/// One charge.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReceiptCharge {
    #[serde(rename = "p")]
    policy: String,
    /// The override whose bucket was charged.
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    override_name: Option<String>,
    #[serde(rename = "q", default, skip_serializing_if = "Option::is_none")]
    quota: Option<String>,
    #[serde(rename = "v")]
    values: Vec<String>,
    #[serde(rename = "c")]
    cost: u32,
    #[serde(rename = "t")]
    paid_at: u64,
    #[serde(rename = "b")]
    basis: String,
    #[serde(rename = "r")]
    rate: String,
    /// The kind of quota.
    #[serde(rename = "k")]
    kind: String,
    #[serde(rename = "n")]
    capacity: NonZeroU32,
    /// The share of the quota that was charged, as numerator and denominator, if the instance fell back to its own memory.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    share: Option<(u32, NonZeroU32)>,
}

/// The charges of a decision.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DecisionReceipt {
    /// Identifies the receipt.
    #[serde(rename = "i")]
    id: u64,
    /// The instance that decided.
    #[serde(rename = "h", default)]
    instance: u64,
    #[serde(rename = "c")]
    charges: Vec<ReceiptCharge>,
}

/// The receipts that were refunded, the oldest first.
#[derive(Debug, Default)]
pub(super) struct UsedReceipts(Mutex<(HashSet<u64>, VecDeque<u64>)>);

/// Identifies this instance.
static INSTANCE: LazyLock<u64> = LazyLock::new(|| fastrand::u64(..));

impl UsedReceipts {
    /// True if the receipt was not refunded before. Marks it as refunded.
    pub(super) fn admit(&self, receipt: &DecisionReceipt) -> bool {
        let (known, order) = &mut *self.0.lock();
        if !known.insert(receipt.id) {
            return false;
        }
        order.push_back(receipt.id);
        if order.len() > USED_MAX
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
        true
    }
}

/// The receipt of a decision. `None` if it charged nothing.
pub(super) fn of(decision: &Decision, query: &Query<'_>) -> Option<String> {
    let charges = decision.standings().filter_map(|(policy, limit, standing)| {
        let Outcome::Charged(receipt) = &standing.outcome else { return None };
        let key = query.key(limit.name(), standing.limit)?;
        Some(ReceiptCharge {
            policy: policy.name().to_owned(),
            override_name: limit.name().override_name().map(str::to_owned),
            quota: limit.name().quota().map(str::to_owned),
            values: key.values().map(|value| value.exact()).collect(),
            cost: receipt.cost,
            paid_at: receipt.paid_at.as_micros(),
            basis: standing.basis.name().to_owned(),
            rate: limit.quota().rate().to_string(),
            kind: limit.quota().kind(),
            capacity: limit.quota().capacity(),
            share: standing.share.map(|Share { part, of }| (part, of)),
        })
    });
    let charges: Vec<_> = charges.collect();
    if charges.is_empty() {
        return None;
    }
    let text =
        serde_json::to_string(&DecisionReceipt { id: fastrand::u64(..), instance: *INSTANCE, charges })
            .ok()?;
    Some(BASE64_URL_SAFE_NO_PAD.encode(text))
}

/// Parses a refund request.
pub(super) fn parse(body: &[u8]) -> Result<DecisionReceipt, Problem> {
    let RefundRequest { receipt } = body::parse(body)?;
    let receipt = Some(receipt)
        .filter(|receipt| receipt.len() <= RECEIPT_MAX)
        .and_then(|receipt| BASE64_URL_SAFE_NO_PAD.decode(receipt).ok())
        .and_then(|text| serde_json::from_slice::<DecisionReceipt>(&text).ok())
        .filter(|receipt| receipt.charges.len() <= CHARGES_MAX);
    receipt.ok_or_else(invalid_receipt)
}

impl DecisionReceipt {
    /// The charges that this instance can refund: without those in another instance's memory.
    pub(super) fn paid(&self) -> Result<Vec<PaidCharge<'_>>, Problem> {
        let paid = self.charges.iter().map(|charge| charge.paid(self.id).ok_or_else(invalid_receipt));
        let paid = paid.collect::<Result<Vec<_>, _>>()?;
        let is_here = |paid: &PaidCharge<'_>| paid.basis == Basis::Shared || self.instance == *INSTANCE;
        Ok(paid.into_iter().filter(is_here).collect())
    }
}

impl ReceiptCharge {
    fn paid(&self, id: u64) -> Option<PaidCharge<'_>> {
        Some(PaidCharge {
            id,
            policy: &self.policy,
            override_name: self.override_name.as_deref(),
            quota: self.quota.as_deref(),
            rate: self.rate.parse::<Rate>().ok()?,
            kind: &self.kind,
            capacity: self.capacity,
            values: self.values.iter().map(String::as_str).collect(),
            cost: self.cost,
            paid_at: Timestamp::from_micros(self.paid_at),
            basis: [Basis::Shared, Basis::Local].into_iter().find(|basis| basis.name() == self.basis)?,
            share: match self.share {
                None => None,
                Some((part, of)) if part <= of.get() => Some(Share { part, of }),
                Some(_) => return None,
            },
        })
    }
}

fn invalid_receipt() -> Problem {
    let detail = "receipt is not valid; send it as /api/v1/decide returned it";
    Problem::new(StatusCode::BAD_REQUEST, detail).about("receipt")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use ratewright_core::store::{Charge, Key, Receipt, Refund, Standing, Standings};
    use ratewright_core::{Limiter, Policies, Policy, Quota, Store};

    use super::*;

    /// A receipt with one charge, which has this share.
    fn receipt(share: &str) -> DecisionReceipt {
        let text = format!(
            r#"{{"i":7,"h":3,"c":[{{"p":"login","v":[],"c":1,"t":0,"b":"shared","r":"1/6s","k":"token_bucket","n":10{share}}}]}}"#
        );
        let body = format!(r#"{{"receipt":"{}"}}"#, BASE64_URL_SAFE_NO_PAD.encode(text));
        parse(body.as_bytes()).unwrap()
    }

    /// A store that decided without Redis, under half of each quota.
    struct Half;

    impl Store for Half {
        type Error = Infallible;

        async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), Infallible> {
            standings.extend(charges.iter().map(|charge| {
                let receipt = Receipt::new(charge.act.cost(), charge.quota, Timestamp::default());
                let standing = Standing::unknown(charge, Basis::Local);
                Standing { outcome: Outcome::Charged(receipt), share: Some(HALF), ..standing }
            }));
            Ok(())
        }

        async fn refund(&self, _: &[Refund<'_>]) -> Result<usize, Infallible> {
            Ok(0)
        }

        async fn reset(&self, _: &[Key<'_>]) -> Result<Basis, Infallible> {
            Ok(Basis::Local)
        }
    }

    const HALF: Share = Share { part: 1, of: NonZeroU32::new(2).expect("not zero") };

    /// Otherwise a refund would go to the bucket of another share.
    #[tokio::test]
    async fn a_receipt_has_the_share_that_was_charged() {
        let policies = Policies::new(vec![Policy::new("p", Quota::per_hour(10)).unwrap()]).unwrap();
        let query = Query::new(&[]);
        let decision = Limiter::new(policies, Half).decide(&query).await;
        let body = format!(r#"{{"receipt":"{}"}}"#, of(&decision, &query).unwrap());
        assert_eq!(parse(body.as_bytes()).unwrap().paid().unwrap()[0].share, Some(HALF));
    }

    #[test]
    fn a_share_is_at_most_the_whole() {
        let share =
            |text: &str| receipt(text).paid().map(|paid| paid[0].share).map_err(|problem| problem.status());
        assert_eq!(share(""), Ok(None));
        assert_eq!(share(r#","s":[1,2]"#), Ok(Some(HALF)));
        assert_eq!(share(r#","s":[2,1]"#), Err(StatusCode::BAD_REQUEST));
    }
}
