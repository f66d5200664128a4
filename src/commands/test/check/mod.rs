// SPDX-License-Identifier: Apache-2.0

//! What a test expects, compared with what the gateway shows. `exported` keeps the data of exporters, and `exporter` compares
//! it.

mod exported;
mod exporter;

use std::fmt::Write as _;

use tidegate_engine::{Attributes, Freshness};
use tidegate_promql::{Labels, Query};

pub(super) use self::exported::Exported;
use self::exporter::of_exporter;
use super::file::{Expectation, ExpectedDrop, ExpectedElement};
use super::gateway::{TestGateway, complete};
use crate::component::{Reason, unix_now};
use crate::config::Ordered;
use crate::watch;

/// The most lines of what is there in a message.
const MAX_LINES: usize = 20;

/// Compares. `Err` has what is there instead.
///
/// # Errors
/// The expectation does not hold, or names something that does not exist.
pub(super) async fn check(
    expected: &Expectation,
    gateway: &TestGateway,
    exported: &Exported,
) -> Result<(), String> {
    if let Some(exporter) = &expected.exporter {
        of_exporter(expected, gateway, exporter, exported)
    } else if let Some(page) = &expected.page {
        let text = gateway.stand_ins.page(page, unix_now());
        let text = text.ok_or_else(|| format!("no pipeline has a `prometheus` exporter `{page}`"))?;
        of_page(expected, &text)
    } else if let Some(query) = &expected.query {
        of_query(expected, gateway, query)
    } else if let Some(composite) = &expected.composite {
        of_composite(expected, gateway, composite).await
    } else if let Some(dropped) = &expected.dropped {
        of_drops(dropped, gateway)
    } else {
        Ok(())
    }
}

/// Whether two numbers are equal, but for the last digits that a sum may lose.
fn is_equal(a: f64, b: f64) -> bool {
    let scale = a.abs().max(b.abs());
    a == b || (a.is_nan() && b.is_nan()) || (scale.is_finite() && (a - b).abs() <= scale * 1e-9)
}

/// The first lines of what is there.
fn listed(what: &str, lines: impl IntoIterator<Item = String>) -> String {
    let mut lines = lines.into_iter();
    let mut text = what.to_owned();
    for line in lines.by_ref().take(MAX_LINES) {
        let _ = write!(text, "\n    {line}");
    }
    match lines.count() {
        0 => text,
        more => text + &format!("\n    ... and {more} more"),
    }
}

fn has_attributes(attributes: &Attributes, expected: &Ordered<String>) -> bool {
    expected.iter().all(|(key, text)| {
        let value = attributes.get(key);
        value.is_some_and(|value| value.to_string() == *text)
    })
}

fn of_page(expected: &Expectation, text: &str) -> Result<(), String> {
    let samples = || text.lines().filter(|line| !line.starts_with('#'));
    if let Some(missing) = (expected.lines.iter()).find(|line| !text.lines().any(|shown| shown == *line)) {
        let name = missing.split(['{', ' ']).next().unwrap_or_default();
        let near: Vec<_> = samples().filter(|line| line.starts_with(name)).collect();
        let shown = if near.is_empty() {
            samples().collect()
        } else {
            near
        };
        let what = format!("the page has no line `{missing}`. It has:");
        return Err(listed(&what, shown.into_iter().map(str::to_owned)));
    }
    let begins = |start: &&String| text.lines().any(|line| line.starts_with(start.as_str()));
    if let Some(start) = expected.absent.iter().find(begins) {
        let shown = text.lines().filter(|line| line.starts_with(start.as_str()));
        let what = format!("the page has lines that begin with `{start}`:");
        return Err(listed(&what, shown.map(str::to_owned)));
    }
    let Some(exactly) = &expected.exactly else {
        return Ok(());
    };
    let wanted: Vec<_> = exactly.lines().filter(|line| !line.is_empty()).collect();
    let shown: Vec<_> = samples().collect();
    if wanted == shown {
        return Ok(());
    }
    let missing = wanted.iter().filter(|line| !shown.contains(line));
    let others = shown.iter().filter(|line| !wanted.contains(line));
    let differences = missing.map(|line| format!("- {line}"));
    let differences: Vec<_> = differences
        .chain(others.map(|line| format!("+ {line}")))
        .collect();
    if differences.is_empty() {
        let shown = shown.into_iter().map(str::to_owned);
        return Err(listed("the page has these lines in another order:", shown));
    }
    Err(listed(
        "the page differs (`-` is missing, `+` is there):",
        differences,
    ))
}

fn of_query(expected: &Expectation, gateway: &TestGateway, query: &str) -> Result<(), String> {
    let query = Query::parse(query).map_err(|error| error.to_string())?;
    let evaluators = gateway.shared.evaluators.list();
    let evaluator = evaluators.first().ok_or("the gateway answers no queries")?;
    let values = evaluator.0.evaluate(&query, unix_now())?.values;
    let is_only = |value: f64| matches!(values.as_slice(), [(_, only)] if is_equal(*only, value));
    let holds = expected.value.is_none_or(is_only)
        && (expected.empty).is_none_or(|empty| empty == values.is_empty())
        && (expected.series.as_ref()).is_none_or(|series| is_same(series, &values));
    if holds {
        return Ok(());
    }
    if values.is_empty() {
        return Err(listed("the result is empty", gateway.query_warnings(&query)));
    }
    let lines = values.iter().map(|(labels, value)| format!("{labels} {value}"));
    Err(listed("the result is:", lines))
}

/// Whether the elements are those of a result, in any order.
fn is_same(expected: &[ExpectedElement], values: &[(Labels, f64)]) -> bool {
    let is_there = |element: &ExpectedElement| {
        let wanted = element.labels.iter().map(|(name, value)| (name, value.as_str()));
        let wanted: Labels = wanted.collect();
        let mut values = values.iter();
        values.any(|(labels, value)| *labels == wanted && is_equal(*value, element.value))
    };
    expected.len() == values.len() && expected.iter().all(is_there)
}

async fn of_composite(expected: &Expectation, gateway: &TestGateway, name: &str) -> Result<(), String> {
    let all = gateway.shared.composites.list();
    let named = all.into_iter().filter(|one| *one.declaration().name == *name);
    let named: Vec<_> = named.collect();
    if named.is_empty() {
        return Err(format!("no composite has the name `{name}`"));
    }
    let refreshed = complete(watch::refresh(&named)).await;
    refreshed.ok_or("the composite was not computed in time")?;
    let now = unix_now();
    let groups: Vec<_> = named
        .iter()
        .flat_map(|one| one.read(now).answers.to_vec())
        .collect();
    let holds = groups.iter().any(|group| {
        let answer = &group.answer;
        let is_value = |value: f64| answer.value.is_some_and(|shown| is_equal(shown, value));
        has_attributes(&answer.attributes, &expected.labels)
            && expected.value.is_none_or(is_value)
            && (expected.state.as_deref()).is_none_or(|state| state == answer.state.name())
            && (expected.stale).is_none_or(|stale| stale == (answer.state == Freshness::Stale))
    });
    if holds {
        return Ok(());
    }
    let lines = groups.iter().map(|group| {
        let answer = &group.answer;
        let value = answer
            .value
            .map_or_else(|| "no value".to_owned(), |value| value.to_string());
        format!("{name}{{{}}} {value}, {}", answer.attributes, answer.state.name())
    });
    let what = if groups.is_empty() {
        "the composite has no groups"
    } else {
        "the composite has these groups:"
    };
    Err(listed(what, lines))
}

fn of_drops(expected: &ExpectedDrop, gateway: &TestGateway) -> Result<(), String> {
    let ExpectedDrop {
        component,
        reason,
        items,
    } = expected;
    let known = Reason::ALL.into_iter().find(|known| known.name() == reason);
    let known = known.ok_or_else(|| {
        let names: Vec<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        format!("`{reason}` is not a reason: expected one of {}", names.join(", "))
    })?;
    let nodes = gateway.metrics.nodes.iter();
    let nodes: Vec<_> = nodes
        .filter(|node| *node.path == **component || *node.id == **component)
        .collect();
    if nodes.is_empty() {
        return Err(format!("no pipeline has a component `{component}`"));
    }
    let balances: Vec<_> = nodes
        .iter()
        .map(|node| (node.path.clone(), node.ledger.balance()))
        .collect();
    let dropped = balances
        .iter()
        .map(|(_, balance)| balance.dropped[known as usize]);
    if dropped.sum::<u64>() == *items {
        return Ok(());
    }
    let lines = balances.iter().flat_map(|(path, balance)| {
        let reasons = Reason::ALL.into_iter().zip(balance.dropped);
        let reasons = reasons.filter(|(_, items)| *items > 0);
        reasons.map(move |(reason, items)| format!("{path} {} {items}", reason.name()))
    });
    let lines: Vec<_> = lines.collect();
    let shown = if lines.is_empty() {
        "No item is dropped"
    } else {
        "These are dropped:"
    };
    let what = format!("expected {items} items dropped by `{reason}`. {shown}");
    Err(listed(&what, lines))
}

#[cfg(test)]
mod tests {
    use super::super::testing::decoded;
    use super::*;

    #[test]
    fn a_page_is_compared_by_lines_beginnings_and_as_a_whole() {
        let page = "# TYPE a gauge\na{b=\"1\"} 1\na{b=\"2\"} 2\n";
        let checked = |options: &str| of_page(&decoded(&format!("{{at: 0, page: p, {options}}}")), page);
        assert_eq!(checked("lines: ['a{b=\"1\"} 1', '# TYPE a gauge']"), Ok(()));
        assert_eq!(checked("absent: ['a{b=\"3\"}']"), Ok(()));
        assert_eq!(
            checked("exactly: \"a{b=\\\"1\\\"} 1\\na{b=\\\"2\\\"} 2\\n\""),
            Ok(())
        );
        let wrong = [
            ("lines: ['a{b=\"1\"} 2']", "a{b=\"1\"} 1"),
            ("absent: ['a{b=\"2']", "a{b=\"2\"} 2"),
            ("exactly: 'a{b=\"1\"} 1'", "+ a{b=\"2\"} 2"),
        ];
        for (options, shown) in wrong {
            let message = checked(options).expect_err(options);
            assert!(message.contains(shown), "{message}");
        }
    }

    #[test]
    fn numbers_are_equal_up_to_the_last_digits() {
        assert!(is_equal(0.1 + 0.2, 0.3) && is_equal(f64::NAN, f64::NAN));
        assert!(is_equal(f64::INFINITY, f64::INFINITY) && !is_equal(1.0, 1.000_001));
        assert!(!is_equal(f64::INFINITY, 1.0) && !is_equal(0.0, f64::NAN));
    }
}
