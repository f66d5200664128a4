// SPDX-License-Identifier: Apache-2.0

//! Expands the tree of a template.

use std::rc::Rc;

use super::parser::{Base, Branch, Operand, ParsedTemplate, Pipeline, TemplateNode};
use super::value::{TemplateSample, TemplateValue};
use super::{MAX_LEVELS, MAX_OUTPUT, MAX_STEPS, QueryCall, TemplateData, functions, hosts, times, too_long};

/// What happens after a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

/// An expansion in progress.
pub(super) struct Expansion<'d, 'q> {
    parsed: &'d ParsedTemplate,
    data: &'d TemplateData<'d>,
    query: QueryCall<'q>,
    variables: Vec<(String, TemplateValue)>,
    steps: usize,
    /// The blocks and templates that are open.
    levels: usize,
    out: String,
}

impl<'d, 'q> Expansion<'d, 'q> {
    pub(super) fn new(parsed: &'d ParsedTemplate, data: &'d TemplateData<'d>, query: QueryCall<'q>) -> Self {
        let variables = [
            ("", TemplateValue::Root),
            ("labels", TemplateValue::Labels(data.labels.clone())),
            (
                "externalLabels",
                TemplateValue::Labels(data.external_labels.clone()),
            ),
            ("externalURL", data.external_url.into()),
            ("value", TemplateValue::Float(data.value)),
        ];
        Self {
            parsed,
            data,
            query,
            variables: variables.map(|(name, value)| (name.to_owned(), value)).into(),
            steps: 0,
            levels: 0,
            out: String::new(),
        }
    }

    /// The text of the template.
    pub(super) fn expand(mut self) -> Result<String, String> {
        let parsed = self.parsed;
        self.walk(&parsed.nodes, &TemplateValue::Root)?;
        Ok(self.out)
    }

    fn walk(&mut self, nodes: &[TemplateNode], dot: &TemplateValue) -> Result<Flow, String> {
        self.levels += 1;
        if self.levels > MAX_LEVELS {
            return Err(format!(
                "more than {MAX_LEVELS} levels of blocks and templates: perhaps a template calls itself endlessly"
            ));
        }
        let mut flow = Flow::Next;
        for node in nodes {
            self.spend(1)?;
            flow = match node {
                TemplateNode::Text(text) => {
                    self.write(text)?;
                    Flow::Next
                }
                TemplateNode::Action(pipeline) => {
                    let value = self.pipeline(pipeline, dot)?;
                    if pipeline.variables.is_empty() {
                        self.write(&value.show())?;
                    } else {
                        self.set(pipeline, &[value])?;
                    }
                    Flow::Next
                }
                TemplateNode::If(branch) => self.condition(branch, dot, false)?,
                TemplateNode::With(branch) => self.condition(branch, dot, true)?,
                TemplateNode::Range(branch) => {
                    let known = self.variables.len();
                    let flow = self.range(branch, dot)?;
                    self.variables.truncate(known);
                    flow
                }
                TemplateNode::Template(name, pipeline) => {
                    self.template(name, pipeline.as_ref(), dot)?;
                    Flow::Next
                }
                TemplateNode::Break => Flow::Break,
                TemplateNode::Continue => Flow::Continue,
            };
            if flow != Flow::Next {
                break;
            }
        }
        self.levels -= 1;
        Ok(flow)
    }

    /// Expands a defined template. It knows the value of the pipeline only, as its dot and as `$`.
    fn template(
        &mut self,
        name: &str,
        pipeline: Option<&Pipeline>,
        dot: &TemplateValue,
    ) -> Result<(), String> {
        let parsed = self.parsed;
        let Some(body) = parsed.definitions.get(name) else {
            return Err(format!("template {name:?} not defined"));
        };
        let mut value = TemplateValue::Nil;
        if let Some(pipeline) = pipeline {
            value = self.pipeline(pipeline, dot)?;
            self.set(pipeline, std::slice::from_ref(&value))?;
        }
        let variables = vec![(String::new(), value.clone())];
        let outer = std::mem::replace(&mut self.variables, variables);
        self.walk(body, &value)?;
        self.variables = outer;
        Ok(())
    }

    /// `if` and `with`: the latter sets the dot.
    fn condition(&mut self, branch: &Branch, dot: &TemplateValue, sets_dot: bool) -> Result<Flow, String> {
        let known = self.variables.len();
        let value = self.pipeline(&branch.pipeline, dot)?;
        if !branch.pipeline.variables.is_empty() {
            self.set(&branch.pipeline, std::slice::from_ref(&value))?;
        }
        let flow = if !value.is_true() {
            self.walk(&branch.otherwise, dot)
        } else if sets_dot {
            self.walk(&branch.body, &value)
        } else {
            self.walk(&branch.body, dot)
        };
        self.variables.truncate(known);
        flow
    }

    fn range(&mut self, branch: &Branch, dot: &TemplateValue) -> Result<Flow, String> {
        let value = self.pipeline(&branch.pipeline, dot)?;
        let items = items(&value)?;
        if items.is_empty() {
            // As in Go, the variables have the whole value here.
            self.set(&branch.pipeline, &[value.clone(), value])?;
            return self.walk(&branch.otherwise, dot);
        }
        let known = self.variables.len();
        for (key, item) in items {
            self.spend(1)?;
            match branch.pipeline.variables.len() {
                0 => {}
                1 => self.set(&branch.pipeline, std::slice::from_ref(&item))?,
                _ => self.set(&branch.pipeline, &[key, item.clone()])?,
            }
            let flow = self.walk(&branch.body, &item)?;
            self.variables.truncate(known);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::Next)
    }

    /// Sets the variables of a pipeline.
    fn set(&mut self, pipeline: &Pipeline, values: &[TemplateValue]) -> Result<(), String> {
        for (name, value) in pipeline.variables.iter().zip(values) {
            if !pipeline.is_assignment {
                self.variables.push((name.clone(), value.clone()));
                continue;
            }
            let known = self.variables.iter_mut().rev().find(|(known, _)| known == name);
            let known = known.ok_or_else(|| format!("undefined variable \"${name}\""))?;
            known.1 = value.clone();
        }
        Ok(())
    }

    fn pipeline(&mut self, pipeline: &Pipeline, dot: &TemplateValue) -> Result<TemplateValue, String> {
        let mut last = None;
        for command in &pipeline.commands {
            last = Some(self.command(command, dot, last)?);
        }
        Ok(last.unwrap_or(TemplateValue::Nil))
    }

    /// The value of a command. `last` is the value before `|`.
    fn command(
        &mut self,
        operands: &[Operand],
        dot: &TemplateValue,
        last: Option<TemplateValue>,
    ) -> Result<TemplateValue, String> {
        self.spend(1)?;
        let Some((first, others)) = operands.split_first() else {
            return Err("missing value for command".to_owned());
        };
        let Some((method, path)) = first.fields.split_last() else {
            if let Base::Function(name) = &first.base {
                return self.call(name, others, dot, last);
            }
            if !others.is_empty() || last.is_some() {
                return Err("can't give argument to non-function".to_owned());
            }
            return self.base(&first.base, dot);
        };
        let value = self.base(&first.base, dot)?;
        let value = self.fields(value, path)?;
        let mut arguments = Vec::with_capacity(others.len() + 1);
        for operand in others {
            arguments.push(self.operand(operand, dot)?);
        }
        arguments.extend(last);
        self.field(&value, method, &arguments)
    }

    fn operand(&mut self, operand: &Operand, dot: &TemplateValue) -> Result<TemplateValue, String> {
        let value = self.base(&operand.base, dot)?;
        self.fields(value, &operand.fields)
    }

    /// The value of an operand without its fields.
    fn base(&mut self, base: &Base, dot: &TemplateValue) -> Result<TemplateValue, String> {
        let value = match base {
            Base::Dot => dot.clone(),
            Base::Nil => TemplateValue::Nil,
            Base::Bool(truth) => TemplateValue::Bool(*truth),
            Base::Int(number) => TemplateValue::Int(*number),
            Base::Float(number) => TemplateValue::Float(*number),
            Base::Text(text) => text.as_str().into(),
            Base::Variable(name) => {
                let known = self.variables.iter().rev().find(|(known, _)| known == name);
                let known = known.ok_or_else(|| format!("undefined variable \"${name}\""))?;
                known.1.clone()
            }
            Base::Function(name) => self.call(name, &[], dot, None)?,
            Base::Group(pipeline) => self.pipeline(pipeline, dot)?,
        };
        Ok(value)
    }

    /// A field of a field of a value.
    fn fields(&mut self, value: TemplateValue, fields: &[String]) -> Result<TemplateValue, String> {
        fields
            .iter()
            .try_fold(value, |value, field| self.field(&value, field, &[]))
    }

    /// A field of a value, or the result of its method of this name.
    fn field(
        &mut self,
        value: &TemplateValue,
        field: &str,
        arguments: &[TemplateValue],
    ) -> Result<TemplateValue, String> {
        let called = match value {
            // As in Go, a value that is missing has all fields, and these are missing too.
            TemplateValue::Nil => TemplateValue::Nil,
            TemplateValue::Time(time) => time.method(field, arguments)?,
            TemplateValue::Duration { nanoseconds, .. } => {
                times::duration_method(*nanoseconds, field, arguments)?
            }
            TemplateValue::Month(_) | TemplateValue::Weekday(_) => {
                times::name_method(value, field, arguments)?
            }
            _ if !arguments.is_empty() => return Err(format!("{field} is not a method but has arguments")),
            _ => return self.plain_field(value, field),
        };
        let size: usize = arguments.iter().map(TemplateValue::size).sum();
        self.spend(1 + size)?;
        bounded(called)
    }

    fn plain_field(&self, value: &TemplateValue, field: &str) -> Result<TemplateValue, String> {
        match (value, field) {
            (TemplateValue::Labels(labels), name) => Ok(labels.get(name).into()),
            (TemplateValue::Arguments(map), name) => Ok(map.get(name).cloned().unwrap_or(TemplateValue::Nil)),
            (TemplateValue::Sample(sample), "Labels") => Ok(TemplateValue::Labels(sample.labels.clone())),
            (TemplateValue::Sample(sample), "Value") => Ok(TemplateValue::Float(sample.value)),
            (TemplateValue::Root, "Labels") => Ok(TemplateValue::Labels(self.data.labels.clone())),
            (TemplateValue::Root, "ExternalLabels") => {
                Ok(TemplateValue::Labels(self.data.external_labels.clone()))
            }
            (TemplateValue::Root, "ExternalURL") => Ok(self.data.external_url.into()),
            (TemplateValue::Root, "Value") => Ok(TemplateValue::Float(self.data.value)),
            (value, field) => Err(format!("can't evaluate field {field} in type {}", value.kind())),
        }
    }

    fn call(
        &mut self,
        name: &str,
        operands: &[Operand],
        dot: &TemplateValue,
        last: Option<TemplateValue>,
    ) -> Result<TemplateValue, String> {
        self.spend(functions::cost(name))?;
        let ends_at = match name {
            "and" => Some(false),
            "or" => Some(true),
            _ => None,
        };
        let mut arguments = Vec::with_capacity(operands.len() + 1);
        for operand in operands {
            let value = self.operand(operand, dot)?;
            // As in Go, `and` and `or` do not evaluate more than they need.
            if ends_at == Some(value.is_true()) {
                return Ok(value);
            }
            arguments.push(value);
        }
        arguments.extend(last);
        self.spend(arguments.iter().map(TemplateValue::size).sum())?;
        let value = match (name, arguments.as_slice()) {
            ("and" | "or", [.., last]) => last.clone(),
            ("query", [text]) => self.query(text.text()?)?,
            ("now", []) => TemplateValue::Float(self.data.now as f64 / 1000.0),
            ("externalURL", []) => self.data.external_url.into(),
            ("pathPrefix", []) => hosts::path(self.data.external_url).into(),
            (name, arguments) => functions::call(name, arguments)?,
        };
        bounded(value)
    }

    fn query(&mut self, text: &str) -> Result<TemplateValue, String> {
        let vector = (self.query)(text)?;
        self.spend(vector.len())?;
        let samples = vector.into_iter().map(|(labels, value)| {
            let value = value.float().unwrap_or_default();
            Rc::new(TemplateSample { labels, value })
        });
        Ok(TemplateValue::List(Rc::new(samples.collect())))
    }

    fn write(&mut self, text: &str) -> Result<(), String> {
        if self.out.len() + text.len() > MAX_OUTPUT {
            return Err(too_long());
        }
        self.out += text;
        Ok(())
    }

    fn spend(&mut self, steps: usize) -> Result<(), String> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > MAX_STEPS {
            return Err(format!("a template takes {MAX_STEPS} steps at most"));
        }
        Ok(())
    }
}

/// The value, unless it is too long a text.
fn bounded(value: TemplateValue) -> Result<TemplateValue, String> {
    match &value {
        TemplateValue::Text(text) if text.len() > MAX_OUTPUT => Err(too_long()),
        _ => Ok(value),
    }
}

/// Keys and elements of what `range` walks.
fn items(value: &TemplateValue) -> Result<Vec<(TemplateValue, TemplateValue)>, String> {
    let items: Vec<(TemplateValue, TemplateValue)> = match value {
        TemplateValue::Nil => Vec::new(),
        TemplateValue::List(list) => {
            let items = list.iter().enumerate();
            let items = items.map(|(at, sample)| {
                (
                    TemplateValue::Int(at as i64),
                    TemplateValue::Sample(sample.clone()),
                )
            });
            items.collect()
        }
        TemplateValue::Labels(labels) => {
            let items = labels.iter();
            items
                .map(|(name, value)| ((&**name).into(), (&**value).into()))
                .collect()
        }
        TemplateValue::Arguments(map) => {
            let items = map.iter();
            items
                .map(|(name, value)| (name.as_str().into(), value.clone()))
                .collect()
        }
        other => return Err(format!("range can't iterate over {}", other.kind())),
    };
    Ok(items)
}
