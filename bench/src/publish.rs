// SPDX-License-Identifier: Apache-2.0

//! Figures as a page of the documentation: a section for each group or job, of which those that were measured now take
//! the place of what was there, and the others stay.

use crate::BenchError;
use crate::groups::GROUPS;
use crate::selection::group_of;

/// The page.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/benchmarks.md");

/// The text before all sections.
const PREAMBLE: &str = "# Benchmarks

Written by `cargo xtask bench --publish [GROUP[/JOB]...]`, `cargo xtask cluster --publish` and
`cargo xtask page --open --publish`. They replace the sections of what they measured and leave the others.
[measuring.md](measuring.md) says what each group does and how to read its figures.

These pictures show the tables below. A mark is a median, and the line through it goes from the minimum to the maximum of all
rounds. A mark is missing where a program cannot do the job, or was not installed. Programs have one core each, but replicas and
their broker share two.

![Processor time of a point, of tidegate and peers, by kind of request](plot-processor.svg)

![Points a second through one core, of tidegate and peers, by kind of request](plot-throughput.svg)

![Resident memory of tidegate and peers, by kind of load](plot-memory.svg)

![p50 and p99 of the time from an event to a page, a query and a watcher](plot-latency.svg)

![Time of PromQL queries of tidegate and Prometheus 3](plot-queries.svg)

![Cores and memory of a replica and of the broker, by the number of agents](plot-agents.svg)

";

/// A section begins with this and its name, and ends where the next begins.
const BEGIN: &str = "<!-- section ";
const BEGUN: &str = " -->\n";

/// The clusters come after the groups. They are not a group: they have a command of their own.
pub(crate) const CLUSTER: &str = "cluster";

/// Open pages are not a group either: they come last.
pub(crate) const OPEN_PAGES: &str = "pages";

/// What a page says of the figures of a run.
pub(crate) struct Published<'a> {
    pub(crate) command: &'a str,
    pub(crate) machine: &'a str,
    /// Names and texts.
    pub(crate) sections: Vec<(String, String)>,
}

/// Writes sections into the page.
pub(crate) fn publish(published: Published<'_>) -> Result<(), BenchError> {
    let old = match std::fs::read_to_string(PAGE) {
        Ok(old) => old,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error.into()),
    };
    let now = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
    let day = now.split('T').next().unwrap_or_default();
    let (command, machine) = (published.command, published.machine);
    let sections = published.sections.into_iter().map(|(name, text)| {
        let head = format!("## {name}\n\n`{command}`, {day}, {machine}.\n\n");
        (name, format!("{head}{}\n", text.trim_end()))
    });
    let groups = GROUPS.iter().map(|group| group.name);
    let order: Vec<_> = groups.chain([CLUSTER, OPEN_PAGES]).collect();
    std::fs::write(PAGE, merged(&old, sections.collect(), &order))?;
    Ok(())
}

/// The page with these sections in the place of those of the same name.
fn merged(old: &str, new: Vec<(String, String)>, order: &[&str]) -> String {
    let mut sections = sections(old);
    for (name, text) in new {
        match sections.iter_mut().find(|(there, _)| *there == name) {
            Some(section) => section.1 = text,
            None => sections.push((name, text)),
        }
    }
    // Jobs stay in the order in which they came.
    sections.sort_by_key(|(name, _)| order.iter().position(|group| *group == group_of(name)));
    let sections = sections
        .iter()
        .map(|(name, text)| format!("{BEGIN}{name}{BEGUN}{text}\n"));
    PREAMBLE.to_owned() + sections.collect::<String>().trim_end() + "\n"
}

/// Names and texts of the sections of a page.
fn sections(page: &str) -> Vec<(String, String)> {
    let sections = page.split(BEGIN).skip(1);
    let sections = sections.filter_map(|section| section.split_once(BEGUN));
    sections
        .map(|(name, text)| (name.to_owned(), text.trim_end().to_owned() + "\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: [&str; 3] = ["start", "otlp", "outage"];

    fn page(sections: &[(&str, &str)]) -> String {
        let sections = sections
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        merged("", sections.collect(), &ORDER)
    }

    #[test]
    fn what_was_not_measured_stays() {
        let old = page(&[
            ("outage", "old outage\n"),
            ("start", "old start\n"),
            ("otlp/grpc-1", "old one\n"),
        ]);
        let new = vec![
            ("otlp/grpc-1".to_owned(), "new one\n".to_owned()),
            ("otlp/grpc-10".to_owned(), "new ten\n".to_owned()),
        ];
        let expected = page(&[
            ("start", "old start\n"),
            ("otlp/grpc-1", "new one\n"),
            ("otlp/grpc-10", "new ten\n"),
            ("outage", "old outage\n"),
        ]);
        assert_eq!(merged(&old, new, &ORDER), expected);
        assert!(expected.contains("old start"), "{expected}");
    }

    #[test]
    fn a_page_that_is_written_again_is_the_same() {
        let once = page(&[("start", "a | b\n"), ("otlp/grpc-1", "c\n\nd\n")]);
        assert_eq!(merged(&once, Vec::new(), &ORDER), once);
        assert!(once.starts_with(PREAMBLE));
    }
}
