//! The files that a policy file names: keys, key sets, certificates, and Envoy's rules.
//!
//! They are watched like the policy file itself, so their contents are kept to detect changes. A configuration is made of the
//! contents that were read together: a certificate must fit its key.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirEntry, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use ratewright_config::{FileKind, FileReader};

use super::source::parent;

/// The content of a file, or why it could not be read.
type Content = Result<Vec<u8>, String>;

/// The files in a folder, sorted, without hidden ones; None if the path is not a folder. Or why it could not be listed.
type Listing = Result<Option<Vec<PathBuf>>, String>;

/// Files by their names, as they were read.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct ReferencedFiles {
    files: BTreeMap<PathBuf, (FileKind, Content)>,
    listings: BTreeMap<PathBuf, Listing>,
    /// The files used since the last reading. The others are no longer named.
    used: BTreeSet<PathBuf>,
    /// True if the files are on another machine, and nothing is read.
    are_elsewhere: bool,
}

impl ReferencedFiles {
    /// Files on another machine.
    pub(super) fn elsewhere() -> Self {
        Self { are_elsewhere: true, ..Self::default() }
    }

    /// The same files as they are now. A pipe can be read only once and keeps its content.
    pub(super) fn reread(&self) -> Self {
        let reread = |(path, (kind, before)): (&PathBuf, &(FileKind, Content))| {
            let is_other = path.metadata().is_ok_and(|metadata| !metadata.is_file());
            (path.clone(), (*kind, if is_other { before.clone() } else { read(path, *kind) }))
        };
        Self {
            files: self.files.iter().map(reread).collect(),
            listings: self.listings.keys().map(|path| (path.clone(), list(path))).collect(),
            used: BTreeSet::new(),
            are_elsewhere: self.are_elsewhere,
        }
    }

    /// The files that both name, and whose content is not the same.
    pub(super) fn changed<'a>(&'a self, new: &'a Self) -> impl Iterator<Item = (&'a Path, FileKind)> {
        self.files.iter().filter_map(|(path, old)| {
            let (kind, _) = new.files.get(path).filter(|new| *new != old)?;
            Some((path.as_path(), *kind))
        })
    }

    /// Forgets files that were not used.
    pub(super) fn forget_unused(mut self) -> Self {
        self.files.retain(|path, _| self.used.contains(path));
        self.listings.retain(|path, _| self.used.contains(path));
        self.used.clear();
        self
    }

    /// The folders in which a change of the files shows.
    pub(super) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        let listed = self.listings.iter().filter(|(_, listing)| !matches!(listing, Ok(None)));
        let listed = listed.map(|(path, _)| path.clone());
        self.files.keys().map(|path| parent(path).to_owned()).chain(listed)
    }
}

impl FileReader for ReferencedFiles {
    /// A file's content, read at the first call.
    fn read(&mut self, path: &Path, kind: FileKind) -> Content {
        self.used.insert(path.to_owned());
        let (_, content) = self.files.entry(path.to_owned()).or_insert_with(|| (kind, read(path, kind)));
        content.clone()
    }

    /// The files in a folder, listed at the first call.
    fn list(&mut self, path: &Path) -> Listing {
        self.used.insert(path.to_owned());
        self.listings.entry(path.to_owned()).or_insert_with(|| list(path)).clone()
    }

    fn unavailable(&self) -> Option<&'static str> {
        self.are_elsewhere.then_some("a simulation does not read it")
    }
}

/// The largest size in bytes, and the files that it is for.
const fn size_limit(kind: FileKind) -> (u64, &'static str) {
    match kind {
        FileKind::Key => (1024 * 1024, "keys and certificates"),
        FileKind::Rules => (64 * 1024 * 1024, "rule files"),
    }
}

fn list(path: &Path) -> Listing {
    if !path.is_dir() {
        return Ok(None);
    }
    let entries = std::fs::read_dir(path).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let entries = entries.map_err(|error| format!("cannot read the folder {}: {error}", path.display()))?;
    let is_hidden = |entry: &DirEntry| entry.file_name().to_string_lossy().starts_with('.');
    let paths = entries.iter().filter(|entry| !is_hidden(entry)).map(DirEntry::path);
    let mut paths: Vec<_> = paths.filter(|path| !path.is_dir()).collect();
    paths.sort();
    Ok(Some(paths))
}

fn read(path: &Path, kind: FileKind) -> Content {
    let name = path.display();
    let mut content = Vec::new();
    let (bytes_max, what) = size_limit(kind);
    match File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut content)) {
        Ok(n_bytes) if n_bytes as u64 <= bytes_max => Ok(content),
        Ok(_) => Err(format!("{name} is larger than {bytes_max} bytes, the limit for {what}")),
        Err(error) => Err(format!("cannot read {name}: {error}; use a file that Ratewright can read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rereading_differs_only_if_a_referenced_file_does() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        std::fs::write(&one, "1").unwrap();
        std::fs::write(&other, "1").unwrap();
        let mut files = ReferencedFiles::default();
        assert_eq!(files.read(&one, FileKind::Key), Ok(b"1".to_vec()));
        assert_eq!(files.read(&other, FileKind::Key), Ok(b"1".to_vec()));
        let files = files.forget_unused();
        assert!(files.reread() == files);
        std::fs::write(&one, "2").unwrap();
        let mut reread = files.reread();
        assert!(reread != files);
        std::fs::write(&one, "3").unwrap();
        assert_eq!(reread.read(&one, FileKind::Key), Ok(b"2".to_vec()), "what held still counts");
        let one_only = reread.forget_unused();
        std::fs::remove_file(&other).unwrap();
        std::fs::write(&one, "2").unwrap();
        assert!(one_only.reread() == one_only, "the other is not files any more");
        std::fs::remove_file(&one).unwrap();
        assert!(one_only.reread() != one_only);
    }

    #[test]
    fn a_pipe_is_not_read_again() {
        let mut files = ReferencedFiles::default();
        let Err(endless) = files.read(Path::new("/dev/zero"), FileKind::Key) else { panic!("it never ends") };
        assert!(endless.contains("/dev/zero is larger than 1048576 bytes"), "{endless}");
        files.files.insert("/dev/null".into(), (FileKind::Key, Ok(b"from a pipe".to_vec())));
        let files = ReferencedFiles { used: BTreeSet::new(), ..files };
        assert!(files.reread() == files);
    }

    #[test]
    fn a_folder_is_its_files_as_they_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other, hidden] = ["b.yaml", "a", ".hidden"].map(|name| folder.path().join(name));
        std::fs::write(&one, "1").unwrap();
        std::fs::write(&hidden, "1").unwrap();
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        let mut files = ReferencedFiles::default();
        assert_eq!(files.list(folder.path()), Ok(Some(vec![one.clone()])));
        assert_eq!(files.list(&one), Ok(None));
        let files = files.forget_unused();
        assert!(files.reread() == files);
        assert_eq!(files.folders().collect::<Vec<_>>(), [folder.path()]);
        std::fs::write(&other, "1").unwrap();
        let mut reread = files.reread();
        assert!(reread != files);
        assert_eq!(reread.list(folder.path()), Ok(Some(vec![other, one])));
    }
}
