// SPDX-License-Identifier: Apache-2.0

//! The metadata of a trigger.
//!
//! A single value has a target: `composite: queue_depth` with `labels: model=m`, or `query: PROMQL`. `target:
//! "10"` is the desired value of one replica. Several signals are `signals: queue_depth/10,
//! kv_usage{model=m}/0.8`. The value is then the largest of them, each divided by its own target, and the target
//! is 1.
//!
//! `activation` (default 0) is the value to exceed before there are replicas. `combine` merges several groups of a
//! composite, or several elements of a query: `sum`, `max`, `min` or `avg`.
//!
//! `onPartial: error` refuses a value that lacks some of its sources, or a part of its window. `use` accepts it.
//! Without either, a value is refused only if it lacks living series because others have their name and labels.
//! `whenGone: inactive` allows scale to zero when every scrape target has left discovery.

use std::collections::{BTreeSet, HashMap};

use tidegate_promql::Query;
use tonic::Status;

use crate::extensions::admin::api::Partial;
use crate::watch::{Filter, MAX_LABELS};

/// The most signals of a trigger.
const MAX_SIGNALS: usize = 64;

/// The most bytes of the keys and values of a trigger. A stream keeps them.
const MAX_BYTES: usize = 16 << 10;

/// The memory for following a composite.
const FOLLOW_BYTES: usize = 1 << 10;

pub(super) struct Trigger {
    pub(super) signals: Vec<Signal>,
    pub(super) target: f64,
    activation: f64,
    pub(super) metric_name: String,
    /// Whether a value is used that lacks something; `None`: it depends on what.
    uses_partial: Option<bool>,
    /// Whether there should be no replicas once every target has left discovery.
    pub(super) ends_when_gone: bool,
}

pub(super) struct Signal {
    pub(super) value: SignalSource,
    divisor: f64,
    combine: Option<Combine>,
    name: String,
}

pub(super) enum SignalSource {
    Query(String),
    Composite(String, Filter),
}

#[derive(Clone, Copy)]
enum Combine {
    Sum,
    Max,
    Min,
    Avg,
}

/// The known keys of the metadata; `scalerAddress` and the like are KEDA's own.
const KNOWN: [&str; 10] = [
    "composite",
    "query",
    "signals",
    "labels",
    "target",
    "activation",
    "combine",
    "metricName",
    "onPartial",
    "whenGone",
];
const OF_KEDA: [&str; 7] = [
    "scalerAddress",
    "tlsCertFile",
    "caCert",
    "tlsClientCert",
    "tlsClientKey",
    "unsafeSsl",
    "enableTLS",
];

fn wrong(why: impl Into<String>) -> Status {
    Status::invalid_argument(why.into())
}

fn number(metadata: &HashMap<String, String>, key: &str) -> Result<Option<f64>, Status> {
    let read = |text: &String| {
        let number: Option<f64> = text.trim().parse().ok();
        number
            .filter(|number| number.is_finite())
            .ok_or_else(|| wrong(format!("{key}: `{text}` is not a number")))
    };
    metadata.get(key).map(read).transpose()
}

/// Checks a number to divide by. By a number below the normal ones, most quotients are infinite.
fn check_target(target: f64) -> Result<f64, String> {
    if target.is_normal() && target > 0.0 {
        return Ok(target);
    }
    let least = f64::MIN_POSITIVE;
    Err(format!("must be greater than zero, and at least {least:e}"))
}

/// Whether the metadata has the second of two words; `None`: neither is given.
fn is_second(
    metadata: &HashMap<String, String>,
    key: &str,
    words: [&str; 2],
) -> Result<Option<bool>, Status> {
    match metadata.get(key).map(|word| word.trim()) {
        None | Some("") => Ok(None),
        Some(word) if word == words[0] => Ok(Some(false)),
        Some(word) if word == words[1] => Ok(Some(true)),
        Some(word) => Err(wrong(format!(
            "{key}: `{word}` is neither {} nor {}",
            words[0], words[1]
        ))),
    }
}

impl Trigger {
    pub(super) fn parse(metadata: &HashMap<String, String>) -> Result<Self, Status> {
        let unknown = metadata
            .keys()
            .find(|key| !KNOWN.contains(&&***key) && !OF_KEDA.contains(&&***key));
        if let Some(unknown) = unknown {
            return Err(wrong(format!(
                "`{unknown}` is not known; there are: {}",
                KNOWN.join(", ")
            )));
        }
        let combine = metadata
            .get("combine")
            .map(|word| Combine::parse(word))
            .transpose()?;
        let target = number(metadata, "target")?;
        let target = target.map(check_target).transpose();
        let target = target.map_err(|why| wrong(format!("target: {why}")))?;
        let text = |key: &str| {
            metadata
                .get(key)
                .map(|text| text.trim())
                .filter(|text| !text.is_empty())
        };
        let terms = text("signals").map(split).unwrap_or_default();
        if terms.len() > MAX_SIGNALS {
            return Err(wrong(format!("signals: at most {MAX_SIGNALS} are allowed")));
        }
        let known = metadata.iter().filter(|(key, _)| KNOWN.contains(&&***key));
        let bytes: usize = known.map(|(key, value)| key.len() + value.len()).sum();
        if bytes > MAX_BYTES {
            return Err(wrong(format!(
                "the metadata has {bytes} bytes; at most {MAX_BYTES} are allowed"
            )));
        }
        let (signals, target) = match (text("composite"), text("query"), text("signals")) {
            (Some(composite), None, None) => {
                let wants = Filter::parse(text("labels").into_iter().flat_map(|all| all.split(',')));
                let value = SignalSource::Composite(composite.to_owned(), wants.map_err(wrong)?);
                (vec![Signal::new(value, 1.0, combine)], target)
            }
            (None, Some(query), None) => {
                Query::parse(query).map_err(|error| wrong(format!("query: {error}")))?;
                (
                    vec![Signal::new(SignalSource::Query(query.to_owned()), 1.0, combine)],
                    target,
                )
            }
            (None, None, Some(_)) => {
                let terms = terms.into_iter();
                let signals: Result<Vec<_>, _> = terms.map(|term| Signal::parse(term, combine)).collect();
                (signals?, Some(target.unwrap_or(1.0)))
            }
            _ => {
                return Err(wrong(
                    "exactly one of `composite`, `query` and `signals` must be given",
                ));
            }
        };
        let labels: usize = signals.iter().map(Signal::labels).sum();
        if labels > MAX_LABELS {
            return Err(wrong(format!(
                "signals: at most {MAX_LABELS} labels are allowed in all of them"
            )));
        }
        let names: Vec<&str> = signals.iter().map(|signal| &*signal.name).collect();
        let metric_name = text("metricName").map_or_else(|| names.join("-"), str::to_owned);
        Ok(Self {
            target: target.ok_or_else(|| wrong("`target` is missing: the value for each replica"))?,
            activation: number(metadata, "activation")?.unwrap_or(0.0),
            metric_name,
            signals,
            uses_partial: is_second(metadata, "onPartial", ["error", "use"])?,
            ends_when_gone: is_second(metadata, "whenGone", ["error", "inactive"])?.unwrap_or(false),
        })
    }

    pub(super) fn is_active(&self, value: f64) -> bool {
        value > self.activation
    }

    /// The reason why an incomplete value is refused; `None`: it is accepted.
    pub(super) fn refusal(&self, partial: &Partial) -> Option<String> {
        let is_used = self.uses_partial.unwrap_or(match partial {
            Partial::Collision(_) => false,
            Partial::Sources(_) => true,
        });
        if is_used {
            return None;
        }
        let cure = match (partial, self.uses_partial) {
            (Partial::Collision(_), None) => " (`onPartial: use` takes the value all the same)",
            _ => "",
        };
        Some(format!("{}{cure}", partial.why()))
    }

    /// The composites whose changes need a new value. None if the trigger also has a query.
    pub(super) fn followed(&self) -> BTreeSet<&str> {
        let mut signals = self.signals.iter();
        if signals.any(|signal| matches!(signal.value, SignalSource::Query(_))) {
            return BTreeSet::new();
        }
        self.composites()
    }

    /// The composites of all signals, each of them once.
    pub(super) fn composites(&self) -> BTreeSet<&str> {
        let names = self.signals.iter().filter_map(|signal| match &signal.value {
            SignalSource::Composite(name, _) => Some(&**name),
            SignalSource::Query(_) => None,
        });
        names.collect()
    }

    /// The memory of the trigger and of a stream that follows its composites, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let signals: usize = self.signals.iter().map(Signal::bytes).sum();
        signals + self.metric_name.len() + self.followed().len() * FOLLOW_BYTES
    }
}

/// At commas that are not between braces. One more than the most shows that there are too many.
fn split(signals: &str) -> Vec<&str> {
    let mut depth = 0;
    let at_comma = |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    };
    let terms = signals.split(at_comma).take(MAX_SIGNALS + 1);
    terms.map(str::trim).collect()
}

impl Signal {
    fn new(value: SignalSource, divisor: f64, combine: Option<Combine>) -> Self {
        let name = match &value {
            SignalSource::Composite(name, _) => name.clone(),
            SignalSource::Query(_) => "query".to_owned(),
        };
        Self {
            value,
            divisor,
            combine,
            name,
        }
    }

    fn labels(&self) -> usize {
        match &self.value {
            SignalSource::Composite(_, wants) => wants.labels(),
            SignalSource::Query(_) => 0,
        }
    }

    fn bytes(&self) -> usize {
        let value = match &self.value {
            SignalSource::Composite(name, wants) => name.len() + wants.bytes(),
            SignalSource::Query(query) => query.len(),
        };
        size_of::<Self>() + self.name.len() + value
    }

    /// `COMPOSITE/TARGET` or `COMPOSITE{KEY=VALUE,...}/TARGET`.
    fn parse(term: &str, combine: Option<Combine>) -> Result<Self, Status> {
        let form = || {
            wrong(format!(
                "signals: `{term}` is not COMPOSITE/TARGET or COMPOSITE{{KEY=VALUE}}/TARGET"
            ))
        };
        let (what, target) = term.rsplit_once('/').ok_or_else(form)?;
        let divisor: f64 = target.trim().parse().map_err(|_| form())?;
        let divisor =
            check_target(divisor).map_err(|why| wrong(format!("signals: `{term}`: the target {why}")))?;
        let (name, labels) = match what.trim().split_once('{') {
            None => (what.trim(), ""),
            Some((name, rest)) => (name.trim(), rest.strip_suffix('}').ok_or_else(form)?),
        };
        if name.is_empty() {
            return Err(form());
        }
        let labels = labels.split(',').filter(|label| !label.trim().is_empty());
        let wants = Filter::parse(labels).map_err(wrong)?;
        Ok(Self::new(
            SignalSource::Composite(name.to_owned(), wants),
            divisor,
            combine,
        ))
    }

    /// One number of those that there are, in proportion to the target.
    pub(super) fn combine(&self, values: &[f64]) -> Result<f64, Status> {
        let combined = match (values, self.combine) {
            ([], _) => None,
            ([one], _) => Some(*one),
            (_, None) => {
                return Err(Status::failed_precondition(format!(
                    "`{}` has {} values: select one by labels, or set `combine`",
                    self.name,
                    values.len()
                )));
            }
            (_, Some(Combine::Sum)) => Some(values.iter().sum()),
            (_, Some(Combine::Avg)) => Some(values.iter().sum::<f64>() / values.len() as f64),
            (_, Some(Combine::Max)) => values.iter().copied().reduce(f64::max),
            (_, Some(Combine::Min)) => values.iter().copied().reduce(f64::min),
        };
        let value = combined
            .filter(|value| value.is_finite())
            .ok_or_else(|| Status::failed_precondition(format!("`{}` has no value", self.name)))?;
        let proportion = value / self.divisor;
        if !proportion.is_finite() {
            return Err(Status::failed_precondition(format!(
                "`{}` is {value:e}, which is too large for the target {:e}",
                self.name, self.divisor
            )));
        }
        Ok(proportion)
    }
}

impl Combine {
    fn parse(word: &str) -> Result<Self, Status> {
        match word {
            "sum" => Ok(Self::Sum),
            "max" => Ok(Self::Max),
            "min" => Ok(Self::Min),
            "avg" => Ok(Self::Avg),
            _ => Err(wrong(format!(
                "combine: `{word}` is not one of sum, max, min, avg"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extensions::admin::queues::FREE_BYTES;

    fn parse(pairs: &[(&str, &str)]) -> Result<Trigger, String> {
        let metadata = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Trigger::parse(&metadata.collect()).map_err(|status| status.message().to_owned())
    }

    #[test]
    fn a_trigger_with_some_composites_needs_no_reservation() {
        let bytes = |composites: usize| {
            let signals: Vec<_> = (0..composites)
                .map(|number| format!("composite_{number}/1"))
                .collect();
            let signals = signals.join(",");
            parse(&[("signals", signals.as_str())]).unwrap().bytes()
        };
        assert!(bytes(8) > 8 << 10);
        assert!(bytes(16) <= FREE_BYTES);
        assert!(bytes(64) > FREE_BYTES);
    }

    #[test]
    fn several_signals_have_a_target_each() {
        let signals = "queue_depth/10, kv_usage{model=m, pool=a}/0.8";
        let trigger = parse(&[("signals", signals), ("scalerAddress", "x:1")]).unwrap();
        assert_eq!(
            (trigger.target, &*trigger.metric_name),
            (1.0, "queue_depth-kv_usage")
        );
        let divisors: Vec<f64> = trigger.signals.iter().map(|signal| signal.divisor).collect();
        assert_eq!(divisors, [10.0, 0.8]);
        assert!(trigger.is_active(0.01) && !trigger.is_active(0.0));
        assert!(!trigger.ends_when_gone, "by default");
        let trigger = parse(&[("signals", signals), ("whenGone", "inactive")]).unwrap();
        assert!(trigger.ends_when_gone);
    }

    #[test]
    fn a_collision_is_an_error_and_partial_values_count_by_default() {
        let used = |on_partial: &str| {
            let trigger = parse(&[("composite", "a"), ("target", "1"), ("onPartial", on_partial)]).unwrap();
            let parts = [
                Partial::Collision("c".to_owned()),
                Partial::Sources("s".to_owned()),
            ];
            parts.map(|partial| trigger.refusal(&partial))
        };
        assert_eq!(used("use"), [None, None]);
        assert_eq!(used("error"), [Some("c".to_owned()), Some("s".to_owned())]);
        let cure = "c (`onPartial: use` takes the value all the same)";
        assert_eq!(used(""), [Some(cure.to_owned()), None]);
    }

    #[test]
    fn mistakes_are_named() {
        let why = |pairs: &[(&str, &str)]| parse(pairs).err().unwrap();
        assert!(why(&[("composite", "a")]).contains("`target` is missing"));
        for target in ["0", "-1", "1e-320"] {
            let of_one = why(&[("composite", "a"), ("target", target)]);
            let of_signal = why(&[("signals", &*format!("a/1, b/{target}"))]);
            for why in [of_one, of_signal] {
                assert!(
                    why.contains("greater than zero, and at least 2.2"),
                    "{target}: {why}"
                );
            }
        }
        assert!(why(&[("signals", "a/inf")]).contains("greater than zero"));
        assert!(why(&[("composite", "a"), ("query", "b"), ("target", "1")]).contains("exactly one"));
        assert!(why(&[("query", "sum(")]).contains("query:"));
        let with = |pair| why(&[("composite", "a"), ("target", "1"), pair]);
        assert!(with(("onPartial", "yes")).contains("neither error nor use"));
        assert!(with(("whenGone", "zero")).contains("neither error nor inactive"));
        assert!(why(&[("signals", "a")]).contains("COMPOSITE/TARGET"));
        assert!(why(&[("threshold", "1")]).contains("`threshold` is not known"));
        assert!(why(&[("composite", "a"), ("target", "1"), ("combine", "mean")]).contains("not one of sum"));
    }

    #[test]
    fn signals_labels_and_text_are_bounded() {
        let of = |signals: &str| parse(&[("signals", signals)]);
        let composites = |signals: &str| of(signals).unwrap().composites().len();
        let most = vec!["a{model=m}/1"; MAX_SIGNALS].join(",");
        assert_eq!(composites(&most), 1, "each composite once");
        assert_eq!(composites("a/1, b/1, a/2"), 2);
        let many = vec!["a/1"; 15_000].join(",");
        assert_eq!(of(&many).err().unwrap(), "signals: at most 64 are allowed");
        let labels = |labels: usize| vec!["k=v"; labels].join(",");
        let two = |first: usize| format!("a{{{}}}/1, a{{{}}}/1", labels(first), labels(32));
        assert!(of(&two(32)).is_ok());
        let why = of(&two(33)).err().unwrap();
        assert_eq!(why, "signals: at most 64 labels are allowed in all of them");
        let one = |given: usize| parse(&[("composite", "a"), ("target", "1"), ("labels", &*labels(given))]);
        assert!(one(64).unwrap().bytes() > one(1).unwrap().bytes());
        assert_eq!(one(65).err().unwrap(), "at most 64 labels are allowed");
        let long = "x".repeat(MAX_BYTES);
        for key in ["metricName", "query", "labels", "composite"] {
            let why = parse(&[("target", "1"), (key, &*long)]).err().unwrap();
            assert!(why.contains("at most 16384 are allowed"), "{key}: {why}");
        }
        // KEDA's own keys are not kept.
        let trigger = parse(&[("composite", "a"), ("target", "1"), ("caCert", &*long)]);
        assert!(trigger.unwrap().bytes() < MAX_BYTES);
    }

    #[test]
    fn a_quotient_that_is_not_finite_is_no_value() {
        let of = |signals: &str| parse(&[("signals", signals)]).unwrap().signals.remove(0);
        assert_eq!(of("a/4").combine(&[2.0]).unwrap(), 0.5);
        let status = of("a/1e-300").combine(&[1e300]).unwrap_err();
        assert_eq!(
            status.message(),
            "`a` is 1e300, which is too large for the target 1e-300"
        );
    }

    #[test]
    fn several_values_need_a_way_to_combine_them() {
        let of = |pairs: &[(&str, &str)]| parse(pairs).unwrap().signals.remove(0);
        let plain = of(&[("composite", "a"), ("target", "1")]);
        assert!(plain.combine(&[1.0, 2.0]).is_err() && plain.combine(&[]).is_err());
        assert!(plain.combine(&[f64::NAN]).is_err());
        for (word, expected) in [("sum", 6.0), ("avg", 2.0), ("max", 3.0), ("min", 1.0)] {
            let signal = of(&[("composite", "a"), ("target", "1"), ("combine", word)]);
            assert_eq!(signal.combine(&[1.0, 2.0, 3.0]).unwrap(), expected);
        }
    }
}
