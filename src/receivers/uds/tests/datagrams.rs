// SPDX-License-Identifier: Apache-2.0

//! Lines of StatsD in datagrams.

use proptest::prelude::*;

use super::*;

#[tokio::test]
async fn statsd_lines_become_events_by_the_table() {
    /// Lines, (name, value, weight) of their events, lines lost.
    type Row = (&'static [u8], &'static [(&'static str, f64, f64)], u64);
    let table: &[Row] = &[
        (b"a:1|c", &[("a", 1.0, 1.0)], 0),
        (b"a:1|c|@0.1", &[("a", 10.0, 1.0)], 0),
        (b"t:320|ms|@0.5", &[("t", 320.0, 2.0)], 0),
        (
            b"h:1:2:3|h|#x:y",
            &[("h", 1.0, 1.0), ("h", 2.0, 1.0), ("h", 3.0, 1.0)],
            0,
        ),
        (b"d:0.5|d|c:abc|e:def", &[("d", 0.5, 1.0)], 0),
        (
            b"g:5|g\ng:+2|g\ng:-4|g\n",
            &[("g", 5.0, 1.0), ("g", 7.0, 1.0), ("g", 3.0, 1.0)],
            0,
        ),
        (b"a:1|c\r\nb:2|c\r\n", &[("a", 1.0, 1.0), ("b", 2.0, 1.0)], 0),
        (b"u:1|s\n_e{1,1}:a|b\n_sc|a|0\nok:1|c", &[("ok", 1.0, 1.0)], 3),
        (
            b"noise\n\n:1|c\na:1:x|c\na:-1|c\na:1|c|@2\nok:1|c",
            &[("ok", 1.0, 1.0)],
            5,
        ),
    ];
    for (datagram, expected, lost) in table {
        let gateway = Gateway::start("").await;
        sender(&gateway.path("datagram")).send(datagram).unwrap();
        gateway
            .until("the events are in", |sink| sink.items() == expected.len())
            .await;
        let mut found = Vec::new();
        for events in gateway.all_events() {
            for (at, kind) in events.kinds.iter().enumerate() {
                let weight = events.weights.as_ref().map_or(1.0, |weights| weights[at]);
                let name = events.schema.kinds[usize::from(*kind)].name.to_string();
                found.push((name, events.values.get(at).unwrap(), weight));
            }
        }
        let found: Vec<_> = found
            .iter()
            .map(|(name, value, weight)| (name.as_str(), *value, *weight))
            .collect();
        assert_eq!(found, *expected, "{}", datagram.escape_ascii());
        gateway.stop().await;
        assert_eq!(gateway.failed(), *lost, "{}", datagram.escape_ascii());
    }
}

#[tokio::test]
async fn a_negative_count_needs_counters_that_may_fall() {
    use tidegate_engine::Instrument::{Counter, UpDownCounter};
    for (is_monotonic, instrument, values, lost) in [
        (true, Counter, &[2.0][..], 1),
        (false, UpDownCounter, &[2.0, -1.0][..], 0),
    ] {
        let option = format!("is_monotonic_counter: {is_monotonic}");
        let gateway = Gateway::start_blocks(&["datagram"], &option).await;
        sender(&gateway.path("datagram")).send(b"a:2|c\na:-1|c").unwrap();
        gateway
            .until("the events are in", |sink| sink.items() == values.len())
            .await;
        assert_eq!(gateway.failed(), lost, "{option}");
        let taken = gateway.sink.events().into_iter().map(|(_, value)| value);
        assert_eq!(taken.collect::<Vec<_>>(), values, "{option}");
        let events = &gateway.all_events()[0];
        assert_eq!(events.schema.kinds[0].instrument, instrument, "{option}");
    }
}

#[tokio::test]
async fn times_and_tags_travel_with_the_event() {
    let gateway = Gateway::start("").await;
    sender(&gateway.path("datagram"))
        .send(b"a:1|g|#env:prod,canary|T1656581400\nb:1|g")
        .unwrap();
    gateway.until("the events are in", |sink| sink.items() == 2).await;
    let events = &gateway.all_events()[0];
    let times = events.times.as_ref().unwrap();
    assert_eq!(
        times,
        &[1_656_581_400_000_000_000, events.times.as_ref().unwrap()[1]]
    );
    assert!(times[1] > times[0]);
    let expected: Attributes = [("canary", ""), ("env", "prod")].into_iter().collect();
    assert_eq!(events.schema.kinds[0].attributes, expected);
}

#[tokio::test]
async fn waiting_datagrams_are_one_batch_and_refusals_lose_nothing() {
    let gateway = Gateway::start("").await;
    gateway.sink.refuse(2);
    let path = gateway.path("datagram");
    // Senders block while the receiver does not read: an own thread, as another process would.
    let sending = std::thread::spawn(move || {
        let socket = sender(&path);
        for value in 0..200 {
            socket.send(format!("n:{value}|c").as_bytes()).unwrap();
        }
    });
    gateway
        .until("all events are in", |sink| sink.items() == 200)
        .await;
    sending.join().unwrap();
    let values: Vec<_> = gateway
        .sink
        .events()
        .into_iter()
        .map(|(_, value)| value)
        .collect();
    assert_eq!(values, (0..200).map(f64::from).collect::<Vec<_>>());
    assert!(gateway.sink.batches().len() < 200, "joined");
    assert_eq!(gateway.failed(), 0);
}

#[tokio::test]
async fn a_datagram_beyond_the_limit_keeps_its_whole_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d.sock");
    let sink = Sink::new();
    let yaml = format!(
        "datagram: {{path: {}, max_datagram_size: 16, max_kinds: 2}}",
        path.display()
    );
    let (cx, counts) = counted(&sink);
    let event_sink = Arc::new(EventSink::new(
        &cx.base,
        cx.entry(Signal::Metrics).unwrap().clone(),
        Duration::from_secs(9),
    ));
    let config = settings::<UdsConfig>(&yaml).get::<UdsConfig>();
    let datagram = config.datagram.as_ref().unwrap();
    let task = datagram::Task::start(datagram, event_sink, &cx.base, Arc::default()).unwrap();
    let socket = sender(&path);
    socket.send(b"a:1|c\nb:2|c\nlong.name:3|c").unwrap();
    socket.send(b"c:1|c\na:5|c").unwrap();
    task.stop(Instant::now() + Duration::from_secs(60)).await;
    let named = |name: &str, value| (name.to_owned(), value);
    assert_eq!(sink.events(), [named("a", 1.0), named("b", 2.0), named("a", 5.0)]);
    assert_eq!(counts.failed.load(SeqCst), 2, "one torn line, one kind too many");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn arbitrary_datagrams_never_panic(
        datagrams in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                "([a-c]{0,2}[:|@#+,.0-9cgmshdT\n-]{0,12}){0,6}".prop_map(String::into_bytes),
            ],
            1..8,
        )
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let gateway = Gateway::start("").await;
            let socket = sender(&gateway.path("datagram"));
            for datagram in &datagrams {
                socket.send(datagram).unwrap();
                tokio::task::yield_now().await;
            }
            gateway.stop().await;
            let before = gateway.sink.items();
            for events in gateway.all_events() {
                assert!(events.kinds.iter().all(|kind| usize::from(*kind) < events.schema.kinds.len()));
                assert_eq!(events.values.len(), events.kinds.len());
            }
            assert!(before <= datagrams.iter().map(Vec::len).sum());
        });
    }
}
