//! Queries with several interpretations: policies are selected once for each interpretation.
//!
//! ```text
//!   POST, overridden by GET, with sid=a and sid=b      POST a   POST b   GET a   GET b
//!                                                      └ charges of all of them together ┘
//! ```
//!
//! Within one interpretation (`reading` in the code) every attribute has one value, so groups, overrides, costs and exemptions work
//! as usual. If several interpretations charge the same bucket, it is charged once, with the largest cost and the strictest mode.

use smallvec::SmallVec;

use super::{Policies, Refused};
use crate::charge::{Act, Charge, Charges};
use crate::policy::Mode;
use crate::query::{Attribute, AttributeName, Query, Select};

/// The most readings of a query. Policies that use an attribute with too many values refuse the query.
const VIEWS_MAX: usize = 64;

/// An attribute with its several values.
type AttributeValues<'a> = (AttributeName<&'a str>, SmallVec<[&'a str; 5]>);

impl Policies {
    /// Selects for each reading of a query.
    #[inline(never)]
    pub(super) fn select_readings<'a>(
        &'a self,
        names: &[&str],
        query: &Query<'a>,
        charges: &mut Charges<'a>,
    ) -> Option<Refused> {
        let mut refused = None;
        for attributes in views(query) {
            let seen = Query { select: Select::Covering(&[]), attributes: &attributes, ..*query };
            refused = refused.or(self.select_covering::<true>(names, &seen, query, charges));
        }
        join_readings(charges);
        refused
    }
}

/// Lets the charges of all readings under one policy in shadow mode spend together, as they would if it were enforced.
fn join_readings(charges: &mut Charges<'_>) {
    if !charges.iter().any(|charge| matches!(charge.act, Act::Try(_))) {
        return;
    }
    charges.sort_by_key(|charge| charge.limit.policy);
    let mut before = None;
    for charge in charges.iter_mut() {
        if before.replace(charge.limit.policy) == Some(charge.limit.policy) {
            charge.act = charge.act.of_further_quota();
        }
    }
}

/// The attributes in each reading of a query.
pub(crate) fn views<'q>(query: &Query<'q>) -> impl Iterator<Item = SmallVec<[Attribute<'q>; 8]>> + use<'q> {
    let (single, mut several) = split(query);
    // Checked: a product that wraps to 0 would charge nothing.
    let n_views = several.iter().map(|(_, values)| values.len()).try_fold(1, usize::checked_mul);
    let n_views = n_views.filter(|n_views| *n_views <= VIEWS_MAX).unwrap_or_else(|| {
        several.iter_mut().for_each(|(_, values)| *values = SmallVec::from_iter([Attribute::TOO_MANY]));
        1
    });
    (0..n_views).map(move |mut view| {
        let mut attributes = single.clone();
        for (name, values) in &several {
            let value = values[view % values.len()];
            view /= values.len();
            attributes.push(Attribute { name: *name, value });
        }
        attributes
    })
}

/// The attributes that have one value, and those that have several, with their values.
fn split<'a>(query: &Query<'a>) -> (SmallVec<[Attribute<'a>; 8]>, SmallVec<[AttributeValues<'a>; 2]>) {
    let mut single = SmallVec::new();
    let mut several: SmallVec<[AttributeValues<'a>; 2]> = SmallVec::new();
    for attribute in query.attributes {
        let values: SmallVec<[&str; 5]> =
            query.values(&attribute.name).filter(|value| *value != Attribute::REPEATED).collect();
        if values.len() < 2 {
            if attribute.value != Attribute::REPEATED {
                single.push(*attribute);
            }
        } else if !several.iter().any(|(name, _)| name.is(&attribute.name)) {
            several.push((attribute.name, values));
        }
    }
    (single, several)
}

/// Adds a charge, unless another reading has charged the same bucket: then the larger cost and the stricter mode count.
pub(super) fn merge<'a>(charges: &mut Charges<'a>, charge: Charge<'a>) {
    let is_same = |other: &Charge<'_>| {
        let (one, other) = (charge.limit, other.limit);
        (one.policy, one.limit, one.reading) == (other.policy, other.limit, other.reading)
    };
    let Some(known) = charges.iter_mut().find(|other| is_same(other)) else { return charges.push(charge) };
    let is_stricter = charge.limit.mode == Mode::Enforce && known.limit.mode != Mode::Enforce;
    let is_looser = charge.limit.mode != Mode::Enforce && known.limit.mode == Mode::Enforce;
    if is_stricter || !is_looser && known.act.cost() < charge.act.cost() {
        *known = charge;
    }
}
