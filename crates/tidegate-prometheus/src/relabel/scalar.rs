// SPDX-License-Identifier: Apache-2.0

//! Scalars of any kind as text.

use tidegate_config::{Decode, Node, Problems, TypeHelp, YamlType, wrong_type};

/// A scalar as text, because Prometheus accepts `regex: true` and `replacement: 1`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ScalarText(pub String);

impl Decode for ScalarText {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        match node.as_text() {
            Some(text) => Some(Self(text.to_owned())),
            None => wrong_type(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain("string").accepting(YamlType::Scalar)
    }

    fn show(&self) -> String {
        self.0.show()
    }
}
