//! The files that the policy file names: keys, key sets and certificates.
//!
//! They are followed as the policy file itself is, so what was read of them is kept, to tell whether it has changed. A
//! configuration is made of what was read, and not of what stands there a moment later: certificate and key belong together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::source::parent;

/// More than any key or certificate has, in bytes; a device is not read to its end.
const CONTENT_MAX: u64 = 1024 * 1024;

/// What was read of a file, or why nothing was.
type Content = Result<Vec<u8>, String>;

/// Files by their names, as they were read.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Named {
    files: BTreeMap<PathBuf, Content>,
    /// Those that were asked for. The others are not named any more.
    asked: BTreeSet<PathBuf>,
}

impl Named {
    /// A file's content, read now if it has not been.
    pub(super) fn content(&mut self, path: &Path) -> Content {
        self.asked.insert(path.to_owned());
        self.files.entry(path.to_owned()).or_insert_with(|| read(path)).clone()
    }

    /// The same files as they are now. What is no file, a pipe for example, can be read only once.
    pub(super) fn again(&self) -> Self {
        let again = |(path, before): (&PathBuf, &Content)| {
            let is_other = path.metadata().is_ok_and(|metadata| !metadata.is_file());
            (path.clone(), if is_other { before.clone() } else { read(path) })
        };
        Self { files: self.files.iter().map(again).collect(), asked: BTreeSet::new() }
    }

    /// Forgets what was not asked for.
    pub(super) fn settle(mut self) -> Self {
        self.files.retain(|path, _| self.asked.contains(path));
        self.asked.clear();
        self
    }

    /// The folders in which a change of the files shows.
    pub(super) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        self.files.keys().map(|path| parent(path).to_owned())
    }
}

fn read(path: &Path) -> Content {
    let name = path.display();
    let mut content = Vec::new();
    match File::open(path).and_then(|file| file.take(CONTENT_MAX + 1).read_to_end(&mut content)) {
        Ok(n_bytes) if n_bytes as u64 <= CONTENT_MAX => Ok(content),
        Ok(_) => Err(format!("{name} has more than {CONTENT_MAX} bytes; keys and certificates are shorter")),
        Err(error) => Err(format!("cannot read {name}: {error}; give a file that Tollgate may read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_again_differs_only_if_a_file_that_is_named_does() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        std::fs::write(&one, "1").unwrap();
        std::fs::write(&other, "1").unwrap();
        let mut named = Named::default();
        assert_eq!(named.content(&one), Ok(b"1".to_vec()));
        assert_eq!(named.content(&other), Ok(b"1".to_vec()));
        let named = named.settle();
        assert!(named.again() == named);
        std::fs::write(&one, "2").unwrap();
        let mut again = named.again();
        assert!(again != named);
        std::fs::write(&one, "3").unwrap();
        assert_eq!(again.content(&one), Ok(b"2".to_vec()), "what held still counts");
        let one_only = again.settle();
        std::fs::remove_file(&other).unwrap();
        std::fs::write(&one, "2").unwrap();
        assert!(one_only.again() == one_only, "the other is not named any more");
        std::fs::remove_file(&one).unwrap();
        assert!(one_only.again() != one_only);
    }

    #[test]
    fn what_is_no_file_is_not_read_again() {
        let mut named = Named::default();
        let Err(endless) = named.content(Path::new("/dev/zero")) else { panic!("it never ends") };
        assert!(endless.contains("/dev/zero has more than 1048576 bytes"), "{endless}");
        named.files.insert("/dev/null".into(), Ok(b"from a pipe".to_vec()));
        let named = Named { asked: BTreeSet::new(), ..named };
        assert!(named.again() == named);
    }
}
