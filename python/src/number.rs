// SPDX-License-Identifier: Apache-2.0

//! Numbers as `prometheus_client` writes them.

use pyo3::prelude::*;
use pyo3::types::PyFloat;

/// The text of a bucket's bound: Python's `repr`, with Go's exponents from a million on. (Rust's shortest digits are not
/// always Python's: of two that are as near, Python takes the even one.)
pub(crate) fn go_float(py: Python<'_>, number: f64) -> PyResult<String> {
    if number.is_infinite() {
        return Ok(if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned());
    }
    let text = PyFloat::new(py, number).repr()?.extract::<String>()?;
    let large = text
        .split_once('.')
        .filter(|(whole, _)| number > 0.0 && whole.len() > 6);
    let Some((whole, fraction)) = large else {
        return Ok(text);
    };
    let exponent = whole.len() - 1;
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_end_matches('0');
    let (first, rest) = digits.split_at(1); // a digit that is not zero
    let point = if rest.is_empty() { "" } else { "." };
    Ok(format!("{first}{point}{rest}e+{exponent:02}"))
}
