//! `cors`, in `gateway` and in routes: which other origins may read responses.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::CONTENT_TYPE;
use ratewright_core::Micros;
use ratewright_gateway::cors::{AllowedHeaders, Cors, CorsError, CorsRules, OriginError};

use super::SectionReader;
use ratewright_config::program_api::file;
use ratewright_config::program_api::raw_value::{ConfigValue, Located, Position, RawList, RawValue};
use ratewright_config::program_api::values::{CorsHeader, CorsMethod, ExposedHeader};

/// The longest that a browser may rely on a preflight. None does for longer.
const AGE_MAX: Micros = Micros::from_secs(86_400);

/// How long it may, unless the file says otherwise.
const AGE: Micros = Micros::from_secs(600);

impl SectionReader<'_> {
    /// The rules as written, `others` where nothing is written, or none if they are off.
    pub(super) fn cors(
        &mut self,
        path: &str,
        raw: Option<&Located<file::Cors>>,
        others: Option<&Arc<Cors>>,
    ) -> Option<Arc<Cors>> {
        let Some(Located { value, position }) = raw else { return others.cloned() };
        match value {
            file::Cors::Text(text) if self.is_off(text) => None,
            file::Cors::Text(text) => {
                let advice = "write off, or a section such as {origins: [https://app.example.com]}";
                self.error(*position, format!("{path} is {text:?}; {advice}"));
                None
            }
            file::Cors::Section(section) => self.cors_section(path, section, *position).map(Arc::new),
        }
    }

    fn cors_section(
        &mut self,
        path: &str,
        section: &file::CorsSection,
        position: Option<Position>,
    ) -> Option<Cors> {
        // Everything is read before anything is given up, so that all errors are reported.
        let origins = self.each_once(&format!("{path}.origins"), &section.origins, |text| {
            text.parse().map_err(|error: OriginError| error.to_string())
        });
        let methods = self.cors_methods(&format!("{path}.methods"), &section.methods);
        let headers = self.cors_headers(&format!("{path}.headers"), &section.headers);
        let expose = self.each_once(&format!("{path}.expose"), &section.expose, ExposedHeader::from_text);
        let credentials = self.read_if(&format!("{path}.credentials"), &section.credentials);
        let max_age = self.max_age(&format!("{path}.max_age"), &section.max_age);
        let rules = CorsRules {
            origins: origins?.unwrap_or_default(),
            methods: methods?,
            headers: headers?,
            expose: expose?.unwrap_or_default().into_iter().map(|ExposedHeader(name)| name).collect(),
            credentials: credentials.unwrap_or_default(),
            max_age,
        };
        let at_origins = section.origins.as_ref().and_then(|origins| origins.position).or(position);
        let at_credentials = section.credentials.as_ref().and_then(|credentials| credentials.position);
        Cors::new(rules)
            .map_err(|error| match error {
                CorsError::CredentialsForAny => {
                    self.error(at_credentials, format!("{path}.credentials is true and {error}"));
                }
                CorsError::NoOrigin | CorsError::AnyAmongOthers => {
                    self.error(at_origins, format!("{path}.origins: {error}"));
                }
            })
            .ok()
    }

    fn cors_methods(&mut self, path: &str, raw: &Option<RawList<CorsMethod>>) -> Option<Vec<Method>> {
        let Some(methods) = self.each_once(path, raw, ConfigValue::from_text)? else {
            return Some(vec![Method::GET, Method::HEAD, Method::POST]);
        };
        if methods.is_empty() {
            let position = raw.as_ref().and_then(|raw| raw.position);
            let problem = format!("{path} is an empty list, so every preflight would be rejected; remove it");
            self.error(position, problem);
        }
        Some(methods.into_iter().map(|CorsMethod(method)| method).collect())
    }

    fn cors_headers(&mut self, path: &str, raw: &Option<RawList<CorsHeader>>) -> Option<AllowedHeaders> {
        let Some(headers) = self.each_once(path, raw, ConfigValue::from_text)? else {
            return Some(AllowedHeaders::Listed(vec![CONTENT_TYPE]));
        };
        if headers == [CorsHeader::Any] {
            return Some(AllowedHeaders::Any);
        }
        let mut names = Vec::new();
        for header in headers {
            match header {
                CorsHeader::Named(name) => names.push(name),
                CorsHeader::Any => {
                    let position = raw.as_ref().and_then(|raw| raw.position);
                    let problem = "* allows every header, so the others have no effect; leave out either * or the others";
                    self.error(position, format!("{path}: {problem}"));
                    return None;
                }
            }
        }
        Some(AllowedHeaders::Listed(names))
    }

    fn max_age(&mut self, path: &str, raw: &Option<RawValue<Micros>>) -> Duration {
        let age = self.read_if(path, raw).unwrap_or(AGE);
        if age > AGE_MAX {
            let position = raw.as_ref().and_then(|raw| raw.position);
            self.error(position, format!("{path} must be at most 1d, since no browser keeps a preflight longer; use for example 10min"));
        }
        age.into()
    }

    /// What each item of a list means. None: one of them is invalid, or there twice. Some(None): there is no list.
    fn each_once<T: ConfigValue, U: PartialEq>(
        &mut self,
        path: &str,
        raw: &Option<RawList<T>>,
        parse: impl Fn(&str) -> Result<U, String>,
    ) -> Option<Option<Vec<U>>> {
        let Some(raw) = raw else { return Some(None) };
        let (mut values, mut is_valid) = (Vec::new(), true);
        for item in &raw.items {
            let value = self.read_with(path, item, &parse);
            if value.as_ref().is_some_and(|value| values.contains(value)) {
                let problem = format!("{path} has {:?} twice; remove one", item.text);
                self.error(item.position, problem);
                is_valid = false;
            }
            is_valid &= value.is_some();
            values.extend(value);
        }
        is_valid.then_some(Some(values))
    }
}
