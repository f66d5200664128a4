// SPDX-License-Identifier: Apache-2.0

//! `debug`: prints data to standard error in three levels of detail, for people at a terminal.

pub(crate) mod layout;
mod printer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::task::JoinHandle;

use crate::batch::{Batch, Signal};
use crate::component::{
    Account, ComponentError, ConfigType, Consumer, ErrorDoc, Exporter, ExporterFactory, Factory, Flow, Held,
    Ledger, Lifecycle, Reason, Refused, Stability,
};
use crate::config::{Node, Problems, WithoutEffect};
use printer::{Printer, Queued};

/// Batches that wait to be printed. Further ones are not printed.
const QUEUED: usize = 256;

crate::options! {
    /// Options of the `debug` exporter.
    pub struct DebugExporterConfig {
        /// `basic`: one line for each batch. `normal`: one line for each point, span or log record. `detailed`:
        /// all fields.
        pub verbosity: Verbosity = Verbosity::Basic,
        /// Old form of `verbosity`: `debug` is `detailed`, `info` is `normal`, and the others are `basic`.
        pub loglevel: Option<LogLevel> = None,
        /// Batches that the exporter prints of each signal in each second, before `sampling_thereafter` applies.
        pub sampling_initial: u64 = 2,
        /// Sampling after the first `sampling_initial` batches: the exporter prints every Nth batch. 0: none. All
        /// batches are counted.
        pub sampling_thereafter: u64 = 1,
    }
    accepted = OUTPUTS;
    check = DebugExporterConfig::check
}

/// Options of the Collector's exporter that can mean nothing here.
const OUTPUTS: &WithoutEffect = &[
    ("use_internal_logger", "the exporter prints to standard error"),
    ("output_paths", "the exporter prints to standard error"),
    ("sending_queue", "`debug` has a queue of its own, of 256 batches"),
];

crate::choices! {
    /// The levels that the Collector's `logging` exporter had.
    pub enum LogLevel {
        /// All fields.
        Debug = "debug",
        /// One line for each item.
        Info = "info",
        /// Item counts.
        Warn = "warn",
        /// Item counts.
        Error = "error",
    }
}

impl DebugExporterConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.loglevel.is_some() && at.get("verbosity").is_some() {
            cx.at(at.child("loglevel"))
                .help("leave it out")
                .error("can't be combined with `verbosity`");
        }
    }

    fn verbosity(&self) -> Verbosity {
        match self.loglevel {
            None => self.verbosity,
            Some(LogLevel::Debug) => Verbosity::Detailed,
            Some(LogLevel::Info) => Verbosity::Normal,
            Some(LogLevel::Warn | LogLevel::Error) => Verbosity::Basic,
        }
    }
}

crate::choices! {
    /// The amount of output.
    pub enum Verbosity {
        /// Item counts.
        Basic = "basic",
        /// One line for each item.
        Normal = "normal",
        /// All fields.
        Detailed = "detailed",
    }
}

/// The errors of `debug`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "A batch can't be decoded. The exporter drops it.",
        "can't be printed",
        "Correct the sender. The line has the cause.",
    ),
    ErrorDoc::logged(
        "The printing ends because of a bug.",
        "printing ended by a panic",
        "Report the bug, with the log.",
    ),
];

/// The factory of `debug`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "debug",
    aliases: &["logging"],
    stability: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "prints metrics, traces and logs to standard error",
    errors: &[ERRORS],
    config: ConfigType::of::<DebugExporterConfig>(),
    build: |settings, cx| {
        let config = settings.get::<DebugExporterConfig>();
        let sampler = || Mutex::new(Sampler::new(config.sampling_initial, config.sampling_thereafter));
        let (queue, unstarted) = mpsc::channel(QUEUED);
        Ok(Arc::new(Debug {
            printer: Arc::new(Printer::new(cx.base.id.clone(), config.verbosity())),
            samplers: [sampler(), sampler(), sampler()],
            ledgers: cx.ledgers,
            memory: cx.base.shared.memory.clone(),
            queue: Mutex::new(Some(queue)),
            unstarted: Mutex::new(Some(unstarted)),
            printing: Mutex::default(),
        }))
    },
};

/// Selects the batches of a second to print.
struct Sampler {
    initial: u64,
    thereafter: u64,
    /// The start of the second, and its batches so far.
    second: Option<(Instant, u64)>,
}

impl Sampler {
    const fn new(initial: u64, thereafter: u64) -> Self {
        Self {
            initial,
            thereafter,
            second: None,
        }
    }

    fn prints(&mut self, now: Instant) -> bool {
        const SECOND: Duration = Duration::from_secs(1);
        let (began, seen) = match self.second {
            Some((began, seen)) if now.duration_since(began) < SECOND => (began, seen + 1),
            _ => (now, 1),
        };
        self.second = Some((began, seen));
        let beyond = seen.saturating_sub(self.initial);
        // Nothing is a multiple of 0 but 0.
        beyond.is_multiple_of(self.thereafter)
    }
}

struct Debug {
    printer: Arc<Printer>,
    /// By `Signal as usize`.
    samplers: [Mutex<Sampler>; 3],
    ledgers: [Option<Arc<Ledger>>; 3],
    /// The account that batches and their text are on.
    memory: Arc<Account>,
    /// `None`: it has stopped.
    queue: Mutex<Option<mpsc::Sender<Queued>>>,
    /// The other end of the queue until it starts.
    unstarted: Mutex<Option<mpsc::Receiver<Queued>>>,
    printing: Mutex<Option<JoinHandle<()>>>,
}

impl Exporter for Debug {
    fn may_overlap(&self) -> bool {
        true
    }
}

#[async_trait]
impl Lifecycle for Debug {
    async fn start(&self) -> Result<(), ComponentError> {
        let queue = self.unstarted.lock().take();
        let printing = queue.map(|queue| tokio::spawn(self.printer.clone().run(queue)));
        *self.printing.lock() = printing;
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        drop(self.queue.lock().take());
        drop(self.unstarted.lock().take());
        let printing = self.printing.lock().take();
        let Some(mut printing) = printing else { return };
        if tokio::time::timeout_at(deadline.into(), &mut printing)
            .await
            .is_err()
        {
            // Pending batches count themselves. The thread that writes finishes its batch.
            printing.abort();
            let _ = printing.await;
        }
    }
}

impl Debug {
    fn queue(&self, queued: Queued) {
        let queue = self.queue.lock();
        // Batches after the stop count themselves.
        let Some(queue) = &*queue else { return };
        if let Err(TrySendError::Full(queued)) = queue.try_send(queued) {
            self.printer.skip();
            if queued.batch.is_some() {
                queued.lose(Reason::QueueFull);
            } else {
                // The items count like those of batches that the sampler skips.
                queued.leave();
            }
        }
    }
}

impl Consumer for Debug {
    fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
        Ok(())
    }

    fn consume(&self, batch: Batch, _: &mut Flow) {
        let signal = batch.signal();
        let Some(ledger) = &self.ledgers[signal as usize] else {
            return;
        };
        let items = batch.items();
        if items == 0 {
            return;
        }
        // A test can pause the clock of tokio.
        let now = tokio::time::Instant::now().into_std();
        if !self.samplers[signal as usize].lock().prints(now) {
            return ledger.leave(items);
        }
        let is_shown = self.printer.verbosity != Verbosity::Basic;
        let batch = is_shown.then_some(batch);
        let bytes = batch.as_ref().map_or(0, Batch::bytes);
        let mut held = Held::ours(self.memory.clone());
        if held.try_grow_quietly(bytes).is_err() {
            self.printer.skip();
            return ledger.drop_items(Reason::Memory, items);
        }
        held.fill_to(bytes);
        self.queue(Queued::new((signal, items), batch, held, ledger.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::{Balance, Limit};
    use crate::delivery::testing::balance_when;
    use crate::exporters::testing::{Bench, points};

    #[test]
    fn of_many_batches_in_a_second_some_are_printed() {
        let begin = Instant::now();
        let printed = |initial, thereafter, count: u64| {
            let mut sampler = Sampler::new(initial, thereafter);
            let printed = |_: &u64| sampler.prints(begin);
            (1..=count).filter(printed).collect::<Vec<_>>()
        };
        assert_eq!(printed(2, 1, 5), [1, 2, 3, 4, 5], "the default");
        assert_eq!(printed(2, 3, 9), [1, 2, 5, 8]);
        assert_eq!(printed(2, 0, 9), [1, 2]);
        let mut sampler = Sampler::new(1, 0);
        assert!(sampler.prints(begin));
        assert!(!sampler.prints(begin));
        assert!(
            sampler.prints(begin + Duration::from_secs(1)),
            "a second later it begins again"
        );
    }

    #[test]
    fn the_old_exporters_levels_are_verbosities() {
        use crate::component::testing::options;
        for (yaml, expected) in [
            ("{}", Verbosity::Basic),
            ("verbosity: Detailed", Verbosity::Detailed),
            ("loglevel: debug", Verbosity::Detailed),
            ("loglevel: info", Verbosity::Normal),
            ("loglevel: warn", Verbosity::Basic),
        ] {
            assert_eq!(
                options::<DebugExporterConfig>(yaml).unwrap().verbosity(),
                expected,
                "{yaml}"
            );
        }
        assert!(options::<DebugExporterConfig>("{loglevel: info, verbosity: basic}").is_err());
    }

    async fn started(options: &str) -> (Bench, Arc<Ledger>) {
        let bench = Bench::build(&FACTORY, options).unwrap();
        bench.exporter.start().await.unwrap();
        let ledger = bench.ledgers[Signal::Metrics as usize].clone();
        (bench, ledger)
    }

    #[tokio::test]
    async fn a_batch_is_made_and_written_after_it_was_taken() {
        let (bench, ledger) = started("{verbosity: detailed}").await;
        bench.push(points(9));
        // No other task has run on this thread since.
        let balance = ledger.balance();
        assert_eq!((balance.left, balance.held()), (0, 9));
        assert!(bench.shared.memory.reserved_bytes() > 0, "it is on the account");
        bench.stop().await;
        let balance = ledger.balance();
        assert_eq!((balance.left, balance.held()), (9, 0));
        assert_eq!(bench.shared.memory.reserved_bytes(), 0);
        bench.push(points(2));
        assert_eq!(ledger.balance().dropped[Reason::Shutdown as usize], 2);
    }

    #[tokio::test]
    async fn batches_that_the_options_leave_out_are_counted_and_not_printed() {
        let (bench, ledger) = started("{sampling_initial: 1, sampling_thereafter: 3}").await;
        // All come within one second.
        tokio::time::pause();
        for _ in 0..6 {
            bench.push(points(1));
        }
        tokio::time::resume();
        // The first, the fourth and no other batch of this second wait to be printed.
        let balance = ledger.balance();
        assert_eq!((balance.left, balance.held()), (4, 2));
        bench.stop().await;
        assert_eq!(ledger.balance().left, 6);
    }

    #[tokio::test]
    async fn a_batch_that_has_no_room_is_dropped_and_counted() {
        const LIMIT: usize = 1 << 20;
        let (bench, ledger) = started("{verbosity: detailed}").await;
        let memory = &bench.shared.memory;
        memory.add_limit(Limit::of(LIMIT));
        let lost = |balance: &Balance| balance.dropped[Reason::Memory as usize];
        memory.hold(LIMIT);
        bench.push(points(9));
        assert_eq!(lost(&ledger.balance()), 9, "no room for the batch");
        memory.release(LIMIT);
        memory.hold(LIMIT - 100_000);
        bench.push(points(500));
        balance_when(&ledger, |balance| lost(balance) == 509).await;
        memory.release(LIMIT - 100_000);
        bench.push(points(500));
        balance_when(&ledger, |balance| balance.left == 500).await;
        bench.stop().await;
        assert_eq!(memory.reserved_bytes(), 0);
    }

    #[tokio::test]
    async fn what_waits_to_be_printed_is_bounded() {
        for (options, lost) in [("{verbosity: normal}", 1), ("{}", 0)] {
            let bench = Bench::build(&FACTORY, options).unwrap();
            let ledger = &bench.ledgers[Signal::Metrics as usize];
            for _ in 0..=QUEUED {
                bench.push(points(1));
            }
            let balance = ledger.balance();
            assert_eq!(balance.dropped[Reason::QueueFull as usize], lost, "{options}");
            assert_eq!(balance.held(), QUEUED as u64, "{options}");
            // It never began.
            bench.stop().await;
            let balance = ledger.balance();
            assert_eq!(balance.dropped[Reason::Shutdown as usize], QUEUED as u64);
            assert_eq!(balance.held(), 0);
            assert_eq!(bench.shared.memory.reserved_bytes(), 0);
        }
    }
}
