// SPDX-License-Identifier: Apache-2.0

//! The timer and its handler: the unsafe part.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime};

use crate::Profile;

/// Processor time between two samples.
const PERIOD: Duration = Duration::from_millis(10);

/// Samples of one profile: ten minutes of one processor.
const ROOM: usize = 1 << 16;

static SAMPLES: [AtomicUsize; ROOM] = [const { AtomicUsize::new(0) }; ROOM];
static NEXT: AtomicUsize = AtomicUsize::new(0);
static IS_SAMPLING: AtomicBool = AtomicBool::new(false);

/// Why sampling did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is one timer a process.
    #[error("another profile is in progress: try again after its end")]
    Busy,
    /// A library uses the signal.
    #[error("another library of this process handles SIGPROF: stop its profiler, and try again")]
    Taken,
    /// The system refuses.
    #[error("can't set the profiling timer: {0}")]
    System(#[from] io::Error),
}

/// Sampling that is under way. It ends when dropped.
#[derive(Debug)]
pub struct Sampling {
    started: SystemTime,
    since: Instant,
}

impl Sampling {
    /// Starts to sample.
    ///
    /// # Errors
    /// `Busy`: another profile is in progress. `Taken`: a library handles SIGPROF.
    /// `System`: the system refuses the handler or the timer.
    pub fn start() -> Result<Self, StartError> {
        if IS_SAMPLING.swap(true, SeqCst) {
            return Err(StartError::Busy);
        }
        SAMPLES.iter().for_each(|sample| sample.store(0, Relaxed));
        NEXT.store(0, SeqCst);
        let sampling = Self {
            started: SystemTime::now(),
            since: Instant::now(),
        };
        // From here on a failure drops `sampling`, which lets the next one start.
        handle()?;
        set_timer(PERIOD)?;
        Ok(sampling)
    }

    /// Ends it.
    pub fn stop(self) -> Profile {
        // It fails only for arguments that are wrong.
        let _ = set_timer(Duration::ZERO);
        let taken = NEXT.load(SeqCst);
        let mut samples = BTreeMap::new();
        for sample in &SAMPLES[..taken.min(ROOM)] {
            // One that is being written at this moment is still 0.
            let address = sample.load(Relaxed);
            if address != 0 {
                *samples.entry(address).or_default() += 1;
            }
        }
        Profile {
            samples,
            dropped: taken.saturating_sub(ROOM) as u64,
            period: PERIOD,
            started: self.started,
            duration: self.since.elapsed(),
        }
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        let _ = set_timer(Duration::ZERO);
        IS_SAMPLING.store(false, SeqCst);
    }
}

/// Installs the handler. It stays: a signal that comes after the timer has stopped must not end the process.
fn handle() -> Result<(), StartError> {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = sample;
    let ours = handler as *const () as libc::sighandler_t;
    // SAFETY: a zeroed sigaction is valid; the kernel writes `before` and reads `action`, both live. The handler is
    // async-signal-safe: it reads its context and stores to statics.
    unsafe {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        if libc::sigaction(libc::SIGPROF, null(), &raw mut before) != 0 {
            return Err(io::Error::last_os_error().into());
        }
        let free = [libc::SIG_DFL, libc::SIG_IGN, ours];
        if !free.contains(&before.sa_sigaction) {
            return Err(StartError::Taken);
        }
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = ours;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGPROF, &raw const action, null_mut()) != 0 {
            return Err(io::Error::last_os_error().into());
        }
    }
    Ok(())
}

fn set_timer(period: Duration) -> io::Result<()> {
    let interval = libc::timeval {
        tv_sec: 0,
        tv_usec: period.subsec_micros().into(),
    };
    let timer = libc::itimerval {
        it_interval: interval,
        it_value: interval,
    };
    // SAFETY: the kernel reads `timer`, which is live.
    match unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Async-signal-safe: nothing but atomic operations on statics.
extern "C" fn sample(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    if context.is_null() || !IS_SAMPLING.load(Relaxed) {
        return;
    }
    // SAFETY: the kernel passes a ucontext to a handler with SA_SIGINFO.
    let address = unsafe { interrupted(&*context.cast::<libc::ucontext_t>()) };
    if let Some(sample) = SAMPLES.get(NEXT.fetch_add(1, Relaxed)) {
        sample.store(address, Relaxed);
    }
}

/// The address of the instruction that was interrupted.
#[cfg(target_arch = "x86_64")]
fn interrupted(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

/// The address of the instruction that was interrupted.
#[cfg(target_arch = "aarch64")]
fn interrupted(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.pc as usize
}
