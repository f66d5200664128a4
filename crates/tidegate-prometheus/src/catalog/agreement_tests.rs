// SPDX-License-Identifier: Apache-2.0

//! A page and a query of one moment show the same, whatever series do and whichever looks first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use tidegate_engine::{
    Attributes, Data, ExponentialHistogram, Histogram, Limits, Rule, Table, Temporality, UnixNanos, Value,
};
use tidegate_promql::{Instant, NAME, Query, SampleValue};

use super::testing::point;
use super::{Exposes, Senders, View, millis};
use crate::Style;
use crate::format::Format;
use crate::render::Renderer;
use tidegate_pipeline::component::testing::context;

const SECOND: u64 = 1_000_000_000;
const START: UnixNanos = 1_700_000_000 * SECOND;

/// Processes that report under one name and the same labels.
const RIVALS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A process sends some of its series.
    Push {
        rival: usize,
        series: u8,
    },
    /// It counts from 0 again.
    Restart(usize),
    /// It is replaced by a process of another version.
    Upgrade(usize),
    /// It says that one of its series has ended.
    End {
        rival: usize,
        series: u8,
    },
    /// Nothing happens for a number of seconds, and no reader looks.
    Sleep(u64),
    /// All live senders push for a number of seconds, every five seconds.
    Run(u64),
    /// A table goes with all of its series, and an empty one takes its place.
    Reload(usize),
    /// Only one of the readers looks.
    Page,
    Query,
    /// Both look, the page first or last.
    Both {
        is_page_first: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let rival = 0..RIVALS;
    prop_oneof![
        6 => (rival.clone(), 1u8..16).prop_map(|(rival, series)| Step::Push { rival, series }),
        1 => rival.clone().prop_map(Step::Restart),
        2 => rival.clone().prop_map(Step::Upgrade),
        1 => (rival, 0u8..4).prop_map(|(rival, series)| Step::End { rival, series }),
        3 => prop_oneof![1u64..10, 80u64..100, 290u64..320, 500u64..700].prop_map(Step::Sleep),
        1 => (5u64..60).prop_map(Step::Run),
        1 => (0..2usize).prop_map(Step::Reload),
        1 => Just(Step::Page),
        1 => Just(Step::Query),
        4 => any::<bool>().prop_map(|is_page_first| Step::Both { is_page_first }),
    ]
}

struct Rival {
    version: usize,
    start: UnixNanos,
    value: u64,
}

struct Gateway {
    view: Arc<View>,
    renderer: Renderer,
    tables: Vec<Arc<Table>>,
    exporter: Arc<Exporter>,
    rivals: Vec<Rival>,
    versions: usize,
    now: UnixNanos,
}

struct Exporter {
    own: Arc<Table>,
    live: Mutex<Vec<Arc<Table>>>,
}

impl Exposes for Exporter {
    fn live(&self) -> Vec<Arc<Table>> {
        self.live.lock().clone()
    }

    fn own(&self) -> &Arc<Table> {
        &self.own
    }
}

/// The lines of a page or an answer: name and labels, and the value.
type Lines = BTreeMap<String, String>;

fn table(name: &str) -> Arc<Table> {
    Arc::new(Table::new(name, vec![Rule::newest()], Limits::default()))
}

impl Gateway {
    fn new() -> Self {
        let shared = context("extensions", "admin").shared;
        let view = View::of(&shared);
        let tables = vec![
            table("aggregate/one"),
            table("aggregate/two"),
            table("prometheus"),
        ];
        let exporter = Arc::new(Exporter {
            own: tables[2].clone(),
            live: Mutex::new(tables[..2].to_vec()),
        });
        view.expose("prometheus".into(), Style::default(), exporter.clone());
        let rival = |version| Rival {
            version,
            start: START - SECOND,
            value: 0,
        };
        Self {
            view,
            renderer: Renderer::new(Format::Text, Style::default()).sharing(Senders::of(&shared)),
            tables,
            exporter,
            rivals: (0..RIVALS).map(rival).collect(),
            versions: RIVALS,
            now: START,
        }
    }

    fn send(&mut self, rival: usize, series: u8, has_ended: bool) {
        let sender = &mut self.rivals[rival];
        sender.value += 1;
        let resource: Attributes = [
            ("service.name", "shop".to_owned()),
            ("service.version", format!("v{}", sender.version)),
        ]
        .into_iter()
        .collect();
        let temporality = Temporality::Cumulative;
        let bounds = [1.0, 10.0 + rival as f64];
        let value = sender.value as i64 * 10 + rival as i64;
        let (name, data, value) = match series {
            0 => ("level", Data::Gauge, Value::Int(value)),
            1 => (
                "req",
                Data::Sum {
                    monotonic: true,
                    temporality,
                },
                Value::Int(value),
            ),
            2 if sender.version % 2 == 1 => (
                "wait",
                Data::ExponentialHistogram { temporality },
                Value::ExponentialHistogram(Box::new(ExponentialHistogram {
                    count: sender.value,
                    sum: Some(value as f64),
                    zero_count: sender.value,
                    ..ExponentialHistogram::default()
                })),
            ),
            2 => (
                "wait",
                Data::Histogram { temporality },
                Value::Histogram(Box::new(Histogram {
                    count: 3 + sender.value,
                    sum: Some(value as f64),
                    bounds: bounds.to_vec().into(),
                    counts: vec![1, 2, sender.value],
                    ..Histogram::default()
                })),
            ),
            _ => ("depth", Data::Gauge, Value::Int(value)),
        };
        let value = if has_ended { Value::NoRecordedValue } else { value };
        let of = (resource, Attributes::default());
        let point = point(name, data, of, (sender.start, self.now), value);
        self.tables[rival].observe(&point, self.now);
    }

    fn push(&mut self, rival: usize, series: u8) {
        for number in (0..4).filter(|number| series & (1 << number) != 0) {
            self.send(rival, number, false);
        }
    }

    fn sleep(&mut self, seconds: u64) {
        self.now += seconds * SECOND;
        self.tables.iter().for_each(|table| table.expire(self.now));
    }

    fn page(&mut self) -> Lines {
        let page = self.renderer.render(&self.tables, self.now);
        let text = String::from_utf8(page.body.to_vec()).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let lines = lines.map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels.trim_end_matches('}').split(',');
            let labels: BTreeSet<&str> = labels.filter(|label| !label.ends_with("=\"\"")).collect();
            (
                name.to_owned() + " " + &Vec::from_iter(labels).join(","),
                value.to_owned(),
            )
        });
        lines.collect()
    }

    fn query(&self) -> Lines {
        let query = Query::parse("{__name__=~\".+\"}").unwrap();
        let asked = self.view.ask(self.now, &query.selections());
        let Instant::Vector(vector) = query.instant(&asked, millis(self.now)).unwrap() else {
            panic!("no vector");
        };
        let line = |(labels, value): (tidegate_promql::Labels, SampleValue)| {
            let others = labels.iter().filter(|(label, _)| ***label != *NAME);
            let others: BTreeSet<String> = others
                .map(|(label, value)| format!("{label}=\"{value}\""))
                .collect();
            let series = labels.get(NAME).to_owned() + " " + &Vec::from_iter(others).join(",");
            // A page of text has no native histograms.
            Some((series, value.float()?.to_string()))
        };
        vector.into_iter().filter_map(line).collect()
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Push { rival, series } => self.push(rival, series),
            Step::Restart(rival) => (self.rivals[rival].start, self.rivals[rival].value) = (self.now, 0),
            Step::Upgrade(rival) => {
                let version = self.versions;
                self.versions += 1;
                let start = self.now;
                self.rivals[rival] = Rival {
                    version,
                    start,
                    value: 0,
                };
                self.now += SECOND;
                self.push(rival, 15);
            }
            Step::End { rival, series } => self.send(rival, series, true),
            Step::Sleep(seconds) => self.sleep(seconds),
            Step::Run(seconds) => {
                for _ in 0..seconds / 5 {
                    (0..RIVALS).for_each(|rival| self.push(rival, 15));
                    self.sleep(5);
                    self.renderer.register_series(&self.tables, self.now);
                }
            }
            Step::Reload(at) => {
                self.tables[at] = table("aggregate/other");
                *self.exporter.live.lock() = self.tables[..2].to_vec();
            }
            Step::Page => _ = self.page(),
            Step::Query => _ = self.query(),
            Step::Both { is_page_first } => self.compare(is_page_first)?,
        }
        Ok(())
    }

    fn compare(&mut self, is_page_first: bool) -> Result<(), TestCaseError> {
        let (page, query) = if is_page_first {
            (self.page(), self.query())
        } else {
            let query = self.query();
            (self.page(), query)
        };
        prop_assert_eq!(page, query, "page and query, {:?} s", (self.now - START) / SECOND);
        Ok(())
    }
}

proptest! {
    #[test]
    fn a_page_and_a_query_of_one_moment_show_the_same(
        steps in prop::collection::vec(step(), 1..40),
        is_page_first in any::<bool>(),
    ) {
        let mut gateway = Gateway::new();
        for step in steps {
            gateway.take(step)?;
        }
        gateway.compare(is_page_first)?;
    }
}

/// The number of a source may be given to another one in the look in which it goes.
#[test]
fn a_table_that_takes_the_number_of_another_keeps_no_place_of_it() {
    let mut gateway = Gateway::new();
    gateway.send(0, 0, false);
    gateway.send(1, 0, false);
    assert_eq!(gateway.page()["level job=\"shop\""], "10");
    gateway.take(Step::Reload(0)).unwrap();
    gateway.send(0, 3, false);
    gateway.now += SECOND;
    for _ in 0..2 {
        assert_eq!(gateway.page()["level job=\"shop\""], "11");
        gateway.compare(false).unwrap();
    }
}

/// An explicit histogram has fewer names than the exponential one before it.
#[test]
fn a_histogram_of_another_kind_leaves_no_name_behind() {
    let mut gateway = Gateway::new();
    for (rival, pause) in [(1, 100), (0, 250), (0, 350), (1, 5), (1, 0)] {
        gateway.send(rival, 2, false);
        gateway.compare(false).unwrap();
        gateway.sleep(pause);
        assert!(
            pause > 300 || gateway.query().contains_key("wait_count job=\"shop\""),
            "{pause}"
        );
    }
}
