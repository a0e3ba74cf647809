//! Puts a changed policy file in force: when its files change, on SIGHUP, or for `ratewright reload`.
//!
//! The files are read as a whole. An invalid file is reported, and the old configuration stays in force. Otherwise the rule set
//! and the settings are swapped, each atomically; requests in flight finish under the old ones. The gateway gets its routes and
//! the policies that they name as one snapshot. Buckets stay: a policy that keeps its name keeps its spent units.
//!
//! A file that drops more than 90 % of at least [`GUARDED_MIN`] policies, or of as many rules for Envoy, is rejected: a file
//! missing from a folder, or the file of another program, would lift nearly all limits. `policies: []` (in a folder: in each
//! file that listed some), `envoy: {files: []}`, `enabled: false` and a forced reload are accepted. A start is not checked:
//! there is no earlier file to compare with.
//!
//! One task handles SIGHUP, file changes and `ratewright reload`, one after the other.
//!
//! Listeners and the store cannot change while they are in use (`restart_only`): their changes are logged, and need a restart.
//! Certificates are the exception, since they must be renewed.
//!
//! Keys and certificates that the policy file names are watched like the file itself.
//!
//! Folders are watched, not files: editors and Kubernetes replace a file with another one (`..data`). The files are also polled,
//! since a folder can be replaced too. They are read until two readings agree: half a file may be valid, with half of the limits.

mod folder_watcher;
mod restart_only;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use ratewright_core::quota::Algorithm;
use ratewright_core::{Clock, Policies, Policy, Timestamp};
use ratewright_http::HttpSettings;
use ratewright_http::identify::original_request::AuthorizeProtocol;
use ratewright_http::jwt::Verifier;
use ratewright_server::admin::Reloaded;
use ratewright_server::{Access, ServerSettings};
use ratewright_store::WallClock;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{error, info};

use crate::config::{
    AnswersConfig, Change, ClientsConfig, Config, ConfigError, Contents, Fingerprint, Source, SourceFile,
    changes, changes_in_short, log_warnings,
};
use crate::log;
use crate::serve::Running;
use crate::systemd;
use folder_watcher::FolderWatcher;
use restart_only::RestartOnly;

/// Files are complete if they do not change for this long: no editor pauses longer between two writes.
const SETTLED_AFTER: Duration = Duration::from_millis(200);

/// With fewer policies than this, dropping most of them is an ordinary edit.
const GUARDED_MIN: usize = 10;

/// The length of the queue of reload requests. Further requests wait for room in it.
const REQUESTS_MAX: usize = 16;

/// The most changes that are logged one by one.
const LOGGED_MAX: usize = 20;

/// The state of reloads: counts, and what is in force.
pub(crate) struct Reloads {
    pub(crate) n_succeeded: AtomicU64,
    pub(crate) n_failed: AtomicU64,
    /// `n_failed` at the last success.
    n_failed_before: AtomicU64,
    /// When the configuration in force was read, in microseconds of the wall clock.
    loaded_at: AtomicU64,
    restart_only: RestartOnly,
    /// The files that were read last, valid or not; `None` if they could not be read.
    last_read: Mutex<Option<Fingerprint>>,
    /// The contents of the files in force, to compare new files with.
    in_force: Mutex<Contents>,
    /// The policy files in force, as they are written.
    files: Mutex<Vec<SourceFile>>,
    /// Why the files that were read last are not in force.
    last_error: Mutex<Option<String>>,
    /// The contents of the files at the start: restart-only settings are still in force as they were then.
    at_start: Contents,
    requests: mpsc::Sender<ReloadRequest>,
}

/// A request for a reload, with the channel for its result.
pub(crate) struct ReloadRequest {
    is_forced: bool,
    reply: oneshot::Sender<Reloaded>,
}

/// The inputs of the task that reloads.
pub(crate) struct ReloadInputs {
    pub(crate) jwks_task: JwksTask,
    pub(crate) requests: mpsc::Receiver<ReloadRequest>,
}

/// The contents at the last report of a `ratewright reload`, if edits were put in force since. An operator edits the file, then runs
/// `ratewright reload`; often the watcher has already reloaded, and the command must still report the edits.
#[derive(Default)]
struct Unreported {
    before: Option<Contents>,
}

/// The files as they are now, or the errors of reading them.
type FilesRead = Result<Fingerprint, Vec<ConfigError>>;

/// A section that is missing from the new file, and how to write that it is empty.
struct MissingSection {
    section: &'static str,
    none: &'static str,
}

/// The keys that verify users' tokens, and the task that refreshes them.
#[derive(Default)]
pub(crate) struct JwksTask {
    /// The URL of the key set, and the verifier that holds the keys.
    keys: Option<(String, Arc<Verifier>)>,
    task: Option<JoinHandle<()>>,
}

impl JwksTask {
    /// The settings of a configuration, and the task that refreshes its keys. Keys fetched earlier from the same URL stay valid until
    /// the next fetch.
    pub(crate) fn start(
        clients: ClientsConfig,
        (access, authorize): (Access, Option<AuthorizeProtocol>),
        answers: AnswersConfig,
        before: Option<&Self>,
    ) -> anyhow::Result<(ServerSettings, Self)> {
        let ClientsConfig { rules, jwks } = clients;
        let mut jwks_task = Self::default();
        let mut unknown_key: Option<Arc<dyn Fn() + Send + Sync>> = None;
        if let (Some(source), Some(token)) = (jwks, &rules.token) {
            let place = source.url();
            if let Some((_, known)) =
                before.and_then(|before| before.keys.as_ref()).filter(|(old, _)| *old == place)
            {
                token.verifier.adopt_keys(known);
            }
            jwks_task.keys = Some((place, Arc::clone(&token.verifier)));
            let (refresh, task) =
                source.follow(Arc::clone(&token.verifier)).context("cannot use clients.user.jwt.jwks")?;
            jwks_task.task = Some(tokio::spawn(task));
            unknown_key = Some(Arc::new(move || refresh.ask()));
        }
        let AnswersConfig { fields, problem_type } = answers;
        let http_settings = Arc::new(
            HttpSettings::default()
                .rules(rules)
                .headers(fields)
                .problem_type(problem_type)
                .unknown_key(unknown_key),
        );
        Ok((ServerSettings { http_settings, access, authorize }, jwks_task))
    }
}

impl Drop for JwksTask {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Reloads {
    pub(crate) fn new(config: &Config, now: Timestamp) -> (Self, mpsc::Receiver<ReloadRequest>) {
        let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
        let reloads = Self {
            n_succeeded: AtomicU64::new(0),
            n_failed: AtomicU64::new(0),
            n_failed_before: AtomicU64::new(0),
            loaded_at: AtomicU64::new(now.as_micros()),
            restart_only: RestartOnly::of(config),
            last_read: Mutex::new(Some(config.fingerprint.clone())),
            in_force: Mutex::new(config.contents()),
            files: Mutex::new(config.fingerprint.files().to_vec()),
            last_error: Mutex::new(None),
            at_start: config.contents(),
            requests,
        };
        (reloads, receiver)
    }

    /// Requests a reload, and waits for its result.
    pub(crate) async fn ask(&self, is_forced: bool) -> Reloaded {
        let (reply, reloaded) = oneshot::channel();
        let stopping = || rejected("the instance is stopping".to_owned());
        match self.requests.send(ReloadRequest { is_forced, reply }).await {
            Ok(()) => reloaded.await.unwrap_or_else(|_| stopping()),
            Err(_) => stopping(),
        }
    }

    /// True if these files differ from those that were read last.
    fn is_new(&self, texts: &FilesRead) -> bool {
        self.last_read.lock().as_ref() != texts.as_ref().ok()
    }

    /// The changes since the start that need a restart.
    fn pending(&self, now: &Contents) -> Vec<Change> {
        changes(&self.at_start, now).into_iter().filter(|change| change.needs_restart).collect()
    }

    /// The changes since `before`, and all changes that still need a restart.
    fn report(&self, before: &Contents) -> Vec<Value> {
        let now = self.in_force.lock();
        let in_force = changes(before, &now).into_iter().filter(|change| !change.needs_restart);
        in_force.chain(self.pending(&now)).map(|change| change.to_json()).collect()
    }

    /// True if the last reload succeeded, or there was none.
    pub(crate) fn last_succeeded(&self) -> bool {
        self.n_failed.load(Ordering::Relaxed) == self.n_failed_before.load(Ordering::Relaxed)
    }

    /// The policy files in force, as they are written. They may contain secrets.
    pub(crate) fn files(&self) -> Vec<SourceFile> {
        self.files.lock().clone()
    }

    /// Why the files that were read last are not in force, if they are not.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().clone()
    }

    /// Counts a reload that was rejected.
    fn fail(&self, errors: Vec<String>) -> Reloaded {
        self.n_failed.fetch_add(1, Ordering::Relaxed);
        *self.last_error.lock() = Some(errors.join("\n"));
        Reloaded::Rejected { errors }
    }

    /// When the configuration in force was read.
    pub(crate) fn loaded_at(&self) -> Timestamp {
        Timestamp::from_micros(self.loaded_at.load(Ordering::Relaxed))
    }
}

impl Running {
    /// Reloads whenever the files change, until the program ends. Changes count from this call on, not from the first poll.
    pub(crate) fn follow(
        self: Arc<Self>,
        source: Source,
        inputs: ReloadInputs,
    ) -> anyhow::Result<impl Future<Output = ()>> {
        let mut hangup = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
        let changed = Arc::new(Notify::new());
        let mut folders = FolderWatcher::new(Arc::clone(&changed));
        folders.watch(self.folders(&source));
        changed.notify_one(); // the files may have changed since they were read
        let ReloadInputs { mut jwks_task, mut requests } = inputs;
        let mut unreported = Unreported::default();
        Ok(async move {
            loop {
                let (mut is_requested, mut request) = tokio::select! {
                    _ = hangup.recv() => (true, None),
                    Some(request) = requests.recv() => (true, Some(request)),
                    () = changed.notified() => (false, None),
                    () = tokio::time::sleep(folders.poll_interval()) => (false, None),
                };
                let texts = if is_requested {
                    self.read(&source).await
                } else {
                    tokio::select! {
                        texts = self.read_settled(&source) => texts,
                        request_meanwhile = async {
                            tokio::select! {
                                _ = hangup.recv() => None,
                                Some(request) = requests.recv() => Some(request),
                            }
                        } => {
                            (is_requested, request) = (true, request_meanwhile);
                            self.read(&source).await
                        }
                    }
                };
                if self.reloads.is_new(&texts) || is_requested {
                    systemd::reloading();
                    let is_forced = request.as_ref().is_some_and(|request| request.is_forced);
                    let before = self.reloads.in_force.lock().clone();
                    let mut reloaded = self.reload(texts, &mut jwks_task, is_forced);
                    systemd::ready();
                    folders.watch(self.folders(&source));
                    match request {
                        None => unreported.keep(before),
                        Some(ReloadRequest { reply, .. }) => {
                            if let Reloaded::Done { changes, .. } = &mut reloaded {
                                *changes = self.reloads.report(&unreported.take(before));
                            }
                            let _ = reply.send(reloaded); // the caller may have disconnected
                        }
                    }
                }
            }
        })
    }

    /// The folders to watch.
    fn folders(&self, source: &Source) -> BTreeSet<PathBuf> {
        let mut folders = BTreeSet::from_iter(source.folders());
        folders.extend(self.reloads.last_read.lock().iter().flat_map(Fingerprint::folders));
        folders
    }

    /// Reads the files.
    async fn read(&self, source: &Source) -> FilesRead {
        let (source, seen) = (source.clone(), self.reloads.last_read.lock().clone().unwrap_or_default());
        let read = tokio::task::spawn_blocking(move || seen.again(&source)).await;
        read.unwrap_or_else(|_| Err(Vec::new())) // the program is stopping
    }

    /// Reads the files until two readings agree.
    async fn read_settled(&self, source: &Source) -> FilesRead {
        let mut before = self.read(source).await;
        loop {
            tokio::time::sleep(SETTLED_AFTER).await;
            let texts = self.read(source).await;
            if texts.as_ref().ok() == before.as_ref().ok() {
                return texts;
            }
            before = texts;
        }
    }

    /// Puts the files in force, if they are valid.
    fn reload(&self, texts: FilesRead, jwks_task: &mut JwksTask, is_forced: bool) -> Reloaded {
        let (config, seen) = match texts {
            Ok(mut texts) => (Config::of(&mut texts, &crate::environment), Some(texts)),
            Err(errors) => (Err(errors), None),
        };
        *self.reloads.last_read.lock() = seen;
        let config = match config {
            Ok(config) => config,
            Err(errors) => return self.keep(&errors),
        };
        let contents = config.contents();
        if !is_forced {
            let missing_section =
                self.missing_section(&config).map(|missing_section| missing_section.words());
            if let Some(why) = missing_section.or_else(|| self.dropped(&config, &contents)) {
                error!("{why}");
                return self.reloads.fail(vec![why]);
            }
        }
        if let Err(error) = self.gateway.trust_for(&config.gateway) {
            return self.refuse(&error);
        }
        let (log, restart_only) = (config.log.clone(), RestartOnly::of(&config));
        let access = (config.access, config.authorize);
        let settings = JwksTask::start(config.clients, access, config.answers, Some(jwks_task));
        let (settings, new_jwks_task) = match settings {
            Ok(settings) => settings,
            Err(error) => return self.refuse(&error),
        };
        self.reloads.restart_only.compare(&restart_only);
        log::change(&log);
        self.set_store_required(config.is_store_required);
        let mut changes = changes(&self.reloads.in_force.lock(), &contents);
        let is_pending = |change: &Change| {
            change.needs_restart && changes.iter().any(|other| other.subject == change.subject)
        };
        let pending: Vec<_> = self.reloads.pending(&contents).into_iter().filter(is_pending).collect();
        changes.retain(|change| !change.needs_restart);
        changes.extend(pending);
        let http_settings = Arc::clone(&settings.http_settings);
        self.settings.store(Arc::new(settings));
        self.limiter.swap(config.policies);
        self.rls.replace(config.envoy.as_ref());
        self.gateway.replace(config.gateway, http_settings, self.limiter.policies(), config.permits);
        *jwks_task = new_jwks_task;
        *self.reloads.in_force.lock() = contents;
        *self.reloads.files.lock() = config.fingerprint.files().to_vec();
        *self.reloads.last_error.lock() = None;
        log_warnings(&config.warnings);
        for change in changes.iter().take(LOGGED_MAX) {
            info!("reloaded: {}", change.line());
        }
        self.reloads.n_succeeded.fetch_add(1, Ordering::Relaxed);
        let n_failed = self.reloads.n_failed.load(Ordering::Relaxed);
        self.reloads.n_failed_before.store(n_failed, Ordering::Relaxed);
        self.reloads.loaded_at.store(WallClock.now().as_micros(), Ordering::Relaxed);
        let generation = self.limiter.policies().generation();
        info!(generation, changes = changes_in_short(&changes), "policies reloaded");
        Reloaded::Done {
            generation,
            changes: changes.iter().map(|change| change.to_json()).collect(),
            warnings: config.warnings.iter().map(|warning| format!("{warning:#}")).collect(),
        }
    }

    /// Why the file is rejected, if it drops most policies or most rules for Envoy.
    fn dropped(&self, config: &Config, new: &Contents) -> Option<String> {
        let old = self.reloads.in_force.lock();
        let has_no_policies = config.lists_policies && new.listed().is_empty() && !old.has_lost_list(new);
        let no_policies =
            if old.has_several_lists() { "policies: [] in each of its files" } else { "policies: []" };
        let has_no_rules = config.envoy.as_ref().is_some_and(|envoy| !envoy.names_files);
        let guarded = [
            ("policies", no_policies, has_no_policies, old.listed(), old.dropped_by(new)),
            ("rules for Envoy", "envoy: {files: []}", has_no_rules, old.rules(), old.rules_dropped_by(new)),
        ];
        let is_lost = |n_before: usize, n_dropped: usize| {
            config.is_enabled && n_before >= GUARDED_MIN && n_dropped * 10 > n_before * 9
        };
        guarded.into_iter().find_map(|(what, none, is_meant, before, dropped)| {
            (!is_meant && is_lost(before.len(), dropped.len())).then(|| {
                let names = dropped.iter().take(3).copied().collect::<Vec<_>>().join(", ");
                format!(
                    "policy file rejected: it drops {} of {} {what} ({names}, …) and may be incomplete; the previous file stays in force. To apply it anyway, run ratewright reload --force; to have no {what}, write {none}",
                    dropped.len(),
                    before.len()
                )
            })
        })
    }

    /// A section that is in force and missing from the new file: a truncated file would lift all limits, or close all routes.
    fn missing_section(&self, config: &Config) -> Option<MissingSection> {
        let has_envoy = self.rls.has_rules();
        let has_policies = n_policies(&self.limiter.policies(), &self.gateway.permits()) > 0;
        let has_routes = !self.gateway.settings().routes.is_empty();
        match (config.lists_policies, config.lists_routes) {
            (false, _) if has_policies && config.is_enabled => {
                Some(MissingSection { section: "policies", none: "policies: []" })
            }
            (_, false) if has_routes => Some(MissingSection { section: "routes", none: "routes: []" }),
            _ if has_envoy && config.envoy.is_none() => {
                Some(MissingSection { section: "envoy", none: "envoy: {files: []}" })
            }
            _ => None,
        }
    }

    /// Logs and returns why the files cannot be put in force.
    fn refuse(&self, error: &anyhow::Error) -> Reloaded {
        let why = format!("policy file rejected: {error:#}");
        error!("{why}");
        self.reloads.fail(vec![why])
    }

    /// Logs and returns the errors of the files. The configuration in force stays.
    fn keep(&self, errors: &[ConfigError]) -> Reloaded {
        for error in errors {
            error!("{error:#}");
        }
        error!(problems = errors.len(), "policy file rejected; the previous file stays in force");
        self.reloads.fail(errors.iter().map(|error| format!("{error:#}")).collect())
    }
}

impl Unreported {
    /// Remembers the contents before edits that no command has reported yet.
    fn keep(&mut self, before: Contents) {
        self.before.get_or_insert(before);
    }

    /// The contents at the last report: `before`, unless edits were put in force since.
    fn take(&mut self, before: Contents) -> Contents {
        self.before.take().unwrap_or(before)
    }
}

impl MissingSection {
    fn words(&self) -> String {
        let Self { section, none } = self;
        format!(
            "policy file rejected: section {section} is missing and the file may be truncated; the previous file stays in force. To remove it, write {none}, or run ratewright reload --force"
        )
    }
}

fn rejected(why: String) -> Reloaded {
    Reloaded::Rejected { errors: vec![why] }
}

/// True for the built-in policies of ad hoc keys.
fn is_ad_hoc(policy: &Policy) -> bool {
    Algorithm::named(policy.name()).is_some()
}

/// True for policies that the policy file lists: neither built in nor a rule for Envoy.
pub(crate) fn is_of_file(policy: &Policy) -> bool {
    !is_ad_hoc(policy) && !policy.name().starts_with(ratewright_rls_rules::PREFIX)
}

/// The number of policies that the policy file lists, including those with in_flight.
pub(crate) fn n_policies(policies: &Policies, permits: &Policies) -> usize {
    policies.iter().filter(|policy| is_of_file(policy)).count() + permits.n_policies()
}
