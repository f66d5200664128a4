//! What tests of exporters share: contexts and batches.

use std::sync::Arc;

use bytes::Bytes;

use crate::batch::{Batch, Encoded, Signal};
use crate::component::{Balance, Context, ExporterContext, Ledger, Shared};

/// A context without a service around it.
pub(crate) fn context(path: &str) -> Context {
    Context {
        path: path.into(),
        id: path.rsplit("::").next().unwrap_or(path).into(),
        shared: Arc::new(Shared::default()),
    }
}

/// An exporter's context with books for every signal.
pub(crate) fn exporter_context(path: &str) -> ExporterContext {
    ExporterContext {
        base: context(path),
        ledgers: std::array::from_fn(|_| Some(Arc::new(Ledger::default()))),
    }
}

/// The books of all signals.
pub(crate) fn ledgers(context: &ExporterContext) -> [Arc<Ledger>; 3] {
    std::array::from_fn(|signal| context.ledgers[signal].clone().expect("made by exporter_context"))
}

/// Waits until the books show what is asked for.
pub(crate) async fn balance_when(ledger: &Ledger, done: impl Fn(&Balance) -> bool) -> Balance {
    let look = async {
        loop {
            let balance = ledger.balance();
            if done(&balance) {
                return balance;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    let patience = std::time::Duration::from_secs(30);
    let found = tokio::time::timeout(patience, look).await;
    found.unwrap_or_else(|_| panic!("the books stay at {:?}", ledger.balance()))
}

/// Bytes that nobody looks into, as so many items.
pub(crate) fn opaque(signal: Signal, bytes: &'static [u8], items: usize) -> Batch {
    Batch::new(Encoded::one(signal, Bytes::from_static(bytes), items))
}
