//! Notifies systemd of readiness, reloads and stops (`Type=notify`), and that the process works (`WatchdogSec`). Does nothing without systemd.

use std::sync::mpsc;
use std::time::Duration;

use rustix::process::getpid;
use sd_notify::NotifyState;
use tracing::warn;

/// How long a notification may take. A blocked service manager must not delay a stop.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(1);

/// Reports that all listeners serve.
pub(crate) fn ready() {
    notify(vec![NotifyState::Ready]);
}

/// Reports that a reload has begun.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(vec![NotifyState::Reloading, now]),
        Err(_) => notify(vec![NotifyState::Reloading]),
    }
}

/// Reports that a stop has begun.
pub(crate) fn stopping() {
    notify(vec![NotifyState::Stopping]);
}

/// Reports that another process is now the main process of the service.
pub(crate) fn hand_over_to(pid: u32) {
    notify(vec![NotifyState::MainPid(pid), NotifyState::Ready]);
}

/// Reports again and again that this process works, if `WatchdogSec` asks for it. `WATCHDOG_PID` is not compared: after an upgrade
/// it names the process that systemd started.
pub(crate) async fn report_alive() {
    let within = crate::environment("WATCHDOG_USEC").and_then(|text| text.parse().ok());
    let Some(within) = within.map(Duration::from_micros).filter(|within| !within.is_zero()) else { return };
    let mut turns = tokio::time::interval(within / 2);
    loop {
        turns.tick().await;
        let notified = tokio::task::spawn_blocking(|| notify(vec![NotifyState::Watchdog]));
        if notified.await.is_err() {
            return; // the runtime ends
        }
    }
}

/// Sends a notification on its own thread, since `send` blocks while the manager's queue is full.
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

/// Reaps orphaned processes, if this is the first process (PID 1) of a container. Zombies would fill the process table.
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
