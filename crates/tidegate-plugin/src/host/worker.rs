// SPDX-License-Identifier: Apache-2.0

//! A thread of its own for every instance, and a limit on every call.
//!
//! A call can't be cancelled, so a caller that waits for it gives up and the thread stays where it is. Until the call
//! returns, the instance counts as stuck and no caller waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{timeout, timeout_at};

use super::batch::ExportBatch;
use super::{Description, Refusal};
use crate::response::Answer;

/// The target of calls on the worker's thread: a plugin, or the process that has it. The thread makes, calls and closes
/// it.
pub trait Backend {
    /// Exports a batch.
    ///
    /// # Errors
    /// The call has no answer; [`Trouble`] names the reason.
    fn export(&mut self, batch: &ExportBatch) -> Reply;
    /// Brings out what is held.
    ///
    /// # Errors
    /// The call has no answer; [`Trouble`] names the reason.
    fn flush(&mut self) -> Reply;
    /// Ends it.
    fn close(self: Box<Self>);
}

impl Backend for super::Instance {
    fn export(&mut self, batch: &ExportBatch) -> Reply {
        Ok(Self::export(self, batch))
    }

    fn flush(&mut self) -> Reply {
        Ok(Self::flush(self))
    }

    fn close(self: Box<Self>) {}
}

/// The result of a call.
pub type Reply = Result<Answer, Trouble>;

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// It overran.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// An earlier call overran and has not returned yet.
    #[error("stuck in a call for {0:?}")]
    Stuck(Duration),
    /// The process of the plugin ended in this call.
    #[error("its process ended: {0}")]
    Crashed(String),
    /// The process of the plugin is not there, and will be started again then.
    #[error("its process is down and is started again in {again:?}: {why}")]
    Down {
        /// When.
        again: Duration,
        /// Why it can't be started, or ended.
        why: String,
    },
    /// It was closed, or its thread has ended by a bug of ours.
    #[error("it is closed")]
    Closed,
}

/// A function of the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `export_batch`.
    Export,
    /// `flush`.
    Flush,
    /// `destroy`.
    Destroy,
}

impl Call {
    /// One word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::Flush => "flush",
            Self::Destroy => "destroy",
        }
    }
}

/// An event of an instance, for metrics and logs.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// A call was over in time.
    Called(Call, Duration, Reply),
    /// A call has overrun: the instance is stuck.
    Overran(Call, Duration),
    /// A call that had overrun returned: the instance can be used again.
    Returned(Call, Duration),
}

/// The receiver of these events. It may be called on any thread and must not block.
pub type Notes = Arc<dyn Fn(Note) + Send + Sync>;

/// A backend on its thread.
pub struct Worker {
    jobs: SyncSender<Job>,
    /// One permit: the right to call. It comes back when the call does, not when its caller gives up.
    free: Arc<Semaphore>,
    state: Arc<WorkerState>,
    patience: Duration,
    notes: Notes,
    next: AtomicU64,
}

struct Job {
    number: u64,
    task: Task,
    reply: oneshot::Sender<Reply>,
    permit: OwnedSemaphorePermit,
}

enum Task {
    Export(ExportBatch),
    Flush,
    Close,
}

impl Task {
    fn call(&self) -> Call {
        match self {
            Self::Export(_) => Call::Export,
            Self::Flush => Call::Flush,
            Self::Close => Call::Destroy,
        }
    }
}

#[derive(Default)]
struct WorkerState(Mutex<Option<Running>>);

/// A call that is under way.
struct Running {
    number: u64,
    call: Call,
    since: Instant,
    overran: bool,
}

impl WorkerState {
    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.lock()
    }

    /// For how long it is stuck, if it is.
    fn stuck_for(&self) -> Option<Duration> {
        let state = self.lock();
        let stuck = state.as_ref().filter(|running| running.overran);
        stuck.map(|running| running.since.elapsed())
    }

    /// Marks a call as overrun, unless it is over by now.
    fn overrun(&self, number: u64) -> Option<(Call, Duration)> {
        let mut state = self.lock();
        let running = state.as_mut().filter(|running| running.number == number)?;
        running.overran = true;
        Some((running.call, running.since.elapsed()))
    }
}

impl Worker {
    /// Starts a thread and makes the backend on it. Nothing is waited for longer than `patience`.
    ///
    /// # Errors
    /// It can't be made.
    pub async fn start<B: Backend + 'static>(
        name: &str,
        patience: Duration,
        notes: Notes,
        make: impl FnOnce() -> Result<(B, Description), Refusal> + Send + 'static,
    ) -> Result<(Self, Description), Refusal> {
        // One place: the holder of the permit finds it empty.
        let (jobs, todo) = mpsc::sync_channel::<Job>(1);
        let (told, made) = oneshot::channel();
        let state = Arc::<WorkerState>::default();
        let (worker_state, worker_notes) = (state.clone(), notes.clone());
        let work = move || match make() {
            Ok((backend, description)) => {
                // The caller may have given up; then `todo` is empty and closed.
                let _ = told.send(Ok(description));
                work(Box::new(backend), &todo, &worker_state, &worker_notes);
            }
            Err(refusal) => drop(told.send(Err(refusal))),
        };
        // The kernel shows 15 bytes of a name.
        let spawned = thread::Builder::new().name(format!("plugin {name}")).spawn(work);
        spawned.map_err(|error| Refusal::Process(format!("has no thread: {error}")))?;
        let worker = Self {
            jobs,
            free: Arc::new(Semaphore::new(1)),
            state,
            patience,
            notes,
            next: AtomicU64::new(0),
        };
        match timeout(patience, made).await {
            Ok(Ok(made)) => made.map(|description| (worker, description)),
            Ok(Err(_)) => Err(Refusal::Process("ended while it was loaded (a bug)".to_owned())),
            Err(_) => Err(Refusal::Slow { within: patience }),
        }
    }

    /// Exports a batch.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn export(&self, batch: ExportBatch) -> Reply {
        self.call(Task::Export(batch)).await
    }

    /// Has the plugin bring out what it holds.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn flush(&self) -> Reply {
        self.call(Task::Flush).await
    }

    /// Whether a call has overrun and has not returned.
    pub fn is_stuck(&self) -> bool {
        self.state.stuck_for().is_some()
    }

    /// Flushes and destroys the instance, as far as `deadline` allows; the worker abandons a call that is not over by
    /// then.
    ///
    /// # Errors
    /// The instance does not close by `deadline`, an earlier call is stuck, or the worker is closed already.
    pub async fn close(&self, deadline: Instant) -> Result<(), Trouble> {
        let closing = async {
            // A flush that fails has been noted.
            let _ = self.call(Task::Flush).await;
            self.call(Task::Close).await
        };
        match timeout_at(deadline.into(), closing).await {
            Ok(reply) => reply.map(|_| ()),
            Err(_) => Err(Trouble::TimedOut(Duration::ZERO)),
        }
    }

    async fn call(&self, task: Task) -> Reply {
        if let Some(time) = self.state.stuck_for() {
            return Err(Trouble::Stuck(time));
        }
        let permit = match timeout(self.patience, self.free.clone().acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(Trouble::Closed),
            Err(_) => return Err(Trouble::Stuck(self.patience)),
        };
        let (number, (reply, mut answer)) = (self.next.fetch_add(1, Relaxed), oneshot::channel());
        let job = Job {
            number,
            task,
            reply,
            permit,
        };
        self.jobs.try_send(job).map_err(|_| Trouble::Closed)?;
        match timeout(self.patience, &mut answer).await {
            Ok(reply) => reply.unwrap_or(Err(Trouble::Closed)),
            Err(_) => match self.state.overrun(number) {
                Some((call, time)) => {
                    (self.notes)(Note::Overran(call, time));
                    Err(Trouble::TimedOut(self.patience))
                }
                // It was over just then.
                None => answer.try_recv().unwrap_or(Err(Trouble::TimedOut(self.patience))),
            },
        }
    }
}

fn work(mut backend: Box<dyn Backend>, todo: &mpsc::Receiver<Job>, state: &WorkerState, notes: &Notes) {
    while let Ok(job) = todo.recv() {
        // The caller has gone: the batch is in other hands again.
        if job.reply.is_closed() {
            continue;
        }
        let (call, since) = (job.task.call(), Instant::now());
        *state.lock() = Some(Running {
            number: job.number,
            call,
            since,
            overran: false,
        });
        let (reply, left) = run(backend, &job.task);
        let overran = state.lock().take().is_some_and(|running| running.overran);
        notes(if overran {
            Note::Returned(call, since.elapsed())
        } else {
            Note::Called(call, since.elapsed(), reply.clone())
        });
        drop(job.permit);
        // No caller waits for the answer of a call that has overrun.
        let _ = job.reply.send(reply);
        match left {
            Some(left) => backend = left,
            None => return,
        }
    }
    backend.close();
}

fn run(mut backend: Box<dyn Backend>, task: &Task) -> (Reply, Option<Box<dyn Backend>>) {
    let reply = match task {
        Task::Export(batch) => backend.export(batch),
        Task::Flush => backend.flush(),
        Task::Close => {
            backend.close();
            return (Ok(Answer::Ok), None);
        }
    };
    (reply, Some(backend))
}
