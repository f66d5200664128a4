// SPDX-License-Identifier: Apache-2.0

//! When the inputs of a test come, and which scrapes fail.

use std::time::Duration;

use super::file::{Located, TestInput};

/// The most arrivals of all inputs of a test.
const MAX_ARRIVALS: usize = 1_000_000;

/// One arrival of an input.
pub(super) struct Arrival<'a> {
    pub(super) at: Duration,
    pub(super) input: &'a Located<TestInput>,
    /// The number of arrivals of this input before.
    pub(super) repetition: u32,
    /// Whether the scrape of a page succeeds. `None`: no input says that a scrape of this source fails.
    pub(super) is_up: Option<bool>,
}

/// All arrivals of a test that ends at `end`, in order. Of equal times, the order of the file counts.
///
/// # Errors
/// There are too many.
pub(super) fn arrivals(inputs: &[Located<TestInput>], end: Duration) -> Result<Vec<Arrival<'_>>, String> {
    let mut all = Vec::new();
    for input in inputs {
        let options = &input.value;
        let last = options.until.unwrap_or(end).min(end);
        let times = options
            .times
            .unwrap_or(if options.every.is_some() { u32::MAX } else { 1 });
        let every = options.every.unwrap_or_default();
        let death = death_of(inputs, options);
        let outages = outages_of(inputs, options);
        for repetition in 0..times {
            let at = options.at.saturating_add(every.saturating_mul(repetition));
            let is_over = at > last || death.is_some_and(|death| at >= death);
            if is_over && options.every.is_some() {
                break;
            }
            if all.len() == MAX_ARRIVALS {
                return Err(format!("more than {MAX_ARRIVALS} arrivals of inputs"));
            }
            all.push(Arrival {
                at,
                input,
                repetition,
                is_up: (!outages.is_empty()).then(|| !outages.iter().any(|outage| is_within(outage, at))),
            });
        }
    }
    all.sort_by_key(|arrival| arrival.at);
    Ok(all)
}

/// When the source of an input ends, if it does so after the first arrival.
fn death_of(inputs: &[Located<TestInput>], of: &TestInput) -> Option<Duration> {
    let others = inputs.iter().map(|other| &other.value);
    let ends = others.filter(|other| other.dead.as_deref() == Some(of.source.as_str()));
    ends.map(|other| other.at).filter(|at| *at >= of.at).min()
}

/// The inputs by which scrapes of the source of an input fail.
fn outages_of<'a>(inputs: &'a [Located<TestInput>], of: &TestInput) -> Vec<&'a TestInput> {
    let others = inputs.iter().map(|other| &other.value);
    let outages = others.filter(|other| other.down.as_deref() == Some(of.source.as_str()));
    outages.filter(|_| of.text.is_some()).collect()
}

/// Whether scrapes fail at a time because of an input.
fn is_within(outage: &TestInput, at: Duration) -> bool {
    at >= outage.at && outage.until.is_none_or(|until| at <= until)
}

#[cfg(test)]
mod tests {
    use super::super::testing::decoded;
    use super::*;

    /// The times of the arrivals in milliseconds, with the positions of their inputs.
    fn times(inputs: &str, end: u64) -> Vec<(u128, usize)> {
        let inputs: Vec<Located<TestInput>> = decoded(inputs);
        let all = arrivals(&inputs, Duration::from_secs(end)).expect("few");
        let position = |arrival: &Arrival<'_>| {
            let mut inputs = inputs.iter();
            inputs.position(|input| std::ptr::eq(input, arrival.input))
        };
        let all = all.iter();
        all.map(|arrival| (arrival.at.as_millis(), position(arrival).expect("its input")))
            .collect()
    }

    #[test]
    fn inputs_come_by_time_and_then_in_the_order_of_the_file() {
        let inputs = "[{at: 2s, text: ''}, {every: 1s, text: ''}, {text: ''}]";
        let expected = [(0, 1), (0, 2), (1000, 1), (2000, 0), (2000, 1)];
        assert_eq!(times(inputs, 2), expected);
    }

    #[test]
    fn a_repetition_ends_by_its_number_its_time_or_the_death_of_its_source() {
        let only = |inputs: &str| times(inputs, 10).iter().filter(|(_, at)| *at == 0).count();
        assert_eq!(only("[{every: 1s, text: ''}]"), 11);
        assert_eq!(only("[{every: 1s, times: 3, text: ''}]"), 3);
        assert_eq!(only("[{every: 1s, until: 1500ms, text: ''}]"), 2);
        assert_eq!(only("[{every: 1s, source: a, text: ''}, {at: 4s, dead: a}]"), 4);
        assert_eq!(only("[{every: 1s, source: b, text: ''}, {at: 4s, dead: a}]"), 11);
    }

    #[test]
    fn scrapes_fail_from_the_time_of_down_until_its_end() {
        let of_first = |inputs: &str| {
            let inputs: Vec<Located<TestInput>> = decoded(inputs);
            let all = arrivals(&inputs, Duration::from_secs(4)).expect("few");
            let first = all
                .iter()
                .filter(|arrival| std::ptr::eq(arrival.input, &raw const inputs[0]));
            first.map(|arrival| arrival.is_up).collect::<Vec<_>>()
        };
        let [good, failed] = [Some(true), Some(false)];
        assert_eq!(
            of_first("[{every: 1s, source: a, text: ''}, {at: 1500ms, until: 3s, down: a}]"),
            [good, good, failed, failed, good]
        );
        assert_eq!(
            of_first("[{every: 2s, source: a, text: ''}, {at: 2s, down: a}]"),
            [good, failed, failed]
        );
        assert_eq!(
            of_first("[{source: b, text: ''}, {source: a, text: ''}, {down: a}]"),
            [None]
        );
    }
}
