// SPDX-License-Identifier: Apache-2.0

//! Values in templates.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use tidegate_promql::Labels;

use super::calendar::{month_name, weekday_name};
use super::numbers::general;
use super::times::{TemplateTime, show_duration};

/// A series with its value, as `query` gives it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TemplateSample {
    pub(super) labels: Labels,
    pub(super) value: f64,
}

/// A value in a template. Copies are cheap.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TemplateValue {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Rc<str>),
    Time(TemplateTime),
    /// `toDuration` gives a pointer. As in Go, each pointer is true, and a pointer is not a number.
    Duration {
        nanoseconds: i64,
        is_pointer: bool,
    },
    /// 1 is January.
    Month(i64),
    /// 0 is Sunday.
    Weekday(i64),
    Labels(Labels),
    Sample(Rc<TemplateSample>),
    List(Rc<Vec<Rc<TemplateSample>>>),
    /// The arguments of a template, by name. None of them is such a map.
    Arguments(Rc<BTreeMap<String, TemplateValue>>),
    /// The dot of the whole template.
    Root,
}

impl From<String> for TemplateValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<&str> for TemplateValue {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl TemplateValue {
    /// The steps that a function needs to read it.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len() / 64,
            Self::List(list) => list.len(),
            _ => 0,
        }
    }

    /// Whether a condition accepts it: it is not empty and not zero.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(truth) => *truth,
            Self::Int(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Labels(labels) => labels.iter().len() > 0,
            Self::List(list) => !list.is_empty(),
            Self::Arguments(map) => !map.is_empty(),
            Self::Duration {
                nanoseconds,
                is_pointer,
            } => *is_pointer || *nanoseconds != 0,
            Self::Weekday(day) => *day != 0,
            Self::Time(_) | Self::Month(_) | Self::Sample(_) | Self::Root => true,
        }
    }

    /// The name of its type in messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::Time(_) => "time.Time",
            Self::Duration { is_pointer: true, .. } => "*time.Duration",
            Self::Duration { .. } => "time.Duration",
            Self::Month(_) => "time.Month",
            Self::Weekday(_) => "time.Weekday",
            Self::Labels(_) => "map[string]string",
            Self::Sample(_) => "*template.sample",
            Self::List(_) => "template.queryResult",
            Self::Arguments(_) => "map[string]interface {}",
            Self::Root => "struct",
        }
    }

    /// The value as Go prints it.
    pub(super) fn show(&self) -> String {
        match self {
            Self::Nil | Self::Root => "<no value>".to_owned(),
            Self::Bool(truth) => truth.to_string(),
            Self::Int(number) => number.to_string(),
            Self::Float(number) => general(*number, None),
            Self::Text(text) => text.to_string(),
            Self::Time(time) => time.show(),
            Self::Duration { nanoseconds, .. } => show_duration(*nanoseconds),
            Self::Month(month) => month_name(*month).to_owned(),
            Self::Weekday(day) => weekday_name(*day).to_owned(),
            Self::Labels(labels) => show_labels(labels),
            Self::Sample(sample) => {
                format!(
                    "{{{} {}}}",
                    show_labels(&sample.labels),
                    general(sample.value, None)
                )
            }
            Self::List(list) => {
                let items: Vec<String> = list
                    .iter()
                    .map(|sample| Self::Sample(sample.clone()).show())
                    .collect();
                format!("[{}]", items.join(" "))
            }
            Self::Arguments(map) => {
                let items: Vec<String> = map
                    .iter()
                    .map(|(name, value)| format!("{name}:{}", value.show()))
                    .collect();
                format!("map[{}]", items.join(" "))
            }
        }
    }

    /// The number that it stands for.
    pub(super) fn number(&self) -> Result<f64, String> {
        match self {
            Self::Int(number) => Ok(*number as f64),
            Self::Float(number) => Ok(*number),
            Self::Text(text) => {
                let invalid = || format!("strconv.ParseFloat: parsing {text:?}: invalid syntax");
                text.parse().map_err(|_| invalid())
            }
            Self::Duration {
                nanoseconds,
                is_pointer: false,
            } => Ok(*nanoseconds as f64 / 1e9),
            other => Err(format!("can't convert {} to float", other.kind())),
        }
    }

    /// The text, if it is one.
    pub(super) fn text(&self) -> Result<&str, String> {
        match self {
            Self::Text(text) => Ok(text),
            other => Err(format!(
                "wrong type for value; expected string; got {}",
                other.kind()
            )),
        }
    }

    /// The number of a value whose type is a whole number in Go.
    pub(super) fn whole(&self) -> Option<i64> {
        match self {
            Self::Int(number) | Self::Month(number) | Self::Weekday(number) => Some(*number),
            Self::Duration {
                nanoseconds,
                is_pointer: false,
            } => Some(*nanoseconds),
            _ => None,
        }
    }

    /// Compares two values of one type.
    pub(super) fn compare(&self, other: &Self) -> Result<Option<Ordering>, String> {
        if let (Some(a), Some(b)) = (self.whole(), other.whole()) {
            return Ok(Some(a.cmp(&b)));
        }
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => Ok(a.partial_cmp(b)),
            (Self::Text(a), Self::Text(b)) => Ok(Some(a.cmp(b))),
            _ => Err("incompatible types for comparison".to_owned()),
        }
    }

    /// Whether two values of one basic type are equal.
    pub(super) fn equals(&self, other: &Self) -> Result<bool, String> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Ok(a == b),
            (Self::Nil, Self::Nil) => Ok(true),
            _ => Ok(self.compare(other)? == Some(Ordering::Equal)),
        }
    }
}

fn show_labels(labels: &Labels) -> String {
    let pairs: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}:{value}"))
        .collect();
    format!("map[{}]", pairs.join(" "))
}
