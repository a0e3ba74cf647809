//! hyper's timer, with one runtime timer for each connection.
//!
//! hyper sets a timer for each request head and cancels it when the head arrives. Registering each with the runtime
//! costs more than reading the head. Here one runtime timer keeps running: it mostly fires early, for a head that
//! arrived long ago, and is then reset to the current deadline.
//!
//! ```text
//!   heads     ├─1─┤ ├2┤     ├────────── 3, slow ──────────
//!   deadlines       ▲1  ▲2                               ▲3
//!   fires           ●────────── reset ───────────────────●  times out
//! ```

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;

/// The timer of one connection. Only one task may sleep on it, and only one sleep at a time is polled.
#[derive(Clone, Default)]
pub struct LazyTimer(Arc<Mutex<TimerState>>);

/// The runtime timer, and the task that it wakes.
#[derive(Default)]
struct TimerState {
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
    waker: Option<Waker>,
}

/// Sleeps until a deadline.
struct LazySleep {
    deadline: tokio::time::Instant,
    timer: LazyTimer,
}

impl Timer for LazyTimer {
    fn sleep(&self, duration: std::time::Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(LazySleep { deadline: deadline.into(), timer: self.clone() })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into()
    }
}

impl TimerState {
    /// True if the runtime timer will wake this task at the deadline or before.
    fn wakes_by(&self, deadline: tokio::time::Instant, waker: &Waker) -> bool {
        let is_set =
            self.timer.as_ref().is_some_and(|timer| timer.deadline() <= deadline && !timer.is_elapsed());
        is_set && self.waker.as_ref().is_some_and(|known| known.will_wake(waker))
    }
}

impl Future for LazySleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.timer.0.lock();
        if state.wakes_by(self.deadline, cx.waker()) {
            return Poll::Pending;
        }
        state.waker = Some(cx.waker().clone());
        let timer = state.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(self.deadline)));
        if self.deadline < timer.deadline() {
            timer.as_mut().reset(self.deadline);
        }
        loop {
            // Even if the task has no budget left: a timer that is not registered never fires.
            ready!(pin!(tokio::task::unconstrained(timer.as_mut())).poll(cx));
            if self.deadline <= timer.deadline() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(self.deadline);
        }
    }
}

impl Sleep for LazySleep {}

impl fmt::Debug for LazyTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyTimer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// How long a sleep takes.
    async fn sleep(timer: &LazyTimer, duration: Duration) -> Duration {
        let before = tokio::time::Instant::now();
        timer.sleep(duration).await;
        before.elapsed()
    }

    /// Cancelled sleeps leave nothing behind, whatever their deadlines were.
    #[tokio::test(start_paused = true)]
    async fn a_sleep_ends_at_its_deadline_after_others_were_cancelled() {
        let timer = LazyTimer::default();
        let secs = Duration::from_secs;
        for cancelled in [secs(3), secs(10), secs(1)] {
            tokio::select! {
                biased;
                _ = sleep(&timer, cancelled) => unreachable!("it is cancelled"),
                () = tokio::time::sleep(Duration::from_millis(500)) => {}
            }
        }
        for lasts in [secs(10), secs(2), secs(30), secs(30), Duration::ZERO, secs(1)] {
            let slack = Duration::from_millis(2);
            let took = sleep(&timer, lasts).await;
            assert!(lasts <= took && took <= lasts + slack, "{took:?} for {lasts:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_wakes_a_task_without_budget() {
        use tokio::task::coop;
        let timer = LazyTimer::default();
        let mut sleep = pin!(sleep(&timer, Duration::from_secs(1)));
        let exhausted = std::future::poll_fn(|cx| {
            while coop::has_budget_remaining() {
                let _ = pin!(coop::consume_budget()).poll(cx);
            }
            sleep.as_mut().poll(cx)
        });
        assert!(tokio::time::timeout(Duration::from_secs(60), exhausted).await.is_ok());
    }
}
