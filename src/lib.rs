//! tidegate.

pub mod config;
