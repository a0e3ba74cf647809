//! hyper's timer, with one runtime timer for each connection.
//!
//! hyper sets a timer for each request head and cancels it when the head arrives. All of them share a [`LazyTimer`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;

use crate::lazy_timer::LazyTimer;

/// The timer of one connection. Only one task may sleep on it, and only one sleep at a time is polled.
#[derive(Clone, Default)]
pub struct HyperTimer(Arc<Mutex<TimerState>>);

/// The timer, and the task that it wakes.
#[derive(Default)]
struct TimerState {
    timer: LazyTimer,
    waker: Option<Waker>,
}

/// Sleeps until a deadline.
struct HyperSleep {
    deadline: tokio::time::Instant,
    timer: HyperTimer,
}

impl Timer for HyperTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(HyperSleep { deadline: deadline.into(), timer: self.clone() })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into()
    }
}

impl TimerState {
    /// True if the runtime timer will wake this task at the deadline or before.
    fn wakes_by(&self, deadline: tokio::time::Instant, waker: &Waker) -> bool {
        self.timer.fires_by(deadline) && self.waker.as_ref().is_some_and(|known| known.will_wake(waker))
    }
}

impl Future for HyperSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.timer.0.lock();
        if state.wakes_by(self.deadline, cx.waker()) {
            return Poll::Pending;
        }
        state.waker = Some(cx.waker().clone());
        state.timer.poll_at(cx, self.deadline)
    }
}

impl Sleep for HyperSleep {}

impl fmt::Debug for HyperTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HyperTimer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    /// How long a sleep takes.
    async fn sleep(timer: &HyperTimer, duration: Duration) -> Duration {
        let before = tokio::time::Instant::now();
        timer.sleep(duration).await;
        before.elapsed()
    }

    /// Cancelled sleeps leave nothing behind, whatever their deadlines were.
    #[tokio::test(start_paused = true)]
    async fn a_sleep_ends_at_its_deadline_after_others_were_cancelled() {
        let timer = HyperTimer::default();
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
        let timer = HyperTimer::default();
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
