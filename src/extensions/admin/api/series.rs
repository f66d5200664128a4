// SPDX-License-Identifier: Apache-2.0

//! The series, their labels, and the metadata of their metrics.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json as object};
use tidegate_promql::{Labels, Selection};

use super::{AnnotatedData, Api, ApiFailure, PageContent, params, parse_selector, selectors};
use crate::component::unix_now;
use crate::net::pages::Request;
use crate::prom::escaping::unescape;

/// The bytes of a series' labels while they are listed.
const SERIES_BYTES: usize = 512;

impl Api {
    /// The selectors of `match[]`, for the time between `start` and `end`.
    pub(super) fn selections(request: &Request) -> Result<Vec<Selection>, ApiFailure> {
        let of = |text: &str| {
            let query = parse_selector(text)?;
            Ok(query.selection().unwrap_or_else(Selection::everything))
        };
        selectors(request)?.map(of).collect()
    }

    /// The labels that `match[]` selects between `start` and `end`; all labels without `match[]`.
    fn labels(&self, request: &Request) -> Result<Vec<Labels>, ApiFailure> {
        let start = params::optional_time(request, "start")?;
        let end = params::optional_time(request, "end")?;
        let mut selections = Self::selections(request)?;
        if selections.is_empty() {
            selections.push(Selection::everything());
        }
        for selection in &mut selections {
            // The first is not part of it.
            selection.from = start.map_or(selection.from, |start| start.saturating_sub(1));
            selection.to = end.unwrap_or(selection.to);
        }
        self.view
            .refresh_for(unix_now(), &selections, &request.patience)?;
        let most = request.max_bytes / SERIES_BYTES;
        if request.max_bytes < usize::MAX && self.view.cost(&selections, most + 1) > most {
            return Err(ApiFailure::memory());
        }
        Ok(self.view.labels(&selections, &request.patience)?)
    }

    pub(super) fn series(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        let limit = params::limit(request)?;
        if request.all("match[]").next().is_none() {
            return Err(ApiFailure::bad("no match[] parameter provided"));
        }
        let labels = self.labels(request)?;
        let mut text = self.text(request);
        text.label_sets(labels.iter().take(most(limit)))?;
        Ok(list(text.whole(), labels.len() > most(limit)))
    }

    pub(super) fn names(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        let limit = params::limit(request)?;
        let all = self.labels(request)?;
        let names = all
            .iter()
            .flat_map(|labels| labels.iter().map(|(name, _)| &**name));
        let names: BTreeSet<&str> = names.collect();
        self.texts(request, &names, limit)
    }

    fn texts(
        &self,
        request: &Request,
        all: &BTreeSet<&str>,
        limit: usize,
    ) -> Result<PageContent, ApiFailure> {
        let mut text = self.text(request);
        text.texts(all.iter().copied().take(most(limit)))?;
        Ok(list(text.whole(), all.len() > most(limit)))
    }

    pub(super) fn values(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        let limit = params::limit(request)?;
        let label = label(&request.path)?;
        let all = self.labels(request)?;
        let values = all.iter().map(|labels| labels.get(&label));
        let values: BTreeSet<&str> = values.filter(|value| !value.is_empty()).collect();
        self.texts(request, &values, limit)
    }

    pub(super) fn metadata(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        let metrics = params::number(request, "limit")?;
        let entries = params::number(request, "limit_per_metric")?;
        let wanted = request.get("metric").filter(|metric| !metric.is_empty());
        let patience = &request.patience;
        self.view
            .refresh_for(unix_now(), &[Selection::everything()], patience)?;
        let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for about in self.view.about(patience)? {
            if wanted.is_some_and(|wanted| wanted != about.name) {
                continue;
            }
            let known = all.entry(about.name).or_default();
            if entries.is_none_or(|most| most == 0 || known.len() < most) {
                known.push(object!({"type": about.kind, "help": about.help, "unit": about.unit}));
            }
        }
        let mut text = self.text(request);
        text.lists(all.into_iter().take(metrics.unwrap_or(usize::MAX)))?;
        Ok(list(text.whole(), false))
    }
}

/// The label of `label/NAME/values`; `U__` names are read as Prometheus 3 does.
fn label(path: &str) -> Result<String, ApiFailure> {
    let name = path.strip_prefix("/api/v1/label/");
    let name = name
        .and_then(|rest| rest.strip_suffix("/values"))
        .unwrap_or_default();
    let name = percent_encoding::percent_decode_str(name).decode_utf8();
    let name = name.map_err(|_| ApiFailure::bad("invalid label name: it is not UTF-8"))?;
    Ok(if name.starts_with("U__") {
        unescape(&name).unwrap_or_else(|| name.into_owned())
    } else {
        name.into_owned()
    })
}

/// The most entries of a list; 0 stands for all.
fn most(limit: usize) -> usize {
    if limit > 0 { limit } else { usize::MAX }
}

fn list(data: Vec<u8>, is_cut: bool) -> PageContent {
    let mut said = AnnotatedData {
        data,
        ..AnnotatedData::default()
    };
    if is_cut {
        said.truncated();
    }
    PageContent::Data(said)
}
