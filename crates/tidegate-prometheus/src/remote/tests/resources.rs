// SPDX-License-Identifier: Apache-2.0

//! The series of resources, `target_info`.

use super::*;

#[test]
fn resources_are_told_once_in_a_while_and_at_once_when_they_change() {
    let of = |version: &str| {
        let attributes = [
            ("service.name", "a"),
            ("service.instance.id", "i"),
            ("version", version),
        ];
        Stream {
            resource: Arc::new(Resource {
                attributes: attributes.into_iter().collect(),
                schema_url: "".into(),
            }),
            ..stream("g", Data::Gauge, &[])
        }
    };
    let translator = translator();
    let info = |version: &str| format!("target_info{{instance=\"i\",job=\"a\",version={version:?}}}");
    let first = sent(
        &translator,
        vec![
            point(&of("1"), 1000, Value::Int(1)),
            point(&of("1"), 2000, Value::Int(1)),
        ],
    );
    assert_eq!(first.samples(&info("1")), [(2000, 1.0)]);
    assert_eq!(first.samples("g{instance=\"i\",job=\"a\"}").len(), 2);
    let at = |version: &str, time| sent(&translator, vec![point(&of(version), time, Value::Int(1))]);
    assert_eq!(at("1", 3000).samples(&info("1")), [], "not again");
    assert_eq!(at("2", 3500).samples(&info("2")), [(3500, 1.0)]);
    assert_eq!(at("2", 1000).samples(&info("2")), [], "never back in time");
    assert_eq!(at("2", 20_000).samples(&info("2")), [(20_000, 1.0)]);
}

#[test]
fn many_resources_side_by_side_are_told_once_each() {
    let all: Vec<_> = (0..500)
        .map(|instance| {
            let instance = format!("{instance:03}");
            let attributes = [
                ("service.name", "a"),
                ("service.instance.id", &instance),
                ("version", "1"),
            ];
            Stream {
                resource: Arc::new(Resource {
                    attributes: attributes.into_iter().collect(),
                    schema_url: "".into(),
                }),
                ..stream("g", Data::Gauge, &[])
            }
        })
        .collect();
    // The one seen last comes first the second time.
    let first = all.iter().map(|stream| point(stream, 1000, Value::Int(1)));
    let again = all.iter().rev().map(|stream| point(stream, 2000, Value::Int(1)));
    let request = sent(&translator(), first.chain(again).collect());
    let told: Vec<_> = request
        .series
        .iter()
        .filter(|series| series.name.starts_with("target_info"))
        .map(|series| (series.samples.len(), series.samples[0].0))
        .collect();
    assert_eq!(told, vec![(1, 2000); 500]);
}
