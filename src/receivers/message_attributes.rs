// SPDX-License-Identifier: Apache-2.0

//! Headers of messages that become resource attributes.

use tidegate_engine::{AttributeRef, AttributeValue, AttributesBuilder};

use crate::batch::wire::attributes::{AttributeSet, WireAttributes};
use crate::batch::wire::edit::{Editor, push_message};
use crate::batch::wire::proto::Fields;
use crate::batch::wire::walk::{self, HEADER, Header, Visitor};
use crate::batch::{Encoded, wire};
use crate::config::{Node, Problems};

crate::options! {
    /// `header_extraction`.
    pub struct HeaderExtraction {
        /// Whether headers become resource attributes: `kafka.header.NAME` or `nats.header.NAME`.
        pub extract_headers: bool = false,
        /// Names of the headers.
        pub headers: Vec<String> = Vec::new(),
    }
}

impl HeaderExtraction {
    /// The names of the headers that become resource attributes.
    pub(super) fn names(&self) -> &[String] {
        if self.extract_headers { &self.headers } else { &[] }
    }

    pub(super) fn check(&self, at: &Node, cx: &mut Problems) {
        if self.extract_headers && self.headers.is_empty() {
            cx.at(at).error("`headers` must name at least one header");
        }
    }
}

/// The bytes of an attribute beside its name and value: tags, lengths, and the messages around it.
const ATTRIBUTE_BYTES: usize = 32;

/// The field number of the resources of a request.
const RESOURCES: u32 = 1;

/// The field number of the attributes of a resource.
const ATTRIBUTES: u32 = 1;

/// The most bytes that attributes add to a request.
pub(super) fn room(encoded: &Encoded, attributes: &[(String, String)]) -> usize {
    let each = attributes
        .iter()
        .map(|(name, value)| name.len() + value.len() + ATTRIBUTE_BYTES);
    each.sum::<usize>().saturating_mul(resources(encoded))
}

/// The number of resources of a request. The walk takes no memory.
fn resources(encoded: &Encoded) -> usize {
    let of_part = |bytes| {
        let fields = Fields::new(bytes).map_while(Result::ok);
        fields.filter(|field| field.number == RESOURCES).count()
    };
    encoded.parts.iter().map(|part| of_part(&part.bytes)).sum()
}

/// Adds attributes to all resources.
///
/// # Errors
/// The request is not valid.
pub(super) fn annotate(
    encoded: &Encoded,
    attributes: &[(String, String)],
) -> Result<Encoded, wire::WireError> {
    struct Annotating<'a>(&'a [(String, String)]);
    impl Visitor for Annotating<'_> {
        fn resource(&mut self, resource: &Header<'_>, editor: &mut Editor<'_>) -> bool {
            if let Some(at) = resource.missing_at {
                editor.insert(at, &encoded_resource(self.0));
                return true;
            }
            let mut set = WireAttributes::read(resource.message, ATTRIBUTES, editor);
            for (name, value) in self.0 {
                set.set(name, AttributeValue::from(value.clone()));
            }
            set.write(editor);
            true
        }
    }
    walk::edit(encoded, &mut Annotating(attributes))
}

/// A whole `resource` field.
fn encoded_resource(attributes: &[(String, String)]) -> Vec<u8> {
    let mut builder = AttributesBuilder::default();
    for (name, value) in attributes {
        builder.push(name, AttributeRef::Str(value));
    }
    let mut field = Vec::new();
    push_message(&mut field, HEADER, builder.finish().encoded());
    field
}
