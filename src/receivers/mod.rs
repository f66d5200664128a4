//! Receivers: bring telemetry in.

use crate::component::ReceiverFactory;

/// Every receiver type. Adding one touches its folder and this list.
pub static FACTORIES: &[&ReceiverFactory] = &[];
