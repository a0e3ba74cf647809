//! `quota`, `cost` and `count`: how much a policy allows, what a request costs, and which responses count.

use std::collections::{BTreeMap, BTreeSet};

use ratewright_core::Quota;
use ratewright_core::policy::{Cost, CountedResponses};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::Algorithm;
use ratewright_http::path::Case;

use crate::file::{self, CostEntry};
use crate::raw_value::{ConfigValue, Located, Position, RawValue, Sections};
use crate::reader::Reader;
use crate::values::{Name, Statuses};

/// The quotas of a policy, the first without a name.
pub(crate) type Quotas = Vec<(Option<String>, Quota)>;

impl Reader<'_> {
    /// One or several quotas. All but the first need a name.
    pub(crate) fn quotas(
        &mut self,
        path: &str,
        raw: &Sections<file::Quota>,
        inherited: Option<Algorithm>,
    ) -> Option<Quotas> {
        let mut quotas = Vec::new();
        let mut names = BTreeSet::new();
        let mut is_valid = !raw.items.is_empty();
        if !is_valid {
            self.error(raw.position, format!("{path} is an empty list; write {{rate: 10/s}}"));
        }
        for (n, Located { value: quota, position }) in raw.items.iter().enumerate() {
            let path = if raw.items.len() == 1 { path.to_owned() } else { format!("{path}[{n}]") };
            let name = self.read_if(&format!("{path}.name"), &quota.name).map(|Name(name)| name);
            if n > 0 && quota.name.is_none() {
                self.error(
                    *position,
                    format!(
                        "{path} has no name; the second quota and later ones need one, for example name: hour"
                    ),
                );
                is_valid = false;
            }
            if name.as_ref().is_some_and(|name| !names.insert(name.clone())) {
                let position = quota.name.as_ref().and_then(|name| name.position);
                self.error(position, format!("{path}.name: duplicate quota name; rename one"));
                is_valid = false;
            }
            match self.quota(&path, quota, *position, inherited) {
                Some(quota) => quotas.push((if n == 0 { None } else { name }, quota)),
                None => is_valid = false,
            }
        }
        is_valid.then_some(quotas)
    }

    /// One quota.
    pub(crate) fn quota(
        &mut self,
        path: &str,
        raw: &file::Quota,
        position: Option<Position>,
        inherited: Option<Algorithm>,
    ) -> Option<Quota> {
        let algorithm = self.algorithm(path, raw, inherited);
        let Some(rate_written) = &raw.rate else {
            self.error(position, format!("{path} has no rate; write rate: 10/s"));
            return None;
        };
        let rate = self.read(&format!("{path}.rate"), rate_written);
        let burst =
            raw.burst.as_ref().map(|burst| (burst.position, self.read(&format!("{path}.burst"), burst)));
        let (algorithm, rate) = (algorithm?, rate?);
        let wrong = |reader: &mut Self, position, error: ratewright_core::quota::QuotaError| {
            reader.error(position, format!("{path}: {error}"))
        };
        let quota =
            Quota::new(algorithm, rate).map_err(|error| wrong(self, rate_written.position, error)).ok()?;
        match burst {
            None => Some(quota),
            Some((position, burst)) => {
                quota.with_burst(burst?.0).map_err(|error| wrong(self, position, error)).ok()
            }
        }
    }

    /// The algorithm with its variant.
    fn algorithm(
        &mut self,
        path: &str,
        raw: &file::Quota,
        inherited: Option<Algorithm>,
    ) -> Option<Algorithm> {
        let algorithm = match &raw.algorithm {
            None => inherited.unwrap_or(Algorithm::TokenBucket(Default::default())),
            Some(algorithm) => self.read(&format!("{path}.algorithm"), algorithm)?,
        };
        let refill = self.variant(path, "refill", &raw.refill, algorithm, "token_bucket")?;
        let leak = self.variant(path, "leak", &raw.leak, algorithm, "leaky_bucket")?;
        let start = self.variant(path, "start", &raw.start, algorithm, "fixed_window")?;
        Some(match algorithm {
            Algorithm::TokenBucket(default) => Algorithm::TokenBucket(refill.unwrap_or(default)),
            Algorithm::LeakyBucket(default) => Algorithm::LeakyBucket(leak.unwrap_or(default)),
            Algorithm::FixedWindow(default) => Algorithm::FixedWindow(start.unwrap_or(default)),
            Algorithm::SlidingWindow | Algorithm::SlidingWindowCounter => algorithm,
        })
    }

    /// A variant that one algorithm has. The outer `None` means that the setting is invalid.
    fn variant<T: ConfigValue>(
        &mut self,
        path: &str,
        what: &str,
        raw: &Option<RawValue<T>>,
        algorithm: Algorithm,
        of: &str,
    ) -> Option<Option<T>> {
        let Some(variant) = raw else { return Some(None) };
        if algorithm.name() != of {
            self.error(
                variant.position,
                format!(
                    "{path}.{what} is for {of} only, but the algorithm is {}; remove it",
                    algorithm.name()
                ),
            );
            return None;
        }
        self.read(&format!("{path}.{what}"), variant).map(Some)
    }

    pub(crate) fn cost(&mut self, path: &str, raw: &Located<file::Cost>, case: Case) -> Option<Cost> {
        match &raw.value {
            file::Cost::Fixed(text) => {
                let mut fixed = RawValue::without_position(text);
                fixed.position = raw.position;
                self.read(path, &fixed).map(Cost::Fixed)
            }
            file::Cost::Table(table) => match (table.get("header"), table.get("path")) {
                (Some(CostEntry::One(header)), _) if table.len() == 1 => {
                    let name = self.read(&format!("{path}.header"), &header.cast::<http::HeaderName>())?;
                    Some(Cost::Of(AttributeName::Header(name.as_str().to_owned())))
                }
                (_, Some(CostEntry::Paths(paths))) if table.len() == 1 => self.path_costs(path, paths, case),
                (None, None) if table.contains_key("bytes") => self.byte_cost(path, table, raw.position),
                (None, None) => self.method_costs(path, table, raw.position),
                _ => {
                    let problem = format!(
                        "{path} mixes several kinds of cost; use one of {{header: X-Cost}}, {{path: {{\"/a/**\": 10}}}}, {{bytes: request}} and {{GET: 1}}"
                    );
                    self.error(raw.position, problem);
                    None
                }
            },
        }
    }

    /// `{bytes: request}`.
    fn byte_cost(
        &mut self,
        path: &str,
        table: &BTreeMap<String, CostEntry>,
        position: Option<Position>,
    ) -> Option<Cost> {
        match table.get("bytes") {
            Some(CostEntry::One(of)) if table.len() == 1 && of.text == "request" => Some(Cost::RequestBytes),
            _ => {
                let problem = format!(
                    "{path}.bytes must be request, and must be the only entry; write cost: {{bytes: request}}"
                );
                self.error(position, problem);
                None
            }
        }
    }

    fn path_costs(
        &mut self,
        path: &str,
        table: &BTreeMap<String, RawValue<String>>,
        case: Case,
    ) -> Option<Cost> {
        let mut costs = Vec::new();
        let mut others = 1;
        for (text, cost) in table {
            let units = self.read(&format!("{path}.path.{text}"), &cost.cast::<u32>())?;
            if text == "default" {
                others = units;
            } else {
                let mut raw = RawValue::without_position(text);
                raw.position = cost.position;
                costs.push((self.pattern(&format!("{path}.path"), &AttributeName::Path, &raw, case)?, units));
            }
        }
        Some(Cost::ByPath { costs, others })
    }

    fn method_costs(
        &mut self,
        path: &str,
        table: &BTreeMap<String, CostEntry>,
        position: Option<Position>,
    ) -> Option<Cost> {
        let mut costs = Vec::new();
        let mut others = 1;
        if !self.has_each_method_once(path, table) {
            return None;
        }
        for (method, cost) in table {
            let cost = match cost {
                CostEntry::One(cost) => cost,
                CostEntry::Paths(paths) => {
                    let problem = format!(
                        "{path}.{method} is a section, but a number is expected; for a cost by path write {{path: {{\"/a/**\": 10}}}}"
                    );
                    let first = paths.values().next().and_then(|cost| cost.position);
                    self.error(first.or(position), problem);
                    return None;
                }
            };
            if method.starts_with(['/', '*']) {
                let problem = format!(
                    "{path} has {method:?}, which is not a method; for a cost by path write cost: {{path: {{{method:?}: {}}}}}",
                    cost.text
                );
                self.error(cost.position, problem);
                return None;
            }
            let units = self.read(&format!("{path}.{method}"), &cost.cast::<u32>())?;
            if method == "default" {
                others = units;
            } else {
                let mut raw = RawValue::without_position(method);
                raw.position = cost.position;
                costs.push((self.method(path, method, &raw)?, units));
            }
        }
        Some(Cost::ByMethod { costs, others })
    }

    /// False, and an error, if a table has two costs for a method.
    fn has_each_method_once(&mut self, path: &str, table: &BTreeMap<String, CostEntry>) -> bool {
        let position = |cost: &CostEntry| match cost {
            CostEntry::One(cost) => cost.position,
            CostEntry::Paths(_) => None,
        };
        let mut methods: Vec<_> = table.iter().map(|(method, cost)| (position(cost), method)).collect();
        methods.sort();
        let mut known = BTreeMap::new();
        let n_errors = self.errors.len();
        // Paths in place of methods have an error of their own.
        let is_method = |method: &String| method != "default" && !method.starts_with(['/', '*']);
        for (position, method) in methods.into_iter().filter(|(_, method)| is_method(method)) {
            let first = *known.entry(method.to_ascii_uppercase()).or_insert(method);
            if first != method {
                let problem = format!(
                    "{path} has two costs for one method, {first} and {method} (case is ignored); remove one"
                );
                self.error(position, problem);
            }
        }
        self.errors.len() == n_errors
    }

    /// Which responses count.
    pub(crate) fn counted(&mut self, path: &str, raw: Option<&Located<file::Count>>) -> CountedResponses {
        let Some(Located { value: file::Count { status }, position }) = raw else {
            return CountedResponses::default();
        };
        let Some(statuses) = status.as_ref().filter(|statuses| !statuses.items.is_empty()) else {
            let position = status.as_ref().map_or(*position, |statuses| statuses.position);
            self.error(
                position,
                format!(
                    "{path} has no status, so no response would count; write {{status: [401, 403]}}, or remove count"
                ),
            );
            return CountedResponses::default();
        };
        let statuses = self.read_each(&format!("{path}.status"), statuses);
        CountedResponses::only(statuses.into_iter().map(|Statuses(range)| range).collect())
    }
}
