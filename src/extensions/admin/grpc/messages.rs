// SPDX-License-Identifier: Apache-2.0

//! The messages of `proto/tidegate/v1/query.proto` and `proto/externalscaler/externalscaler.proto`, written by
//! hand so that the build needs no protobuf compiler. A test compares them with the .proto files.

use std::collections::HashMap;

use prost::{Enumeration, Message};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(map = "string, string", tag = "2")]
    pub(crate) labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) values: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) values: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum State {
    Unspecified = 0,
    Fresh = 1,
    Idle = 2,
    Stale = 3,
    Partial = 4,
    Absent = 5,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Quantile {
    #[prost(double, tag = "1")]
    pub(crate) quantile: f64,
    #[prost(double, tag = "2")]
    pub(crate) value: f64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Value {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(map = "string, string", tag = "2")]
    pub(crate) labels: HashMap<String, String>,
    #[prost(double, optional, tag = "3")]
    pub(crate) value: Option<f64>,
    #[prost(double, optional, tag = "4")]
    pub(crate) min: Option<f64>,
    #[prost(double, optional, tag = "5")]
    pub(crate) avg: Option<f64>,
    #[prost(double, optional, tag = "6")]
    pub(crate) max: Option<f64>,
    #[prost(double, optional, tag = "7")]
    pub(crate) last: Option<f64>,
    #[prost(double, optional, tag = "8")]
    pub(crate) sum: Option<f64>,
    #[prost(double, optional, tag = "9")]
    pub(crate) count: Option<f64>,
    #[prost(message, repeated, tag = "10")]
    pub(crate) quantiles: Vec<Quantile>,
    #[prost(uint64, tag = "11")]
    pub(crate) window_ns: u64,
    #[prost(enumeration = "State", tag = "12")]
    pub(crate) state: i32,
    #[prost(uint64, optional, tag = "13")]
    pub(crate) age_ns: Option<u64>,
    #[prost(uint32, tag = "14")]
    pub(crate) sources_expected: u32,
    #[prost(uint32, tag = "15")]
    pub(crate) sources_reporting: u32,
    #[prost(uint64, tag = "16")]
    pub(crate) seq: u64,
    #[prost(string, optional, tag = "17")]
    pub(crate) error: Option<String>,
    #[prost(string, optional, tag = "18")]
    pub(crate) collision: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum Side {
    Unspecified = 0,
    Above = 1,
    Below = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Threshold {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(enumeration = "Side", tag = "2")]
    pub(crate) side: i32,
    #[prost(double, tag = "3")]
    pub(crate) at: f64,
    #[prost(double, optional, tag = "4")]
    pub(crate) clear: Option<f64>,
    #[prost(uint64, tag = "5")]
    pub(crate) min_interval_ns: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Crossing {
    #[prost(message, optional, tag = "1")]
    pub(crate) threshold: Option<Threshold>,
    #[prost(bool, tag = "2")]
    pub(crate) crossed: bool,
    #[prost(message, optional, tag = "3")]
    pub(crate) value: Option<Value>,
    #[prost(uint64, tag = "4")]
    pub(crate) time_unix_nano: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(map = "string, string", tag = "2")]
    pub(crate) labels: HashMap<String, String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) threshold: Option<Threshold>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) min_interval_ns: Option<u64>,
    #[prost(uint64, tag = "5")]
    pub(crate) seq: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) values: Vec<Value>,
    #[prost(message, optional, tag = "2")]
    pub(crate) crossing: Option<Crossing>,
    #[prost(uint64, tag = "3")]
    pub(crate) missed: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ScaledObjectRef {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(map = "string, string", tag = "3")]
    pub(crate) scaler_metadata: HashMap<String, String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct IsActiveResponse {
    #[prost(bool, tag = "1")]
    pub(crate) result: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetMetricSpecResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) metric_specs: Vec<MetricSpec>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MetricSpec {
    #[prost(string, tag = "1")]
    pub(crate) metric_name: String,
    #[prost(int64, tag = "2")]
    pub(crate) target_size: i64,
    #[prost(double, tag = "3")]
    pub(crate) target_size_float: f64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetMetricsRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) scaled_object_ref: Option<ScaledObjectRef>,
    #[prost(string, tag = "2")]
    pub(crate) metric_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetMetricsResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) metric_values: Vec<MetricValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MetricValue {
    #[prost(string, tag = "1")]
    pub(crate) metric_name: String,
    #[prost(int64, tag = "2")]
    pub(crate) metric_value: i64,
    #[prost(double, tag = "3")]
    pub(crate) metric_value_float: f64,
}
