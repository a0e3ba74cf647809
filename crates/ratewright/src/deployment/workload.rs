//! The workload that runs Ratewright: its pods, its container, and what that container is given.

use std::collections::BTreeMap;

use super::manifests::{Manifests, Object};
use super::node::Node;
use super::selectors::has_all;
use crate::cli::{CONFIG, ServeArgs, SourceArgs, served_by};

/// What pods come from.
pub(super) const KINDS: [&str; 3] = ["Deployment", "StatefulSet", "DaemonSet"];

/// How the image starts the program, where the manifest does not say.
const IMAGE_ARGS: [&str; 3] = ["serve", "-c", "/etc/ratewright"];

/// A workload that runs Ratewright.
#[derive(Clone, Copy)]
pub(super) struct Workload<'a> {
    pub(super) object: &'a Object,
    /// The spec of its pods.
    pub(super) pod: &'a Node,
    pub(super) container: &'a Node,
    /// True if another container of its pods runs Ratewright too.
    has_others: bool,
}

/// What the container's environment says of a variable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Variable {
    Value(String),
    /// It is set, to what only the cluster knows.
    Unknown,
}

/// The container's environment.
pub(super) struct Variables {
    known: BTreeMap<String, Variable>,
    /// True if there is a source whose names only the cluster knows.
    has_others: bool,
}

/// Where the program finds its policy file.
pub(super) struct Started {
    pub(super) path: String,
    pub(super) profile: Option<String>,
}

impl<'a> Workload<'a> {
    /// Those that run Ratewright.
    pub(super) fn all(manifests: &'a Manifests) -> Vec<Self> {
        let workloads = manifests.objects.iter().filter(|object| KINDS.contains(&object.kind.as_str()));
        let of = |object: &'a Object| {
            let pod = object.root.at("spec.template.spec");
            let containers = pod.map(|pod| pod.items_at("containers")).unwrap_or_default().iter();
            let containers: Vec<_> = containers.filter(|container| runs_ratewright(container)).collect();
            let has_others = containers.len() > 1;
            let of = move |container| Some(Self { object, pod: pod?, container, has_others });
            containers.into_iter().filter_map(of)
        };
        workloads.flat_map(of).collect()
    }

    /// What it is called in messages.
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

    /// Those of a kind in its namespace.
    pub(super) fn beside(&self, manifests: &'a Manifests, kind: &'a str) -> impl Iterator<Item = &'a Object> {
        manifests.of_kind(kind, &self.object.namespace)
    }

    /// True if a selector of labels chooses its pods. An empty one chooses all.
    pub(super) fn is_selected(&self, labels: Option<&Node>) -> bool {
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

    /// How the program is started, or why it would not serve.
    pub(super) fn started(&self, variables: &Variables) -> Result<Started, String> {
        let of = |name| self.container.get(name).map(Node::words).unwrap_or_default();
        let (command, args) = (of("command"), of("args"));
        let mut words = command.iter().skip(1).chain(&args).copied().collect::<Vec<_>>();
        if command.is_empty() && args.is_empty() {
            words = IMAGE_ARGS.to_vec();
        }
        let words: Vec<_> = words.into_iter().map(str::to_owned).collect();
        // What only the cluster knows stays as it is written.
        let expanded = |word: &String| variables.expand(word).unwrap_or_else(|| word.clone());
        let served = served_by(&words.iter().map(expanded).collect::<Vec<_>>());
        // A value of a variable may be a secret, so messages are about what is written.
        let why = |_| served_by(&words).err().unwrap_or("the value of a variable is rejected".to_owned());
        let ServeArgs { file, source: SourceArgs { config, profile } } = served.map_err(why)?;
        let path = file.or(config).map(|path| path.to_string_lossy().into_owned());
        Ok(Started {
            path: path.or_else(|| variables.value(CONFIG)).unwrap_or_default(),
            profile: profile.or_else(|| variables.value("RATEWRIGHT_PROFILE")),
        })
    }

    /// Where its arguments stand.
    pub(super) fn args_node(&self) -> &'a Node {
        self.container.get("args").or(self.container.get("command")).unwrap_or(self.container)
    }
}

impl Object {
    /// What it is called in messages.
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

/// True if a container's image or command is Ratewright.
fn runs_ratewright(container: &Node) -> bool {
    let image = container.text_at("image").unwrap_or_default();
    let image = image.rsplit('/').next().unwrap_or_default();
    let image = image.split([':', '@']).next().unwrap_or_default();
    let command = container.get("command").map(Node::words).unwrap_or_default();
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

    /// A text with each `$(NAME)` replaced as Kubernetes does it: `$$` is a dollar sign, and names that are not set stay as they are. Nothing, if it
    /// depends on what only the cluster knows.
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

    /// What is known of a variable. Nothing, if it is not set.
    pub(super) fn get(&self, name: &str) -> Option<Variable> {
        self.known.get(name).cloned().or(self.has_others.then_some(Variable::Unknown))
    }

    /// A variable's value, if that is known.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        match self.known.get(name)? {
            Variable::Value(value) => Some(value.clone()).filter(|value| !value.is_empty()),
            Variable::Unknown => None,
        }
    }
}

/// The value of a key of a ConfigMap among the manifests.
fn in_config_map(from: &Node, namespace: &str, manifests: &Manifests) -> Option<Variable> {
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
