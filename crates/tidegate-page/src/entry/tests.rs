// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn a_state_has_the_byte_of_the_document() {
    let bytes: Vec<u8> = State::ALL.iter().map(|state| *state as u8).collect();
    assert_eq!(bytes, [1, 2, 3, 4, 5]);
    for state in State::ALL {
        assert_eq!(State::from_byte(state as u8), Some(state));
    }
    for byte in [0, 6, 255] {
        assert_eq!(State::from_byte(byte), None);
    }
}

#[test]
fn words_that_no_writer_writes_are_malformed() {
    let lens = Lens { name: 1, labels: 0 };
    let good = Entry {
        state: State::Fresh,
        ..Entry::default()
    }
    .words(lens);
    assert!(Snapshot::from_words(&good).is_ok());
    for description in [0, 6, 255, 1 | 5 << 8, 1 | 255 << 8] {
        let mut words = good;
        words[0] = description;
        let read = Snapshot::from_words(&words);
        assert_eq!(read, Err(ReadError::Malformed), "{description:#x}");
    }
    let everything = Snapshot::from_words(&[u64::MAX; VALUE_WORDS]);
    assert_eq!(everything, Err(ReadError::Malformed));
}

#[test]
fn an_age_is_never_negative() {
    let entry = Entry {
        newest_ns: Some(1_000),
        ..Entry::default()
    };
    let snapshot = Snapshot::from_words(&entry.words(Lens { name: 0, labels: 0 })).unwrap();
    assert_eq!(snapshot.age(3_500), Some(Duration::from_nanos(2_500)));
    assert_eq!(snapshot.age(0), Some(Duration::ZERO));
}

#[test]
fn a_window_beyond_the_field_is_the_longest_there_is() {
    let entry = Entry {
        window: Duration::MAX,
        ..Entry::default()
    };
    let snapshot = Snapshot::from_words(&entry.words(Lens { name: 0, labels: 0 })).unwrap();
    assert_eq!(snapshot.window, Duration::from_nanos(u64::MAX));
}
