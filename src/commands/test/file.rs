// SPDX-License-Identifier: Apache-2.0

//! The format of a file of tests. `docs/testing.md` describes it.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::{At, Decode, Node, Ordered, Problems, Span, TypeHelp};

/// A value with its position in the file, for messages about its results.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Located<T> {
    pub(super) value: T,
    span: Span,
    path: String,
}

impl<T> Located<T> {
    /// The position, to report a problem there.
    pub(super) fn at<'a>(&self, cx: &'a mut Problems) -> At<'a> {
        cx.at_span(Some(self.span), self.path.clone())
    }

    /// The path in the file, which no other value has.
    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

impl<T: Decode> Decode for Located<T> {
    const TAKES_NULL: bool = T::TAKES_NULL;

    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let value = T::decode(node, cx)?;
        Some(Self {
            value,
            span: node.span(),
            path: node.path().to_string(),
        })
    }

    fn type_help() -> TypeHelp {
        T::type_help()
    }

    fn show(&self) -> String {
        self.value.show()
    }
}

crate::options! {
    /// A file of tests of a configuration.
    pub(super) struct TestFile {
        /// The configuration. A relative path begins at the directory of this file.
        pub(super) config: PathBuf = required,
        /// Environment variables of the configuration. It gets no others.
        pub(super) env: Ordered<String> = Ordered::default(),
        /// Overrides of single values, as `--set` of `tidegate run` takes them.
        pub(super) set: Vec<String> = Vec::new(),
        /// The tests.
        pub(super) tests: Vec<TestCase> = required,
    }
    check = TestFile::check
}

crate::options! {
    /// A test: a gateway from its start, with inputs and expectations.
    pub(super) struct TestCase {
        /// Name in the output.
        pub(super) name: String = required,
        /// Wall clock at the start, in RFC 3339.
        pub(super) start: String = "2026-01-01T00:00:00Z".to_owned(),
        /// What happens, by time.
        pub(super) input: Vec<Located<TestInput>> = Vec::new(),
        /// What must hold, by time.
        pub(super) expect: Vec<Located<Expectation>> = required,
    }
    check = TestCase::check
}

crate::options! {
    /// Something that happens: data arrives, or a process ends.
    pub(super) struct TestInput {
        /// Time since the start of the test.
        pub(super) at: Duration = Duration::ZERO,
        /// Interval at which the data comes again.
        pub(super) every: Option<Duration> = None,
        /// Last time of `every` or `down`. Unset: the last expectation.
        pub(super) until: Option<Duration> = None,
        /// How often the data comes in all.
        pub(super) times: Option<u32> = None,
        /// Receiver that gets the data. It can be omitted if the pipelines have one receiver.
        pub(super) to: Option<String> = None,
        /// Name of the process that the data comes from, for `dead`, `down` and `reset`.
        pub(super) source: String = String::new(),
        /// Attributes of the resource of `events` and `points`.
        pub(super) resource: Ordered<Node> = Ordered::default(),
        /// Attributes of the source of `events`, which all its points get.
        pub(super) source_attributes: Ordered<Node> = Ordered::default(),
        /// Single measurements, as sockets and rings bring them.
        pub(super) events: Vec<TestEvent> = Vec::new(),
        /// Points.
        pub(super) points: Vec<TestPoint> = Vec::new(),
        /// Page of a scraped target, in the text format of Prometheus.
        pub(super) text: Option<String> = None,
        /// Labels that a scraped target gets, for example `job` and `instance`.
        pub(super) labels: Ordered<String> = Ordered::default(),
        /// Request in OTLP/JSON. A time may be `now`, `now-10s` or `start`.
        pub(super) otlp: Option<Node> = None,
        /// File with such a request. A relative path begins at the directory of this file.
        pub(super) file: Option<PathBuf> = None,
        /// Whether the gateway stops and starts again, with the same storage.
        pub(super) restart: bool = false,
        /// Source that ends without notice: repeated inputs of it stop, and its lease runs out. A target leaves discovery.
        pub(super) dead: Option<String> = None,
        /// Source of `text` whose scrapes fail: `up` is 0, and its series end.
        pub(super) down: Option<String> = None,
        /// Source of events that ends and starts again as a new process.
        pub(super) reset: Option<String> = None,
    }
    check = TestInput::check
}

crate::options! {
    /// A measurement.
    pub(super) struct TestEvent {
        /// Metric name.
        pub(super) name: String = required,
        /// Meaning of the value.
        pub(super) instrument: EventInstrument = EventInstrument::Counter,
        /// Value.
        pub(super) value: f64 = 1.0,
        /// Number of equal measurements.
        pub(super) count: u32 = 1,
        /// UCUM unit.
        pub(super) unit: String = String::new(),
        /// Attributes.
        pub(super) attributes: Ordered<Node> = Ordered::default(),
    }
}

crate::choices! {
    /// The instrument of an event.
    pub(super) enum EventInstrument {
        /// Adds a non-negative amount.
        Counter = "counter",
        /// Adds an amount of either sign.
        UpDownCounter = "up_down_counter",
        /// Replaces the value.
        Gauge = "gauge",
        /// One observation of a distribution.
        Histogram = "histogram",
    }
}

crate::choices! {
    /// The type of a point.
    pub(super) enum PointType {
        /// A value as it was read.
        Gauge = "gauge",
        /// A total that only grows.
        Counter = "counter",
        /// A total that may fall.
        UpDownCounter = "up_down_counter",
        /// A growth since the last point.
        Delta = "delta",
    }
}

crate::options! {
    /// A point of a number.
    pub(super) struct TestPoint {
        /// Metric name.
        pub(super) name: String = required,
        /// Type.
        #[alias = "type"]
        pub(super) kind: PointType = PointType::Gauge,
        /// Value.
        pub(super) value: f64 = required,
        /// Growth of the value from one repetition to the next.
        pub(super) step: f64 = 0.0,
        /// UCUM unit.
        pub(super) unit: String = String::new(),
        /// Attributes.
        pub(super) attributes: Ordered<Node> = Ordered::default(),
        /// Start of the total, as time since the start of the test.
        pub(super) begun: Duration = Duration::ZERO,
        /// Age of the point: it says a time so long before its arrival.
        pub(super) late: Duration = Duration::ZERO,
    }
}

crate::options! {
    /// Something that must hold at a time, after all inputs until then.
    pub(super) struct Expectation {
        /// Time since the start of the test.
        pub(super) at: Duration = required,
        /// Exporter whose data is checked, by `points`, `items`, `contains` and `absent`.
        pub(super) exporter: Option<String> = None,
        /// Series that the exporter has got.
        pub(super) points: Vec<ExpectedPoint> = Vec::new(),
        /// Number of points, spans or log records that the exporter has got.
        pub(super) items: Option<usize> = None,
        /// Texts that its requests have, as OTLP/JSON.
        pub(super) contains: Vec<String> = Vec::new(),
        /// Of an exporter: texts that its requests lack. Of a page: beginnings that no line has.
        pub(super) absent: Vec<String> = Vec::new(),
        /// `prometheus` exporter whose page is checked, by `lines`, `exactly` and `absent`.
        pub(super) page: Option<String> = None,
        /// Lines that the page has.
        pub(super) lines: Vec<String> = Vec::new(),
        /// All lines of the page in order, without the comments.
        pub(super) exactly: Option<String> = None,
        /// Query in PromQL whose result is checked, by `value`, `series` and `empty`.
        pub(super) query: Option<String> = None,
        /// All elements of the result.
        pub(super) series: Option<Vec<ExpectedElement>> = None,
        /// Whether the result has no element.
        pub(super) empty: Option<bool> = None,
        /// Composite that is checked, by `labels`, `value`, `state` and `stale`.
        pub(super) composite: Option<String> = None,
        /// Labels of the group of the composite. Others may be there.
        pub(super) labels: Ordered<String> = Ordered::default(),
        /// Value of the only element of a query, or of the composite.
        pub(super) value: Option<f64> = None,
        /// State of the composite: `fresh`, `idle`, `stale`, `partial` or `absent`.
        pub(super) state: Option<String> = None,
        /// Whether the composite is stale.
        pub(super) stale: Option<bool> = None,
        /// Items that a component has dropped.
        pub(super) dropped: Option<ExpectedDrop> = None,
    }
    check = Expectation::check
}

crate::options! {
    /// A series of an exporter. Of cumulative series and gauges the newest point counts, of deltas the sum.
    pub(super) struct ExpectedPoint {
        /// Metric name.
        pub(super) name: String = required,
        /// Attributes of the point. Others may be there.
        pub(super) attributes: Ordered<String> = Ordered::default(),
        /// Attributes of the resource. Others may be there.
        pub(super) resource: Ordered<String> = Ordered::default(),
        /// Value of a number.
        pub(super) value: Option<f64> = None,
        /// Number of observations of a histogram or summary.
        pub(super) count: Option<u64> = None,
        /// Sum of observations.
        pub(super) sum: Option<f64> = None,
        /// `delta` or `cumulative`.
        pub(super) temporality: Option<String> = None,
        /// Whether there must be no such series.
        pub(super) absent: bool = false,
    }
}

crate::options! {
    /// An element of the result of a query.
    pub(super) struct ExpectedElement {
        /// All labels without the name.
        pub(super) labels: Ordered<String> = Ordered::default(),
        /// Value.
        pub(super) value: f64 = required,
    }
}

crate::options! {
    /// Items that a component has dropped since the last start of the gateway.
    pub(super) struct ExpectedDrop {
        /// Id of the component, or its path with section and pipeline.
        pub(super) component: String = required,
        /// Reason, as in the gateway's own metrics.
        pub(super) reason: String = required,
        /// Number of items.
        pub(super) items: u64 = required,
    }
}

impl TestFile {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.tests.is_empty() {
            cx.at(at.child("tests"))
                .error("a file without a test tests nothing");
        }
    }
}

impl TestCase {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if humantime::parse_rfc3339_weak(&self.start).is_err() {
            cx.at(at.child("start"))
                .error("expected a time such as 2026-01-01T00:00:00Z");
        }
        let Some(end) = self.expect.iter().map(|expected| expected.value.at).max() else {
            cx.at(at.child("expect"))
                .error("a test without an expectation tests nothing");
            return;
        };
        for input in &self.input {
            let options = &input.value;
            if options.at > end {
                input
                    .at(cx)
                    .error("comes after the last expectation, so that nothing tests it");
            }
            let ended = options.dead.as_ref().or(options.reset.as_ref());
            let named = ended.or(options.down.as_ref());
            if let Some(name) = named.filter(|name| !self.has_source(name)) {
                input.at(cx).error(format!("no input has `source: {name}`"));
            } else if let Some(name) = options.down.as_ref().filter(|name| !self.has_target(name)) {
                input.at(cx).error(format!(
                    "`{name}` is not a target: it needs `text`, with `job` and `instance` in its `labels`"
                ));
            }
        }
    }

    /// Whether data of a source arrives.
    fn has_source(&self, name: &str) -> bool {
        let mut inputs = self.input.iter();
        inputs.any(|input| input.value.source == name && !input.value.is_end())
    }

    /// Whether a source is a target, with the labels that each target has.
    fn has_target(&self, name: &str) -> bool {
        let of_name = self.input.iter().filter(|input| input.value.source == name);
        let mut pages = of_name.filter(|input| input.value.text.is_some());
        pages.any(|page| {
            let labels = &page.value.labels;
            labels.get("job").is_some() && labels.get("instance").is_some()
        })
    }
}

impl TestInput {
    /// Whether it ends something, instead of being data.
    fn is_end(&self) -> bool {
        self.restart || self.dead.is_some() || self.down.is_some() || self.reset.is_some()
    }

    fn check(&self, at: &Node, cx: &mut Problems) {
        let forms = [
            !self.events.is_empty(),
            !self.points.is_empty(),
            self.text.is_some(),
            self.otlp.is_some(),
            self.file.is_some(),
            self.restart,
            self.dead.is_some(),
            self.down.is_some(),
            self.reset.is_some(),
        ];
        if forms.iter().filter(|given| **given).count() != 1 {
            cx.at(at).error(
                "expected one of `events`, `points`, `text`, `otlp`, `file`, `restart`, `dead`, `down` and `reset`",
            );
        }
        if self.every.is_some_and(|every| every.is_zero()) {
            cx.at(at.child("every")).error("must be greater than zero");
        }
        if self.every.is_none() && self.down.is_none() && self.until.is_some() {
            cx.at(at.child("until")).error("needs `every` or `down`");
        }
        for option in ["every", "times"] {
            if self.down.is_some() && at.get(option).is_some() {
                cx.at(at.child(option)).error("does not go with `down`");
            }
        }
        let has_events = !self.events.is_empty();
        let needs = [
            ("labels", self.text.is_some(), "`text`"),
            ("source_attributes", has_events, "`events`"),
            (
                "resource",
                has_events || !self.points.is_empty(),
                "`events` or `points`",
            ),
        ];
        for (option, has_data, data) in needs {
            if !has_data && at.get(option).is_some() {
                cx.at(at.child(option)).error(format!("needs {data}"));
            }
        }
    }
}

/// The states of a composite.
const STATES: [&str; 5] = ["fresh", "idle", "stale", "partial", "absent"];

impl Expectation {
    fn check(&self, at: &Node, cx: &mut Problems) {
        /// The options of each subject.
        const OPTIONS: [(&str, &[&str]); 5] = [
            ("exporter", &["points", "items", "contains", "absent"]),
            ("page", &["lines", "exactly", "absent"]),
            ("query", &["value", "series", "empty"]),
            ("composite", &["labels", "value", "state", "stale"]),
            ("dropped", &[]),
        ];
        let given = OPTIONS.iter().filter(|(subject, _)| at.get(subject).is_some());
        let given: Vec<_> = given.collect();
        let [(subject, options)] = given.as_slice() else {
            cx.at(at)
                .error("expected one of `exporter`, `page`, `query`, `composite` and `dropped`");
            return;
        };
        for entry in at.as_map().unwrap_or_default() {
            let key = entry.key.as_str();
            if key != "at" && key != *subject && !options.contains(&key) {
                cx.at_key(&entry.value)
                    .error(format!("does not go with `{subject}`"));
            }
        }
        if let Some(state) = (self.state.as_deref()).filter(|state| !STATES.contains(state)) {
            let states = STATES.join(", ");
            cx.at(at.child("state"))
                .error(format!("`{state}` is not a state: expected one of {states}"));
        }
        let is_empty = !options.is_empty() && options.iter().all(|option| at.get(option).is_none());
        if is_empty {
            let options = options.join(", ");
            cx.at(at)
                .error(format!("`{subject}` needs one of these: {options}"));
        }
    }
}
