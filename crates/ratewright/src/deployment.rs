//! `ratewright check --deployment`: compares Kubernetes manifests with the policy file that they deploy.
//!
//! ```text
//!   manifests ──► workload ──► policy_file ──► probes, scaling ──► expect
//!   a folder      the          its ConfigMap   compared with       values that
//!   or stdin      container    and its         the policy file     the manifests
//!                 to check     variables                           must have
//! ```
//!
//! Contacts no cluster. Values from Secrets are unknown.

mod expect;
mod findings;
mod manifests;
mod policy_file;
mod probes;
mod references;
mod scaling;
mod selectors;
mod workload;

use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;

use crate::check::indented;
use crate::config::{ConfigError, Environment, StoreConfig, explain};
use crate::yaml_node::YamlNode;
use findings::Findings;
use manifests::Manifests;
use policy_file::PolicyFile;
use scaling::Autoscaler;
use workload::Workload;

/// The result of the check.
pub(crate) struct DeploymentReport {
    /// A description of the workloads, in words.
    pub(crate) words: String,
    /// Settings that work, but probably not as intended.
    pub(crate) warnings: Vec<ConfigError>,
    /// Differences, and files that cannot be read.
    pub(crate) errors: Vec<ConfigError>,
}

/// Checks the manifests in a folder, a file or standard input, and the values that they must have.
pub(crate) fn check(folder: &Path, expect: Option<&Path>, environment: Environment<'_>) -> DeploymentReport {
    let read = Manifests::read(folder, expect).and_then(|mut manifests| {
        let expect = expect.map(|path| manifests.add_one(path)).transpose();
        let expect = expect.map_err(|error| vec![error])?;
        Ok((manifests, expect))
    });
    match read {
        Ok((manifests, expect)) => compare(folder, &manifests, expect.as_ref(), environment),
        Err(errors) => DeploymentReport { words: String::new(), warnings: Vec::new(), errors },
    }
}

fn compare(
    folder: &Path,
    manifests: &Manifests,
    expect: Option<&YamlNode>,
    environment: Environment<'_>,
) -> DeploymentReport {
    let mut findings = Findings::new(&manifests.files);
    let mut words = String::new();
    let workloads = Workload::all(manifests);
    if workloads.is_empty() {
        let n_objects = manifests.objects.len();
        let problem = format!("no workload runs Ratewright ({n_objects} objects read)");
        let advice = "the image or the command of its container must be named ratewright";
        findings.errors.push(ConfigError::of_file(folder.to_owned(), format!("{problem}; {advice}")));
    }
    for object in manifests.repeated() {
        let problem = format!("duplicate {}; Kubernetes would keep only the last one", object.label());
        findings.error(&object.root, problem);
    }
    selectors::check(manifests, &mut findings);
    scaling::check_targets(manifests, &mut findings);
    let mut n_expected = expect.map_or(0, |expect| expect::check_scaling(expect, manifests, &mut findings));
    for workload in &workloads {
        references::check(workload, manifests, &mut findings);
        let scaler = Autoscaler::of(workload.object, manifests, &mut findings);
        let file = policy_file::read(workload, manifests, environment, &mut findings);
        check_one(workload, manifests, scaler.as_ref(), file.as_ref(), &mut findings);
        let Some(file) = file else { continue };
        words.push_str(&meaning(workload, &file, scaler.as_ref()));
        n_expected +=
            expect.map_or(0, |expect| expect::check_policies(expect, workload, &file, &mut findings));
        findings.warnings.extend(file.config.warnings);
    }
    let Findings { errors, warnings, .. } = findings;
    let (mut errors, warnings) = (in_order(errors), in_order(warnings));
    if let Some(expect) = expect.filter(|_| n_expected == 0 && errors.is_empty()) {
        let problem = "file contains no expectations; add some under scaling or policies";
        let mut findings = Findings::new(&manifests.files);
        findings.error(expect, problem.to_owned());
        errors.append(&mut findings.errors);
    }
    if let Some(expect) = expect.filter(|_| errors.is_empty()) {
        let _ = writeln!(words, "all {n_expected} expectations hold{}", expect::compared(expect));
    }
    DeploymentReport { words, warnings, errors }
}

/// Sorts findings by position, and removes duplicates: two passes, or two containers of one pod, may find the same.
fn in_order(mut findings: Vec<ConfigError>) -> Vec<ConfigError> {
    findings.sort_by_key(ConfigError::order);
    let mut seen = HashSet::new();
    findings.retain(|error| seen.insert(format!("{error:#}")));
    findings
}

fn check_one(
    workload: &Workload<'_>,
    manifests: &Manifests,
    scaler: Option<&Autoscaler<'_>>,
    file: Option<&PolicyFile>,
    findings: &mut Findings<'_>,
) {
    let replicas = scaling::replicas(workload, scaler);
    scaling::check_replicas(workload, replicas, findings);
    scaling::check_disruption(workload, manifests, replicas, findings);
    if let Some(scaler) = scaler {
        scaling::check(workload, scaler, findings);
    }
    if let Some(PolicyFile { config, .. }) = file {
        probes::check(workload, config, findings);
        probes::check_ports(workload, manifests, config, findings);
        probes::check_stop(workload, config, findings);
        scaling::check_store(workload, config, replicas, findings);
    }
}

/// Describes a workload in words.
fn meaning(workload: &Workload<'_>, file: &PolicyFile, scaler: Option<&Autoscaler<'_>>) -> String {
    let PolicyFile { config, config_map } = file;
    let place = match config.store {
        StoreConfig::Memory { .. } => "memory",
        StoreConfig::Redis(_) => "Redis",
    };
    let mut text = explain(config);
    let (n_min, _) = scaling::replicas(workload, scaler);
    let replicas = scaler.map_or_else(|| format!("{n_min} replicas, not scaled"), Autoscaler::words);
    let (allowed, needed) = (probes::grace(workload), probes::stop_time(workload, config));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "scaling: {replicas}");
    let _ = writeln!(text, "stopping: takes at most {needed:?} of {allowed:?}");
    format!("{}, ConfigMap {config_map}; buckets in {place}\n{}", workload.label(), indented(&text))
}

#[cfg(test)]
mod tests;
