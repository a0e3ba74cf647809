//! The timer of one connection, for hyper.
//!
//! hyper sets an alarm for each request's head, and calls it off when the head is there. Going to the runtime's timer each
//! time costs more than reading the head. Here one alarm is left to ring: it mostly rings early, for a head that came long ago,
//! and is then set for the one that is awaited now.
//!
//! ```text
//!   heads     ├─1─┤ ├2┤     ├────────── 3, slow ──────────
//!   awaited until   ▲1  ▲2                               ▲3
//!   rings           ●────────── set anew ────────────────●  cut off
//! ```

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;

/// The timer of one connection. Its sleeps are of one task, one at a time.
#[derive(Clone, Default)]
pub struct Alarm(Arc<Mutex<Set>>);

/// The one alarm, and who is woken by it.
#[derive(Default)]
struct Set {
    alarm: Option<Pin<Box<tokio::time::Sleep>>>,
    sleeper: Option<Waker>,
}

/// Lasts until a moment.
struct Nap {
    until: tokio::time::Instant,
    alarm: Alarm,
}

impl Timer for Alarm {
    fn sleep(&self, duration: std::time::Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Nap { until: deadline.into(), alarm: self.clone() })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into()
    }
}

impl Set {
    /// True if the alarm will wake this sleeper, at that moment or before.
    fn is_for(&self, until: tokio::time::Instant, sleeper: &Waker) -> bool {
        let alarm = self.alarm.as_ref().is_some_and(|alarm| alarm.deadline() <= until && !alarm.is_elapsed());
        alarm && self.sleeper.as_ref().is_some_and(|known| known.will_wake(sleeper))
    }
}

impl Future for Nap {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut set = self.alarm.0.lock();
        if set.is_for(self.until, cx.waker()) {
            return Poll::Pending;
        }
        set.sleeper = Some(cx.waker().clone());
        let alarm = set.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(self.until)));
        if self.until < alarm.deadline() {
            alarm.as_mut().reset(self.until);
        }
        loop {
            // Whether the task has a budget left or not: an alarm that is not set never rings.
            ready!(pin!(tokio::task::unconstrained(alarm.as_mut())).poll(cx));
            if self.until <= alarm.deadline() {
                return Poll::Ready(());
            }
            alarm.as_mut().reset(self.until);
        }
    }
}

impl Sleep for Nap {}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// How long a nap lasts.
    async fn nap(alarm: &Alarm, duration: Duration) -> Duration {
        let before = tokio::time::Instant::now();
        alarm.sleep(duration).await;
        before.elapsed()
    }

    /// Naps that are called off leave nothing behind: each lasts as long as it should, whichever was set before it.
    #[tokio::test(start_paused = true)]
    async fn every_nap_lasts_as_long_as_it_should() {
        let alarm = Alarm::default();
        let secs = Duration::from_secs;
        for called_off in [secs(3), secs(10), secs(1)] {
            tokio::select! {
                biased;
                _ = nap(&alarm, called_off) => unreachable!("it is called off"),
                () = tokio::time::sleep(Duration::from_millis(500)) => {}
            }
        }
        for lasts in [secs(10), secs(2), secs(30), secs(30), Duration::ZERO, secs(1)] {
            let slack = Duration::from_millis(2);
            let took = nap(&alarm, lasts).await;
            assert!(lasts <= took && took <= lasts + slack, "{took:?} for {lasts:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_for_a_task_that_has_used_up_its_turn() {
        use tokio::task::coop;
        let alarm = Alarm::default();
        let mut nap = pin!(nap(&alarm, Duration::from_secs(1)));
        let tired = std::future::poll_fn(|cx| {
            while coop::has_budget_remaining() {
                let _ = pin!(coop::consume_budget()).poll(cx);
            }
            nap.as_mut().poll(cx)
        });
        assert!(tokio::time::timeout(Duration::from_secs(60), tired).await.is_ok());
    }
}
