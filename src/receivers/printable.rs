// SPDX-License-Identifier: Apache-2.0

//! Names from outside in the log. A user who may make a file could write lines of the log with its name.

use std::path::Path;

/// The text without control characters, which could begin another line or set colours.
pub(super) fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            printable.extend(c.escape_default());
        } else {
            printable.push(c);
        }
    }
    printable
}

/// The same for a path.
pub(super) fn printable_path(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_no_line_and_sets_no_colour() {
        assert_eq!(
            printable_path(Path::new("/run/é x\n\u{1b}[31mERROR\r")),
            "/run/é x\\n\\u{1b}[31mERROR\\r"
        );
    }
}
