//! Says in words why a request is limited or not: for `explain` and for the gateway's explain header.

use std::fmt::Write as _;

use ratewright_core::policy::{Condition, Explained, FailedTest, Finding, Mode, Part, UncountableReason};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::Algorithm;
use ratewright_core::{Decision, Policy, Query, Verdict};
use ratewright_telemetry::sounds_secret;

use crate::address::AddressOrigin;
use crate::identify::{Facts, IdentityRules};

/// The longest explanation in a response header, in bytes.
const LINE_MAX: usize = 2_048;

/// The finding that best explains a policy: one that applies, else the first.
pub fn main_finding<'e, 'a>(explained: &'e Explained<'a>) -> Option<&'e Finding<'a>> {
    let applies = |finding: &&Finding<'_>| matches!(finding, Finding::Applies { .. } | Finding::Refused(_));
    explained.findings.iter().find(applies).or(explained.findings.first())
}

/// The result of a policy, in one word.
pub fn result(finding: &Finding<'_>) -> &'static str {
    match finding {
        Finding::Applies { .. } => "applies",
        Finding::Refused(_) => "refused",
        Finding::Exempt(_) => "exempt",
        Finding::NotNamed => "not_named",
        Finding::NotCovered(_) => "not_covered",
        Finding::GroupTaken { .. } | Finding::HeadTaken => "group_taken",
        Finding::Missing(_) => "missing",
        Finding::Off { .. } => "off",
        Finding::Free => "free",
    }
}

/// The override that decided, if one did.
pub fn override_of<'a>(finding: &Finding<'a>) -> Option<&'a str> {
    match finding {
        Finding::Applies { override_name, .. } | Finding::Off { override_name } => *override_name,
        Finding::Refused(_)
        | Finding::Exempt(_)
        | Finding::NotNamed
        | Finding::NotCovered(_)
        | Finding::GroupTaken { .. }
        | Finding::HeadTaken
        | Finding::Missing(_)
        | Finding::Free => None,
    }
}

/// The mode in which a policy applies to the request.
pub fn mode_of(policy: &Policy, finding: &Finding<'_>) -> Mode {
    match finding {
        Finding::Applies { mode, .. } => *mode,
        Finding::Off { .. } => Mode::Off,
        Finding::Refused(_)
        | Finding::Exempt(_)
        | Finding::NotNamed
        | Finding::NotCovered(_)
        | Finding::GroupTaken { .. }
        | Finding::HeadTaken
        | Finding::Missing(_)
        | Finding::Free => policy.mode(),
    }
}

/// Why a policy applies or does not, in words.
pub fn why(policy: &Policy, finding: &Finding<'_>) -> String {
    match finding {
        Finding::Applies { override_name: Some(name), .. } => {
            format!("it covers the request; its override {name} matches")
        }
        Finding::Applies { .. } => "it covers the request".to_owned(),
        Finding::Refused(UncountableReason::Missing) => {
            format!("the request lacks what it counts by ({}), and missing is deny", partition(policy))
        }
        Finding::Refused(UncountableReason::Repeated) => {
            format!("the request sends what it counts by ({}) more than once", partition(policy))
        }
        Finding::Refused(UncountableReason::TooMany) => {
            "the request has too many values or interpretations".to_owned()
        }
        Finding::Exempt(condition) => format!("the request is exempt: {}", conditions(condition)),
        Finding::NotNamed => "only routes and callers that name it fall under it".to_owned(),
        Finding::NotCovered(failed) => failed.iter().map(failure).collect::<Vec<_>>().join("; "),
        Finding::GroupTaken { by } => {
            format!(
                "of the group {} only the first match applies, and {by} comes first",
                policy.group().unwrap_or_default()
            )
        }
        Finding::HeadTaken => {
            format!("a later policy of the group {} names HEAD", policy.group().unwrap_or_default())
        }
        Finding::Missing(names) => {
            let names = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
            format!("the request has no {names}, and missing is skip")
        }
        Finding::Off { override_name: Some(name) } => format!("its override {name} switches it off"),
        Finding::Off { .. } => "its mode is off, or enabled is false".to_owned(),
        Finding::Free => "the request costs nothing under it".to_owned(),
    }
}

fn failure(FailedTest { attribute, values, expected }: &FailedTest<'_>) -> String {
    let expected = expected.join(", ");
    match values.as_slice() {
        [] if is_secret(attribute) => format!("the request has no {attribute}"),
        [] => format!("the request has no {attribute}; it must match {expected}"),
        values if is_secret(attribute) => {
            format!("{attribute} does not match ({} value(s) sent)", values.len())
        }
        values => format!("{attribute} is {}, which does not match {expected}", values.join(", ")),
    }
}

fn conditions(condition: &Condition) -> String {
    let tests = condition.tests().map(|(name, values)| format!("{name} matches {}", values.join(", ")));
    tests.collect::<Vec<_>>().join(" and ")
}

fn partition(policy: &Policy) -> String {
    let names = policy.partition().iter().flat_map(Part::names).map(ToString::to_string);
    names.collect::<Vec<_>>().join(", ")
}

/// True if a value may be a secret, which must not end up in a ticket.
pub fn is_secret<S: AsRef<str>>(name: &AttributeName<S>) -> bool {
    match name {
        AttributeName::Cookie(_) => true, // usually a session
        AttributeName::Header(name) | AttributeName::Param(name) | AttributeName::Named(name) => {
            sounds_secret(name.as_ref())
        }
        AttributeName::Ip
        | AttributeName::User
        | AttributeName::Method
        | AttributeName::Path
        | AttributeName::Host
        | AttributeName::Route
        | AttributeName::Key
        | AttributeName::Claim(_) => false,
    }
}

/// Where a request's identity may come from.
#[derive(Clone, Copy, Debug)]
pub struct IdentitySources {
    /// The request has an `Authorization` header.
    pub has_authorization: bool,
}

/// Where an attribute of a request comes from, or why it is missing. For the address, see [`AddressOrigin`].
pub fn origin(
    name: &AttributeName<&str>,
    facts: &Facts<'_>,
    rules: &IdentityRules,
    sources: IdentitySources,
) -> String {
    let is_known = facts.value(*name).is_some();
    match name {
        AttributeName::User
            if let Some(header) = &rules.user_header
                && facts.is_user_by_header =>
        {
            format!("the {header} header from a trusted proxy")
        }
        AttributeName::User
            if let Some(header) = &rules.user_header
                && rules.token.is_none() =>
        {
            format!("missing: no {header} header from a trusted proxy")
        }
        AttributeName::User | AttributeName::Claim(_) => match (&rules.token, facts.token_error) {
            (None, _) => "missing: clients.user.jwt is not set, so tokens are not read".to_owned(),
            (Some(_), Some(cause)) => format!("token rejected: {cause}"),
            (Some(_), None) if is_known => "the verified token in Authorization".to_owned(),
            (Some(_), None) => {
                let cause = if sources.has_authorization {
                    "Authorization has no token, or the token lacks the claim"
                } else {
                    "the request has no Authorization header"
                };
                let other = rules.user_header.as_ref().filter(|_| *name == AttributeName::User);
                let other = other.map(|header| format!(", and no {header} header from a trusted proxy"));
                format!("missing: {cause}{}", other.unwrap_or_default())
            }
        },
        AttributeName::Route if is_known => "the route of the gateway that matches".to_owned(),
        AttributeName::Named(_) if is_known => "from the caller".to_owned(),
        AttributeName::Header(header) if is_known => format!("the header {header}"),
        AttributeName::Cookie(cookie) if is_known => format!("the cookie {cookie}"),
        AttributeName::Param(param) if is_known => format!("the query parameter {param}"),
        AttributeName::Method | AttributeName::Path | AttributeName::Host if is_known => {
            "the request".to_owned()
        }
        AttributeName::Ip
        | AttributeName::Method
        | AttributeName::Path
        | AttributeName::Host
        | AttributeName::Route
        | AttributeName::Key
        | AttributeName::Header(_)
        | AttributeName::Cookie(_)
        | AttributeName::Param(_)
        | AttributeName::Named(_) => "missing".to_owned(),
    }
}

/// A request that was decided, and what is known about it.
#[derive(Debug)]
pub struct Explain<'a, 'q, 'f> {
    /// The query.
    pub query: &'a Query<'q>,
    /// The decision.
    pub decision: &'a Decision,
    /// What is known about the request.
    pub facts: &'a Facts<'f>,
    /// The rules under which the facts were found.
    pub rules: &'a IdentityRules,
    /// Where the client's address comes from.
    pub address: AddressOrigin,
    /// Where the request's identity may come from.
    pub sources: IdentitySources,
}

impl Explain<'_, '_, '_> {
    /// The explanation in one line of ASCII, for a header: the verdict, the client, then every policy, those that apply
    /// first. If they do not all fit, the line says how many were left out.
    pub fn line(&self) -> String {
        let Self { query, decision, .. } = self;
        let verdict = if decision.verdict() == Verdict::Allow { "allow" } else { "deny" };
        let deciding = decision.refused().map(|(policy, _)| policy);
        let deciding = deciding.or_else(|| decision.tightest().map(|(policy, ..)| policy));
        let mut line = format!("verdict={verdict}");
        if let Some(policy) = deciding {
            line += &format!(" policy={}", policy.name());
        }
        let client = query.values(&AttributeName::<&str>::Ip).next().unwrap_or("unknown");
        line += &format!("; ip {client} from {}", self.address);
        for name in decision.policies().needs().iter().filter(|name| is_identity(name)) {
            line += &format!("; {}", self.identity(&name.as_deref()));
        }
        let mut explained = decision.policies().explain(query);
        // Without the policies behind ad hoc keys, which no file lists, and without Envoy's rules.
        let is_listed = |policy: &Policy| {
            Algorithm::named(policy.name()).is_none() && !policy.name().starts_with("envoy.")
        };
        explained.retain(|explained| is_listed(explained.policy));
        let applies = |explained: &Explained<'_>| {
            matches!(main_finding(explained), Some(Finding::Applies { .. } | Finding::Refused(_)))
        };
        explained.sort_by_key(|explained| !applies(explained));
        let n_policies = explained.len();
        for (n, explained) in explained.iter().enumerate() {
            let next = ascii(&format!("; {}", self.policy(explained)));
            let rest = format!("; policies left out: {}", n_policies - n);
            if line.len() + next.len() + rest.len() > LINE_MAX {
                line += &rest;
                break;
            }
            line += &next;
        }
        let mut line = ascii(&line);
        line.truncate(LINE_MAX);
        line
    }

    fn identity(&self, name: &AttributeName<&str>) -> String {
        let from = origin(name, self.facts, self.rules, self.sources);
        match self.facts.value(*name) {
            Some(_) if is_secret(name) => format!("{name} (secret) from {from}"),
            Some(value) => format!("{name} {value} from {from}"),
            None => format!("{name} {from}"),
        }
    }

    fn policy(&self, explained: &Explained<'_>) -> String {
        let policy = explained.policy;
        let mut text = policy.name().to_owned();
        if let Some(finding) = main_finding(explained) {
            text += &format!(": {}, {}", result(finding), why(policy, finding));
        }
        if let Some(finding) = main_finding(explained)
            && mode_of(policy, finding) == Mode::Shadow
        {
            text += ", in shadow mode";
        }
        for (_, limit, standing) in
            self.decision.standings().filter(|(other, ..)| std::ptr::eq(*other, policy))
        {
            text += &format!(", {} of {} left", standing.remaining, standing.capacity(limit));
            if let Some(wait) = standing.retry_after().filter(|wait| !wait.is_zero()) {
                text += &format!(", retry after {} s", wait.as_secs_ceil());
            }
        }
        text
    }
}

/// True if an attribute identifies the client.
fn is_identity(name: &AttributeName<String>) -> bool {
    match name {
        AttributeName::Header(name) => name != "content-length",
        AttributeName::User
        | AttributeName::Claim(_)
        | AttributeName::Cookie(_)
        | AttributeName::Param(_)
        | AttributeName::Named(_) => true,
        AttributeName::Ip
        | AttributeName::Method
        | AttributeName::Path
        | AttributeName::Host
        | AttributeName::Route
        | AttributeName::Key => false,
    }
}

/// A text that is valid in a header: characters other than visible ASCII and blanks are escaped.
fn ascii(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' '..='~' => ascii.push(c),
            _ => drop(write!(ascii, "\\u{{{:x}}}", u32::from(c))), // writing to a string cannot fail
        }
    }
    ascii
}
