// SPDX-License-Identifier: Apache-2.0

//! Finds `file` exporters that write the same file: each would truncate and rename what the other one writes.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf, absolute};

use super::Plan;
use crate::component::files::is_inherited;
use crate::config::{Class, ComponentId, Document, Problems};
use crate::exporters::file;

/// Checks that no two `file` exporters of pipelines write the same file.
pub(super) fn check(plan: &Plan, document: &Document, cx: &mut Problems) {
    let mut writers: HashMap<PathBuf, &ComponentId> = HashMap::new();
    for exporter in document.section(Class::Exporter) {
        let id = &exporter.id;
        let planned = plan.exporters.get(id);
        let is_file = planned.is_some_and(|planned| planned.factory.kind == file::FACTORY.kind);
        let mut pipelines = plan.pipelines.iter();
        let runs = pipelines.any(|pipeline| pipeline.exporters.contains(id));
        let path = exporter.options.get("path").filter(|_| is_file && runs);
        let Some((node, target)) = path.and_then(|node| Some((node, target(Path::new(node.as_text()?))?)))
        else {
            continue;
        };
        match writers.get(&target) {
            Some(first) => cx
                .at(node)
                .help("give each exporter its own `path`, or name one exporter in all pipelines")
                .error(format!(
                    "`{first}` and `{id}` write the same file: {}",
                    node.shown()
                )),
            None => {
                writers.insert(target, id);
            }
        }
    }
}

/// The file that an exporter writes, without links. `None`: several exporters may write it.
fn target(path: &Path) -> Option<PathBuf> {
    // A pipe or a device is never truncated or renamed.
    let is_special = fs::metadata(path).is_ok_and(|about| !about.is_file());
    if is_special || is_inherited(path) {
        return None;
    }
    // A new file has only a directory yet.
    let new = || {
        let directory = path
            .parent()
            .filter(|directory| !directory.as_os_str().is_empty());
        let directory = fs::canonicalize(directory.unwrap_or(Path::new("."))).ok()?;
        Some(directory.join(path.file_name()?))
    };
    let known = fs::canonicalize(path).ok().or_else(new);
    known.or_else(|| absolute(path).ok())
}

#[cfg(test)]
mod tests {
    use crate::commands::load;
    use crate::config::Loader;

    /// The problems of exporters with these paths.
    fn problems(paths: [&str; 2], exporters: &str) -> String {
        let [a, b] = paths;
        let yaml = format!(
            "yaml:
receivers: {{nop: {{}}}}
exporters: {{file/a: {{path: '{a}'}}, file/b: {{path: '{b}', format: proto}}, nop: {{}}}}
service: {{pipelines: {{logs: {{receivers: [nop], exporters: [{exporters}]}}}}}}"
        );
        load::check_loader(Loader::default().config(&yaml))
            .problems
            .to_string()
    }

    #[test]
    fn two_exporters_of_one_file_are_an_error_that_names_both() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let (plain, link) = (path("out.json"), path("link"));
        for other in [plain.clone(), path("./out.json")] {
            let said = problems([&plain, &other], "file/a, file/b");
            let error = "exporters::file/b::path: `file/a` and `file/b` write the same file: \"/";
            assert!(said.contains(error), "{said}");
            assert!(said.contains("give each exporter its own `path`"), "{said}");
        }
        std::fs::write(&plain, "").unwrap();
        std::os::unix::fs::symlink(&plain, &link).unwrap();
        assert!(problems([&plain, &link], "file/a, file/b").contains("write the same file"));
        assert!(!problems([&plain, &path("b")], "file/a, file/b").contains("same file"));
        assert!(
            !problems([&plain, &plain], "file/a, nop").contains("same file"),
            "one does not run"
        );
    }

    #[test]
    fn several_exporters_may_write_standard_output_and_devices() {
        for path in [
            "/dev/stdout",
            "/dev/stderr",
            "/dev/fd/1",
            "/proc/self/fd/2",
            "/dev/null",
        ] {
            let said = problems([path, path], "file/a, file/b");
            assert!(!said.contains("same file"), "{said}");
        }
    }
}
