//! tidegate's own metrics at one moment: one list of families, whoever it is for (the page, the push).

use std::fmt::Write;

/// Samples of one name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Family {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) samples: Vec<Sample>,
}

/// What kind of metric it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

/// Labels and a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) labels: Vec<(String, String)>,
    pub(super) value: f64,
}

impl Family {
    pub(super) fn counter(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Counter)
    }

    pub(super) fn gauge(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Gauge)
    }

    fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self {
            name: name.into(),
            kind,
            samples: Vec::new(),
        }
    }

    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        self.samples.push(Sample {
            labels: labels.iter().map(owned).collect(),
            value,
        });
    }
}

/// Text exposition 0.0.4 of names that are ours and label values that may be anything.
pub(super) fn text(families: &[Family]) -> String {
    let mut page = String::new();
    for family in families {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a string can't fail.
        let _ = writeln!(page, "# TYPE {} {kind}", family.name);
        for sample in &family.samples {
            let labels: Vec<_> = sample
                .labels
                .iter()
                .map(|(key, value)| format!("{key}=\"{}\"", escaped(value)))
                .collect();
            let labels = match labels.is_empty() {
                true => String::new(),
                false => format!("{{{}}}", labels.join(",")),
            };
            let _ = writeln!(page, "{}{labels} {}", family.name, sample.value);
        }
    }
    page
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// The families of a page as `metrics-exporter-prometheus` renders it: the recorder gives out its values as text only.
pub(super) fn parse(page: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in page.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            families.extend(match declared.split_once(' ') {
                Some((name, "counter")) => Some(Family::counter(name)),
                Some((name, "gauge")) => Some(Family::gauge(name)),
                _ => None,
            });
        } else if let (Some(family), Some(sample)) = (families.last_mut(), parse_sample(line)) {
            let (name, sample) = sample;
            if name == family.name {
                family.samples.push(sample);
            }
        }
    }
    families
}

/// `name{key="value",...} 1`, or without labels.
fn parse_sample(line: &str) -> Option<(&str, Sample)> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let Some((name, mut rest)) = series.split_once('{') else {
        let labels = Vec::new();
        return Some((series, Sample { labels, value }));
    };
    let mut labels = Vec::new();
    while let Some((key, behind)) = rest.split_once("=\"") {
        let (text, behind) = unescape(behind)?;
        labels.push((key.trim_start_matches(',').to_owned(), text));
        rest = behind;
    }
    Some((name, Sample { labels, value }))
}

/// A label value up to its closing quote, and what follows.
fn unescape(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rendered_is_parsed_back() {
        let mut plain = Family::counter("a_total");
        plain.sample(&[], 3.0);
        let mut odd = Family::gauge("b");
        odd.sample(&[("path", "x=\"y\",\\z\n{}"), ("other", "")], 0.5);
        odd.sample(&[("path", " ")], -2.0);
        let families = vec![plain, odd];
        assert_eq!(parse(&text(&families)), families);
    }

    #[test]
    fn the_recorder_is_understood() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("c_total", "ring" => "a\"b\\c", "kind" => "x,y").increment(7);
            metrics::gauge!("g").set(0.25);
        });
        let mut families = parse(&recorder.handle().render());
        families.sort_by(|a, b| a.name.cmp(&b.name));
        let mut counter = Family::counter("c_total");
        counter.sample(&[("ring", "a\"b\\c"), ("kind", "x,y")], 7.0);
        let mut gauge = Family::gauge("g");
        gauge.sample(&[], 0.25);
        assert_eq!(families, [counter, gauge]);
    }
}
