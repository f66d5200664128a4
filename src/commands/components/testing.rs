// SPDX-License-Identifier: Apache-2.0

//! The code of components, for tests that compare it with the reference.

use std::path::Path;

use crate::config::Class;

/// The root of the repository.
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The code in the folder of a component, without its tests. `None`: it has no folder of that name.
pub(super) fn code_of_component(class: Class, kind: &str) -> Option<String> {
    let folder = Path::new(ROOT).join("src").join(class.section()).join(kind);
    folder.is_dir().then(|| {
        let mut code = String::new();
        add_code(&folder, &mut code);
        code
    })
}

/// The code of the gateway and its crates, without tests and without the lists of errors.
pub(super) fn code_without_errors() -> String {
    let mut code = String::new();
    add_code(&Path::new(ROOT).join("src"), &mut code);
    for krate in std::fs::read_dir(Path::new(ROOT).join("crates")).unwrap() {
        let source = krate.unwrap().path().join("src");
        if source.is_dir() {
            add_code(&source, &mut code);
        }
    }
    let (mut kept, mut is_list) = (String::new(), false);
    for line in code.lines() {
        is_list |= line.contains(": &[ErrorDoc] = &[");
        if !is_list {
            kept.push_str(line);
            kept.push('\n');
        }
        is_list &= !line.ends_with("];");
    }
    kept
}

/// Adds the code of a folder without its tests.
fn add_code(folder: &Path, code: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let is_test = entry.file_name().to_string_lossy().contains("test");
        if path.is_dir() && !is_test {
            add_code(&path, code);
        } else if !is_test && path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            // Tests of a file stand at its end.
            code.push_str(text.split("#[cfg(test)]\nmod tests {").next().unwrap());
        }
    }
}
