//! Notifies systemd of readiness, reloads and stops (`Type=notify`). Does nothing elsewhere.

use std::sync::mpsc;
use std::time::Duration;

use rustix::process::getpid;
use sd_notify::NotifyState;
use tracing::warn;

/// How long a notification may take. A service manager that reads none must not hold up a stop.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(1);

/// All listeners serve.
pub(crate) fn ready() {
    notify(vec![NotifyState::Ready]);
}

/// The files are being read again, as somebody asked.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(vec![NotifyState::Reloading, now]),
        Err(_) => notify(vec![NotifyState::Reloading]),
    }
}

/// A stop has begun.
pub(crate) fn stopping() {
    notify(vec![NotifyState::Stopping]);
}

/// Another process is the service from now on.
pub(crate) fn hand_over_to(pid: u32) {
    notify(vec![NotifyState::MainPid(pid), NotifyState::Ready]);
}

/// Sends it on a thread of its own, since `send` blocks while the manager's queue is full.
fn notify(states: Vec<NotifyState<'static>>) {
    if crate::environment("NOTIFY_SOCKET").is_none() {
        return;
    }
    let (to, sent) = mpsc::channel();
    std::thread::spawn(move || to.send(sd_notify::notify(&states)));
    match sent.recv_timeout(NOTIFY_TIMEOUT) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!("systemd notification failed: {error}"),
        Err(_) => {
            warn!("systemd notification delayed: NOTIFY_SOCKET accepts no message for {NOTIFY_TIMEOUT:?}")
        }
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
