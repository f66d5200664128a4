// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask bench instructions`: the cost of an item on each of the hottest paths, in instructions, compared with
//! `benches/instructions.txt`.
//!
//! Seconds tell little on a machine that others use; instructions, counted by valgrind's callgrind, are the same each
//! time. They depend on what compiled the code and on the C library: the table says with which they were counted, and
//! nothing is held against counts of other ones.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::bench::{self, COUNTED};
use crate::progress::LongTask;
use crate::{Outcome, process, test::workspace, testenv};

const BLESS: &str = "--bless";
const PROGRAM: &str = "tidegate-instructions";

/// The tolerated increase of a path's count over the table, in percent, unless its row says otherwise.
const TOLERANCE: f64 = 5.0;

/// The comment of the table that says what the counts are of.
const COUNTED_WITH: &str = "# Counted with ";

/// Counts, and fails where a path has become dearer; `--bless` makes what was counted the table.
pub(crate) fn bench(arguments: &[String]) -> Outcome {
    let bless = match arguments {
        [] => false,
        [only] if only == BLESS => true,
        _ => return Err(format!("the only argument is {BLESS}")),
    };
    testenv::setup(&[])?;
    let program = build()?;
    let counted = InstructionCounts {
        tools: tools()?,
        rows: count(&program)?,
    };
    let file = workspace().join("benches/instructions.txt");
    let describe = |error| format!("{}: {error}", file.display());
    let known = InstructionCounts::parse(&fs::read_to_string(&file).map_err(describe)?)?;
    let (report, outcome) = compare(&known, &counted);
    print!("{report}");
    if bless {
        fs::write(&file, counted.with_tolerances_of(&known).to_string()).map_err(describe)
    } else {
        outcome
    }
}

fn build() -> Result<PathBuf, String> {
    process::stream(&mut cargo_build())?;
    Ok(process::target().join(COUNTED).join(PROGRAM))
}

/// Starts the build with the time that other processes leave. A later build waits for it, and shows its errors.
pub(crate) fn build_in_background() -> Result<Child, String> {
    process::start_in_background(&cargo_build())
}

fn cargo_build() -> Command {
    let mut cargo = bench::harness_cargo("build", COUNTED);
    cargo.args(["--bin", PROGRAM]);
    cargo
}

/// The versions of the tools that the counts depend on beside the code.
fn tools() -> Result<String, String> {
    let first_line = |command: &mut Command| -> Result<String, String> {
        let (printed, ended) = process::printed(command)?;
        ended.map(|()| printed.lines().next().unwrap_or_default().to_owned())
    };
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let tools = [
        first_line(process::by_hand(rustc).arg("--version"))?,
        std::env::consts::ARCH.to_owned(),
        first_line(Command::new("getconf").arg("GNU_LIBC_VERSION"))?,
        first_line(valgrind().arg("--version"))?,
    ];
    Ok(tools.join(", "))
}

/// Valgrind as it was unpacked for the tests.
fn valgrind() -> Command {
    let part = testenv::directory().join("valgrind/usr");
    let mut valgrind = process::by_hand(part.join("bin/valgrind"));
    valgrind.env("VALGRIND_LIB", part.join("libexec/valgrind"));
    valgrind
}

/// Every path that the program has.
fn count(program: &Path) -> Result<Vec<Row>, String> {
    let (paths, ended) = process::printed(&mut process::by_hand(program))?;
    ended?;
    let paths: Vec<&str> = paths.lines().collect();
    let row = |(index, path): (usize, &&str)| {
        let task = LongTask::new(format!("instructions of {path}")).step(index + 1, paths.len());
        let _progress = task.begin(String::new);
        Ok(Row {
            path: (*path).to_owned(),
            instructions: instructions_an_item(program, path)?,
            tolerance: TOLERANCE,
        })
    };
    paths.iter().enumerate().map(row).collect()
}

fn instructions_an_item(program: &Path, path: &str) -> Result<f64, String> {
    let profile = program.with_file_name(format!("callgrind.{path}"));
    let mut command = valgrind();
    command
        .args(["--quiet", "--tool=callgrind", "--toggle-collect=*counted*"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program)
        .arg(path);
    let (items, ended) = process::printed(&mut command)?;
    ended?;
    let found = fs::read_to_string(&profile).map_err(|error| format!("{}: {error}", profile.display()))?;
    let total = found.lines().find_map(|line| line.strip_prefix("totals: "));
    let total: Option<f64> = total.and_then(|total| total.parse().ok());
    let items: Option<f64> = items.trim().parse().ok();
    match (total, items) {
        (Some(total), Some(items)) if total > 0.0 && items > 0.0 => Ok(total / items),
        _ => Err(format!("nothing was counted of {path}")),
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Row {
    path: String,
    /// An item.
    instructions: f64,
    /// Percent.
    tolerance: f64,
}

#[derive(Clone, Debug, PartialEq)]
struct InstructionCounts {
    /// The versions of the tools that the counts depend on.
    tools: String,
    rows: Vec<Row>,
}

impl InstructionCounts {
    fn parse(text: &str) -> Result<Self, String> {
        let tools = text.lines().find_map(|line| line.strip_prefix(COUNTED_WITH));
        let rows = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        let row = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [path, instructions, tolerance] = fields[..] else {
                return None;
            };
            Some(Row {
                path: path.to_owned(),
                instructions: instructions.parse().ok()?,
                tolerance: tolerance.parse().ok()?,
            })
        };
        Ok(Self {
            tools: tools.unwrap_or_default().trim_end_matches('.').to_owned(),
            rows: rows
                .map(|line| {
                    row(line).ok_or_else(|| {
                        format!("`{line}` is not a row: expected path, instructions, tolerance")
                    })
                })
                .collect::<Result<_, _>>()?,
        })
    }

    fn row(&self, path: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.path == path)
    }

    fn with_tolerances_of(mut self, known: &Self) -> Self {
        for row in &mut self.rows {
            row.tolerance = known.row(&row.path).map_or(TOLERANCE, |known| known.tolerance);
        }
        self
    }
}

impl std::fmt::Display for InstructionCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "# Written by `cargo xtask bench instructions {BLESS}`; docs/measuring.md says what it is for."
        )?;
        writeln!(f, "{COUNTED_WITH}{}.", self.tools)?;
        writeln!(
            f,
            "# path, instructions an item, how many percent more are let pass"
        )?;
        self.rows
            .iter()
            .try_for_each(|row| writeln!(f, "{:20} {:10.1} {:4}", row.path, row.instructions, row.tolerance))
    }
}

/// The report, and whether the comparison is a failure.
fn compare(known: &InstructionCounts, counted: &InstructionCounts) -> (String, Outcome) {
    let (mut report, mut wrong, mut cheaper) = (String::new(), Vec::new(), false);
    for row in &counted.rows {
        let _ = write!(
            report,
            "{:20} {:10.1} instructions an item",
            row.path, row.instructions
        );
        let Some(before) = known.row(&row.path) else {
            wrong.push(format!("{} is not in the table", row.path));
            report.push('\n');
            continue;
        };
        let change = (row.instructions / before.instructions - 1.0) * 100.0;
        let _ = writeln!(report, ", {change:+.1} %");
        if change > before.tolerance {
            wrong.push(format!(
                "{} costs {:.1} instructions an item instead of {:.1}",
                row.path, row.instructions, before.instructions
            ));
        }
        cheaper |= change < -before.tolerance;
    }
    let gone = known.rows.iter().filter(|row| counted.row(&row.path).is_none());
    wrong.extend(gone.map(|row| format!("{} is in the table, but no path any more", row.path)));
    let bless = format!("`cargo xtask bench instructions {BLESS}`");
    if known.tools != counted.tools {
        let _ = writeln!(
            report,
            "The table was counted with {}, this with {}: they say nothing of each other. {bless} makes a new table.",
            known.tools, counted.tools
        );
        return (report, Ok(()));
    }
    if cheaper {
        let _ = writeln!(
            report,
            "A cheaper path may become more expensive again unnoticed: {bless}."
        );
    }
    let outcome = if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("{}; {bless} where that is wanted", wrong.join(", ")))
    };
    (report, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(tools: &str, rows: &[(&str, f64)]) -> InstructionCounts {
        let row = |(path, instructions): &(&str, f64)| Row {
            path: (*path).to_owned(),
            instructions: *instructions,
            tolerance: 2.0,
        };
        InstructionCounts {
            tools: tools.to_owned(),
            rows: rows.iter().map(row).collect(),
        }
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let table = table(
            "rustc 1.0, glibc 2.0",
            &[("a", 10.5), ("a_longer_one", 123_456.0)],
        );
        assert_eq!(InstructionCounts::parse(&table.to_string()), Ok(table));
        assert!(InstructionCounts::parse("a 1").is_err());
        assert!(InstructionCounts::parse("a one 1").is_err());
    }

    #[test]
    fn only_what_has_become_dearer_fails() {
        let known = table("x", &[("a", 100.0), ("b", 100.0)]);
        for (a, b, dearer) in [
            (100.0, 100.0, vec![]),
            (101.9, 98.1, vec![]),
            (102.1, 98.1, vec!["a "]),
            (50.0, 103.0, vec!["b "]),
            (103.0, 200.0, vec!["a ", "b "]),
        ] {
            let (report, outcome) = compare(&known, &table("x", &[("a", a), ("b", b)]));
            let error = outcome.err().unwrap_or_default();
            assert_eq!(error.is_empty(), dearer.is_empty(), "{error}");
            assert!(dearer.iter().all(|path| error.contains(path)), "{error}");
            assert_eq!(report.contains("cheaper"), a < 98.0, "{report}");
        }
    }

    #[test]
    fn a_table_that_lacks_a_path_or_has_one_too_many_fails() {
        let known = table("x", &[("a", 100.0), ("old", 1.0)]);
        let (_, outcome) = compare(&known, &table("x", &[("a", 100.0), ("new", 1.0)]));
        let error = outcome.expect_err("it is out of date");
        assert!(
            error.contains("new is not") && error.contains("old is in"),
            "{error}"
        );
    }

    #[test]
    fn counts_of_another_compiler_say_nothing() {
        let (known, counted) = (table("x", &[("a", 1.0)]), table("y", &[("a", 9.0)]));
        let (report, outcome) = compare(&known, &counted);
        assert_eq!(outcome, Ok(()));
        assert!(report.contains("say nothing"), "{report}");
    }

    #[test]
    fn tolerances_stay_when_counts_are_renewed() {
        let mut counted = table("y", &[("a", 9.0), ("b", 1.0)]);
        counted.rows[0].tolerance = TOLERANCE;
        let blessed = counted.with_tolerances_of(&table("x", &[("a", 1.0)]));
        let tolerances: Vec<f64> = blessed.rows.iter().map(|row| row.tolerance).collect();
        assert_eq!(tolerances, [2.0, TOLERANCE]);
    }
}
