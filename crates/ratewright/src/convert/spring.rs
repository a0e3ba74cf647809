//! Converts Spring Boot's `application.yml` with rate limits into a policy file.
//!
//! ```text
//!   files ──► properties ──► limits    custom properties, such as those of a Bucket4j filter
//!             one tree       routes    Spring Cloud Gateway's routes and RequestRateLimiter
//!             of documents   starter   bucket4j-spring-boot-starter
//!             and profiles   redis     spring.data.redis
//! ```
//!
//! # Laws
//! - A converted limit is never looser than the one in the Spring file. Where the file leaves something to Java code, a warning
//!   says what was assumed.
//! - Every property of these sections is converted, or reported with its line and repeated as a comment.
//! - Passwords are not printed.

mod bucket4j_starter;
mod client_keys;
mod durations;
mod exemptions;
mod limits;
mod path_overlap;
mod path_regex;
mod placeholders;
mod predicates;
mod profiles;
mod properties;
mod quotas;
mod rate_limiter_filter;
mod reader;
mod redis;
mod routes;
mod switches;
mod url_credentials;

use crate::config::{ConfigError, SourceFile};
use crate::convert::Conversion;
use crate::convert::policy_file_draft::quoted;
use crate::yaml_node;
use profiles::ProfiledDocument;
use properties::{SpringProperty, TooDeep};
use reader::SpringReader;
use switches::SwitchedSection;

/// Converts files, of which later ones override earlier ones, with one of their profiles.
///
/// # Errors
/// All errors in them.
pub(super) fn convert(files: &[SourceFile], profile: Option<&str>) -> Result<Conversion, Vec<ConfigError>> {
    let is_flat = |file: &&SourceFile| file.path.extension().is_some_and(|name| name == "properties");
    if let Some(file) = files.iter().find(is_flat) {
        let problem =
            "properties files are not read; write the properties as YAML, where dotted names are valid too";
        return Err(vec![ConfigError::of_file(file.path.clone(), problem.to_owned())]);
    }
    let (root, notes) = properties(files, profile)?;
    let mut reader = SpringReader::new(&root, files);
    reader.draft.head.clone_from(&notes);
    reader.notes = notes;
    for (name, advice) in [
        ("spring.config.import", "imported files are not read; name them after this file"),
        ("spring.profiles.include", "profiles are not included; for one of them, add --profile"),
        ("spring.profiles.active", "this profile is not active here; for it, add --profile"),
    ] {
        if let Some(property) = root.get(name) {
            let comment = reader.not_converted(property, advice);
            reader.draft.head.push(comment);
        }
    }
    let sections = limits::convert(&mut reader);
    let has_routes = routes::convert(&mut reader);
    let has_starter = bucket4j_starter::convert(&mut reader);
    let has_switch = reader.switched.iter().any(SwitchedSection::is_explicit);
    let has_settings = sections > 0 && (!reader.draft.is_empty() || has_switch || reader.exempted.is_some());
    if !has_settings && !has_routes && !has_starter && reader.errors.is_empty() {
        // What was found, but cannot be converted, comes first.
        reader.warnings.push(nothing_found(files));
        return Err(reader.warnings);
    }
    let has_limits = reader.draft.has_items("policies");
    reader.write_exemptions(has_limits && (has_routes || has_starter));
    reader.apply_switches();
    if has_limits {
        hints(&mut reader, has_routes);
    }
    redis::convert(&mut reader, has_routes && has_limits);
    metrics(&mut reader);
    unread_sections(&mut reader);
    finish(reader, files)
}

/// Comments on what a Spring file does not say.
fn hints(reader: &mut SpringReader<'_>, has_routes: bool) {
    if !reader.draft.has_settings("clients") {
        let clients = reader.draft.section("clients");
        clients.comment("Behind a load balancer, name it; otherwise all requests have its address:");
        clients.comment("clients: { trusted_proxies: [10.0.0.0/8] }");
    }
    if !has_routes {
        let routes = reader.draft.section("routes");
        routes.comment("To put the gateway in front of the application, add a route to it:");
        routes.comment("routes: [{ id: app, match: { path: /** }, upstream: http://127.0.0.1:8080 }]");
    }
}

/// Checks the policy file, and renders it.
fn finish(mut reader: SpringReader<'_>, files: &[SourceFile]) -> Result<Conversion, Vec<ConfigError>> {
    if reader.errors.is_empty() {
        for (place, problem) in reader.draft.problems() {
            reader.errors.push(ConfigError::at(
                files,
                place,
                format!("cannot be converted: {problem}"),
                true,
            ));
        }
    }
    if !reader.errors.is_empty() {
        reader.errors.sort_by_key(ConfigError::order);
        return Err(reader.errors);
    }
    if !reader.draft.variables.is_empty() {
        let names: Vec<_> = reader.draft.variables.keys().map(String::as_str).collect();
        reader.notes.push(format!("set these variables before `ratewright check`: {}", names.join(", ")));
    }
    let names: Vec<_> = files.iter().map(|file| file.path.display().to_string()).collect();
    let pending = reader.assumed();
    let head = &mut reader.draft.head;
    head.insert(
        0,
        format!(
            "Converted from {} by `ratewright convert spring`. Look for \"not converted\" and \"assumed\".",
            names.join(" and ")
        ),
    );
    head.extend(pending);
    let text = reader.draft.render();
    reader.warnings.sort_by_key(ConfigError::order);
    Ok(Conversion { text, warnings: reader.warnings, notes: reader.notes })
}

/// The properties of all documents that apply, and notes about those that do not.
fn properties(
    files: &[SourceFile],
    profile: Option<&str>,
) -> Result<(SpringProperty, Vec<String>), Vec<ConfigError>> {
    let mut root = SpringProperty::empty();
    let mut others = Vec::new();
    let is_for = |file: &SourceFile| {
        let name = file.path.file_stem().unwrap_or_default().to_string_lossy();
        profile.is_some_and(|profile| name.ends_with(&format!("-{profile}")))
    };
    let mut is_profile_known = files.iter().any(is_for);
    for (n, file) in files.iter().enumerate() {
        // The line is not shown: it may contain a secret.
        let documents = yaml_node::documents(&file.text, n)
            .map_err(|(place, problem)| vec![ConfigError::at(files, Some(place), problem, true)])?;
        for document in &documents {
            let properties = SpringProperty::of_document(document).map_err(|TooDeep(place)| {
                let problem = "properties are nested more than 64 levels deep; is this a Spring file?";
                vec![ConfigError::at(files, place, problem.to_owned(), true)]
            })?;
            let document = ProfiledDocument::new(properties);
            is_profile_known |= document.expression.is_some() && document.applies(profile);
            if document.applies(profile) {
                root.merge(document.properties);
            } else if let Some(platform) = document.platform {
                others.push(format!("the document for cloud platform {platform} is not converted; write its limits into the policy file"));
            } else if let Some(name) = document.expression {
                others.push(format!(
                    "the document for profile {name} is not converted; for it, add --profile {name}"
                ));
            }
        }
    }
    if let Some(profile) = profile.filter(|_| !is_profile_known) {
        let problem = format!("no document has spring.config.activate.on-profile: {profile}; check the name");
        let path = files.first().map(|file| file.path.clone()).unwrap_or_default();
        return Err(vec![ConfigError::of_file(path, ratewright_telemetry::escape_hidden(&problem))]);
    }
    others.dedup();
    Ok((root, others))
}

fn nothing_found(files: &[SourceFile]) -> ConfigError {
    let problem = "no rate limits found; a section rate-limit with limits, spring.cloud.gateway.routes or bucket4j.filters is expected. \
                   Limits that are written in Java cannot be converted";
    let path = files.first().map(|file| file.path.clone()).unwrap_or_default();
    ConfigError::of_file(path, problem.to_owned())
}

/// Tags of all metrics become labels.
fn metrics(reader: &mut SpringReader<'_>) {
    let Some(tags) = reader.root.get("management.metrics.tags") else { return };
    let mut labels = Vec::new();
    for (name, tag) in tags.entries() {
        if let Some(text) = reader.text(tag, reader::A_NAME) {
            labels.push(format!("{}: {}", quoted(name), quoted(&text.written)));
        }
    }
    if !labels.is_empty() {
        reader.draft.section("metrics").set("labels", format!("{{ {} }}", labels.join(", ")));
    }
}

/// Notes the sections that have nothing to do with rate limits.
fn unread_sections(reader: &mut SpringReader<'_>) {
    let mut names = Vec::new();
    for (name, section) in reader.root.entries() {
        if name != "spring" {
            names.extend((!section.unread().is_empty()).then(|| name.clone()));
            continue;
        }
        let inner = section.entries().iter().filter(|(_, section)| !section.unread().is_empty());
        names.extend(inner.map(|(name, _)| format!("spring.{name}")));
    }
    names.retain(|name| !matches!(name.as_str(), "spring.config" | "spring.profiles"));
    if !names.is_empty() {
        let names = ratewright_telemetry::escape_hidden(&names.join(", "));
        reader.notes.push(format!("these sections are not about rate limits, and were not read: {names}"));
    }
}

#[cfg(test)]
mod tests;
