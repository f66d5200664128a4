// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask bench sdk`: the cost of recording in Rust and in Python, beside the libraries that people use
//! otherwise, as one table.

use std::fmt::Write;

use crate::progress::LongTask;
use crate::{Outcome, process, python, test::workspace};

/// One line `row OPERATION THREADS LIBRARY MEDIAN LOW HIGH` of a harness, between tabs; nanoseconds.
#[derive(Debug, PartialEq)]
struct Measured {
    operation: String,
    threads: String,
    library: String,
    cell: String,
}

/// Prints the table and keeps it in `target/bench/sdk.md`.
pub(crate) fn bench() -> Outcome {
    let mut python = python::bench()?;
    let mut rust = process::cargo();
    rust.current_dir(workspace())
        .args(["bench", "--package", "tidegate-metrics", "--bench", "record"]);
    let progress = LongTask::new("bench sdk: Rust").step(1, 2).begin(String::new);
    let (of_rust, rust_ended) = process::printed(&mut rust)?;
    drop(progress);
    let _progress = LongTask::new("bench sdk: Python").step(2, 2).begin(String::new);
    let (of_python, python_ended) = process::printed(&mut python)?;
    let (mut rows, mut said) = (Vec::new(), String::new());
    for line in of_rust.lines().chain(of_python.lines()) {
        match measured(line) {
            Some(row) => rows.push(row),
            None => said += &format!("{line}\n"),
        }
    }
    let table = table(&rows);
    println!(
        "{said}\nNanoseconds a call, the median; of a tenth of the rounds less, of a tenth more.\n\n{table}"
    );
    let kept = process::target().join("bench");
    std::fs::create_dir_all(&kept)
        .and_then(|()| std::fs::write(kept.join("sdk.md"), table))
        .map_err(|error| format!("{}: {error}", kept.display()))?;
    rust_ended.and(python_ended)
}

fn measured(line: &str) -> Option<Measured> {
    let fields: Vec<&str> = line.strip_prefix("row\t")?.split('\t').collect();
    let [operation, threads, library, median, low, high] = fields.try_into().ok()?;
    Some(Measured {
        operation: operation.to_owned(),
        threads: threads.to_owned(),
        library: library.to_owned(),
        cell: format!("{median} [{low} .. {high}]"),
    })
}

/// Operations down, libraries across, both in the order in which they first came.
fn table(rows: &[Measured]) -> String {
    let (mut operations, mut libraries) = (Vec::new(), Vec::new());
    for row in rows {
        let operation = (&row.operation, &row.threads);
        if !operations.contains(&operation) {
            operations.push(operation);
        }
        if !libraries.contains(&&row.library) {
            libraries.push(&row.library);
        }
    }
    let names: Vec<&str> = libraries.iter().map(|name| name.as_str()).collect();
    let mut table = format!("| | threads | {} |\n", names.join(" | "));
    let _ = writeln!(table, "| --- | --- |{}", " --- |".repeat(names.len()));
    for (operation, threads) in operations {
        let cell = |library: &&String| {
            let found = rows
                .iter()
                .find(|row| (&row.operation, &row.threads, &row.library) == (operation, threads, *library));
            found.map_or("", |row| &row.cell)
        };
        let cells: Vec<&str> = libraries.iter().map(cell).collect();
        let _ = writeln!(table, "| {operation} | {threads} | {} |", cells.join(" | "));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_both_harnesses_are_one_table() {
        let lines = [
            "row\tRust: inc\t1\tours\t2.0\t1.9\t2.2",
            "row\tRust: inc\t1\ttheirs\t3.0\t2.9\t3.2",
            "row\tPython: inc\t4\ttheirs\t300\t290\t320",
        ];
        let rows: Vec<_> = lines.iter().filter_map(|line| measured(line)).collect();
        let expected = "| | threads | ours | theirs |\n| --- | --- | --- | --- |\n\
            | Rust: inc | 1 | 2.0 [1.9 .. 2.2] | 3.0 [2.9 .. 3.2] |\n\
            | Python: inc | 4 |  | 300 [290 .. 320] |\n";
        assert_eq!(table(&rows), expected);
        assert_eq!(measured("Python 3.11"), None);
    }
}
