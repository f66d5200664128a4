// SPDX-License-Identifier: Apache-2.0

//! The series that each agent publishes, and their names on a page.

use std::ops::Range;
use std::sync::{Arc, LazyLock, OnceLock};

use tidegate_engine::{AttributeValue, Attributes, Data, MergeMode, Metric, Series, Temporality};

/// The attribute with the name of the agent.
const AGENT: &str = "agent";

/// The attribute with the number of the GPU, where an agent has several.
const GPU: &str = "gpu";

/// The GPUs of each agent of this process; 1 unless it is set before the rows are used.
pub(super) static GPUS: OnceLock<usize> = OnceLock::new();

/// The bounds of the histograms.
pub(super) const BOUNDS: [f64; 3] = [0.5, 1.5, 2.5];

/// An observation for each bucket. All sums of them are exact.
pub(super) const OBSERVED: [f64; 4] = [0.25, 1.0, 2.0, 4.0];

/// The name of the counter that each update of an agent raises by 1.
const UPDATES: &str = "sim_updates";

/// How a series holds its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    /// A counter of whole numbers.
    Whole,
    /// A counter of doubles: a count times this unit.
    Double(f64),
    Histogram,
    /// A value that may fall.
    Gauge(MergeMode),
}

/// A series of each agent.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    /// The number of its GPU, if there are several.
    gpu: Option<usize>,
    pub(super) form: Form,
    /// Whether the agent is an attribute: no other agent has the series.
    pub(super) is_own: bool,
    /// Its counts among those of all rows. A histogram has one for each bucket, and a gauge has its value there.
    pub(super) cells: Range<usize>,
}

/// All rows.
pub(super) static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| rows(*GPUS.get_or_init(|| 1)));

/// The row of the counter of updates, of the first GPU.
pub(super) static UPDATES_ROW: LazyLock<usize> = LazyLock::new(|| {
    ROWS.iter()
        .position(|row| row.name == UPDATES)
        .unwrap_or_default()
});

fn rows(gpus: usize) -> Vec<Row> {
    // Sums of tenths are not exact: replicas must add them up in one order.
    let kinds = [
        (40, "whole", Form::Whole, false),
        (8, "quarter", Form::Double(0.25), false),
        (4, "tenth", Form::Double(0.1), false),
        (9, "own", Form::Whole, true),
        (2, "seconds", Form::Histogram, false),
        (2, "level", Form::Gauge(MergeMode::Level), false),
        (1, "largest", Form::Gauge(MergeMode::Max), false),
        (1, "smallest", Form::Gauge(MergeMode::Min), false),
        (2, "newest", Form::Gauge(MergeMode::Last), true),
    ];
    let of_gpu = |gpu: usize| {
        let many = kinds.into_iter().flat_map(|(count, name, form, is_own)| {
            (0..count).map(move |at| (format!("sim_{name}_{at}"), form, is_own))
        });
        let gpu = (gpus > 1).then_some(gpu);
        many.chain([(UPDATES.to_owned(), Form::Whole, true)])
            .map(move |(name, form, is_own)| (name, form, is_own, gpu))
    };
    let mut end = 0;
    (0..gpus)
        .flat_map(of_gpu)
        .map(|(name, form, is_own, gpu)| {
            let begin = end;
            end += if form == Form::Histogram {
                OBSERVED.len()
            } else {
                1
            };
            Row {
                name,
                gpu,
                form,
                is_own,
                cells: begin..end,
            }
        })
        .collect()
}

/// The number of counts of all rows.
pub(super) fn cells() -> usize {
    ROWS.last().map_or(0, |row| row.cells.end)
}

impl Row {
    pub(super) fn is_gauge(&self) -> bool {
        matches!(self.form, Form::Gauge(_))
    }

    pub(super) fn mode(&self) -> MergeMode {
        match self.form {
            Form::Gauge(mode) => mode,
            _ => MergeMode::Add,
        }
    }

    /// The series of an agent.
    pub(super) fn series(&self, agent: &str) -> Series {
        let temporality = Temporality::Cumulative;
        let data = match self.form {
            Form::Whole | Form::Double(_) => Data::Sum {
                monotonic: true,
                temporality,
            },
            Form::Histogram => Data::Histogram { temporality },
            Form::Gauge(MergeMode::Level) => Data::Sum {
                monotonic: false,
                temporality,
            },
            Form::Gauge(_) => Data::Gauge,
        };
        let agent = self
            .is_own
            .then(|| (AGENT.into(), AttributeValue::Str(agent.into())));
        let gpu = self
            .gpu
            .map(|gpu| (GPU.into(), AttributeValue::Str(gpu.to_string().into())));
        let attributes = Attributes::new(agent.into_iter().chain(gpu).collect());
        let metric = Metric {
            name: self.name.as_str().into(),
            description: "".into(),
            unit: "".into(),
            data,
            metadata: Attributes::default(),
        };
        Series {
            resource: Arc::default(),
            scope: Arc::default(),
            metric: Arc::new(metric),
            attributes,
        }
    }

    /// The samples of a page that show the series, for these counts of its cells.
    pub(super) fn samples(&self, agent: &str, counts: &[u64]) -> Vec<(String, f64)> {
        let name = &self.name;
        let agent = self.is_own.then(|| format!("{AGENT}=\"{agent}\""));
        let labels = agent
            .into_iter()
            .chain(self.gpu.map(|gpu| format!("{GPU}=\"{gpu}\"")));
        let labels = labels.collect::<Vec<_>>().join(",");
        let braced = match labels.as_str() {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        let count = counts.first().copied().unwrap_or_default() as f64;
        match self.form {
            Form::Whole => vec![(format!("{name}_total{braced}"), count)],
            Form::Double(unit) => vec![(format!("{name}_total{braced}"), count * unit)],
            Form::Gauge(_) => vec![(format!("{name}{braced}"), count)],
            Form::Histogram => histogram_samples(name, &labels, counts),
        }
    }
}

/// Samples of a histogram; `labels` come before the bound.
fn histogram_samples(name: &str, labels: &str, counts: &[u64]) -> Vec<(String, f64)> {
    let (before, braced) = match labels {
        "" => (String::new(), String::new()),
        labels => (format!("{labels},"), format!("{{{labels}}}")),
    };
    let bounds = BOUNDS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
    let (mut count, mut sum) = (0, 0.0);
    let mut samples = Vec::new();
    for ((bound, observed), times) in bounds.zip(OBSERVED).zip(counts) {
        count += times;
        sum += observed * *times as f64;
        samples.push((format!("{name}_bucket{{{before}le=\"{bound}\"}}"), count as f64));
    }
    samples.push((format!("{name}_sum{braced}"), sum));
    samples.push((format!("{name}_count{braced}"), count as f64));
    samples
}

/// The sample of the counter of updates of an agent. Of several GPUs it is that of the first.
pub(super) fn updates_sample(agent: &str) -> String {
    let row = &ROWS[*UPDATES_ROW];
    row.samples(agent, &[0]).swap_remove(0).0
}

/// Whether a sample belongs to a counter or a histogram.
pub(super) fn is_total(sample: &str) -> bool {
    let name = sample.split('{').next().unwrap_or_default();
    ["_total", "_bucket", "_sum", "_count"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// Whether the sum of the sample depends on the order of its terms.
pub(super) fn is_inexact(sample: &str) -> bool {
    sample.starts_with("sim_tenth_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_has_70_series_with_separate_cells() {
        assert_eq!(ROWS.len(), 70);
        assert!(
            ROWS.windows(2)
                .all(|pair| pair[0].cells.end == pair[1].cells.start)
        );
        assert_eq!(ROWS[*UPDATES_ROW].name, UPDATES);
    }

    #[test]
    fn each_gpu_has_all_series() {
        let rows = rows(8);
        assert_eq!(rows.len(), 560);
        let own = rows.iter().rfind(|row| row.is_own).unwrap();
        assert_eq!(
            own.samples("a", &[1])[0].0,
            "sim_updates_total{agent=\"a\",gpu=\"7\"}"
        );
        let histogram = rows.iter().find(|row| row.form == Form::Histogram).unwrap();
        let names = histogram
            .samples("a", &[1, 0, 0, 0])
            .into_iter()
            .map(|(name, _)| name);
        let names: Vec<_> = names.collect();
        assert_eq!(names[0], "sim_seconds_0_bucket{gpu=\"0\",le=\"0.5\"}");
        assert_eq!(names[5], "sim_seconds_0_count{gpu=\"0\"}");
    }

    #[test]
    fn buckets_of_a_page_count_all_smaller_observations() {
        let samples = histogram_samples("h", "", &[1, 0, 2, 1]);
        let values: Vec<f64> = samples.iter().map(|(_, value)| *value).collect();
        assert_eq!(samples[0].0, "h_bucket{le=\"0.5\"}");
        assert_eq!(values, [1.0, 1.0, 3.0, 4.0, 8.25, 4.0]);
    }
}
