// SPDX-License-Identifier: Apache-2.0

//! Text that is not UTF-8.

use super::*;
use crate::{Encoded, convert};

/// A request with one gauge of one point. Its name and attributes are not UTF-8.
fn not_utf8() -> Encoded {
    let text = |bytes: &[u8]| {
        let mut value = Vec::new();
        push_message(&mut value, 1, bytes);
        value
    };
    let mut label = text(b"cut\xe2\x82");
    push_message(&mut label, 2, &text(b"\xffvalue"));
    let (mut point, mut gauge, mut metric) = (Vec::new(), Vec::new(), text(b"na\xffme"));
    push_message(&mut point, 7, &label);
    push_message(&mut gauge, 1, &point);
    push_message(&mut metric, 5, &gauge);
    check(Signal::Metrics, request_of(vec![metric], Vec::new()).into()).unwrap()
}

#[test]
fn text_that_is_no_utf8_costs_nothing_and_has_replacement_characters() {
    let point = convert::points(&not_utf8()).unwrap().remove(0);
    assert_eq!(&*point.series.metric.name, "na\u{fffd}me");
    assert_eq!(
        point.series.attributes,
        [("cut\u{fffd}", "\u{fffd}value")].into_iter().collect()
    );
}

#[test]
fn text_that_is_not_utf8_passes_unchanged_without_a_decoder() {
    let before = not_utf8();
    let after = walk::edit(&before, &mut NoOpVisitor).unwrap();
    assert_eq!(after.parts[0].bytes, before.parts[0].bytes);
}

#[test]
fn attributes_on_the_wire_read_as_decoded_ones_where_they_are_no_utf8() {
    struct Labels(Vec<(String, Option<tidegate_engine::AttributeValue>)>);
    impl walk::Visitor for Labels {
        fn item(&mut self, item: &walk::Item<'_>, editor: &mut crate::wire::edit::Editor<'_>) -> bool {
            use crate::wire::attributes::{AttributeSet, WireAttributes};
            let set = WireAttributes::read(item.message, item.kind.attributes_field(), editor);
            self.0 = set
                .keys()
                .into_iter()
                .map(|key| (key.clone(), set.get(&key)))
                .collect();
            true
        }
    }
    let mut labels = Labels(Vec::new());
    walk::edit(&not_utf8(), &mut labels).unwrap();
    assert_eq!(
        labels.0,
        [("cut\u{fffd}".to_owned(), Some("\u{fffd}value".into()))]
    );
}
