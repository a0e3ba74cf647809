//! For the program `ratewright`, which parses all sections: the file as written, and the reader of its values.
//!
//! These items change with the program; the items of the crate's root are for others.

pub use crate::clients::{ClientSettings, JwksUrl};
pub use crate::policies::{PolicyContext, RuleSets, policy_names};
pub use crate::reader::{AvailableAttributes, Reader};

/// Rule files of envoyproxy/ratelimit.
pub mod envoy_rules {
    pub use crate::envoy_rules::*;
}

/// The sections and settings of the policy file, as written.
pub mod file {
    pub use crate::file::*;
}

/// Which policies can skip requests.
pub mod ineffective_policies {
    pub use crate::ineffective_policies::*;
}

/// All settings by path, so that two files can be compared.
pub mod settings_by_path {
    pub use crate::settings_by_path::*;
}

/// Values with positions, before they are parsed.
pub mod raw_value {
    pub use crate::raw_value::*;
}

/// The schema for editors, and the reference of all settings.
pub mod schema {
    pub use crate::schema::*;
}

/// The types of values.
pub mod values {
    pub use crate::values::*;
}

/// Errors of the YAML parser, and similar names.
pub mod yaml_errors {
    pub use crate::yaml_errors::*;
}
