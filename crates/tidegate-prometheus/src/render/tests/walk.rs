// SPDX-License-Identifier: Apache-2.0

//! The memory and the locks of a page while it is written.

use std::sync::mpsc;
use std::time::Duration;

use tidegate_engine::{AttributeValue, Exemplar};

use super::*;
use crate::render::encoder::{SampleSnapshot, ValueTimes};

/// An encoder that ends the second series of a table while the first one is written, and writes to the table
/// when the family ends.
struct Nosy {
    page: Vec<u8>,
    table: Arc<Table>,
    ends: Option<Arc<Series>>,
    exemplars: Arc<std::sync::atomic::AtomicUsize>,
}

impl Encoder for Nosy {
    fn page(&mut self) -> &mut Vec<u8> {
        &mut self.page
    }

    fn begin(&mut self, _: &str, _: &PageFamily) {}

    fn number(&mut self, _: &PageFamily, _: &[u8], _: Number, _: ValueTimes) -> bool {
        true
    }

    fn sample(&mut self, _: &PageFamily, _: &[u8], snapshot: &SampleSnapshot) -> bool {
        self.exemplars
            .fetch_add(snapshot.exemplars.len(), std::sync::atomic::Ordering::Relaxed);
        if let Some(series) = self.ends.take() {
            put_at(&self.table, &[(series, Value::NoRecordedValue)], NOW + 1);
        }
        true
    }

    fn end(&mut self, _: &PageFamily) {
        let (table, (tell, told)) = (self.table.clone(), mpsc::sync_channel(1));
        std::thread::spawn(move || {
            put_at(&table, &[distribution("1", &[])], NOW + 2);
            tell.send(()).unwrap();
        });
        let waited = told.recv_timeout(Duration::from_secs(60));
        assert!(waited.is_ok(), "who writes to the table waits for the page");
    }
}

fn distribution(name: &str, bounds: &[f64]) -> (Arc<Series>, Value) {
    let value = Histogram {
        count: bounds.len() as u64 + 1,
        sum: Some(1.0),
        min: None,
        max: None,
        bounds: bounds.into(),
        counts: vec![1; bounds.len() + 1],
    };
    let series = series("d", "", HISTOGRAM, &[], &[("a", name)]);
    (series, Value::Histogram(Box::new(value)))
}

/// Histograms 1 and 2, with an exemplar each, walked by a nosy encoder. How many exemplars it was shown.
fn walked(format: Format) -> usize {
    let table = table("test");
    let all = [distribution("1", &[]), distribution("2", &[])];
    for (series, value) in &all {
        let exemplar = Exemplar {
            filtered_attributes: Attributes::default(),
            time: NOW,
            value: AttributeValue::Double(1.0),
            trace_id: Vec::new(),
            span_id: Vec::new(),
        };
        let point = Point {
            series: series.clone(),
            start: 0,
            time: NOW,
            value: value.clone(),
            exemplars: vec![exemplar],
        };
        table.observe(&point, NOW);
    }
    let mut renderer = renderer(format);
    renderer.render(std::slice::from_ref(&table), NOW);
    let exemplars = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let encoder = Nosy {
        page: Vec::new(),
        table: table.clone(),
        ends: Some(all[1].0.clone()),
        exemplars: exemplars.clone(),
    };
    renderer.walk(NOW, Use::Keep, |_| encoder);
    exemplars.load(std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn no_lock_is_held_at_the_end_of_a_family_whose_last_series_expired() {
    walked(Format::OpenMetrics);
}

#[test]
fn exemplars_are_copied_only_where_the_format_has_them() {
    assert_eq!((walked(Format::Text), walked(Format::OpenMetrics)), (0, 1));
}

/// The memory of a page while it is written.
#[test]
fn a_page_that_grows_takes_little_more_than_it_needs() {
    let table = table("test");
    let bounds: Vec<f64> = (0..30).map(f64::from).collect();
    for number in 0..3000 {
        let (one, value) = distribution(&format!("{number:0>60}"), &bounds);
        put(&table, &[(one, value)]);
    }
    let mut renderer = renderer(Format::Text);
    renderer.render(std::slice::from_ref(&table), NOW);
    let style = Style::default();
    let (page, _) = renderer.walk(NOW, Use::Keep, |_| {
        TextEncoder::new(Vec::new(), Format::Text, &style)
    });
    let (used, taken) = (page.len(), page.capacity());
    assert!(used > 8 << 20 && taken < used + used / 3, "{taken} for {used}");
}
