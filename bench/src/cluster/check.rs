// SPDX-License-Identifier: Apache-2.0

//! The checks of pages: against each other, and against the model.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use super::rows::{is_inexact, is_total};

/// The most violations that are kept. The others are counted.
const KEPT: usize = 100;

/// The difference that a sum of inexact terms may have, relative to its value.
const TOLERANCE: f64 = 1e-9;

/// A page: its samples with their values as text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Page(BTreeMap<String, String>);

impl Page {
    /// The samples of an exposition.
    pub(super) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.filter_map(|line| line.rsplit_once(' '));
        Self(
            samples
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    pub(super) fn value(&self, sample: &str) -> Option<f64> {
        self.0.get(sample)?.parse().ok()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn values(&self) -> impl Iterator<Item = (&str, f64)> {
        let samples = self.0.iter();
        samples.map(|(name, value)| (name.as_str(), value.parse().unwrap_or(f64::NAN)))
    }

    /// The samples in which two pages differ.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let names = self
            .0
            .keys()
            .chain(other.0.keys().filter(|name| !self.0.contains_key(*name)));
        let unequal = names.filter(|name| self.0.get(*name) != other.0.get(*name));
        let shown =
            |page: &Self, name: &str| page.0.get(name).cloned().unwrap_or_else(|| "nothing".to_owned());
        unequal
            .map(|name| format!("{name}: {} and {}", shown(self, name), shown(other, name)))
            .collect()
    }
}

/// What is not as it should be.
#[derive(Clone, Debug, Default)]
pub(super) struct Violations(Arc<Mutex<(u64, Vec<String>)>>);

impl Violations {
    pub(super) fn add(&self, violation: String) {
        let mut kept = self.0.lock();
        kept.0 += 1;
        if kept.1.len() < KEPT {
            eprintln!("cluster: {violation}");
            kept.1.push(violation);
        }
    }

    pub(super) fn extend(&self, violations: impl IntoIterator<Item = String>) {
        violations.into_iter().for_each(|violation| self.add(violation));
    }

    /// Their number, and the first ones.
    pub(super) fn all(&self) -> (u64, Vec<String>) {
        self.0.lock().clone()
    }
}

/// A value that a page showed.
#[derive(Clone, Debug)]
struct ShownTotal {
    value: f64,
    /// The source of the page.
    by: String,
}

/// Checks the pages that a reader gets one after the other, from any replica.
#[derive(Debug, Default)]
pub(super) struct PageChecker {
    shown: HashMap<String, ShownTotal>,
}

impl PageChecker {
    /// What is wrong with the next page: totals that fell or went, and totals above `most`, which is the model after the
    /// page.
    pub(super) fn take(&mut self, page: &Page, by: &str, most: &BTreeMap<String, f64>) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, value) in page.values().filter(|(name, _)| is_total(name)) {
            match most.get(name) {
                None => wrong.push(format!("{name}: {by} shows {value}, and no agent has counted it")),
                // A value that is not a number is not below either.
                Some(most) if !is_at_most(name, value, *most) => {
                    wrong.push(format!(
                        "{name}: {by} shows {value}, and the agents have counted {most}"
                    ));
                }
                Some(_) => {}
            }
            let by = by.to_owned();
            let last = self.shown.insert(name.to_owned(), ShownTotal { value, by });
            if let Some(last) = last
                && value < last.value
            {
                let shown = &self.shown[name];
                wrong.push(format!(
                    "{name} fell: {} by {}, then {value} by {}",
                    last.value, last.by, shown.by
                ));
            }
        }
        let gone = self.shown.extract_if(|name, _| !page.0.contains_key(name));
        wrong.extend(gone.map(|(name, last)| {
            format!(
                "{name} is gone: {} by {}, then nothing by {by}",
                last.value, last.by
            )
        }));
        wrong
    }
}

fn is_at_most(name: &str, value: f64, most: f64) -> bool {
    value
        <= if is_inexact(name) {
            most * (1.0 + TOLERANCE)
        } else {
            most
        }
}

/// The samples of a page that differ from the model. Sums of inexact terms may differ a little, all others by no bit.
pub(super) fn compare(page: &Page, model: &BTreeMap<String, f64>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, expected) in model {
        match page.value(name) {
            None => wrong.push(format!("{name}: expected {expected}, shown nothing")),
            Some(shown) if !is_equal(name, shown, *expected) => {
                wrong.push(format!("{name}: expected {expected}, shown {shown}"));
            }
            Some(_) => {}
        }
    }
    let unknown = page.values().filter(|(name, _)| !model.contains_key(*name));
    wrong.extend(unknown.map(|(name, shown)| format!("{name}: expected nothing, shown {shown}")));
    wrong
}

fn is_equal(name: &str, shown: f64, expected: f64) -> bool {
    if is_inexact(name) {
        (shown - expected).abs() <= expected * TOLERANCE
    } else {
        shown.to_bits() == expected.to_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE sim_whole_0 counter\nsim_whole_0_total 7\nsim_tenth_0_total 0.30000000000000004\nsim_level_0 3\n";

    fn model(samples: &[(&str, f64)]) -> BTreeMap<String, f64> {
        samples
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect()
    }

    fn right() -> BTreeMap<String, f64> {
        model(&[
            ("sim_whole_0_total", 7.0),
            ("sim_tenth_0_total", 0.3),
            ("sim_level_0", 3.0),
        ])
    }

    #[test]
    fn a_right_page_passes_all_checks() {
        let (page, mut checker) = (Page::parse(TEXT), PageChecker::default());
        assert_eq!(compare(&page, &right()), [""; 0]);
        assert_eq!(checker.take(&page, "one", &right()), [""; 0]);
        assert_eq!(checker.take(&page, "two", &right()), [""; 0]);
        assert_eq!(page.differences(&page), [""; 0]);
    }

    #[test]
    fn a_wrong_total_is_found_by_a_single_bit() {
        let text = TEXT.replace(" 7", " 7.000000000000001");
        let wrong = compare(&Page::parse(&text), &right());
        assert_eq!(wrong, ["sim_whole_0_total: expected 7, shown 7.000000000000001"]);
    }

    #[test]
    fn a_missing_and_an_unknown_series_are_found() {
        let text = TEXT.replace("sim_level_0", "sim_level_1");
        let wrong = compare(&Page::parse(&text), &right());
        let expected = [
            "sim_level_0: expected 3, shown nothing",
            "sim_level_1: expected nothing, shown 3",
        ];
        assert_eq!(wrong, expected);
    }

    #[test]
    fn a_counter_that_falls_from_one_replica_to_the_next_is_found() {
        let mut checker = PageChecker::default();
        checker.take(&Page::parse(TEXT), "one", &right());
        let lower = TEXT.replace(" 7", " 6").replace("0.30000000000000004", "0.3");
        let wrong = checker.take(&Page::parse(&lower), "two", &right());
        let expected = [
            "sim_tenth_0_total fell: 0.30000000000000004 by one, then 0.3 by two",
            "sim_whole_0_total fell: 7 by one, then 6 by two",
        ];
        assert_eq!(wrong, expected);
    }

    #[test]
    fn a_counter_that_goes_is_found_once() {
        let mut checker = PageChecker::default();
        checker.take(&Page::parse(TEXT), "one", &right());
        let less = Page::parse("sim_tenth_0_total 0.30000000000000004\n");
        let wrong = checker.take(&less, "two", &right());
        assert_eq!(
            wrong,
            ["sim_whole_0_total is gone: 7 by one, then nothing by two"]
        );
        assert_eq!(checker.take(&less, "two", &right()), [""; 0]);
    }

    #[test]
    fn a_counter_above_the_model_and_an_unknown_one_are_found() {
        let most = model(&[("sim_whole_0_total", 6.0)]);
        let wrong = PageChecker::default().take(&Page::parse(TEXT), "one", &most);
        let expected = [
            "sim_tenth_0_total: one shows 0.30000000000000004, and no agent has counted it",
            "sim_whole_0_total: one shows 7, and the agents have counted 6",
        ];
        assert_eq!(wrong, expected);
    }

    #[test]
    fn values_that_are_no_numbers_are_found() {
        let page = Page::parse("sim_whole_0_total x\n");
        assert_eq!(PageChecker::default().take(&page, "one", &right()).len(), 1);
        assert_eq!(compare(&page, &right()).len(), 3);
    }

    #[test]
    fn pages_differ_if_a_text_does() {
        let other = Page::parse(&TEXT.replace("0.30000000000000004", "0.3"));
        let differences = Page::parse(TEXT).differences(&other);
        assert_eq!(differences, ["sim_tenth_0_total: 0.30000000000000004 and 0.3"]);
        assert_eq!(Page::default().differences(&other).len(), 3);
    }

    #[test]
    fn violations_beyond_those_kept_are_counted() {
        let violations = Violations::default();
        violations.extend((0..KEPT + 5).map(|at| at.to_string()));
        let (count, kept) = violations.all();
        assert_eq!((count, kept.len()), (KEPT as u64 + 5, KEPT));
    }
}
