//! Numbers as `prometheus_client` writes them: Python's `repr`, with Go's exponents from a million on.

/// The text of a bucket's bound or of a value.
pub(crate) fn go_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{number:e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text; // never: it was asked for with an exponent
    };
    let exponent: i32 = exponent.parse().unwrap_or(0); // of a finite number
    let is_large = exponent >= 16 || (exponent >= 6 && number > 0.0);
    if exponent < -4 || is_large {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{number:?}")
}
