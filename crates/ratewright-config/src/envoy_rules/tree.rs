//! Reads descriptors from YAML, and finds the positions of their errors.

use ratewright_rls_rules::{Descriptor, DescriptorError, DescriptorField, RateLimit};

use super::yaml::{self, NAMES};
use crate::raw_value::{ConfigValue, Located, Position, RawValue};
use crate::yaml_errors::closest;

/// A remark and its position.
type Remark = (Option<Position>, String);

/// Reads the descriptors of one file.
#[derive(Default)]
pub(crate) struct DescriptorReader {
    pub(crate) wrong: Vec<Remark>,
    /// Known keys that have no effect where they are.
    pub(crate) ignored: Vec<Remark>,
}

impl DescriptorReader {
    /// The descriptors of a file.
    pub(crate) fn root(&mut self, raw: &yaml::Root) -> Vec<Descriptor> {
        self.unknown_keys(&raw.unknown_keys);
        self.descriptors(raw.descriptors.as_deref())
    }

    fn descriptors(&mut self, raw: Option<&[Located<yaml::Descriptor>]>) -> Vec<Descriptor> {
        raw.unwrap_or_default().iter().map(|one| self.descriptor(&one.value)).collect()
    }

    fn descriptor(&mut self, raw: &yaml::Descriptor) -> Descriptor {
        self.unknown_keys(&raw.unknown_keys);
        let limits = raw.rate_limit.as_ref().map(|limits| limits.items.as_slice());
        let rate_limits = limits.unwrap_or_default().iter().map(|one| self.rate_limit(&one.value)).collect();
        Descriptor {
            key: text(&raw.key),
            value: text(&raw.value),
            rate_limits,
            shadow_mode: self.switch("shadow_mode", &raw.shadow_mode),
            quota_mode: self.switch("quota_mode", &raw.quota_mode),
            record_mode: self.switch("record_mode", &raw.record_mode),
            detailed_metric: self.switch("detailed_metric", &raw.detailed_metric),
            value_to_metric: self.switch("value_to_metric", &raw.value_to_metric),
            share_threshold: self.switch("share_threshold", &raw.share_threshold),
            metadata: self.metadata(raw.metadata.as_ref()),
            descriptors: self.descriptors(raw.descriptors.as_deref()),
        }
    }

    fn rate_limit(&mut self, raw: &yaml::RateLimit) -> RateLimit {
        self.unknown_keys(&raw.unknown_keys);
        let default = RateLimit::default();
        let replaced = raw.replaces.as_deref().unwrap_or_default();
        replaced.iter().for_each(|one| self.unknown_keys(&one.value.unknown_keys));
        RateLimit {
            unit: text(&raw.unit),
            requests_per_unit: self
                .read("requests_per_unit", &raw.requests_per_unit)
                .unwrap_or(default.requests_per_unit),
            unlimited: self.switch("unlimited", &raw.unlimited),
            name: text(&raw.name),
            replaces: replaced.iter().map(|one| text(&one.value.name)).collect(),
            algorithm: self.read("algorithm", &raw.algorithm).unwrap_or(default.algorithm),
            burst: self.read("burst", &raw.burst),
            unit_multiplier: self
                .read("unit_multiplier", &raw.unit_multiplier)
                .unwrap_or(default.unit_multiplier),
        }
    }

    /// The value of a text. `${NAME}` is not replaced here.
    fn read<T: ConfigValue>(&mut self, name: &str, raw: &Option<RawValue<T>>) -> Option<T> {
        let raw = raw.as_ref()?;
        let why = match T::from_text(&raw.text) {
            Ok(value) => return Some(value),
            Err(why) => why,
        };
        self.wrong.push((raw.position, format!("{name} is {:?}; {why}", raw.text)));
        None
    }

    fn switch(&mut self, name: &str, raw: &Option<RawValue<yaml::Switch>>) -> bool {
        self.read(name, raw).is_some_and(|yaml::Switch(on)| on)
    }

    fn metadata(&mut self, raw: Option<&Located<serde_json::Value>>) -> Option<String> {
        let Located { value, position } = raw?;
        if !value.is_object() {
            self.wrong.push((
                *position,
                "metadata is not a section; write names and values: {team: payments}".to_owned(),
            ));
        }
        Some(value.to_string())
    }

    /// Reports keys without effect here, and unknown keys.
    fn unknown_keys(&mut self, names: &[RawValue<String>]) {
        for name in names {
            let text = name.text.as_str();
            if NAMES.contains(&text) {
                self.ignored.push((
                    name.position,
                    format!(
                        "{text} has no effect at this level; remove it, or move it to the level it belongs to"
                    ),
                ));
                continue;
            }
            let advice = closest(text, &NAMES).map_or_else(
                || format!("known: {}", NAMES.join(", ")),
                |name| format!("did you mean {name}?"),
            );
            self.wrong.push((name.position, format!("config error, unknown key '{text}'; {advice}")));
        }
    }
}

fn text(raw: &Option<RawValue<String>>) -> String {
    raw.as_ref().map(|raw| raw.text.clone()).unwrap_or_default()
}

/// The position of an error.
pub(crate) fn position(root: &yaml::Root, error: &DescriptorError) -> Option<Position> {
    let Some(descriptor) = find(root.descriptors.as_deref(), &error.path) else {
        return root.domain.as_ref().and_then(|domain| domain.position);
    };
    let Located { value: raw, position } = descriptor;
    let limit = |n: usize| raw.rate_limit.as_ref().and_then(|limits| limits.items.get(n));
    let in_limit = |n: usize, position: fn(&yaml::RateLimit) -> Option<Position>| {
        limit(n).and_then(|limit| position(&limit.value).or(limit.position))
    };
    let found = match error.field {
        DescriptorField::Domain => None,
        DescriptorField::Key => raw.key.as_ref().and_then(|key| key.position),
        DescriptorField::ShareThreshold => raw.share_threshold.as_ref().and_then(|share| share.position),
        DescriptorField::RateLimit(n) => in_limit(n, |_| None),
        DescriptorField::Unit(n) => in_limit(n, |limit| limit.unit.as_ref()?.position),
        DescriptorField::Burst(n) => in_limit(n, |limit| limit.burst.as_ref()?.position),
        DescriptorField::UnitMultiplier(n) => in_limit(n, |limit| limit.unit_multiplier.as_ref()?.position),
        DescriptorField::Replaces(n, m) => limit(n).and_then(|limit| {
            let replaced = limit.value.replaces.as_ref()?.get(m)?;
            replaced.value.name.as_ref().and_then(|name| name.position).or(replaced.position)
        }),
    };
    found.or(*position)
}

fn find<'a>(
    descriptors: Option<&'a [Located<yaml::Descriptor>]>,
    path: &[usize],
) -> Option<&'a Located<yaml::Descriptor>> {
    let (first, below) = path.split_first()?;
    let found = descriptors?.get(*first)?;
    if below.is_empty() { Some(found) } else { find(found.value.descriptors.as_deref(), below) }
}
