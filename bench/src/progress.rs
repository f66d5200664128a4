// SPDX-License-Identifier: Apache-2.0

//! A line on standard error every 10 s while a task runs, so that users know that it goes on, and when it ends.
//!
//! A task may begin another one in its thread: then only the innermost prints.
//!
//! A thread sleeps between the lines: a measurement has one wake-up in 10 s beside it. This file is a module of
//! `cargo xtask`, too.

use std::cell::Cell;
use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Between two lines.
const INTERVAL: Duration = Duration::from_secs(10);

thread_local! {
    /// Of the innermost task that this thread has begun: whether a task within it prints instead.
    static INNERMOST: Cell<Option<Arc<AtomicBool>>> = const { Cell::new(None) };
}

/// A task that takes longer than a few seconds.
pub(crate) struct LongTask {
    name: String,
    /// Its number among the steps of a command, and how many steps there are.
    step: Option<(usize, usize)>,
    expected: Option<Duration>,
}

/// Prints lines until it is dropped.
#[must_use = "the lines end when it is dropped"]
pub(crate) struct TaskProgress {
    stop: Option<SyncSender<Infallible>>,
    thread: Option<JoinHandle<()>>,
    /// Of the task around it: whether that one prints nothing now.
    outer: Option<Arc<AtomicBool>>,
}

impl LongTask {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            step: None,
            expected: None,
        }
    }

    /// The task is the step with this number, of so many. The first has number 1.
    pub(crate) fn step(self, number: usize, steps: usize) -> Self {
        Self {
            step: Some((number, steps)),
            ..self
        }
    }

    /// The task takes about this time.
    pub(crate) fn expected(self, time: Duration) -> Self {
        Self {
            expected: Some(time),
            ..self
        }
    }

    /// Begins to print lines. `so_far` is asked for each: it gives the items that are done, or nothing.
    pub(crate) fn begin(self, so_far: impl Fn() -> String + Send + 'static) -> TaskProgress {
        self.begin_with(INTERVAL, so_far, |line| {
            // Without standard error, the task goes on.
            let _ = writeln!(io::stderr(), "{line}");
        })
    }

    fn begin_with(
        self,
        interval: Duration,
        so_far: impl Fn() -> String + Send + 'static,
        print: impl Fn(&str) + Send + 'static,
    ) -> TaskProgress {
        let (stop, stopped) = mpsc::sync_channel(0);
        let is_covered = Arc::new(AtomicBool::new(false));
        let outer = INNERMOST.replace(Some(is_covered.clone()));
        if let Some(outer) = &outer {
            outer.store(true, Ordering::Relaxed);
        }
        let begun = Instant::now();
        let thread = thread::spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(interval) {
                if !is_covered.load(Ordering::Relaxed) {
                    print(&self.line(begun.elapsed(), &so_far()));
                }
            }
        });
        TaskProgress {
            stop: Some(stop),
            thread: Some(thread),
            outer,
        }
    }

    fn line(&self, elapsed: Duration, so_far: &str) -> String {
        let mut line = self.name.clone();
        if let Some((number, steps)) = self.step {
            line += &format!(" (step {number} of {steps})");
        }
        line += &format!(": {}", in_words(elapsed));
        if let Some(expected) = self.expected {
            line += &format!(" of about {}", in_words(expected));
        }
        if !so_far.is_empty() {
            line += &format!(", {so_far}");
        }
        line
    }
}

impl Drop for TaskProgress {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there costs lines, not results.
            let _ = thread.join();
        }
        if let Some(outer) = &self.outer {
            outer.store(false, Ordering::Relaxed);
        }
        INNERMOST.set(self.outer.take());
    }
}

/// `40 s`, `2 min 5 s`, `1 h 10 min`.
fn in_words(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, 0) => format!("{minutes} min"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_line_has_step_times_and_items() {
        let seconds = Duration::from_secs;
        let task = LongTask::new("soak");
        assert_eq!(task.line(seconds(10), ""), "soak: 10 s");
        let task = task.step(2, 3);
        assert_eq!(task.line(seconds(60), ""), "soak (step 2 of 3): 1 min");
        let task = task.expected(seconds(4_210));
        let line = task.line(Duration::from_millis(124_600), "7 events");
        assert_eq!(
            line,
            "soak (step 2 of 3): 2 min 5 s of about 1 h 10 min, 7 events"
        );
    }

    #[test]
    fn a_task_prints_lines_until_its_end() {
        let (sender, lines) = mpsc::sync_channel(64);
        let asked = AtomicUsize::new(0);
        let so_far = move || format!("{} items", asked.fetch_add(1, Ordering::Relaxed));
        let print = move |line: &str| {
            let _ = sender.try_send(line.to_owned());
        };
        let progress = LongTask::new("fuzz").begin_with(Duration::from_millis(1), so_far, print);
        for number in 0..3 {
            let line = lines.recv().expect("the thread prints");
            // On a busy machine, the first line may come late.
            assert!(line.starts_with("fuzz: "), "{line}");
            assert!(line.ends_with(&format!(" s, {number} items")), "{line}");
        }
        drop(progress);
        // The thread has ended, or the sender would be open, and this would not end.
        assert!(lines.iter().all(|line| line.starts_with("fuzz: ")));
    }

    #[test]
    fn only_the_innermost_task_prints_lines() {
        let begin = |name: &str| {
            let (sender, lines) = mpsc::sync_channel(1024);
            let print = move |line: &str| {
                let _ = sender.try_send(line.to_owned());
            };
            let progress = LongTask::new(name).begin_with(Duration::from_millis(1), String::new, print);
            (progress, lines)
        };
        let (outer, of_outer) = begin("test");
        let (inner, of_inner) = begin("build");
        // Those from before. One more may be under way.
        let _before = of_outer.try_iter().count();
        for _ in 0..20 {
            of_inner.recv().expect("the thread prints");
        }
        assert!(of_outer.try_iter().count() <= 1);
        drop(inner);
        for _ in 0..2 {
            of_outer.recv().expect("the thread prints again");
        }
        drop(outer);
    }

    #[test]
    fn a_task_that_ends_early_prints_nothing() {
        let (sender, lines) = mpsc::sync_channel(64);
        let begun = Instant::now();
        let progress = LongTask::new("build").begin(move || {
            let _ = sender.try_send(());
            String::new()
        });
        drop(progress);
        assert_eq!(lines.iter().count(), 0);
        assert!(begun.elapsed() < INTERVAL, "the end waits for no line");
    }
}
