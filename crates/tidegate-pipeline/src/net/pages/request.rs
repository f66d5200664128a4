// SPDX-License-Identifier: Apache-2.0

//! Requests for pages, and the methods that a path accepts.

use std::time::Instant;

use http::{HeaderMap, Method};
use tidegate_promql::Patience;

use crate::component::account::SenderKey;

/// The requests that a path accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// GET and HEAD, without parameters in a form.
    Paths,
    /// Also a posted form.
    Forms,
    /// Only GET, as in Prometheus's API.
    Get,
    /// GET or a posted form, as in Prometheus's API.
    GetOrForm,
    /// Only POST: the request changes something.
    Post,
}

impl Takes {
    pub(super) fn allows(self, method: &Method) -> bool {
        match *method {
            Method::GET => self != Self::Post,
            Method::HEAD => matches!(self, Self::Paths | Self::Forms),
            Method::POST => matches!(self, Self::Forms | Self::GetOrForm | Self::Post),
            _ => false,
        }
    }

    pub(super) fn allowed(self) -> &'static str {
        match self {
            Self::Paths => "GET, HEAD, OPTIONS",
            Self::Forms => "GET, HEAD, OPTIONS, POST",
            Self::Get => "GET, OPTIONS",
            Self::GetOrForm => "GET, OPTIONS, POST",
            Self::Post => "OPTIONS, POST",
        }
    }
}

/// A page request.
#[derive(Clone)]
pub struct Request {
    /// The path.
    pub path: String,
    /// The parameters of the form, then those of the query.
    pub form: Vec<(String, String)>,
    /// Its headers.
    pub headers: HeaderMap,
    /// The identity of the client, if known: its user or token, or else an address that it does not share.
    pub client: Option<SenderKey>,
    /// The time of its arrival.
    pub came: Instant,
    /// The time that the client waits for its answer.
    pub patience: Patience,
    /// The memory limit for creating its answer, in bytes.
    pub max_bytes: usize,
}

impl Request {
    /// A request that arrives now.
    pub fn of(path: &str, form: Vec<(String, String)>) -> Self {
        Self {
            path: path.to_owned(),
            form,
            headers: HeaderMap::new(),
            client: None,
            came: Instant::now(),
            patience: Patience::default(),
            max_bytes: usize::MAX,
        }
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.form.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value)
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let of_name = self.form.iter().filter(move |(known, _)| known == name);
        of_name.map(|(_, value)| &**value)
    }
}
