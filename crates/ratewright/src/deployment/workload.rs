//! The workload that runs Ratewright: its pods, its container, and the container's arguments and environment.

use std::collections::BTreeMap;

use super::manifests::{ManifestObject, Manifests};
use super::selectors::has_all;
use crate::cli::{CONFIG, ServeArgs, SourceArgs, served_by};
use crate::yaml_node::YamlNode;

/// The kinds that create pods.
pub(super) const KINDS: [&str; 3] = ["Deployment", "StatefulSet", "DaemonSet"];

/// The arguments of the image, if the manifest has none.
const IMAGE_ARGS: [&str; 3] = ["serve", "-c", "/etc/ratewright"];

/// A workload that runs Ratewright.
#[derive(Clone, Copy)]
pub(super) struct Workload<'a> {
    pub(super) object: &'a ManifestObject,
    /// The spec of its pods.
    pub(super) pod: &'a YamlNode,
    pub(super) container: &'a YamlNode,
    /// True if another container of its pods runs Ratewright too.
    has_others: bool,
}

/// A variable of the container's environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Variable {
    Value(String),
    /// It is set; only the cluster knows its value.
    Unknown,
}

/// The container's environment.
pub(super) struct Variables {
    known: BTreeMap<String, Variable>,
    /// True if there may be further variables that only the cluster knows.
    has_others: bool,
}

/// The path of the policy file, and the profile.
pub(super) struct PolicyFileLocation {
    pub(super) path: String,
    pub(super) profile: Option<String>,
}

impl<'a> Workload<'a> {
    /// The workloads that run Ratewright.
    pub(super) fn all(manifests: &'a Manifests) -> Vec<Self> {
        let workloads = manifests.objects.iter().filter(|object| KINDS.contains(&object.kind.as_str()));
        let of = |object: &'a ManifestObject| {
            let pod = object.root.at("spec.template.spec");
            let containers = pod.map(|pod| pod.items_at("containers")).unwrap_or_default().iter();
            let containers: Vec<_> = containers.filter(|container| runs_ratewright(container)).collect();
            let has_others = containers.len() > 1;
            let of = move |container| Some(Self { object, pod: pod?, container, has_others });
            containers.into_iter().filter_map(of)
        };
        workloads.flat_map(of).collect()
    }

    /// Its name in messages.
    pub(super) fn label(&self) -> String {
        match self.container.text_at("name").filter(|_| self.has_others) {
            Some(container) => format!("{}, container {container}", self.object.label()),
            None => self.object.label(),
        }
    }

    /// True if another container of its pods declares this port, by its number or name.
    pub(super) fn is_port_of_other(&self, written: &str) -> bool {
        let others = self.pod.items_at("containers").iter();
        let others = others.filter(|container| !std::ptr::eq(*container, self.container));
        let mut ports = others.flat_map(|container| container.items_at("ports"));
        ports.any(|port| [port.text_at("name"), port.text_at("containerPort")].contains(&Some(written)))
    }

    /// The objects of a kind in its namespace.
    pub(super) fn beside(
        &self,
        manifests: &'a Manifests,
        kind: &'a str,
    ) -> impl Iterator<Item = &'a ManifestObject> {
        manifests.of_kind(kind, &self.object.namespace)
    }

    /// True if a label selector selects its pods. An empty one selects all pods.
    pub(super) fn is_selected(&self, labels: Option<&YamlNode>) -> bool {
        let own = self.object.root.at("spec.template.metadata.labels");
        labels.is_some_and(|labels| has_all(own, labels))
    }

    /// The number of a container port, by its number or name.
    pub(super) fn port(&self, written: &str) -> Option<u16> {
        if let Ok(number) = written.parse() {
            return Some(number);
        }
        let ports = self.container.items_at("ports").iter();
        let mut named = ports.filter(|port| port.text_at("name") == Some(written));
        named.next()?.text_at("containerPort")?.parse().ok()
    }

    /// The policy file that the arguments name, or why the program would not serve.
    pub(super) fn location(&self, variables: &Variables) -> Result<PolicyFileLocation, String> {
        let of = |name| self.container.get(name).map(YamlNode::words).unwrap_or_default();
        let (command, args) = (of("command"), of("args"));
        let mut words = command.iter().skip(1).chain(&args).copied().collect::<Vec<_>>();
        if command.is_empty() && args.is_empty() {
            words = IMAGE_ARGS.to_vec();
        }
        let words: Vec<_> = words.into_iter().map(str::to_owned).collect();
        // References to unknown variables stay unchanged.
        let expanded = |word: &String| variables.expand(word).unwrap_or_else(|| word.clone());
        let served = served_by(&words.iter().map(expanded).collect::<Vec<_>>());
        // The value of a variable may be a secret, so messages contain the unexpanded text.
        let why = |_| served_by(&words).err().unwrap_or("invalid value of a variable".to_owned());
        let ServeArgs { file, source: SourceArgs { config, profile } } = served.map_err(why)?;
        let path = file.or(config).map(|path| path.to_string_lossy().into_owned());
        Ok(PolicyFileLocation {
            path: path.or_else(|| variables.value(CONFIG)).unwrap_or_default(),
            profile: profile
                .or_else(|| variables.value("RATEWRIGHT_PROFILE"))
                .filter(|profile| !profile.is_empty()),
        })
    }

    /// The node of its arguments.
    pub(super) fn args_node(&self) -> &'a YamlNode {
        self.container.get("args").or(self.container.get("command")).unwrap_or(self.container)
    }
}

impl ManifestObject {
    /// Its name in messages.
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

/// True if a container's image or command is Ratewright.
fn runs_ratewright(container: &YamlNode) -> bool {
    let image = container.text_at("image").unwrap_or_default();
    let image = image.rsplit('/').next().unwrap_or_default();
    let image = image.split([':', '@']).next().unwrap_or_default();
    let command = container.get("command").map(YamlNode::words).unwrap_or_default();
    let program = command.first().and_then(|program| program.rsplit('/').next());
    program.unwrap_or(image) == "ratewright"
}

impl Variables {
    /// The environment of a container.
    pub(super) fn of(workload: &Workload<'_>, manifests: &Manifests) -> Self {
        let namespace = &workload.object.namespace;
        let mut variables = Self { known: BTreeMap::new(), has_others: false };
        for source in workload.container.items_at("envFrom") {
            let prefix = source.text_at("prefix").unwrap_or_default();
            let map = source.text_at("configMapRef.name");
            match map.and_then(|name| manifests.named("ConfigMap", namespace, name)?.root.get("data")) {
                None => variables.has_others = true,
                Some(data) => data.entries().iter().for_each(|(name, value)| {
                    let value = Variable::Value(value.text().unwrap_or_default().to_owned());
                    variables.known.insert(format!("{prefix}{name}"), value);
                }),
            }
        }
        for item in workload.container.items_at("env") {
            let Some(name) = item.text_at("name") else { continue };
            let variable = match item.get("valueFrom") {
                None => match variables.expand(item.text_at("value").unwrap_or_default()) {
                    Some(value) => Variable::Value(value),
                    None => Variable::Unknown,
                },
                Some(from) => in_config_map(from, namespace, manifests).unwrap_or(Variable::Unknown),
            };
            variables.known.insert(name.to_owned(), variable);
        }
        variables
    }

    /// Expands `$(NAME)` as Kubernetes does: `$$` is a dollar sign, and unset names stay unchanged. `None` if it depends on a variable that
    /// only the cluster knows.
    pub(super) fn expand(&self, text: &str) -> Option<String> {
        let (mut expanded, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once('$') {
            expanded.push_str(before);
            rest = after;
            let reference = after.strip_prefix('(').and_then(|after| after.split_once(')'));
            match (after.strip_prefix('$'), reference) {
                (Some(after), _) => {
                    expanded.push('$');
                    rest = after;
                }
                (None, Some((name, after))) if self.get(name).is_some() => {
                    match self.get(name)? {
                        Variable::Value(value) => expanded.push_str(&value),
                        Variable::Unknown => return None,
                    }
                    rest = after;
                }
                (None, _) => expanded.push('$'),
            }
        }
        Some(expanded + rest)
    }

    /// A variable; `None` if it is not set.
    pub(super) fn get(&self, name: &str) -> Option<Variable> {
        self.known.get(name).cloned().or(self.has_others.then_some(Variable::Unknown))
    }

    /// A variable's value, if it is known and not empty.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        match self.known.get(name)? {
            Variable::Value(value) => Some(value.clone()).filter(|value| !value.is_empty()),
            Variable::Unknown => None,
        }
    }
}

/// The value of a key of a ConfigMap among the manifests.
fn in_config_map(from: &YamlNode, namespace: &str, manifests: &Manifests) -> Option<Variable> {
    let reference = from.get("configMapKeyRef")?;
    let map = manifests.named("ConfigMap", namespace, reference.text_at("name")?)?;
    let value = map.root.get("data")?.get(reference.text_at("key")?)?.text()?;
    Some(Variable::Value(value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_to_variables_are_replaced_as_kubernetes_does_it() {
        let value = |text: &str| Variable::Value(text.to_owned());
        let known = [("HOST", value("redis")), ("PORT", value("6379")), ("SECRET", Variable::Unknown)];
        let known = known.map(|(name, value)| (name.to_owned(), value)).into();
        let variables = Variables { known, has_others: false };
        for (text, expected) in [
            ("redis://$(HOST):$(PORT)", Some("redis://redis:6379")),
            ("$(OTHER)/$(HOST", Some("$(OTHER)/$(HOST")),
            ("$$(HOST) $$$(HOST) $ $", Some("$(HOST) $redis $ $")),
            ("${HOST} ()", Some("${HOST} ()")),
            ("$(SECRET)", None),
        ] {
            assert_eq!(variables.expand(text).as_deref(), expected, "{text}");
        }
    }
}
