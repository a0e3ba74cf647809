//! The text of a policy file, with the path that errors name.

use std::path::PathBuf;

/// The text of one policy file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceFile {
    /// The path that errors name.
    pub path: PathBuf,
    /// The content.
    pub text: String,
    /// True if it overrides the files before it.
    pub is_profile: bool,
}
