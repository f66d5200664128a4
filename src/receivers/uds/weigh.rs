//! What a message of the event stream takes when it is decoded, told by its bytes before anybody decodes it.

use super::proto;
use crate::batch::wire::proto::{Fields, WireType};

/// Fields of [`proto::EventBatch`] that declare something.
const SOURCE: u32 = 3;
const KINDS: u32 = 4;

/// A declaration of so many bytes may have an attribute, which takes 80, in two of them.
const DECLARED_RATIO: usize = 40;

/// A number of one byte takes 8, in a list that has grown to twice its length, and 8 where the sound ones are picked.
const NUMBERS_RATIO: usize = 24;

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Weighed {
    /// Kinds that it declares.
    pub(super) kinds: usize,
    /// Bytes of kinds and of its source.
    pub(super) declared: usize,
    /// What it takes when it is decoded, at most.
    pub(super) decoded: usize,
}

/// Weighs a message.
///
/// # Errors
/// It is none.
pub(super) fn weigh(message: &[u8]) -> Result<Weighed, &'static str> {
    let mut weighed = Weighed::default();
    for field in Fields::new(message) {
        let field = field?;
        if let (SOURCE | KINDS, WireType::Bytes) = (field.number, field.wire) {
            weighed.declared += field.payload.len();
            weighed.kinds += usize::from(field.number == KINDS);
        }
    }
    let numbers = message.len() - weighed.declared;
    weighed.decoded = weighed.declared * DECLARED_RATIO
        + weighed.kinds * size_of::<proto::Kind>()
        + numbers * NUMBERS_RATIO;
    Ok(weighed)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::KeyValue;
    use prost::Message;

    use super::*;

    #[test]
    fn kinds_are_counted_and_no_decoded_form_is_larger_than_it_weighs() {
        let kind = proto::Kind {
            name: "a".to_owned(),
            attributes: vec![KeyValue::default(); 1000],
            ..Default::default()
        };
        let batch = proto::EventBatch {
            kinds: vec![kind; 5],
            events: vec![1; 1000],
            integers: vec![1; 1000],
            ..Default::default()
        };
        let weighed = weigh(&batch.encode_to_vec()).unwrap();
        assert_eq!(weighed.kinds, 5);
        assert!(weighed.declared > 5 * 2000 && weighed.declared < 5 * 2010);
        let takes = 5 * (size_of::<proto::Kind>() + 1000 * size_of::<KeyValue>()) + 1000 * (4 + 8);
        assert!(weighed.decoded >= takes, "{} < {takes}", weighed.decoded);
    }

    #[test]
    fn no_message_is_an_error_and_an_empty_one_is_none() {
        assert_eq!(weigh(&[]), Ok(Weighed::default()));
        assert!(weigh(&[3, 0xff]).is_err());
    }
}
