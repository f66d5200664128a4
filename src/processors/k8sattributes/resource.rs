// SPDX-License-Identifier: Apache-2.0

//! The attributes of a resource, on the wire or decoded.

use tidegate_engine::{AttributeRef, AttributeValue, Attributes};

use crate::batch::wire::attributes::{text_of, value_of};
use crate::processors::editing::RESOURCE_ATTRIBUTES;

/// The attributes of a resource.
pub(super) trait ResourceTexts {
    /// The text of an attribute, without a copy. `None`: it is missing, empty or no text.
    fn text(&self, key: &str) -> Option<&str>;

    /// The value of an attribute.
    fn value(&self, key: &str) -> Option<AttributeValue>;
}

/// A resource in OTLP.
pub(super) struct WireResource<'a>(pub(super) &'a [u8]);

impl ResourceTexts for WireResource<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        text_of(self.0, RESOURCE_ATTRIBUTES, key)
    }

    fn value(&self, key: &str) -> Option<AttributeValue> {
        value_of(self.0, RESOURCE_ATTRIBUTES, key)
    }
}

impl ResourceTexts for Attributes {
    fn text(&self, key: &str) -> Option<&str> {
        self.get(key)
            .and_then(AttributeRef::as_str)
            .filter(|text| !text.is_empty())
    }

    fn value(&self, key: &str) -> Option<AttributeValue> {
        self.get(key).map(AttributeRef::to_value)
    }
}
