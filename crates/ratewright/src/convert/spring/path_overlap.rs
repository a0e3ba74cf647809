//! Whether two path patterns can match the same path, and which one Ratewright prefers.

use std::cmp::Ordering;

/// Patterns with more segments are taken to overlap: the comparison needs time for each pair of segments.
const SEGMENTS_MAX: usize = 16;

fn segments(pattern: &str) -> Vec<&str> {
    pattern.trim_start_matches('/').split('/').collect()
}

fn is_rest(segment: &str) -> bool {
    segment == "**"
}

fn is_literal(segment: &str) -> bool {
    !segment.contains(['*', '{', '$'])
}

/// True if a path may match both patterns. In doubt it is true.
pub(super) fn overlaps(one: &str, other: &str) -> bool {
    let (one, other) = (segments(one), segments(other));
    let crosses = |segment: &&str| segment.len() > 2 && (segment.contains("**") || segment.contains('$'));
    if one.len().max(other.len()) > SEGMENTS_MAX || one.iter().chain(&other).any(crosses) {
        return true;
    }
    // can[j]: the segments of `one` that are left overlap with those of `other` from j on.
    let mut can: Vec<bool> =
        (0..=other.len()).map(|j| other.iter().skip(j).all(|segment| is_rest(segment))).collect();
    for segment in one.iter().rev() {
        let mut next = vec![false; other.len() + 1];
        for j in (0..=other.len()).rev() {
            let own = can.get(j).copied().unwrap_or(false);
            let after = |list: &[bool]| list.get(j + 1).copied().unwrap_or(false);
            let is_true = match other.get(j) {
                _ if is_rest(segment) => own || (j < other.len() && after(&next)),
                None => false,
                Some(segment) if is_rest(segment) => own || after(&next),
                Some(opposite) => after(&can) && meet(segment, opposite),
            };
            next[j] = is_true;
        }
        can = next;
    }
    can.first().copied().unwrap_or(true)
}

/// True if a segment may match both.
fn meet(one: &str, other: &str) -> bool {
    if is_literal(one) && is_literal(other) {
        return one == other;
    }
    let beginning = |segment: &str| segment.split(['*', '{', '$']).next().unwrap_or_default().to_owned();
    let (one, other) = (beginning(one), beginning(other));
    one.starts_with(&other) || other.starts_with(&one)
}

/// True if the first pattern matches every path that the second matches. In doubt it is false.
pub(super) fn covers(general: &str, special: &str) -> bool {
    let (general, special) = (segments(general), segments(special));
    for (n, segment) in general.iter().enumerate() {
        let is_last = n + 1 == general.len();
        match special.get(n) {
            _ if is_rest(segment) => return is_last,
            None => return false,
            Some(other) if segment == other => {}
            Some(other) => {
                let is_any = *segment == "*" || (segment.starts_with('{') && segment.ends_with('}'));
                if !is_any || other.contains("**") || other.contains('$') {
                    return false;
                }
            }
        }
    }
    general.len() == special.len()
}

/// Which of two patterns Ratewright prefers for a path that both match: the greater one.
pub(super) fn specificity(one: &str, other: &str) -> Ordering {
    let (one, other) = (segments(one), segments(other));
    let rank = |segment: Option<&&str>| match segment {
        None => 3,
        Some(segment) if segment.contains("**") => 0,
        Some(segment) if is_literal(segment) => 2,
        Some(_) => 1,
    };
    let ranks = (0..one.len().max(other.len())).map(|n| rank(one.get(n)).cmp(&rank(other.get(n))));
    ranks.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_compared_by_segment() {
        for (one, other, expected) in [
            ("/api/**", "/api/login", true),
            ("/api/*", "/api/login", true),
            ("/api/*", "/api/login/x", false),
            ("/{t}/login", "/acme/**", true),
            ("/a/**", "/b/**", false),
            ("/**", "/a", true),
            ("/a/**", "/a", true),
            ("/**/x", "/a/b", false),
            ("/**/x", "/a/*", true),
            ("/a*/x", "/b*/x", false),
        ] {
            assert_eq!(overlaps(one, other), expected, "{one} {other}");
            assert_eq!(overlaps(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn covered_patterns_and_preferred_ones() {
        for (general, special, expected) in [
            ("/api/**", "/api/login", true),
            ("/api/*", "/api/login", true),
            ("/api/*", "/api/**", false),
            ("/{t}/login", "/acme/login", true),
            ("/{t}/login", "/acme/**", false),
            ("/api", "/api/login", false),
            ("/**", "/{t}/**", true),
        ] {
            assert_eq!(covers(general, special), expected, "{general} {special}");
        }
        assert_eq!(specificity("/acme/**", "/{t}/login"), Ordering::Greater);
        assert_eq!(specificity("/api/*", "/api/login"), Ordering::Less);
        assert_eq!(specificity("/api/orders/**", "/**"), Ordering::Greater);
        assert_eq!(specificity("/api", "/api/**"), Ordering::Greater);
    }
}
