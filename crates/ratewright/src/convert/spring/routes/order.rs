//! Spring takes the first route that matches, Ratewright the most specific one. So a request may come to another route, and must not
//! escape the limits of the first.

use super::super::predicates::RouteConditions;
use super::super::reader::SpringReader;
use super::ConvertedRoute;

/// With more patterns than this, routes are not compared.
const PATTERNS_MAX: usize = 1_000;

/// Adds the limits of earlier routes to later ones that Ratewright prefers, or reports them.
pub(super) fn apply(reader: &mut SpringReader<'_>, routes: &mut [ConvertedRoute<'_>]) {
    let n_patterns: usize = routes.iter().map(|route| route.conditions.paths.len().max(1)).sum();
    if n_patterns > PATTERNS_MAX {
        let note = format!(
            "assumed: no request matches several of the {} routes; Spring prefers the first, Ratewright the most specific",
            routes.len()
        );
        routes.iter().take(1).for_each(|route| reader.warn(route.property, &note));
        reader.draft.section("routes").comment(note);
        return;
    }
    for n in 1..routes.len() {
        let (earlier, later) = routes.split_at_mut(n);
        let Some(later) = later.first_mut() else { return };
        for first in earlier.iter().filter(|first| later.conditions.is_preferred_to(&first.conditions)) {
            let missing: Vec<_> =
                first.policies.iter().filter(|name| !later.policies.contains(name)).cloned().collect();
            if missing.is_empty() {
                continue;
            }
            let names = missing.join(", ");
            let note = if first.conditions.takes_all_of(&later.conditions) {
                later.policies.extend(missing);
                format!(
                    "route {} comes first in Spring and takes these requests; its limits were added: {names}",
                    first.id
                )
            } else {
                format!(
                    "route {} comes first in Spring; requests that match both routes come here without its limits. If there are any, add to policies: {names}",
                    first.id
                )
            };
            reader.warn(later.property, &format!("assumed: {note}"));
            later.item.comment(format!("assumed: {note}"));
        }
    }
}

impl RouteConditions {
    /// The paths, or the pattern for all.
    fn all_paths(&self) -> Vec<&str> {
        if self.paths.is_empty() { vec!["/**"] } else { self.paths.iter().map(String::as_str).collect() }
    }

    /// True if a request may match both, and Ratewright prefers this route. In doubt it is true.
    fn is_preferred_to(&self, first: &Self) -> bool {
        use super::super::path_overlap::{overlaps, specificity};
        let meet = |one: &[String], other: &[String]| {
            one.is_empty()
                || other.is_empty()
                || one.iter().any(|text| other.iter().any(|known| text.eq_ignore_ascii_case(known)))
        };
        let has_stars = |hosts: &[String]| hosts.iter().any(|host| host.contains(['*', '$']));
        let hosts_meet = meet(&self.hosts, &first.hosts) || has_stars(&self.hosts) || has_stars(&first.hosts);
        if !hosts_meet || !meet(&self.methods, &first.methods) {
            return false;
        }
        let rank = |host: &String| if host.contains(['*', '$']) { 1 } else { 2 };
        let best = self.hosts.iter().map(rank).max().unwrap_or(0);
        let worst = first.hosts.iter().map(rank).min().unwrap_or(0);
        if best < worst {
            return false;
        }
        let more_methods = !self.methods.is_empty() && self.methods != first.methods;
        self.all_paths().iter().any(|path| {
            first.all_paths().iter().any(|other| {
                let order = specificity(path, other);
                let is_preferred = best > worst
                    || best == 1
                    || order.is_gt()
                    || (order.is_eq() && (more_methods || path != other));
                is_preferred && overlaps(path, other)
            })
        })
    }

    /// True if every request of the other route matches this one. In doubt it is false.
    fn takes_all_of(&self, other: &Self) -> bool {
        use super::super::path_overlap::covers;
        let all_in = |own: &[String], others: &[String]| {
            own.is_empty() || (!others.is_empty() && others.iter().all(|text| own.contains(text)))
        };
        all_in(&self.hosts, &other.hosts)
            && all_in(&self.methods, &other.methods)
            && other
                .all_paths()
                .iter()
                .all(|path| self.all_paths().iter().any(|pattern| covers(pattern, path)))
    }
}
