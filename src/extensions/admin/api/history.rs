// SPDX-License-Identifier: Apache-2.0

//! `history`: the recent past of merged series, for another replica of the cluster. It comes in pages; the request names the
//! place where its page begins.

use http::HeaderValue;
use http::header::CONTENT_ENCODING;
use tidegate_promql::Millis;

use super::params::invalid;
use super::{Api, ApiFailure, PageContent};
use crate::extensions::admin::fetch::{BEGINS, INSTANCE, NEXT, merged_tables};
use crate::net::pages::{self, Answer, Request};
use crate::net::{Coding, compress};
use crate::prom::catalog::{HistoryPage, SeriesPosition};
use crate::prom::remote::Version;

impl Api {
    pub(super) fn history(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        let from = request.get("from").unwrap_or("0").parse::<Millis>();
        let from = from.map_err(|error| invalid("from", error))?;
        let at = request.get("at").map(str::parse::<SeriesPosition>).transpose();
        let at = at.map_err(|why| invalid("at", why))?.unwrap_or_default();
        let Some((merged, _)) = merged_tables(&self.shared) else {
            return Err(ApiFailure::execution(
                "this gateway is not a replica of a cluster: it has no `partials` receiver".to_owned(),
            ));
        };
        let page = self.view.lend(&merged, from, at, &request.patience)?;
        Ok(PageContent::Other(self.history_answer(&page)?))
    }

    fn history_answer(&self, page: &HistoryPage) -> Result<Answer, ApiFailure> {
        let packed = compress(Coding::Zstd, &page.request);
        let packed = packed.map_err(|error| ApiFailure::execution(format!("compressing: {error}")))?;
        let mut answer = pages::bytes(Version::One.content_type(), packed.into());
        let headers = answer.headers_mut();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("zstd"));
        let next = page.next.map(|next| next.to_string());
        let begins = page.begins.map(|begins| begins.to_string());
        for (name, value) in [
            (INSTANCE, Some(self.instance.clone())),
            (NEXT, next),
            (BEGINS, begins),
        ] {
            if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                headers.insert(name, value);
            }
        }
        Ok(answer)
    }
}
