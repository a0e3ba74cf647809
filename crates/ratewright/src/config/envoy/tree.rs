//! From what is written to descriptors, and back to the place of what is wrong with them.

use ratewright_rls_rules::{Descriptor, DescriptorError, DescriptorField, RateLimit};

use super::yaml::{self, NAMES};
use crate::config::plain::likest;
use crate::config::written::{At, Meaning, Place, Written};

/// What stands in a place and is wrong, or means nothing.
type Remark = (Option<Place>, String);

/// Understands what is written in one file.
#[derive(Default)]
pub(super) struct Understanding {
    pub(super) wrong: Vec<Remark>,
    /// What means nothing where it stands.
    pub(super) idle: Vec<Remark>,
}

impl Understanding {
    /// The descriptors of a file.
    pub(super) fn root(&mut self, written: &yaml::Root) -> Vec<Descriptor> {
        self.odd(&written.odd);
        self.descriptors(written.descriptors.as_deref())
    }

    fn descriptors(&mut self, written: Option<&[At<yaml::Descriptor>]>) -> Vec<Descriptor> {
        written.unwrap_or_default().iter().map(|one| self.descriptor(&one.value)).collect()
    }

    fn descriptor(&mut self, written: &yaml::Descriptor) -> Descriptor {
        self.odd(&written.odd);
        let limits = written.rate_limit.as_ref().map(|limits| limits.items.as_slice());
        let rate_limits = limits.unwrap_or_default().iter().map(|one| self.rate_limit(&one.value)).collect();
        Descriptor {
            key: text(&written.key),
            value: text(&written.value),
            rate_limits,
            shadow_mode: self.switch("shadow_mode", &written.shadow_mode),
            quota_mode: self.switch("quota_mode", &written.quota_mode),
            record_mode: self.switch("record_mode", &written.record_mode),
            detailed_metric: self.switch("detailed_metric", &written.detailed_metric),
            value_to_metric: self.switch("value_to_metric", &written.value_to_metric),
            share_threshold: self.switch("share_threshold", &written.share_threshold),
            metadata: self.metadata(written.metadata.as_ref()),
            descriptors: self.descriptors(written.descriptors.as_deref()),
        }
    }

    fn rate_limit(&mut self, written: &yaml::RateLimit) -> RateLimit {
        self.odd(&written.odd);
        let default = RateLimit::default();
        let replaced = written.replaces.as_deref().unwrap_or_default();
        replaced.iter().for_each(|one| self.odd(&one.value.odd));
        RateLimit {
            unit: text(&written.unit),
            requests_per_unit: self
                .read("requests_per_unit", &written.requests_per_unit)
                .unwrap_or(default.requests_per_unit),
            unlimited: self.switch("unlimited", &written.unlimited),
            name: text(&written.name),
            replaces: replaced.iter().map(|one| text(&one.value.name)).collect(),
            algorithm: self.read("algorithm", &written.algorithm).unwrap_or(default.algorithm),
            burst: self.read("burst", &written.burst),
            unit_multiplier: self
                .read("unit_multiplier", &written.unit_multiplier)
                .unwrap_or(default.unit_multiplier),
        }
    }

    /// What a value means. `${NAME}` is a text here as any other.
    fn read<T: Meaning>(&mut self, name: &str, written: &Option<Written<T>>) -> Option<T> {
        let written = written.as_ref()?;
        let why = match T::understand(&written.text) {
            Ok(value) => return Some(value),
            Err(why) => why,
        };
        self.wrong.push((written.place, format!("{name} is {:?}; {why}", written.text)));
        None
    }

    fn switch(&mut self, name: &str, written: &Option<Written<yaml::Switch>>) -> bool {
        self.read(name, written).is_some_and(|yaml::Switch(on)| on)
    }

    fn metadata(&mut self, written: Option<&At<serde_json::Value>>) -> Option<String> {
        let At { value, place } = written?;
        if !value.is_object() {
            self.wrong.push((*place, "metadata is a section of names and values".to_owned()));
        }
        Some(value.to_string())
    }

    /// Names that mean nothing here, and those that mean nothing anywhere.
    fn odd(&mut self, names: &[Written<String>]) {
        for name in names {
            let text = name.text.as_str();
            if NAMES.contains(&text) {
                self.idle.push((name.place, format!("{text} means nothing in this place")));
                continue;
            }
            let meant = likest(text, &NAMES).map_or_else(
                || format!("known are {}", NAMES.join(", ")),
                |meant| format!("did you mean {meant}?"),
            );
            self.wrong.push((name.place, format!("config error, unknown key '{text}'; {meant}")));
        }
    }
}

fn text(written: &Option<Written<String>>) -> String {
    written.as_ref().map(|written| written.text.clone()).unwrap_or_default()
}

/// Where something that is wrong is written.
pub(super) fn place(root: &yaml::Root, error: &DescriptorError) -> Option<Place> {
    let Some(descriptor) = find(root.descriptors.as_deref(), &error.path) else {
        return root.domain.as_ref().and_then(|domain| domain.place);
    };
    let At { value: written, place } = descriptor;
    let limit = |n: usize| written.rate_limit.as_ref().and_then(|limits| limits.items.get(n));
    let in_limit = |n: usize, place: fn(&yaml::RateLimit) -> Option<Place>| {
        limit(n).and_then(|limit| place(&limit.value).or(limit.place))
    };
    let found = match error.field {
        DescriptorField::Domain => None,
        DescriptorField::Key => written.key.as_ref().and_then(|key| key.place),
        DescriptorField::ShareThreshold => written.share_threshold.as_ref().and_then(|share| share.place),
        DescriptorField::RateLimit(n) => in_limit(n, |_| None),
        DescriptorField::Unit(n) => in_limit(n, |limit| limit.unit.as_ref()?.place),
        DescriptorField::Burst(n) => in_limit(n, |limit| limit.burst.as_ref()?.place),
        DescriptorField::UnitMultiplier(n) => in_limit(n, |limit| limit.unit_multiplier.as_ref()?.place),
        DescriptorField::Replaces(n, m) => limit(n).and_then(|limit| {
            let replaced = limit.value.replaces.as_ref()?.get(m)?;
            replaced.value.name.as_ref().and_then(|name| name.place).or(replaced.place)
        }),
    };
    found.or(*place)
}

fn find<'a>(
    descriptors: Option<&'a [At<yaml::Descriptor>]>,
    path: &[usize],
) -> Option<&'a At<yaml::Descriptor>> {
    let (first, below) = path.split_first()?;
    let found = descriptors?.get(*first)?;
    if below.is_empty() { Some(found) } else { find(found.value.descriptors.as_deref(), below) }
}
