//! From readings of tables to an exposition that is never invalid: one family a name, one sample an identity.
//!
//! What a series looks like (family, label text) is worked out once, when it is first seen, and kept; a scrape
//! copies that text and formats the number. A series that would break the exposition is refused whole, counted,
//! and named with the series whose place it wanted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate_engine::{Data, Reading, Series, Temporality, Value};

use super::labels::{Labels, escape, instance, job, text};
use super::name::{Kind, Naming};
use super::number::{push_f64, push_i64};
use super::samples::push_samples;

/// Metadata key under which a metric may name its OpenMetrics family: there a counter `x_total` has the family `x`,
/// so a gauge `x` beside it needs another name.
pub const OPENMETRICS_NAME: &str = "tidegate.openmetrics_name";

/// Scrapes after which the text of a series that is no longer read is forgotten.
const FORGET_AFTER: u64 = 8;

/// Which text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The content type of an answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What is the same for every series.
#[derive(Clone, Debug, Default)]
pub struct Style {
    /// How names are made.
    pub naming: Naming,
    /// Labels on everything (already escaped where needed by `Labels`).
    pub const_labels: Vec<(String, String)>,
    /// Resource attributes become labels of every series.
    pub resource_to_labels: bool,
    /// Leave `otel_scope_*` out.
    pub without_scope: bool,
    /// Write timestamps.
    pub timestamps: bool,
}

/// A series that can't be exposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The metric that is left out.
    pub metric: Arc<str>,
    /// Who sends it.
    pub owner: Arc<str>,
    /// Why, with the owner of what it collides with.
    pub why: String,
}

/// Renders scrapes in one format.
pub struct Renderer {
    format: Format,
    style: Style,
    scrape: u64,
    families: Vec<Family>,
    /// Places in `families` that can be used again.
    free: Vec<usize>,
    /// Family by name.
    names: HashMap<String, usize, RandomState>,
    /// Which family owns a sample name: `x_sum` belongs to the histogram `x`, no gauge may take it.
    sample_names: HashMap<String, usize, RandomState>,
    /// Text by series, keyed by the address that the entry itself keeps alive.
    texts: HashMap<usize, SeriesText, RandomState>,
    identities: HashMap<(usize, Arc<str>), usize, RandomState>,
    conflicts: Vec<Conflict>,
}

struct Family {
    name: String,
    owner: Arc<str>,
    kind: &'static str,
    header: String,
    body: String,
    live: usize,
}

struct SeriesText {
    series: Arc<Series>,
    /// Family and label text; `None` when it is refused.
    place: Option<(usize, Arc<str>)>,
    seen: u64,
}

impl Renderer {
    /// Without any series yet.
    pub fn new(format: Format, style: Style) -> Self {
        Self {
            format,
            style,
            scrape: 0,
            families: Vec::new(),
            free: Vec::new(),
            names: HashMap::default(),
            sample_names: HashMap::default(),
            texts: HashMap::default(),
            identities: HashMap::default(),
            conflicts: Vec::new(),
        }
    }

    /// Begins a scrape.
    pub fn begin(&mut self) {
        self.scrape += 1;
        for family in &mut self.families {
            family.body.clear();
        }
    }

    /// Adds a series to the scrape. `owner` is the table's owner, for messages.
    pub fn add(&mut self, owner: &Arc<str>, reading: Reading<'_>) {
        if matches!(reading.value, Value::NoRecordedValue) {
            return;
        }
        let key = Arc::as_ptr(reading.series) as usize;
        if !self.texts.contains_key(&key) {
            let place = self.place(key, owner, reading.series);
            self.texts.insert(
                key,
                SeriesText {
                    series: reading.series.clone(),
                    place,
                    seen: 0,
                },
            );
        }
        let Some(known) = self.texts.get_mut(&key) else {
            return;
        };
        // A table shows a series once; should two tables share one, the first wins.
        if std::mem::replace(&mut known.seen, self.scrape) == self.scrape {
            return;
        }
        let Some((family, labels)) = &known.place else {
            return;
        };
        if let Some(family) = self.families.get_mut(*family) {
            let time = self.style.timestamps.then_some(reading.time);
            push_samples(
                &mut family.body,
                self.format,
                &family.name,
                family.kind,
                labels,
                &reading,
                time,
            );
        }
    }

    /// Ends the scrape: the whole exposition.
    pub fn finish(&mut self) -> String {
        let mut order: Vec<&Family> = self
            .families
            .iter()
            .filter(|family| !family.body.is_empty())
            .collect();
        order.sort_by(|a, b| a.name.cmp(&b.name));
        let bytes: usize = order
            .iter()
            .map(|family| family.header.len() + family.body.len())
            .sum();
        let mut page = String::with_capacity(bytes + 256);
        for family in order {
            page.push_str(&family.header);
            page.push_str(&family.body);
        }
        self.target_info(&mut page);
        if self.format == Format::OpenMetrics {
            page.push_str("# EOF\n");
        }
        self.forget();
        page
    }

    /// Conflicts found since the last call, each once.
    pub fn take_conflicts(&mut self) -> Vec<Conflict> {
        std::mem::take(&mut self.conflicts)
    }

    /// Works out family and labels of a new series.
    fn place(&mut self, key: usize, owner: &Arc<str>, series: &Arc<Series>) -> Option<(usize, Arc<str>)> {
        let placed = self.try_place(key, owner, series);
        match placed {
            Ok(place) => Some(place),
            Err(why) => {
                self.conflicts.push(Conflict {
                    metric: series.metric.name.clone(),
                    owner: owner.clone(),
                    why,
                });
                None
            }
        }
    }

    fn try_place(
        &mut self,
        key: usize,
        owner: &Arc<str>,
        series: &Series,
    ) -> Result<(usize, Arc<str>), String> {
        let (kind, type_word) = kinds(series.metric.data)?;
        let family = self.family(owner, series, kind, type_word)?;
        let labels: Arc<str> = self.labels(series).into();
        match self.identities.get(&(family, labels.clone())) {
            Some(other) => {
                let other = self
                    .texts
                    .get(other)
                    .map(|text| format!("{:?}", text.series.resource.attributes));
                Err(format!(
                    "another resource has a series of the same name and labels ({}); \
                     add a resource attribute as a label to tell them apart",
                    other.unwrap_or_default()
                ))
            }
            None => {
                self.identities.insert((family, labels.clone()), key);
                if let Some(family) = self.families.get_mut(family) {
                    family.live += 1;
                }
                Ok((family, labels))
            }
        }
    }

    fn labels(&self, series: &Series) -> String {
        let mut labels = Labels::default();
        labels.extend(&series.attributes);
        if self.style.resource_to_labels {
            labels.extend(&series.resource.attributes);
        }
        if !self.style.without_scope {
            labels.scope(&series.scope);
        }
        labels.identify(&series.resource);
        for (name, value) in &self.style.const_labels {
            labels.set(name, value.as_str());
        }
        labels.render()
    }

    /// The family of a metric, made when it is new. `Err` where the name is taken by another type.
    fn family(
        &mut self,
        owner: &Arc<str>,
        series: &Series,
        kind: Kind,
        type_word: &'static str,
    ) -> Result<usize, String> {
        let metric = &series.metric;
        let own_name = metric
            .metadata
            .get(OPENMETRICS_NAME)
            .filter(|_| self.format == Format::OpenMetrics);
        let raw = own_name.and_then(|name| name.as_str()).unwrap_or(&metric.name);
        let full = self.style.naming.metric(raw, &metric.unit, kind);
        let full = full.ok_or("nothing of its name can be exposed")?;
        let name = match (self.format, kind) {
            // The family's name is without the suffix, the sample's has it whatever the naming says.
            (Format::OpenMetrics, Kind::Counter) => full.strip_suffix("_total").unwrap_or(&full).to_owned(),
            _ => full,
        };
        if let Some(index) = self.names.get(&name) {
            let family = self.families.get(*index).ok_or("its family is gone")?;
            return match family.kind == type_word {
                true => Ok(*index),
                false => Err(format!(
                    "the name `{name}` is a {} of {} already",
                    family.kind, family.owner
                )),
            };
        }
        self.open_family(owner, name, type_word, &metric.description)
    }

    fn open_family(
        &mut self,
        owner: &Arc<str>,
        name: String,
        kind: &'static str,
        help: &str,
    ) -> Result<usize, String> {
        let samples = sample_names(self.format, &name, kind);
        for sample in &samples {
            if let Some(taken) = self
                .sample_names
                .get(sample)
                .and_then(|index| self.families.get(*index))
            {
                return Err(format!(
                    "`{sample}` belongs to the {} `{}` of {}",
                    taken.kind, taken.name, taken.owner
                ));
            }
        }
        let free = self.free.pop();
        let index = free.unwrap_or(self.families.len());
        for sample in samples {
            self.sample_names.insert(sample, index);
        }
        let mut header = String::new();
        if !help.is_empty() {
            header.push_str("# HELP ");
            header.push_str(&name);
            header.push(' ');
            push_help(&mut header, self.format, help);
            header.push('\n');
        }
        header.push_str(&format!("# TYPE {name} {kind}\n"));
        self.names.insert(name.clone(), index);
        let owner = owner.clone();
        let family = Family {
            name,
            owner,
            kind,
            header,
            body: String::new(),
            live: 0,
        };
        match self.families.get_mut(index) {
            Some(place) => *place = family,
            None => self.families.push(family),
        }
        Ok(index)
    }

    /// At most one a job and instance, with the resource's attributes as labels.
    fn target_info(&self, page: &mut String) {
        let mut targets: BTreeMap<(String, String), String> = BTreeMap::new();
        let live = self
            .texts
            .values()
            .filter(|text| text.seen == self.scrape && text.place.is_some());
        let mut last = None;
        for text in live {
            let resource = &text.series.resource;
            // Series of a resource share it; most of a table's follow one another.
            if last.is_some_and(|last| Arc::ptr_eq(last, resource)) {
                continue;
            }
            last = Some(resource);
            let Some(job) = job(resource) else { continue };
            targets
                .entry((job, instance(resource)))
                .or_insert_with(|| target_labels(resource));
        }
        targets.retain(|_, labels| !labels.is_empty());
        if targets.is_empty() || self.names.contains_key("target_info") {
            return;
        }
        let (family, kind) = match self.format {
            Format::Text => ("target_info", "gauge"),
            Format::OpenMetrics => ("target", "info"),
        };
        page.push_str(&format!(
            "# HELP {family} Target metadata\n# TYPE {family} {kind}\n"
        ));
        for labels in targets.into_values() {
            page.push_str(&format!("target_info{{{labels}}} 1\n"));
        }
    }

    /// Forgets series that have not been read for some scrapes, and families without series.
    fn forget(&mut self) {
        if !self.scrape.is_multiple_of(FORGET_AFTER) {
            return;
        }
        let oldest = self.scrape - FORGET_AFTER;
        let (identities, families) = (&mut self.identities, &mut self.families);
        self.texts.retain(|_, text| {
            // What was refused is looked at again: the place may have become free.
            let keep = text.seen > oldest && text.place.is_some();
            if let (false, Some((family, labels))) = (keep, &text.place) {
                identities.remove(&(*family, labels.clone()));
                if let Some(family) = families.get_mut(*family) {
                    family.live -= 1;
                }
            }
            keep
        });
        let (free, alive) = (&mut self.free, |index: &usize| {
            families.get(*index).is_some_and(|f| f.live > 0)
        });
        self.names.retain(|_, index| {
            let keep = alive(index);
            if !keep {
                free.push(*index);
            }
            keep
        });
        self.sample_names.retain(|_, index| alive(index));
    }
}

/// A point's kind as a name sees it and as a TYPE line says it. Sums and histograms of tables are cumulative.
fn kinds(data: Data) -> Result<(Kind, &'static str), String> {
    match data {
        Data::Gauge => Ok((Kind::Gauge, "gauge")),
        Data::Sum {
            temporality: Temporality::Unspecified,
            ..
        } => Err("its temporality is unspecified".to_owned()),
        Data::Sum { monotonic: true, .. } => Ok((Kind::Counter, "counter")),
        Data::Sum { monotonic: false, .. } => Ok((Kind::Gauge, "gauge")),
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

fn target_labels(resource: &tidegate_engine::Resource) -> String {
    const IDENTITY: [&str; 3] = ["service.name", "service.namespace", "service.instance.id"];
    let mut labels = Labels::default();
    let others = resource
        .attributes
        .iter()
        .filter(|(key, _)| !IDENTITY.contains(&&***key));
    let mut any = false;
    for (key, value) in others {
        labels.add(key, value);
        any = true;
    }
    if !any {
        return String::new();
    }
    labels.identify(resource);
    labels.render()
}

fn push_help(header: &mut String, format: Format, help: &str) {
    match format {
        Format::Text => header.push_str(&help.replace('\\', "\\\\").replace('\n', "\\n")),
        Format::OpenMetrics => escape(header, help),
    }
}

/// A timestamp: milliseconds in text 0.0.4, seconds in OpenMetrics.
pub(super) fn push_time(line: &mut String, format: Format, nanos: u64) {
    line.push(' ');
    match format {
        Format::Text => push_i64(line, i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX)),
        Format::OpenMetrics => push_f64(line, (nanos / 1_000_000) as f64 / 1e3),
    }
}

/// The exemplar's labels: trace and span first, attributes while there is room.
pub(super) fn exemplar_labels(exemplar: &tidegate_engine::Exemplar) -> String {
    /// OpenMetrics 1.0: label names and values of an exemplar have at most 128 characters together.
    const ROOM: usize = 128;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut labels = Labels::default();
    let mut used = 0;
    for (name, id) in [("trace_id", &exemplar.trace_id), ("span_id", &exemplar.span_id)] {
        if !id.is_empty() {
            used += name.len() + id.len() * 2;
            labels.set(name, hex(id));
        }
    }
    for (key, value) in exemplar.filtered_attributes.iter() {
        let size = key.chars().count() + text(value).chars().count();
        if used + size <= ROOM {
            used += size;
            labels.add(key, value);
        }
    }
    labels.render()
}

#[cfg(test)]
mod tests;
