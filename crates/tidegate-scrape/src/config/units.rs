// SPDX-License-Identifier: Apache-2.0

//! Values in Prometheus's spelling: `10MB`, and scalars of any kind as text.

use tidegate_config::{ByteSize, Decode, Node, Problems, TypeHelp, YamlType, wrong_type};
pub use tidegate_prometheus::relabel::ScalarText;

/// A number of bytes in Prometheus's spelling, where `KB` is 1,024 bytes as well as `KiB`; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PromBytes(pub u64);

/// `B`, and a thousand times 1,024 each further letter.
const PREFIXES: &str = "KMGTPE";

impl PromBytes {
    fn parse(text: &str) -> Option<Self> {
        let number_bytes = text
            .bytes()
            .take_while(|c| c.is_ascii_digit() || *c == b'.')
            .count();
        let (number, unit) = text.split_at(number_bytes);
        let number: f64 = number.parse().ok()?;
        let unit = unit.trim();
        let factor = match unit.strip_suffix("iB").or_else(|| unit.strip_suffix('B')) {
            _ if unit.is_empty() => 1.0,
            Some("") => 1.0,
            Some(prefix) => {
                let power = PREFIXES.find(prefix).filter(|_| prefix.len() == 1)? + 1;
                1024f64.powi(i32::try_from(power).ok()?)
            }
            None => return None,
        };
        let bytes = number * factor;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "in range by the test before"
        )]
        (bytes.is_finite() && bytes < 9.2e18).then_some(Self(bytes as u64))
    }
}

impl Decode for PromBytes {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        match node.as_text().and_then(Self::parse) {
            Some(size) => Some(size),
            None => wrong_type(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        let with_unit = YamlType::Pattern("^[0-9.]+ *[A-Za-z]*$");
        TypeHelp::like("size in bytes", "10MB").accepting(YamlType::AnyOf(vec![YamlType::Number, with_unit]))
    }

    fn show(&self) -> String {
        ByteSize(self.0).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_whatever_the_unit() {
        let table = [
            ("0", Some(0)),
            ("10MB", Some(10 << 20)),
            ("10MiB", Some(10 << 20)),
            ("1.5KB", Some(1536)),
            ("7B", Some(7)),
            ("1 GB", Some(1 << 30)),
            ("10M", None),
            ("MB", None),
            ("1XB", None),
            ("99999999999EB", None),
        ];
        for (text, expected) in table {
            assert_eq!(PromBytes::parse(text).map(|size| size.0), expected, "{text}");
        }
    }
}
