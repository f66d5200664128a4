//! Labels as Prometheus has them while a target is found and relabelled.

pub(super) use crate::prom::model::LabelSet as Labels;
