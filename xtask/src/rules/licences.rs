// SPDX-License-Identifier: Apache-2.0

//! Licences: each source begins with the line that names its licence.

use std::path::Path;

use super::{Breach, files};

/// Files and directories with sources.
const SOURCES: &[&str] = &[
    "bench", "benches", "build.rs", "crates", "deploy", "examples", "fuzz", "python", "src", "tests", "xtask",
];

/// The extensions of sources, each with the sign of a comment.
const EXTENSIONS: &[(&str, &str)] = &[
    ("c", "//"),
    ("cc", "//"),
    ("cpp", "//"),
    ("go", "//"),
    ("h", "//"),
    ("hpp", "//"),
    ("py", "#"),
    ("rs", "//"),
    ("sh", "#"),
];

const LICENCE: &str = "SPDX-License-Identifier: Apache-2.0";

/// Checks the licences of all sources.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn check(root: &Path) -> Result<Vec<Breach>, String> {
    let mut breaches = Vec::new();
    for (extension, comment) in EXTENSIONS {
        for place in SOURCES {
            let files = files(root, place, extension)?;
            breaches.extend(
                files
                    .iter()
                    .filter_map(|(path, text)| of_file(path, text, comment)),
            );
        }
    }
    Ok(breaches)
}

fn of_file(path: &str, text: &str, comment: &str) -> Option<Breach> {
    (!has_licence(text)).then(|| Breach {
        at: path.to_owned(),
        message: format!("the licence is missing: begin the file with `{comment} {LICENCE}`"),
    })
}

/// Whether the first line names the licence. The line that names an interpreter may precede it.
fn has_licence(text: &str) -> bool {
    let mut lines = text.lines().skip_while(|line| line.starts_with("#!/"));
    lines.next().is_some_and(|line| {
        let comments = ["// ", "/* ", "# "];
        let content = comments.iter().find_map(|comment| line.strip_prefix(comment));
        content.is_some_and(|content| content.trim_end_matches("*/").trim_end() == LICENCE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_after_an_interpreter_names_the_licence() {
        let table = [
            ("// SPDX-License-Identifier: Apache-2.0\n\nfn a() {}", true),
            ("# SPDX-License-Identifier: Apache-2.0", true),
            (
                "#!/usr/bin/env python3\n# SPDX-License-Identifier: Apache-2.0\n",
                true,
            ),
            ("/* SPDX-License-Identifier: Apache-2.0\n * More. */", true),
            ("/* SPDX-License-Identifier: Apache-2.0 */\n", true),
            ("", false),
            ("fn a() {}", false),
            ("#!/usr/bin/env python3\nprint()", false),
            ("\n// SPDX-License-Identifier: Apache-2.0", false),
            ("// SPDX-License-Identifier: Apache-2.0 OR MIT", false),
            ("let a = \"SPDX-License-Identifier: Apache-2.0\";", false),
        ];
        for (text, expected) in table {
            assert_eq!(has_licence(text), expected, "{text}");
        }
    }

    #[test]
    fn a_source_without_a_licence_is_a_breach() {
        let breach = of_file("python/a.py", "import os\n", "#").unwrap();
        assert_eq!(
            breach.to_string(),
            "python/a.py: the licence is missing: begin the file with `# SPDX-License-Identifier: Apache-2.0`"
        );
        assert_eq!(
            of_file("src/a.rs", "// SPDX-License-Identifier: Apache-2.0\n", "//"),
            None
        );
    }
}
