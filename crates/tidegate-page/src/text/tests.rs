// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn labels_are_sorted_and_escaped() {
    assert_eq!(canonical_labels(&[]), "");
    assert_eq!(canonical_labels(&[("b", "2"), ("a", "1")]), r#"a="1",b="2""#);
    assert_eq!(canonical_labels(&[("k", "a\\b\"c\nd")]), r#"k="a\\b\"c\nd""#);
    assert_eq!(canonical_labels(&[("k", "größe")]), "k=\"größe\"");
}

#[test]
fn text_fills_words_without_a_gap_and_zeros_the_rest() {
    let text = Text::new("name", "label").unwrap();
    assert_eq!(text.words[0].to_le_bytes(), *b"namelabe");
    assert_eq!(text.words[1].to_le_bytes(), *b"l\0\0\0\0\0\0\0");
    assert_eq!((text.used, text.words[2]), (2, 0));
    assert_eq!(text.lens, Lens { name: 4, labels: 5 });
}

#[test]
fn what_does_not_fit_is_refused_and_never_cut() {
    let long = "x".repeat(TEXT_SIZE);
    assert_eq!(Text::new(&long, "").unwrap().used, TEXT_WORDS);
    assert_eq!(Text::new(&long[1..], "y").unwrap().lens.labels, 1);
    assert_eq!(Text::new(&long, "y").unwrap_err(), SetError::TooLong { len: 513 });
    let longer = "x".repeat(70_000);
    assert_eq!(Lens::of("a", &longer), Err(SetError::TooLong { len: 70_001 }));
}
