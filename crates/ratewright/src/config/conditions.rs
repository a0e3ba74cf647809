//! What stands under `when`, `match` and `exempt`: which requests are meant.

use ipnet::IpNet;
use ratewright_core::{AttributeName, Condition, Pattern};
use ratewright_http::path::Case;

use super::file;
use super::reader::Reader;
use super::written::{Meaning, Several, Written};

/// What is never charged, unless the file says otherwise.
const EXEMPT_PATHS: [&str; 11] = [
    "/actuator/**",
    "/health",
    "/health/**",
    "/healthz",
    "/livez",
    "/readyz",
    "/metrics",
    "/static/**",
    "/css/**",
    "/js/**",
    "/images/**",
];
const EXEMPT_METHODS: [&str; 1] = ["OPTIONS"];

impl Reader<'_> {
    /// Tests that must all hold.
    pub(super) fn condition(
        &mut self,
        path: &str,
        written: &file::Condition,
        case: Case,
    ) -> Option<Condition> {
        let mut condition = Condition::default();
        let mut is_sound = true;
        for (name, patterns) in &written.0 {
            let path = format!("{path}.{name}");
            let added = match AttributeName::understand(name) {
                Err(why) => {
                    self.wrong(patterns.place, format!("{path}: {name:?} is no attribute; {why}"));
                    None
                }
                Ok(_) if patterns.items.is_empty() => {
                    self.wrong(
                        patterns.place,
                        format!("{path} is an empty list, which nothing fits; leave it out"),
                    );
                    None
                }
                Ok(AttributeName::Ip) => {
                    self.networks(&path, patterns).map(|networks| condition.clone().and_within(networks))
                }
                Ok(name) => {
                    let patterns = self.patterns(&path, &name, patterns, case);
                    patterns.map(|patterns| condition.clone().and_fits(name, patterns))
                }
            };
            match added {
                Some(added) => condition = added,
                None => is_sound = false,
            }
        }
        is_sound.then_some(condition)
    }

    fn networks(&mut self, path: &str, written: &Several<String>) -> Option<Vec<IpNet>> {
        written.items.iter().map(|network| self.read(path, &network.meaning())).collect()
    }

    fn patterns(
        &mut self,
        path: &str,
        name: &AttributeName<String>,
        written: &Several<String>,
        case: Case,
    ) -> Option<Vec<Pattern>> {
        let patterns: Vec<_> =
            written.items.iter().map(|pattern| self.pattern(path, name, pattern, case)).collect();
        patterns.into_iter().collect()
    }

    fn pattern(
        &mut self,
        path: &str,
        name: &AttributeName<String>,
        written: &Written<String>,
        case: Case,
    ) -> Option<Pattern> {
        let mut text = self.read(path, written)?;
        match name {
            AttributeName::Method => text = text.to_ascii_uppercase(),
            AttributeName::Host => text = text.to_ascii_lowercase(),
            AttributeName::Path if !text.starts_with(['/', '*']) => {
                let problem = format!("{path} is {text:?}, which no path fits; begin with / or **");
                self.wrong(written.place, problem);
                return None;
            }
            AttributeName::Path if case == Case::Insensitive => text = text.to_ascii_lowercase(),
            AttributeName::Header(header) if header == "authorization" => {
                text = ratewright_http::parts::credentials_pattern(&text);
            }
            AttributeName::Path
            | AttributeName::Ip
            | AttributeName::User
            | AttributeName::Route
            | AttributeName::Key
            | AttributeName::Header(_)
            | AttributeName::Cookie(_)
            | AttributeName::Param(_)
            | AttributeName::Claim(_)
            | AttributeName::Named(_) => {}
        }
        let pattern = Pattern::new(&text, name.separator());
        pattern.map_err(|error| self.wrong(written.place, format!("{path}: {error}"))).ok()
    }

    /// What is never charged: each condition alone is enough.
    pub(super) fn exempt(&mut self, written: file::Exempt, case: Case) -> Vec<Condition> {
        let unwritten = |texts: &[&str]| Several {
            items: texts.iter().map(|text| Written::unwritten(text)).collect(),
            place: None,
        };
        let paths = written.paths.unwrap_or_else(|| unwritten(&EXEMPT_PATHS));
        let methods = written.methods.unwrap_or_else(|| unwritten(&EXEMPT_METHODS));
        let paths = self.patterns("exempt.paths", &AttributeName::Path, &paths, case).unwrap_or_default();
        let methods =
            self.patterns("exempt.methods", &AttributeName::Method, &methods, case).unwrap_or_default();
        let clients = self.read_all("exempt.clients", &written.clients).unwrap_or_default();
        let conditions = [
            Condition::default().and_fits(AttributeName::Path, paths),
            Condition::default().and_fits(AttributeName::Method, methods),
            Condition::default().and_within(clients),
        ];
        conditions.into()
    }
}
