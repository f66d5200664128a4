// SPDX-License-Identifier: Apache-2.0

//! Plain attributes: the short way sees what the long one sees.

use proptest::prelude::*;
use prost::Message as _;
use tidegate_requests::attribute;

use super::*;
use crate::schema;
use crate::wire::MAX_ELEMENTS;
use crate::wire::check::found::CheckFindings;
use crate::wire::proto::delimited;

/// A field of a data point, and something behind it.
fn under_a_tag(attribute: &[u8]) -> Vec<u8> {
    let length = u8::try_from(attribute.len()).unwrap();
    [&[TAG, length], attribute, BEHIND].concat()
}

const TAG: u8 = 0x3a;
const BEHIND: &[u8] = &[TAG, 0x7f, 0x0a];

/// Where the short way sees an attribute, the long way must see one of the same length.
fn is_seen_alike(bytes: &[u8]) -> bool {
    let Some(next) = after_plain_attribute(TAG, bytes) else {
        return true;
    };
    let Some((attribute, behind)) = delimited(&bytes[1..]) else {
        return false;
    };
    let mut found = CheckFindings::within(MAX_ELEMENTS);
    let looked = found.check(&schema::KEY_VALUE, attribute, 0);
    bytes[0] == TAG && next == behind && looked.is_ok() && !found.in_pieces && found.tally.items() == 0
}

/// The test changes each byte to each value: the short way could misread lengths and tags.
#[test]
fn no_byte_makes_a_plain_attribute_of_an_unsound_one() {
    let forwards = attribute("key", "\x01\x0a\x01a").encode_to_vec();
    let mut backwards = forwards.clone();
    backwards.rotate_left(2 + "key".len());
    for whole in [forwards, backwards].map(|attribute| under_a_tag(&attribute)) {
        assert_eq!(after_plain_attribute(TAG, &whole), Some(BEHIND));
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                assert!(is_seen_alike(&bytes), "{bytes:?}");
                assert!(is_seen_alike(&bytes[..at]), "{:?}", &bytes[..at]);
            }
        }
    }
}

#[test]
fn a_run_of_plain_attributes_ends_where_another_field_begins() {
    let one = under_a_tag(&attribute("key", "value").encode_to_vec());
    let one = &one[..one.len() - BEHIND.len()];
    let other = [0x32, 0];
    let bytes = [one, one, one, &other, one].concat();
    let mut tally = Tally::default();
    let mut after = |bytes: &[u8]| after_plain_attributes(TAG, bytes, &mut tally).map(<[u8]>::to_vec);
    assert_eq!(after(&bytes), Some([&other, one].concat()));
    assert_eq!(after(&other), None);
    assert_eq!(after(&one.repeat(3)), Some(Vec::new()));
    assert_eq!(tally.elements(), 6);
}

proptest! {
    /// The short way never says more than the long one, whatever is changed in an attribute.
    #[test]
    fn what_looks_like_a_plain_attribute_is_a_sound_one(
        key in "[a-z.]{0,140}",
        value in ".{0,50}",
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        backwards in any::<bool>(),
    ) {
        let mut whole = attribute(&key, &*value).encode_to_vec();
        prop_assume!(whole.len() < 256);
        let (is_short, wanted_key) = (whole.len() < 128, if backwards { 2 } else { 1 });
        if backwards && !key.is_empty() {
            whole.rotate_left(2 + key.len());
        }
        let mut bytes = under_a_tag(&whole);
        let is_plain = after_plain_attribute(TAG, &bytes) == Some(BEHIND);
        prop_assert_eq!(is_plain, is_short && key.len() >= wanted_key);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1).max(bytes.len().saturating_sub(3)));
        prop_assert!(bytes.is_empty() || is_seen_alike(&bytes), "{:?}", bytes);
    }
}
