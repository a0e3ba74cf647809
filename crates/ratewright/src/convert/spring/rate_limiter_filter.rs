//! The filter `RequestRateLimiter` of Spring Cloud Gateway, as a policy.
//!
//! `replenishRate` tokens come back each second, `burstCapacity` is the size of the bucket, and a request takes `requestedTokens`.
//! The bucket belongs to a route and a key.

use ratewright_core::quota::Refill;

use super::client_keys::CountedBy;
use super::predicates::RouteComponent;
use super::properties::SpringProperty;
use super::quotas::DraftBucket;
use super::reader::{A_NUMBER, DraftDuration, DraftNumber, SpringReader};
use crate::convert::policy_file_draft::{DraftItem, quoted};

/// Decimals of `replenishRate` that are read: 0.000001 is one token in 11 days.
const DECIMALS_MAX: usize = 6;

/// Which requests a filter is for.
#[derive(Clone, Copy)]
pub(super) enum FilterScope<'a> {
    /// Those of the route with this id.
    Route(&'a str),
    /// Those of all routes, each with its own buckets.
    AllRoutes,
}

/// A converted filter.
pub(super) struct FilterPolicy {
    pub(super) policy: DraftItem,
    /// True if Spring shares the buckets between routes.
    pub(super) is_shared: bool,
}

/// What a filter says about its amount.
struct FilterAmounts {
    bucket: DraftBucket,
    cost: Option<DraftNumber>,
}

impl SpringReader<'_> {
    /// The policy of a filter. None if it is invalid, which is reported. `settings` are those of all such filters.
    pub(super) fn filter_policy(
        &mut self,
        filter: &RouteComponent<'_>,
        scope: FilterScope<'_>,
        settings: Option<&SpringProperty>,
    ) -> Option<FilterPolicy> {
        let is_shared = filter.arg(&["bucket4j-rate-limiter"]).is_some();
        let name = match scope {
            FilterScope::Route(id) => self.unique_name(id, "policy"),
            FilterScope::AllRoutes => self.unique_name("all-routes", "policy"),
        };
        let mut policy = DraftItem::new(name, filter.property.place);
        self.filter_key(filter, scope, settings, &mut policy);
        let amounts = if is_shared { self.bucket4j_amounts(filter) } else { self.redis_amounts(filter) };
        let FilterAmounts { bucket, cost } = amounts?;
        if bucket.capacity.text == "0" {
            policy
                .comment("burstCapacity 0 denies every request: a request costs more than the bucket holds.");
            policy.set("quota", "{ rate: 1/s, burst: 1 }");
            policy.set("cost", "2");
        } else {
            let quota = self.bucket_quota(filter.property, &bucket);
            policy.set("quota", quota);
            if let Some(cost) = cost.filter(|cost| cost.text != "1") {
                policy.set("cost", quoted(&cost.text));
            }
        }
        self.assumed().into_iter().for_each(|comment| policy.comment(comment));
        self.filter_statuses(filter, &mut policy);
        for comment in self.leftovers(filter.property, "this argument is not known") {
            policy.comment(comment);
        }
        Some(FilterPolicy { policy, is_shared })
    }

    /// What the filter counts by: its bean is code, so its name counts.
    fn filter_key(
        &mut self,
        filter: &RouteComponent<'_>,
        scope: FilterScope<'_>,
        settings: Option<&SpringProperty>,
        policy: &mut DraftItem,
    ) {
        let property = filter.arg(&["key-resolver"]);
        let bean = property
            .and_then(SpringProperty::text)
            .or(filter.shortcut(2))
            .unwrap_or("principalNameKeyResolver");
        let bean = bean.trim_matches(['#', '{', '}', '@', ' ']).to_owned();
        let place = property.unwrap_or(filter.property);
        let by = CountedBy::of_name(&bean);
        let source = if by.is_some() { "from the name of" } else { "in place of" };
        let by = by.unwrap_or(CountedBy::Ip);
        let setting = by.setting();
        let shown = setting.as_deref().unwrap_or("one bucket for everybody");
        self.warn(
            place,
            &format!("assumed by: {shown}, {source} the bean {bean}; compare it with the bean's code"),
        );
        policy.comment(format!("assumed: by, {source} the bean {bean}"));
        match (scope, setting) {
            (FilterScope::Route(_), Some(setting)) => policy.set("by", setting),
            (FilterScope::AllRoutes, Some(setting)) => policy.set("by", format!("[route, {setting}]")),
            (FilterScope::AllRoutes, None) => policy.set("by", "route"),
            (FilterScope::Route(_), None) => {}
        }
        if matches!(by, CountedBy::User | CountedBy::UserOrIp) {
            self.identify_users();
        }
        let own = filter.arg(&["deny-empty-key"]).and_then(|property| self.switch(property, true));
        let general = settings.and_then(|settings| settings.get("deny-empty-key"));
        let general = general.and_then(|property| self.switch(property, true));
        let denies = own.or(general).unwrap_or(true);
        if by.may_be_missing() && denies {
            policy.set("missing", "deny");
        }
    }

    /// `redis-rate-limiter`, or the values of a shortcut.
    fn redis_amounts(&mut self, filter: &RouteComponent<'_>) -> Option<FilterAmounts> {
        let of = |name: &str| filter.arg(&[&format!("redis-rate-limiter.{name}"), name]);
        if let Some(bean) = filter.arg(&["rate-limiter"]) {
            self.warn(
                bean,
                "a RateLimiter bean is code; the values of redis-rate-limiter are converted instead",
            );
            bean.set_read();
        }
        let Some(property) = of("replenish-rate") else {
            let [Some(rate), Some(burst)] =
                [0, 1].map(|n| filter.shortcut(n)?.parse().ok().filter(|n| *n > 0))
            else {
                self.error(
                    filter.property,
                    "RequestRateLimiter needs args: redis-rate-limiter.replenishRate and burstCapacity",
                );
                return None;
            };
            let bucket =
                bucket(DraftNumber::known(rate), DraftDuration::seconds(1), DraftNumber::known(burst));
            return Some(FilterAmounts { bucket, cost: None });
        };
        let (units, period) = self.decimal_rate(property)?;
        let capacity = match of("burst-capacity") {
            Some(property) => self.number(property)?,
            None => {
                self.warn(filter.property, "burstCapacity is missing; Spring's default is 1");
                DraftNumber::known(1)
            }
        };
        let cost = match of("requested-tokens") {
            Some(property) => Some(self.positive(property)?),
            None => None,
        };
        Some(FilterAmounts { bucket: bucket(units, period, capacity), cost })
    }

    /// A rate per second, which may have decimals: 0.5 is one in two seconds.
    fn decimal_rate(&mut self, property: &SpringProperty) -> Option<(DraftNumber, DraftDuration)> {
        let text = self.text(property, A_NUMBER)?.value.unwrap_or_default();
        if text.contains('.') {
            self.fixed(property, A_NUMBER);
        }
        let Some((whole, decimals)) =
            text.split_once('.').filter(|(_, decimals)| decimals.len() <= DECIMALS_MAX)
        else {
            return Some((self.positive(property)?, DraftDuration::seconds(1)));
        };
        let decimals = decimals.trim_end_matches('0');
        let is_number = whole.bytes().chain(decimals.bytes()).all(|b| b.is_ascii_digit());
        let units = format!("{whole}{decimals}").parse::<u32>().ok().filter(|units| *units > 0 && is_number);
        let Some(units) = units else {
            self.error(property, &format!("{text:?} is not a rate; write a number above 0, such as 10"));
            return None;
        };
        let seconds = 10_u32.pow(u32::try_from(decimals.len()).unwrap_or(0));
        let shared = gcd(units, seconds);
        Some((DraftNumber::known(units / shared), DraftDuration::seconds((seconds / shared).into())))
    }

    /// `bucket4j-rate-limiter`.
    fn bucket4j_amounts(&mut self, filter: &RouteComponent<'_>) -> Option<FilterAmounts> {
        let args = filter.arg(&["bucket4j-rate-limiter"])?;
        let (Some(capacity), Some(period)) = (args.get("capacity"), args.get("refill-period")) else {
            self.error(args, "bucket4j-rate-limiter needs capacity and refillPeriod");
            return None;
        };
        let (capacity, period) = (self.positive(capacity)?, self.duration(period)?);
        let units = match args.get("refill-tokens") {
            Some(property) => self.positive(property)?,
            None => capacity.clone(),
        };
        let refill = self.refill(args.get("refill-style"));
        let cost = match args.get("requested-tokens") {
            Some(property) => Some(self.positive(property)?),
            None => None,
        };
        Some(FilterAmounts { bucket: DraftBucket { units, period, capacity, refill }, cost })
    }

    /// Statuses of denials. Ratewright's are 429, and 403 for a missing key.
    fn filter_statuses(&mut self, filter: &RouteComponent<'_>, policy: &mut DraftItem) {
        for (name, usual) in
            [("status-code", ["429", "TOO_MANY_REQUESTS"]), ("empty-key-status", ["403", "FORBIDDEN"])]
        {
            let Some(property) = filter.arg(&[name]) else { continue };
            if property.text().is_some_and(|text| usual.contains(&text)) {
                continue;
            }
            let advice = format!("Ratewright denies with {}", usual[0]);
            policy.comment(self.not_converted(property, &advice));
        }
    }
}

fn bucket(units: DraftNumber, period: DraftDuration, capacity: DraftNumber) -> DraftBucket {
    DraftBucket { units, period, capacity, refill: Refill::Smooth }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
