// SPDX-License-Identifier: Apache-2.0

//! Prometheus's formats by themselves: the cost of a scrape per series, first and later, and the memory of an exposed
//! series. Whole gateways that scrape and are scraped are in [`super::scrape`].

mod bare;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use tidegate::prom::model::LabelSet;
use tidegate::prom::scrape::{ScrapeDecoder, Settings, Target};
use tidegate::prom::{Format, Page, Renderer, Style};
use tidegate_engine::{
    Attributes, EventKind, Events, Grouping, Instrument, Lease, Limits, Pattern, Rule, Schema, Source,
    SourceId, Table, Values,
};

use tidegate_exposition as exposition;

use self::bare::Bare;
use super::engine::{NOW, resident_bytes, settled_bytes};
use crate::BenchError;
use crate::report::{Budget, Row};
use crate::stats::Samples;

/// Counters of one agent.
const KINDS: usize = 100;
const SIZES: [usize; 3] = [1_000, 100_000, 1_000_000];
/// The formats, with their names for readers, and the budgets of a scrape of a million series, in ns. Not all have one.
const FORMATS: [(&str, Format, exposition::Format, Option<f64>); 3] = [
    ("text", Format::Text, exposition::Format::Text, Some(50.0)),
    (
        "OpenMetrics",
        Format::OpenMetrics,
        exposition::Format::OpenMetrics,
        None,
    ),
    ("protobuf", Format::Protobuf, exposition::Format::Protobuf, None),
];
const READ_BUDGET_NS: f64 = 150.0;
const READ_RUNS: usize = 7;
const RUNS: usize = 21;
const COLD_RUNS: usize = 5;
const BYTES_A_SERIES: f64 = 350.0;
/// Series that are exposed where memory is looked at.
const EXPOSED: &str = "1000000";

pub(super) fn run(_: &Path) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for series in SIZES {
        let mut agents = Agents::new(series);
        for (name, format, read_as, budget) in FORMATS {
            let named = |what: &str| format!("scrape, {name}, {series} series: {what}");
            let first = (0..COLD_RUNS).map(|_| agents.scrape(&mut Renderer::new(format, Style::default())).0);
            rows.push(Row::median(named("the first"), Samples::new(first), "ns"));

            let mut renderer = Renderer::new(format, Style::default());
            let (_, page) = agents.scrape(&mut renderer);
            let bytes = page.body.len() as f64 / series as f64;
            let (first_read, known) = read(&page.body, read_as)?;
            let bare = (format == Format::Text).then(|| Bare::of(&page.body));
            drop(page);
            // Many short rounds of few series, so that a round is long enough to be timed.
            let rounds = 100_000usize.div_ceil(series);
            let (mut changed, mut copied) = (Vec::new(), Vec::new());
            for _ in 0..RUNS {
                let times = (0..rounds).map(|_| {
                    agents.count();
                    // The page's end belongs to it.
                    timed(|| drop(agents.scrape(&mut renderer)))
                });
                changed.push(times.sum::<f64>() / (rounds * series) as f64);
                if let Some(bare) = &bare {
                    let times = (0..rounds).map(|_| timed(|| bare.write()));
                    copied.push(times.sum::<f64>() / (rounds * series) as f64);
                }
            }
            let ratios: Vec<f64> = changed
                .iter()
                .zip(&copied)
                .map(|(scrape, copy)| scrape / copy)
                .collect();
            let row = Row::median(named("all values changed"), Samples::new(changed), "ns");
            rows.push(match budget.filter(|_| series == 1_000_000) {
                Some(budget) => row.budget(Budget::AtMost(budget)),
                None => row,
            });
            if !ratios.is_empty() {
                rows.push(Row::median(named("a bare copy"), Samples::new(copied), "ns"));
                rows.push(Row::median(named("in bare copies"), Samples::new(ratios), "x"));
            }
            let (_, page) = agents.scrape(&mut renderer);
            let same = (0..RUNS).map(|_| agents.scrape(&mut renderer).0);
            rows.push(Row::median(named("nothing changed"), Samples::new(same), "ns"));
            drop(page);
            rows.push(Row::value(named("page"), bytes, "B"));
            let named = |what: &str| format!("read, {name}, {series} series: a sample, {what}");
            rows.push(Row::value(named("the first time"), first_read, "ns"));
            let row = Row::median(named("known"), known, "ns");
            rows.push(row.budget(Budget::AtMost(READ_BUDGET_NS)));
        }
    }
    for (name, ..) in FORMATS {
        let row = Row::value(
            format!("exposed counter series, {name}, of {EXPOSED}"),
            bytes_of(name)?,
            "B",
        );
        rows.push(row.budget(Budget::AtMost(BYTES_A_SERIES)));
    }
    Ok(rows)
}

/// The memory of a series with its text, in a process that did nothing else, with enough series that the allocator's
/// own room does not matter.
fn bytes_of(format: &str) -> Result<f64, BenchError> {
    let output = Command::new(std::env::current_exe()?)
        .args(["-", "exposed", format, EXPOSED])
        .output()?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// Prints what a series takes in this process once it has been scraped, twice; see [`bytes_of`].
pub(crate) fn print_bytes(format: &str, series: usize) {
    let before = resident_bytes();
    let mut agents = Agents::new(series);
    let format = FORMATS.iter().find(|(name, ..)| *name == format);
    if let Some((_, format, ..)) = format {
        let mut renderer = Renderer::new(*format, Style::default());
        for _ in 0..2 {
            agents.count();
            agents.scrape(&mut renderer);
        }
        println!("{}", (settled_bytes() - before) / series as f64);
        drop(renderer);
    }
}

/// The time that it takes, in ns of this thread.
fn timed(what: impl FnOnce()) -> f64 {
    let begun = cpu();
    what();
    cpu() - begun
}

/// Processor time of this thread, in ns: other threads on the core are not part of the cost of a scrape.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The state that a scraping gateway has of a target whose labels stay as they are.
struct Plain;

impl Target for Plain {
    fn relabel(&mut self, _: &mut LabelSet) -> bool {
        true
    }

    fn resource(&self, _: &str, _: &str) -> Attributes {
        Attributes::default()
    }
}

/// The cost of a sample for a reader of a page, the first time and when its lines are known, in ns.
fn read(page: &[u8], format: exposition::Format) -> Result<(f64, Samples), BenchError> {
    let mut decoder = ScrapeDecoder::new(Settings::default(), Box::new(Plain));
    let mut points = Vec::new();
    let mut time = NOW;
    let mut once = || {
        time += 1_000_000_000;
        points.clear();
        let begun = cpu();
        let counts = decoder.page(format, page, time, &mut points)?;
        Ok::<_, BenchError>((cpu() - begun) / counts.samples as f64)
    };
    let first = once()?;
    let known: Vec<f64> = (0..READ_RUNS).map(|_| once()).collect::<Result<_, _>>()?;
    Ok((first, Samples::new(known)))
}

/// Agents that count, and the table that keeps what they do.
struct Agents {
    tables: [Arc<Table>; 1],
    sources: Vec<Arc<Source>>,
    schema: Arc<Schema>,
    series: usize,
    now: u64,
}

impl Agents {
    fn new(series: usize) -> Self {
        let kind = |number: usize| EventKind {
            name: format!("agent_things_{number}").into(),
            description: "What it counts".into(),
            unit: "".into(),
            instrument: Instrument::Counter,
            attributes: Attributes::default(),
        };
        let limits = Limits {
            series: usize::MAX,
            streams: usize::MAX,
            ..Limits::default()
        };
        let rule = Rule {
            grouping: Grouping::by(["agent_name", "hostname"]),
            ..Rule::new(Pattern::Glob("*".into()))
        };
        let source = |number: usize| {
            let names = [
                ("agent_name", format!("agent_{number}")),
                ("hostname", format!("node-{}", number / 8)),
            ];
            Arc::new(Source {
                id: SourceId::next(),
                resource: Arc::default(),
                scope: Arc::default(),
                attributes: names.into_iter().collect(),
                lease: Arc::new(Lease::new(Duration::from_secs(3600), NOW)),
            })
        };
        let mut agents = Self {
            tables: [Arc::new(Table::new("bench", vec![rule], limits))],
            sources: (0..series / KINDS).map(source).collect(),
            schema: Arc::new(Schema {
                kinds: (0..KINDS).map(kind).collect(),
            }),
            series,
            now: NOW,
        };
        agents.count();
        assert_eq!(agents.tables[0].len(), series, "every series is there");
        agents
    }

    /// Every counter of every agent counts something.
    fn count(&mut self) {
        self.now += 1_000_000_000;
        let mut amount = self.now;
        for source in &self.sources {
            let values = (0..KINDS).map(|_| {
                amount = amount.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                amount >> 44
            });
            self.tables[0].absorb(&Events {
                source: source.clone(),
                schema: self.schema.clone(),
                values: Values::U64(values.collect()),
                kinds: (0..KINDS as u16).collect(),
                times: None,
                weights: None,
                observed: self.now,
            });
        }
        // The series contain the absorbed values then: the absorption is not timed here.
        self.tables[0].flush_and_list_arrivals(u64::MAX, &mut |_, _| {});
    }

    /// A scrape, and what it took a series, in ns.
    fn scrape(&mut self, renderer: &mut Renderer) -> (f64, Arc<Page>) {
        let begun = cpu();
        let page = renderer.render(&self.tables, self.now);
        ((cpu() - begun) / self.series as f64, page)
    }
}
