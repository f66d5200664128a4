// SPDX-License-Identifier: Apache-2.0

//! Contexts and batches that the tests of exporters share.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tracing::subscriber::DefaultGuard;

use crate::batch::{Batch, Encoded, Signal};
use crate::component::{Balance, Context, ExporterContext, Ledger, Shared};

/// A context without a service around it.
pub fn context(path: &str) -> Context {
    Context {
        path: path.into(),
        id: path.rsplit("::").next().unwrap_or(path).into(),
        shared: Arc::new(Shared::default()),
    }
}

/// An exporter's context with a ledger for every signal.
pub fn exporter_context(path: &str) -> ExporterContext {
    ExporterContext {
        replaced: Vec::new(),
        base: context(path),
        ledgers: std::array::from_fn(|_| Some(Arc::new(Ledger::default()))),
    }
}

/// The ledgers of all signals.
pub fn ledgers(context: &ExporterContext) -> [Arc<Ledger>; 3] {
    std::array::from_fn(|signal| context.ledgers[signal].clone().expect("made by exporter_context"))
}

/// Waits until the ledger's balance satisfies a condition.
pub async fn balance_when(ledger: &Ledger, done: impl Fn(&Balance) -> bool) -> Balance {
    let look = async {
        loop {
            let balance = ledger.balance();
            if done(&balance) {
                return balance;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    let patience = std::time::Duration::from_secs(60);
    let found = tokio::time::timeout(patience, look).await;
    found.unwrap_or_else(|_| panic!("the balance stays at {:?}", ledger.balance()))
}

/// Opaque bytes, with a number of items.
pub fn opaque(signal: Signal, bytes: &'static [u8], items: usize) -> Batch {
    Batch::new(Encoded::one(signal, Bytes::from_static(bytes), items))
}

/// The log of this thread while the guard lives.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Keeps what this thread logs from now on.
    pub fn capture() -> (Self, DefaultGuard) {
        let log = Self::default();
        let to = log.clone();
        let lines = tracing_subscriber::fmt().json().with_writer(move || to.clone());
        (log, tracing::subscriber::set_default(lines.finish()))
    }

    /// Level and fields of each line that begins so.
    pub fn lines(&self, message: &str) -> Vec<(String, Value)> {
        let bytes = self.0.lock().clone();
        let lines = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>();
        let lines = lines.map(|line| line.expect("a line is JSON"));
        let is_wanted = |line: &Value| {
            let said = line["fields"]["message"].as_str();
            said.is_some_and(|said| said.starts_with(message))
        };
        let shown = |line: Value| {
            let level = line["level"].as_str().unwrap_or_default().to_owned();
            (level, line["fields"].clone())
        };
        lines.filter(is_wanted).map(shown).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock();
        all.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
