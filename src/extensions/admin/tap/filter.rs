// SPDX-License-Identifier: Apache-2.0

//! The conditions that select the items of a tap.

use tidegate_promql::{Labels, Matcher, Query, QueryError};

/// The most conditions of a tap.
const MAX_CONDITIONS: usize = 16;

/// Conditions on labels. An item must satisfy all of them.
pub(super) struct TapFilter(Vec<Matcher>);

impl TapFilter {
    /// Reads selectors of PromQL. Those without a name need no braces.
    pub(super) fn parse(texts: &[String]) -> Result<Self, String> {
        if texts.len() > MAX_CONDITIONS {
            return Err(format!(
                "where: {} conditions, at most {MAX_CONDITIONS} are allowed",
                texts.len()
            ));
        }
        let texts = texts.iter().map(|text| text.trim());
        let selectors: Vec<String> = texts.filter(|text| !text.is_empty()).map(selector).collect();
        let wrong = |error: QueryError| format!("where: {error}");
        for text in &selectors {
            let query = Query::parse(text).map_err(wrong)?;
            if query.selection().is_none() {
                return Err(format!("where: `{text}` is not a selector"));
            }
        }
        if selectors.is_empty() {
            return Ok(Self(Vec::new()));
        }
        // The patterns of one query have a bound together. A line break ends comments.
        let all = Query::parse(&selectors.join("\nor\n")).map_err(wrong)?;
        let selections = all.selections().into_iter();
        Ok(Self(
            selections.flat_map(|selection| selection.matchers).collect(),
        ))
    }

    /// Whether an item with these labels satisfies all conditions. Without conditions, nothing computes the labels.
    pub(super) fn accepts(&self, labels: impl FnOnce() -> Labels) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let labels = labels();
        self.0.iter().all(|matcher| matcher.accepts(&labels))
    }
}

/// A condition with its braces. Braces in quotes belong to a pattern.
fn selector(text: &str) -> String {
    let before_quote = text.split(['"', '\'', '`']).next().unwrap_or_default();
    if before_quote.contains('{') || !text.contains('=') {
        text.to_owned()
    } else {
        format!("{{{text}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_that_are_not_selectors_are_refused() {
        let wrong = |text: &str| TapFilter::parse(&[text.to_owned()]).is_err();
        assert!(wrong("{") && wrong("sum(a)") && wrong("a=~\"(\"") && !wrong(" "));
        assert!(TapFilter::parse(&vec![String::new(); MAX_CONDITIONS]).is_ok());
        assert!(TapFilter::parse(&vec![String::new(); MAX_CONDITIONS + 1]).is_err());
    }

    #[test]
    fn the_patterns_of_all_conditions_have_one_bound() {
        let condition = |number: usize| format!("body=~\"(a{{1000}}b{{{number}}}){{20}}c\"");
        let parse = |conditions: usize| {
            let conditions: Vec<String> = (1..=conditions).map(condition).collect();
            TapFilter::parse(&conditions)
        };
        assert!(parse(1).is_ok());
        let error = parse(MAX_CONDITIONS).err().unwrap();
        assert!(error.contains("too large together"), "{error}");
    }
}
