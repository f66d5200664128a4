// SPDX-License-Identifier: Apache-2.0

//! `/federate`: the newest values of the series that `match[]` selects, for a Prometheus that scrapes them.

use std::collections::BTreeMap;
use std::fmt::Write;

use tidegate_engine::clock;
use tidegate_promql::{Instant, Labels, NAME, Options};

use super::{Api, ApiFailure, PageContent, parse_selector, selectors};
use crate::component::unix_now;
use crate::net::pages::Request;
use crate::prom::catalog::millis;
use crate::prom::number::push_f64;

impl Api {
    pub(super) fn federate(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        let now = unix_now();
        let mut all: BTreeMap<(String, Labels), f64> = BTreeMap::new();
        for text in selectors(request)? {
            let query = parse_selector(text)?;
            self.view
                .refresh_for(now, &query.selections(), &request.patience)?;
            let options = Options {
                patience: request.patience.clone(),
                max_samples: self.max_samples_of(request),
                ..Options::default()
            };
            let at = millis(clock::wall(now));
            let (Instant::Vector(vector), _) = query.instant_with(&*self.view, at, &options)? else {
                continue;
            };
            for (labels, value) in vector {
                // The text format has no native histograms.
                if let Some(value) = value.float() {
                    all.insert((labels.get(NAME).to_owned(), labels), value);
                }
            }
        }
        let mut page = self.text(request);
        let (mut last, mut line) = ("", String::new());
        for ((name, labels), value) in &all {
            line.clear();
            if name != last {
                // Writing to a string can't fail.
                let _ = writeln!(line, "# TYPE {name} untyped");
                last = name;
            }
            push_sample(&mut line, name, labels, *value);
            let _ = writeln!(line, " {}", millis(clock::wall(now)));
            page.plain(&line)?;
        }
        Ok(PageContent::Text(page.whole()))
    }
}

fn push_sample(page: &mut String, name: &str, labels: &Labels, value: f64) {
    page.push_str(name);
    let mut sign = '{';
    for (label, value) in labels.iter().filter(|(label, _)| &***label != NAME) {
        let value = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        let _ = write!(page, "{sign}{label}=\"{value}\"");
        sign = ',';
    }
    page.push_str(if sign == ',' { "} " } else { " " });
    push_f64(page, value);
}
