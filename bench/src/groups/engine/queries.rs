// SPDX-License-Identifier: Apache-2.0

//! Queries of a gateway that holds many series.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::groups::instant;
use crate::http::Scraper;
use crate::report::Row;
use crate::stats::Samples;

/// The most times that a query is asked.
const QUERIES: usize = 200;

/// How long queries take of a gateway with `series` series.
pub(super) fn queries(binary: &Path, series: usize) -> Result<Vec<Row>, BenchError> {
    let subject = instant::start(binary)?;
    instant::fill(&subject, series)?;
    // The past of a query over a range.
    std::thread::sleep(Duration::from_secs(8));
    let asked = [
        (
            "sum of 10 series",
            "sum(bench_component0_requests_metric_0_total{instance=\"instance-00000000\"})",
        ),
        (
            "rate of 10 series",
            "sum by (http_request_method) (rate(bench_component0_requests_metric_0_total{instance=\"instance-00000000\"}[5s]))",
        ),
        (
            "count of all by name",
            "count(count by (__name__) ({__name__=~\"bench_component.*\"}))",
        ),
    ];
    let mut rows = Vec::new();
    for (name, query) in asked {
        let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let mut asker = Scraper::connect(subject.admin, &format!("/api/v1/query?query={query}"))?;
        let begun = Instant::now();
        if asker.get()?.contains("\"result\":[]") {
            return Err(format!("{name}: the query selects nothing").into());
        }
        // A slow query is asked less often.
        let most = (2.0 / begun.elapsed().as_secs_f64()) as usize;
        let times = (0..QUERIES.min(most.max(5))).map(|_| {
            let begun = Instant::now();
            asker.get()?;
            Ok::<_, BenchError>(begun.elapsed().as_secs_f64() * 1e3)
        });
        let times: Vec<f64> = times.collect::<Result<_, _>>()?;
        rows.push(Row::median(
            format!("query, {series} series: {name}"),
            Samples::new(times),
            "ms",
        ));
    }
    Ok(rows)
}
