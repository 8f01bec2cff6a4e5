//! Independent pieces of work on several threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Calls `work` for 0..count on `threads` threads; results in order. `tick` is given how many have ended.
///
/// # Panics
/// Where `work` does.
pub fn parallel<T: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
    tick: impl Fn(usize) + Sync,
) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        return;
                    }
                    let result = work(i);
                    results.lock().unwrap_or_else(PoisonError::into_inner).insert(i, result);
                    tick(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// [`parallel`] of work that can fail: after an error no further item is begun.
///
/// # Errors
/// The first error by the items' order.
///
/// # Panics
/// Where `work` does.
pub fn try_parallel<T: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> anyhow::Result<T> + Sync,
    tick: impl Fn(usize) + Sync,
) -> anyhow::Result<Vec<T>> {
    let failed = AtomicBool::new(false);
    let until_error = |i| {
        (!failed.load(Ordering::Relaxed)).then(|| {
            let result = work(i);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        })
    };
    // An item is left out only where another is an error.
    parallel(count, threads, until_error, tick).into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_an_error_stops_the_rest() {
        let ticked = AtomicUsize::new(0);
        let tick = |done| {
            ticked.fetch_max(done, Ordering::Relaxed);
        };
        assert_eq!(parallel(5, 3, |i| i * i, tick), [0, 1, 4, 9, 16]);
        assert!(parallel(0, 3, |i| i, |_| ()).is_empty());
        assert_eq!(ticked.load(Ordering::Relaxed), 5);
        let begun = AtomicUsize::new(0);
        let even = |i| {
            begun.fetch_add(1, Ordering::Relaxed);
            anyhow::ensure!(i != 2, "item {i}");
            Ok(i)
        };
        assert_eq!(try_parallel(2, 2, even, |_| ()).unwrap(), [0, 1]);
        let error = try_parallel(100, 1, even, |_| ()).unwrap_err();
        assert_eq!((error.to_string().as_str(), begun.into_inner()), ("item 2", 5));
    }
}
