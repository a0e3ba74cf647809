//! Selectors: which queries a policy covers, and an index that finds the covering policies among many.
//!
//! A [`Condition`] is a list of tests, all of which must hold. If every condition were tried, the cost of a decision
//! would grow with the number of policies. So each policy is filed under an anchor: a value or a literal that a query
//! must contain for the condition to hold.
//!
//! ```text
//!   path: /api/orders           a table by value: one look-up
//!   path: [/a/**, **/login**]   the pattern's literal, /a/ and /login: all literals in a path are found in
//!                               one pass over it, however many there are (Aho and Corasick)
//!   path: /a/**, host: b.c      the rarer of the two
//!   anything else               tried every time
//! ```
//!
//! An anchor only proposes; the condition itself is tested afterwards. So an anchor may be too wide, never too narrow.

use std::collections::HashMap;
use std::hash::Hasher as _;

use aho_corasick::Anchored;
use aho_corasick::automaton::Automaton;
use aho_corasick::nfa::contiguous::NFA;
use ipnet::IpNet;
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;

use crate::pattern::Pattern;
use crate::query::{Attribute, AttributeName, Query};

/// Which queries a policy covers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selector {
    /// Those for which this holds.
    When(Condition),
    /// Only those that name the policy.
    Named,
}

/// Tests that must all hold. Without any, it always holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Condition {
    tests: SmallVec<[Test; 1]>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Test {
    /// The attribute is there, and fits one of the patterns.
    Fits(AttributeName<String>, SmallVec<[Pattern; 1]>),
    /// The client's address lies in one of the networks.
    Within(Vec<IpNet>),
}

/// How a query fits a condition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ConditionMatch {
    /// It does not.
    No,
    /// It may: a value that the condition tests is unreadable.
    Maybe,
    /// It does.
    Yes,
}

/// The conditions of a rule set, by what a query must have for them to hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// No anchor: always proposed. In order.
    always: Vec<u32>,
    /// Proposed to a query with that value of that attribute.
    by_value: Vec<(AttributeName<String>, ByText)>,
    /// Proposed to a query whose path has the literal in it.
    literals: Option<NFA>,
    by_literal: Vec<Vec<u32>>,
}

/// The numbers of conditions, by a text.
type ByText = HashMap<String, Vec<u32>>;

/// Conditions that are proposed for one query.
pub(crate) type Proposed = SmallVec<[u32; 16]>;

/// What a query must have, for one pattern of a condition to hold.
#[derive(Clone, PartialEq, Eq, Hash)]
enum IndexAnchor {
    Value(AttributeName<String>, String),
    Literal(String),
}

impl Selector {
    /// Covers every query.
    pub fn every() -> Self {
        Self::When(Condition::default())
    }

    /// True if it covers the same queries: the order of patterns and networks means nothing.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::When(own), Self::When(other)) => own.is_equivalent(other),
            (Self::When(_), Self::Named) | (Self::Named, Self::When(_)) => false,
            (Self::Named, Self::Named) => true,
        }
    }
}

impl Condition {
    /// Adds: the attribute is there, and fits one of the patterns.
    #[must_use]
    pub fn and_fits(mut self, name: AttributeName<String>, patterns: Vec<Pattern>) -> Self {
        self.tests.push(Test::Fits(name, SmallVec::from_vec(patterns)));
        self
    }

    /// Adds: the client's address lies in one of the networks.
    #[must_use]
    pub fn and_within(mut self, networks: Vec<IpNet>) -> Self {
        self.tests.push(Test::Within(networks));
        self
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        let is_same = |own: &Test| other.tests.iter().any(|test| own.is_equivalent(test));
        self.tests.len() == other.tests.len() && self.tests.iter().all(is_same)
    }

    /// True if it always holds.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tests.is_empty()
    }

    /// True if all tests hold.
    #[inline(always)]
    pub fn holds(&self, query: &Query<'_>) -> bool {
        self.fit(query, || false) == ConditionMatch::Yes
    }

    /// Whether all tests hold, or might if an unreadable value were readable; otherwise one invalid byte would be enough to escape every
    /// policy. A header, cookie, parameter or token that cannot be read may belong to any client, so it fits only if `is_by_client`:
    /// each client has its own bucket, and cannot spend the units of others.
    #[inline(always)]
    pub(crate) fn fit(&self, query: &Query<'_>, is_by_client: impl Fn() -> bool) -> ConditionMatch {
        if self.tests.is_empty() { ConditionMatch::Yes } else { self.worst_fit(query, is_by_client) }
    }

    fn worst_fit(&self, query: &Query<'_>, is_by_client: impl Fn() -> bool) -> ConditionMatch {
        let mut worst = ConditionMatch::Yes;
        for test in &self.tests {
            worst = worst.min(test.fit(query, &is_by_client));
            if worst == ConditionMatch::No {
                break;
            }
        }
        worst
    }

    /// True if it holds because a test names the method HEAD. It then takes precedence over a condition that holds only
    /// because HEAD is a kind of GET.
    pub(crate) fn names_head(&self, query: &Query<'_>) -> bool {
        let names = |test: &Test| match test {
            Test::Fits(AttributeName::Method, patterns) => {
                patterns.iter().any(|pattern| pattern.is_just(HEAD))
            }
            Test::Fits(..) | Test::Within(_) => false,
        };
        self.tests.iter().any(names) && self.holds(query)
    }

    /// True if it tests the method, and so may hold for HEAD because of GET only.
    pub(crate) fn takes_head_for_get(&self, query: &Query<'_>) -> bool {
        let tests_method = |test: &Test| matches!(test, Test::Fits(AttributeName::Method, _));
        self.tests.iter().any(tests_method)
            && query.values(&AttributeName::<&str>::Method).any(|method| method == HEAD)
            && !self.names_head(query)
    }

    /// True if all tests hold for every reading. HEAD does not match GET here. Used where a match exempts the query from a limit.
    pub(crate) fn spares(&self, query: &Query<'_>) -> bool {
        self.tests.iter().all(|test| match test {
            Test::Fits(name, patterns) => {
                let mut values = query.values(name).peekable();
                let fits = |value: &str| {
                    !value.starts_with('\0') && patterns.iter().any(|pattern| pattern.matches(value))
                };
                values.peek().is_some() && values.all(fits)
            }
            Test::Within(networks) => is_within(query, networks),
        })
    }

    /// True if this holds for every query for which the other holds, as far as one can tell by comparing the tests.
    pub fn includes(&self, other: &Self) -> bool {
        self.tests.iter().all(|test| other.tests.iter().any(|theirs| test.includes(theirs)))
    }

    /// Whether each of its tests holds.
    pub(crate) fn holding(&self, query: &Query<'_>) -> impl Iterator<Item = bool> {
        self.tests.iter().map(|test| test.fit(query, || false) == ConditionMatch::Yes)
    }

    /// The attributes that are tested.
    pub fn attributes(&self) -> impl Iterator<Item = &AttributeName<String>> {
        self.tests.iter().filter_map(|test| match test {
            Test::Fits(name, _) => Some(name),
            Test::Within(_) => None,
        })
    }

    /// A 64-bit digest of the tests in hexadecimal, independent of their order. Redis keys contain it, so it must not change between
    /// versions.
    pub fn digest(&self) -> String {
        let mut tests: Vec<String> = self
            .tests()
            .map(|(name, mut values)| {
                values.sort_unstable();
                format!("{name}\0{}", values.join("\0"))
            })
            .collect();
        tests.sort_unstable();
        let mut hasher = SipHasher13::new();
        hasher.write(tests.join("\0\0").as_bytes());
        format!("{:016x}", hasher.finish())
    }

    /// The tests, as policy files write them: an attribute, and its patterns or networks. One of them must match.
    pub fn tests(&self) -> impl Iterator<Item = (AttributeName<&str>, Vec<String>)> {
        self.tests.iter().map(|test| match test {
            Test::Fits(name, patterns) => {
                (name.as_deref(), patterns.iter().map(|pattern| pattern.as_str().to_owned()).collect())
            }
            Test::Within(networks) => (AttributeName::Ip, networks.iter().map(ToString::to_string).collect()),
        })
    }

    /// For each test that can be an anchor, its anchors: if the test holds, the query has at least one of them.
    fn anchors(&self) -> impl Iterator<Item = Vec<IndexAnchor>> {
        self.tests.iter().filter_map(|test| match test {
            Test::Fits(name, patterns) => {
                patterns.iter().map(|pattern| IndexAnchor::of(name, pattern)).collect::<Option<Vec<_>>>()
            }
            Test::Within(_) => None,
        })
    }
}

impl Test {
    fn is_equivalent(&self, other: &Self) -> bool {
        fn have_same<T: PartialEq>(own: &[T], others: &[T]) -> bool {
            own.iter().all(|item| others.contains(item)) && others.iter().all(|item| own.contains(item))
        }
        match (self, other) {
            (Self::Fits(name, own), Self::Fits(other_name, others)) => {
                name == other_name && have_same(own, others)
            }
            (Self::Within(own), Self::Within(others)) => have_same(own, others),
            (Self::Fits(..), Self::Within(_)) | (Self::Within(_), Self::Fits(..)) => false,
        }
    }

    /// True if it holds wherever the other does.
    fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fits(name, patterns), Self::Fits(other, theirs)) => {
                let is_included = |their: &Pattern| patterns.iter().any(|pattern| pattern.includes(their));
                name == other && theirs.iter().all(is_included)
            }
            (Self::Within(networks), Self::Within(theirs)) => {
                theirs.iter().all(|their| networks.iter().any(|network| network.contains(their)))
            }
            (Self::Fits(..), Self::Within(_)) | (Self::Within(_), Self::Fits(..)) => false,
        }
    }

    fn fit(&self, query: &Query<'_>, is_by_client: impl Fn() -> bool) -> ConditionMatch {
        match self {
            Self::Fits(name, patterns) => {
                let mut fit = ConditionMatch::No;
                for value in query.values(name) {
                    let is_get = *name == AttributeName::Method && value == HEAD;
                    let fits = |pattern: &Pattern| pattern.matches(value) || is_get && pattern.is_just(GET);
                    if value == Attribute::TOO_MANY || !value.starts_with('\0') && patterns.iter().any(fits) {
                        return ConditionMatch::Yes;
                    }
                    if value == Attribute::UNREADABLE && (!identifies_client(name) || is_by_client()) {
                        fit = ConditionMatch::Maybe;
                    }
                }
                fit
            }
            Self::Within(networks) if is_within(query, networks) => ConditionMatch::Yes,
            Self::Within(_) => ConditionMatch::No,
        }
    }
}

/// True if the attribute says who a client is, or claims to be.
fn identifies_client(name: &AttributeName<String>) -> bool {
    match name {
        AttributeName::User
        | AttributeName::Claim(_)
        | AttributeName::Header(_)
        | AttributeName::Cookie(_)
        | AttributeName::Param(_) => true,
        AttributeName::Ip
        | AttributeName::Method
        | AttributeName::Path
        | AttributeName::Host
        | AttributeName::Route
        | AttributeName::Key
        | AttributeName::Named(_) => false,
    }
}

/// HEAD is GET without the body, and routes for GET serve it.
const HEAD: &str = "HEAD";
const GET: &str = "GET";

fn is_within(query: &Query<'_>, networks: &[IpNet]) -> bool {
    query.address.is_some_and(|address| networks.iter().any(|network| network.contains(&address)))
}

impl IndexAnchor {
    fn of(name: &AttributeName<String>, pattern: &Pattern) -> Option<Self> {
        if pattern.is_exact() {
            return Some(Self::Value(name.clone(), pattern.as_str().to_owned()));
        }
        let literal = pattern.literal();
        (*name == AttributeName::Path && literal.len() > 1).then(|| Self::Literal(literal.to_owned()))
    }
}

impl Index {
    /// An index over these conditions, each with its number. Of several tests a condition is filed under the one whose
    /// anchors are the rarest: ten thousand hosts below one path are found by the host.
    pub(crate) fn new<'a>(conditions: impl Iterator<Item = (u32, &'a Condition)>) -> Self {
        let candidates: Vec<_> =
            conditions.map(|(number, condition)| (number, condition.anchors().collect::<Vec<_>>())).collect();
        let mut n_by_anchor: HashMap<IndexAnchor, usize> = HashMap::new();
        for anchor in candidates.iter().flat_map(|(_, tests)| tests).flatten() {
            *n_by_anchor.entry(anchor.clone()).or_default() += 1;
        }
        let crowd = |anchors: &[IndexAnchor]| {
            anchors.iter().filter_map(|anchor| n_by_anchor.get(anchor)).max().copied().unwrap_or(0)
        };
        let mut index = Self::default();
        let mut literals = ByText::new();
        for (number, tests) in candidates {
            match tests.into_iter().min_by_key(|anchors| crowd(anchors)) {
                None => index.always.push(number),
                Some(anchors) => {
                    for anchor in anchors {
                        match anchor {
                            IndexAnchor::Value(name, value) => {
                                index.values(name).entry(value).or_default().push(number)
                            }
                            IndexAnchor::Literal(literal) => {
                                literals.entry(literal).or_default().push(number)
                            }
                        }
                    }
                }
            }
        }
        index.file_literals(literals);
        index
    }

    fn file_literals(&mut self, literals: ByText) {
        let (texts, numbers): (Vec<_>, Vec<_>) = literals.into_iter().unzip();
        if !texts.is_empty() {
            // It fails only for more than two billion states; 1,000,000 policies of 255 bytes stay below.
            self.literals = NFA::new(texts).ok();
            if self.literals.is_none() {
                self.always.extend(numbers.iter().flatten());
                self.always.sort_unstable();
                self.always.dedup();
            }
        }
        self.by_literal = numbers;
    }

    /// The table of an attribute.
    fn values(&mut self, name: AttributeName<String>) -> &mut ByText {
        let at = self.by_value.iter().position(|(other, _)| *other == name).unwrap_or(self.by_value.len());
        if at == self.by_value.len() {
            self.by_value.push((name, ByText::new()));
        }
        &mut self.by_value[at].1
    }

    /// True if there is nothing to look up: what is proposed is always the same.
    #[inline]
    pub(crate) fn always(&self) -> Option<&[u32]> {
        (self.by_value.is_empty() && self.literals.is_none()).then_some(self.always.as_slice())
    }

    /// The conditions that may hold for a query, in their order.
    pub(crate) fn propose(&self, query: &Query<'_>) -> Proposed {
        let mut proposed = Proposed::from_slice(&self.always);
        for (name, numbers) in &self.by_value {
            for value in query.values(name) {
                if value.starts_with('\0') {
                    proposed.extend(numbers.values().flatten().copied());
                }
                proposed.extend_from_slice(numbers.get(value).map_or(&[], Vec::as_slice));
                if *name == AttributeName::Method && value == HEAD {
                    proposed.extend_from_slice(numbers.get(GET).map_or(&[], Vec::as_slice));
                }
            }
        }
        if let Some(literals) = &self.literals {
            for path in query.values(&AttributeName::<&str>::Path) {
                if path.starts_with('\0') {
                    proposed.extend(self.by_literal.iter().flatten().copied());
                }
                self.propose_by_literal(literals, path, &mut proposed);
            }
        }
        proposed.sort_unstable();
        proposed.dedup();
        proposed
    }

    /// Those whose literal is in the path. A separator is put at the path's end: `/shop/` is in `/shop` too.
    fn propose_by_literal(&self, literals: &NFA, path: &str, proposed: &mut Proposed) {
        let Ok(mut state) = literals.start_state(Anchored::No) else { return };
        let mut found: SmallVec<[usize; 32]> = SmallVec::new();
        for byte in path.bytes().chain([b'/']) {
            state = literals.next_state(Anchored::No, state, byte);
            if !literals.is_special(state) || !literals.is_match(state) {
                continue;
            }
            found.extend((0..literals.match_len(state)).map(|n| literals.match_pattern(state, n).as_usize()));
        }
        // The same literal over and over is proposed once.
        found.sort_unstable();
        found.dedup();
        for literal in found {
            proposed.extend_from_slice(&self.by_literal[literal]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Micros;
    use crate::query::{Ask, Attribute, Entrypoint, Select};

    fn patterns(name: &AttributeName<String>, texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| Pattern::new(text, name.separator()).unwrap()).collect()
    }

    fn when(tests: &[(AttributeName<String>, &[&str])]) -> Condition {
        let and = |condition: Condition, (name, texts): &(AttributeName<String>, &[&str])| {
            condition.and_fits(name.clone(), patterns(name, texts))
        };
        tests.iter().fold(Condition::default(), and)
    }

    fn conditions() -> Vec<Condition> {
        use AttributeName::{Host, Method, Path, User};
        vec![
            Condition::default(),
            when(&[(Path, &["/a"])]),
            when(&[(Path, &["/a/**", "/b"])]),
            when(&[(Path, &["**/login**", "**/a**"])]),
            when(&[(Path, &["/**"]), (Method, &["POST"])]),
            when(&[(Host, &["*.example.com"])]),
            when(&[(User, &["u", "batch-*"])]),
            when(&[(Method, &["GET", "POST"]), (Path, &["/*/b"])]),
            Condition::default().and_within(vec!["10.0.0.0/8".parse().unwrap()]),
        ]
    }

    /// The index proposes all conditions that hold, whatever the query.
    #[test]
    fn what_holds_is_proposed() {
        let conditions = conditions();
        let index = Index::new((0..).zip(&conditions));
        let mut n_held = vec![0; conditions.len()];
        for path in ["/", "/a", "/a/b", "/b", "/x/login/a/a", "/x/b", "/c"] {
            for method in ["GET", "POST", "PUT"] {
                for (host, user, address) in [
                    ("x.example.com", "u", "10.1.1.1"),
                    (Attribute::UNREADABLE, Attribute::UNREADABLE, "10.1.1.1"),
                    ("example.com", "batch-1", "192.0.2.1"),
                    ("", "w", "::1"),
                ] {
                    let attributes = [
                        (AttributeName::Path, path),
                        (AttributeName::Method, method),
                        (AttributeName::Host, host),
                        (AttributeName::User, user),
                    ]
                    .map(|(name, value)| Attribute { name, value });
                    let query = Query {
                        select: Select::Covering(&[]),
                        attributes: &attributes,
                        address: address.parse().ok(),
                        ask: Ask::Look(0),
                        patience: Micros::ZERO,
                        id: None,
                        entrypoint: Entrypoint::Tower,
                    };
                    let proposed = index.propose(&query);
                    assert!(proposed.is_sorted());
                    for (n, condition) in (0..).zip(&conditions) {
                        if condition.fit(&query, || true) != ConditionMatch::No {
                            n_held[n as usize] += 1;
                            assert!(proposed.contains(&n), "{condition:?} {attributes:?}");
                        }
                    }
                }
            }
        }
        assert!(n_held.iter().all(|n| *n > 0), "each held at least once: {n_held:?}");
    }

    /// Many tenants under one path are found by their host, and a path that says the same over and over proposes no more.
    #[test]
    fn the_rarest_test_is_the_anchor() {
        let host = |n: usize| format!("t{n}.example.com");
        let conditions: Vec<_> = (0..100)
            .map(|n| when(&[(AttributeName::Path, &["/api/**"]), (AttributeName::Host, &[&host(n)])]))
            .collect();
        let index = Index::new((0..).zip(&conditions));
        let path = "/api/".repeat(1_000);
        let attributes = [(AttributeName::Path, path.as_str()), (AttributeName::Host, "t7.example.com")]
            .map(|(name, value)| Attribute { name, value });
        let query = Query {
            select: Select::Covering(&[]),
            attributes: &attributes,
            address: None,
            ask: Ask::Look(0),
            patience: Micros::ZERO,
            id: None,
            entrypoint: Entrypoint::Tower,
        };
        assert_eq!(index.propose(&query).as_slice(), [7]);
    }

    #[test]
    fn a_condition_with_a_path_is_proposed_for_such_paths_only() {
        let conditions: Vec<_> =
            (0..100).map(|n| when(&[(AttributeName::Path, &[format!("/p{n:03}/**").as_str()])])).collect();
        let index = Index::new((0..).zip(&conditions));
        let attributes = [Attribute { name: AttributeName::Path, value: "/p042/x" }];
        let query = Query {
            select: Select::Covering(&[]),
            attributes: &attributes,
            address: None,
            ask: Ask::Look(0),
            patience: Micros::ZERO,
            id: None,
            entrypoint: Entrypoint::Tower,
        };
        assert_eq!(index.propose(&query).as_slice(), [42]);
        assert_eq!(index.always(), None);
    }
}
