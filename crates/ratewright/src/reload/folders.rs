//! The folders that are watched, as far as the system tells of changes there.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tracing::warn;

/// How often files are looked at, where the system tells of changes and where it cannot.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOK_OFTEN: Duration = Duration::from_secs(2);

/// Folders in which files may change.
pub(super) struct Folders {
    /// Nothing, if the system tells of no changes.
    watcher: Option<RecommendedWatcher>,
    changed: Arc<Notify>,
    watched: BTreeSet<PathBuf>,
    /// Those that cannot be watched.
    unwatched: BTreeSet<PathBuf>,
}

impl Folders {
    /// None as yet. `changed` will be told.
    pub(super) fn new(changed: Arc<Notify>) -> Self {
        let told = Arc::clone(&changed);
        let tell = move |event: notify::Result<notify::Event>| {
            // Reading the files is an event too.
            if !event.is_ok_and(|event| event.kind.is_access()) {
                told.notify_one();
            }
        };
        let watcher = notify::recommended_watcher(tell).map_err(|error| warn_of(&error)).ok();
        Self { watcher, changed, watched: BTreeSet::new(), unwatched: BTreeSet::new() }
    }

    /// Watches these, and no others.
    pub(super) fn watch(&mut self, folders: BTreeSet<PathBuf>) {
        let Some(watcher) = &mut self.watcher else { return };
        // One folder by two names has one watch, and who gives up one name gives up both.
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

    /// How often files should be looked at all the same.
    pub(super) fn look_every(&self) -> Duration {
        let is_told = !self.watched.is_empty() && self.unwatched.is_empty();
        if is_told { LOOK_EVERY } else { LOOK_OFTEN }
    }
}

fn warn_of(error: &notify::Error) {
    warn!("changes of the policy file and of files that it names are looked for every 2 s: {error}");
}
