// SPDX-License-Identifier: Apache-2.0

//! The store that all agents of this process share, made when the first agent is.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tidegate_cells::{DIRECTORY_VARIABLE, Options, Store, default_directory};

/// Series of a family: errors have twelve for each agent, so there is room for 600 agents. Further ones share a series.
const MAX_SERIES: usize = 8_192;

/// Bytes that a pipe takes whole.
const PIPE_BUF: usize = 4096;

/// How long we wait for another agent that is being made. It takes longer only if that agent does not exist any more: it was
/// in another thread when this process was forked.
const PATIENCE: Duration = Duration::from_millis(200);

static STORE: Mutex<Option<Store>> = Mutex::new(None);

/// Why there is no store, or no room in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoCells {
    /// Another thread is making it, or was when the process was forked.
    #[error("the file of this process is being made by another thread")]
    Busy,
    /// It can't be made.
    #[error("{0} ({DIRECTORY_VARIABLE})")]
    Failed(#[from] tidegate_cells::Error),
}

/// The process's store.
///
/// # Errors
/// [`NoCells`]; it can be tried again.
pub(crate) fn store() -> Result<Store, NoCells> {
    let mut store = lock().ok_or(NoCells::Busy)?;
    if let Some(store) = &*store {
        return Ok(store.clone());
    }
    let options = Options {
        max_series: MAX_SERIES,
        ..Options::default()
    };
    let made = Store::create(&default_directory()?, options)?;
    Ok(store.insert(made).clone())
}

fn lock() -> Option<MutexGuard<'static, Option<Store>>> {
    let started = Instant::now();
    loop {
        match STORE.try_lock() {
            Ok(store) => return Some(store),
            Err(TryLockError::Poisoned(store)) => return Some(PoisonError::into_inner(store)),
            Err(TryLockError::WouldBlock) if started.elapsed() > PATIENCE => return None,
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Prints a line for the operator of the agent, unless its standard error is full or closed. Not by the standard
/// library, whose lock may be one that a fork left behind.
pub(crate) fn print_line(line: fmt::Arguments<'_>) {
    let line = format!("tidegate's NIXL exporter: {line}\n");
    let stderr = rustix::stdio::stderr();
    let mut polled = [PollFd::from_borrowed_fd(stderr, PollFlags::OUT)];
    // A pipe that takes anything takes a page.
    let at_once = Timespec::default();
    if poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::OUT) {
        let _ = rustix::io::write(stderr, &line.as_bytes()[..line.len().min(PIPE_BUF)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in a child of a process that forked while another of its threads made the store.
    #[test]
    fn an_abandoned_lock_is_not_waited_for() {
        let held = STORE.lock().unwrap();
        assert!(matches!(store(), Err(NoCells::Busy)));
        drop(held);
    }
}
