// SPDX-License-Identifier: Apache-2.0

//! Severities by name, and what a selector's check says.

use super::*;
use crate::component::testing::settings;

#[test]
fn severities_have_numbers_and_names() {
    let parsed = |text| SeverityNumber::parse(text).map(|number| number.0);
    assert_eq!(parsed("TRACE"), Some(1));
    assert_eq!(parsed("info"), Some(9));
    assert_eq!(parsed("WARN4"), Some(16));
    assert_eq!(parsed("FATAL4"), Some(24));
    for wrong in ["", "INFO1", "INFO5", "WARNING", "4", "INFO22222222222"] {
        assert_eq!(parsed(wrong), None, "{wrong}");
    }
}

/// The problems of a selector.
fn problems_of(yaml: &str) -> String {
    let panic = std::panic::catch_unwind(|| settings::<Selector>(yaml));
    let panic = panic.err().expect("there is something wrong");
    panic.downcast_ref::<String>().expect("a message").clone()
}

#[test]
fn every_wrong_expression_is_reported_where_it_stands() {
    let said = problems_of(
        "{match_type: regexp, metric_names: [ok, '('], bodies: ['['], \
         attributes: [{key: a, value: '*'}], libraries: [{name: '+'}]}",
    );
    assert_eq!(said.matches("not a regular expression").count(), 4, "{said}");
    assert!(problems_of("match_type: strict").contains("selects nothing"));
    assert!(problems_of("severity_number: {min: LOUD}").contains("INFO or WARN2"));
}
