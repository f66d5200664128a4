// SPDX-License-Identifier: Apache-2.0

//! The checks of pages: against each other, and against the model.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::producer::{CLOCK, PROBES};
use super::rows::{is_inexact, is_total};

/// The most violations that are kept. The others are counted.
const KEPT: usize = 100;

/// The findings of a check that are shown.
const SHOWN: usize = 3;

/// The difference that a sum of inexact terms may have, relative to its value.
const TOLERANCE: f64 = 1e-9;

/// A page of a replica.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Page {
    /// The samples that the model has, with their values as text.
    samples: BTreeMap<String, String>,
    /// The newest time that the composite of the gateway shows, in seconds since 1970.
    clock: Option<f64>,
}

impl Page {
    /// The page of an exposition.
    pub(super) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for (name, value) in lines.filter_map(|line| line.rsplit_once(' ')) {
            if name == CLOCK {
                page.clock = value.parse().ok();
            } else if !name.starts_with(PROBES) {
                page.samples.insert(name.to_owned(), value.to_owned());
            }
        }
        page
    }

    /// The newest time that the composite of the gateway shows, in seconds since 1970.
    pub(super) fn clock(&self) -> Option<f64> {
        self.clock
    }

    pub(super) fn value(&self, sample: &str) -> Option<f64> {
        self.samples.get(sample)?.parse().ok()
    }

    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    fn values(&self) -> impl Iterator<Item = (&str, f64)> {
        let samples = self.samples.iter();
        samples.map(|(name, value)| (name.as_str(), value.parse().unwrap_or(f64::NAN)))
    }

    /// The samples in which two pages differ.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let (own, others) = (&self.samples, &other.samples);
        let further = others.keys().filter(|name| !own.contains_key(*name));
        let unequal = own
            .keys()
            .chain(further)
            .filter(|name| own.get(*name) != others.get(*name));
        let shown = |samples: &BTreeMap<String, String>, name: &str| {
            let value = samples.get(name).cloned();
            value.unwrap_or_else(|| "nothing".to_owned())
        };
        unequal
            .map(|name| format!("{name}: {} and {}", shown(own, name), shown(others, name)))
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

    /// Adds all findings of a check as one violation.
    pub(super) fn add_all(&self, check: &str, found: &[String]) {
        let first = found
            .iter()
            .take(SHOWN)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("; ");
        match found.len() {
            0 => {}
            count @ 1..=SHOWN => self.add(format!("{check}: {count} wrong: {first}")),
            count => self.add(format!("{check}: {count} wrong, for example {first}")),
        }
    }

    /// Their number, and the first ones.
    pub(super) fn all(&self) -> (u64, Vec<String>) {
        self.0.lock().clone()
    }
}

/// A page that a replica showed.
#[derive(Debug)]
struct ShownPage {
    answered: Instant,
    page: Page,
}

/// Checks the pages that a reader gets one after the other, from any replica.
#[derive(Debug)]
pub(super) struct PageChecker {
    /// A page may be older than another one that was read this long before.
    max_lag: Duration,
    recent: VecDeque<ShownPage>,
    /// The totals of older pages.
    floor: BTreeMap<String, f64>,
    /// Whether replicas may show different totals now. Then no fall is wrong.
    pub(super) may_differ: bool,
}

/// What is wrong with a page.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PageFindings {
    /// Totals that fell or went, compared with pages that were read longer than `max_lag` before, and totals above the
    /// model.
    pub(super) wrong: Vec<String>,
    /// Totals that fell or went, compared with all pages.
    pub(super) fell: Vec<String>,
}

impl PageChecker {
    pub(super) fn new(max_lag: Duration) -> Self {
        Self {
            max_lag,
            recent: VecDeque::new(),
            floor: BTreeMap::new(),
            may_differ: false,
        }
    }

    /// Takes the next page. `most` is the model after the page.
    ///
    /// `asked`, `answered`: the time of the question, and that of the last byte. A slow page may show what there was just before
    /// its end.
    pub(super) fn take(
        &mut self,
        page: Page,
        (asked, answered): (Instant, Instant),
        most: &BTreeMap<String, f64>,
    ) -> PageFindings {
        while let Some(shown) = self
            .recent
            .pop_front_if(|shown| asked.duration_since(shown.answered) > self.max_lag)
        {
            raise(&mut self.floor, &shown.page);
        }
        let mut wrong = if self.may_differ {
            Vec::new()
        } else {
            falls(&self.floor, &page)
        };
        wrong.extend(excesses(&page, most));
        let mut newest = self.floor.clone();
        self.recent
            .iter()
            .for_each(|shown| raise(&mut newest, &shown.page));
        let fell = falls(&newest, &page);
        self.recent.push_back(ShownPage { answered, page });
        PageFindings { wrong, fell }
    }
}

/// Takes the totals of a later page. What it lacks is not missed again.
fn raise(floor: &mut BTreeMap<String, f64>, page: &Page) {
    floor.retain(|name, _| page.samples.contains_key(name));
    let totals = page.values().filter(|(name, _)| is_total(name));
    floor.extend(totals.map(|(name, value)| (name.to_owned(), value)));
}

/// The totals of a page that are below those of an earlier one.
fn falls(floor: &BTreeMap<String, f64>, page: &Page) -> Vec<String> {
    let fell = floor.iter().filter_map(|(name, last)| match page.value(name) {
        None => Some(format!("{name} is gone: {last}, then nothing")),
        Some(value) if value < *last => Some(format!("{name} fell: {last}, then {value}")),
        Some(_) => None,
    });
    fell.collect()
}

/// The totals of a page that are above those of the model.
fn excesses(page: &Page, most: &BTreeMap<String, f64>) -> Vec<String> {
    let totals = page.values().filter(|(name, _)| is_total(name));
    let above = totals.filter_map(|(name, value)| match most.get(name) {
        None => Some(format!("{name}: shown {value}, and no agent has counted it")),
        // A value that is not a number is not below either.
        Some(most) if !is_at_most(name, value, *most) => Some(format!(
            "{name}: shown {value}, and the agents have counted {most}"
        )),
        Some(_) => None,
    });
    above.collect()
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

    const MAX_LAG: Duration = Duration::from_secs(2);

    /// The findings for pages that were read so many seconds after the first one.
    fn check(pages: &[(u64, &str)], most: &BTreeMap<String, f64>) -> PageFindings {
        let (mut checker, begun) = (PageChecker::new(MAX_LAG), Instant::now());
        let taken = pages.iter().map(|(seconds, text)| {
            let at = begun + Duration::from_secs(*seconds);
            checker.take(Page::parse(text), (at, at), most)
        });
        taken.last().unwrap()
    }

    /// A checker, the time after so many seconds, and a page with a lower total than `TEXT`.
    fn falling() -> (PageChecker, impl Fn(u64) -> Instant, Page) {
        let begun = Instant::now();
        let at = move |seconds| begun + Duration::from_secs(seconds);
        (
            PageChecker::new(MAX_LAG),
            at,
            Page::parse(&TEXT.replace(" 7", " 6")),
        )
    }

    #[test]
    fn a_right_page_passes_all_checks() {
        let page = Page::parse(TEXT);
        assert_eq!(compare(&page, &right()), [""; 0]);
        assert_eq!(page.differences(&page), [""; 0]);
        let pages = [(0, TEXT), (1, TEXT), (9, TEXT)];
        assert_eq!(check(&pages, &right()), PageFindings::default());
    }

    #[test]
    fn a_clock_is_no_sample() {
        let text = format!("{TEXT}probe_clock 1795899726.5\nprobe_times_count 8\n");
        let page = Page::parse(&text);
        assert_eq!((page.clock(), page.len()), (Some(1_795_899_726.5), 3));
        assert_eq!(compare(&page, &right()), [""; 0]);
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
    fn a_counter_that_falls_after_more_than_max_lag_is_wrong() {
        let lower = TEXT.replace(" 7", " 6").replace("0.30000000000000004", "0.3");
        let expected = [
            "sim_tenth_0_total fell: 0.30000000000000004, then 0.3",
            "sim_whole_0_total fell: 7, then 6",
        ];
        let soon = check(&[(0, TEXT), (1, &lower)], &right());
        assert_eq!(
            (soon.wrong, soon.fell),
            (Vec::new(), expected.map(str::to_owned).into())
        );
        let late = check(&[(0, TEXT), (3, &lower)], &right());
        assert_eq!(
            (late.wrong, late.fell.len()),
            (expected.map(str::to_owned).into(), 2)
        );
    }

    #[test]
    fn a_fall_is_not_wrong_while_replicas_may_differ() {
        let (mut checker, at, lower) = falling();
        let most = right();
        checker.take(Page::parse(TEXT), (at(0), at(0)), &most);
        checker.may_differ = true;
        let found = checker.take(lower.clone(), (at(5), at(5)), &most);
        assert_eq!((found.wrong, found.fell.len()), (Vec::new(), 1));
        checker.may_differ = false;
        assert_eq!(checker.take(lower, (at(6), at(6)), &most).wrong.len(), 1);
    }

    #[test]
    fn a_page_that_took_long_may_be_as_new_as_its_end() {
        let (mut checker, at, lower) = falling();
        let most = right();
        assert_eq!(
            checker.take(Page::parse(TEXT), (at(0), at(4)), &most).wrong,
            [""; 0]
        );
        assert_eq!(checker.take(lower.clone(), (at(5), at(5)), &most).wrong, [""; 0]);
        assert_eq!(checker.take(lower, (at(7), at(7)), &most).wrong.len(), 1);
    }

    #[test]
    fn a_counter_that_goes_is_found_once() {
        let less = "sim_tenth_0_total 0.30000000000000004\n";
        let first = check(&[(0, TEXT), (3, less)], &right());
        assert_eq!(first.wrong, ["sim_whole_0_total is gone: 7, then nothing"]);
        let second = check(&[(0, TEXT), (3, less), (6, less)], &right());
        assert_eq!(second, PageFindings::default());
    }

    #[test]
    fn a_counter_above_the_model_and_an_unknown_one_are_found() {
        let expected = [
            "sim_tenth_0_total: shown 0.30000000000000004, and no agent has counted it",
            "sim_whole_0_total: shown 7, and the agents have counted 6",
        ];
        let found = check(&[(0, TEXT)], &model(&[("sim_whole_0_total", 6.0)]));
        assert_eq!(found.wrong, expected);
    }

    #[test]
    fn values_that_are_no_numbers_are_found() {
        let text = "sim_whole_0_total x\n";
        assert_eq!(check(&[(0, text)], &right()).wrong.len(), 1);
        assert_eq!(compare(&Page::parse(text), &right()).len(), 3);
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
        (0..KEPT + 5).for_each(|at| violations.add(at.to_string()));
        violations.add_all("a check", &[]);
        let (count, kept) = violations.all();
        assert_eq!((count, kept.len()), (KEPT as u64 + 5, KEPT));
    }
}
