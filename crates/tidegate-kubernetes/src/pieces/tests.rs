// SPDX-License-Identifier: Apache-2.0

use proptest::prelude::*;
use tidegate_runtime::Limit;

use super::*;

const MOST: usize = 64;

fn shown(piece: Piece<'_>) -> String {
    match piece {
        Piece::Whole(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Piece::Skipped(why, beginning) => format!("{why:?} {}", beginning.len()),
    }
}

/// The lines of a text that arrives in chunks of this size.
fn lines(text: &[u8], chunk_bytes: usize) -> Vec<String> {
    let mut lines = Lines::new(Arc::default(), MOST);
    let mut found = Vec::new();
    for chunk in text.chunks(chunk_bytes) {
        lines.feed(chunk, |piece| found.push(shown(piece)));
    }
    found
}

/// The objects and the head of a page that arrives in chunks of this size.
fn page(text: &str, chunk_bytes: usize) -> Result<(Vec<String>, String), PageError> {
    let mut reader = PageReader::new(Arc::default(), MOST);
    let mut found = Vec::new();
    for chunk in text.as_bytes().chunks(chunk_bytes) {
        reader.feed(chunk, |piece| found.push(shown(piece)))?;
    }
    Ok((found, String::from_utf8_lossy(reader.head()).into_owned()))
}

#[test]
fn a_line_over_the_limit_is_skipped_and_the_next_one_is_read() {
    let text = format!("one\n\n{}\ntwo\nunfinished", "x".repeat(10_000));
    for chunk_bytes in [1, 7, 100_000] {
        let found = lines(text.as_bytes(), chunk_bytes);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!((found[0].as_str(), found[2].as_str()), ("one", "two"));
        assert!(found[1].starts_with("TooLarge "), "{found:?}");
    }
}

#[test]
fn objects_of_a_page_come_one_by_one_whatever_the_chunks() {
    let text = r#"{"kind":"PodList","metadata":{"resourceVersion":"7","items":["x"]},"items":[
        {"a":"}]\"{","b":[{"c":1}]}, {} ],"other":{"items":[{}]}}"#;
    for chunk_bytes in 1..text.len() {
        let (objects, head) = page(text, chunk_bytes).unwrap();
        assert_eq!(objects, [r#"{"a":"}]\"{","b":[{"c":1}]}"#, "{}"]);
        let head: serde_json::Value = serde_json::from_str(&head).unwrap();
        assert_eq!(head["metadata"]["resourceVersion"], "7");
        assert_eq!(head["items"], serde_json::json!([]));
    }
}

#[test]
fn an_object_over_the_limit_is_skipped_and_the_page_goes_on() {
    let text = format!(r#"{{"items":[{{"a":"{}"}},{{"b":1}}]}}"#, "x".repeat(500));
    let (objects, _) = page(&text, 9).unwrap();
    assert!(objects[0].starts_with("TooLarge "), "{objects:?}");
    assert_eq!(objects[1], r#"{"b":1}"#);
}

#[test]
fn answers_that_are_no_page_are_refused() {
    for text in [r#"{"items":[1]}"#, r#"{"items":["a"]}"#, "}", r#"{"items":[[]]}"#] {
        assert_eq!(page(text, 3), Err(PageError::Malformed), "{text}");
    }
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(70_000));
    assert_eq!(page(&long, 1_000), Err(PageError::Head));
}

#[test]
fn a_piece_without_memory_is_skipped_and_gives_back_what_it_had() {
    let account = Arc::<Account>::default();
    account.add_limit(Limit::of(1 << 20));
    let mut lines = Lines::new(account.clone(), 8 << 20);
    let mut found = Vec::new();
    lines.feed(&vec![b'x'; 700_000], |_| {});
    lines.feed(&vec![b'x'; 700_000], |_| {});
    lines.feed(b"\nshort\n", |piece| found.push(shown(piece)));
    assert!(found[0].starts_with("NoMemory "), "{found:?}");
    assert_eq!(found[1], "short");
    assert!(account.reserved_bytes() <= KEPT_BYTES);
    drop(lines);
    assert_eq!(account.reserved_bytes(), 0);
}

proptest! {
    #[test]
    fn bytes_of_any_kind_neither_panic_nor_grow(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..40)
    ) {
        let account = Arc::<Account>::default();
        let mut reader = PageReader::new(account.clone(), MOST);
        let mut lines = Lines::new(account.clone(), MOST);
        for chunk in &chunks {
            lines.feed(chunk, |_| {});
            if reader.feed(chunk, |_| {}).is_err() {
                break;
            }
        }
        prop_assert!(account.reserved_bytes() <= 2 * (BEGINNING_BYTES + 4 * MOST));
    }
}
