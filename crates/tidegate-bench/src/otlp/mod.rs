//! OTLP over gRPC at both ends of a gateway, cheap enough that what is measured is the gateway: requests are made
//! once and sent as bytes, and what arrives is counted and forgotten.

mod codec;
pub(crate) mod load;
pub(crate) mod request;
mod sink;

pub(crate) use load::Load;
pub(crate) use sink::Sink;
