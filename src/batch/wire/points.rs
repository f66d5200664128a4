//! Metric points out of wire bytes, each with the key of the bytes that identify it.
//!
//! Numbers cost a walk over their fields and a hash; what identifies a series is decoded only when somebody asks for
//! it, by cutting the point out as a request of its own. Other kinds of points, and numbers with exemplars, are
//! decoded the same way.

use std::hash::Hasher;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_engine::{Key, KeyHasher, Point, Sample, Series, Value};

use super::WireError;
use super::edit::{Editor, push_message, push_varint};
use super::proto::{Field, Fields, WireType, varint};
use super::walk::{Item, ItemKind, Level, Visitor, edit};
use crate::batch::{Encoded, Signal, convert};

/// A point as it stands on the wire.
pub(crate) struct WirePoint<'a> {
    /// The metric's name.
    pub(crate) name: &'a str,
    /// Stands for resource, scope, metric and attributes as they were written.
    pub(crate) key: Key,
    pub(crate) sample: Sample<'a>,
    /// Decodes what identifies it; `None` when that can't be decoded.
    pub(crate) series: &'a dyn Fn() -> Option<Arc<Series>>,
}

/// Looks at points and says which stay in the request.
pub(crate) trait PointVisitor {
    /// Whether to look at the points of a metric; the others stay.
    fn wants(&mut self, name: &str) -> bool;

    /// A point of such a metric. False: it goes.
    fn point(&mut self, point: &WirePoint<'_>) -> bool;
}

/// The request after a visit.
pub(crate) fn visit(encoded: &Encoded, visitor: &mut dyn PointVisitor) -> Result<Encoded, WireError> {
    let mut reader = Reader {
        visitor,
        wanted: false,
        real_data: 0,
        data: 0,
        around: Default::default(),
        hasher: KeyHasher::default(),
    };
    edit(encoded, &mut reader)
}

struct Reader<'v> {
    visitor: &'v mut dyn PointVisitor,
    /// Whether the visitor looks at the current metric.
    wanted: bool,
    /// The last of a metric's data fields: the one that is valid (`data` is a oneof).
    real_data: u32,
    data: u32,
    /// The fields around the current points, by level, without the messages inside them.
    around: [Vec<u8>; 4],
    /// Has been shown what is in `around`.
    hasher: KeyHasher,
}

/// Field numbers of the messages inside: `scope_metrics`, `metrics`, the kinds of data, `data_points`.
const INSIDE: [&[u32]; 4] = [&[2], &[2], &[5, 7, 9, 10, 11], &[1]];

impl Visitor for Reader<'_> {
    fn begin(&mut self, level: Level, message: &[u8]) {
        let depth = match level {
            Level::Resource => 0,
            Level::Scope => 1,
            Level::Metric => 2,
            Level::Data(_) => 3,
        };
        if depth >= 2 && !self.wanted {
            return;
        }
        let around = &mut self.around[depth];
        around.clear();
        for field in Fields::new(message).flatten() {
            match INSIDE[depth].contains(&field.number) {
                true if depth == 2 => self.real_data = field.number,
                true => {}
                false => push_field(around, &field),
            }
        }
        if let Level::Data(number) = level {
            self.data = number;
            self.hasher = self.hash_around();
        }
    }

    fn metric(&mut self, name: &[u8]) -> bool {
        self.wanted = std::str::from_utf8(name).is_ok_and(|name| self.visitor.wants(name));
        true
    }

    fn item(&mut self, item: &Item<'_>, _: &mut Editor<'_>) -> bool {
        if !self.wanted {
            return true;
        }
        // Data of a kind that a later field has overridden does not exist.
        self.data == self.real_data && self.show(item)
    }
}

impl Reader<'_> {
    fn hash_around(&self) -> KeyHasher {
        let mut hasher = KeyHasher::default();
        for around in &self.around {
            write(&mut hasher, around);
        }
        hasher.write_u32(self.data);
        hasher
    }

    fn show(&mut self, item: &Item<'_>) -> bool {
        let (around, data) = (&self.around, self.data);
        let decode = || cut_out(around, data, item.message);
        let key = self.key(item);
        // It was text when the visitor was asked whether it wants it.
        let name = std::str::from_utf8(item.name).unwrap_or_default();
        let number = match item.kind {
            ItemKind::Number => Number::read(item.message),
            _ => None,
        };
        match number {
            Some(number) => self.visitor.point(&WirePoint {
                name,
                key,
                sample: number.sample(),
                series: &|| decode().map(|point| point.series),
            }),
            None => match decode() {
                Some(point) => self.visitor.point(&WirePoint {
                    name,
                    key,
                    sample: sample(&point),
                    series: &|| Some(point.series.clone()),
                }),
                None => true,
            },
        }
    }

    fn key(&self, item: &Item<'_>) -> Key {
        let mut hasher = self.hasher.clone();
        let number = item.kind.attributes_field();
        for field in Fields::new(item.message).flatten() {
            if field.number == number && field.wire == WireType::Bytes {
                write(&mut hasher, field.payload);
            }
        }
        hasher.key()
    }
}

fn write(hasher: &mut KeyHasher, bytes: &[u8]) {
    hasher.write_usize(bytes.len());
    hasher.write(bytes);
}

fn sample(point: &Point) -> Sample<'_> {
    Sample {
        start: point.start,
        time: point.time,
        value: &point.value,
        exemplars: &point.exemplars,
    }
}

/// A `NumberDataPoint` without attributes.
struct Number {
    start: u64,
    time: u64,
    value: Value,
}

impl Number {
    /// `None`: it has exemplars, or fields of unexpected types.
    fn read(message: &[u8]) -> Option<Self> {
        /// `DataPointFlags::NO_RECORDED_VALUE_MASK`.
        const NO_RECORDED_VALUE: u64 = 1;
        let mut number = Self {
            start: 0,
            time: 0,
            value: Value::NoRecordedValue,
        };
        let mut flags = 0;
        for field in Fields::new(message) {
            let field = field.ok()?;
            match (field.number, field.wire) {
                (2, WireType::Fixed64) => number.start = fixed64(&field)?,
                (3, WireType::Fixed64) => number.time = fixed64(&field)?,
                (4, WireType::Fixed64) => number.value = Value::Double(f64::from_bits(fixed64(&field)?)),
                (6, WireType::Fixed64) => number.value = Value::Int(fixed64(&field)?.cast_signed()),
                (8, WireType::Varint) => flags = varint(field.payload)?.0,
                (7, WireType::Bytes) => {}
                (2..=8, _) => return None,
                _ => {}
            }
        }
        if flags & NO_RECORDED_VALUE != 0 {
            number.value = Value::NoRecordedValue;
        }
        Some(number)
    }

    fn sample(&self) -> Sample<'_> {
        Sample {
            start: self.start,
            time: self.time,
            value: &self.value,
            exemplars: &[],
        }
    }
}

fn fixed64(field: &Field<'_>) -> Option<u64> {
    field.payload.try_into().ok().map(u64::from_le_bytes)
}

/// The point, decoded from a request that holds nothing else.
fn cut_out(around: &[Vec<u8>; 4], data: u32, point: &[u8]) -> Option<Point> {
    /// Under which number each message stands in the one around it; data has one of several.
    const NUMBERS: [u32; 3] = [2, 2, 1];
    let [resource, scope, metric, of_data] = around;
    let mut message = of_data.clone();
    push_message(&mut message, NUMBERS[2], point);
    for (fields, number) in [(metric, data), (scope, NUMBERS[1]), (resource, NUMBERS[0])] {
        let mut outer = fields.clone();
        push_message(&mut outer, number, &message);
        message = outer;
    }
    let mut request = Vec::with_capacity(message.len() + 8);
    push_message(&mut request, 1, &message);
    let request = Encoded::one(Signal::Metrics, Bytes::from(request), 1);
    convert::points(&request).ok()?.pop()
}

fn push_field(out: &mut Vec<u8>, field: &Field<'_>) {
    let wire = match field.wire {
        WireType::Varint => 0,
        WireType::Fixed64 => 1,
        WireType::Bytes => return push_message(out, field.number, field.payload),
        WireType::Fixed32 => 5,
    };
    push_varint(out, u64::from(field.number) << 3 | wire);
    out.extend_from_slice(field.payload);
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
    use opentelemetry_proto::tonic::metrics::v1::{self as otlp, metric, number_data_point};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use prost::Message;

    use super::*;

    fn attribute(key: &str, value: &str) -> KeyValue {
        KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue {
                value: Some(any_value::Value::StringValue(value.to_owned())),
            }),
            ..Default::default()
        }
    }

    fn number(user: &str, value: Option<number_data_point::Value>) -> otlp::NumberDataPoint {
        otlp::NumberDataPoint {
            attributes: vec![attribute("user", user), attribute("zone", "z")],
            start_time_unix_nano: 5,
            time_unix_nano: 9,
            value,
            ..Default::default()
        }
    }

    fn metric(name: &str, data: metric::Data) -> otlp::Metric {
        otlp::Metric {
            name: name.to_owned(),
            unit: "By".to_owned(),
            data: Some(data),
            ..Default::default()
        }
    }

    /// Every kind of point, under two resources.
    fn request() -> Encoded {
        let int = |value| Some(number_data_point::Value::AsInt(value));
        let mut exemplified = number("e", int(7));
        exemplified.exemplars = vec![otlp::Exemplar {
            trace_id: vec![1; 16],
            ..Default::default()
        }];
        let mut ended = number("f", int(7));
        ended.flags = 1;
        let double = number("d", Some(number_data_point::Value::AsDouble(-0.5)));
        let points = vec![
            number("a", int(-3)),
            double,
            number("n", None),
            exemplified,
            ended,
        ];
        let sum = otlp::Sum {
            data_points: points.clone(),
            aggregation_temporality: 2,
            is_monotonic: true,
        };
        let histogram = otlp::HistogramDataPoint {
            attributes: vec![attribute("user", "h")],
            count: 3,
            bucket_counts: vec![1, 2],
            explicit_bounds: vec![1.5],
            ..Default::default()
        };
        let histograms = otlp::Histogram {
            data_points: vec![histogram],
            aggregation_temporality: 1,
        };
        let metrics = vec![
            metric("sum", metric::Data::Sum(sum)),
            metric("gauge", metric::Data::Gauge(otlp::Gauge { data_points: points })),
            metric("histogram", metric::Data::Histogram(histograms)),
            metric(
                "summary",
                metric::Data::Summary(otlp::Summary {
                    data_points: vec![Default::default()],
                }),
            ),
        ];
        let of = |pod: &str| otlp::ResourceMetrics {
            resource: Some(Resource {
                attributes: vec![attribute("pod", pod)],
                ..Default::default()
            }),
            scope_metrics: vec![otlp::ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: "lib".to_owned(),
                    ..Default::default()
                }),
                metrics: metrics.clone(),
                schema_url: "s".to_owned(),
            }],
            schema_url: "r".to_owned(),
        };
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![of("1"), of("2")],
        };
        Encoded::one(Signal::Metrics, request.encode_to_vec().into(), 24)
    }

    /// Collects what it sees; takes points out of metrics whose name it was told.
    #[derive(Default)]
    struct Collect {
        unwanted: &'static str,
        taken: &'static str,
        keys: Vec<Key>,
        points: Vec<Point>,
    }

    impl PointVisitor for Collect {
        fn wants(&mut self, name: &str) -> bool {
            name != self.unwanted
        }

        fn point(&mut self, point: &WirePoint<'_>) -> bool {
            self.keys.push(point.key);
            self.points.push(Point {
                series: (point.series)().unwrap(),
                start: point.sample.start,
                time: point.sample.time,
                value: point.sample.value.clone(),
                exemplars: point.sample.exemplars.to_vec(),
            });
            point.name != self.taken
        }
    }

    #[test]
    fn points_are_those_that_decoding_gives_and_each_series_has_its_own_key() {
        let request = request();
        let mut collect = Collect::default();
        let same = visit(&request, &mut collect).unwrap();
        assert_eq!(same.parts[0].bytes, request.parts[0].bytes);
        assert_eq!(collect.points, convert::points(&request).unwrap());
        let mut keys = collect.keys.clone();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 24);
        let mut again = Collect::default();
        visit(&request, &mut again).unwrap();
        assert_eq!(again.keys, collect.keys);
    }

    #[test]
    fn what_is_taken_goes_and_the_rest_stays_encoded() {
        let request = request();
        let mut collect = Collect {
            unwanted: "gauge",
            taken: "sum",
            ..Collect::default()
        };
        let rest = visit(&request, &mut collect).unwrap();
        assert_eq!((rest.items(), collect.points.len()), (14, 14));
        let names: Vec<_> = convert::points(&rest)
            .unwrap()
            .iter()
            .map(|point| point.series.metric.name.to_string())
            .collect();
        assert!(!names.iter().any(|name| name == "sum") && names.len() == 14);
    }
}
