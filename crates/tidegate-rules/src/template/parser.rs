// SPDX-License-Identifier: Apache-2.0

//! The pieces of a template as a tree.

use std::collections::BTreeMap;

use super::functions;
use super::lexer::{Lexed, Piece, TemplateToken, pieces};
use super::variables::VariableScope;

/// The most levels of blocks and parentheses.
const MAX_DEPTH: usize = 40;

/// A template, and those that it defines.
#[derive(Debug)]
pub(super) struct ParsedTemplate {
    pub(super) nodes: Vec<TemplateNode>,
    /// By name.
    pub(super) definitions: BTreeMap<String, Vec<TemplateNode>>,
}

#[derive(Debug)]
pub(super) enum TemplateNode {
    Text(String),
    Action(Pipeline),
    If(Branch),
    With(Branch),
    Range(Branch),
    /// A defined template, and what it gets as its dot.
    Template(String, Option<Pipeline>),
    Break,
    Continue,
}

/// A block with its alternative.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) pipeline: Pipeline,
    pub(super) body: Vec<TemplateNode>,
    pub(super) otherwise: Vec<TemplateNode>,
}

/// Commands, each of which gives its value to the next one.
#[derive(Debug)]
pub(super) struct Pipeline {
    /// Variables that take its value: for `range` an index and an element.
    pub(super) variables: Vec<String>,
    /// Whether they exist already.
    pub(super) is_assignment: bool,
    pub(super) commands: Vec<Vec<Operand>>,
}

/// A value, and the fields of it that are meant.
#[derive(Debug)]
pub(super) struct Operand {
    pub(super) base: Base,
    pub(super) fields: Vec<String>,
}

#[derive(Debug)]
pub(super) enum Base {
    Dot,
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Variable(String),
    Function(String),
    Group(Pipeline),
}

/// The end of a list of nodes.
enum Ending {
    Text,
    End,
    Else(Vec<Lexed>),
}

struct TemplateParser {
    pieces: std::vec::IntoIter<Piece>,
    /// The number of open `range` blocks.
    ranges: usize,
    variables: VariableScope,
    definitions: BTreeMap<String, Vec<TemplateNode>>,
}

/// Parses a template.
pub(super) fn parse(text: &str) -> Result<ParsedTemplate, String> {
    let mut parser = TemplateParser {
        pieces: pieces(text)?.into_iter(),
        ranges: 0,
        variables: VariableScope::new(),
        definitions: BTreeMap::new(),
    };
    let (nodes, ending) = parser.list(0)?;
    match ending {
        Ending::Text => Ok(ParsedTemplate {
            nodes,
            definitions: parser.definitions,
        }),
        Ending::End => Err("unexpected {{end}}".to_owned()),
        Ending::Else(_) => Err("unexpected {{else}}".to_owned()),
    }
}

impl TemplateParser {
    fn list(&mut self, depth: usize) -> Result<(Vec<TemplateNode>, Ending), String> {
        if depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} blocks in each other"));
        }
        let mut nodes = Vec::new();
        while let Some(piece) = self.pieces.next() {
            let tokens = match piece {
                Piece::Text(text) => {
                    nodes.push(TemplateNode::Text(text));
                    continue;
                }
                Piece::Action(tokens) => tokens,
            };
            match keyword(&tokens) {
                "end" if tokens.len() == 1 => return Ok((nodes, Ending::End)),
                "else" => return Ok((nodes, Ending::Else(tokens[1..].to_vec()))),
                "define" if depth == 0 => self.define(&tokens)?,
                _ => nodes.push(self.node(&tokens, depth)?),
            }
        }
        Ok((nodes, Ending::Text))
    }

    fn node(&mut self, tokens: &[Lexed], depth: usize) -> Result<TemplateNode, String> {
        match keyword(tokens) {
            "if" => self.branch(tokens, depth).map(TemplateNode::If),
            "with" => self.branch(tokens, depth).map(TemplateNode::With),
            "range" => {
                self.ranges += 1;
                let branch = self.branch(tokens, depth)?;
                self.ranges -= 1;
                Ok(TemplateNode::Range(branch))
            }
            "break" | "continue" if self.ranges == 0 => {
                Err(format!("{{{{{}}}}} outside {{{{range}}}}", keyword(tokens)))
            }
            "break" => Ok(TemplateNode::Break),
            "continue" => Ok(TemplateNode::Continue),
            "define" => Err("unexpected {{define}} in a block".to_owned()),
            "block" => self.block(tokens, depth),
            "template" => {
                let (name, rest) = template_name(tokens)?;
                let pipeline = (!rest.is_empty()).then(|| self.pipeline(rest, false));
                Ok(TemplateNode::Template(name, pipeline.transpose()?))
            }
            _ => self.pipeline(tokens, false).map(TemplateNode::Action),
        }
    }

    /// Reads the definition of a template.
    fn define(&mut self, tokens: &[Lexed]) -> Result<(), String> {
        let (name, rest) = template_name(tokens)?;
        if let Some(lexed) = rest.first() {
            return Err(format!("unexpected {:?} in define clause", lexed.token));
        }
        self.definition(name, 0)
    }

    /// A template that is defined where it is used.
    fn block(&mut self, tokens: &[Lexed], depth: usize) -> Result<TemplateNode, String> {
        let (name, rest) = template_name(tokens)?;
        if rest.is_empty() {
            return Err("missing value for block clause".to_owned());
        }
        let pipeline = self.pipeline(rest, false)?;
        self.definition(name.clone(), depth)?;
        Ok(TemplateNode::Template(name, Some(pipeline)))
    }

    /// Reads the body of a template up to its `end`.
    fn definition(&mut self, name: String, depth: usize) -> Result<(), String> {
        let ranges = std::mem::take(&mut self.ranges);
        let variables = std::mem::replace(&mut self.variables, VariableScope::of_defined_template());
        let (body, ending) = self.list(depth + 1)?;
        (self.ranges, self.variables) = (ranges, variables);
        match ending {
            Ending::End => {}
            Ending::Text => return Err("unexpected EOF".to_owned()),
            Ending::Else(_) => return Err("unexpected {{else}} in define clause".to_owned()),
        }
        // As in Go, a template without content neither replaces another one nor stands in its way.
        let is_new = self.definitions.get(&name).is_none_or(|known| is_blank(known));
        if !is_new && !is_blank(&body) {
            return Err(format!("multiple definition of template {name:?}"));
        }
        if is_new {
            self.definitions.insert(name, body);
        }
        Ok(())
    }

    /// A block up to its `end`.
    fn branch(&mut self, tokens: &[Lexed], depth: usize) -> Result<Branch, String> {
        let word = keyword(tokens);
        let block = self.variables.open_block();
        let pipeline = self.pipeline(&tokens[1..], word == "range")?;
        let (body, ending) = self.list(depth + 1)?;
        let otherwise = match ending {
            Ending::End => Vec::new(),
            Ending::Text => return Err("unexpected EOF".to_owned()),
            Ending::Else(rest) if rest.is_empty() => match self.list(depth + 1)? {
                (nodes, Ending::End) => nodes,
                (_, Ending::Text) => return Err("unexpected EOF".to_owned()),
                (_, Ending::Else(_)) => return Err("expected end; found {{else}}".to_owned()),
            },
            Ending::Else(rest)
                if depth < MAX_DEPTH && matches!(word, "if" | "with") && keyword(&rest) == word =>
            {
                vec![self.node(&rest, depth + 1)?]
            }
            Ending::Else(_) => return Err("unexpected token in {{else}}".to_owned()),
        };
        // As in Go, `{{else}}` may read what the part before it declares.
        self.variables.close_block(block);
        Ok(Branch {
            pipeline,
            body,
            otherwise,
        })
    }

    /// Parses a whole action as a pipeline.
    fn pipeline(&mut self, tokens: &[Lexed], is_range: bool) -> Result<Pipeline, String> {
        let mut cursor = Cursor {
            tokens,
            at: 0,
            known: &mut self.variables,
        };
        let (variables, is_assignment) = cursor.variables(is_range)?;
        let commands = cursor.commands(0)?;
        match cursor.peek() {
            None => Ok(Pipeline {
                variables,
                is_assignment,
                commands,
            }),
            Some(token) => Err(format!("unexpected {token:?} in pipeline")),
        }
    }
}

/// The name that an action begins with.
fn keyword(tokens: &[Lexed]) -> &str {
    match tokens.first().map(|lexed| &lexed.token) {
        Some(TemplateToken::Name(name)) => name,
        _ => "",
    }
}

/// The name of the template that an action defines or uses, and the tokens after it.
fn template_name(tokens: &[Lexed]) -> Result<(String, &[Lexed]), String> {
    let word = keyword(tokens);
    match tokens.get(1).map(|lexed| &lexed.token) {
        Some(TemplateToken::Text(name)) => Ok((name.clone(), &tokens[2..])),
        Some(other) => Err(format!("unexpected {other:?} in {word} clause")),
        None => Err(format!("missing name in {word} clause")),
    }
}

/// Whether a template has no actions, and no text but spaces.
fn is_blank(nodes: &[TemplateNode]) -> bool {
    let is_space = |node: &TemplateNode| matches!(node, TemplateNode::Text(text) if text.trim().is_empty());
    nodes.iter().all(is_space)
}

/// Tokens, and the number of those that were read.
struct Cursor<'t> {
    tokens: &'t [Lexed],
    at: usize,
    known: &'t mut VariableScope,
}

impl<'t> Cursor<'t> {
    fn peek(&self) -> Option<&'t TemplateToken> {
        self.tokens.get(self.at).map(|lexed| &lexed.token)
    }

    /// The variables before `:=` or `=`.
    fn variables(&mut self, is_range: bool) -> Result<(Vec<String>, bool), String> {
        let token = |at: usize| self.tokens.get(at).map(|lexed| &lexed.token);
        let variable = |at: usize| match token(at) {
            Some(TemplateToken::Variable(name)) => Some(name.clone()),
            _ => None,
        };
        let Some(first) = variable(0) else {
            return Ok((Vec::new(), false));
        };
        let mut names = vec![first];
        if is_range && token(1) == Some(&TemplateToken::Sign(',')) {
            names.push(variable(2).ok_or("range can only initialize variables")?);
        }
        let sign = names.len() * 2 - 1;
        let is_assignment = match token(sign) {
            Some(TemplateToken::Declare) => false,
            Some(TemplateToken::Assign) => true,
            _ if names.len() == 1 => return Ok((Vec::new(), false)),
            _ => return Err("expected := after the variables of range".to_owned()),
        };
        self.at = sign + 1;
        // As in Go, an assignment declares too. It fails in the expansion if the variable does not exist.
        self.known.declare(&names);
        Ok((names, is_assignment))
    }

    fn commands(&mut self, depth: usize) -> Result<Vec<Vec<Operand>>, String> {
        let mut commands = Vec::new();
        loop {
            let mut operands = Vec::new();
            while let Some(operand) = self.operand(depth)? {
                operands.push(operand);
            }
            if operands.is_empty() {
                return Err("missing value for command".to_owned());
            }
            commands.push(operands);
            if self.peek() != Some(&TemplateToken::Sign('|')) {
                return Ok(commands);
            }
            self.at += 1;
        }
    }

    /// The next operand of a command; `None`: the command ends.
    fn operand(&mut self, depth: usize) -> Result<Option<Operand>, String> {
        let Some(token) = self.peek() else {
            return Ok(None);
        };
        let mut fields = Vec::new();
        let base = match token {
            TemplateToken::Sign('|' | ')') => return Ok(None),
            TemplateToken::Sign('(') => return self.group(depth).map(Some),
            TemplateToken::Name(name) => named(name)?,
            TemplateToken::Field(name) => {
                fields.push(name.clone());
                Base::Dot
            }
            TemplateToken::Variable(name) => {
                self.known.check(name)?;
                Base::Variable(name.clone())
            }
            TemplateToken::Dot => Base::Dot,
            TemplateToken::Text(text) => Base::Text(text.clone()),
            TemplateToken::Int(number) => Base::Int(*number),
            TemplateToken::Float(number) => Base::Float(*number),
            other => return Err(format!("unexpected {other:?} in operand")),
        };
        self.at += 1;
        self.fields(&mut fields);
        Ok(Some(Operand { base, fields }))
    }

    fn group(&mut self, depth: usize) -> Result<Operand, String> {
        if depth >= MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} parentheses in each other"));
        }
        self.at += 1;
        let commands = self.commands(depth + 1)?;
        if self.peek() != Some(&TemplateToken::Sign(')')) {
            return Err("unclosed left paren".to_owned());
        }
        self.at += 1;
        let mut fields = Vec::new();
        self.fields(&mut fields);
        let base = Base::Group(Pipeline {
            variables: Vec::new(),
            is_assignment: false,
            commands,
        });
        Ok(Operand { base, fields })
    }

    /// Reads the fields that follow without a space.
    fn fields(&mut self, fields: &mut Vec<String>) {
        while let Some(Lexed {
            token: TemplateToken::Field(name),
            is_joined: true,
        }) = self.tokens.get(self.at)
        {
            fields.push(name.clone());
            self.at += 1;
        }
    }
}

fn named(name: &str) -> Result<Base, String> {
    match name {
        "true" => Ok(Base::Bool(true)),
        "false" => Ok(Base::Bool(false)),
        "nil" => Ok(Base::Nil),
        name if functions::is_known(name) => Ok(Base::Function(name.to_owned())),
        name => Err(format!("function {name:?} not defined")),
    }
}
