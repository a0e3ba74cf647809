//! Predicates and filters of Spring Cloud Gateway's routes, in both forms, and the predicates that Ratewright has too.
//!
//! ```text
//!   - Path=/api/orders/**,/api/carts/**              the shortcut
//!   - name: Path                                     the same, written out
//!     args: {patterns: [/api/orders/**, /api/carts/**]}
//! ```

use super::placeholders::list_items;
use super::properties::{SpringProperty, is_same};
use super::reader::{A_NAME, SpringReader};
use crate::convert::policy_file_draft::quoted_list;

/// The longest pattern.
pub(super) const PATTERN_MAX: usize = 2_048;

/// A predicate or a filter.
pub(super) struct RouteComponent<'a> {
    pub(super) name: String,
    pub(super) property: &'a SpringProperty,
    /// The values of the shortcut, separated by commas.
    shortcut: Vec<String>,
    args: Option<&'a SpringProperty>,
}

/// Which requests a route takes.
#[derive(Default, PartialEq)]
pub(super) struct RouteConditions {
    pub(super) paths: Vec<String>,
    pub(super) hosts: Vec<String>,
    pub(super) methods: Vec<String>,
}

impl<'a> RouteComponent<'a> {
    /// The components of a list.
    pub(super) fn all(list: Option<&'a SpringProperty>) -> Vec<Self> {
        list.map(SpringProperty::items).unwrap_or_default().iter().filter_map(Self::of).collect()
    }

    fn of(property: &'a SpringProperty) -> Option<Self> {
        if let Some(text) = property.text() {
            let (name, values) = text.split_once('=').unwrap_or((text, ""));
            let shortcut = list_items(values).map(str::to_owned);
            return Some(Self {
                name: name.trim().to_owned(),
                property,
                shortcut: shortcut.collect(),
                args: None,
            });
        }
        let name = property.get("name")?.text()?.trim().to_owned();
        Some(Self { name, property, shortcut: Vec::new(), args: property.get("args") })
    }

    /// True if it has this name.
    pub(super) fn is(&self, name: &str) -> bool {
        is_same(&self.name, name)
    }

    /// An argument by one of its names.
    pub(super) fn arg(&self, names: &[&str]) -> Option<&'a SpringProperty> {
        self.args?.first_of(names)
    }

    /// The n-th value of the shortcut.
    pub(super) fn shortcut(&self, n: usize) -> Option<&str> {
        self.shortcut.get(n).map(String::as_str)
    }

    /// The patterns of paths or hosts.
    fn patterns(&self, reader: &mut SpringReader<'_>) -> Vec<String> {
        let mut patterns = self.values(reader, &["patterns", "pattern"]);
        if patterns.iter().any(|pattern| pattern.len() > PATTERN_MAX) {
            reader.error(self.property, &format!("a pattern has more than {PATTERN_MAX} bytes"));
            patterns.clear();
        }
        patterns
    }

    /// All values: those of the shortcut, of an argument, or of arguments without names (`_genkey_0`).
    fn values(&self, reader: &mut SpringReader<'_>, names: &[&str]) -> Vec<String> {
        let mut values: Vec<_> = self.shortcut.iter().map(|text| reader.converted(text).written).collect();
        if let Some(property) = self.arg(names) {
            values.extend(reader.texts(property, A_NAME).into_iter().map(|text| text.written));
        }
        for (name, property) in self.args.map(SpringProperty::entries).unwrap_or_default() {
            if name.starts_with("_genkey_") {
                values.extend(reader.texts(property, A_NAME).into_iter().map(|text| text.written));
            }
        }
        values
    }
}

impl RouteConditions {
    /// Reads predicates, and returns comments for those without an equivalent.
    pub(super) fn read(
        reader: &mut SpringReader<'_>,
        predicates: &[RouteComponent<'_>],
    ) -> (Self, Vec<String>) {
        let (mut conditions, mut comments) = (Self::default(), Vec::new());
        for predicate in predicates {
            if predicate.is("Path") {
                if !conditions.paths.is_empty() {
                    comments.push(
                        "assumed: a request matches one of several Path predicates; Spring wants all"
                            .to_owned(),
                    );
                }
                let paths = predicate.patterns(reader);
                conditions.paths.extend(paths.iter().map(|path| path_pattern(path)));
                if let Some(slash) = predicate.arg(&["match-trailing-slash"]) {
                    slash.set_read(); // Ratewright distinguishes /a and /a/ in patterns too
                }
            } else if predicate.is("Host") {
                let hosts = predicate.patterns(reader);
                conditions.hosts.extend(hosts.iter().map(|host| host_pattern(host)));
            } else if predicate.is("Method") {
                conditions.methods.extend(predicate.values(reader, &["methods", "method"]));
            } else {
                let advice = format!(
                    "routes match path, host and method, so this route also takes requests that {} would not",
                    predicate.name
                );
                comments.push(reader.not_converted(predicate.property, &advice));
            }
            comments.extend(reader.leftovers(predicate.property, "this argument is not known"));
        }
        if conditions.paths.is_empty() && conditions.hosts.is_empty() {
            conditions.paths.push("/**".to_owned());
        }
        (conditions, comments)
    }

    /// The setting `match`, in YAML.
    pub(super) fn setting(&self) -> String {
        let lists = [("path", &self.paths), ("host", &self.hosts), ("method", &self.methods)];
        let lists = lists.iter().filter(|(_, texts)| !texts.is_empty());
        let lists: Vec<_> = lists.map(|(name, texts)| format!("{name}: {}", quoted_list(texts))).collect();
        format!("{{ {} }}", lists.join(", "))
    }

    /// The setting `when` of a policy, in YAML. Policies have no parameters such as `{id}`.
    pub(super) fn policy_setting(&self) -> String {
        let plain = |path: &String| without_braces(path, |_, _| "*".to_owned());
        let paths = self.paths.iter().map(plain).collect();
        Self { paths, hosts: self.hosts.clone(), methods: self.methods.clone() }.setting()
    }

    /// True if these conditions take everything that the others take. Compares only paths that end with `/**`.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let is_below = |path: &String, pattern: &String| {
            let prefix = pattern.strip_suffix("/**");
            prefix.is_some_and(|prefix| {
                path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        let is_covered = |path: &String| self.paths.iter().any(|pattern| is_below(path, pattern));
        self.hosts.is_empty()
            && self.methods.is_empty()
            && !other.paths.is_empty()
            && other.paths.iter().all(is_covered)
    }
}

/// A path pattern of Spring as one of Ratewright: `{*rest}` is `**`, `{id:[0-9]+}` is `{id}`, `?` is `*`.
fn path_pattern(path: &str) -> String {
    let pattern = without_braces(path, |inside, is_segment| {
        let name = inside.split(':').next().unwrap_or_default();
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        match (inside.starts_with('*'), is_segment && is_name) {
            (true, _) => "**".to_owned(),
            (false, true) => format!("{{{name}}}"),
            (false, false) => "*".to_owned(),
        }
    });
    if pattern.starts_with(['/', '*', '$']) {
        pattern.replace('?', "*")
    } else {
        format!("/{}", pattern.replace('?', "*"))
    }
}

/// A path pattern of Spring as patterns of a policy, which has no parameters. A path with a slash at its end is meant without it too.
pub(super) fn policy_patterns(path: &str) -> Vec<String> {
    let pattern = without_braces(&path_pattern(path), |_, _| "*".to_owned());
    let short = pattern.strip_suffix('/').filter(|short| !short.is_empty()).map(str::to_owned);
    std::iter::once(pattern).chain(short).collect()
}

/// A host pattern of Spring as one of Ratewright: without variables and without a port.
fn host_pattern(host: &str) -> String {
    let pattern = without_braces(host, |_, _| "*".to_owned());
    match pattern.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit() || b == b'*') => name.to_owned(),
        Some(_) | None => pattern,
    }
}

/// Replaces `{…}`, but not `${…}`. The function gets what is inside, and whether it is a whole segment.
fn without_braces(text: &str, replace: impl Fn(&str, bool) -> String) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let mut depth = 1_usize;
        let end = after.char_indices().find(|(_, c)| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let Some((inside, next)) = end.and_then(|(at, _)| Some((after.get(..at)?, after.get(at + 1..)?)))
        else {
            out.push('{');
            rest = after;
            continue;
        };
        if before.ends_with('$') {
            out.push_str(&format!("{{{inside}}}"));
        } else {
            let is_segment = out.ends_with('/') && (next.is_empty() || next.starts_with('/'));
            out.push_str(&replace(inside, is_segment));
        }
        rest = next;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_spring_become_patterns_of_ratewright() {
        for (path, expected) in [
            ("/api/orders/**", "/api/orders/**"),
            ("/red/{segment}", "/red/{segment}"),
            ("/red/{id:[0-9]{3}}/x", "/red/{id}/x"),
            ("/{*rest}", "/**"),
            ("/{a}-{b}", "/*-*"),
            ("/a?c", "/a*c"),
            ("api/**", "/api/**"),
            ("${BASE:-/v1}/**", "${BASE:-/v1}/**"),
            ("/open{", "/open{"),
        ] {
            assert_eq!(path_pattern(path), expected, "{path}");
        }
        assert_eq!(host_pattern("{sub}.example.org:8080"), "*.example.org");
        assert_eq!(host_pattern("**.example.org"), "**.example.org");
    }
}
