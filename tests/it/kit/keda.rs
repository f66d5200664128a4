// SPDX-License-Identifier: Apache-2.0

//! KEDA's side of the external scaler: the calls that its operator makes.

use std::collections::HashMap;
use std::time::Duration;

use prost::Message;
use tokio::runtime::Runtime;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Streaming};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, Message)]
struct ScaledObjectRef {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(map = "string, string", tag = "3")]
    scaler_metadata: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct GetMetricsRequest {
    #[prost(message, optional, tag = "1")]
    scaled_object_ref: Option<ScaledObjectRef>,
    #[prost(string, tag = "2")]
    metric_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct MetricValue {
    #[prost(string, tag = "1")]
    metric_name: String,
    #[prost(int64, tag = "2")]
    metric_value: i64,
    #[prost(double, tag = "3")]
    metric_value_float: f64,
}

#[derive(Clone, PartialEq, Message)]
struct GetMetricsResponse {
    #[prost(message, repeated, tag = "1")]
    metric_values: Vec<MetricValue>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct IsActiveResponse {
    #[prost(bool, tag = "1")]
    result: bool,
}

/// An answer: a value, or a code and a message.
pub(crate) type Answer<T> = Result<T, (Code, String)>;

/// A client of one gateway.
pub(crate) struct Keda {
    runtime: Runtime,
    grpc: Grpc<Channel>,
}

/// A stream of `StreamIsActive`.
pub(crate) struct Activity(Streaming<IsActiveResponse>);

fn object(metadata: &[(&str, &str)]) -> ScaledObjectRef {
    let pairs = metadata.iter();
    ScaledObjectRef {
        name: "scaled".to_owned(),
        namespace: "default".to_owned(),
        scaler_metadata: pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
    }
}

impl Keda {
    /// Connects to a port of 127.0.0.1.
    pub(crate) fn at(port: u16) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let channel = Channel::from_shared(format!("http://127.0.0.1:{port}")).expect("a URI");
        let channel = runtime.block_on(channel.connect()).expect("it listens");
        Self {
            grpc: Grpc::new(channel),
            runtime,
        }
    }

    fn call<I, O>(&mut self, path: &'static str, request: I) -> Answer<O>
    where
        I: Message + Default + 'static,
        O: Message + Default + 'static,
    {
        let grpc = &mut self.grpc;
        self.runtime.block_on(async {
            grpc.ready().await.expect("a connection");
            let codec = ProstCodec::<I, O>::default();
            let path = PathAndQuery::from_static(path);
            match grpc.unary(Request::new(request), path, codec).await {
                Ok(answer) => Ok(answer.into_inner()),
                Err(status) => Err((status.code(), status.message().to_owned())),
            }
        })
    }

    /// `GetMetrics`.
    pub(crate) fn metric(&mut self, metadata: &[(&str, &str)]) -> Answer<f64> {
        let request = GetMetricsRequest {
            scaled_object_ref: Some(object(metadata)),
            metric_name: "s0".to_owned(),
        };
        let answer: GetMetricsResponse = self.call("/externalscaler.ExternalScaler/GetMetrics", request)?;
        Ok(answer
            .metric_values
            .first()
            .expect("one metric")
            .metric_value_float)
    }

    /// `IsActive`.
    pub(crate) fn is_active(&mut self, metadata: &[(&str, &str)]) -> Answer<bool> {
        let answer: IsActiveResponse =
            self.call("/externalscaler.ExternalScaler/IsActive", object(metadata))?;
        Ok(answer.result)
    }

    /// `StreamIsActive`.
    pub(crate) fn activity(&mut self, metadata: &[(&str, &str)]) -> Activity {
        let grpc = &mut self.grpc;
        self.runtime.block_on(async {
            grpc.ready().await.expect("a connection");
            let codec = ProstCodec::<ScaledObjectRef, IsActiveResponse>::default();
            let path = PathAndQuery::from_static("/externalscaler.ExternalScaler/StreamIsActive");
            let stream = grpc
                .server_streaming(Request::new(object(metadata)), path, codec)
                .await;
            Activity(stream.expect("a stream").into_inner())
        })
    }

    /// The next message of a stream within this time.
    pub(crate) fn next(&self, activity: &mut Activity, within: Duration) -> Option<bool> {
        let next = async { tokio::time::timeout(within, activity.0.message()).await };
        let next = self.runtime.block_on(next).ok()?;
        next.expect("the stream goes on").map(|message| message.result)
    }
}
