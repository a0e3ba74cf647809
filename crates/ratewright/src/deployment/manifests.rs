//! Reads manifests: a file, the files of a folder, or standard input. A file may contain several documents, and a document may be a
//! list of objects.
//!
//! All sizes are bounded: bytes, files, nested folders, and in `yaml_node` the nodes that YAML aliases expand to.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::config::{ConfigError, SourceFile};
use crate::yaml_node::{self, YamlNode};

/// Larger than any repository; a device such as /dev/zero is not read for ever.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
const FILES_MAX: usize = 10_000;
const FOLDERS_DEEP_MAX: usize = 32;

/// The path that means standard input, and its name in messages.
const STDIN: &str = "-";
const STDIN_NAME: &str = "stdin";

/// Files that show that a tool renders a folder's manifests, and the tool's command.
const RENDERED: [(&str, &str); 4] = [
    ("kustomization.yaml", "kubectl kustomize"),
    ("kustomization.yml", "kubectl kustomize"),
    ("Kustomization", "kubectl kustomize"),
    ("Chart.yaml", "helm template"),
];

/// All objects, and their files.
pub(super) struct Manifests {
    pub(super) files: Vec<SourceFile>,
    pub(super) objects: Vec<ManifestObject>,
    /// The index of the first object of each kind, namespace and name.
    places: HashMap<[String; 3], usize>,
}

/// One Kubernetes object.
#[derive(Debug)]
pub(super) struct ManifestObject {
    pub(super) kind: String,
    pub(super) name: String,
    /// Empty for `default`, and if the manifest has no namespace.
    pub(super) namespace: String,
    pub(super) root: YamlNode,
}

impl Manifests {
    /// Reads all manifests. Skips the file `but`: the expectations may be in the same folder.
    pub(super) fn read(path: &Path, but: Option<&Path>) -> Result<Self, Vec<ConfigError>> {
        let paths = if path.is_dir() { Walk::over(path, but)? } else { vec![path.to_owned()] };
        let mut manifests = Self { files: Vec::new(), objects: Vec::new(), places: HashMap::new() };
        let mut errors = Vec::new();
        let mut n_bytes_left = BYTES_MAX;
        for path in paths {
            let read = manifests.add(&path, n_bytes_left);
            match read {
                Err(error) => errors.push(error),
                Ok(documents) => {
                    let text = manifests.files.last().map_or(0, |file| file.text.len());
                    n_bytes_left = n_bytes_left.saturating_sub(text as u64);
                    documents.into_iter().for_each(|document| manifests.take(document));
                }
            }
        }
        if errors.is_empty() { Ok(manifests) } else { Err(errors) }
    }

    /// Reads another file, and returns its documents.
    pub(super) fn add(&mut self, path: &Path, n_bytes_max: u64) -> Result<Vec<YamlNode>, ConfigError> {
        let file = text_of(path, n_bytes_max)?;
        let documents = yaml_node::documents(&file.text, self.files.len());
        self.files.push(file);
        // The line is not shown: it may belong to a Secret.
        documents.map_err(|(place, problem)| ConfigError::at(&self.files, Some(place), problem, true))
    }

    /// Reads a file that is not a manifest, and returns its only document.
    pub(super) fn add_one(&mut self, path: &Path) -> Result<YamlNode, ConfigError> {
        let documents = self.add(path, BYTES_MAX)?;
        let mut documents = documents.into_iter();
        match (documents.next(), documents.next()) {
            (Some(document), None) => Ok(document),
            (None, _) => Err(ConfigError::of_file(path.to_owned(), "file is empty".to_owned())),
            (Some(_), Some(second)) => {
                let problem = "second document in the file; remove the ---".to_owned();
                Err(ConfigError::at(&self.files, second.place, problem, false))
            }
        }
    }

    /// Adds a document, or the objects of a list. Skips documents that are not objects, such as values for a template.
    fn take(&mut self, document: YamlNode) {
        let Some(kind) = document.text_at("kind").map(str::to_owned) else { return };
        if kind.ends_with("List") && !document.items_at("items").is_empty() {
            document.into_items("items").into_iter().for_each(|item| self.take_object(item));
        } else {
            self.take_object(document);
        }
    }

    fn take_object(&mut self, root: YamlNode) {
        let text = |path| root.text_at(path).unwrap_or_default().to_owned();
        let (kind, name, namespace) = (text("kind"), text("metadata.name"), text("metadata.namespace"));
        let namespace = if namespace == "default" { String::new() } else { namespace };
        if !kind.is_empty() {
            let id = [kind.clone(), namespace.clone(), name.clone()];
            self.places.entry(id).or_insert(self.objects.len());
            self.objects.push(ManifestObject { kind, name, namespace, root });
        }
    }

    /// The objects of a kind in a namespace.
    pub(super) fn of_kind<'a>(
        &'a self,
        kind: &'a str,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a ManifestObject> {
        self.objects.iter().filter(move |object| object.kind == kind && object.namespace == namespace)
    }

    /// The object with this kind, namespace and name.
    pub(super) fn named(&self, kind: &str, namespace: &str, name: &str) -> Option<&ManifestObject> {
        self.objects.get(*self.places.get(&[kind, namespace, name].map(str::to_owned))?)
    }

    /// The objects whose kind, namespace and name an earlier object has.
    pub(super) fn repeated(&self) -> impl Iterator<Item = &ManifestObject> {
        self.objects.iter().filter(|object| {
            let first = self.named(&object.kind, &object.namespace, &object.name);
            !first.is_some_and(|first| std::ptr::eq(first, *object))
        })
    }
}

fn text_of(path: &Path, n_bytes_max: u64) -> Result<SourceFile, ConfigError> {
    let is_stdin = path.as_os_str() == STDIN;
    let name = if is_stdin { PathBuf::from(STDIN_NAME) } else { path.to_owned() };
    let mut bytes = Vec::new();
    let read = if is_stdin {
        std::io::stdin().take(n_bytes_max + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(n_bytes_max + 1).read_to_end(&mut bytes))
    };
    let problem = match read {
        Err(error) => format!("cannot read the file: {error}; check its name"),
        Ok(n_bytes) if n_bytes as u64 > n_bytes_max => {
            format!("manifests exceed {BYTES_MAX} bytes; use a smaller folder")
        }
        Ok(_) => match String::from_utf8(bytes) {
            Ok(text) => return Ok(SourceFile { path: name, text, is_profile: false }),
            Err(_) => "file is not UTF-8".to_owned(),
        },
    };
    Err(ConfigError::of_file(name, problem))
}

/// A walk through a folder and its subfolders.
struct Walk<'a> {
    but: Option<PathBuf>,
    root: &'a Path,
    paths: Vec<PathBuf>,
    errors: Vec<ConfigError>,
}

impl<'a> Walk<'a> {
    /// The manifests in a folder, sorted by name. Skips links to folders and names that begin with a dot.
    fn over(root: &'a Path, but: Option<&Path>) -> Result<Vec<PathBuf>, Vec<ConfigError>> {
        let but = but.and_then(|path| path.canonicalize().ok());
        let mut walk = Self { but, root, paths: Vec::new(), errors: Vec::new() };
        walk.folder(root, 0);
        if walk.errors.is_empty() && walk.paths.is_empty() {
            walk.fail(root, "folder contains no *.yaml, *.yml or *.json".to_owned());
        }
        if walk.errors.is_empty() { Ok(walk.paths) } else { Err(walk.errors) }
    }

    fn fail(&mut self, path: &Path, problem: String) {
        self.errors.push(ConfigError::of_file(path.to_owned(), problem));
    }

    fn folder(&mut self, folder: &Path, depth: usize) {
        if depth > FOLDERS_DEEP_MAX {
            return self.fail(folder, format!("folders are nested more than {FOLDERS_DEEP_MAX} levels deep"));
        }
        let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.fail(folder, format!("cannot read the folder: {error}")),
        };
        entries.sort_by_key(std::fs::DirEntry::file_name);
        let has = |name: &str| entries.iter().any(|entry| entry.file_name() == name);
        if let Some((name, tool)) = RENDERED.iter().find(|(name, _)| has(name)) {
            let command = format!("{tool} {} | ratewright check --deployment -", folder.display());
            let problem = "so its manifests must be rendered first; run";
            return self.fail(folder, format!("folder contains {name}, {problem}: {command}"));
        }
        for entry in entries {
            self.entry(&entry, depth);
        }
    }

    fn entry(&mut self, entry: &std::fs::DirEntry, depth: usize) {
        let (path, name) = (entry.path(), entry.file_name());
        if name.to_string_lossy().starts_with('.') || self.paths.len() > FILES_MAX {
            return;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            return self.folder(&path, depth + 1);
        }
        let extension = path.extension().map(|extension| extension.to_string_lossy().into_owned());
        let is_manifest = matches!(extension.as_deref(), Some("yaml" | "yml" | "json")) && path.is_file();
        let is_other = self.but.is_some() && path.canonicalize().ok() == self.but;
        if is_manifest && !is_other {
            self.paths.push(path);
        }
        if self.paths.len() > FILES_MAX {
            self.fail(
                self.root,
                format!("folder contains more than {FILES_MAX} manifests; use a smaller folder"),
            );
        }
    }
}
