//! Where the policy file is: one file, or the files of a folder, and a profile that overrides them.
//!
//! ```text
//!   -c ratewright.yaml                    that file
//!   -c ratewright.yaml --profile dev      and ratewright.dev.yaml over it
//!   -c /etc/ratewright                    its *.yaml and *.yml, by name, beside each other
//!   -c /etc/ratewright --profile dev      and those of its folder dev over them
//! ```
//!
//! Names that begin with a dot are ignored: a mounted ConfigMap keeps its versions there.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ratewright_config::SourceFile;

/// More than any policy file has; a device or a disk image is not read whole.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Which files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    /// A file or a folder. None: the defaults.
    pub(crate) path: Option<PathBuf>,
    pub(crate) profile: Option<String>,
}

/// A file that cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) path: PathBuf,
    pub(super) problem: String,
}

impl Source {
    /// Reads all of them, those of the profile last.
    pub(super) fn read(&self) -> Result<Vec<SourceFile>, Unreadable> {
        let Some(path) = &self.path else {
            let Some(profile) = self.profile() else { return Ok(Vec::new()) };
            let problem = format!("--profile {profile} needs a policy file; add -c FILE");
            return Err(Unreadable { path: PathBuf::from("defaults"), problem });
        };
        let mut files = read_all(path, false)?;
        if let Some(profile) = self.profile() {
            files.extend(read_all(&over(path, profile), true).map_err(|mut error| {
                error.problem = format!("profile {profile}: {}", error.problem);
                error
            })?);
        }
        Ok(files)
    }

    /// An empty name is ignored: a variable of the environment may be empty.
    pub(crate) fn profile(&self) -> Option<&str> {
        self.profile.as_deref().filter(|profile| !profile.is_empty())
    }

    /// The folders in which a change of the files shows.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let Some(path) = &self.path else { return Vec::new() };
        let folder = |path: &Path| {
            if path.is_dir() {
                return path.to_owned();
            }
            parent(path).to_owned()
        };
        let profile = self.profile().into_iter().map(|profile| folder(&over(path, profile)));
        let mut folders: Vec<_> = std::iter::once(folder(path)).chain(profile).collect();
        folders.dedup();
        folders
    }
}

/// The folder in which a file lies.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where the profile lies.
fn over(path: &Path, profile: &str) -> PathBuf {
    if path.is_dir() { path.join(profile) } else { beside(path, profile) }
}

/// The file of a profile over a file.
fn beside(path: &Path, profile: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map_or("yaml".into(), |extension| extension.to_string_lossy());
    path.with_file_name(format!("{stem}.{profile}.{extension}"))
}

/// Reads a file, or those of a folder.
fn read_all(path: &Path, is_profile: bool) -> Result<Vec<SourceFile>, Unreadable> {
    let wrong = |path: &Path, problem: String| Unreadable { path: path.to_owned(), problem };
    if !path.is_dir() {
        return Ok(vec![read_one(path, is_profile)?]);
    }
    let entries = std::fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(|error| wrong(path, format!("cannot read the folder: {error}")))?;
    let mut paths: Vec<_> =
        entries.into_iter().map(|entry| entry.path()).filter(|path| is_ours(path)).collect();
    paths.sort();
    if paths.is_empty() {
        return Err(wrong(path, "the folder has no *.yaml and no *.yml".to_owned()));
    }
    paths.iter().map(|path| read_one(path, is_profile)).collect()
}

fn is_ours(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
    let yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    // Reading a pipe or a device might never end.
    let is_special = |metadata: std::fs::Metadata| !metadata.is_file();
    !hidden && yaml && !std::fs::metadata(path).is_ok_and(is_special)
}

fn read_one(path: &Path, is_profile: bool) -> Result<SourceFile, Unreadable> {
    let wrong = |problem| Unreadable { path: path.to_owned(), problem };
    let unreadable = |error: io::Error| {
        let is_forbidden = error.kind() == io::ErrorKind::PermissionDenied;
        let hint =
            if is_forbidden { "grant read permission to this process's user" } else { "check the path" };
        wrong(format!("cannot read the file: {error}; {hint}"))
    };
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > BYTES_MAX {
        return Err(wrong(format!("the file has {size} bytes; a policy file has at most {BYTES_MAX}")));
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let n_read = file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if n_read as u64 > BYTES_MAX {
        return Err(wrong(format!("the file is too long; a policy file has at most {BYTES_MAX} bytes")));
    }
    Ok(SourceFile { path: path.to_owned(), text, is_profile })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: Vec<SourceFile>) -> Vec<String> {
        files.iter().map(|file| file.path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_folder_is_its_yaml_files_by_name_and_a_profile_lies_over_them() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(folder.path().join("pipe.yaml")).status();
        assert!(pipe.unwrap().success());
        for name in ["b.yaml", "a.yml", ".hidden.yaml", "notes.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("dev")).unwrap();
        std::fs::write(folder.path().join("dev/z.yaml"), "").unwrap();
        let path = Some(folder.path().to_owned());
        // A read of the pipe would never end.
        let read = |source: Source| {
            let reading = std::thread::spawn(move || source.read().unwrap());
            names(ratewright_lab::join(reading, "the folder is read"))
        };
        let source = Source { path: path.clone(), profile: None };
        assert_eq!(read(source), ["a.yml", "b.yaml"]);
        let source = Source { path, profile: Some("dev".to_owned()) };
        assert_eq!(read(source.clone()), ["a.yml", "b.yaml", "z.yaml"]);
        assert_eq!(source.folders().len(), 2);
    }

    #[test]
    fn a_files_profile_stands_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ratewright.yaml");
        std::fs::write(&path, "").unwrap();
        let source = Source { path: Some(path), profile: Some("dev".to_owned()) };
        let missing = source.read().unwrap_err();
        assert!(missing.path.ends_with("ratewright.dev.yaml"), "{missing:?}");
        assert!(missing.problem.starts_with("profile dev: cannot read the file"), "{missing:?}");
        let unnamed = Source { profile: Some(String::new()), ..source.clone() };
        assert_eq!(names(unnamed.read().unwrap()), ["ratewright.yaml"]);
        std::fs::write(folder.path().join("ratewright.dev.yaml"), "").unwrap();
        assert_eq!(names(source.read().unwrap()), ["ratewright.yaml", "ratewright.dev.yaml"]);
    }

    #[test]
    fn a_folder_without_files_is_a_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let source = Source { path: Some(folder.path().to_owned()), profile: None };
        assert!(source.read().unwrap_err().problem.contains("no *.yaml"));
    }
}
