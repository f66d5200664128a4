// SPDX-License-Identifier: Apache-2.0

//! Forces files to the disk on a thread of its own: a slow disk blocks no writer.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;

/// One batch of files at a time.
#[derive(Debug)]
pub(super) struct Syncer {
    files: Option<SyncSender<Vec<File>>>,
    state: Arc<SyncState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct SyncState {
    busy: AtomicBool,
    error: Mutex<Option<io::Error>>,
}

impl Syncer {
    pub(super) fn start() -> io::Result<Self> {
        let (files, received) = sync_channel(1);
        let state = Arc::<SyncState>::default();
        let for_thread = state.clone();
        let thread = std::thread::Builder::new()
            .name("storage-sync".into())
            .spawn(move || run(&received, &for_thread))?;
        Ok(Self {
            files: Some(files),
            state,
            thread: Some(thread),
        })
    }

    /// Whether it still has something to do.
    pub(super) fn is_busy(&self) -> bool {
        self.state.busy.load(SeqCst)
    }

    /// Takes files to sync. Only when it is not busy.
    pub(super) fn sync(&self, files: Vec<File>) {
        self.state.busy.store(true, SeqCst);
        if let Some(sender) = &self.files {
            // The thread ends when this does, and there is room for one.
            let _ = sender.send(files);
        }
    }

    /// The error since the last call, if any.
    pub(super) fn error(&self) -> Option<io::Error> {
        self.state.error.lock().take()
    }
}

fn run(files: &Receiver<Vec<File>>, state: &SyncState) {
    for files in files {
        if let Err(error) = files.iter().try_for_each(File::sync_data) {
            *state.error.lock() = Some(error);
        }
        state.busy.store(false, SeqCst);
    }
}

impl Drop for Syncer {
    /// Syncs all given files first.
    fn drop(&mut self) {
        self.files = None;
        if let Some(thread) = self.thread.take() {
            // It can't panic; if it did, there is nothing to do about it here.
            let _ = thread.join();
        }
    }
}
