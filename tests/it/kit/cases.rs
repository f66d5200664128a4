// SPDX-License-Identifier: Apache-2.0

//! Property tests of whole components: arbitrary cases, a usual number of them or as many as asked for.
//!
//! `TIDEGATE_CASES` sets how many cases are tried instead of the usual few, `TIDEGATE_SEED` which ones.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// Runs `check` on arbitrary cases. The seed is printed.
///
/// # Panics
/// With the smallest case that fails.
pub(crate) fn for_cases<S: Strategy>(
    usual: u32,
    strategy: &S,
    check: impl Fn(&S::Value) -> Result<(), String>,
) {
    let (cases, mut runner) = runner(usual);
    println!("{cases} cases");
    let result = runner.run(strategy, |case| check(&case).map_err(TestCaseError::fail));
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, case)) => panic!("{why}\n{case:#?}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

/// Arbitrary cases to be tried all at once. The seed is printed.
pub(crate) fn some_cases<S: Strategy>(usual: u32, strategy: &S) -> Vec<S::Value> {
    let (cases, mut runner) = runner(usual);
    let mut one = || {
        strategy
            .new_tree(&mut runner)
            .expect("no case is rejected")
            .current()
    };
    (0..cases).map(|_| one()).collect()
}

fn runner(usual: u32) -> (u32, TestRunner) {
    let cases = number("TIDEGATE_CASES").map_or(usual, |cases| cases as u32);
    let seed = number("TIDEGATE_SEED").unwrap_or_else(rand::random);
    println!("TIDEGATE_SEED={seed}");
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    (cases, TestRunner::new_with_rng(config, rng))
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is a number, not {value:?}")))
}
