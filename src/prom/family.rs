//! Families of an exposition: each name has one type, and no sample name belongs to two of them.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate_engine::{Data, Metric, Temporality};

use super::format::{Format, OPENMETRICS_NAME};
use super::labels::escape;
use super::name::{Kind, Naming};

/// All samples of one name and type.
pub(super) struct Family {
    pub(super) name: String,
    /// Who sent the first series.
    owner: Arc<str>,
    /// As a TYPE line says it.
    pub(super) kind: &'static str,
    /// HELP and TYPE.
    pub(super) header: String,
    /// The sample lines of this scrape.
    pub(super) body: String,
    /// Series that have a place here.
    pub(super) live: usize,
}

/// The families that have series, and the names that are taken.
pub(super) struct Families {
    format: Format,
    naming: Naming,
    list: Vec<Family>,
    /// Places in `list` that can be used again.
    free: Vec<usize>,
    /// Family by name.
    names: HashMap<String, usize, RandomState>,
    /// Which family owns a sample name: `x_sum` belongs to the histogram `x`, no gauge may take it.
    sample_names: HashMap<String, usize, RandomState>,
}

impl Families {
    pub(super) fn new(format: Format, naming: Naming) -> Self {
        Self {
            format,
            naming,
            list: Vec::new(),
            free: Vec::new(),
            names: HashMap::default(),
            sample_names: HashMap::default(),
        }
    }

    /// Empties the bodies.
    pub(super) fn begin(&mut self) {
        self.list.iter_mut().for_each(|family| family.body.clear());
    }

    /// Those that have samples, by name.
    pub(super) fn in_order(&self) -> Vec<&Family> {
        let mut order: Vec<_> = self
            .list
            .iter()
            .filter(|family| !family.body.is_empty())
            .collect();
        order.sort_by(|a, b| a.name.cmp(&b.name));
        order
    }

    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut Family> {
        self.list.get_mut(place)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// The place of a metric's family, made when it is new. `Err` where the name is taken by another type.
    pub(super) fn of(&mut self, owner: &Arc<str>, metric: &Metric) -> Result<usize, String> {
        let (kind, type_word) = kinds(metric.data)?;
        let own_name = metric
            .metadata
            .get(OPENMETRICS_NAME)
            .filter(|_| self.format == Format::OpenMetrics);
        let raw = own_name.and_then(|name| name.as_str()).unwrap_or(&metric.name);
        let full = self.naming.metric(raw, &metric.unit, kind);
        let full = full.ok_or("nothing of its name can be exposed")?;
        let name = match (self.format, kind) {
            // The family's name is without the suffix, the sample's has it whatever the naming says.
            (Format::OpenMetrics, Kind::Counter) => full.strip_suffix("_total").unwrap_or(&full).to_owned(),
            _ => full,
        };
        if let Some(index) = self.names.get(&name) {
            let family = self.list.get(*index).ok_or("its family is gone")?;
            return match family.kind == type_word {
                true => Ok(*index),
                false => Err(format!(
                    "the name `{name}` is a {} of {} already",
                    family.kind, family.owner
                )),
            };
        }
        self.open(owner, name, type_word, &metric.description)
    }

    fn open(
        &mut self,
        owner: &Arc<str>,
        name: String,
        kind: &'static str,
        help: &str,
    ) -> Result<usize, String> {
        let samples = sample_names(self.format, &name, kind);
        for sample in &samples {
            let taken = self
                .sample_names
                .get(sample)
                .and_then(|index| self.list.get(*index));
            if let Some(taken) = taken {
                return Err(format!(
                    "`{sample}` belongs to the {} `{}` of {}",
                    taken.kind, taken.name, taken.owner
                ));
            }
        }
        let index = self.free.pop().unwrap_or(self.list.len());
        for sample in samples {
            self.sample_names.insert(sample, index);
        }
        self.names.insert(name.clone(), index);
        let family = Family {
            header: header(self.format, &name, kind, help),
            name,
            owner: owner.clone(),
            kind,
            body: String::new(),
            live: 0,
        };
        match self.list.get_mut(index) {
            Some(place) => *place = family,
            None => self.list.push(family),
        }
        Ok(index)
    }

    /// Gives up the names of families without series.
    pub(super) fn forget(&mut self) {
        let (list, free) = (&self.list, &mut self.free);
        let is_alive = |index: &usize| list.get(*index).is_some_and(|family| family.live > 0);
        self.names.retain(|_, index| {
            let keep = is_alive(index);
            if !keep {
                free.push(*index);
            }
            keep
        });
        self.sample_names.retain(|_, index| is_alive(index));
    }
}

fn header(format: Format, name: &str, kind: &str, help: &str) -> String {
    let mut header = String::new();
    if !help.is_empty() {
        header.push_str("# HELP ");
        header.push_str(name);
        header.push(' ');
        push_help(&mut header, format, help);
        header.push('\n');
    }
    header.push_str(&format!("# TYPE {name} {kind}\n"));
    header
}

fn push_help(header: &mut String, format: Format, help: &str) {
    match format {
        Format::Text => header.push_str(&help.replace('\\', "\\\\").replace('\n', "\\n")),
        Format::OpenMetrics => escape(header, help),
    }
}

/// A point's kind as a name sees it and as a TYPE line says it. Sums and histograms of tables are cumulative.
pub(super) fn kinds(data: Data) -> Result<(Kind, &'static str), String> {
    match data {
        Data::Gauge => Ok((Kind::Gauge, "gauge")),
        Data::Sum {
            temporality: Temporality::Unspecified,
            ..
        } => Err("its temporality is unspecified".to_owned()),
        Data::Sum { monotonic: true, .. } => Ok((Kind::Counter, "counter")),
        Data::Sum { monotonic: false, .. } => Ok((Kind::UpDownCounter, "gauge")),
        Data::Histogram { .. } | Data::ExponentialHistogram { .. } => Ok((Kind::Distribution, "histogram")),
        Data::Summary => Ok((Kind::Distribution, "summary")),
    }
}

/// All sample names that a family of this type may write, its own name included.
fn sample_names(format: Format, name: &str, kind: &str) -> Vec<String> {
    let suffixes: &[&str] = match (format, kind) {
        (Format::OpenMetrics, "counter") => &["", "_total", "_created"],
        (_, "histogram") => &["", "_bucket", "_sum", "_count"],
        (_, "summary") => &["", "_sum", "_count"],
        _ => &[""],
    };
    suffixes.iter().map(|suffix| format!("{name}{suffix}")).collect()
}
