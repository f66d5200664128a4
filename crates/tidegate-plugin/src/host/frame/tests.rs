// SPDX-License-Identifier: Apache-2.0

//! A reader gets the frames that were written, and other bytes give an error.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn text() -> impl Strategy<Value = Arc<str>> {
    "[a-z\u{e4}\u{1f600}]{0,8}".prop_map(Arc::from)
}

fn pairs() -> impl Strategy<Value = Vec<(Arc<str>, Arc<str>)>> {
    vec((text(), text()), 0..3)
}

fn kind() -> impl Strategy<Value = EventKind> {
    (text(), text(), text(), text(), 0u32..4, pairs()).prop_map(
        |(name, category, unit, description, instrument, attributes)| EventKind {
            name,
            category,
            unit,
            description,
            instrument: Instrument::from_number(instrument).unwrap(),
            attributes,
        },
    )
}

prop_compose! {
    fn events()(kinds in vec(kind(), 1..4), count in 0usize..20)(
        kind in vec(0..kinds.len() as u16, count),
        whole in vec(any::<u64>(), count),
        is_whole in any::<bool>(),
        times_ns in vec(any::<u64>(), count),
        weights in proptest::option::of(vec(-1e9..1e9, count)),
        source in text(),
        attributes in pairs(),
        kinds in Just(kinds),
    ) -> Events {
        let values = if is_whole {
            Values::U64(whole)
        } else {
            Values::F64(whole.into_iter().map(|value| value as f64).collect())
        };
        Events { source, attributes, kinds, kind, values, times_ns, weights }
    }
}

prop_compose! {
    fn batch()(
        signal in 0u32..3,
        items in any::<u64>(),
        otlp in vec(any::<u8>(), 0..50),
        events in vec(events(), 0..3),
    ) -> ExportBatch {
        ExportBatch { signal: Signal::from_number(signal).unwrap(), items, otlp: otlp.into(), events }
    }
}

fn exported(request: Request) -> ExportBatch {
    match request {
        Request::Export(batch) => batch,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn a_batch_crosses_unchanged(batch in batch()) {
        let body = Request::Export(batch.clone()).encode();
        prop_assert_eq!(exported(Request::decode(body.into()).unwrap()), batch);
    }

    #[test]
    fn a_batch_that_was_cut_or_damaged_is_an_error_or_another_sound_batch(
        batch in batch(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut body = Request::Export(batch).encode();
        let cut = at.index(body.len());
        prop_assert!(Request::decode(Bytes::copy_from_slice(&body[..cut])).is_err());
        body[cut] = byte;
        if let Ok(Request::Export(batch)) = Request::decode(body.into()) {
            prop_assert!(batch.events.iter().all(Events::is_sound));
        }
    }

    #[test]
    fn any_bytes_are_an_answer_or_an_error(bytes in vec(any::<u8>(), 0..100)) {
        // Neither panics.
        let _ = Response::decode(bytes.clone().into());
        let _ = Request::decode(bytes.into());
    }
}

#[test]
fn answers_and_setups_cross_unchanged() {
    let answers = [
        Answer::Ok,
        Answer::Partial {
            lost_items: 7,
            why: "seven".to_owned(),
        },
        Answer::Retry {
            after: Some(std::time::Duration::from_millis(5)),
            why: String::new(),
        },
        Answer::Retry {
            after: None,
            why: "later".to_owned(),
        },
        Answer::Refused { why: "no".to_owned() },
        Answer::Invalid {
            why: "odd".to_owned(),
        },
        Answer::TooLarge {
            why: "big".to_owned(),
        },
    ];
    for answer in answers {
        let response = Response::Answered(answer);
        assert_eq!(Response::decode(response.encode().into()).unwrap(), response);
    }
    let wanted = Wanted {
        path: "/a/b.so".into(),
        name: Some("b".to_owned()),
        version: Some(">=1, <3".parse().unwrap()),
    };
    let setup = Setup {
        id: "plugin/b".to_owned(),
        config: "secret".to_owned(),
    };
    let request = Request::Create(wanted.clone(), setup);
    assert!(!format!("{request:?}").contains("secret"));
    let Request::Create(other, setup) = Request::decode(request.encode().into()).unwrap() else {
        panic!("it was one");
    };
    assert_eq!(
        (other, setup.id.as_str(), setup.config.as_str()),
        (wanted, "plugin/b", "secret")
    );
}

#[test]
fn a_frame_may_end_between_and_not_within() {
    let mut wire = Vec::new();
    write(&mut wire, b"one").unwrap();
    write(&mut wire, b"").unwrap();
    let mut from = wire.as_slice();
    assert_eq!(read(&mut from, 3).unwrap().unwrap(), "one");
    assert_eq!(read(&mut from, 3).unwrap().unwrap(), "");
    assert_eq!(read(&mut from, 3).unwrap(), None);
    for cut in 1..7 {
        assert!(read(&mut &wire[..cut], 3).is_err(), "{cut}");
    }
    assert!(read(&mut wire.as_slice(), 2).is_err(), "too long");
    // Four gigabytes that never come take no memory.
    assert!(read(&mut [0xff; 8].as_slice(), usize::MAX).is_err());
}
