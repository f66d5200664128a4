// SPDX-License-Identifier: Apache-2.0

//! Templates in labels and annotations: the part of Go's templates that rules of Prometheus use.
//!
//! An expansion is bounded in steps and in its output, and no input makes it panic.

mod calendar;
mod eval;
mod functions;
mod hosts;
mod lexer;
mod numbers;
mod parser;
mod printf;
#[cfg(test)]
mod tests;
mod times;
mod value;
mod variables;

use tidegate_promql::{Labels, Millis, SampleValue};

use eval::Expansion;
use parser::ParsedTemplate;

/// The longest template, in bytes.
const MAX_TEMPLATE: usize = 64 << 10;

/// The longest text that an expansion gives or holds, in bytes.
const MAX_OUTPUT: usize = 64 << 10;

/// The most steps of an expansion. A node and a call are a step, a query or a pattern is a thousand.
const MAX_STEPS: usize = 100_000;

/// The most levels of blocks and templates in an expansion. A template may call itself.
const MAX_LEVELS: usize = 100;

/// Answers the queries of a template.
pub type QueryCall<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<(Labels, SampleValue)>, String>;

/// The values that a template can show.
#[derive(Clone, Debug)]
pub struct TemplateData<'a> {
    /// The labels of the series.
    pub labels: &'a Labels,
    /// The labels that the caller adds to all alerts.
    pub external_labels: &'a Labels,
    /// The address of the gateway.
    pub external_url: &'a str,
    /// The value of the series.
    pub value: f64,
    /// The time of the evaluation.
    pub now: Millis,
}

/// A parsed template.
#[derive(Debug)]
pub struct Template {
    parsed: ParsedTemplate,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// It is not a template, is too long, or has an unknown function or variable.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_TEMPLATE {
            return Err(format!("a template has {MAX_TEMPLATE} bytes at most"));
        }
        let parsed = parser::parse(text).map_err(|why| format!("error parsing template: {why}"))?;
        Ok(Self { parsed })
    }

    /// The text of the template for these values.
    ///
    /// # Errors
    /// A function fails, or the expansion takes too many steps or too much text.
    pub fn expand(&self, data: &TemplateData<'_>, query: QueryCall<'_>) -> Result<String, String> {
        Expansion::new(&self.parsed, data, query).expand()
    }
}

fn too_long() -> String {
    format!("a template gives {MAX_OUTPUT} bytes at most")
}
