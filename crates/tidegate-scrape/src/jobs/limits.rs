// SPDX-License-Identifier: Apache-2.0

//! The limits of jobs from outside: in all, and of each namespace.

use std::collections::{BTreeMap, HashSet};

use super::DescribedJob;

/// The most jobs from outside.
const MAX_JOBS: usize = 10_000;

/// The most jobs of the objects of a namespace, so that no namespace takes the room of the others.
const MAX_JOBS_OF_NAMESPACE: usize = 1_000;

/// The jobs of a namespace.
#[derive(Default)]
struct Count {
    accepted: usize,
    refused: usize,
}

/// The jobs within the limits. Running jobs come first, so that new jobs do not end them.
pub(super) fn within_limits<'a>(
    wanted: &[&'a DescribedJob],
    is_fixed: impl Fn(&str) -> bool,
    is_running: impl Fn(&str) -> bool,
    problems: &mut Vec<String>,
) -> Vec<&'a DescribedJob> {
    let (running, new): (Vec<&DescribedJob>, Vec<_>) = wanted.iter().partition(|job| is_running(&job.name));
    let mut names = HashSet::new();
    let mut namespaces = BTreeMap::<&str, Count>::new();
    let mut refused = 0;
    let mut accepted = Vec::new();
    for job in running.into_iter().chain(new) {
        if is_fixed(&job.name) || names.contains(job.name.as_str()) {
            let DescribedJob { source, name, .. } = job;
            problems.push(format!("{source}: job {name}: another job has this name"));
            continue;
        }
        let count = namespaces.entry(&job.namespace).or_default();
        if !job.namespace.is_empty() && count.accepted >= MAX_JOBS_OF_NAMESPACE {
            count.refused += 1;
        } else if names.len() >= MAX_JOBS {
            refused += 1;
        } else {
            count.accepted += 1;
            names.insert(job.name.as_str());
            accepted.push(job);
        }
    }
    for (namespace, Count { refused, .. }) in namespaces.into_iter().filter(|(_, count)| count.refused > 0) {
        problems.push(format!(
            "namespace {namespace}: {refused} jobs beyond the limit of {MAX_JOBS_OF_NAMESPACE} of a namespace are skipped"
        ));
    }
    if refused > 0 {
        problems.push(format!(
            "{refused} jobs beyond the limit of {MAX_JOBS} are skipped"
        ));
    }
    accepted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(namespace: &str, count: usize) -> Vec<DescribedJob> {
        let job = |at: usize| DescribedJob {
            name: format!("{namespace}/{at}"),
            options: String::new(),
            source: "s".to_owned(),
            namespace: namespace.to_owned(),
        };
        (0..count).map(job).collect()
    }

    #[test]
    fn a_namespace_has_at_most_its_share_of_the_jobs() {
        let all = [jobs("a", MAX_JOBS_OF_NAMESPACE + 5), jobs("b", 3)].concat();
        let mut problems = Vec::new();
        let accepted = within_limits(
            &all.iter().collect::<Vec<_>>(),
            |_| false,
            |_| false,
            &mut problems,
        );
        assert_eq!(accepted.len(), MAX_JOBS_OF_NAMESPACE + 3);
        assert_eq!(accepted.last().unwrap().namespace, "b");
        assert!(problems[0].contains("namespace a: 5 jobs"), "{problems:?}");
        assert_eq!(problems.len(), 1);
    }

    #[test]
    fn running_jobs_stay_when_new_ones_exceed_the_limit() {
        let mut all = Vec::new();
        for namespace in 0..=MAX_JOBS / MAX_JOBS_OF_NAMESPACE {
            all.extend(jobs(&namespace.to_string(), MAX_JOBS_OF_NAMESPACE));
        }
        all.extend(jobs("running", 2));
        let is_running = |name: &str| name.starts_with("running/");
        let mut problems = Vec::new();
        let accepted = within_limits(
            &all.iter().collect::<Vec<_>>(),
            |_| false,
            is_running,
            &mut problems,
        );
        assert_eq!(accepted.len(), MAX_JOBS);
        assert!(accepted[..2].iter().all(|job| job.namespace == "running"));
        assert!(problems[0].contains("1002 jobs beyond"), "{problems:?}");
    }

    #[test]
    fn of_jobs_with_the_same_name_the_first_counts() {
        let all = [jobs("", 1), jobs("", 2)].concat();
        let mut problems = Vec::new();
        let is_fixed = |name: &str| name == "/1";
        let accepted = within_limits(
            &all.iter().collect::<Vec<_>>(),
            is_fixed,
            |_| false,
            &mut problems,
        );
        assert_eq!(accepted.len(), 1);
        assert_eq!(problems.len(), 2);
    }
}
