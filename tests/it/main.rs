// SPDX-License-Identifier: Apache-2.0

//! Whole-gateway tests: the real binary, real sockets, real peers.
//!
//! One binary for all of them, so that they link once. `kit` holds what they share; the other
//! modules are the tests, one module per subject.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod accepted;
mod account;
mod alert_delivery;
mod alerts_alike;
mod api;
mod auth;
mod autoscaling;
mod brokers;
mod capi;
mod cells;
mod clocks;
mod cluster;
mod collector;
mod colours;
mod composites;
mod config;
mod conservation;
mod convert;
mod debugging;
mod delivery;
mod drops;
mod environment;
mod examples;
mod exposed;
mod falling;
mod graph;
mod hostile;
mod kafka_transport;
mod kit;
mod kubernetes;
mod memory;
mod nats_transport;
mod negotiation;
mod nixl;
mod notices;
mod older_builds;
mod otlp;
mod output;
mod own_metrics;
mod owners;
mod peers;
mod plugins;
mod processes;
mod processors;
mod promql;
mod query;
mod quickstart;
mod readers;
mod readmes;
mod real_exporters;
mod refused;
mod reload;
mod remote_write;
mod ring_files;
mod round_trip;
mod rules;
mod rules_alike;
mod scrape;
mod scraped;
mod scraped_pages;
mod sdk;
mod signals;
mod smoke;
mod socket_path;
mod spelling;
mod state;
mod support;
mod tap;
mod telemetry;
mod testcmd;
mod top;
mod transports;
mod windows;
