// SPDX-License-Identifier: Apache-2.0

//! The functions of the language: their arguments and results.

use super::ast::Type;

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static [Type],
    /// The number of arguments allowed after all listed ones but the last; negative: any number.
    pub(crate) variadic: i8,
    pub(crate) returns: Type,
}

use Type::{Matrix, Scalar, Text, Vector};

const fn function(name: &'static str, arguments: &'static [Type], variadic: i8, returns: Type) -> Function {
    Function {
        name,
        arguments,
        variadic,
        returns,
    }
}

const fn of_vector(name: &'static str) -> Function {
    function(name, &[Vector], 0, Vector)
}

const fn of_range(name: &'static str) -> Function {
    function(name, &[Matrix], 0, Vector)
}

/// A function of the parts of a date; without arguments, of the present time.
const fn of_date(name: &'static str) -> Function {
    function(name, &[Vector], 1, Vector)
}

const FUNCTIONS: &[Function] = &[
    of_vector("abs"),
    of_vector("absent"),
    of_range("absent_over_time"),
    of_vector("acos"),
    of_vector("acosh"),
    of_vector("asin"),
    of_vector("asinh"),
    of_vector("atan"),
    of_vector("atanh"),
    of_range("avg_over_time"),
    of_vector("ceil"),
    of_range("changes"),
    function("clamp", &[Vector, Scalar, Scalar], 0, Vector),
    function("clamp_max", &[Vector, Scalar], 0, Vector),
    function("clamp_min", &[Vector, Scalar], 0, Vector),
    of_vector("cos"),
    of_vector("cosh"),
    of_range("count_over_time"),
    of_date("day_of_month"),
    of_date("day_of_week"),
    of_date("day_of_year"),
    of_date("days_in_month"),
    of_vector("deg"),
    of_range("delta"),
    of_range("deriv"),
    function(
        "double_exponential_smoothing",
        &[Matrix, Scalar, Scalar],
        0,
        Vector,
    ),
    of_vector("exp"),
    of_range("first_over_time"),
    of_vector("floor"),
    of_vector("histogram_avg"),
    of_vector("histogram_count"),
    function("histogram_fraction", &[Scalar, Scalar, Vector], 0, Vector),
    function("histogram_quantile", &[Scalar, Vector], 0, Vector),
    of_vector("histogram_stddev"),
    of_vector("histogram_stdvar"),
    of_vector("histogram_sum"),
    of_date("hour"),
    of_range("idelta"),
    of_range("increase"),
    of_range("irate"),
    function("label_join", &[Vector, Text, Text, Text], -1, Vector),
    function("label_replace", &[Vector, Text, Text, Text, Text], 0, Vector),
    of_range("last_over_time"),
    of_vector("ln"),
    of_vector("log10"),
    of_vector("log2"),
    of_range("mad_over_time"),
    of_range("max_over_time"),
    of_range("min_over_time"),
    of_date("minute"),
    of_date("month"),
    function("pi", &[], 0, Scalar),
    function("predict_linear", &[Matrix, Scalar], 0, Vector),
    of_range("present_over_time"),
    function("quantile_over_time", &[Scalar, Matrix], 0, Vector),
    of_vector("rad"),
    of_range("rate"),
    of_range("resets"),
    function("round", &[Vector, Scalar], 1, Vector),
    function("scalar", &[Vector], 0, Scalar),
    of_vector("sgn"),
    of_vector("sin"),
    of_vector("sinh"),
    of_vector("sort"),
    function("sort_by_label", &[Vector, Text], -1, Vector),
    function("sort_by_label_desc", &[Vector, Text], -1, Vector),
    of_vector("sort_desc"),
    of_vector("sqrt"),
    of_range("stddev_over_time"),
    of_range("stdvar_over_time"),
    of_range("sum_over_time"),
    of_vector("tan"),
    of_vector("tanh"),
    function("time", &[], 0, Scalar),
    of_vector("timestamp"),
    of_range("ts_of_first_over_time"),
    of_range("ts_of_last_over_time"),
    of_range("ts_of_max_over_time"),
    of_range("ts_of_min_over_time"),
    function("vector", &[Scalar], 0, Vector),
    of_date("year"),
];

/// Functions of Prometheus that are refused by name.
const REFUSED: [&str; 4] = ["info", "histogram_quantiles", "min_of", "max_of"];

pub(super) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// Whether Prometheus has the function, but this crate does not.
pub(super) fn is_refused(name: &str) -> bool {
    REFUSED.contains(&name)
}
