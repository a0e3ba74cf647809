//! Puts another configuration in force when the files change, or on SIGHUP.
//!
//! The new files are read as a whole. If anything is wrong with them, that is told, and the old set stays in force as it
//! is. Otherwise the rule set and the settings are swapped, each at once; requests in flight finish under the old ones. The
//! gateway gets its routes with the policies that they name, as one snapshot. Buckets stay: a policy that is still there under its name
//! keeps its spent units.
//!
//! What doors and the store are made of cannot be changed while they are in use: a change there is told, and waits for
//! a restart. Certificates are the exception, since they must be renewed.
//!
//! Keys and certificates that the policy file names are followed as it is: a renewed one counts without a word from anybody.
//!
//! Folders are watched, not files: editors and Kubernetes put another file in the old one's place (`..data`). All the
//! same the files are looked at now and then, since a folder can be replaced too. They are read until they hold still:
//! half a file can be a sound one, with half of the limits.

mod fixed;
mod folders;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use ratewright_core::{Algorithm, Clock, Policies, Policy, Timestamp};
use ratewright_gateway::{Match, Route, Routes};
use ratewright_http::Dialect;
use ratewright_http::jwt::Verifier;
use ratewright_server::{Access, Settings};
use ratewright_store::WallClock;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{error, info};

use crate::config::{AnswersConfig, ClientsConfig, Config, ConfigError, Fingerprint, Source};
use crate::log;
use crate::serve::Running;
use crate::systemd;
pub(crate) use fixed::Fixed;
use folders::Folders;

/// Files that have not changed for so long hold still: no save takes longer between two writes.
const STILL_AFTER: Duration = Duration::from_millis(200);

/// What is known about reloads.
pub(crate) struct Reloads {
    pub(crate) n_succeeded: AtomicU64,
    pub(crate) n_failed: AtomicU64,
    /// When the set in force was read, in microseconds of the wall clock.
    loaded_at: AtomicU64,
    fixed: Fixed,
    /// What was read last, sound or not. Nothing, if it could not be read.
    seen: Mutex<Option<Fingerprint>>,
}

/// What the files hold now.
type Texts = Result<Fingerprint, Vec<ConfigError>>;

/// A section that was left out, and how to say that it shall be.
struct Lost {
    section: &'static str,
    none: &'static str,
}

/// How users are known, and the task that keeps it fresh.
#[derive(Default)]
pub(crate) struct Users {
    /// From where keys are fetched, and who has them.
    keys: Option<(String, Arc<Verifier>)>,
    fetching: Option<JoinHandle<()>>,
}

impl Users {
    /// The settings of a configuration, and the task that keeps its keys fresh. Keys that were fetched from the same
    /// place before go on until newer ones come.
    pub(crate) fn follow(
        clients: ClientsConfig,
        access: Access,
        answers: AnswersConfig,
        before: Option<&Self>,
    ) -> anyhow::Result<(Settings, Self)> {
        let ClientsConfig { rules, jwks } = clients;
        let mut users = Self::default();
        let mut unknown_key: Option<Box<dyn Fn() + Send + Sync>> = None;
        if let (Some(source), Some(token)) = (jwks, &rules.token) {
            let place = source.url();
            if let Some((_, known)) =
                before.and_then(|before| before.keys.as_ref()).filter(|(old, _)| *old == place)
            {
                token.verifier.adopt_keys(known);
            }
            users.keys = Some((place, Arc::clone(&token.verifier)));
            let (refresh, fetching) =
                source.follow(Arc::clone(&token.verifier)).context("clients.user.jwt.jwks cannot be used")?;
            users.fetching = Some(tokio::spawn(fetching));
            unknown_key = Some(Box::new(move || refresh.ask()));
        }
        let AnswersConfig { fields, problem_type } = answers;
        let dialect = Arc::new(Dialect { rules, fields, problem_type, unknown_key });
        Ok((Settings { dialect, access }, users))
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        if let Some(fetching) = &self.fetching {
            fetching.abort();
        }
    }
}

impl Reloads {
    pub(crate) fn new(fixed: Fixed, fingerprint: Fingerprint, now: Timestamp) -> Self {
        Self {
            n_succeeded: AtomicU64::new(0),
            n_failed: AtomicU64::new(0),
            loaded_at: AtomicU64::new(now.as_micros()),
            fixed,
            seen: Mutex::new(Some(fingerprint)),
        }
    }

    /// True if these texts are not those that were read last.
    fn is_new(&self, texts: &Texts) -> bool {
        self.seen.lock().as_ref() != texts.as_ref().ok()
    }

    /// When the set in force was read.
    pub(crate) fn loaded_at(&self) -> Timestamp {
        Timestamp::from_micros(self.loaded_at.load(Ordering::Relaxed))
    }
}

impl Running {
    /// Follows the files until the program ends. From this call on, not from the first wait.
    pub(crate) fn follow(
        self: Arc<Self>,
        source: Source,
        users: Users,
    ) -> anyhow::Result<impl Future<Output = ()>> {
        let mut hangup = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
        let changed = Arc::new(Notify::new());
        let mut folders = Folders::new(Arc::clone(&changed));
        folders.watch(self.folders(&source));
        changed.notify_one(); // the files may have changed since they were read
        let mut users = users;
        Ok(async move {
            loop {
                let mut is_told = tokio::select! {
                    _ = hangup.recv() => true,
                    () = changed.notified() => false,
                    () = tokio::time::sleep(folders.look_every()) => false,
                };
                let texts = if is_told {
                    self.read(&source).await
                } else {
                    tokio::select! {
                        texts = self.read_still(&source) => texts,
                        _ = hangup.recv() => {
                            is_told = true;
                            self.read(&source).await
                        }
                    }
                };
                if self.reloads.is_new(&texts) || is_told {
                    systemd::reloading();
                    self.reload(texts, &mut users);
                    systemd::ready();
                    folders.watch(self.folders(&source));
                }
            }
        })
    }

    /// The folders in which a change of the files shows.
    fn folders(&self, source: &Source) -> BTreeSet<PathBuf> {
        let mut folders = BTreeSet::from_iter(source.folders());
        folders.extend(self.reloads.seen.lock().iter().flat_map(Fingerprint::folders));
        folders
    }

    /// Reads the files.
    async fn read(&self, source: &Source) -> Texts {
        let (source, seen) = (source.clone(), self.reloads.seen.lock().clone().unwrap_or_default());
        let read = tokio::task::spawn_blocking(move || seen.again(&source)).await;
        read.unwrap_or_else(|_| Err(Vec::new())) // the program is stopping
    }

    /// Reads the files until they hold still.
    async fn read_still(&self, source: &Source) -> Texts {
        let mut before = self.read(source).await;
        loop {
            tokio::time::sleep(STILL_AFTER).await;
            let texts = self.read(source).await;
            if texts.as_ref().ok() == before.as_ref().ok() {
                return texts;
            }
            before = texts;
        }
    }

    /// Puts what was read in force, if it is sound.
    fn reload(&self, texts: Texts, users: &mut Users) {
        let (config, seen) = match texts {
            Ok(mut texts) => (Config::of(&mut texts, &crate::environment), Some(texts)),
            Err(errors) => (Err(errors), None),
        };
        *self.reloads.seen.lock() = seen;
        let config = match config {
            Ok(config) => config,
            Err(errors) => return self.keep(&errors),
        };
        if let Some(lost) = self.lost(&config) {
            self.reloads.n_failed.fetch_add(1, Ordering::Relaxed);
            error!(
                "the policy file has no {}, as if it were not written to its end; the ones before stay. If there shall be none, write {}",
                lost.section, lost.none
            );
            return;
        }
        if let Err(error) = self.passage.trust_for(&config.gateway) {
            return self.refuse(&error);
        }
        let (log, fixed) = (config.log.clone(), Fixed::of(&config));
        let settings = Users::follow(config.clients, config.access, config.answers, Some(users));
        let (settings, new_users) = match settings {
            Ok(settings) => settings,
            Err(error) => return self.refuse(&error),
        };
        self.reloads.fixed.compare(&fixed);
        log::change(&log);
        self.set_store_required(config.is_store_required);
        let mut changes =
            changes((&self.limiter.policies(), &self.passage.permits()), (&config.policies, &config.permits));
        changes.extend(routes_changes(&self.passage.settings().routes, &config.gateway.routes));
        let is_told = changes
            .iter()
            .any(|change| change.get(1..).is_some_and(|name| name.starts_with(ratewright_rls_rules::PREFIX)));
        if !is_told && self.rate_limits.would_change(config.envoy.as_ref()) {
            changes.push("~envoy".to_owned());
        }
        let changes = in_words(changes);
        let dialect = Arc::clone(&settings.dialect);
        self.settings.store(Arc::new(settings));
        self.limiter.swap(config.policies);
        self.rate_limits.replace(config.envoy.as_ref());
        self.passage.replace(config.gateway, dialect, self.limiter.policies(), config.permits);
        *users = new_users;
        config.warnings.iter().for_each(ConfigError::log);
        self.reloads.n_succeeded.fetch_add(1, Ordering::Relaxed);
        self.reloads.loaded_at.store(WallClock.now().as_micros(), Ordering::Relaxed);
        info!(generation = self.limiter.policies().generation(), changes, "policies reloaded");
    }

    /// What is in force and was left out without a word: half a file would lift all limits, or close all routes.
    fn lost(&self, config: &Config) -> Option<Lost> {
        let has_envoy = self.rate_limits.has_rules();
        let has_policies = n_policies(&self.limiter.policies(), &self.passage.permits()) > 0;
        let has_routes = !self.passage.settings().routes.is_empty();
        match (config.lists_policies, config.lists_routes) {
            (false, _) if has_policies => Some(Lost { section: "policies", none: "policies: []" }),
            (_, false) if has_routes => Some(Lost { section: "routes", none: "routes: []" }),
            _ if has_envoy && config.envoy.is_none() => {
                Some(Lost { section: "envoy", none: "envoy: {files: []}" })
            }
            _ => None,
        }
    }

    /// Tells why what was read cannot be put in force.
    fn refuse(&self, error: &anyhow::Error) {
        self.reloads.n_failed.fetch_add(1, Ordering::Relaxed);
        error!("the policy file is not put in force: {error:#}");
    }

    /// Tells what is wrong, and keeps the set in force.
    fn keep(&self, errors: &[ConfigError]) {
        self.reloads.n_failed.fetch_add(1, Ordering::Relaxed);
        for error in errors {
            error!("{error:#}");
        }
        error!(problems = errors.len(), "the policy file is not put in force; the one before stays");
    }
}

/// True for those behind ad hoc keys, which are always there.
fn is_ad_hoc(policy: &Policy) -> bool {
    Algorithm::named(policy.name()).is_some()
}

/// True for those that the policy file lists: neither behind ad hoc keys nor a rule for Envoy.
pub(crate) fn is_of_file(policy: &Policy) -> bool {
    !is_ad_hoc(policy) && !policy.name().starts_with(ratewright_rls_rules::PREFIX)
}

/// How many policies the policy file lists, those on requests in flight too.
pub(crate) fn n_policies(policies: &Policies, permits: &Policies) -> usize {
    policies.iter().filter(|policy| is_of_file(policy)).count() + permits.n_policies()
}

/// Which policies came, went, or are not the same.
fn changes(old: (&Policies, &Policies), new: (&Policies, &Policies)) -> Vec<String> {
    let named = |sets: (&'_ Policies, &'_ Policies), name: &str| {
        sets.0.named(name).or_else(|| sets.1.named(name)).cloned()
    };
    let mut changes: Vec<String> = Vec::new();
    for policy in new.0.iter().chain(new.1.iter()) {
        match named(old, policy.name()) {
            None => changes.push(format!("+{}", policy.name())),
            Some(before) if before != *policy => changes.push(format!("~{}", policy.name())),
            Some(_) => {}
        }
    }
    let gone = old.0.iter().chain(old.1.iter()).filter(|policy| named(new, policy.name()).is_none());
    changes.extend(gone.map(|policy| format!("-{}", policy.name())));
    changes
}

/// Which routes came, went, or are not the same.
fn routes_changes(old: &Routes, new: &Routes) -> Vec<String> {
    let find = |routes: &Routes, id: &str| {
        routes
            .iter()
            .find(|(_, route)| *route.id == *id)
            .map(|(matched, route)| route_in_words(matched, route))
    };
    let came = new.iter().filter_map(|(matched, route)| match find(old, &route.id) {
        None => Some(format!("+route {}", route.id)),
        Some(before) if before != route_in_words(matched, route) => Some(format!("~route {}", route.id)),
        Some(_) => None,
    });
    let gone = old.iter().filter(|(_, route)| find(new, &route.id).is_none());
    came.chain(gone.map(|(_, route)| format!("-route {}", route.id))).collect()
}

/// All that a route says, but not how its servers are.
fn route_in_words(matched: &Match, route: &Route) -> String {
    let Route { policies, upstream, timeouts, body_max, body_rate_min, host, retries_max, cors, .. } = route;
    let servers: Vec<_> = upstream.servers().map(ToString::to_string).collect();
    let upstream = (servers, upstream.balance(), upstream.protocol(), upstream.health());
    let rules = cors.as_ref().map(|cors| cors.rules());
    let bounds = (timeouts, body_max, body_rate_min, retries_max);
    format!("{matched:?} {policies:?} {upstream:?} {bounds:?} {host:?} {rules:?}")
}

/// The first few changes, and how many more.
fn in_words(mut changes: Vec<String>) -> String {
    const NAMED_MAX: usize = 10;
    let n_more = changes.len().saturating_sub(NAMED_MAX);
    changes.truncate(NAMED_MAX);
    if n_more > 0 {
        changes.push(format!("and {n_more} more"));
    }
    if changes.is_empty() { "none".to_owned() } else { changes.join(" ") }
}
