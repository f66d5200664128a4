// SPDX-License-Identifier: Apache-2.0

//! `config fmt`: files in canonical layout.

use std::fs;
use std::path::{Path, PathBuf};

use crate::commands::{Failure, output};
use crate::config::{Problems, format_text, read_file};
use crate::print_line;

/// Arguments of `config fmt`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Sections are in this order: receivers, processors, exporters, connectors, extensions, service. \
Indentation is two spaces a level. Comments, blank lines, quotes and anchors stay. The command compares the meaning \
before and after, and refuses a file if they differ.\n\nExit code 0 when all files have or get this layout, 1 \
otherwise.\n\nExamples:\n  tidegate config fmt gateway.yaml\n  tidegate config fmt --write *.yaml\n  \
tidegate config fmt --check *.yaml"
)]
pub(super) struct FmtArgs {
    /// Change nothing. Name the files that have another layout, and exit with code 1 if there are any
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Change the files. Without it, the command prints one file in the new layout
    #[arg(long)]
    write: bool,
    /// The files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// The result for one file.
enum FileLayout {
    /// The file has the canonical layout.
    Same(String),
    /// The text in the canonical layout.
    Other(String),
}

/// Formats all files, and reports those that it can't format.
pub(super) fn run(args: &FmtArgs) -> Result<(), Failure> {
    if args.files.len() > 1 && !args.check && !args.write {
        let message = "several files need `--write`, which changes them, or `--check`";
        return Err(Failure::Message(message.to_owned()));
    }
    let mut is_good = true;
    for file in &args.files {
        is_good &= match layout(file) {
            Ok(layout) => finish(args, file, &layout)?,
            Err(report) => {
                eprint!("{report}");
                false
            }
        };
    }
    if is_good { Ok(()) } else { Err(Failure::Reported) }
}

/// Prints or writes a file in its new layout. Whether that is a success.
fn finish(args: &FmtArgs, file: &Path, layout: &FileLayout) -> Result<bool, Failure> {
    match layout {
        FileLayout::Other(_) if args.check => {
            print_line!("{}", file.display());
            Ok(false)
        }
        FileLayout::Other(text) if args.write => {
            fs::write(file, text).map_err(Failure::io(format!("can't write {}", file.display())))?;
            Ok(true)
        }
        FileLayout::Same(_) if args.check || args.write => Ok(true),
        FileLayout::Same(text) | FileLayout::Other(text) => {
            output::print(format_args!("{text}"));
            Ok(true)
        }
    }
}

/// The layout of a file, or the report of what is wrong with it.
fn layout(file: &Path) -> Result<FileLayout, String> {
    let name = file.display();
    let text = read_file(file).map_err(|error| format!("tidegate: can't read {name}: {error}\n"))?;
    let mut problems = Problems::default();
    match format_text(&name.to_string(), &text, &mut problems) {
        Some(formatted) if formatted == text => Ok(FileLayout::Same(text)),
        Some(formatted) => Ok(FileLayout::Other(formatted)),
        None => Err(problems.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_has_the_canonical_layout() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
        let mut files = 0;
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().ends_with(".test.yaml") {
                continue;
            }
            assert!(
                matches!(layout(&path), Ok(FileLayout::Same(_))),
                "{}",
                path.display()
            );
            files += 1;
        }
        assert!(files > 10, "{files} files");
    }

    #[test]
    fn a_file_that_is_not_yaml_is_reported_with_its_name() {
        let directory = tempfile::TempDir::new().unwrap();
        let file = directory.path().join("broken.yaml");
        fs::write(&file, "receivers: [").unwrap();
        let Err(report) = layout(&file) else {
            panic!("a broken file has no layout");
        };
        assert!(
            report.contains("broken.yaml:1:") && report.contains("not valid YAML"),
            "{report}"
        );
        assert!(layout(&directory.path().join("nosuch.yaml")).is_err());
    }
}
