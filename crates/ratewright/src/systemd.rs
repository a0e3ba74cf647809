//! Notifies systemd of readiness, reloads and stops (`Type=notify`). Does nothing elsewhere.

use rustix::process::getpid;
use sd_notify::NotifyState;
use tracing::warn;

/// All listeners serve.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// The files are being read again, as somebody asked.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// A stop has begun.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Another process is the service from now on.
pub(crate) fn hand_over_to(pid: u32) {
    notify(&[NotifyState::MainPid(pid), NotifyState::Ready]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!("systemd notification failed: {error}");
    }
}

/// Waits for processes that have nobody else to wait for them, if this is the first process of a container. Those that are
/// never waited for would fill the process table.
pub(crate) async fn reap_orphans() {
    use rustix::process::{WaitOptions, wait};
    use tokio::signal::unix::{SignalKind, signal};

    if !getpid().is_init() {
        return;
    }
    let Ok(mut ended) = signal(SignalKind::child()) else { return };
    while ended.recv().await.is_some() {
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
    }
}
