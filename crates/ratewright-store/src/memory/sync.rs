//! The memory store's only lock, in one place, so that tests can replace it with shuttle's, which controls the order of threads.

#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::{Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(crate) use chosen::{Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
mod chosen {
    pub(crate) use shuttle::sync::MutexGuard;

    /// A lock with the interface of parking_lot and the scheduler of shuttle.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no test panics while it holds the lock")
        }
    }
}
