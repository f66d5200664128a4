// SPDX-License-Identifier: Apache-2.0

//! Formats and writes batches one by one, outside of the runtime's threads. Standard error may be a paused terminal,
//! which blocks.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_engine::Point;
use tokio::sync::mpsc;

use super::{Verbosity, layout};
use crate::batch::{Batch, Encoded, Payload, Signal, convert, json};
use crate::component::worker::in_background;
use crate::component::{Held, Ledger, NoRoom, Reason};
use crate::delivery::ExportRequest;

/// A batch that waits to be printed. It counts itself: as dropped by the end of the gateway, if by nothing else.
pub(super) struct Queued {
    pub(super) signal: Signal,
    pub(super) items: usize,
    /// `None`: only its items are printed.
    pub(super) batch: Option<Batch>,
    /// The room of the batch.
    held: Held,
    ledger: Arc<Ledger>,
    is_counted: bool,
}

impl Queued {
    pub(super) fn new(
        (signal, items): (Signal, usize),
        batch: Option<Batch>,
        held: Held,
        ledger: Arc<Ledger>,
    ) -> Self {
        Self {
            signal,
            items,
            batch,
            held,
            ledger,
            is_counted: false,
        }
    }

    /// Counts the batch as printed.
    pub(super) fn leave(mut self) {
        self.is_counted = true;
        self.ledger.leave(self.items);
    }

    /// Counts the batch as dropped.
    pub(super) fn lose(mut self, reason: Reason) {
        self.is_counted = true;
        self.ledger.drop_items(reason, self.items);
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if !self.is_counted {
            self.ledger.drop_items(Reason::Shutdown, self.items);
        }
    }
}

/// The printed text of a batch below its first line.
enum PrintedText {
    Nothing,
    Points(Vec<Point>),
    /// JSON, of which each item is a line.
    Items(String),
    /// JSON, of which each field is a line.
    Tree(String),
}

/// The reason why the text could not be made.
#[derive(Debug, thiserror::Error)]
enum Unmade {
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error("{0}")]
    Invalid(String),
}

/// Prints batches.
pub(super) struct Printer {
    id: Arc<str>,
    pub(super) verbosity: Verbosity,
    /// Batches since the last one that was printed.
    unprinted: AtomicU64,
}

impl Printer {
    pub(super) fn new(id: Arc<str>, verbosity: Verbosity) -> Self {
        Self {
            id,
            verbosity,
            unprinted: AtomicU64::new(0),
        }
    }

    /// Prints batches until the queue closes.
    pub(super) async fn run(self: Arc<Self>, mut queue: mpsc::Receiver<Queued>) {
        /// Batches that are printed between two hops to another thread.
        const TOGETHER: usize = 16;
        let mut next = Vec::new();
        while queue.recv_many(&mut next, TOGETHER).await > 0 {
            let (printer, batches) = (self.clone(), std::mem::take(&mut next));
            let print = move || {
                for queued in batches {
                    // Each write takes the lock for itself: logs go the same way, and a terminal may be slow.
                    printer.print(queued, io::stderr);
                }
            };
            if let Err(error) = in_background(print).await {
                tracing::error!(exporter = %self.id, %error, "printing ended by a panic");
            }
        }
    }

    /// Counts a batch that is not printed. The next printed batch shows the number.
    pub(super) fn skip(&self) {
        self.unprinted.fetch_add(1, Relaxed);
    }

    /// Prints a batch to what `open` opens once all is made.
    pub(super) fn print<W: Write>(&self, mut queued: Queued, open: impl FnOnce() -> W) {
        let made = match &queued.batch {
            None => Ok(PrintedText::Nothing),
            Some(batch) => self.make(batch, &mut queued.held),
        };
        match made {
            Ok(made) => {
                // A closed terminal is not an error.
                let _ = self.write(&queued, &made, open());
                queued.leave();
            }
            Err(Unmade::NoRoom(_)) => {
                self.skip();
                queued.lose(Reason::Memory);
            }
            Err(Unmade::Invalid(why)) => {
                tracing::warn!(exporter = %self.id, why, "can't be printed");
                queued.lose(Reason::Invalid);
            }
        }
    }

    /// Makes what is printed of a batch, once there is room for it.
    fn make(&self, batch: &Batch, held: &mut Held) -> Result<PrintedText, Unmade> {
        let encoded = match &batch.payload {
            Payload::Encoded(encoded) => encoded.clone(),
            Payload::Events(_) | Payload::Points(_) => {
                let made = ExportRequest::new(batch.clone()).message_bytes();
                held.try_grow_quietly(made.saturating_add(batch.bytes()))?;
                batch.payload.encode()
            }
        };
        held.try_grow_quietly(text_bytes(&encoded))?;
        let json = || json::to_json(&encoded).map_err(|error| Unmade::Invalid(error.to_string()));
        match (self.verbosity, encoded.signal) {
            (Verbosity::Basic, _) => Ok(PrintedText::Nothing),
            (Verbosity::Normal, Signal::Metrics) => convert::points(&encoded)
                .map(PrintedText::Points)
                .map_err(|error| Unmade::Invalid(error.to_string())),
            (Verbosity::Normal, _) => json().map(PrintedText::Items),
            (Verbosity::Detailed, _) => json().map(PrintedText::Tree),
        }
    }

    fn write(&self, queued: &Queued, made: &PrintedText, to: impl Write) -> io::Result<()> {
        // A small batch is one write, so that lines of several components don't mix.
        const BUFFER_BYTES: usize = 16 << 10;
        let mut to = BufWriter::with_capacity(BUFFER_BYTES, to);
        let unprinted = self.unprinted.swap(0, Relaxed);
        if unprinted > 0 {
            let why = "there was no memory, or standard error is too slow";
            writeln!(to, "{}: {unprinted} batches were not printed: {why}", self.id)?;
        }
        writeln!(to, "{}: {} {}", self.id, queued.items, queued.signal.items())?;
        match made {
            PrintedText::Nothing => {}
            PrintedText::Points(points) => layout::points(points, &mut to)?,
            PrintedText::Items(json) => layout::items(json, &mut to)?,
            PrintedText::Tree(json) => layout::tree(json, &mut to)?,
        }
        to.flush()
    }
}

/// The bytes to write a request as JSON, or to decode it.
fn text_bytes(encoded: &Encoded) -> usize {
    ExportRequest::new(Batch::new(encoded.clone())).json_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::wire;
    use crate::component::Account;

    fn queued(signal: Signal, json: &str) -> Queued {
        let encoded = wire::check(signal, json::to_protobuf(signal, json.as_bytes()).unwrap()).unwrap();
        let items = encoded.items();
        let held = Held::ours(Arc::default());
        Queued::new((signal, items), Some(Batch::new(encoded)), held, Arc::default())
    }

    fn printed(printer: &Printer, queued: Queued) -> String {
        let mut text = Vec::new();
        let to = &mut text;
        printer.print(queued, move || to);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_verbosity_prints_its_fields() {
        let described = |signal, json, verbosity| {
            let printed = printed(&Printer::new("debug".into(), verbosity), queued(signal, json));
            let (head, body) = printed.split_once('\n').unwrap();
            assert!(head.starts_with("debug: "), "{head}");
            body.to_owned()
        };
        let metrics = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"m","gauge":{"dataPoints":[
            {"asInt":"42","attributes":[{"key":"a","value":{"stringValue":"b"}}]}]}}]}]}]}"#;
        assert_eq!(described(Signal::Metrics, metrics, Verbosity::Basic), "");
        assert_eq!(
            described(Signal::Metrics, metrics, Verbosity::Normal),
            "  m{a=b} 42\n"
        );
        assert!(described(Signal::Metrics, metrics, Verbosity::Detailed).contains("\"asInt\": \"42\""));
        let traces = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"one"},{"name":"two"}]}]}]}"#;
        let lines = described(Signal::Traces, traces, Verbosity::Normal);
        assert_eq!(lines, "  {\"name\":\"one\"}\n  {\"name\":\"two\"}\n");
    }

    #[test]
    fn text_without_memory_is_not_made_and_the_next_batch_reports_it() {
        let traces = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"one"}]}]}]}"#;
        let printer = Printer::new("debug".into(), Verbosity::Normal);
        let account = Arc::<Account>::default();
        account.set_default_limit(1);
        account.note(2);
        let mut short = queued(Signal::Traces, traces);
        short.held = Held::ours(account);
        assert_eq!(printed(&printer, short), "");
        let next = printed(&printer, queued(Signal::Traces, traces));
        assert!(next.starts_with("debug: 1 batches were not printed: "), "{next}");
    }

    #[test]
    fn batches_that_are_not_printed_are_reported_once() {
        let traces = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"one"}]}]}]}"#;
        let printer = Printer::new("debug".into(), Verbosity::Normal);
        printer.skip();
        printer.skip();
        let first = printed(&printer, queued(Signal::Traces, traces));
        assert!(
            first.starts_with("debug: 2 batches were not printed: "),
            "{first}"
        );
        let second = printed(&printer, queued(Signal::Traces, traces));
        assert_eq!(second, "debug: 1 spans\n  {\"name\":\"one\"}\n");
    }
}
