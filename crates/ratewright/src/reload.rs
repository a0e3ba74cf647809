//! Puts another configuration in force when the files change, or on SIGHUP.
//!
//! The new files are read as a whole. If anything is wrong with them, that is told, and the old set stays in force as it
//! is. Otherwise the rule set and the settings are swapped, each at once; requests in flight finish under the old ones. The
//! gateway gets its routes with the policies that they name, as one snapshot. Buckets stay: a policy that is still there under its name
//! keeps its spent units.
//!
//! A file that drops more than 90 % of at least [`GUARDED_MIN`] policies, or of as many rules for Envoy, is refused: a folder from which a file is
//! missing, or the file of another program, would lift nearly all limits. `policies: []` (in a folder: in each file that listed some),
//! `envoy: {files: []}`, `enabled: false` and a forced reload pass. A start is not checked: nothing is in force with which to compare, and a process that refused to start would help nobody.
//!
//! SIGHUP, a change of the files and `ratewright reload` are taken one after the other by one task.
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
use ratewright_http::Dialect;
use ratewright_http::jwt::Verifier;
use ratewright_server::admin::Reloaded;
use ratewright_server::{Access, Settings};
use ratewright_store::WallClock;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{error, info};

use crate::config::{
    AnswersConfig, Change, ClientsConfig, Config, ConfigError, Contents, Fingerprint, Source, changes,
    changes_in_short, log_warnings,
};
use crate::log;
use crate::serve::Running;
use crate::systemd;
use fixed::Fixed;
use folders::Folders;

/// Files that have not changed for so long hold still: no save takes longer between two writes.
const STILL_AFTER: Duration = Duration::from_millis(200);

/// With fewer policies than this, dropping most of them is an ordinary edit.
const GUARDED_MIN: usize = 10;

/// Requests for a reload that wait; more wait outside.
const REQUESTS_MAX: usize = 16;

/// The most changes that are logged one by one.
const LOGGED_MAX: usize = 20;

/// What is known about reloads.
pub(crate) struct Reloads {
    pub(crate) n_succeeded: AtomicU64,
    pub(crate) n_failed: AtomicU64,
    /// Those that had failed when one succeeded last.
    n_failed_before: AtomicU64,
    /// When the set in force was read, in microseconds of the wall clock.
    loaded_at: AtomicU64,
    fixed: Fixed,
    /// What was read last, sound or not. Nothing, if it could not be read.
    seen: Mutex<Option<Fingerprint>>,
    /// What the files in force say, to tell what others change.
    in_force: Mutex<Contents>,
    /// What the files said at the start: some settings are in force as they were then.
    at_start: Contents,
    requests: mpsc::Sender<ReloadRequest>,
}

/// Somebody asks for a reload, and waits for what comes of it.
pub(crate) struct ReloadRequest {
    is_forced: bool,
    reply: oneshot::Sender<Reloaded>,
}

/// What the task that reloads needs.
pub(crate) struct Following {
    pub(crate) users: Users,
    pub(crate) requests: mpsc::Receiver<ReloadRequest>,
}

/// What was in force when a command reported last, if something else has put edits in force since. An operator who edits the file and then runs
/// `ratewright reload` often comes after the watcher, and wants to know what the edits changed in all.
#[derive(Default)]
struct Unreported {
    before: Option<Contents>,
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
        let dialect = Arc::new(Dialect { rules, headers: fields, problem_type, unknown_key });
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
    pub(crate) fn new(config: &Config, now: Timestamp) -> (Self, mpsc::Receiver<ReloadRequest>) {
        let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
        let reloads = Self {
            n_succeeded: AtomicU64::new(0),
            n_failed: AtomicU64::new(0),
            n_failed_before: AtomicU64::new(0),
            loaded_at: AtomicU64::new(now.as_micros()),
            fixed: Fixed::of(config),
            seen: Mutex::new(Some(config.fingerprint.clone())),
            in_force: Mutex::new(config.contents()),
            at_start: config.contents(),
            requests,
        };
        (reloads, receiver)
    }

    /// Asks for a reload, and waits for what comes of it.
    pub(crate) async fn ask(&self, is_forced: bool) -> Reloaded {
        let (reply, reloaded) = oneshot::channel();
        let stopping = || rejected("the program is stopping".to_owned());
        match self.requests.send(ReloadRequest { is_forced, reply }).await {
            Ok(()) => reloaded.await.unwrap_or_else(|_| stopping()),
            Err(_) => stopping(),
        }
    }

    /// True if these texts are not those that were read last.
    fn is_new(&self, texts: &Texts) -> bool {
        self.seen.lock().as_ref() != texts.as_ref().ok()
    }

    /// The changes since the start that wait for a restart.
    fn pending(&self, now: &Contents) -> Vec<Change> {
        changes(&self.at_start, now).into_iter().filter(|change| change.needs_restart).collect()
    }

    /// What is different from `before` now, and all that still waits for a restart.
    fn report(&self, before: &Contents) -> Vec<Value> {
        let now = self.in_force.lock();
        let in_force = changes(before, &now).into_iter().filter(|change| !change.needs_restart);
        in_force.chain(self.pending(&now)).map(|change| change.to_json()).collect()
    }

    /// True if the last one put its file in force, or there was none.
    pub(crate) fn last_succeeded(&self) -> bool {
        self.n_failed.load(Ordering::Relaxed) == self.n_failed_before.load(Ordering::Relaxed)
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
        following: Following,
    ) -> anyhow::Result<impl Future<Output = ()>> {
        let mut hangup = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
        let changed = Arc::new(Notify::new());
        let mut folders = Folders::new(Arc::clone(&changed));
        folders.watch(self.folders(&source));
        changed.notify_one(); // the files may have changed since they were read
        let Following { mut users, mut requests } = following;
        let mut unreported = Unreported::default();
        Ok(async move {
            loop {
                let (mut is_told, mut request) = tokio::select! {
                    _ = hangup.recv() => (true, None),
                    Some(request) = requests.recv() => (true, Some(request)),
                    () = changed.notified() => (false, None),
                    () = tokio::time::sleep(folders.look_every()) => (false, None),
                };
                let texts = if is_told {
                    self.read(&source).await
                } else {
                    tokio::select! {
                        texts = self.read_still(&source) => texts,
                        told = async {
                            tokio::select! {
                                _ = hangup.recv() => None,
                                Some(request) = requests.recv() => Some(request),
                            }
                        } => {
                            (is_told, request) = (true, told);
                            self.read(&source).await
                        }
                    }
                };
                if self.reloads.is_new(&texts) || is_told {
                    systemd::reloading();
                    let is_forced = request.as_ref().is_some_and(|request| request.is_forced);
                    let before = self.reloads.in_force.lock().clone();
                    let mut reloaded = self.reload(texts, &mut users, is_forced);
                    systemd::ready();
                    folders.watch(self.folders(&source));
                    match request {
                        None => unreported.keep(before),
                        Some(ReloadRequest { reply, .. }) => {
                            if let Reloaded::Done { changes, .. } = &mut reloaded {
                                *changes = self.reloads.report(&unreported.take(before));
                            }
                            let _ = reply.send(reloaded); // the caller may be gone
                        }
                    }
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
    fn reload(&self, texts: Texts, users: &mut Users, is_forced: bool) -> Reloaded {
        let (config, seen) = match texts {
            Ok(mut texts) => (Config::of(&mut texts, &crate::environment), Some(texts)),
            Err(errors) => (Err(errors), None),
        };
        *self.reloads.seen.lock() = seen;
        let config = match config {
            Ok(config) => config,
            Err(errors) => return self.keep(&errors),
        };
        let contents = config.contents();
        if !is_forced {
            let lost = self.lost(&config).map(|lost| lost.words());
            if let Some(why) = lost.or_else(|| self.dropped(&config, &contents)) {
                self.reloads.n_failed.fetch_add(1, Ordering::Relaxed);
                error!("{why}");
                return rejected(why);
            }
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
        let mut changes = changes(&self.reloads.in_force.lock(), &contents);
        let is_pending = |change: &Change| {
            change.needs_restart && changes.iter().any(|other| other.subject == change.subject)
        };
        let pending: Vec<_> = self.reloads.pending(&contents).into_iter().filter(is_pending).collect();
        changes.retain(|change| !change.needs_restart);
        changes.extend(pending);
        let dialect = Arc::clone(&settings.dialect);
        self.settings.store(Arc::new(settings));
        self.limiter.swap(config.policies);
        self.rate_limits.replace(config.envoy.as_ref());
        self.passage.replace(config.gateway, dialect, self.limiter.policies(), config.permits);
        *users = new_users;
        *self.reloads.in_force.lock() = contents;
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

    /// Why a file that drops most policies, or most rules for Envoy, is not put in force.
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
                    "the policy file drops {} of {} {what} ({names}, …), as if a part of it were missing; the previous ones stay in force. If that is meant, run ratewright reload --force; to have none at all, write {none}",
                    dropped.len(),
                    before.len()
                )
            })
        })
    }

    /// What is in force and was left out without a word: half a file would lift all limits, or close all routes.
    fn lost(&self, config: &Config) -> Option<Lost> {
        let has_envoy = self.rate_limits.has_rules();
        let has_policies = n_policies(&self.limiter.policies(), &self.passage.permits()) > 0;
        let has_routes = !self.passage.settings().routes.is_empty();
        match (config.lists_policies, config.lists_routes) {
            (false, _) if has_policies && config.is_enabled => {
                Some(Lost { section: "policies", none: "policies: []" })
            }
            (_, false) if has_routes => Some(Lost { section: "routes", none: "routes: []" }),
            _ if has_envoy && config.envoy.is_none() => {
                Some(Lost { section: "envoy", none: "envoy: {files: []}" })
            }
            _ => None,
        }
    }

    /// Tells why what was read cannot be put in force.
    fn refuse(&self, error: &anyhow::Error) -> Reloaded {
        self.reloads.n_failed.fetch_add(1, Ordering::Relaxed);
        let why = format!("the policy file is not put in force: {error:#}");
        error!("{why}");
        rejected(why)
    }

    /// Tells what is wrong, and keeps the set in force.
    fn keep(&self, errors: &[ConfigError]) -> Reloaded {
        self.reloads.n_failed.fetch_add(1, Ordering::Relaxed);
        for error in errors {
            error!("{error:#}");
        }
        error!(problems = errors.len(), "the policy file is not put in force; the one before stays");
        Reloaded::Rejected { errors: errors.iter().map(|error| format!("{error:#}")).collect() }
    }
}

impl Unreported {
    /// Remembers what was in force before edits that no command reports.
    fn keep(&mut self, before: Contents) {
        self.before.get_or_insert(before);
    }

    /// What was in force when a command reported last: `before`, unless there were edits meanwhile.
    fn take(&mut self, before: Contents) -> Contents {
        self.before.take().unwrap_or(before)
    }
}

impl Lost {
    fn words(&self) -> String {
        let Self { section, none } = self;
        format!(
            "the policy file has no section {section} and may be truncated; the previous file stays in force. To have none, write {none}, or run ratewright reload --force"
        )
    }
}

fn rejected(why: String) -> Reloaded {
    Reloaded::Rejected { errors: vec![why] }
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
