//! Configured labels, which every series carries.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Constant labels with valid names, none of which a series uses itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Labels(BTreeMap<String, String>);

/// Why labels are rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LabelsError {
    /// The name is not valid in Prometheus.
    #[error(
        "label {name:?} is not a valid name; use letters, digits and _, not beginning with a digit or __"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A series has a label of that name.
    #[error("label {name:?} is used by Ratewright itself; choose another name")]
    Taken {
        /// The name.
        name: String,
    },
    /// Too many, because every series carries them.
    #[error("{n} labels are too many; use at most {}", Labels::MAX)]
    TooMany {
        /// How many.
        n: usize,
    },
}

/// The labels that series use themselves.
const TAKEN: [&str; 16] = [
    "algorithm",
    "allowed",
    "basis",
    "entrypoint",
    "kind",
    "le",
    "listener",
    "mode",
    "policy",
    "reason",
    "route",
    "route_path",
    "rule",
    "server",
    "status",
    "verdict",
];

impl Labels {
    /// The most labels.
    pub const MAX: usize = 32;

    /// These labels, on every series.
    ///
    /// # Errors
    /// If a name is invalid or taken, or there are too many.
    pub fn new(labels: BTreeMap<String, String>) -> Result<Self, LabelsError> {
        if labels.len() > Self::MAX {
            return Err(LabelsError::TooMany { n: labels.len() });
        }
        for name in labels.keys() {
            if !is_name(name) {
                return Err(LabelsError::Name { name: name.clone() });
            }
            if TAKEN.contains(&name.as_str()) {
                return Err(LabelsError::Taken { name: name.clone() });
            }
        }
        Ok(Self(labels))
    }

    pub(super) fn into_pairs(self) -> impl Iterator<Item = (Cow<'static, str>, Cow<'static, str>)> {
        self.0.into_iter().map(|(name, value)| (name.into(), value.into()))
    }
}

fn is_name(name: &str) -> bool {
    let known = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let begins_well = name.bytes().next().is_some_and(|b| !b.is_ascii_digit()) && !name.starts_with("__");
    begins_well && name.bytes().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(names: &[&str]) -> Result<Labels, LabelsError> {
        Labels::new(names.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect())
    }

    #[test]
    fn invalid_labels_are_rejected() {
        assert!(labels(&["application", "_zone", "a1"]).is_ok());
        for bad in ["", "1a", "a-b", "__name__", "é", "a b", "a\""] {
            assert_eq!(labels(&[bad]), Err(LabelsError::Name { name: bad.to_owned() }));
        }
        for taken in ["policy", "le", "algorithm"] {
            assert_eq!(labels(&[taken]), Err(LabelsError::Taken { name: taken.to_owned() }));
        }
        let many: Vec<_> = (0..33).map(|n| format!("a{n}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(labels(&many), Err(LabelsError::TooMany { n: 33 }));
    }
}
