// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask interop`: a real OpenTelemetry Collector at the other end.

use std::time::Duration;

use crate::progress::LongTask;
use crate::{Outcome, process, test, testenv};

/// Builds the Collector of `tests/go/collector` (3 minutes the first time), and runs the tests that need it. Other runs report
/// them as ignored.
pub(crate) fn interop(arguments: &[String]) -> Outcome {
    testenv::setup(&[])?;
    let progress = LongTask::new("interop: build of the Collector")
        .step(1, 2)
        .expected(Duration::from_secs(3 * 60))
        .begin(String::new);
    testenv::collector()?;
    drop(progress);
    let _progress = LongTask::new("interop: tests").step(2, 2).begin(String::new);
    process::stream(
        test::cargo_test_of(&["--package", "tidegate"])
            .args([
                "--test",
                "it",
                "--",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .args(arguments),
    )
}
