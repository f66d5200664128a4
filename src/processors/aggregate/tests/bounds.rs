// SPDX-License-Identifier: Apache-2.0

//! One sender can neither fill the table nor hold it up by its times.

use tidegate_engine::Resource;

use super::*;

#[test]
fn a_flooding_source_is_bounded_and_another_source_gets_its_series() {
    let rig = rig("{rules: [{match: {name: m}}]}");
    rig.base
        .shared
        .memory
        .add_limit(crate::component::Limit::of(8 << 20));
    let say = |pod: &str, users: usize| {
        let points: Vec<_> = (0..users)
            .map(|user| {
                let user = user.to_string();
                let mut point = point("m", Data::Gauge, &[("user", &user)], Value::Int(1));
                let series = Arc::make_mut(&mut point.series);
                series.resource = Arc::new(Resource {
                    attributes: [("pod", pod)].into_iter().collect(),
                    ..Resource::default()
                });
                point
            })
            .collect();
        rig.push(convert::encode_points(&points));
        let mut own = 0;
        rig.aggregate.absorber.table.read(unix_now(), &mut |reading| {
            let of = reading.series.resource.attributes.get("pod");
            let is_overflow = reading.series.attributes.get("otel.metric.overflow").is_some();
            own += usize::from(of.is_some_and(|of| of.as_str() == Some(pod)) && !is_overflow);
        });
        own
    };
    let loud = say("loud", 20_000);
    assert!((500..3000).contains(&loud), "{loud}: half of 2 MiB");
    assert_eq!(say("quiet", 200), 200);
    let balance = rig.ledger.balance();
    let limited = balance.dropped[Reason::Limit as usize];
    assert!(limited > 0 && balance.absorbed + limited == 20_200, "{balance:?}");
}

#[test]
fn events_from_the_future_are_counted_and_reported_to_their_sender() {
    let rig = rig("{rules: [{match: {name: hits}}]}");
    let kinds = ["hits", "other"].map(|name| kind(name, Instrument::Counter, &[]));
    let mut events = events("a", kinds.into(), &[(0, 3), (0, 100), (1, 5)]);
    let now = unix_now();
    events.times = Some(vec![now, now + 660_000_000_000, u64::MAX]);
    let outcome = rig.aggregate.push(Batch::new(events)).unwrap();
    assert_eq!(outcome.rejected_items, 1);
    assert!(
        outcome.message.contains("too far ahead of the gateway's clock"),
        "{}",
        outcome.message
    );
    let balance = rig.ledger.balance();
    assert_eq!(
        (balance.absorbed, balance.dropped[Reason::Future as usize]),
        (1, 1)
    );
    assert_eq!(rig.sink.items(), 1, "what no rule takes passes");
}
