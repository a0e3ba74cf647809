//! The policy file that a workload deploys: the files of a ConfigMap, read as the program in the container reads them.
//!
//! The value of a Secret is unknown. The check uses the variable of that name in its own environment, or the default in the policy
//! file, or a stand-in that the setting accepts.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::findings::Findings;
use super::manifests::{ManifestObject, Manifests};
use super::workload::{PolicyFileLocation, Variable, Variables, Workload};
use crate::config::{Config, ConfigError, Environment, SourceFile, profile_beside};
use crate::yaml_node::YamlNode;

/// Values for variables that only the cluster knows. The first is an address, a token and a key of sufficient length.
const STAND_INS: [&str; 4] =
    ["redis://stand-in-for-a-secret.invalid:6379", "http://stand-in-for-a-secret.invalid", "1", "1/s"];

/// The most variables that get a stand-in.
const STAND_INS_MAX: usize = 64;

/// The policy file, and the name of its ConfigMap.
pub(super) struct PolicyFile {
    pub(super) config: Config,
    pub(super) config_map: String,
}

/// A file that a ConfigMap mounts in the container.
struct Mounted<'a> {
    path: PathBuf,
    text: &'a str,
    config_map: &'a str,
}

/// Reads the policy file of a workload, and adds its errors to the findings.
pub(super) fn read(
    workload: &Workload<'_>,
    manifests: &Manifests,
    environment: Environment<'_>,
    findings: &mut Findings<'_>,
) -> Option<PolicyFile> {
    let variables = Variables::of(workload, manifests);
    let location = match workload.location(&variables) {
        Ok(location) => location,
        Err(why) => {
            let problem = format!("{}: Ratewright does not start with these arguments", workload.label());
            findings.error(workload.args_node(), format!("{problem}: {why}"));
            return None;
        }
    };
    if location.path.is_empty() {
        let problem = "has no policy file; add args: [serve, -c, /etc/ratewright]";
        findings.error(workload.container, format!("{} {problem}", workload.label()));
        return None;
    }
    let mounted = mounted(workload, manifests, &location, findings)?;
    let (mut files, over) = chosen(&mounted, &location);
    let Some(first) = files.first().and_then(|file| mounted.iter().find(|other| other.path == file.path))
    else {
        let problem = format!("no mounted ConfigMap contains the policy file {}", location.path);
        let advice = "mount a ConfigMap with it, so that it can be checked, and changed without a new image";
        findings.error(workload.container, format!("{}: {problem}; {advice}", workload.label()));
        return None;
    };
    if let Some((path, profile)) = over {
        let of_profile = of_path(&mounted, &path, true);
        if of_profile.is_empty() {
            let problem = format!("no mounted ConfigMap contains the profile {profile}");
            let advice = format!("add {}, or remove the profile", path.display());
            findings.error(workload.args_node(), format!("{}: {problem}; {advice}", workload.label()));
            return None;
        }
        files.extend(of_profile);
    }
    let config_map = first.config_map.to_owned();
    let in_map = |file: SourceFile| SourceFile { path: shown(&config_map, &file.path), ..file };
    match parse_in_container(files.into_iter().map(in_map).collect(), &variables, environment) {
        Ok(config) => Some(PolicyFile { config, config_map }),
        Err(errors) => {
            findings.errors.extend(errors);
            None
        }
    }
}

impl PolicyFileLocation {
    /// True if the policy file or its profile can be below this path, or this path below them.
    fn reads(&self, at: &Path) -> bool {
        let path = Path::new(&self.path);
        let beside = self.profile.as_deref().map(|profile| profile_beside(path, profile));
        let mut all = [Some(path), beside.as_deref()].into_iter().flatten();
        all.any(|path| at.starts_with(path) || path.starts_with(at))
    }
}

/// A ConfigMap file's name in messages. Line numbers count within the file, not within the manifest.
fn shown(config_map: &str, path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    PathBuf::from(format!("ConfigMap {config_map}/{name}"))
}

/// The files that ConfigMaps mount at the path of the policy file.
fn mounted<'a>(
    workload: &Workload<'a>,
    manifests: &'a Manifests,
    location: &PolicyFileLocation,
    findings: &mut Findings<'_>,
) -> Option<Vec<Mounted<'a>>> {
    let mut files = Vec::new();
    for mount in workload.container.items_at("volumeMounts") {
        let (Some(name), Some(at)) = (mount.text_at("name"), mount.text_at("mountPath")) else { continue };
        let at = Path::new(at);
        let volume =
            workload.pod.items_at("volumes").iter().find(|volume| volume.text_at("name") == Some(name));
        let Some(volume) = volume.filter(|_| location.reads(at)) else { continue };
        let single = [volume];
        let sources = volume.at("projected.sources").map(YamlNode::items);
        let sources: Vec<&YamlNode> = sources.map_or(single.to_vec(), |sources| sources.iter().collect());
        let sub_path = mount.get("subPath");
        for source in sources {
            let Some(source) = config_map_of(source, workload, manifests, findings)? else { continue };
            for (inner, text) in source.files {
                let config_map = &source.object.name;
                let inner = match sub_path.and_then(YamlNode::text) {
                    None => Some(inner),
                    Some(sub_path) => inner.strip_prefix(sub_path).map(Path::to_owned).ok(),
                };
                let Some(inner) = inner else { continue };
                let path = if inner.as_os_str().is_empty() { at.to_owned() } else { at.join(inner) };
                files.push(Mounted { path, text, config_map });
            }
        }
        if let Some(sub_path) = sub_path {
            let problem = "policy file is mounted by subPath, so changes of the ConfigMap need new pods";
            let advice = "mount the whole folder; Ratewright then reloads changes";
            findings.warn(sub_path, format!("{}: {problem}; {advice}", workload.label()));
        }
    }
    Some(files)
}

/// A mounted ConfigMap and its files.
struct MountedMap<'a> {
    object: &'a ManifestObject,
    files: Vec<(PathBuf, &'a str)>,
}

/// The ConfigMap of a volume, if it has one. The outer `None`: the ConfigMap is missing, and the findings say so.
fn config_map_of<'a>(
    source: &'a YamlNode,
    workload: &Workload<'a>,
    manifests: &'a Manifests,
    findings: &mut Findings<'_>,
) -> Option<Option<MountedMap<'a>>> {
    let Some(reference) = source.get("configMap") else { return Some(None) };
    let name = reference.text_at("name").unwrap_or_default();
    let Some(object) = manifests.named("ConfigMap", &workload.object.namespace, name) else {
        let problem = format!("ConfigMap {name} is not among these manifests");
        findings.error(reference, format!("{}: {problem}; add it to have it checked", workload.label()));
        return None;
    };
    let data = object.root.get("data").map(YamlNode::entries).unwrap_or_default();
    let text = |key: &str| data.iter().find(|(known, _)| known == key).and_then(|(_, node)| node.text());
    let files = match reference.get("items") {
        None => data.iter().filter_map(|(key, node)| Some((PathBuf::from(key), node.text()?))).collect(),
        Some(items) => {
            let item = |item: &YamlNode| Some((item.text_at("path")?.into(), text(item.text_at("key")?)?));
            items.items().iter().filter_map(item).collect()
        }
    };
    Some(Some(MountedMap { object, files }))
}

/// The mounted files that the program reads (a file, or the files of a folder), and the path and name of the profile.
fn chosen<'a>(
    mounted: &[Mounted<'_>],
    location: &'a PolicyFileLocation,
) -> (Vec<SourceFile>, Option<(PathBuf, &'a str)>) {
    let path = Path::new(&location.path);
    let is_file = mounted.iter().any(|file| file.path == path);
    let over = |profile: &str| if is_file { profile_beside(path, profile) } else { path.join(profile) };
    let over = location.profile.as_deref().map(|profile| (over(profile), profile));
    (of_path(mounted, path, false), over)
}

fn of_path(mounted: &[Mounted<'_>], path: &Path, is_profile: bool) -> Vec<SourceFile> {
    let is_yaml = |file: &Path| file.extension().is_some_and(|name| name == "yaml" || name == "yml");
    let is_hidden = |file: &Path| file.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
    let is_within = |file: &Path| file.parent() == Some(path) && is_yaml(file) && !is_hidden(file);
    let files = mounted.iter().filter(|file| file.path == path || is_within(&file.path));
    let mut files: Vec<_> = files
        .map(|file| SourceFile { path: file.path.clone(), text: file.text.to_owned(), is_profile })
        .collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// Parses the files with the container's environment.
fn parse_in_container(
    files: Vec<SourceFile>,
    variables: &Variables,
    environment: Environment<'_>,
) -> Result<Config, Vec<ConfigError>> {
    let unknown = RefCell::new(BTreeSet::new());
    let read = |stand_ins: &BTreeMap<String, &str>| {
        Config::of_elsewhere(files.clone(), &|name| match variables.get(name)? {
            Variable::Value(value) => Some(value),
            Variable::Unknown => {
                unknown.borrow_mut().insert(name.to_owned());
                environment(name).or_else(|| stand_ins.get(name).map(|text| (*text).to_owned()))
            }
        })
    };
    let mut stand_ins = BTreeMap::new();
    let mut best = read(&stand_ins);
    for name in unknown.take().into_iter().take(STAND_INS_MAX) {
        for text in STAND_INS {
            let Err(errors) = &best else { return best };
            let mut others = stand_ins.clone();
            others.insert(name.clone(), text);
            let other = read(&others);
            if other.as_ref().map_or_else(Vec::len, |_| 0) < errors.len() {
                (best, stand_ins) = (other, others);
            }
        }
    }
    best
}
