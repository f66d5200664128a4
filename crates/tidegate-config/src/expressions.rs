// SPDX-License-Identifier: Apache-2.0

//! The size limits of the regular expressions of a configuration. A few characters (`\pL{1000}`) can ask for megabytes
//! and for seconds of work, and a file has room for many of them.

use regex_automata::nfa::thompson::{Config, NFA};

use super::Node;
use super::problems::Problems;

/// Bytes of the programs of one expression, at most. Usual ones have a few thousand.
const MOST_BYTES: usize = 1 << 20;

/// Bytes of the programs of all expressions of a configuration, at most.
const MOST_BYTES_TOGETHER: usize = 16 << 20;

/// The bytes that the expressions so far have left.
#[derive(Clone, Debug)]
pub(super) struct Expressions {
    left: usize,
}

impl Default for Expressions {
    fn default() -> Self {
        Self {
            left: MOST_BYTES_TOGETHER,
        }
    }
}

impl Problems {
    /// The bytes of the programs of all expressions so far.
    pub fn expression_bytes(&self) -> usize {
        MOST_BYTES_TOGETHER - self.expressions.left
    }

    /// Whether there is room for a regular expression; complains where there is none. Call it before the expression is
    /// compiled. An invalid expression has room: its own compiler reports the mistake.
    pub fn has_room_for_expression(&mut self, text: &str, at: &Node) -> bool {
        let most = self.expressions.left.min(MOST_BYTES);
        let limits = Config::new().nfa_size_limit(Some(most));
        let why = match NFA::compiler().configure(limits).build(text) {
            Ok(program) => {
                self.expressions.left = self.expressions.left.saturating_sub(program.memory_usage());
                return true;
            }
            Err(error) if error.size_limit().is_none() => return true,
            Err(_) if most < MOST_BYTES => {
                let mib = MOST_BYTES_TOGETHER >> 20;
                format!("the regular expressions of the configuration take more than {mib} MiB together")
            }
            Err(_) => {
                let mib = MOST_BYTES >> 20;
                format!("the regular expression takes more than {mib} MiB")
            }
        };
        self.at(at)
            .help("repeat less: `\\pL{200}` is 200 copies of a large class")
            .error(why);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_text;

    fn problems_of(texts: &[&str]) -> Vec<String> {
        let mut cx = Problems::default();
        let node = parse_text("test", "a: b", &mut cx).unwrap();
        for text in texts {
            cx.has_room_for_expression(text, &node);
        }
        cx.sorted()
            .iter()
            .map(|problem| problem.message.clone())
            .collect()
    }

    #[test]
    fn large_expressions_are_refused_one_by_one_and_together() {
        assert!(problems_of(&["^k8s\\.", "(", ".*"]).is_empty());
        let one = problems_of(&["\\pL{200}"]);
        assert!(
            one.len() == 1 && one[0].contains("takes more than 1 MiB"),
            "{one:?}"
        );
        let many = problems_of(&["\\pL{5}"; 2000]);
        assert!(
            !many.is_empty() && many[0].contains("16 MiB together"),
            "{many:?}"
        );
    }
}
