//! Finds metric names in encoded metrics without decoding anything else, so that what nobody asks for stays encoded.

use crate::batch::Encoded;
use crate::batch::wire::proto::{Fields, WireType};

/// Field numbers of `ExportMetricsServiceRequest` -> `ResourceMetrics` -> `ScopeMetrics` -> `Metric`.
const RESOURCE_METRICS: u32 = 1;
const SCOPE_METRICS: u32 = 2;
const METRICS: u32 = 2;
const NAME: u32 = 1;

/// Whether `wanted` says yes to the name of any metric.
pub(super) fn any_metric(encoded: &Encoded, wanted: impl Fn(&str) -> bool) -> bool {
    let requests = encoded.parts.iter().map(|part| &*part.bytes);
    let metrics = requests
        .flat_map(|request| messages(request, RESOURCE_METRICS))
        .flat_map(|resource| messages(resource, SCOPE_METRICS))
        .flat_map(|scope| messages(scope, METRICS));
    // A field that is given twice has its last value.
    let mut names = metrics.filter_map(|metric| messages(metric, NAME).last());
    names.any(|name| std::str::from_utf8(name).is_ok_and(&wanted))
}

fn messages(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    Fields::new(message)
        .filter_map(Result::ok)
        .filter(move |field| field.number == number && field.wire == WireType::Bytes)
        .map(|field| field.payload)
}
