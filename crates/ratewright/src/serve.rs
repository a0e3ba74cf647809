//! Opens the listeners, and serves until a signal or an upgrade stops the process.
//!
//! ```text
//!   Config ─► Running { limiter, settings, store, telemetry } ─► listeners
//!                          ▲        ▲
//!                          └────────┴── reload: a new rule set and new settings, while the listeners stay open
//! ```

mod instance;
mod listeners;
mod shared_state;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, anyhow, bail};
use ratewright_listen::{ShutdownPhase, ShutdownTrigger};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tracing::{error, info};

use crate::config::{Config, Source, StopConfig};
use crate::sockets::Sockets;
use crate::systemd;
use crate::upgrade::{Control, TakeOver, Upgraded};
use listeners::{BoundListeners, print_startup_line};
pub(crate) use shared_state::{Running, found_route};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The listeners that serve, each in its own task, and the triggers that stop them.
struct Serving {
    running: Arc<Running>,
    stop_config: StopConfig,
    tasks: JoinSet<()>,
    shutdown_trigger: ShutdownTrigger,
    /// The admin listener closes last, so that operators can watch the others drain.
    admin: JoinSet<()>,
    admin_shutdown_trigger: ShutdownTrigger,
    control: Option<Control>,
}

/// Why the program stops.
#[derive(Clone, Copy, PartialEq)]
enum StopReason {
    Terminated,
    Interrupted,
    Replaced,
}

/// Runs until SIGTERM or Ctrl-C, or until another process takes over.
///
/// # Errors
/// If an address is in use, or the operating system refuses threads or signals.
pub(crate) fn run(
    config: Config,
    source: Source,
    sockets: Sockets,
    take_over: Option<TakeOver>,
) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start a thread")?;
    runtime.block_on(async {
        let stop_signal = stop_signal()?;
        tokio::spawn(systemd::reap_orphans());
        let mut stop_signal = Box::pin(stop_signal);
        let serving = tokio::select! {
            serving = Serving::start(config, source, sockets, take_over.as_ref()) => serving,
            _ = &mut stop_signal => match &take_over {
                Some(_) => Err(anyhow!("stopped before it was ready")),
                None => return Ok(()),
            },
        };
        let is_replacing = take_over.is_some();
        match (&serving, take_over) {
            (Ok(_), Some(take_over)) => take_over.ready(),
            (Err(error), Some(take_over)) => take_over.fail(&format!("{error:#}")),
            (_, None) => {}
        }
        let mut serving = serving?;
        match serving.open_control() {
            Err(error) if is_replacing => error!("{error:#}; this process cannot be upgraded"), // the old one is leaving already
            opened => opened?,
        }
        systemd::ready();
        tokio::spawn(systemd::report_alive());
        serving.until_stopped(stop_signal).await
    })
}

impl Serving {
    /// Opens all listeners. In a process that takes over, it returns only when the process is ready.
    async fn start(
        config: Config,
        source: Source,
        mut sockets: Sockets,
        take_over: Option<&TakeOver>,
    ) -> anyhow::Result<Self> {
        let listeners = BoundListeners::bind(&config, &mut sockets)?;
        sockets.check_all_taken()?;
        let (labels, stop_config) = (config.labels.clone(), config.stop);
        let control = config.listen.control.clone();
        let (running, reload_inputs) = Running::start(config)?;
        if listeners.gateway.is_some() {
            running.gateway.set_open();
        }
        drop(tokio::spawn(running.clone().follow(source, reload_inputs)?));
        let handed = listeners.clones().context("cannot clone a socket")?;
        print_startup_line(&listeners, &running);
        let (shutdown_trigger, shutdown) = ShutdownTrigger::new();
        let (admin_shutdown_trigger, admin_shutdown) = ShutdownTrigger::new();
        let (mut tasks, mut admin) = (JoinSet::new(), JoinSet::new());
        let old_path = take_over.map(TakeOver::path);
        let control = control.map(|path| Control::bind(&path, handed, old_path)).transpose()?;
        if take_over.is_some() {
            // Until this process is ready, the old process serves all clients.
            running.until_ready().await?;
        }
        listeners.serve(
            &running,
            labels,
            stop_config,
            (&mut tasks, shutdown),
            (&mut admin, admin_shutdown),
        )?;
        Ok(Self { running, stop_config, tasks, shutdown_trigger, admin, admin_shutdown_trigger, control })
    }

    /// Publishes the control socket: from now on `ratewright upgrade` reaches this process, not the one that it replaced.
    fn open_control(&mut self) -> anyhow::Result<()> {
        self.control.as_mut().map_or(Ok(()), Control::publish)
    }

    /// Serves until a signal or an upgrade, then drains.
    async fn until_stopped(
        mut self,
        mut stop_signal: Pin<Box<impl Future<Output = StopReason> + Send + 'static>>,
    ) -> anyhow::Result<()> {
        let control = self.control.take();
        let replaced = async {
            match control {
                Some(control) => Arc::new(control).serve().await,
                None => std::future::pending().await,
            }
        };
        let reason = tokio::select! {
            reason = &mut stop_signal => reason,
            Upgraded = replaced => StopReason::Replaced,
            // If a listener ends by itself, so does the program: load balancers must not send it requests.
            Some(served) = self.tasks.join_next() => {
                served.context("listener failed")?;
                bail!("listener ended unexpectedly");
            }
        };
        // After a hand-over this process stays ready: a probe that reaches it must not take the shared address out of a load balancer.
        self.running.is_stopping.store(reason != StopReason::Replaced, Ordering::Relaxed);
        let StopConfig { delay, drain_timeout } = self.stop_config;
        match reason {
            StopReason::Terminated => {
                systemd::stopping();
                info!("stopping: /ready returns 503; still accepting connections for {delay:?} (stop_delay)");
                self.shutdown_trigger.advance_to(ShutdownPhase::NotReady);
                self.admin_shutdown_trigger.advance_to(ShutdownPhase::NotReady);
                tokio::time::sleep(delay).await;
            }
            StopReason::Interrupted => {
                info!("draining; press Ctrl-C again to force (drain_timeout {drain_timeout:?})")
            }
            StopReason::Replaced => {
                info!("replaced by a new process; draining");
                self.shutdown_trigger.advance_to(ShutdownPhase::HandedOver);
                self.admin_shutdown_trigger.advance_to(ShutdownPhase::HandedOver);
                // Keep idle connections: clients may reuse them, and nothing waits for this process to end.
                tokio::select! {
                    served = self.all_served() => served?,
                    // After the first signal, Ctrl-C forces the process to end.
                    () = tokio::time::sleep(drain_timeout) => drop(tokio::spawn(stop_signal)),
                    _ = &mut stop_signal => {}
                }
            }
        }
        self.shutdown_trigger.advance_to(ShutdownPhase::Draining);
        self.all_served().await?;
        self.admin_shutdown_trigger.advance_to(ShutdownPhase::Draining);
        while let Some(served) = self.admin.join_next().await {
            served.context("admin listener failed")?;
        }
        Ok(())
    }

    /// Waits until all listeners but the admin listener have closed.
    async fn all_served(&mut self) -> anyhow::Result<()> {
        while let Some(served) = self.tasks.join_next().await {
            served.context("listener failed")?;
        }
        Ok(())
    }
}

/// Resolves on SIGTERM or Ctrl-C. Signals count from this call on, not from the first poll.
fn stop_signal() -> anyhow::Result<impl Future<Output = StopReason>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for Ctrl-C")?;
    Ok(async move {
        let reason = tokio::select! {
            _ = terminate.recv() => StopReason::Terminated,
            _ = interrupt.recv() => StopReason::Interrupted,
        };
        // A second Ctrl-C forces the process to end.
        tokio::spawn(async move {
            interrupt.recv().await;
            #[expect(clippy::exit, reason = "the user forces the process to end")]
            std::process::exit(EXIT_FORCED);
        });
        reason
    })
}

/// Exit status after a second Ctrl-C: 128 + SIGINT, as a shell reports it.
const EXIT_FORCED: i32 = 130;
