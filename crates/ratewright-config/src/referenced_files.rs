//! How the files that a policy file names are read: by the caller, since only the program opens files.

use std::path::{Path, PathBuf};

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A key, a key set or a certificate.
    Key,
    /// Rules for Envoy.
    Rules,
}

/// Reads the files that a policy file names: keys, certificates, rules for Envoy.
pub trait FileReader {
    /// The content of a file, or why it cannot be read.
    fn read(&mut self, path: &Path, kind: FileKind) -> Result<Vec<u8>, String>;

    /// The files in a folder, or `None` if the path is not a folder. The error says why the folder cannot be listed.
    fn list(&mut self, path: &Path) -> Result<Option<Vec<PathBuf>>, String>;

    /// Why no file can be read; `None` if files can be read. With a reason, settings that name files are accepted with
    /// a warning.
    fn unavailable(&self) -> Option<&'static str> {
        None
    }
}

/// Reads no files.
#[derive(Clone, Copy, Debug)]
pub struct NoFiles;

const NO_FILES: &str = "files are not read here";

impl FileReader for NoFiles {
    fn read(&mut self, _: &Path, _: FileKind) -> Result<Vec<u8>, String> {
        Err(NO_FILES.to_owned())
    }

    fn list(&mut self, _: &Path) -> Result<Option<Vec<PathBuf>>, String> {
        Err(NO_FILES.to_owned())
    }

    fn unavailable(&self) -> Option<&'static str> {
        Some(NO_FILES)
    }
}
