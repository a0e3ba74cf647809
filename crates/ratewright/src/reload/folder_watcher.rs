//! Watches the folders of the policy files, where the system supports it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tracing::warn;

/// How often files are polled if the system reports changes, and if it does not.
const POLL_INTERVAL_WATCHED: Duration = Duration::from_secs(10);
const POLL_INTERVAL_UNWATCHED: Duration = Duration::from_secs(2);

/// Notifies of changes in some folders.
pub(super) struct FolderWatcher {
    /// `None` if the system cannot report changes.
    watcher: Option<RecommendedWatcher>,
    changed: Arc<Notify>,
    watched: BTreeSet<PathBuf>,
    /// The folders that cannot be watched.
    unwatched: BTreeSet<PathBuf>,
}

impl FolderWatcher {
    /// Watches no folder yet. `changed` is notified of changes.
    pub(super) fn new(changed: Arc<Notify>) -> Self {
        let notified = Arc::clone(&changed);
        let on_event = move |event: notify::Result<notify::Event>| {
            // Reading the files is an event too.
            if !event.is_ok_and(|event| event.kind.is_access()) {
                notified.notify_one();
            }
        };
        let watcher = notify::recommended_watcher(on_event).map_err(|error| warn_of(&error)).ok();
        Self { watcher, changed, watched: BTreeSet::new(), unwatched: BTreeSet::new() }
    }

    /// Watches these folders, and stops watching others.
    pub(super) fn watch(&mut self, folders: BTreeSet<PathBuf>) {
        let Some(watcher) = &mut self.watcher else { return };
        // Two names of one folder share one watch: unwatching one name would unwatch both.
        let folders: BTreeSet<_> =
            folders.into_iter().map(|folder| folder.canonicalize().unwrap_or(folder)).collect();
        for gone in self.watched.difference(&folders) {
            // It fails only if the folder itself is gone.
            let _ = watcher.unwatch(gone);
        }
        self.watched.retain(|folder| folders.contains(folder));
        let mut unwatched = BTreeSet::new();
        for folder in folders.difference(&self.watched.clone()) {
            match watcher.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(folder.clone());
                    self.changed.notify_one(); // its files may have changed since they were read
                }
                Err(error) => {
                    if !self.unwatched.contains(folder) {
                        warn_of(&error);
                    }
                    unwatched.insert(folder.clone());
                }
            }
        }
        self.unwatched = unwatched;
    }

    /// How often to poll the files as well.
    pub(super) fn poll_interval(&self) -> Duration {
        let is_watched = !self.watched.is_empty() && self.unwatched.is_empty();
        if is_watched { POLL_INTERVAL_WATCHED } else { POLL_INTERVAL_UNWATCHED }
    }
}

fn warn_of(error: &notify::Error) {
    warn!("file watch failed, polling the policy file every 2 s: {error}");
}
